package fill

import (
	"context"
	"fmt"
	"reflect"
	"sync"

	"github.com/uidplugin/uidplugin/internal/catalog"
	"github.com/uidplugin/uidplugin/internal/model"
	"github.com/uidplugin/uidplugin/internal/upsert"
	"gorm.io/gorm"
	"gorm.io/gorm/schema"
)

// A filling sets one field in those rows of a create where it is zero. It tells notes and tracker about these rows.
type filling struct {
	ctx      context.Context
	field    *catalog.Field
	notes    *notes
	tracker  *upsert.Tracker // nil if the rows cannot have conflicts
	notReady error           // returned if a row needs an id and the source does not have a generator
}

func (f *filling) rows(rows reflect.Value, s *schema.Schema) error {
	switch rows.Kind() {
	case reflect.Struct:
		if rows.Type() != s.ModelType {
			return f.errModel(rows.Type(), s)
		}
		return f.row(rows)
	case reflect.Map:
		if m, ok := rows.Interface().(map[string]any); ok {
			return f.mapped(m)
		}
	case reflect.Slice, reflect.Array:
		element := rows.Type().Elem()
		for element.Kind() == reflect.Pointer {
			element = element.Elem()
		}
		if element == s.ModelType {
			return f.slice(rows)
		}
		if element.Kind() == reflect.Struct && rows.Len() > 0 {
			return f.errModel(element, s)
		}
		if maps, ok := rows.Interface().([]map[string]any); ok {
			for _, m := range maps {
				if err := f.mapped(m); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// The method next returns an id for row, which is a struct or a map, and notes the row, and the id for f.tracker.
func (f *filling) next(row reflect.Value) (int64, error) {
	id, err := f.field.Source.Next(f.ctx, f.notReady)
	if err != nil {
		return 0, err
	}
	if f.tracker != nil {
		f.tracker.Note(f.field.Field, id)
	}
	f.notes.add(filledRows{field: f.field, value: row})
	return id, nil
}

func (f *filling) row(row reflect.Value) error {
	place, zero := f.field.Look(f.ctx, row)
	if !zero {
		return nil
	}
	if !row.CanAddr() {
		return f.errByValue()
	}
	id, err := f.next(row)
	if err != nil {
		return err
	}
	return f.field.Put(f.ctx, place, id)
}

// mapped sets the field in a map if its entry is missing or zero. The entry is named like the column or the field.
func (f *filling) mapped(m map[string]any) error {
	if m == nil {
		return fmt.Errorf("%w: a nil map cannot be given an id in %s", gorm.ErrInvalidValue, f.field.Name)
	}
	r := model.Row{Map: m}
	if _, zero := r.Value(f.ctx, f.field.Field.Field); !zero {
		return nil
	}
	id, err := f.next(reflect.ValueOf(m))
	if err != nil {
		return err
	}
	return r.Set(f.ctx, f.field.Field, id)
}

// reserve is the largest number of ids that are reserved at a time for a slice.
const reserve = 256

var buffers = sync.Pool{New: func() any { return new([reserve]int64) }}

// The method slice sets the field of the structs in a slice. Reserved ids stay unused if some have ids already.
func (f *filling) slice(rows reflect.Value) error {
	buffer := buffers.Get().(*[reserve]int64)
	defer buffers.Put(buffer)
	var ids []int64
	n := rows.Len()
	filled := filledRows{field: f.field, value: rows, first: n}
	for i := range n {
		row := rows.Index(i)
		for row.Kind() == reflect.Pointer {
			row = row.Elem()
		}
		if !row.IsValid() {
			continue // GORM reports nil pointers itself
		}
		place, zero := f.field.Look(f.ctx, row)
		if !zero {
			if filled.first < i {
				filled.except = append(filled.except, i)
			}
			continue
		}
		if len(ids) == 0 {
			if !row.CanAddr() {
				return f.errByValue()
			}
			ids = buffer[:min(n-i, reserve)]
			if err := f.field.Source.Fill(f.ctx, ids, f.notReady); err != nil {
				return err
			}
		}
		if err := f.field.Put(f.ctx, place, ids[0]); err != nil {
			return err
		}
		filled.first = min(filled.first, i)
		if f.tracker != nil {
			f.tracker.Note(f.field.Field, ids[0])
		}
		ids = ids[1:]
	}
	if filled.first < n {
		f.notes.add(filled)
	}
	return nil
}

func (f *filling) errModel(t reflect.Type, s *schema.Schema) error {
	return fmt.Errorf("%w: %v is not the model %s of the statement, so it cannot be given an id in %s",
		gorm.ErrInvalidValue, t, s.Name, f.field.Name)
}

func (f *filling) errByValue() error {
	return fmt.Errorf("%w: %s is passed by value, so it cannot be given an id in %s; pass a pointer to it",
		gorm.ErrInvalidValue, f.field.Schema.Name, f.field.Name)
}

package uidplugin

import (
	"context"
	"fmt"
	"reflect"
	"sync"

	"github.com/uidplugin/uidplugin/internal/model"
	"github.com/uidplugin/uidplugin/internal/supply"
	"github.com/uidplugin/uidplugin/internal/upsert"
	"gorm.io/gorm"
	"gorm.io/gorm/schema"
)

// fillZeros sets the uid fields that are zero. track returns the Tracker of an upsert.
func (cb *callbacks) fillZeros(db *gorm.DB, track func(*gorm.DB) *upsert.Tracker) {
	stmt := db.Statement
	if db.Error != nil || stmt.Schema == nil {
		return
	}
	p := cb.catalog.plan(stmt.Schema)
	if p.err != nil {
		_ = db.AddError(p.err)
		return
	}
	var notReady error // why a source has no generator; it matters only if a row needs an id of it
	if !p.ready.Load() {
		notReady = cb.makeReady(db, p, cb.catalog.neededByCreate(db, p))
	}
	var tracker *upsert.Tracker
	if p.MayConflict || len(stmt.Clauses) > 0 && upsert.Conflicts(stmt) {
		tracker = track(db)
	}
	fields := p.fields
	if len(stmt.Selects) > 0 || len(stmt.Omits) > 0 {
		fields = selectZeroFields(stmt, fields, tracker)
	}
	for _, f := range fields {
		if err := f.fill(db, p.Schema, tracker, notReady); err != nil {
			_ = db.AddError(err)
			return
		}
	}
}

// makeReady gets the worker ids that a statement needs.
func (cb *callbacks) makeReady(db *gorm.DB, p *plan, needed []*supply.Source) error {
	if len(needed) > 0 {
		if err := cb.catalog.supply.Ensure(db.Statement.Context, db.Statement.ConnPool, needed); err != nil {
			return err
		}
	}
	for _, s := range p.sources {
		if !s.Ready() {
			return nil
		}
	}
	p.ready.Store(true)
	return nil
}

// selectZeroFields returns the fields that a create with Select or Omit sets. If a Select left the key out, the
// database would assign one and the struct would keep ours. So a uid field that Select left out is selected as well if
// it is zero in a row. A field that Omit names is left alone.
func selectZeroFields(stmt *gorm.Statement, fields []*field, tracker *upsert.Tracker) []*field {
	columns, restricted := stmt.SelectAndOmitColumns(true, false)
	kept := make([]*field, 0, len(fields))
	for _, f := range fields {
		isSelected, named := columns[f.DBName]
		if named && !isSelected {
			continue
		}
		if !named && restricted {
			if !f.anyZero(stmt) {
				continue // the application's own, to be selected or not
			}
			// Clones of the statement share the array behind Selects.
			stmt.Selects = append(stmt.Selects[:len(stmt.Selects):len(stmt.Selects)], f.DBName)
			if tracker != nil {
				tracker.NoteUnselected(f.Field)
			}
		}
		kept = append(kept, f)
	}
	return kept
}

// anyZero reports whether the field is zero in a row of a statement.
func (f *field) anyZero(stmt *gorm.Statement) bool {
	zero := func(row reflect.Value) bool {
		for row.Kind() == reflect.Pointer {
			row = row.Elem()
		}
		if !row.IsValid() || row.Type() != f.Schema.ModelType {
			return true // a map, or what fill refuses
		}
		_, zero := f.Look(stmt.Context, row)
		return zero
	}
	rows := stmt.ReflectValue
	if rows.Kind() != reflect.Slice && rows.Kind() != reflect.Array {
		return zero(rows)
	}
	for i := range rows.Len() {
		if zero(rows.Index(i)) {
			return true
		}
	}
	return false
}

// fill sets the field in all rows of a statement where it is zero, and notes the ids. notReady is the error if it is
// zero and the source has no generator.
func (f *field) fill(db *gorm.DB, s *schema.Schema, tracker *upsert.Tracker, notReady error) error {
	stmt := db.Statement
	rows := stmt.ReflectValue
	switch rows.Kind() {
	case reflect.Struct:
		if rows.Type() != s.ModelType {
			return f.errModel(rows.Type(), s)
		}
		place, zero := f.Look(stmt.Context, rows)
		if !zero {
			return nil
		}
		if !rows.CanAddr() {
			return f.errByValue()
		}
		id, err := f.source.Next(stmt.Context, notReady)
		if err != nil {
			return err
		}
		if tracker != nil {
			tracker.Note(f.Field, id)
		}
		return f.Put(stmt.Context, place, id)
	case reflect.Slice, reflect.Array:
		element := rows.Type().Elem()
		for element.Kind() == reflect.Pointer {
			element = element.Elem()
		}
		if element == s.ModelType {
			return f.fillSlice(stmt.Context, rows, tracker, notReady)
		}
		if element.Kind() == reflect.Struct && rows.Len() > 0 {
			return f.errModel(element, s)
		}
		if maps, ok := rows.Interface().([]map[string]any); ok {
			for _, m := range maps {
				if err := f.fillMap(stmt.Context, m, tracker, notReady); err != nil {
					return err
				}
			}
		}
	case reflect.Map:
		if m, ok := rows.Interface().(map[string]any); ok {
			return f.fillMap(stmt.Context, m, tracker, notReady)
		}
	}
	return nil
}

// reserve is how many ids of a slice are reserved at a time.
const reserve = 256

var buffers = sync.Pool{New: func() any { return new([reserve]int64) }}

// fillSlice sets the field in the elements of a slice or array where it is zero. It reserves ids for all rows that
// remain, so rows that already have an id leave a few ids unused.
func (f *field) fillSlice(ctx context.Context, rows reflect.Value, tracker *upsert.Tracker, notReady error) error {
	buffer := buffers.Get().(*[reserve]int64)
	defer buffers.Put(buffer)
	var ids []int64
	n := rows.Len()
	for i := range n {
		row := rows.Index(i)
		for row.Kind() == reflect.Pointer {
			row = row.Elem()
		}
		if !row.IsValid() {
			continue // a nil pointer is GORM's to complain about
		}
		place, zero := f.Look(ctx, row)
		if !zero {
			continue
		}
		if len(ids) == 0 {
			if !row.CanAddr() {
				return f.errByValue()
			}
			ids = buffer[:min(n-i, reserve)]
			if err := f.source.Fill(ctx, ids, notReady); err != nil {
				return err
			}
		}
		if err := f.Put(ctx, place, ids[0]); err != nil {
			return err
		}
		if tracker != nil {
			tracker.Note(f.Field, ids[0])
		}
		ids = ids[1:]
	}
	return nil
}

// fillMap sets the field in a map where it is missing or zero. A map may name it
// by its column or by its field.
func (f *field) fillMap(ctx context.Context, m map[string]any, tracker *upsert.Tracker, notReady error) error {
	if m == nil {
		return fmt.Errorf("%w: a nil map cannot be given an id in %s", gorm.ErrInvalidValue, f.Name)
	}
	r := model.Row{Map: m}
	if _, zero := r.Value(ctx, f.Field.Field); !zero {
		return nil
	}
	id, err := f.source.Next(ctx, notReady)
	if err != nil {
		return err
	}
	if tracker != nil {
		tracker.Note(f.Field, id)
	}
	return r.Set(ctx, f.Field, id)
}

func (f *field) errModel(t reflect.Type, s *schema.Schema) error {
	return fmt.Errorf("%w: %v is not the model %s of the statement, so it cannot be given an id in %s",
		gorm.ErrInvalidValue, t, s.Name, f.Name)
}

func (f *field) errByValue() error {
	return fmt.Errorf("%w: %s is passed by value, so it cannot be given an id in %s; pass a pointer to it",
		gorm.ErrInvalidValue, f.Schema.Name, f.Name)
}

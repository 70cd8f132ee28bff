package catalog

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/uidplugin/uidplugin/internal/model"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/supply"
	"github.com/uidplugin/uidplugin/internal/upsert"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"
)

// fillZeros sets the uid fields that are zero.
func (c *Catalog) fillZeros(db *gorm.DB) {
	stmt := db.Statement
	if db.Error != nil || stmt.Schema == nil {
		return
	}
	p := c.Plan(stmt.Schema)
	if p.Err != nil {
		_ = db.AddError(p.Err)
		return
	}
	var notReady error // error of a source without a generator; ignored unless a row needs its id
	if !p.Ready.Load() {
		if needed := p.needed(stmt); len(needed) > 0 || p.savesAssociated(stmt) {
			notReady = c.ensure(db, p, needed)
		}
	}
	var tracker *upsert.Tracker
	if p.MayConflict || len(stmt.Clauses) > 0 && upsert.Conflicts(stmt) {
		tracker = upsert.TrackerOf(stmt)
	}
	fields := p.Fields
	if len(stmt.Selects) > 0 || len(stmt.Omits) > 0 {
		fields = selectedFields(stmt, fields)
	}
	if len(fields) == 0 {
		return
	}
	notes := filledOf(stmt)
	for _, f := range fields {
		ctx := c.supply.InTransaction(stmt.Context, stmt.ConnPool, f.Source)
		if err := f.fill(ctx, db.Statement, p.Schema, notes, tracker, notReady); err != nil {
			_ = db.AddError(err)
			return
		}
	}
	if len(p.Relations) > 0 && p.savesAssociated(stmt) {
		notes.share(stmt)
	}
}

// ensure gets the worker ids that a create may need. needed are the sources of its own rows. Outside a transaction it gets those of all tables reachable from
// the model. We do this early because GORM creates associated rows in its own transaction, where a second connection
// may not be available. Tables that keep failing are left to the background unless a row needs their id. Inside a
// transaction it gets only the ids that the rows need.
func (c *Catalog) ensure(db *gorm.DB, p *Plan, needed []*supply.Source) error {
	inTransaction := sqldb.HoldsConnection(db.Statement.ConnPool)
	ready := true
	var missing []*supply.Source
	for _, s := range p.Sources {
		if s.Ready() {
			continue
		}
		ready = false
		if slices.Contains(needed, s) || !inTransaction && !c.supply.Failing(s) {
			missing = append(missing, s)
		}
	}
	if ready {
		p.Ready.Store(true)
	}
	if len(missing) == 0 {
		return nil
	}
	return c.supply.Ensure(db.Statement.Context, db.Statement.ConnPool, missing)
}

// needed returns the sources from which rows of a statement need ids.
func (p *Plan) needed(stmt *gorm.Statement) (sources []*supply.Source) {
	for _, f := range p.Fields {
		if f.anyZero(stmt) {
			sources = append(sources, f.Source)
		}
	}
	return sources
}

// selectedFields returns the fields to set in a create with Select or Omit. Those are also zero uid fields that Select
// leaves out; see insertUnselected. Omitted fields stay unchanged.
func selectedFields(stmt *gorm.Statement, fields []*Field) []*Field {
	columns, restricted := stmt.SelectAndOmitColumns(true, false)
	kept := make([]*Field, 0, len(fields))
	for _, f := range fields {
		isSelected, named := columns[f.DBName]
		if named && !isSelected {
			continue
		}
		if !named && restricted && !f.anyZero(stmt) {
			continue // set by the application, which decides whether to select it
		}
		kept = append(kept, f)
	}
	return kept
}

// unselected returns the fields that a create has set, but that Select leaves out.
func (p *Plan) unselected(stmt *gorm.Statement) (fields []*Field) {
	if len(stmt.Selects) == 0 {
		return nil
	}
	notes := filledIn(stmt)
	if notes == nil {
		return nil
	}
	columns, restricted := stmt.SelectAndOmitColumns(true, false)
	for _, f := range p.Fields {
		if _, named := columns[f.DBName]; !named && restricted && notes.has(f) {
			fields = append(fields, f)
		}
	}
	return fields
}

// insertUnselected adds the ids that Select leaves out to the INSERT, because otherwise the database would assign a key,
// and the struct would keep ours. Call it when GORM begins to write the INSERT. The names of the caller's Select stay as
// they are, because other plugins send statements on copies of this one.
func (p *Plan) insertUnselected(stmt *gorm.Statement) {
	values, ok := stmt.Clauses["VALUES"].Expression.(clause.Values)
	rows := model.RowsOf(stmt.ReflectValue, p.Schema.ModelType)
	fields := p.unselected(stmt)
	if !ok || len(fields) == 0 {
		return
	}
	if len(values.Values) == 0 { // no column of a map is selected
		values.Values = make([][]any, len(rows))
	}
	if len(values.Columns) == 0 {
		nothingToUpdate(stmt)
	}
	for _, f := range fields {
		for i, r := range rows {
			if len(values.Values[i]) < len(values.Columns) { // no column of this map is selected
				values.Values[i] = make([]any, len(values.Columns))
			}
			v, zero := r.Value(stmt.Context, f.Field.Field)
			if zero && f.PrimaryKey {
				_ = stmt.AddError(fmt.Errorf("%w: %s.%s of row %d is 0: another plugin has set it to 0 after the plugin had set it",
					model.ErrZeroKey, f.Schema.Name, f.Name, i))
			}
			values.Values[i] = append(values.Values[i], v)
		}
		values.Columns = append(values.Columns, clause.Column{Name: f.DBName})
	}
	stmt.AddClause(values)
}

// nothingToUpdate makes an upsert of all columns do what GORM makes it do if there is no column to update. GORM does
// so only if there is a column to insert.
func nothingToUpdate(stmt *gorm.Statement) {
	conflict, _ := stmt.Clauses[model.OnConflict].Expression.(clause.OnConflict)
	if !conflict.UpdateAll || len(conflict.DoUpdates) > 0 {
		return
	}
	conflict.DoNothing = true
	if len(conflict.Columns) == 0 {
		for _, f := range stmt.Schema.PrimaryFields {
			conflict.Columns = append(conflict.Columns, clause.Column{Name: f.DBName})
		}
	}
	stmt.AddClause(conflict)
}

// anyZero reports whether the field is zero in any row of a statement.
func (f *Field) anyZero(stmt *gorm.Statement) bool {
	zero := func(row reflect.Value) bool {
		for row.Kind() == reflect.Pointer {
			row = row.Elem()
		}
		if !row.IsValid() {
			return true // fill refuses it
		}
		if m, ok := row.Interface().(map[string]any); ok && m != nil {
			_, zero := model.Row{Map: m}.Value(stmt.Context, f.Field.Field)
			return zero
		}
		if row.Type() != f.Schema.ModelType {
			return true // fill refuses it
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

// fill sets the field in all rows where it is zero, and notes the ids. It returns notReady if it needs an id and the
// source does not have a generator.
func (f *Field) fill(ctx context.Context, stmt *gorm.Statement, s *schema.Schema, notes *filled, tracker *upsert.Tracker, notReady error) error {
	rows := stmt.ReflectValue
	switch rows.Kind() {
	case reflect.Struct:
		if rows.Type() != s.ModelType {
			return f.errModel(rows.Type(), s)
		}
		place, zero := f.Look(ctx, rows)
		if !zero {
			return nil
		}
		if !rows.CanAddr() {
			return f.errByValue()
		}
		id, err := f.Source.Next(ctx, notReady)
		if err != nil {
			return err
		}
		if tracker != nil {
			tracker.Note(f.Field, id)
		}
		notes.add(filledRows{field: f, value: rows})
		return f.Put(ctx, place, id)
	case reflect.Slice, reflect.Array:
		element := rows.Type().Elem()
		for element.Kind() == reflect.Pointer {
			element = element.Elem()
		}
		if element == s.ModelType {
			return f.fillSlice(ctx, rows, notes, tracker, notReady)
		}
		if element.Kind() == reflect.Struct && rows.Len() > 0 {
			return f.errModel(element, s)
		}
		if maps, ok := rows.Interface().([]map[string]any); ok {
			for _, m := range maps {
				if err := f.fillMap(ctx, m, notes, tracker, notReady); err != nil {
					return err
				}
			}
		}
	case reflect.Map:
		if m, ok := rows.Interface().(map[string]any); ok {
			return f.fillMap(ctx, m, notes, tracker, notReady)
		}
	}
	return nil
}

// reserve is the number of ids reserved at a time for a slice.
const reserve = 256

var buffers = sync.Pool{New: func() any { return new([reserve]int64) }}

// fillSlice sets the field where it is zero. It reserves ids for all remaining rows, so rows that already have an id
// leave some unused.
func (f *Field) fillSlice(ctx context.Context, rows reflect.Value, notes *filled, tracker *upsert.Tracker, notReady error) error {
	buffer := buffers.Get().(*[reserve]int64)
	defer buffers.Put(buffer)
	var ids []int64
	n := rows.Len()
	filled := filledRows{field: f, value: rows, first: n}
	for i := range n {
		row := rows.Index(i)
		for row.Kind() == reflect.Pointer {
			row = row.Elem()
		}
		if !row.IsValid() {
			continue // GORM reports nil pointers itself
		}
		place, zero := f.Look(ctx, row)
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
			if err := f.Source.Fill(ctx, ids, notReady); err != nil {
				return err
			}
		}
		if err := f.Put(ctx, place, ids[0]); err != nil {
			return err
		}
		filled.first = min(filled.first, i)
		if tracker != nil {
			tracker.Note(f.Field, ids[0])
		}
		ids = ids[1:]
	}
	if filled.first < n {
		notes.add(filled)
	}
	return nil
}

// fillMap sets the field if it is missing or zero. Maps may use the name of the column or the field.
func (f *Field) fillMap(ctx context.Context, m map[string]any, notes *filled, tracker *upsert.Tracker, notReady error) error {
	if m == nil {
		return fmt.Errorf("%w: a nil map cannot be given an id in %s", gorm.ErrInvalidValue, f.Name)
	}
	r := model.Row{Map: m}
	if _, zero := r.Value(ctx, f.Field.Field); !zero {
		return nil
	}
	id, err := f.Source.Next(ctx, notReady)
	if err != nil {
		return err
	}
	if tracker != nil {
		tracker.Note(f.Field, id)
	}
	notes.add(filledRows{field: f, value: reflect.ValueOf(m)})
	return r.Set(ctx, f.Field, id)
}

func (f *Field) errModel(t reflect.Type, s *schema.Schema) error {
	return fmt.Errorf("%w: %v is not the model %s of the statement, so it cannot be given an id in %s",
		gorm.ErrInvalidValue, t, s.Name, f.Name)
}

func (f *Field) errByValue() error {
	return fmt.Errorf("%w: %s is passed by value, so it cannot be given an id in %s; pass a pointer to it",
		gorm.ErrInvalidValue, f.Schema.Name, f.Name)
}

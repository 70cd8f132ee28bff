package uidplugin

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/uidplugin/uidplugin/internal/model"
	"github.com/uidplugin/uidplugin/internal/upsert"
	"gorm.io/gorm"
	"gorm.io/gorm/schema"
)

// register adds the callbacks. Each position has its reason:
//
//   - fill comes before all of GORM's own, "*", so that model hooks see the id, foreign
//     keys of associations get it, and a generator that waits or fails does so
//     before GORM opens its transaction. Before("gorm:begin_transaction") would
//     come last when the application set SkipDefaultTransaction.
//   - refill comes after the hooks, which may have zeroed the key.
//   - beforeInsert comes right before the INSERT and afterInsert right after it,
//     before the associations that need the key: they keep GORM from overwriting
//     the keys of maps, and put keys right after a conflict.
//   - prepare gets worker ids before an UPDATE, because that can create
//     associated rows inside its transaction.
func (c *core) register(db *gorm.DB) error {
	create, update := db.Callback().Create(), db.Callback().Update()
	return errors.Join(
		create.Before("*").Register("uidplugin:fill", c.fill),
		create.Before("gorm:save_before_associations").Register("uidplugin:refill", c.refill),
		create.Before("gorm:create").Register("uidplugin:before_insert", c.beforeInsert),
		create.Before("gorm:save_after_associations").Register("uidplugin:after_insert", c.afterInsert),
		update.Before("*").Register("uidplugin:prepare", c.prepare),
	)
}

// fill sets the uid fields that are zero.
func (c *core) fill(db *gorm.DB) { c.fillZeros(db, false) }

// fillZeros is fill, and refill if it comes again.
func (c *core) fillZeros(db *gorm.DB, again bool) {
	stmt := db.Statement
	if db.Error != nil || stmt.Schema == nil {
		return
	}
	p := c.plan(stmt.Schema)
	if p.err != nil {
		_ = db.AddError(p.err)
		return
	}
	var why error // there is no generator; it matters only if a row needs one
	if !p.ready.Load() {
		why = c.makeReady(db, p, true)
	}
	var noted *upsert.Tracker
	if p.MayConflict || len(stmt.Clauses) > 0 && upsert.Conflicts(stmt) {
		noted = upsert.Track(db, again)
	}
	fields := p.fields
	if len(stmt.Selects) > 0 || len(stmt.Omits) > 0 {
		fields = selected(stmt, fields, noted)
	}
	for _, f := range fields {
		if err := f.fill(db, p.Schema, noted, why); err != nil {
			_ = db.AddError(err)
			return
		}
	}
}

// makeReady gets the worker ids that a statement needs.
func (c *core) makeReady(db *gorm.DB, p *plan, create bool) error {
	if needed := c.needed(db, p, create); len(needed) > 0 {
		if err := c.ensure(db.Statement.Context, db, needed); err != nil {
			return err
		}
	}
	for _, s := range p.sources {
		if s.made.Load() == nil {
			return nil
		}
	}
	p.ready.Store(true)
	return nil
}

// prepare gets worker ids for all that an UPDATE can create along, and keeps a
// Save from writing zero over an id: for a uid next to another key, the caller that saves a row
// often knows nothing. It refuses associations that lose ids.
func (c *core) prepare(db *gorm.DB) {
	if db.Error != nil || db.Statement.Schema == nil {
		return
	}
	p := c.plan(db.Statement.Schema)
	if slices.Contains(db.Statement.Selects, "*") {
		p.omitZeros(db.Statement)
	}
	if len(p.Lost) > 0 {
		p.refuseLost(db)
	}
	if db.Error != nil || holdsConnection(db.Statement.ConnPool) {
		return // in a transaction the create that needs one does the same
	}
	if p.err == nil && !p.ready.Load() {
		_ = c.makeReady(db, p, false) // a create that needs what it did not get will say so
	}
}

// omitZeros leaves uid fields that are zero out of an UPDATE of all fields.
func (p *plan) omitZeros(stmt *gorm.Statement) {
	row := reflect.Indirect(stmt.ReflectValue)
	if p.err != nil || row.Kind() != reflect.Struct || row.Type() != p.Schema.ModelType {
		return
	}
	for _, f := range p.fields {
		if _, zero := f.Look(stmt.Context, row); zero && !f.PrimaryKey {
			// Clones of the statement share the array behind Omits.
			stmt.Omits = append(slices.Clip(stmt.Omits), f.DBName)
		}
	}
}

// refuseLost adds an error to an UPDATE that would save rows of an association that loses ids.
func (p *plan) refuseLost(db *gorm.DB) {
	columns, restricted := db.Statement.SelectAndOmitColumns(false, true)
	for _, r := range model.Relations(p.Schema) {
		err := p.Lost[r]
		if selected, named := columns[r.Name]; err == nil || named && !selected || !named && restricted {
			continue
		}
		if p.anyAssociated(reflect.ValueOf(db.Statement.Model), r) {
			_ = db.AddError(err)
		}
	}
}

// anyAssociated reports whether what is, or holds, rows of the plan's model has rows of an association.
func (p *plan) anyAssociated(v reflect.Value, r *schema.Relationship) bool {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if p.anyAssociated(v.Index(i), r) {
				return true
			}
		}
	case reflect.Struct:
		return v.Type() == p.Schema.ModelType && !model.IsEmpty(model.FieldOf(v, r.Field))
	}
	return false
}

// beforeInsert prepares an upsert, and keeps GORM from overwriting the keys of maps.
func (c *core) beforeInsert(db *gorm.DB) {
	if stmt := db.Statement; db.Error == nil && stmt.Schema != nil && upsert.Concerns(stmt) {
		upsert.Rewrite(db, c.plan(stmt.Schema).Model)
	}
}

// afterInsert gives the rows of an upsert that had conflicts their ids.
func (c *core) afterInsert(db *gorm.DB) {
	upsert.Reconcile(db, func(s *schema.Schema) *model.Model { return c.plan(s).Model })
}

// refill fills again what hooks of the model have zeroed.
func (c *core) refill(db *gorm.DB) {
	if s := db.Statement.Schema; s != nil && !db.Statement.SkipHooks && (s.BeforeCreate || s.BeforeSave) {
		c.fillZeros(db, true)
	}
}

// selected returns those of fields that a create with Select or Omit is to set. A
// Select that leaves the key out would make the database assign one, while the
// struct keeps ours, so the key is selected, too; one that is omitted by name is
// left alone.
func selected(stmt *gorm.Statement, fields []*field, noted *upsert.Tracker) []*field {
	columns, restricted := stmt.SelectAndOmitColumns(true, false)
	kept := make([]*field, 0, len(fields))
	for _, f := range fields {
		selected, named := columns[f.DBName]
		if named && !selected {
			continue
		}
		if !named && restricted {
			if !f.anyZero(stmt) {
				continue // the application's own, to be selected or not
			}
			// Clones of the statement share the array behind Selects.
			stmt.Selects = append(stmt.Selects[:len(stmt.Selects):len(stmt.Selects)], f.DBName)
			if noted != nil {
				noted.NoteUnselected(f.Field)
			}
		}
		kept = append(kept, f)
	}
	return kept
}

// anyZero tells whether the field is zero in a row of a statement.
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

// fill sets the field in all rows of a statement where it is zero, and notes the
// ids. why is the error if it is zero and the source has no generator.
func (f *field) fill(db *gorm.DB, s *schema.Schema, noted *upsert.Tracker, why error) error {
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
		id, err := f.source.next(stmt.Context, why)
		if err != nil {
			return err
		}
		if noted != nil {
			noted.Note(f.Field, id)
		}
		return f.Put(stmt.Context, place, id)
	case reflect.Slice, reflect.Array:
		element := rows.Type().Elem()
		for element.Kind() == reflect.Pointer {
			element = element.Elem()
		}
		if element == s.ModelType {
			return f.fillSlice(stmt.Context, rows, noted, why)
		}
		if element.Kind() == reflect.Struct && rows.Len() > 0 {
			return f.errModel(element, s)
		}
		if maps, ok := rows.Interface().([]map[string]any); ok {
			for _, m := range maps {
				if err := f.fillMap(stmt.Context, m, noted, why); err != nil {
					return err
				}
			}
		}
	case reflect.Map:
		if m, ok := rows.Interface().(map[string]any); ok {
			return f.fillMap(stmt.Context, m, noted, why)
		}
	}
	return nil
}

// reserve is how many ids of a slice are reserved at a time.
const reserve = 256

var buffers = sync.Pool{New: func() any { return new([reserve]int64) }}

// fillSlice sets the field in the elements of a slice or array where it is zero.
// Ids are reserved for as many rows as there are still to come, so rows that have
// an id leave a few ids unused.
func (f *field) fillSlice(ctx context.Context, rows reflect.Value, noted *upsert.Tracker, why error) error {
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
			if err := f.source.fill(ctx, ids, why); err != nil {
				return err
			}
		}
		if err := f.Put(ctx, place, ids[0]); err != nil {
			return err
		}
		if noted != nil {
			noted.Note(f.Field, ids[0])
		}
		ids = ids[1:]
	}
	return nil
}

// fillMap sets the field in a map where it is missing or zero. A map may name it
// by its column or by its field.
func (f *field) fillMap(ctx context.Context, m map[string]any, noted *upsert.Tracker, why error) error {
	if m == nil {
		return fmt.Errorf("%w: a nil map cannot be given an id in %s", gorm.ErrInvalidValue, f.Name)
	}
	r := model.Row{Map: m}
	if _, zero := r.Value(ctx, f.Field.Field); !zero {
		return nil
	}
	id, err := f.source.next(ctx, why)
	if err != nil {
		return err
	}
	if noted != nil {
		noted.Note(f.Field, id)
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

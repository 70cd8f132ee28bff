package fill

import (
	"reflect"
	"slices"

	"github.com/uidplugin/uidplugin/internal/catalog"
	"github.com/uidplugin/uidplugin/internal/model"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"gorm.io/gorm"
	"gorm.io/gorm/schema"
)

// Prepare refuses associations whose foreign keys cannot hold ids. If the UPDATE saves associated rows, which may
// be new, Prepare gets worker ids for these rows, and begins notes of the keys that they are given.
func (f *Filler) Prepare(db *gorm.DB) {
	forget(db.Statement)
	if db.Error != nil || db.Statement.Schema == nil {
		return
	}
	p := f.catalog.Plan(db.Statement.Schema)
	if len(p.Lost) > 0 {
		refuseLost(p, db)
	}
	if db.Error != nil || p.Err != nil || len(p.Relations) == 0 || !savesAssociated(p, db.Statement) {
		return
	}
	inherit(db.Statement)
	notesOf(db.Statement).share(db.Statement)
	if !p.Ready.Load() && !sqldb.HoldsConnection(db.Statement.ConnPool) { // otherwise the creates get the worker ids
		_ = f.ensure(db, p, needed(p, db.Statement)) // a create without a worker id returns the error
	}
}

// BeforeUpdate makes an UPDATE of all fields leave out each uid field that is zero and is not in the primary key,
// because programs often save a row without having read this field.
func (f *Filler) BeforeUpdate(db *gorm.DB) {
	stmt := db.Statement
	if db.Error == nil && stmt.Schema != nil && slices.Contains(stmt.Selects, "*") {
		if columns := zeros(f.catalog.Plan(stmt.Schema), stmt); len(columns) > 0 {
			model.Change(stmt, func() { stmt.Omits = append(slices.Clip(stmt.Omits), columns...) })
		}
	}
}

// AfterUpdate takes back the changes of BeforeUpdate.
func (f *Filler) AfterUpdate(db *gorm.DB) { model.Undo(db.Statement) }

// zeros returns the columns of the uid fields that are zero in an UPDATE and do not belong to the primary key.
func zeros(p *catalog.Plan, stmt *gorm.Statement) (columns []string) {
	row := reflect.ValueOf(stmt.Dest)
	for row.Kind() == reflect.Pointer {
		row = row.Elem()
	}
	if p.Err != nil || row.Kind() != reflect.Struct || row.Type() != p.Schema.ModelType {
		return nil
	}
	for _, f := range p.Fields {
		if _, zero := f.Look(stmt.Context, row); zero && !f.PrimaryKey {
			columns = append(columns, f.DBName)
		}
	}
	return columns
}

// refuseLost adds an error if an UPDATE would save rows of an association whose foreign key cannot hold ids.
func refuseLost(p *catalog.Plan, db *gorm.DB) {
	columns, restricted := db.Statement.SelectAndOmitColumns(false, true)
	for _, r := range p.Relations {
		err := p.Lost[r]
		if selected, named := columns[r.Name]; err == nil || named && !selected || !named && restricted {
			continue
		}
		if anyAssociated(p, reflect.ValueOf(db.Statement.Model), r) {
			_ = db.AddError(err)
		}
	}
}

// savesAssociated reports whether a statement has associated rows, because GORM saves those too.
func savesAssociated(p *catalog.Plan, stmt *gorm.Statement) bool {
	return slices.ContainsFunc(p.Relations, func(r *schema.Relationship) bool {
		return anyAssociated(p, stmt.ReflectValue, r) || anyAssociated(p, reflect.ValueOf(stmt.Model), r)
	})
}

// anyAssociated reports whether v, a row of the plan's model or a slice of rows, has rows of an association.
func anyAssociated(p *catalog.Plan, v reflect.Value, r *schema.Relationship) bool {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if anyAssociated(p, v.Index(i), r) {
				return true
			}
		}
	case reflect.Struct:
		return v.Type() == p.Schema.ModelType && !model.IsEmpty(model.FieldOf(v, r.Field))
	}
	return false
}

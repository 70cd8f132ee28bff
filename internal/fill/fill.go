// Package fill sets the uid fields of created rows, and takes the keys back if the database refuses the rows.
package fill

import (
	"reflect"
	"slices"

	"github.com/uidplugin/uidplugin/internal/catalog"
	"github.com/uidplugin/uidplugin/internal/model"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/supply"
	"github.com/uidplugin/uidplugin/internal/upsert"
	"gorm.io/gorm"
)

// A Filler has the code of the callbacks that set ids. It is safe for concurrent use.
type Filler struct {
	catalog *catalog.Catalog
	supply  *supply.Supply
}

// New returns a Filler.
func New(models *catalog.Catalog, ids *supply.Supply) *Filler {
	return &Filler{catalog: models, supply: ids}
}

// Fill sets the uid fields that are zero.
func (f *Filler) Fill(db *gorm.DB) {
	forget(db.Statement)
	inherit(db.Statement) // early, so that copies that hooks make of this statement are recognized
	f.fillZeros(db)
}

// Refill sets fields again after hooks of the model have zeroed them.
func (f *Filler) Refill(db *gorm.DB) {
	if s := db.Statement.Schema; s != nil && !db.Statement.SkipHooks && (s.BeforeCreate || s.BeforeSave) {
		f.fillZeros(db)
	}
}

func (f *Filler) fillZeros(db *gorm.DB) {
	stmt := db.Statement
	if db.Error != nil || stmt.Schema == nil {
		return
	}
	p := f.catalog.Plan(stmt.Schema)
	if p.Err != nil {
		_ = db.AddError(p.Err)
		return
	}
	var to filling
	if !p.Ready.Load() {
		if needed := needed(p, stmt); len(needed) > 0 || savesAssociated(p, stmt) {
			to.notReady = f.ensure(db, p, needed)
		}
	}
	if p.MayConflict || len(stmt.Clauses) > 0 && upsert.Conflicts(stmt) {
		to.tracker = upsert.TrackerOf(stmt)
	}
	fields := p.Fields
	if len(stmt.Selects) > 0 || len(stmt.Omits) > 0 {
		fields = selectedFields(stmt, fields)
	}
	if len(fields) == 0 {
		return
	}
	to.notes = notesOf(stmt)
	for _, field := range fields {
		to.field, to.ctx = field, field.Source.Within(stmt.Context, stmt.ConnPool)
		if err := to.rows(stmt.ReflectValue, p.Schema); err != nil {
			_ = db.AddError(err)
			return
		}
	}
	if len(p.Relations) > 0 && savesAssociated(p, stmt) {
		to.notes.share(stmt)
	}
}

// ensure gets the worker ids that a create may need. The slice needed has the sources of the create's own rows.
// Outside a transaction ensure also gets those of associated tables, because GORM saves these in a transaction,
// where a second connection may be missing. It leaves failing associated tables to the background.
func (f *Filler) ensure(db *gorm.DB, p *catalog.Plan, needed []*supply.Source) error {
	inTransaction := sqldb.HoldsConnection(db.Statement.ConnPool)
	ready := true
	var missing []*supply.Source
	for _, s := range p.Sources {
		if s.Ready() {
			continue
		}
		ready = false
		if slices.Contains(needed, s) || !inTransaction && !f.supply.Failing(s) {
			missing = append(missing, s)
		}
	}
	if ready {
		p.Ready.Store(true)
	}
	if len(missing) == 0 {
		return nil
	}
	return f.supply.Ensure(db.Statement.Context, db.Statement.ConnPool, missing)
}

// needed returns the sources from which rows of a statement need ids.
func needed(p *catalog.Plan, stmt *gorm.Statement) (sources []*supply.Source) {
	for _, f := range p.Fields {
		if anyZero(f, stmt) {
			sources = append(sources, f.Source)
		}
	}
	return sources
}

func anyZero(f *catalog.Field, stmt *gorm.Statement) bool {
	zero := func(row reflect.Value) bool {
		for row.Kind() == reflect.Pointer {
			row = row.Elem()
		}
		if !row.IsValid() {
			return true // a nil pointer, which GORM reports
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

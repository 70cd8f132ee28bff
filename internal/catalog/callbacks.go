package catalog

import (
	"reflect"
	"slices"

	"github.com/uidplugin/uidplugin/internal/model"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/upsert"
	"gorm.io/gorm"
	"gorm.io/gorm/schema"
)

// Fill sets the uid fields that are zero.
func (c *Catalog) Fill(db *gorm.DB) {
	forget(db.Statement)
	if _, ok := db.Statement.Settings.Load(filledKey{}); ok {
		filledOf(db.Statement) // so that copies of this statement know that they are copies
	}
	c.fillZeros(db)
}

// Disown removes what a statement has from the create or the update that it is a copy of.
func (c *Catalog) Disown(db *gorm.DB) {
	if len(db.Statement.Clauses) > 0 && isCopy(db.Statement) {
		forget(db.Statement)
	}
}

// Prepare refuses associations that lose ids. If the UPDATE saves associated rows, which may be new, it gets
// worker ids, and notes the keys that these rows are given.
func (c *Catalog) Prepare(db *gorm.DB) {
	forget(db.Statement)
	if db.Error != nil || db.Statement.Schema == nil {
		return
	}
	p := c.Plan(db.Statement.Schema)
	if len(p.Lost) > 0 {
		p.refuseLost(db)
	}
	if db.Error != nil || p.Err != nil || len(p.Relations) == 0 || !p.savesAssociated(db.Statement) {
		return
	}
	filledOf(db.Statement).share(db.Statement)
	if !p.Ready.Load() && !sqldb.HoldsConnection(db.Statement.ConnPool) { // else ensure runs in the create that needs the id
		_ = c.ensure(db, p, p.needed(db.Statement)) // a create without a worker id returns the error
	}
}

// zeros returns the columns of uid fields that are zero in an UPDATE, without the key.
func (p *Plan) zeros(stmt *gorm.Statement) (columns []string) {
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

// refuseLost adds an error if an UPDATE would save rows of an association that loses ids.
func (p *Plan) refuseLost(db *gorm.DB) {
	columns, restricted := db.Statement.SelectAndOmitColumns(false, true)
	for _, r := range p.Relations {
		err := p.Lost[r]
		if selected, named := columns[r.Name]; err == nil || named && !selected || !named && restricted {
			continue
		}
		if p.anyAssociated(reflect.ValueOf(db.Statement.Model), r) {
			_ = db.AddError(err)
		}
	}
}

// savesAssociated reports whether a statement has associated rows, because GORM saves those too.
func (p *Plan) savesAssociated(stmt *gorm.Statement) bool {
	return slices.ContainsFunc(p.Relations, func(r *schema.Relationship) bool {
		return p.anyAssociated(stmt.ReflectValue, r) || p.anyAssociated(reflect.ValueOf(stmt.Model), r)
	})
}

// anyAssociated reports whether v has rows of an association. v is a row of the plan's model, or holds such rows.
func (p *Plan) anyAssociated(v reflect.Value, r *schema.Relationship) bool {
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

// BeforeInsert selects the ids that were set, prepares an upsert, and keeps GORM from overwriting keys of maps. It changes the statement as late as possible, so hooks and most callbacks of other plugins
// copy it as the application has made it.
func (c *Catalog) BeforeInsert(db *gorm.DB) {
	stmt := db.Statement
	if db.Error != nil || stmt.Schema == nil {
		return
	}
	p := c.Plan(stmt.Schema)
	if len(p.unselected(stmt)) > 0 {
		model.BeforeBuild(stmt, func() { p.insertUnselected(stmt) }, "INSERT", "VALUES")
	}
	if stmt.Unscoped { // because GORM then skips clauses added by types
		model.RefuseZeroKeys(stmt)
	}
	if upsert.Concerns(stmt) {
		model.Change(stmt, func() { upsert.Rewrite(stmt, p.Model) })
	}
}

// BeforeUpdate makes an UPDATE of all fields leave zero uid fields other than the key out, because callers that save a row
// often do not know them.
func (c *Catalog) BeforeUpdate(db *gorm.DB) {
	stmt := db.Statement
	if db.Error == nil && stmt.Schema != nil && slices.Contains(stmt.Selects, "*") {
		if zeros := c.Plan(stmt.Schema).zeros(stmt); len(zeros) > 0 {
			model.Change(stmt, func() { stmt.Omits = append(slices.Clip(stmt.Omits), zeros...) })
		}
	}
}

// AfterUpdate takes back the changes of BeforeUpdate.
func (c *Catalog) AfterUpdate(db *gorm.DB) { model.Undo(db.Statement) }

// AfterInsert takes back the changes of BeforeInsert, and sets the ids of rows in an upsert that had conflicts. It
// explains the error of a batch that is too large.
func (c *Catalog) AfterInsert(db *gorm.DB) {
	upsert.Reconcile(db, func(s *schema.Schema) *model.Model { return c.Plan(s).Model })
	c.explainSize(db)
}

// Refill sets fields again that hooks of the model have zeroed.
func (c *Catalog) Refill(db *gorm.DB) {
	if s := db.Statement.Schema; s != nil && !db.Statement.SkipHooks && (s.BeforeCreate || s.BeforeSave) {
		c.fillZeros(db)
	}
}

// AfterExec explains the error of an INSERT that a followed table has refused.
func (c *Catalog) AfterExec(db *gorm.DB) {
	if db.Error != nil {
		db.Error = c.tooLate(db.Statement, db.Error)
	}
}

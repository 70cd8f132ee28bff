package uidplugin

import (
	"errors"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/uidplugin/uidplugin/internal/model"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/upsert"
	"gorm.io/gorm"
	"gorm.io/gorm/schema"
)

// callbacks are what GORM calls before and after statements.
type callbacks struct{ catalog *catalog }

// register adds the callbacks. Each position has its reason:
//
//   - fill comes before all of GORM's own callbacks: its position is "*". So model hooks see the id, and foreign keys
//     of associations get it. A generator waits or fails before GORM opens its transaction.
//     Before("gorm:begin_transaction") would come last when the application set SkipDefaultTransaction.
//   - refill comes after the hooks, which may have zeroed the key.
//   - beforeInsert comes right before the INSERT. afterInsert comes right after it, and before the associations that
//     need the key. They keep GORM from overwriting the keys of maps, and correct keys after a conflict.
//   - beforeInsert and guardUpdate, right before the INSERT or UPDATE, also refuse ids that do not fit into their columns:
//     all values are set then, and the statement has the connection that it will be sent on.
//   - beforeUpdate, whose name for GORM is uidplugin:prepare, gets worker ids before an UPDATE, because an UPDATE can
//     create associated rows inside its transaction.
//   - afterExec, whose name for GORM is uidplugin:created, comes after each statement of Exec. GORM's migrator creates
//     tables by Exec.
func (cb *callbacks) register(db *gorm.DB) error {
	create, update := db.Callback().Create(), db.Callback().Update()
	return errors.Join(
		create.Before("*").Register("uidplugin:fill", cb.fill),
		create.Before("gorm:save_before_associations").Register("uidplugin:refill", cb.refill),
		create.Before("gorm:create").Register("uidplugin:before_insert", cb.beforeInsert),
		create.Before("gorm:save_after_associations").Register("uidplugin:after_insert", cb.afterInsert),
		update.Before("*").Register("uidplugin:prepare", cb.beforeUpdate),
		update.Before("gorm:update").Register("uidplugin:before_update", cb.guardUpdate),
		db.Callback().Raw().After("gorm:raw").Register("uidplugin:created", cb.afterExec),
	)
}

// fill sets the uid fields that are zero; fill.go has how.
func (cb *callbacks) fill(db *gorm.DB) { cb.fillZeros(db, upsert.Track) }

// beforeUpdate does three things. It keeps a uid that is zero, and not the key, from overwriting the one in the
// database: a caller that saves a row often does not know it. It refuses associations that lose ids. And it gets worker
// ids for all rows that the UPDATE can create along with its own.
func (cb *callbacks) beforeUpdate(db *gorm.DB) {
	if db.Error != nil || db.Statement.Schema == nil {
		return
	}
	p := cb.catalog.plan(db.Statement.Schema)
	if slices.Contains(db.Statement.Selects, "*") {
		p.omitZeros(db.Statement)
	}
	if len(p.Lost) > 0 {
		p.refuseLost(db)
	}
	if db.Error != nil || sqldb.HoldsConnection(db.Statement.ConnPool) {
		return // in a transaction the create that needs one does the same
	}
	if p.err == nil && !p.ready.Load() {
		_ = cb.makeReady(db, p, cb.catalog.neededByUpdate(db, p)) // a create that lacks one returns the error
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

// anyAssociated reports whether v has rows of an association. v is or holds rows of the plan's model.
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

// beforeInsert refuses ids that do not fit, prepares an upsert, and keeps GORM from overwriting the keys of maps.
func (cb *callbacks) beforeInsert(db *gorm.DB) {
	stmt := db.Statement
	cb.catalog.guard(db, "INSERT", "VALUES")
	if db.Error != nil || stmt.Schema == nil {
		return
	}
	if stmt.Unscoped { // GORM then leaves out the clauses that types add
		model.RefuseZeroKeys(stmt)
	}
	if upsert.Concerns(stmt) {
		upsert.Rewrite(db, cb.catalog.plan(stmt.Schema).Model)
	}
}

// guardUpdate refuses ids that do not fit into their columns.
func (cb *callbacks) guardUpdate(db *gorm.DB) { cb.catalog.guard(db, "UPDATE", "SET") }

// afterInsert sets the ids of the rows of an upsert that had conflicts.
func (cb *callbacks) afterInsert(db *gorm.DB) {
	upsert.Reconcile(db, func(s *schema.Schema) *model.Model { return cb.catalog.plan(s).Model })
}

// refill fills again what hooks of the model have zeroed.
func (cb *callbacks) refill(db *gorm.DB) {
	if s := db.Statement.Schema; s != nil && !db.Statement.SkipHooks && (s.BeforeCreate || s.BeforeSave) {
		cb.fillZeros(db, upsert.TrackerOf)
	}
}

// afterExec looks at what a migration has done to tables: their columns are read again. It warns of a table that GORM has
// created under another name than its model's, by Table or Scopes. GORM parses the model into another schema then, which
// makePlain has not seen.
func (cb *callbacks) afterExec(db *gorm.DB) {
	stmt := db.Statement
	query := stmt.SQL.String()
	if definition.MatchString(query) {
		cb.catalog.forgetColumns()
	}
	if db.Error != nil || db.DryRun {
		return
	}
	switch create := strings.HasPrefix(query, "CREATE TABLE "); {
	case create && stmt.Table != "":
		cb.catalog.warnElsewhere(stmt.Table, query)
	case create || migration.MatchString(query):
		cb.catalog.inspectMigrated(stmt)
	}
}

// definition matches the beginning of statements that may change the columns of a table.
var definition = regexp.MustCompile(`(?i)^\s*(ALTER|CREATE|DROP|RENAME)\b`)

// migration matches the beginning of statements after which the database may number a key.
var migration = regexp.MustCompile(`(?i)^\s*(ALTER|CREATE|RENAME) +(TABLE|SEQUENCE)\b|^\s*SELECT\s+setval\b`)

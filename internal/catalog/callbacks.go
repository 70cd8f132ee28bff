package catalog

import (
	"context"
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

// RegisterCallbacks adds the callbacks to a handle. The position of each has a reason:
//
//   - fill is first ("*"), so model hooks and foreign keys of associations see the id. A generator waits or fails
//     before GORM opens its transaction. Before("gorm:begin_transaction") would be last with SkipDefaultTransaction.
//   - refill follows the hooks, because they may have zeroed the key.
//   - beforeInsert and afterInsert surround the INSERT, before the associations that need the key. They keep GORM from
//     overwriting keys of maps, and correct keys after a conflict.
//   - settle is last ("*"), because it handles refused rows when their associations have been saved too. An UPDATE also
//     saves associations.
//   - beforeInsert and beforeUpdate directly precede the statement: they refuse ids that do
//     not fit into their columns, and by then all values are set and the connection is known.
//   - prepareUpdate, registered as uidplugin:prepare, gets worker ids before an UPDATE begins, because an UPDATE can
//     create associated rows inside its transaction.
//   - afterExec, registered as uidplugin:created, follows each Exec, because GORM's migrator uses Exec to create
//     tables. afterRaw follows each query, because Raw can also send such statements.
func (c *Catalog) RegisterCallbacks(db *gorm.DB) error {
	create, update := db.Callback().Create(), db.Callback().Update()
	return errors.Join(
		create.Before("*").Register("uidplugin:fill", c.Fill),
		create.Before("gorm:save_before_associations").Register("uidplugin:refill", c.refill),
		create.Before("gorm:create").Register("uidplugin:before_insert", c.beforeInsert),
		create.Before("gorm:save_after_associations").Register("uidplugin:after_insert", c.afterInsert),
		create.After("*").Register("uidplugin:settle", c.Settle),
		update.Before("*").Register("uidplugin:prepare", c.prepareUpdate),
		update.Before("gorm:update").Register("uidplugin:before_update", c.beforeUpdate),
		update.After("*").Register("uidplugin:settle", c.Settle),
		db.Callback().Raw().After("gorm:raw").Register("uidplugin:created", c.afterExec),
		db.Callback().Query().After("gorm:query").Register("uidplugin:after_raw", c.afterRaw),
		db.Callback().Row().After("gorm:row").Register("uidplugin:after_raw", c.afterRaw),
	)
}

// Fill sets the uid fields that are zero.
func (c *Catalog) Fill(db *gorm.DB) { c.fillZeros(db, upsert.Track, noteFilled) }

// prepareUpdate omits zero uid fields other than the key, because callers that save a row often do not know them. It
// refuses associations that lose ids. If the UPDATE saves associated rows, which may be new, it gets worker ids, and notes
// the keys that these rows are given.
func (c *Catalog) prepareUpdate(db *gorm.DB) {
	if db.Error != nil || db.Statement.Schema == nil {
		return
	}
	p := c.Plan(db.Statement.Schema)
	if slices.Contains(db.Statement.Selects, "*") {
		p.omitZeros(db.Statement)
	}
	if len(p.Lost) > 0 {
		p.refuseLost(db)
	}
	if db.Error != nil || p.Err != nil || len(p.relations) == 0 || !p.savesAssociated(db.Statement) {
		return
	}
	noteFilled(db.Statement).share(db.Statement)
	if !p.ready.Load() && !sqldb.HoldsConnection(db.Statement.ConnPool) { // else ensure runs in the create that needs the id
		_ = c.ensure(db, p, p.needed(db.Statement)) // a create without a worker id returns the error
	}
}

// omitZeros omits zero uid fields from an UPDATE of all fields.
func (p *Plan) omitZeros(stmt *gorm.Statement) {
	row := reflect.Indirect(stmt.ReflectValue)
	if p.Err != nil || row.Kind() != reflect.Struct || row.Type() != p.Schema.ModelType {
		return
	}
	for _, f := range p.fields {
		if _, zero := f.Look(stmt.Context, row); zero && !f.PrimaryKey {
			// Clones of the statement share the array behind Omits.
			stmt.Omits = append(slices.Clip(stmt.Omits), f.DBName)
		}
	}
}

// refuseLost adds an error if an UPDATE would save rows of an association that loses ids.
func (p *Plan) refuseLost(db *gorm.DB) {
	columns, restricted := db.Statement.SelectAndOmitColumns(false, true)
	for _, r := range p.relations {
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
	return slices.ContainsFunc(p.relations, func(r *schema.Relationship) bool {
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

// beforeInsert refuses ids that do not fit, prepares an upsert, and keeps GORM from overwriting keys of maps.
func (c *Catalog) beforeInsert(db *gorm.DB) {
	stmt := db.Statement
	c.guard(db, "INSERT", "VALUES")
	if db.Error != nil || stmt.Schema == nil {
		return
	}
	if stmt.Unscoped { // because GORM then skips clauses added by types
		model.RefuseZeroKeys(stmt)
	}
	if upsert.Concerns(stmt) {
		upsert.Rewrite(db, c.Plan(stmt.Schema).Model)
	}
}

// beforeUpdate refuses ids that do not fit into their columns.
func (c *Catalog) beforeUpdate(db *gorm.DB) { c.guard(db, "UPDATE", "SET") }

// afterInsert sets the ids of rows in an upsert that had conflicts, and explains the error of a batch that is too large.
func (c *Catalog) afterInsert(db *gorm.DB) {
	upsert.Reconcile(db, func(s *schema.Schema) *model.Model { return c.Plan(s).Model })
	c.explainSize(db)
}

// refill sets fields again that hooks of the model have zeroed.
func (c *Catalog) refill(db *gorm.DB) {
	if s := db.Statement.Schema; s != nil && !db.Statement.SkipHooks && (s.BeforeCreate || s.BeforeSave) {
		c.fillZeros(db, upsert.TrackerOf, filledOf)
	}
}

// afterExec handles migrations: it inspects changed tables and forgets their columns. It warns if GORM created a table
// under a name other than the model's, by Table or Scopes. GORM then parses the model into another schema, so MakePlain
// has not changed it.
func (c *Catalog) afterExec(db *gorm.DB) {
	stmt := db.Statement
	query := stmt.SQL.String()
	if definition.MatchString(query) {
		c.forgetColumns()
	}
	if db.Error != nil {
		db.Error = c.tooLate(stmt, db.Error) // of an INSERT
		return
	}
	if db.DryRun {
		return
	}
	switch create := strings.HasPrefix(query, "CREATE TABLE "); {
	case create && stmt.Table != "":
		c.warnElsewhere(stmt.Table, query)
	case create || migration.MatchString(query):
		c.inspectMigrated(stmt.Context, stmt.ConnPool, query)
	}
}

// afterRaw handles migrations sent by Raw like afterExec. It inspects tables in the background, because GORM still
// reads rows and may hold the only connection. Queries that GORM builds itself have the clause SELECT.
func (c *Catalog) afterRaw(db *gorm.DB) {
	stmt := db.Statement
	if _, written := stmt.Clauses["SELECT"]; written || db.Error != nil || db.DryRun {
		return
	}
	if query := stmt.SQL.String(); mayMigrate(query) && migration.MatchString(query) {
		c.forgetColumns()
		c.supply.Go(stmt.Context, func(ctx context.Context) {
			c.inspectMigrated(ctx, c.db.Statement.ConnPool, query)
		})
	}
}

// mayMigrate reports whether the expression migration may match a query. It is much cheaper, because raw queries are
// frequent and migrations are not.
func mayMigrate(query string) bool {
	const spaces = " \t\r\n\f"
	query = strings.TrimLeft(query, spaces)
	if query == "" {
		return false
	}
	switch query[0] {
	case 'A', 'a', 'C', 'c', 'R', 'r', '-', '#', '/': // ALTER, CREATE, RENAME, or a comment
		return true
	case 'S', 's': // SELECT setval
		called := strings.TrimLeft(query[min(len("SELECT"), len(query)):], spaces)
		return hasPrefixFold(called, "setval") || hasPrefixFold(called, "pg_catalog.")
	}
	return false
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// comments matches comments and spaces before a statement.
const comments = `(?is)^(?:\s|(?:--|#)[^\n]*\n|/\*.*?\*/)*`

// definition matches statements that may change columns of a table.
var definition = regexp.MustCompile(comments + `(?:ALTER|CREATE|DROP|RENAME)\b`)

// migration matches statements after which the database may number a key.
var migration = regexp.MustCompile(comments + `(?:(?:ALTER|CREATE|RENAME)\s+(?:\w+\s+)?(?:TABLE|SEQUENCE)\b|SELECT\s+(?:pg_catalog\.)?setval\b)`)

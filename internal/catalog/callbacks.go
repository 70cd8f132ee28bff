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
//   - afterUpdate undoes beforeUpdate. disown comes first in all other statements, because they may be copies of a create
//     or an update.
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
		update.Before("gorm:save_after_associations").Register("uidplugin:after_update", c.afterUpdate),
		update.After("*").Register("uidplugin:settle", c.Settle),
		db.Callback().Delete().Before("*").Register("uidplugin:disown", c.disown),
		db.Callback().Query().Before("*").Register("uidplugin:disown", c.disown),
		db.Callback().Row().Before("*").Register("uidplugin:disown", c.disown),
		db.Callback().Raw().Before("*").Register("uidplugin:disown", c.disown),
		db.Callback().Raw().After("gorm:raw").Register("uidplugin:created", c.afterExec),
		db.Callback().Query().After("gorm:query").Register("uidplugin:after_raw", c.afterRaw),
		db.Callback().Row().After("gorm:row").Register("uidplugin:after_raw", c.afterRaw),
	)
}

// Fill sets the uid fields that are zero.
func (c *Catalog) Fill(db *gorm.DB) {
	forget(db.Statement)
	if _, ok := db.Statement.Settings.Load(filledKey{}); ok {
		filledOf(db.Statement) // so that copies of this statement know that they are copies
	}
	c.fillZeros(db)
}

// disown removes what a statement has from the create or the update that it is a copy of.
func (c *Catalog) disown(db *gorm.DB) {
	if len(db.Statement.Clauses) > 0 && isCopy(db.Statement) {
		forget(db.Statement)
	}
}

// prepareUpdate refuses associations that lose ids. If the UPDATE saves associated rows, which may be new, it gets
// worker ids, and notes the keys that these rows are given.
func (c *Catalog) prepareUpdate(db *gorm.DB) {
	forget(db.Statement)
	if db.Error != nil || db.Statement.Schema == nil {
		return
	}
	p := c.Plan(db.Statement.Schema)
	if len(p.Lost) > 0 {
		p.refuseLost(db)
	}
	if db.Error != nil || p.Err != nil || len(p.relations) == 0 || !p.savesAssociated(db.Statement) {
		return
	}
	filledOf(db.Statement).share(db.Statement)
	if !p.ready.Load() && !sqldb.HoldsConnection(db.Statement.ConnPool) { // else ensure runs in the create that needs the id
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
	for _, f := range p.fields {
		if _, zero := f.Look(stmt.Context, row); zero && !f.PrimaryKey {
			columns = append(columns, f.DBName)
		}
	}
	return columns
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

// beforeInsert refuses ids that do not fit, selects the ids that were set, prepares an upsert, and keeps GORM from
// overwriting keys of maps. It changes the statement as late as possible, so hooks and most callbacks of other plugins
// copy it as the application has made it.
func (c *Catalog) beforeInsert(db *gorm.DB) {
	stmt := db.Statement
	c.guard(db, "INSERT", "VALUES")
	if db.Error != nil || stmt.Schema == nil {
		return
	}
	p := c.Plan(stmt.Schema)
	if fields := p.unselected(stmt); len(fields) > 0 {
		model.Change(stmt, func() { selectFilled(stmt, fields) })
	}
	if stmt.Unscoped { // because GORM then skips clauses added by types
		model.RefuseZeroKeys(stmt)
	}
	if upsert.Concerns(stmt) {
		model.Change(stmt, func() { upsert.Rewrite(stmt, p.Model) })
	}
}

// beforeUpdate refuses ids that do not fit into their columns. An UPDATE of all fields leaves zero uid fields other than
// the key out, because callers that save a row often do not know them.
func (c *Catalog) beforeUpdate(db *gorm.DB) {
	stmt := db.Statement
	c.guard(db, "UPDATE", "SET")
	if db.Error == nil && stmt.Schema != nil && slices.Contains(stmt.Selects, "*") {
		if zeros := c.Plan(stmt.Schema).zeros(stmt); len(zeros) > 0 {
			model.Change(stmt, func() { stmt.Omits = append(slices.Clip(stmt.Omits), zeros...) })
		}
	}
}

// afterUpdate takes back the changes of beforeUpdate.
func (c *Catalog) afterUpdate(db *gorm.DB) { model.Undo(db.Statement) }

// afterInsert takes back the changes of beforeInsert, and sets the ids of rows in an upsert that had conflicts. It
// explains the error of a batch that is too large.
func (c *Catalog) afterInsert(db *gorm.DB) {
	upsert.Reconcile(db, func(s *schema.Schema) *model.Model { return c.Plan(s).Model })
	c.explainSize(db)
}

// refill sets fields again that hooks of the model have zeroed.
func (c *Catalog) refill(db *gorm.DB) {
	if s := db.Statement.Schema; s != nil && !db.Statement.SkipHooks && (s.BeforeCreate || s.BeforeSave) {
		c.fillZeros(db)
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
		db.Error, _ = c.refusal(stmt, db.Error) // of an INSERT
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

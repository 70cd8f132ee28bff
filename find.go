package uidplugin

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/uidplugin/uidplugin/internal/model"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"
)

// Find loads the row whose primary key is id. It returns a pointer to a struct of the model that WithModels, Register
// or AutoMigrate listed for the table.
//
// The handle given to [From] takes part in the query: conditions, scopes, Select, Omit, Preload, Joins, Unscoped,
// locking and the like. Clauses that have no meaning there fail with [ErrClause]: Limit, Offset, Group, Having,
// Distinct, Raw, and Table or Model of another table.
//
// The error is that of Locate, or wraps [ErrNoModel], [ErrNotKey], [ErrClause] or [gorm.ErrRecordNotFound]. The last
// one means that no row has the key, that the row is deleted, or that it does not meet the handle's conditions. Find
// does not look at the session. So for an id that no process made it returns [gorm.ErrRecordNotFound], where Locate
// returns [ErrUnknownID].
func (p *Plugin) Find(ctx context.Context, id ID) (any, error) {
	rows, err := p.FindAll(ctx, id)
	if err != nil {
		return nil, err
	}
	row, ok := rows[id]
	if !ok {
		return nil, idErrorf(id, "uidplugin: find %d: %w", id, gorm.ErrRecordNotFound)
	}
	return row, nil
}

// FindAll loads the rows whose primary keys are ids, as Find does. It sends one query for each table and each 1,000 of
// its ids. The clauses of the handle apply to each query. The map has each row that was found, even if other ids fail.
//
// The error has an [IDError] for each id without a table or model, in the order of ids, followed by errors of queries.
// It unwraps to all of them, and its text has the first 20. A row may be missing or not meet the conditions of the handle. If the table of such an id is
// known, the id is in neither the map nor the error.
func (p *Plugin) FindAll(ctx context.Context, ids ...ID) (map[ID]any, error) {
	c, err := p.located()
	if err != nil {
		return nil, err
	}
	located, future, errs := c.locate(ctx, c.lookupOn(p.db), ids...)
	byTable := map[string][]ID{}
	for id, l := range located {
		if l.Table != "" && l.Database != c.database {
			errs = append(errs, idErrorf(id, "%w: %d is of the database %s, and this handle is of %s", ErrOtherDatabase, id, named(l.Database), named(c.database)))
			continue
		}
		byTable[l.Table] = append(byTable[l.Table], id)
	}
	found := make(map[ID]any, len(located))
	for _, table := range slices.Sorted(maps.Keys(byTable)) {
		errs = append(errs, p.findIn(ctx, table, byTable[table], found)...)
	}
	if len(future) > 0 { // that explains more than other errors of these ids
		errs = slices.DeleteFunc(errs, func(e error) bool { other, ok := e.(*IDError); return ok && future[other.ID] != nil })
		for id, err := range future {
			if _, ok := found[id]; !ok {
				errs = append(errs, err)
			}
		}
	}
	sortErrors(errs, ids)
	return found, joinIDErrors(errs)
}

// findIn adds the rows of one table to found.
func (p *Plugin) findIn(ctx context.Context, table string, ids []ID, found map[ID]any) (errs []error) {
	if table == "" {
		return idErrorsf(ids, "%w: the worker id of %d serves all tables, so the id does not resolve to one",
			ErrNoModel)
	}
	plan := p.shared.catalog.listedFor(table)
	if plan == nil {
		return idErrorsf(ids, "%w: %s, which %d is an id of; give its model to WithModels, Register"+
			" or the AutoMigrate of the plugin", ErrNoModel, table)
	}
	f := plan.key()
	if f == nil || !f.PrimaryKey {
		return idErrorsf(ids, "%w: no field of the primary key of %s is a uid field, and Find looks up nothing else:"+
			" query the table for %d", ErrNotKey, table)
	}
	slices.Sort(ids)
	for chunk := range slices.Chunk(ids, model.QueryChunk) {
		for _, err := range p.load(ctx, plan, f, chunk, found) {
			if _, ok := err.(*IDError); !ok {
				err = fmt.Errorf("uidplugin: find in %s: %w", table, err)
			}
			errs = append(errs, err)
		}
	}
	return errs
}

// idErrorsf returns an [IDError] for each of ids. The last verb of format is for the id.
func idErrorsf(ids []ID, format string, args ...any) (errs []error) {
	for _, id := range ids {
		errs = append(errs, idErrorf(id, format, append(slices.Clip(args), id)...))
	}
	return errs
}

// sortErrors sorts errors of ids by id, and puts them before all others, which keep their order.
func sortErrors(errs []error, ids []ID) {
	if len(errs) < 2 {
		return
	}
	index := make(map[ID]int, len(ids))
	for i, id := range slices.Backward(ids) { // so that the first of equal ids counts
		index[id] = i
	}
	position := func(err error) int {
		if e, ok := err.(*IDError); ok {
			return index[e.ID]
		}
		return len(ids)
	}
	slices.SortStableFunc(errs, func(a, b error) int { return cmp.Compare(position(a), position(b)) })
}

// load adds the rows whose key f is one of ids to found.
func (p *Plugin) load(ctx context.Context, plan *plan, f *field, ids []ID, found map[ID]any) (errs []error) {
	rows := reflect.New(reflect.SliceOf(reflect.PointerTo(plan.Schema.ModelType)))
	if err := p.query(ctx, plan, f, ids).Find(rows.Interface()).Error; err != nil {
		return []error{err}
	}
	wanted := make(map[ID]bool, len(ids))
	for _, id := range ids {
		wanted[id] = true
	}
	shared := map[ID]bool{}
	for _, loaded := range rows.Elem().Seq2() {
		r := model.Row{Struct: loaded.Elem()}
		id := ID(r.ID(ctx, f.Field))
		if !wanted[id] {
			// A text that the database takes for equal, because of spaces at its end, is another key.
			if _, zero := r.Value(ctx, f.Field.Field); f.Text && !zero {
				continue
			}
			return []error{fmt.Errorf("%w: a row came without its key: let Select and Omit of the handle leave"+
				" %s.%s in", ErrClause, plan.Schema.Table, f.DBName)}
		}
		if other, ok := found[id]; ok && !plan.sameKey(ctx, r, model.Row{Struct: reflect.ValueOf(other).Elem()}) {
			shared[id] = true
			continue
		}
		found[id] = loaded.Interface()
	}
	for id := range shared {
		delete(found, id)
		errs = append(errs, idErrorf(id, "%w: several rows of %s have %d in their key;"+
			" add a condition on the rest of the key, as in From(db.Where(...))", ErrNotKey,
			plan.Schema.Table, id))
	}
	return errs
}

// sameKey reports whether two rows have the same primary key. That is the case if a join returns one row twice.
func (p *plan) sameKey(ctx context.Context, a, b model.Row) bool {
	return !slices.ContainsFunc(p.Schema.PrimaryFields, func(f *schema.Field) bool {
		x, _ := f.ValueOf(ctx, a.Struct)
		y, _ := f.ValueOf(ctx, b.Struct)
		return !reflect.DeepEqual(x, y)
	})
}

// query returns the handle, with the condition that the key f is one of ids.
func (p *Plugin) query(ctx context.Context, plan *plan, f *field, ids []ID) *gorm.DB {
	values := make([]any, len(ids))
	for i, id := range ids {
		values[i] = f.Value(int64(id))
	}
	condition := clause.IN{Column: clause.Column{Table: clause.CurrentTable, Name: f.DBName}, Values: values}
	// Scopes may add any clause, and more scopes, which GORM runs in another round: this one has to be the last.
	var last func(db *gorm.DB) *gorm.DB
	last = func(db *gorm.DB) *gorm.DB {
		if hasScopes(db.Statement) {
			return db.Scopes(last)
		}
		if err := plan.restrict(db.Statement, condition); err != nil {
			_ = db.AddError(err)
		}
		return db
	}
	// Clauses without arguments begins a statement, as every method of GORM does. It leaves out what a session with
	// NewDB dropped, such as the conditions of the statement that a hook is called for. The session copies the rest.
	return p.db.Clauses().Session(&gorm.Session{Context: ctx}).Scopes(last)
}

// hasScopes reports whether scopes have not run yet. GORM has no method for it.
func hasScopes(stmt *gorm.Statement) bool {
	scopes := reflect.ValueOf(stmt).Elem().FieldByName("scopes")
	return scopes.IsValid() && scopes.Len() > 0
}

// restrict adds the condition for the key to a statement, which must hold together with all others. It refuses clauses
// with which it would not.
func (p *plan) restrict(stmt *gorm.Statement, condition clause.Expression) error {
	if err := p.refuse(stmt); err != nil {
		return err
	}
	stmt.Model = nil // the one of the rows, then
	c := stmt.Clauses["WHERE"]
	where, _ := c.Expression.(clause.Where)
	exprs := []clause.Expression{condition}
	if len(where.Exprs) > 0 {
		// The condition must not become part of an Or of the handle. GORM sorts the expressions when it builds them.
		exprs = []clause.Expression{model.InParentheses{Where: clause.Where{Exprs: slices.Clone(where.Exprs)}}, condition}
	}
	c.Name, c.Expression = "WHERE", clause.Where{Exprs: exprs}
	stmt.Clauses["WHERE"] = c
	return nil
}

// refuse returns an error for the first thing in a statement that a query by key cannot have.
func (p *plan) refuse(stmt *gorm.Statement) error {
	no := func(what, remedy string) error {
		return fmt.Errorf("%w: %s of the handle given to From: %s", ErrClause, what, remedy)
	}
	if stmt.SQL.Len() > 0 {
		return no("Raw", "it is a whole statement of its own; add conditions with Where")
	}
	if table := stmt.Table; !p.isTable(stmt) {
		return no(fmt.Sprintf("Table(%q)", table), "Find reads "+p.Schema.Table+
			", the table of the id; leave Table out, or query that table yourself")
	}
	if stmt.Model != nil {
		if s, err := model.Parse(stmt.DB, stmt.Model); err != nil || s.ModelType != p.Schema.ModelType {
			return no(fmt.Sprintf("Model(%T)", stmt.Model), "Find loads "+p.Schema.ModelType.String()+
				", the model that was listed for "+p.Schema.Table+"; leave Model out")
		}
	}
	if stmt.Distinct {
		return no("Distinct", "a key names one row; leave it out")
	}
	for _, name := range [...]string{"SELECT", "FROM", "WHERE", "GROUP BY", "LIMIT"} {
		if what, remedy := p.unusable(name, stmt.Clauses[name].Expression); what != "" {
			return no(what, remedy)
		}
	}
	return nil
}

// isTable reports whether a statement is about the table of the plan: it names none, or this one without an alias.
func (p *plan) isTable(stmt *gorm.Statement) bool {
	table := p.Schema.Table
	if stmt.TableExpr != nil {
		return len(stmt.TableExpr.Vars) == 0 && stmt.TableExpr.SQL == stmt.Quote(table)
	}
	return stmt.Table == "" || stmt.Table == table[strings.LastIndexByte(table, '.')+1:]
}

// unusable returns what a clause of a statement is called, and what to do instead, if a query by key cannot have it.
func (p *plan) unusable(name string, expr clause.Expression) (what, remedy string) {
	switch e := expr.(type) {
	case nil:
		return "", ""
	case clause.Select:
		if len(e.Columns) == 0 && e.Expression == nil && !e.Distinct {
			return "", ""
		}
	case clause.From:
		other := func(t clause.Table) bool { return t != clause.Table{Name: p.Schema.Table} }
		if !slices.ContainsFunc(e.Tables, other) {
			return "", ""
		}
	case clause.Where:
		return "", ""
	case clause.GroupBy:
		if len(e.Columns) == 0 && len(e.Having) == 0 {
			return "", ""
		}
	case clause.Limit:
		if (e.Limit == nil || *e.Limit < 0) && e.Offset <= 0 {
			return "", ""
		}
	}
	switch name {
	case "SELECT":
		return "Select with an expression", "give it the names of fields"
	case "FROM":
		return "a FROM clause", "Find reads " + p.Schema.Table + ", the table of the id; leave it out"
	case "WHERE":
		return "a WHERE clause of another kind", "add conditions with Where"
	case "GROUP BY":
		return "Group or Having", "a key names one row; leave it out, or use Where"
	}
	return "Limit or Offset", "the ids say which rows; leave it out"
}

package uidplugin

import (
	"cmp"
	"database/sql"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"
)

// An INSERT ... ON CONFLICT may find that the row is there already, under another
// key. Then the id that was made for it is in no row, and the struct must not keep
// it: it gets the id of the row that is there, or zero where the database does not
// tell. GORM's own association saves are such statements.
//
// How to learn what happened depends on the dialect, on what GORM itself reads
// back, and on the number of rows; see howToLearn. A statement without a conflict
// costs no round trip more, except where nothing of the statement can tell: an
// update part with a WHERE over several rows, maps (but not on MySQL), a result
// that the application asked for by gorm.WithResult, and on MySQL an id next to a
// key that the database numbers, or a last insert id that the application itself
// uses. With a conflict the row that is there is looked up, if the statement says
// by what: see conflictKey.

// howToLearn is how to learn whether rows had conflicts.
type howToLearn int

const (
	// GORM sets what RETURNING reads back: of each row, or nothing of a single one
	// that was left alone.
	fromReturning howToLearn = iota
	// MySQL's LAST_INSERT_ID(expr) in the update part: what the statement reports
	// as last insert id tells whether there was a conflict, and for a single row
	// with which.
	fromLastInsert
	// Fewer rows were changed than sent.
	fromCount
	// A SELECT by the ids that were set, on the connection of the statement; see
	// readback.go.
	fromSelect
)

// keep is what an INSERT IGNORE does with rows that are there.
var keep = clause.OnConflict{DoNothing: true}

// generated is what fill has set in one statement that has an ON CONFLICT, or may
// get one from a hook.
type generated struct {
	fields []*field
	ids    [][]int64 // of each field, in ascending order
	how    howToLearn

	// unselected are those of fields that the application has not selected.
	unselected []*field

	conflict clause.OnConflict // what to do with rows that are there; empty if not known

	// uniques are plan.uniques, on MySQL; see ambiguous.
	uniques [][]*schema.Field

	// numbered: the database numbers the keys of some rows.
	numbered bool

	// matches: what RETURNING reads back, GORM assigns in the order of rows, which
	// is right only if each row comes back.
	matches bool

	// sent are the ids of the fields in each row, in case less rows come back.
	sent [][]int64

	restore func() // undoes what beforeInsert has done to the statement; may be nil
}

// generatedKey is where fill leaves *generated for the callbacks around the
// INSERT.
const generatedKey = "uidplugin:generated"

const onConflict = "ON CONFLICT"

// track returns what fill is to note ids in: what it has begun with if it comes
// again.
func track(db *gorm.DB, again bool) *generated {
	if again {
		if g, ok := db.InstanceGet(generatedKey); ok {
			return g.(*generated)
		}
	}
	g := &generated{}
	db.InstanceSet(generatedKey, g)
	return g
}

// hasConflict tells whether a statement may find rows that are there already and
// not fail: by an ON CONFLICT, or as INSERT IGNORE.
func hasConflict(stmt *gorm.Statement) bool {
	if len(stmt.Clauses) == 0 {
		return false
	}
	if _, ok := stmt.Clauses[onConflict]; ok {
		return true
	}
	insert, _ := stmt.Clauses["INSERT"].Expression.(clause.Insert)
	return insert.Modifier != "" && strings.Contains(strings.ToUpper(insert.Modifier), "IGNORE")
}

// note remembers that f was set to id somewhere.
func (g *generated) note(f *field, id int64) {
	i := slices.Index(g.fields, f)
	if i < 0 {
		i = len(g.fields)
		g.fields, g.ids = append(g.fields, f), append(g.ids, nil)
	}
	g.ids[i] = append(g.ids[i], id)
}

// has tells whether f was set to id.
func (g *generated) has(f *field, id int64) bool {
	i := slices.Index(g.fields, f)
	if i < 0 || id == 0 {
		return false
	}
	_, ok := slices.BinarySearch(g.ids[i], id)
	return ok
}

// beforeInsert decides how to learn of conflicts and changes the statement for it.
// It runs right before the INSERT.
func (c *core) beforeInsert(db *gorm.DB) {
	stmt := db.Statement
	if db.Error != nil || stmt.Schema == nil {
		return
	}
	isMap := isMap(stmt.Dest)
	if !isMap && !hasConflict(stmt) && len(stmt.Schema.CreateClauses) == 0 {
		return
	}
	p := c.plan(stmt.Schema)
	brings := p.conflict != nil && !stmt.Unscoped
	if brings {
		stmt.AddClause(p.conflict) // GORM would do it too late to be looked at
	}
	var g *generated
	if v, ok := db.InstanceGet(generatedKey); ok && len(v.(*generated).fields) > 0 && hasConflict(stmt) {
		g = v.(*generated)
		g.prepare(stmt, p)
	}
	var changed *schema.Schema // what GORM gets to see in the INSERT, if it is not the schema
	if isMap || g != nil && !g.matches {
		changed = p.withoutDefault(stmt)
	}
	if brings && changed == nil {
		changed = copyForInsert(stmt.Schema)
	}
	if g != nil && g.conflict.UpdateAll {
		changed = g.keepIDs(stmt, p, changed)
	}
	if changed != nil {
		p.replaceSchema(db, changed)
	}
}

// prepare decides for one statement.
func (g *generated) prepare(stmt *gorm.Statement, p *plan) {
	expression, updates := stmt.Clauses[onConflict]
	conflict, known := expression.Expression.(clause.OnConflict)
	if !updates {
		conflict = keep
	} else if !known {
		g.how = fromSelect // of a kind that is not GORM's
		return
	}
	g.conflict = conflict
	if stmt.Dialector.Name() == "mysql" {
		g.uniques = p.uniques()
	}
	if key := stmt.Schema.PrioritizedPrimaryField; key != nil && key.HasDefaultValue && !g.tracks(key) {
		g.numbered = slices.ContainsFunc(rowsOf(stmt.ReflectValue, p), func(r row) bool {
			_, zero := r.value(stmt.Context, key)
			return zero
		})
	}
	isMap, mysql := isMap(stmt.Dest), stmt.Dialector.Name() == "mysql"
	single := stmt.ReflectValue.Kind() == reflect.Struct || stmt.ReflectValue.Kind() == reflect.Map
	// MariaDB returns a row for each that was sent, whatever became of it.
	all := mysql && updates && returns(stmt)
	unreadable := slices.ContainsFunc(g.fields, func(f *field) bool { return !f.Readable })
	g.matches = !isMap && !unreadable && (single || all || len(conflict.Where.Exprs) == 0 && g.surelyUpdates(stmt))
	g.save(stmt)
	if all && !isMap && !g.surelyUpdates(stmt) && len(stmt.Schema.PrimaryFields) > 0 {
		// What GORM's own DoNothing is in MySQL's SQL; but like this GORM assigns what
		// comes back to all rows, and not only to those that have no key yet.
		key := clause.Column{Name: stmt.Schema.PrimaryFields[0].DBName}
		conflict.DoNothing, conflict.DoUpdates = false, clause.Set{{Column: key, Value: key}}
		stmt.AddClause(conflict)
	}
	switch asked := stmt.Result != nil; {
	case g.matches && returns(stmt):
		g.addReturning(stmt, p)
	case returns(stmt):
		g.how = fromSelect
		g.dropReturning(stmt)
	case mysql && updates && !asked && g.tellsLastInsert(stmt, conflict):
		g.how = fromLastInsert
		g.addLastInsert(stmt, conflict, single)
	case mysql && updates:
		g.how = fromSelect
	case conflict.DoNothing:
		g.how = fromCount
	case g.matches && !asked && slices.Contains(stmt.BuildClauses, "RETURNING"):
		g.addReturning(stmt, p)
	default:
		g.how = fromSelect
	}
}

// surelyUpdates tells whether a row that is there is updated: not if an UpdateAll
// finds nothing that it may update.
func (g *generated) surelyUpdates(stmt *gorm.Statement) bool {
	if g.conflict.DoNothing || !g.conflict.UpdateAll || len(g.conflict.DoUpdates) > 0 {
		return !g.conflict.DoNothing
	}
	inserted, onlyInserted := stmt.SelectAndOmitColumns(true, false)
	updated, onlyUpdated := stmt.SelectAndOmitColumns(true, true)
	return slices.ContainsFunc(stmt.Schema.DBNames, func(name string) bool {
		f := stmt.Schema.FieldsByDBName[name]
		insert, named := inserted[name]
		update, namedToo := updated[name]
		return (insert || !named && !onlyInserted) && (update || !namedToo && !onlyUpdated) &&
			!f.PrimaryKey && f.AutoCreateTime == 0 && (!f.HasDefaultValue || f.DefaultValueInterface != nil) && !g.tracks(f)
	})
}

// keepIDs has an UpdateAll leave ids as they are: a row that is there keeps the ids
// that it has, and does not get those that were made for a new row. Ids that the
// application has set are written. It returns changed, or a copy.
func (g *generated) keepIDs(stmt *gorm.Statement, p *plan, changed *schema.Schema) *schema.Schema {
	copied := copyForInsert(cmp.Or(changed, stmt.Schema))
	for i, f := range g.fields {
		if f.PrimaryKey {
			continue
		}
		kept := *f.Field
		kept.PrimaryKey = true // GORM updates all but keys
		copied.FieldsByDBName[f.DBName] = &kept
		if slices.Contains(g.unselected, f) {
			continue // the application has not selected it
		}
		columns, restricted := stmt.SelectAndOmitColumns(true, true)
		if selected, named := columns[f.DBName]; named && !selected || !named && restricted {
			continue // not to be written anyway
		}
		own := slices.ContainsFunc(rowsOf(stmt.ReflectValue, p), func(r row) bool { return !g.has(f, r.id(stmt.Context, f)) })
		if own {
			g.keepMade(stmt, f, g.ids[i])
		}
	}
	return copied
}

// keepMade has the update part write those values of a field that were not made for
// this statement.
func (g *generated) keepMade(stmt *gorm.Statement, f *field, made []int64) {
	sent := clause.Expr{SQL: "?", Vars: []any{clause.Column{Table: "excluded", Name: f.DBName}}}
	if stmt.Dialector.Name() == "mysql" {
		sent = clause.Expr{SQL: "VALUES(?)", Vars: []any{clause.Column{Name: f.DBName}}}
	}
	there := clause.Column{Table: clause.CurrentTable, Name: f.DBName}
	values := make([]any, len(made))
	for i, id := range made {
		values[i] = f.value(id)
	}
	keep := clause.Expr{SQL: "CASE WHEN ? IN ? THEN ? ELSE ? END", Vars: []any{sent, values, there, sent}}
	if last := len(made) - 1; f.direct && made[last]-made[0] == int64(last) { // no other id lies between them
		keep = clause.Expr{SQL: "CASE WHEN ? BETWEEN ? AND ? THEN ? ELSE ? END", Vars: []any{sent, made[0], made[last], there, sent}}
	}
	g.conflict.DoUpdates = append(slices.Clip(g.conflict.DoUpdates), clause.Assignment{Column: clause.Column{Name: f.DBName}, Value: keep})
	conflict := stmt.Clauses[onConflict].Expression.(clause.OnConflict)
	conflict.DoUpdates = append(slices.Clip(conflict.DoUpdates), g.conflict.DoUpdates[len(g.conflict.DoUpdates)-1])
	stmt.AddClause(conflict)
}

// returns tells whether GORM will build a RETURNING.
func returns(stmt *gorm.Statement) bool {
	if !slices.Contains(stmt.BuildClauses, "RETURNING") {
		return false
	}
	if _, ok := stmt.Clauses["RETURNING"]; ok {
		return true
	}
	return slices.ContainsFunc(stmt.Schema.FieldsWithDefaultDBValue, func(f *schema.Field) bool { return f.Readable })
}

// addReturning has the fields come back, with what GORM reads back anyway.
func (g *generated) addReturning(stmt *gorm.Statement, p *plan) {
	g.how = fromReturning
	if rows := rowsOf(stmt.ReflectValue, p); len(rows) > 1 {
		g.sent = make([][]int64, len(rows))
		for i, r := range rows {
			for _, f := range g.fields {
				g.sent[i] = append(g.sent[i], r.id(stmt.Context, f))
			}
		}
	}
	var returning clause.Returning
	if c, ok := stmt.Clauses["RETURNING"]; ok {
		r, ok := c.Expression.(clause.Returning)
		if !ok || len(r.Columns) == 0 {
			return // all columns, or the application's own
		}
		returning.Columns = slices.Clone(r.Columns)
	} else {
		for _, f := range stmt.Schema.FieldsWithDefaultDBValue {
			if f.Readable {
				returning.Columns = append(returning.Columns, clause.Column{Name: f.DBName})
			}
		}
	}
	for _, f := range g.fields {
		if !slices.ContainsFunc(returning.Columns, func(c clause.Column) bool { return c.Name == f.DBName || c.Name == "*" }) {
			returning.Columns = append(returning.Columns, clause.Column{Name: f.DBName})
		}
	}
	delete(stmt.Clauses, "RETURNING") // it would be merged with
	stmt.AddClause(returning)
}

// dropReturning keeps keys and ids out of a RETURNING whose rows GORM cannot match
// to those that were sent: it would assign them to others.
func (g *generated) dropReturning(stmt *gorm.Statement) {
	c, ok := stmt.Clauses["RETURNING"]
	r, isReturning := c.Expression.(clause.Returning)
	if !ok || !isReturning {
		return
	}
	columns := r.Columns
	if len(columns) == 0 || slices.ContainsFunc(columns, func(c clause.Column) bool { return c.Name == "*" }) {
		columns = nil
		for _, name := range stmt.Schema.DBNames {
			columns = append(columns, clause.Column{Name: name})
		}
	}
	columns = slices.DeleteFunc(slices.Clone(columns), func(c clause.Column) bool {
		f := stmt.Schema.FieldsByDBName[c.Name]
		return f != nil && (f.PrimaryKey || g.tracks(f))
	})
	delete(stmt.Clauses, "RETURNING")
	if len(columns) > 0 {
		stmt.AddClause(clause.Returning{Columns: columns})
	}
}

// save remembers what beforeInsert may change, for a handle that is used again.
func (g *generated) save(stmt *gorm.Statement) {
	conflict, conflicts := stmt.Clauses[onConflict]
	returning, returned := stmt.Clauses["RETURNING"]
	result := stmt.Result
	g.restore = func() {
		delete(stmt.Clauses, "RETURNING")
		if conflicts {
			stmt.Clauses[onConflict] = conflict
		}
		if returned {
			stmt.Clauses["RETURNING"] = returning
		}
		stmt.Result = result
	}
}

// noID is what LAST_INSERT_ID says of a conflict with a row whose key it cannot
// tell. No id that a statement has made is so small.
const noID = 1

// addLastInsert puts LAST_INSERT_ID(expr) into the update part, in an assignment
// that leaves an id as it is: the function's value is read and never assigned,
// for it is unsigned and a number, as not every key is. For a single row expr is
// the key, if that is a number that an id can be.
func (g *generated) addLastInsert(stmt *gorm.Statement, conflict clause.OnConflict, single bool) {
	column := clause.Column{Name: g.fields[0].DBName} // any that may be written
	expr, vars := fmt.Sprint(noID), []any(nil)
	if f := g.key(stmt.Schema); f != nil && single {
		if f.direct {
			expr = fmt.Sprintf("IF(? BETWEEN 2 AND 9223372036854775807,?,%d)", noID)
			vars = []any{column, column}
		} else {
			const text = "CONVERT(? USING utf8mb4)"
			expr = fmt.Sprintf("IF(%[1]s REGEXP '^[1-9][0-9]{0,18}$' AND (CHAR_LENGTH(%[1]s)<19 OR %[1]s<='9223372036854775807'),%[1]s,%[2]d)", text, noID)
			vars = []any{column, column, column, column}
		}
	}
	value := clause.Expr{SQL: "IF(LAST_INSERT_ID(" + expr + ")=0,?,?)", Vars: append(vars, column, column)}
	conflict.DoUpdates = append(slices.Clip(conflict.DoUpdates), clause.Assignment{Column: column, Value: value})
	conflict.DoNothing = false
	stmt.AddClause(conflict)
	if stmt.Result == nil {
		stmt.Result = gorm.WithResult()
	}
}

// tellsLastInsert tells whether MySQL's last insert id is free to tell of
// conflicts: nobody else uses it, neither the application nor GORM, which takes it
// for a key that the database numbers.
func (g *generated) tellsLastInsert(stmt *gorm.Statement, conflict clause.OnConflict) bool {
	if len(stmt.Schema.PrimaryFields) == 0 {
		return false
	}
	if key := stmt.Schema.PrioritizedPrimaryField; key != nil && key.HasDefaultValue && !g.tracks(key) {
		return false
	}
	return !slices.ContainsFunc(conflict.DoUpdates, func(a clause.Assignment) bool {
		e, ok := a.Value.(clause.Expr)
		return ok && strings.Contains(strings.ToUpper(e.SQL), "LAST_INSERT_ID")
	})
}

// tracks tells whether f is one of the fields that were set.
func (g *generated) tracks(f *schema.Field) bool {
	return slices.ContainsFunc(g.fields, func(g *field) bool { return g.DBName == f.DBName })
}

// key returns the field of g that is the only key of the model, if one is.
func (g *generated) key(s *schema.Schema) *field {
	for _, f := range g.fields {
		if len(s.PrimaryFields) == 1 && f.DBName == s.PrimaryFields[0].DBName {
			return f
		}
	}
	return nil
}

// afterInsert puts right what the conflicts made wrong. It runs right after the
// INSERT, before associations get the keys.
func (c *core) afterInsert(db *gorm.DB) {
	stmt := db.Statement
	if !isMap(stmt.Dest) && !hasConflict(stmt) {
		return // what follows costs allocations
	}
	if s, ok := db.InstanceGet(originalSchema); ok {
		stmt.Schema = s.(*schema.Schema)
		forgetInstance(stmt, originalSchema)
	}
	v, ok := db.InstanceGet(generatedKey)
	if !ok {
		return
	}
	forgetInstance(stmt, generatedKey)
	g := v.(*generated)
	var sent sql.Result
	if stmt.Result != nil {
		sent = stmt.Result.Result
	}
	if g.restore != nil {
		g.restore()
	}
	if db.Error != nil || db.DryRun || stmt.Schema == nil || len(g.fields) == 0 || !hasConflict(stmt) {
		return
	}
	if err := g.learn(db, c.plan(stmt.Schema), sent); err != nil {
		_ = db.AddError(fmt.Errorf("uidplugin: read back the ids of %s after a conflict: %w", stmt.Table, err))
	}
}

// forgetInstance deletes what InstanceSet has left in a statement.
func forgetInstance(stmt *gorm.Statement, key string) {
	stmt.Settings.Delete(fmt.Sprintf("%p", stmt) + key) // as InstanceSet makes it
}

func (g *generated) learn(db *gorm.DB, p *plan, sent sql.Result) error {
	stmt := db.Statement
	rows := rowsOf(stmt.ReflectValue, p)
	switch g.how {
	case fromReturning:
		if db.RowsAffected >= int64(len(rows)) {
			return nil
		}
		if len(rows) == 1 {
			return g.askByConflict(db, rows, g.fields)
		}
		// A trigger has left rows alone, and GORM has given the others' ids to the
		// wrong ones.
		for i, r := range rows {
			for j, f := range g.fields {
				if id := g.sent[i][j]; id != 0 {
					if err := r.set(stmt.Context, f, id); err != nil {
						return err
					}
				}
			}
		}
	case fromLastInsert:
		if sent == nil {
			return nil // nothing was sent
		}
		id, err := sent.LastInsertId()
		if err != nil || id == 0 || slices.ContainsFunc(g.fields, func(f *field) bool { return g.has(f, id) }) {
			return err // no conflict: nothing, or on an AUTO_INCREMENT column the last id that was sent
		}
		if key := g.key(stmt.Schema); key != nil && len(rows) == 1 && id != noID {
			if err := rows[0].set(stmt.Context, key, id); err != nil || len(g.fields) == 1 {
				return err
			}
		}
	case fromCount:
		if db.RowsAffected == int64(len(rows)) {
			return nil
		}
		if len(rows) == 1 {
			return g.askByConflict(db, rows, g.fields)
		}
	}
	return g.ask(db, rows)
}

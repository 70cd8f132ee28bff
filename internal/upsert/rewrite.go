package upsert

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/uidplugin/uidplugin/internal/model"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"
)

var ignore = clause.OnConflict{DoNothing: true}

// Concerns reports whether [Rewrite] may change the statement.
func Concerns(stmt *gorm.Statement) bool {
	return isMap(stmt.Dest) || Conflicts(stmt) ||
		slices.ContainsFunc(stmt.Schema.CreateClauses, func(c clause.Interface) bool { return c.Name() == model.OnConflict })
}

// Rewrite prepares a statement so that conflicts can be detected, and keeps GORM from overwriting primary keys in
// maps. Call it right before the INSERT, inside of [model.Change].
func Rewrite(stmt *gorm.Statement, m *model.Model) {
	fromType := m.Conflict != nil && !stmt.Unscoped
	if fromType {
		stmt.AddClause(m.Conflict) // GORM adds it too late for us
	}
	t := trackerIn(stmt)
	if t != nil && len(t.fields) > 0 && Conflicts(stmt) {
		t.rewrite(stmt, m)
	} else {
		t = nil
	}
	var changed *schema.Schema // the schema for the INSERT, if it differs from stmt.Schema
	if (isMap(stmt.Dest) || t != nil && !t.matches) && stmt.Schema == m.Schema {
		changed = m.MapSchema
	}
	if fromType && changed == nil {
		changed = model.CopyForInsert(stmt.Schema)
	}
	if t != nil && t.conflict.UpdateAll {
		changed = t.preserveIDs(stmt, m, changed)
	}
	if changed != nil {
		replaceSchema(stmt, m, changed)
	}
}

func (t *Tracker) rewrite(stmt *gorm.Statement, m *model.Model) {
	for _, ids := range t.ids {
		slices.Sort(ids) // a generator may make them in any order
	}
	f := t.facts(stmt, m)
	t.decision = detect(f)
	if f.otherExpression {
		if t.decision.dropReturning {
			t.dropReturning(stmt)
		}
		return
	}
	conflict := t.conflict
	if f.onConflict && !f.doNothing {
		stmt.AddClause(conflict) // without a DoNothing that GORM's SQL would ignore
	}
	if t.updateKey || f.mysql && f.onConflict && conflict.UpdateAll && !f.surelyUpdates {
		same := t.untouched(stmt, conflict)
		conflict.DoNothing, conflict.DoUpdates = false, clause.Set{{Column: same, Value: same}}
		stmt.AddClause(conflict)
	}
	switch {
	case t.decision.addReturning:
		t.addReturning(stmt, m)
	case t.decision.dropReturning:
		t.dropReturning(stmt)
	case t.decision.addLastInsertID:
		t.addLastInsertID(stmt, conflict, t.lastInsertID(stmt, f))
	}
}

// facts inspects a statement, and records its handling of existing rows in t.
func (t *Tracker) facts(stmt *gorm.Statement, m *model.Model) (f facts) {
	f.mysql, f.isMap = stmt.Dialector.Name() == "mysql", isMap(stmt.Dest)
	expression, onConflict := stmt.Clauses[model.OnConflict]
	conflict, known := expression.Expression.(clause.OnConflict)
	if !onConflict && ignores(stmt) {
		conflict, known = ignore, true
	} else if !onConflict {
		conflict, onConflict = otherConflict(stmt)
		conflict.UpdateAll = false // GORM obeys it only in the clause ON CONFLICT
		t.unknown = reflect.ValueOf(conflict).IsZero()
	} else {
		t.unknown = !known
	}
	f.onConflict, f.otherExpression, f.returns = onConflict, !known, returns(stmt)
	if f.mysql && (conflict.UpdateAll || len(conflict.DoUpdates) > 0) {
		conflict.DoNothing = false // GORM's SQL for MySQL ignores it if there is something to update
	}
	t.conflict = conflict
	if f.mysql {
		t.uniques = m.Uniques()
	}
	f.single = stmt.ReflectValue.Kind() == reflect.Struct || stmt.ReflectValue.Kind() == reflect.Map
	f.readable = !slices.ContainsFunc(t.fields, func(f *model.Field) bool { return !f.Readable })
	f.hasKey = len(stmt.Schema.PrimaryFields) > 0
	f.doNothing, f.where = conflict.DoNothing, len(conflict.Where.Exprs) > 0
	f.surelyUpdates = t.surelyUpdates(stmt)
	f.assignsIDs = t.assigns(stmt.Schema, conflict, false)
	f.canReturn = slices.Contains(stmt.BuildClauses, "RETURNING")
	f.wantsResult = stmt.Result != nil
	f.lastInsertFree = f.mysql && t.lastInsertFree(stmt, conflict)
	return f
}

// surelyUpdates reports whether every existing row is updated, unless a WHERE excludes it.
func (t *Tracker) surelyUpdates(stmt *gorm.Statement) bool {
	if t.conflict.DoNothing || !t.conflict.UpdateAll || len(t.conflict.DoUpdates) > 0 {
		return !t.conflict.DoNothing
	}
	return len(t.updatedByAll(stmt)) > 0
}

// updatedByAll returns the fields that an UpdateAll surely updates.
func (t *Tracker) updatedByAll(stmt *gorm.Statement) (fields []*schema.Field) {
	inserted, onlyInserted := stmt.SelectAndOmitColumns(true, false)
	updated, onlyUpdated := stmt.SelectAndOmitColumns(true, true)
	for _, name := range stmt.Schema.DBNames {
		f := stmt.Schema.FieldsByDBName[name]
		insert, named := inserted[name]
		update, namedToo := updated[name]
		if (insert || !named && !onlyInserted) && (update || !namedToo && !onlyUpdated) &&
			!f.PrimaryKey && f.AutoCreateTime == 0 && (!f.HasDefaultValue || f.DefaultValueInterface != nil) && !t.tracks(f) {
			fields = append(fields, f)
		}
	}
	return fields
}

// preserveIDs makes an UpdateAll keep the ids of existing rows instead of writing ids that were made for new rows.
// Ids set by the application are written.
func (t *Tracker) preserveIDs(stmt *gorm.Statement, m *model.Model, changed *schema.Schema) *schema.Schema {
	copied := model.CopyForInsert(cmp.Or(changed, stmt.Schema))
	for i, f := range t.fields {
		if f.PrimaryKey {
			continue
		}
		kept := *f.Field
		kept.PrimaryKey = true // because GORM does not update keys
		copied.FieldsByDBName[f.DBName] = &kept
		columns, restricted := stmt.SelectAndOmitColumns(true, true)
		if selected, named := columns[f.DBName]; named && !selected || !named && restricted {
			continue // it is not written anyway
		}
		own := slices.ContainsFunc(model.RowsOf(stmt.ReflectValue, m.Schema.ModelType), func(r model.Row) bool { return !t.has(f, r.ID(stmt.Context, f)) })
		if own {
			t.keepExistingUnlessGiven(stmt, f, t.ids[i])
		}
	}
	return copied
}

// keepExistingUnlessGiven makes the update part keep a field's existing value where the sent value is one of ids.
func (t *Tracker) keepExistingUnlessGiven(stmt *gorm.Statement, f *model.Field, ids []int64) {
	sent := clause.Expr{SQL: "?", Vars: []any{clause.Column{Table: "excluded", Name: f.DBName}}}
	if stmt.Dialector.Name() == "mysql" {
		sent = clause.Expr{SQL: "VALUES(?)", Vars: []any{clause.Column{Name: f.DBName}}}
	}
	there := clause.Column{Table: clause.CurrentTable, Name: f.DBName}
	values := make([]any, len(ids))
	for i, id := range ids {
		values[i] = f.Value(id)
	}
	keep := clause.Expr{SQL: "CASE WHEN ? IN ? THEN ? ELSE ? END", Vars: []any{sent, values, there, sent}}
	if last := len(ids) - 1; f.Direct && ids[last]-ids[0] == int64(last) { // consecutive, so BETWEEN is enough
		keep = clause.Expr{SQL: "CASE WHEN ? BETWEEN ? AND ? THEN ? ELSE ? END", Vars: []any{sent, ids[0], ids[last], there, sent}}
	}
	t.conflict.DoUpdates = append(slices.Clip(t.conflict.DoUpdates), clause.Assignment{Column: clause.Column{Name: f.DBName}, Value: keep})
	conflict := stmt.Clauses[model.OnConflict].Expression.(clause.OnConflict)
	conflict.DoUpdates = append(slices.Clip(conflict.DoUpdates), t.conflict.DoUpdates[len(t.conflict.DoUpdates)-1])
	stmt.AddClause(conflict)
}

// returns reports whether GORM will build a RETURNING.
func returns(stmt *gorm.Statement) bool {
	if !slices.Contains(stmt.BuildClauses, "RETURNING") {
		return false
	}
	if _, ok := stmt.Clauses["RETURNING"]; ok {
		return true
	}
	return slices.ContainsFunc(stmt.Schema.FieldsWithDefaultDBValue, func(f *schema.Field) bool { return f.Readable })
}

func (t *Tracker) addReturning(stmt *gorm.Statement, m *model.Model) {
	if rows := model.RowsOf(stmt.ReflectValue, m.Schema.ModelType); len(rows) > 1 {
		t.sent = make([][]int64, len(rows))
		for i, r := range rows {
			for _, f := range t.fields {
				t.sent[i] = append(t.sent[i], r.ID(stmt.Context, f))
			}
		}
	}
	var returning clause.Returning
	if c, ok := stmt.Clauses["RETURNING"]; ok {
		r, ok := c.Expression.(clause.Returning)
		if !ok || len(r.Columns) == 0 {
			return // RETURNING has all columns, or is an expression of the application
		}
		returning.Columns = slices.Clone(r.Columns)
	} else {
		for _, f := range stmt.Schema.FieldsWithDefaultDBValue {
			if f.Readable {
				returning.Columns = append(returning.Columns, clause.Column{Name: f.DBName})
			}
		}
	}
	for _, f := range t.fields {
		if !slices.ContainsFunc(returning.Columns, func(c clause.Column) bool { return c.Name == f.DBName || c.Name == "*" }) {
			returning.Columns = append(returning.Columns, clause.Column{Name: f.DBName})
		}
	}
	delete(stmt.Clauses, "RETURNING") // because AddClause would merge with it
	stmt.AddClause(returning)
}

// dropReturning removes keys and ids from RETURNING, because GORM would assign them to wrong rows.
func (t *Tracker) dropReturning(stmt *gorm.Statement) {
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
		return f != nil && (f.PrimaryKey || t.tracks(f))
	})
	delete(stmt.Clauses, "RETURNING")
	if len(columns) > 0 {
		stmt.AddClause(clause.Returning{Columns: columns})
	}
}

// conflictSentinel is the last insert id of a conflict whose key cannot be returned. Ids with a time are larger.
const conflictSentinel = 1

// lastInsertID returns the argument of LAST_INSERT_ID: for one row, not in a slice, with a tracked key, the key of
// the existing row if that is from 2 to 2^63-1; otherwise the sentinel.
func (t *Tracker) lastInsertID(stmt *gorm.Statement, f facts) clause.Expr {
	key := t.key(stmt.Schema)
	if key == nil || !f.single {
		return clause.Expr{SQL: fmt.Sprint(conflictSentinel)}
	}
	column := clause.Column{Name: key.DBName}
	if key.Direct {
		return clause.Expr{SQL: fmt.Sprintf("IF(? BETWEEN 2 AND 9223372036854775807,?,%d)", conflictSentinel),
			Vars: []any{column, column}}
	}
	const text = "CONVERT(? USING utf8mb4)"
	return clause.Expr{SQL: fmt.Sprintf("IF(%[1]s REGEXP '^[1-9][0-9]{0,18}$' AND "+
		"(CHAR_LENGTH(%[1]s)<19 OR %[1]s<='9223372036854775807'),%[1]s,%[2]d)", text, conflictSentinel),
		Vars: []any{column, column, column, column}}
}

// addLastInsertID adds an assignment with LAST_INSERT_ID(expr) to the update part. No column gets the result of the
// function, because the result is an unsigned number and a key may have another type.
func (t *Tracker) addLastInsertID(stmt *gorm.Statement, conflict clause.OnConflict, expr clause.Expr) {
	c := t.carrier(stmt, conflict)
	conflict.DoUpdates = slices.Insert(slices.Clip(conflict.DoUpdates), c.at, c.assignment(expr))
	conflict.DoNothing = false
	stmt.AddClause(conflict)
	if stmt.Result == nil {
		stmt.Result = gorm.WithResult()
	}
}

// lastInsertFree reports whether we may use MySQL's last insert id for conflicts. We may not if the model has no
// key, if the application uses the last insert id, or if GORM needs it for keys that the database numbers.
func (t *Tracker) lastInsertFree(stmt *gorm.Statement, conflict clause.OnConflict) bool {
	if len(stmt.Schema.PrimaryFields) == 0 {
		return false
	}
	if key := stmt.Schema.PrioritizedPrimaryField; key != nil && key.HasDefaultValue && !t.tracks(key) {
		return false
	}
	return !slices.ContainsFunc(conflict.DoUpdates, func(a clause.Assignment) bool {
		e, ok := a.Value.(clause.Expr)
		return ok && strings.Contains(strings.ToUpper(e.SQL), "LAST_INSERT_ID")
	})
}

func replaceSchema(stmt *gorm.Statement, m *model.Model, changed *schema.Schema) {
	// Resolve names now, because LookUpField needs the naming strategy, which copies of a schema lack.
	resolve := func(name string) {
		if f := stmt.Schema.LookUpField(name); f != nil && changed.LookUpField(name) == nil {
			if changed == m.MapSchema {
				changed = model.CopyForInsert(changed)
			}
			changed.FieldsByName[name] = f
		}
	}
	for _, names := range [...][]string{stmt.Selects, stmt.Omits} {
		for _, name := range names {
			resolve(name)
		}
	}
	if isMap(stmt.Dest) {
		for _, r := range model.RowsOf(stmt.ReflectValue, m.Schema.ModelType) {
			for name := range r.Map {
				resolve(name)
			}
		}
	}
	stmt.Schema = changed
}

func isMap(dest any) bool {
	switch dest.(type) {
	case map[string]any, *map[string]any, []map[string]any, *[]map[string]any:
		return true
	}
	return false
}

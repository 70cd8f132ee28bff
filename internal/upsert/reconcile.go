package upsert

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"

	"github.com/uidplugin/uidplugin/internal/model"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"
)

// Reconcile undoes the changes of [Rewrite] to the statement, and corrects wrong ids after conflicts. Call it right
// after the INSERT, because GORM's next step copies the keys into associated rows.
func Reconcile(db *gorm.DB, modelOf func(*schema.Schema) *model.Model) {
	stmt := db.Statement
	var result sql.Result
	if stmt.Result != nil {
		result = stmt.Result.Result
	}
	conflicts := Conflicts(stmt) // before Undo, which may remove the ON CONFLICT
	model.Undo(stmt)
	t := trackerIn(stmt)
	if t == nil {
		return
	}
	Forget(stmt)
	if db.Error != nil || db.DryRun || stmt.Schema == nil || len(t.fields) == 0 || !conflicts {
		return
	}
	rows := sentRows(stmt, modelOf(stmt.Schema).Schema)
	if err := t.reconcile(db, rows, result); err != nil {
		_ = db.AddError(fmt.Errorf("uidplugin: read back the ids of %s: %w", stmt.Table, err))
	} else if err := t.refuseOrphans(stmt, rows); err != nil {
		_ = db.AddError(fmt.Errorf("uidplugin: %w", err))
	}
}

// reconcile sets the ids of the rows with conflicts. result is the result of the INSERT, or nil.
func (t *Tracker) reconcile(db *gorm.DB, rows []sentRow, result sql.Result) error {
	stmt := db.Statement
	switch t.how {
	case byReturning, byRowCount:
		if db.RowsAffected >= int64(len(rows)) {
			return nil
		}
		if len(rows) == 1 {
			return t.readConflicting(db, rows, t.fields)
		}
		// With byReturning a trigger has skipped rows, so GORM has assigned returned ids to wrong rows. Replace
		// these ids by those that were sent. With byRowCount t.sent is empty.
		for i, ids := range t.sent {
			for j, id := range ids {
				if id != 0 {
					if err := rows[i].Set(stmt.Context, t.fields[j], id); err != nil {
						return err
					}
				}
			}
		}
	case byLastInsertID:
		if result == nil {
			return nil // the INSERT was not sent
		}
		id, err := result.LastInsertId()
		// Without a conflict the last insert id is 0, or on an AUTO_INCREMENT column the last sent id. A trigger
		// may cause these values despite a conflict. For a single row the row count then shows the conflict,
		// because an update counts as 2 or 0. In a batch, or with clientFoundRows, the count may hide one.
		showsConflict := id == conflictSentinel || id != 0 && !slices.ContainsFunc(t.fields, func(f *model.Field) bool { return t.has(f, id) })
		key, single := t.key(stmt.Schema), len(rows) == 1
		if err != nil || !showsConflict && db.RowsAffected == int64(len(rows)) && (single || key == nil && !t.indexed(stmt.Schema)) {
			return err
		}
		if showsConflict && key != nil && single && id != conflictSentinel {
			if err := rows[0].Set(stmt.Context, key, id); err != nil || len(t.fields) == 1 {
				return err
			}
		}
	}
	return t.readBack(db, rows)
}

// indexed reports whether each tracked field is the first column of an index, so that reading by it is fast.
func (t *Tracker) indexed(s *schema.Schema) bool {
	return !slices.ContainsFunc(t.fields, func(f *model.Field) bool {
		return !f.Unique && f.DBName != s.PrimaryFields[0].DBName && !slices.ContainsFunc(s.ParseIndexes(), func(x *schema.Index) bool {
			return x.Fields[0].DBName == f.DBName
		})
	})
}

// readBack reads which ids are in the table. If the key is not tracked, it looks up rows by each tracked field,
// because GORM may have assigned the keys to wrong rows.
func (t *Tracker) readBack(db *gorm.DB, rows []sentRow) error {
	if key := t.key(db.Statement.Schema); key != nil {
		return t.readByID(db, key, t.fields, rows)
	}
	for _, f := range t.fields {
		if err := t.readByID(db, f, []*model.Field{f}, rows); err != nil {
			return err
		}
	}
	return nil
}

// readByID sets fields to the values in the table. The sent rows whose ids it does not find had conflicts.
func (t *Tracker) readByID(db *gorm.DB, idField *model.Field, fields []*model.Field, rows []sentRow) error {
	ctx := db.Statement.Context
	var conflicting []sentRow
	for chunk := range slices.Chunk(rows, model.QueryChunk) {
		found, err := selectByID(db, idField, fields, chunk)
		if err != nil {
			return err
		}
		for _, r := range chunk {
			v, _ := r.Value(ctx, idField.Field)
			values, ok := found[model.Digits(v)]
			if !ok {
				conflicting = append(conflicting, r)
			} else if err := t.correct(ctx, r.Row, fields, values); err != nil {
				return err
			}
		}
	}
	return t.readConflicting(db, conflicting, fields)
}

// readConflicting looks up the existing rows by [Tracker.keys]. New ids of a sent row become 0 if it finds none.
func (t *Tracker) readConflicting(db *gorm.DB, rows []sentRow, fields []*model.Field) error {
	ctx := db.Statement.Context
	keys := t.keys(db.Statement.Schema)
	for chunk := range slices.Chunk(rows, selectChunk) {
		found, err := t.lookUp(db, keys, fields, chunk)
		if err != nil {
			return err
		}
		for i, r := range chunk {
			values := found[i]
			if values == nil {
				values = make([]int64, len(fields))
			}
			if err := t.correct(ctx, r.Row, fields, values); err != nil {
				return err
			}
		}
	}
	return nil
}

// lookUp returns the ids of the existing rows, by the index of the sent row in rows. It first searches for the
// values sent, because most columns store them unchanged, and then for the values that the columns store instead.
func (t *Tracker) lookUp(
	db *gorm.DB, keys [][]*schema.Field, fields []*model.Field, rows []sentRow,
) (map[int][]int64, error) {
	lookups, found := t.lookups(db.Statement.Context, keys, rows), map[int][]int64{}
	if err := t.readRows(db, lookups, comparisons{}, fields, found); err != nil {
		return nil, err
	}
	moves, missing := t.moves(keys), false
	for n := range lookups {
		missing = missing || found[n] == nil
	}
	if !missing {
		return agreed(lookups, found, moves), nil
	}
	how, err := t.readComparisons(db.Statement, keys)
	if err != nil {
		return nil, err
	}
	if err := t.readRows(db, lookups, how, fields, found); err != nil {
		return nil, err
	}
	if how.complete && !moves && !ignores(db.Statement) {
		err = refuseMissing(lookups, found)
	}
	return agreed(lookups, found, moves), err
}

// agreed returns the values found for each sent row, by [lookup.row]. It leaves out a sent row if its lookups have
// found several rows of the table, or none. With mustAll it also does so if one of these lookups has found none.
func agreed(lookups []lookup, found map[int][]int64, mustAll bool) map[int][]int64 {
	byRow, unknown := map[int][]int64{}, map[int]bool{}
	for n, l := range lookups {
		values, ok := found[n]
		other := byRow[l.row]
		switch {
		case !ok && !mustAll:
		case values == nil, other != nil && !slices.Equal(values, other):
			unknown[l.row] = true
		default:
			byRow[l.row] = values
		}
	}
	maps.DeleteFunc(byRow, func(row int, _ []int64) bool { return unknown[row] })
	return byRow
}

func refuseMissing(lookups []lookup, found map[int][]int64) error {
	foundRow := map[int]bool{}
	for n := range found {
		foundRow[lookups[n].row] = true
	}
	for _, l := range lookups {
		if l.key == 0 && !foundRow[l.row] {
			v, _ := l.sent(l.fields[0])
			return fmt.Errorf("a new row had a conflict, but no row has its %s, %.40q; a trigger or the type of the column may have"+
				" changed the value; create this row in a statement of its own (docs/creating-rows.md)", l.fields[0].DBName, model.Digits(v))
		}
	}
	return nil
}

// correct replaces ids of r that were made for the statement by those in values, where 0 means unknown.
func (t *Tracker) correct(ctx context.Context, r model.Row, fields []*model.Field, values []int64) error {
	for i, f := range fields {
		if id := r.ID(ctx, f); id != values[i] && t.has(f, id) {
			if err := r.Set(ctx, f, values[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// keys returns the columns of each unique index that may have caused a conflict: the [Tracker.conflictKey], and on
// MySQL also [model.Model.Uniques], because GORM's SQL for MySQL leaves out the columns of an ON CONFLICT.
func (t *Tracker) keys(s *schema.Schema) (keys [][]*schema.Field) {
	fields := t.conflictKey(s)
	if len(fields) == 0 {
		return nil
	}
	keys = [][]*schema.Field{fields}
	for _, unique := range t.uniques {
		if !slices.ContainsFunc(keys, func(other []*schema.Field) bool {
			return len(unique) == len(other) &&
				!slices.ContainsFunc(other, func(f *schema.Field) bool { return !slices.Contains(unique, f) })
		}) {
			keys = append(keys, unique)
		}
	}
	return keys
}

// conflictKey returns the fields that identify the conflicting row: the columns of the ON CONFLICT, or else the
// primary key. It returns nil if one of them is unknown, is changed by the update part, or has new ids.
func (t *Tracker) conflictKey(s *schema.Schema) (columns []*schema.Field) {
	if t.conflict.OnConstraint != "" || t.unknown {
		return nil
	}
	if len(t.conflict.Columns) == 0 {
		columns = s.PrimaryFields
	}
	for _, column := range t.conflict.Columns {
		f := s.FieldsByDBName[column.Name]
		if column.Name == clause.PrimaryKey {
			f = s.PrioritizedPrimaryField
		}
		if f == nil || column.Raw {
			return nil
		}
		columns = append(columns, f)
	}
	if slices.ContainsFunc(columns, func(f *schema.Field) bool { return t.tracks(f) || t.writesOther(f) }) {
		return nil
	}
	return columns
}

// writesOther reports whether the update part may write another value to a field than the value that was sent.
func (t *Tracker) writesOther(f *schema.Field) bool {
	return t.conflict.UpdateAll && f.AutoUpdateTime > 0 || slices.ContainsFunc(t.conflict.DoUpdates, func(a clause.Assignment) bool {
		sent, ok := a.Value.(clause.Column)
		return a.Column.Name == f.DBName && (!ok || sent.Table != "excluded" || sent.Name != a.Column.Name)
	})
}

// moves reports whether the update part may change a column of a unique index in a row that conflicts by another
// index. If so, the update for a later row of the batch may have put the value that caused a conflict into another
// row. Then the conflicting row is known only if all unique values that were sent lead to it.
func (t *Tracker) moves(keys [][]*schema.Field) bool {
	return len(keys) > 1 && (t.conflict.UpdateAll || slices.ContainsFunc(t.conflict.DoUpdates, func(a clause.Assignment) bool {
		return slices.ContainsFunc(slices.Concat(keys...), func(f *schema.Field) bool { return f.DBName == a.Column.Name })
	}))
}

// refuseOrphans returns an error if a row of unknown id has associated rows, whose foreign key would be 0.
func (t *Tracker) refuseOrphans(stmt *gorm.Statement, rows []sentRow) error {
	s := stmt.Schema
	columns, restricted := stmt.SelectAndOmitColumns(true, false)
	for _, rel := range slices.Concat(s.Relationships.HasOne, s.Relationships.HasMany, s.Relationships.Many2Many) {
		if selected, named := columns[rel.Name]; named && !selected || !named && restricted {
			continue
		}
		for _, f := range t.fields {
			if !slices.ContainsFunc(rel.References, func(ref *schema.Reference) bool { return ref.OwnPrimaryKey && ref.PrimaryKey.DBName == f.DBName }) {
				continue
			}
			for _, r := range rows {
				if r.Map == nil && r.ID(stmt.Context, f) == 0 && !model.IsEmpty(model.FieldOf(r.Struct, rel.Field)) {
					return fmt.Errorf("a new %s had a conflict with a row whose %s is unknown, so its %s cannot refer to it; name the columns of the"+
						" conflict, or save the %[3]s later (docs/creating-rows.md)", s.Name, f.DBName, rel.Name)
				}
			}
		}
	}
	return nil
}

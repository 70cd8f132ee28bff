package upsert

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/uidplugin/uidplugin/internal/model"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"
)

// Reconcile corrects the ids that conflicts made wrong. It runs right after the INSERT, before associations get the
// keys. modelOf returns the model of a schema.
func Reconcile(db *gorm.DB, modelOf func(*schema.Schema) *model.Model) {
	stmt := db.Statement
	if !isMap(stmt.Dest) && !Conflicts(stmt) {
		return // what follows costs allocations
	}
	if s, ok := db.InstanceGet(originalSchema); ok {
		stmt.Schema = s.(*schema.Schema)
		forgetInstance(stmt, originalSchema)
	}
	v, ok := db.InstanceGet(trackerKey)
	if !ok {
		return
	}
	forgetInstance(stmt, trackerKey)
	t := v.(*Tracker)
	var sent sql.Result
	if stmt.Result != nil {
		sent = stmt.Result.Result
	}
	if t.restore != nil {
		t.restore()
	}
	if db.Error != nil || db.DryRun || stmt.Schema == nil || len(t.fields) == 0 || !Conflicts(stmt) {
		return
	}
	if err := t.reconcile(db, modelOf(stmt.Schema), sent); err != nil {
		_ = db.AddError(fmt.Errorf("uidplugin: read back the ids of %s after a conflict: %w", stmt.Table, err))
	}
}

// forgetInstance deletes what InstanceSet has left in a statement.
func forgetInstance(stmt *gorm.Statement, key string) {
	stmt.Settings.Delete(fmt.Sprintf("%p", stmt) + key) // as InstanceSet makes it
}

// reconcile sets the ids of the rows that had conflicts. sent is the result of the INSERT; it may be nil.
func (t *Tracker) reconcile(db *gorm.DB, m *model.Model, sent sql.Result) error {
	stmt := db.Statement
	rows := model.RowsOf(stmt.ReflectValue, m.Schema.ModelType)
	switch t.how {
	case byReturning:
		if db.RowsAffected >= int64(len(rows)) {
			return nil
		}
		if len(rows) == 1 {
			return t.readConflicting(db, rows, t.fields)
		}
		// A trigger has left rows alone, and GORM has given the others' ids to the
		// wrong ones.
		for i, r := range rows {
			for j, f := range t.fields {
				if id := t.sent[i][j]; id != 0 {
					if err := r.Set(stmt.Context, f, id); err != nil {
						return err
					}
				}
			}
		}
	case byLastInsertID:
		if sent == nil {
			return nil // nothing was sent
		}
		id, err := sent.LastInsertId()
		if err != nil || id == 0 || slices.ContainsFunc(t.fields, func(f *model.Field) bool { return t.has(f, id) }) {
			return err // no conflict: nothing, or on an AUTO_INCREMENT column the last id that was sent
		}
		if key := t.key(stmt.Schema); key != nil && len(rows) == 1 && id != conflictSentinel {
			if err := rows[0].Set(stmt.Context, key, id); err != nil || len(t.fields) == 1 {
				return err
			}
		}
	case byRowCount:
		if db.RowsAffected == int64(len(rows)) {
			return nil
		}
		if len(rows) == 1 {
			return t.readConflicting(db, rows, t.fields)
		}
	}
	return t.readBack(db, rows)
}

// readBack reads which of the ids are in the table. A key that is ours identifies its whole row, with all fields in it.
// Fields next to another key are looked up one by one, because GORM may have given such keys to the wrong rows.
func (t *Tracker) readBack(db *gorm.DB, rows []model.Row) error {
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

// readByID reads the rows that have in the field by what the structs have there. It sets fields of the structs to what
// the rows have. A struct without such a row had a conflict with another row.
func (t *Tracker) readByID(db *gorm.DB, by *model.Field, fields []*model.Field, rows []model.Row) error {
	ctx := db.Statement.Context
	var conflicting []model.Row
	for chunk := range slices.Chunk(rows, model.QueryChunk) {
		there, err := selectByID(db, by, fields, chunk)
		if err != nil {
			return err
		}
		for _, r := range chunk {
			v, _ := r.Value(ctx, by.Field)
			values, ok := there[model.Digits(v)]
			if !ok {
				conflicting = append(conflicting, r)
			} else if err := t.correct(ctx, r, fields, values); err != nil {
				return err
			}
		}
	}
	return t.readConflicting(db, conflicting, fields)
}

// readConflicting reads the rows that the structs had a conflict with. It finds them by [Tracker.conflictKey]. Where
// that does not tell, it sets fields to zero.
func (t *Tracker) readConflicting(db *gorm.DB, rows []model.Row, fields []*model.Field) error {
	ctx := db.Statement.Context
	by := t.conflictKey(db.Statement.Schema)
	for chunk := range slices.Chunk(rows, selectChunk) {
		var there map[int][]int64
		if len(by) > 0 {
			var err error
			if there, err = t.readRows(db, by, fields, chunk); err != nil {
				return err
			}
		}
		for i, r := range chunk {
			values := there[i]
			if values == nil {
				values = make([]int64, len(fields))
			}
			if err := t.correct(ctx, r, fields, values); err != nil {
				return err
			}
		}
	}
	return nil
}

// correct sets those of fields that were set in a row to what is in the table; 0
// if that is not known.
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

// conflictKey returns the fields that identify the row of a conflict: those that the ON CONFLICT names, else the
// primary key. It returns nil if that is not known, or has ids that were made for the statement.
func (t *Tracker) conflictKey(s *schema.Schema) (by []*schema.Field) {
	if t.conflict.OnConstraint != "" {
		return nil
	}
	if len(t.conflict.Columns) == 0 {
		by = s.PrimaryFields
	}
	for _, column := range t.conflict.Columns {
		f := s.FieldsByDBName[column.Name]
		if column.Name == clause.PrimaryKey {
			f = s.PrioritizedPrimaryField
		}
		if f == nil || column.Raw {
			return nil
		}
		by = append(by, f)
	}
	if slices.ContainsFunc(by, func(f *schema.Field) bool {
		// GORM may have read a field with a default in the database back from another row.
		return t.tracks(f) || f.HasDefaultValue && f.DefaultValueInterface == nil && (!f.PrimaryKey || t.numbered)
	}) {
		return nil
	}
	return by
}

// ambiguous reports whether a row may have had a conflict in other columns than by. MySQL ignores the columns that an
// ON CONFLICT names: any unique index counts in which the row is not NULL.
func (t *Tracker) ambiguous(ctx context.Context, r model.Row, by []*schema.Field) bool {
	return slices.ContainsFunc(t.uniques, func(unique []*schema.Field) bool {
		if len(unique) == len(by) && !slices.ContainsFunc(by, func(f *schema.Field) bool { return !slices.Contains(unique, f) }) {
			return false
		}
		return !slices.ContainsFunc(unique, func(f *schema.Field) bool {
			v, _ := r.Value(ctx, f)
			return isNull(v) || t.numbered && f.HasDefaultValue && f.PrimaryKey
		})
	})
}

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

// Reconcile takes back the changes in the statement, and corrects wrong ids after conflicts. Call it right after the
// INSERT, because associations copy the keys next. modelOf returns the model of a schema.
func Reconcile(db *gorm.DB, modelOf func(*schema.Schema) *model.Model) {
	stmt := db.Statement
	var sent sql.Result
	if stmt.Result != nil {
		sent = stmt.Result.Result
	}
	conflicts := Conflicts(stmt) // Undo removes the clause of a type
	model.Undo(stmt)
	t := trackerIn(stmt)
	if t == nil {
		return
	}
	Forget(stmt)
	if db.Error != nil || db.DryRun || stmt.Schema == nil || len(t.fields) == 0 || !conflicts {
		return
	}
	if err := t.reconcile(db, modelOf(stmt.Schema), sent); err != nil {
		_ = db.AddError(fmt.Errorf("uidplugin: read back the ids of %s after a conflict: %w", stmt.Table, err))
	}
}

// reconcile sets the ids of the rows with conflicts. sent is the result of the INSERT, or nil.
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
		// A trigger has skipped rows, so GORM has assigned the returned ids to wrong rows.
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
			return nil // the INSERT was not sent
		}
		id, err := sent.LastInsertId()
		if err != nil || id == 0 || slices.ContainsFunc(t.fields, func(f *model.Field) bool { return t.has(f, id) }) {
			return err // without a conflict it is 0, or on an AUTO_INCREMENT column the last sent id
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

// readBack reads which ids are in the table. If the key is tracked, one lookup by key covers all fields. Otherwise it
// looks up each field, because GORM may have assigned the keys to wrong rows.
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

// readByID looks up rows by the field by and sets fields to their values. A struct without such a row had a conflict
// with another row.
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

// readConflicting looks up the conflicting rows by [Tracker.conflictKey]. It sets fields to zero if the row is unknown.
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

// correct replaces the tracked ids in a row by values, or by 0 for unknown ids.
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

// conflictKey returns the fields that identify the conflicting row: the columns of the ON CONFLICT, else the primary
// key. It returns nil if they are unknown, or contain ids that were made for the statement.
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
		// GORM may have read back a field with a database default from another row.
		return t.tracks(f) || f.HasDefaultValue && f.DefaultValueInterface == nil && (!f.PrimaryKey || t.numbered)
	}) {
		return nil
	}
	return by
}

// ambiguous reports whether the row may have had a conflict in columns other than by. It checks every unique index
// without NULL in the row, because MySQL ignores the columns of an ON CONFLICT.
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

package upsert

import (
	"context"
	"slices"
	"strings"

	"github.com/uidplugin/uidplugin/internal/model"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"
)

// A sentRow is a row of a statement with the values that were sent. Its struct may have other values, because GORM
// reads values back into it, and because some columns are not sent.
type sentRow struct {
	model.Row
	values  []any          // nil if unknown
	columns map[string]int // indexes of values by column, shared by all rows of a statement
}

// sentRows returns the rows of a statement after its INSERT.
func sentRows(stmt *gorm.Statement, s *schema.Schema) []sentRow {
	rows := model.RowsOf(stmt.ReflectValue, s.ModelType)
	sent, _ := stmt.Clauses["VALUES"].Expression.(clause.Values)
	columns := make(map[string]int, len(sent.Columns))
	for i, column := range sent.Columns {
		columns[column.Name] = i
	}
	all := make([]sentRow, len(rows))
	for i, r := range rows {
		all[i] = sentRow{Row: r, columns: columns}
		if len(sent.Values) == len(rows) {
			all[i].values = sent.Values[i]
		}
	}
	return all
}

// sent returns the value sent for a field, unless it is NULL or computed by SQL.
func (r sentRow) sent(f *schema.Field) (any, bool) {
	i, ok := r.columns[f.DBName]
	if !ok || i >= len(r.values) || isNull(r.values[i]) {
		return nil, false
	}
	v := r.values[i]
	if _, computed := v.(clause.Expression); computed {
		_, valuer := v.(gorm.Valuer)
		return v, valuer
	}
	_, subquery := v.(*gorm.DB)
	return v, !subquery
}

// A lookup searches for the existing row by the values that were sent for the columns of a unique index.
type lookup struct {
	sentRow
	row    int             // index of the sentRow among the rows
	key    int             // index in the result of Tracker.keys
	fields []*schema.Field // the columns of that key
}

// lookups returns a lookup for each row and each unique key by which the row may have had a conflict. A row has
// none if a value of such a key was not sent or is computed by SQL, or if the update part may change the value.
func (t *Tracker) lookups(ctx context.Context, keys [][]*schema.Field, rows []sentRow) (list []lookup) {
	for i, r := range rows {
		before := len(list)
		for k, fields := range keys {
			if slices.ContainsFunc(fields, func(f *schema.Field) bool { return r.cannotConflict(ctx, f) }) {
				continue
			}
			if slices.ContainsFunc(fields, func(f *schema.Field) bool {
				_, ok := r.sent(f)
				return !ok || t.writesOther(f)
			}) {
				list = list[:before]
				break
			}
			list = append(list, lookup{r, i, k, fields})
		}
	}
	return list
}

// cannotConflict reports whether the value of a field is NULL, or a key that the database numbers.
func (r sentRow) cannotConflict(ctx context.Context, f *schema.Field) bool {
	if i, ok := r.columns[f.DBName]; ok && i < len(r.values) {
		if e, ok := r.values[i].(clause.Expr); !ok || e.SQL != "DEFAULT" {
			return isNull(r.values[i])
		}
	}
	if f.HasDefaultValue {
		return f.PrimaryKey || strings.EqualFold(f.DefaultValue, "NULL")
	}
	v, _ := r.Value(ctx, f)
	return isNull(v)
}

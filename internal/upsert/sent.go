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

// A sentRow is a row of a statement with the values that were sent. Its struct may differ, because GORM reads values
// back into it, and because some columns are not sent.
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

// sent returns the value that was sent for a field, or false if none was, it is NULL, or the database has computed it.
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

// A lookup searches the existing row by the values that a row has sent for a unique index, whose columns are fields.
type lookup struct {
	sentRow
	row    int // index of the sentRow
	key    int // index of fields in the unique indexes
	fields []*schema.Field
}

// lookups returns a lookup for each row and each of keys in which the row may have had its conflict. A row gets none if
// for one of these keys the database has computed a value, or the update part may write another value than the one sent.
func (t *Tracker) lookups(ctx context.Context, keys [][]*schema.Field, rows []sentRow) (all []lookup) {
	for i, r := range rows {
		before := len(all)
		for k, fields := range keys {
			if slices.ContainsFunc(fields, func(f *schema.Field) bool { return r.isInNoConflict(ctx, f) }) {
				continue
			}
			if slices.ContainsFunc(fields, func(f *schema.Field) bool {
				_, ok := r.sent(f)
				return !ok || t.writesOther(f)
			}) {
				all = all[:before]
				break
			}
			all = append(all, lookup{r, i, k, fields})
		}
	}
	return all
}

// isInNoConflict reports whether the value of a field cannot be in conflict: NULL, or a key that the database numbers.
func (r sentRow) isInNoConflict(ctx context.Context, f *schema.Field) bool {
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

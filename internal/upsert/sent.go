package upsert

import (
	"slices"

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

// sent returns the value of a field that was sent, or false if the database has computed it or it is NULL.
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

// isKnown reports whether a row can be found by the columns by: all have values, and no other index may have made the
// conflict. NULL is in no conflict.
func (t *Tracker) isKnown(stmt *gorm.Statement, r sentRow, by []*schema.Field) bool {
	return !t.ambiguous(stmt.Context, r.Row, by) && !slices.ContainsFunc(by, func(f *schema.Field) bool {
		_, ok := r.sent(f)
		return !ok
	})
}

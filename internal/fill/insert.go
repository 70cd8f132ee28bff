package fill

import (
	"fmt"
	"regexp"

	"github.com/uidplugin/uidplugin/internal/catalog"
	"github.com/uidplugin/uidplugin/internal/model"
	"github.com/uidplugin/uidplugin/internal/upsert"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"
)

// BeforeInsert adds the ids that Select leaves out, prepares an upsert, and keeps GORM from overwriting keys of
// maps. It changes the statement late, so hooks and most callbacks of other plugins copy it unchanged.
func (f *Filler) BeforeInsert(db *gorm.DB) {
	stmt := db.Statement
	if db.Error != nil || stmt.Schema == nil {
		return
	}
	p := f.catalog.Plan(stmt.Schema)
	if len(unselected(p, stmt)) > 0 {
		model.BeforeBuild(stmt, func() { insertUnselected(p, stmt) }, "INSERT", "VALUES")
	}
	if stmt.Unscoped { // because GORM then skips the clauses that types of fields add
		model.RefuseZeroKeys(stmt)
	}
	if upsert.Concerns(stmt) {
		model.Change(stmt, func() { upsert.Rewrite(stmt, p.Model) })
	}
}

// AfterInsert takes back what BeforeInsert changed for an upsert, and sets the ids of rows that had conflicts.
func (f *Filler) AfterInsert(db *gorm.DB) {
	upsert.Reconcile(db, func(s *schema.Schema) *model.Model { return f.catalog.Plan(s).Model })
	f.explainSize(db)
}

// selectedFields returns the fields to set in a create with Select or Omit. These include zero uid fields that
// Select leaves out; see insertUnselected.
func selectedFields(stmt *gorm.Statement, fields []*catalog.Field) []*catalog.Field {
	columns, restricted := stmt.SelectAndOmitColumns(true, false)
	kept := make([]*catalog.Field, 0, len(fields))
	for _, f := range fields {
		isSelected, named := columns[f.DBName]
		if named && !isSelected {
			continue
		}
		if !named && restricted && !anyZero(f, stmt) {
			continue // set by the application, which decides whether to select it
		}
		kept = append(kept, f)
	}
	return kept
}

// unselected returns the uid fields that the plugin has set in a create, but that Select leaves out.
func unselected(p *catalog.Plan, stmt *gorm.Statement) (fields []*catalog.Field) {
	if len(stmt.Selects) == 0 {
		return nil
	}
	n := notesIn(stmt)
	if n == nil {
		return nil
	}
	columns, restricted := stmt.SelectAndOmitColumns(true, false)
	for _, f := range p.Fields {
		if _, named := columns[f.DBName]; !named && restricted && n.has(f) {
			fields = append(fields, f)
		}
	}
	return fields
}

// insertUnselected adds to the INSERT the ids that Select leaves out. Otherwise the database would assign a key,
// and the struct would keep the plugin's. It does not change stmt.Selects, because other plugins send statements on
// copies of this statement.
func insertUnselected(p *catalog.Plan, stmt *gorm.Statement) {
	values, ok := stmt.Clauses["VALUES"].Expression.(clause.Values)
	rows := model.RowsOf(stmt.ReflectValue, p.Schema.ModelType)
	fields := unselected(p, stmt)
	if !ok || len(fields) == 0 {
		return
	}
	if len(values.Values) == 0 { // no column of a map is selected
		values.Values = make([][]any, len(rows))
	}
	if len(values.Columns) == 0 {
		nothingToUpdate(stmt)
	}
	for _, f := range fields {
		for i, r := range rows {
			if len(values.Values[i]) < len(values.Columns) { // no column of this map is selected
				values.Values[i] = make([]any, len(values.Columns))
			}
			v, zero := r.Value(stmt.Context, f.Field.Field)
			if zero && f.PrimaryKey {
				_ = stmt.AddError(fmt.Errorf("%w: %s.%s of row %d is 0: the plugin has set it, and then another plugin has set it to 0",
					model.ErrZeroKey, f.Schema.Name, f.Name, i))
			}
			values.Values[i] = append(values.Values[i], v)
		}
		values.Columns = append(values.Columns, clause.Column{Name: f.DBName})
	}
	stmt.AddClause(values)
}

// nothingToUpdate turns an upsert of all columns into DO NOTHING if there is no column to update. GORM does the
// same, but only if there is a column to insert.
func nothingToUpdate(stmt *gorm.Statement) {
	conflict, _ := stmt.Clauses[model.OnConflict].Expression.(clause.OnConflict)
	if !conflict.UpdateAll || len(conflict.DoUpdates) > 0 {
		return
	}
	conflict.DoNothing = true
	if len(conflict.Columns) == 0 {
		for _, f := range stmt.Schema.PrimaryFields {
			conflict.Columns = append(conflict.Columns, clause.Column{Name: f.DBName})
		}
	}
	stmt.AddClause(conflict)
}

// mostValues is how many values a database takes in one statement, by dialect.
var mostValues = map[string]int{"mysql": 65535, "postgres": 65535, "sqlite": 32766}

var tooMany = regexp.MustCompile(`too many (?:placeholders|SQL variables)|limited to 65535 parameters`)

// explainSize explains the error of an INSERT that has too many values because of its ids. Without the plugin GORM
// sends no AUTO_INCREMENT key, so a batch size that worked then may be too large.
func (f *Filler) explainSize(db *gorm.DB) {
	stmt := db.Statement
	most, sent := mostValues[stmt.Dialector.Name()], len(stmt.Vars)
	if db.Error == nil || stmt.Schema == nil || most == 0 || sent <= most || !tooMany.MatchString(db.Error.Error()) {
		return
	}
	rows := len(model.RowsOf(stmt.ReflectValue, stmt.Schema.ModelType))
	if fields := len(f.catalog.Plan(stmt.Schema).Fields); rows > 1 && sent-rows*fields <= most {
		db.Error = fmt.Errorf("uidplugin: an INSERT into %s has %d values in %d rows, but the database takes %d: the id is one more"+
			" for each row, so use CreateInBatches with at most %d rows (docs/from-auto-increment.md#batches): %w",
			stmt.Table, sent, rows, most, most/((sent+rows-1)/rows), db.Error)
	}
}

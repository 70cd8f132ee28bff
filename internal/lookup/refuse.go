package lookup

import (
	"fmt"
	"slices"
	"strings"

	"github.com/uidplugin/uidplugin/internal/catalog"
	"github.com/uidplugin/uidplugin/internal/model"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

func refused(name, remedy string) error {
	return fmt.Errorf("%w: %s of the handle or a scope: %s", ErrClause, name, remedy)
}

// refuse returns an error for the first part of a statement that a query by key does not allow.
func refuse(p *catalog.Plan, stmt *gorm.Statement) error {
	if stmt.SQL.Len() > 0 {
		return refused("Raw", "it is a whole statement of its own; add conditions with Where")
	}
	if table := stmt.Table; !isTable(p, stmt) {
		return refused(fmt.Sprintf("Table(%q)", table), "rows are read from "+p.Schema.Table+
			"; leave Table out, or query that table yourself")
	}
	if stmt.Model != nil {
		if s, err := model.Parse(stmt.DB, stmt.Model); err != nil || s.ModelType != p.Schema.ModelType {
			return refused(fmt.Sprintf("Model(%T)", stmt.Model), "rows are of the model "+p.Schema.ModelType.String()+
				"; leave Model out")
		}
	}
	if stmt.DryRun {
		return refused("DryRun", "it reads no rows; leave it out")
	}
	if stmt.Distinct {
		return refused("Distinct", "a key names one row; leave it out")
	}
	if _, ok := stmt.DB.ClauseBuilders["WHERE"]; ok || stmt.Clauses["WHERE"].Builder != nil {
		return refused("a WHERE clause of another kind", "add conditions with Where")
	}
	for _, name := range [...]string{"SELECT", "FROM", "WHERE", "GROUP BY", "LIMIT"} {
		if label, remedy := unusable(p, name, stmt.Clauses[name].Expression); label != "" {
			return refused(label, remedy)
		}
	}
	return nil
}

// isTable reports whether a statement names the plan's table without an alias, or no table.
func isTable(p *catalog.Plan, stmt *gorm.Statement) bool {
	table := p.Schema.Table
	if stmt.TableExpr != nil {
		return len(stmt.TableExpr.Vars) == 0 && stmt.TableExpr.SQL == stmt.Quote(table)
	}
	return stmt.Table == "" || stmt.Table == table[strings.LastIndexByte(table, '.')+1:]
}

// unusable returns the name of a clause and a remedy if a query by key cannot have the clause.
func unusable(p *catalog.Plan, name string, expr clause.Expression) (label, remedy string) {
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
		return "a FROM clause", "rows are read from " + p.Schema.Table + "; leave it out"
	case "WHERE":
		return "a WHERE clause of another kind", "add conditions with Where"
	case "GROUP BY":
		return "Group or Having", "a key names one row; leave it out, or use Where"
	}
	return "Limit or Offset", "the ids already determine the rows; leave it out"
}

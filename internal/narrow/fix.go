package narrow

import (
	"strings"

	"github.com/uidplugin/uidplugin/internal/inspect"
	"github.com/uidplugin/uidplugin/internal/model"
	"github.com/uidplugin/uidplugin/internal/sqldb"
)

// wideStatement returns a statement that makes a column hold all ids, or a description on SQLite.
func (g *Guard) wideStatement(column inspect.Column, r model.Range) string {
	table, name, kind := column.Table, g.quote(column.Name), "BIGINT"
	if !strings.ContainsAny(table, "`\" ") {
		table = g.quote(table)
	}
	if r.Characters > 0 {
		kind = "VARCHAR(20)"
	} else if strings.Contains(column.Type, "unsigned") {
		kind = "BIGINT UNSIGNED"
	}
	switch g.db.Dialector.Name() {
	case "sqlite":
		return "creating the table again with " + name + " " + kind
	case "postgres":
		return "ALTER TABLE " + table + " ALTER COLUMN " + name + " TYPE " + kind
	}
	rest := " NOT NULL"
	if column.Nullable {
		rest = ""
	}
	switch d := column.Default; {
	case d == "" || d == "NULL":
	case strings.ContainsAny(d, "'("): // MariaDB quotes texts and writes expressions as they are
		rest += " DEFAULT " + d
	default:
		rest += " DEFAULT '" + d + "'"
	}
	if column.Auto {
		rest += " AUTO_INCREMENT"
	}
	if column.Comment != "" {
		rest += " COMMENT '" + strings.NewReplacer(`\`, `\\`, "'", "''").Replace(column.Comment) + "'"
	}
	return "ALTER TABLE " + table + " MODIFY " + name + " " + kind + rest
}

// quote quotes a name for the dialect.
func (g *Guard) quote(name string) string { return sqldb.Quoted(g.db.Dialector, name) }

package uidplugin

import (
	"context"
	"strconv"
	"strings"

	"github.com/uidplugin/uidplugin/internal/model"
	"gorm.io/gorm"
	"gorm.io/gorm/schema"
)

// inspect warns of existing tables with columns that do not fit: that the database numbers, or that are too narrow. The
// models do not show this, and GORM's AutoMigrate does not change a key.
func (c *catalog) inspect(ctx context.Context, db *gorm.DB, models []any) {
	if c.sql == nil || len(models) == 0 {
		return
	}
	fields := map[[2]string]bool{}
	var tables []string
	for _, m := range models {
		if s, err := model.Parse(db, m); err == nil {
			tables = append(tables, s.Table)
			for _, f := range model.UIDFields(s) {
				fields[[2]string{s.Table, f.DBName}] = true
			}
		}
	}
	columns, err := c.sql.ColumnsOf(ctx, tables...)
	if err != nil {
		return // nothing depends on it
	}
	dialect, digits := c.db.Dialector.Name(), len(strconv.FormatInt(c.target().Largest, 10))
	for _, column := range columns {
		if !fields[[2]string{column.Table, column.Name}] {
			continue
		}
		var table, name strings.Builder
		c.db.Dialector.QuoteTo(&table, column.Table)
		c.db.Dialector.QuoteTo(&name, column.Name)
		kind := " BIGINT"
		if strings.HasSuffix(column.Type, "unsigned") {
			kind = " BIGINT UNSIGNED"
		}
		change := "ALTER TABLE " + table.String() + " MODIFY " + name.String() + kind + " NOT NULL"
		if dialect == "postgres" {
			what := " DROP DEFAULT"
			if column.Identity {
				what = " DROP IDENTITY"
			}
			change = "ALTER TABLE " + table.String() + " ALTER COLUMN " + name.String() + what
		}
		if column.Auto {
			c.Log.Warn("uidplugin: the database numbers this column: a row that is inserted without the plugin, for example by an old process,"+
				" gets a number"+c.numberOf()+". When all that insert use the plugin, run the statement.",
				"table", column.Table, "column", column.Name, "statement", change)
		}
		if model.TooNarrow(schema.DataType(strings.TrimSuffix(column.Type, " unsigned")), dialect, digits) || strings.HasPrefix(column.Type, "int") {
			c.Log.Warn("uidplugin: this column is too narrow for ids: creates will fail; make it, and foreign keys to it, BIGINT first",
				"table", column.Table, "column", column.Name, "type", column.Type)
		}
	}
}

// numberOf says which number the database gives to a row that is inserted without a key.
func (c *catalog) numberOf() string {
	switch c.db.Dialector.Name() {
	case "mysql", "sqlite":
		return " from the database: the largest id plus one, which the plugin may be about to use; then a create fails with a duplicate key"
	}
	return " from the database, which counts on its own"
}

// warnAutoIncrement warns of a model whose key GORM takes for AUTO_INCREMENT.
func (c *catalog) warnAutoIncrement(s *schema.Schema) {
	change := ""
	switch c.db.Dialector.Name() {
	case "mysql":
		change = "; change a table that is there by ALTER TABLE ... MODIFY ... BIGINT NOT NULL"
	case "postgres":
		change = "; change a table that is there by ALTER TABLE ... ALTER COLUMN ... DROP DEFAULT"
	case "sqlite":
		change = "; but SQLite gives every integer primary key a number, so let nothing else insert"
	}
	c.Log.Warn("uidplugin: GORM takes the key of this model for AUTO_INCREMENT: a row that is inserted without the plugin,"+
		" for example by raw SQL, gets a number"+c.numberOf()+
		". Give the model to WithModels, or to the plugin's AutoMigrate, or tag the key autoIncrement:false"+change+".",
		"table", s.Table, "model", s.Name, "field", s.PrioritizedPrimaryField.Name)
}

package uidplugin

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/uidplugin/uidplugin/internal/model"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/supply"
	"gorm.io/gorm"
	"gorm.io/gorm/schema"
)

// A columnName names a column of a table, in lower case: a server may spell names in another case than a model.
type columnName struct{ table, column string }

func columnNamed(table, column string) columnName {
	return columnName{strings.ToLower(table), strings.ToLower(column)}
}

// inspect reads the columns of existing tables, of models and of those that they are associated with. It warns of those
// that the database numbers, or that are too narrow. The models do not show this, and GORM's AutoMigrate does not change
// a key. While MySQL numbers a column, its ids have gaps.
func (c *catalog) inspect(ctx context.Context, db *gorm.DB, models []any) {
	if c.sql == nil || len(models) == 0 || c.LookupOnly {
		return
	}
	sources, names := c.columnsOf(db, models)
	columns, err := c.sql.ColumnsOf(ctx, slices.Sorted(maps.Keys(names))...)
	if err != nil {
		c.Log.Warn("uidplugin: the tables of the models could not be inspected: if the database numbers a key, nothing leaves room for its numbers",
			"error", err)
		return
	}
	found := map[string][]sqldb.Column{}
	for _, column := range columns {
		column.Table = names[column.Table]
		found[column.Table] = append(found[column.Table], column)
		if source, ok := sources[columnNamed(column.Table, column.Name)]; ok && column.Auto {
			c.noteNumbered(column, source)
		}
	}
	for name, columns := range found {
		place := ""
		if strings.Count(name, ".") == 1 {
			place = c.quote(name) // GORM then gives its statements a TableExpr
		}
		c.mu.Lock()
		t := c.tables[name]
		c.mu.Unlock()
		if t != nil {
			c.learn(t, t.known.Load(), place, columns)
		}
	}
}

// columnsOf returns the columns of the uid fields of models, and of those that they are associated with, and where their
// ids come from. It also returns the names of all tables that have columns for ids, by how statements write them.
func (c *catalog) columnsOf(db *gorm.DB, models []any) (sources map[columnName]*supply.Source, names map[string]string) {
	sources, names = map[columnName]*supply.Source{}, map[string]string{}
	add := func(s *schema.Schema, table string) {
		for _, f := range c.plan(s).fields {
			sources[columnNamed(table, f.DBName)] = f.source
			names[c.quote(table)] = table
		}
	}
	for _, m := range models {
		s, err := model.Parse(db, m)
		if err != nil {
			continue
		}
		model.Walk(db, s, func(s *schema.Schema) { add(s, s.Table) })
		if elsewhere := model.ParseElsewhere(db, m); elsewhere != nil {
			add(s, elsewhere.Table)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, t := range c.tables {
		if len(t.known.Load().ids) > 0 {
			names[c.quote(name)] = name
		}
	}
	return sources, names
}

// noteNumbered warns of a column that the database numbers. On MySQL it turns gaps on, for the rows of others.
func (c *catalog) noteNumbered(column sqldb.Column, source *supply.Source) {
	gaps := ""
	if c.db.Dialector.Name() == "mysql" && !source.Foreign {
		c.supply.LeaveGaps(source)
		if gap := supply.Gap(c.Layout); gap > 1 {
			gaps = " Until this process starts again, ids of the table are multiples of " + strconv.FormatInt(gap, 10) +
				", which leaves room for such rows."
		}
	}
	if !c.once("numbers", column.Table, column.Name) {
		return
	}
	c.Log.Warn("uidplugin: the database numbers this column: a row that is inserted without the plugin,"+
		" for example by an old process, gets a number"+c.numbersOf()+"."+gaps+
		" When all that insert use the plugin, run the statement; docs/from-auto-increment.md has the one for a key that foreign keys refer to.",
		"table", column.Table, "column", column.Name, "statement", c.plainStatement(column))
}

// plainStatement returns the statement after which the database no longer numbers a column; "" on SQLite, which has
// none.
func (c *catalog) plainStatement(column sqldb.Column) string {
	var table, name strings.Builder
	c.db.Dialector.QuoteTo(&table, column.Table)
	c.db.Dialector.QuoteTo(&name, column.Name)
	switch dialect := c.db.Dialector.Name(); {
	case dialect == "sqlite":
		return ""
	case dialect == "postgres" && column.Identity:
		return "ALTER TABLE " + table.String() + " ALTER COLUMN " + name.String() + " DROP IDENTITY"
	case dialect == "postgres":
		return "ALTER TABLE " + table.String() + " ALTER COLUMN " + name.String() + " DROP DEFAULT"
	}
	kind := " BIGINT"
	if strings.HasSuffix(column.Type, "unsigned") {
		kind = " BIGINT UNSIGNED"
	}
	return "ALTER TABLE " + table.String() + " MODIFY " + name.String() + kind + " NOT NULL"
}

// numbersOf says which number the database gives to a row that is inserted without a key.
func (c *catalog) numbersOf() string {
	switch c.db.Dialector.Name() {
	case "mysql", "sqlite":
		return " from the database: the largest id plus one, which the plugin may be about to use;" +
			" then a create fails with a duplicate key"
	}
	return " from the sequence of the column, which counts independently of the plugin's ids:" +
		" no create fails, but such a row cannot be located"
}

// once reports whether a warning about a column is the first one of its kind.
func (c *catalog) once(kind, table, column string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := [3]string{kind, table, column}
	before := c.warned[key]
	c.warned[key] = true
	return !before
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
	key := s.PrioritizedPrimaryField
	advice := ". Give the model to WithModels, or to the plugin's AutoMigrate, or tag the key autoIncrement:false"
	if model.WantsAutoIncrement(key) {
		advice = ". Its tag says autoIncrement: remove that from the tag, and give the model to WithModels," +
			" or to the plugin's AutoMigrate"
	}
	c.Log.Warn("uidplugin: GORM takes the key of this model for AUTO_INCREMENT: a row that is inserted without the plugin,"+
		" for example by raw SQL, gets a number"+c.numbersOf()+advice+change+".",
		"table", s.Table, "model", s.Name, "field", key.Name)
}

// warnElsewhere warns of a table that GORM has just created under another name than its model's, with a key that the
// database numbers. create is the statement. Only listed models are known here: the keys of others are warned of at
// their first create.
func (c *catalog) warnElsewhere(table, create string) {
	for _, p := range c.listedModels() {
		key := p.Schema.PrioritizedPrimaryField
		if key == nil || key.AutoIncrement || !model.HasTag(key) || !c.creates(create, p.Schema) {
			continue
		}
		var name strings.Builder
		c.db.Dialector.QuoteTo(&name, key.DBName)
		pattern := `(?i)` + regexp.QuoteMeta(name.String()) + ` [^,]*(auto_?increment|serial|identity)`
		numbered := regexp.MustCompile(pattern).FindString(create)
		if numbered == "" || !c.once("numbers", table, key.DBName) {
			continue
		}
		numbered = strings.ToLower(numbered)
		column := sqldb.Column{Table: table, Name: key.DBName, Identity: strings.Contains(numbered, "identity")}
		if strings.Contains(numbered, "unsigned") {
			column.Type = "unsigned"
		}
		args := []any{"table", table, "model", p.Schema.Name, "column", key.DBName}
		if statement := c.plainStatement(column); statement != "" {
			args = append(args, "statement", statement)
		}
		c.Log.Warn("uidplugin: GORM has created a table with the columns of this model under another name, as for Table or Scopes,"+
			" and with a key that the database numbers. If it is for rows of this model, a row that is inserted without the plugin"+
			" gets a number"+c.numbersOf()+". Create such tables by uidplugin.From(db.Table(name)).AutoMigrate(model),"+
			" and change this one by the statement, if there is one.", args...)
		return
	}
}

// creates reports whether a CREATE TABLE has the columns of a model, and no others.
func (c *catalog) creates(create string, s *schema.Schema) bool {
	n := 0
	for _, column := range s.DBNames {
		var name strings.Builder
		c.db.Dialector.QuoteTo(&name, column)
		if s.FieldsByDBName[column].IgnoreMigration {
			continue
		}
		if n++; !strings.Contains(create, name.String()) {
			return false
		}
	}
	return columnsIn(create) == n
}

// columnsIn returns how many columns a CREATE TABLE of GORM has: the definitions that begin with a quoted name.
func columnsIn(create string) (n int) {
	_, list, _ := strings.Cut(create, "(")
	depth, begins := 0, true
	for _, char := range list {
		switch {
		case char == '(':
			depth++
		case char == ')':
			depth--
		case char == ',' && depth == 0:
			begins = true
			continue
		case begins && (char == '`' || char == '"'):
			n++
		}
		begins = begins && char == ' '
	}
	return n
}

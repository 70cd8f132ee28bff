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

// inspect warns of existing tables, of models and of those that they are associated with, with columns that do not fit:
// that the database numbers, or that are too narrow. The models do not show this, and GORM's AutoMigrate does not
// change a key. While the database numbers a column with the number after the largest, its ids have gaps.
func (c *catalog) inspect(ctx context.Context, db *gorm.DB, models []any) {
	if c.sql == nil || len(models) == 0 || c.LookupOnly {
		return
	}
	in := inspected{map[string]string{}, map[columnName]*field{}}
	for _, m := range models {
		s, err := model.Parse(db, m)
		if err != nil {
			continue
		}
		model.Walk(db, s, func(s *schema.Schema) { c.addTo(in, s.Table, c.plan(s)) })
		if elsewhere := model.ParseElsewhere(db, m); elsewhere != nil {
			c.addTo(in, elsewhere.Table, c.plan(s))
		}
	}
	c.mu.Lock()
	for name, t := range c.tables {
		if len(t.known.Load().ids) > 0 {
			in.tables[c.quote(name)] = name
		}
	}
	c.mu.Unlock()
	c.inspectColumns(ctx, c.sql, in, true)
}

// inspectMigrated inspects the tables of models that a statement of a migration names, on its connection.
func (c *catalog) inspectMigrated(stmt *gorm.Statement) {
	if c.sql == nil || c.LookupOnly {
		return
	}
	in := inspected{map[string]string{}, map[columnName]*field{}}
	for s, p := range *c.plans.Load() {
		if strings.Contains(stmt.SQL.String(), s.Table) {
			c.addTo(in, s.Table, p)
		}
	}
	_, inTransaction := stmt.ConnPool.(gorm.TxCommitter) // which an error would end, on PostgreSQL
	c.inspectColumns(stmt.Context, c.sql.On(stmt.ConnPool), in, !inTransaction)
}

// inspected are the tables and the uid fields that are inspected.
type inspected struct {
	tables map[string]string // the names of tables, by how statements write them
	fields map[columnName]*field
}

func (c *catalog) addTo(in inspected, table string, p *plan) {
	for _, f := range p.fields {
		in.tables[c.quote(table)], in.fields[columnNamed(table, f.DBName)] = table, f
	}
}

// inspectColumns inspects the columns of tables, and where their sequences stand if readSequences is set.
func (c *catalog) inspectColumns(ctx context.Context, sql *sqldb.DB, in inspected, readSequences bool) {
	columns, err := sql.ColumnsOf(ctx, slices.Sorted(maps.Keys(in.tables))...)
	if err != nil {
		c.Log.Warn("uidplugin: the tables of the models could not be inspected: if the database numbers a key, nothing leaves room for its numbers",
			"error", err)
		return
	}
	var numbered, among []sqldb.Column
	found := map[string][]sqldb.Column{}
	for _, column := range columns {
		written := column.Table
		column.Table = in.tables[written]
		found[column.Table] = append(found[column.Table], column)
		f, ok := in.fields[columnNamed(column.Table, column.Name)]
		if !ok {
			continue
		}
		switch {
		case column.Auto && !f.source.Foreign && c.countsAmongIDs(ctx, sql, written, column, readSequences):
			c.supply.LeaveGaps(f.source)
			among = append(among, column)
		case column.Auto:
			numbered = append(numbered, column)
		case c.db.Dialector.Name() != "sqlite" && c.noLonger(column): // SQLite does not say what it numbers
			c.Log.Info("uidplugin: the database no longer numbers this column: an INSERT without the key fails, also in old processes",
				"table", column.Table, "column", column.Name)
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
	wanted := func(column sqldb.Column) bool {
		return model.WantsAutoIncrement(in.fields[columnNamed(column.Table, column.Name)].Field.Field)
	}
	c.warnNumbered("numbers", slices.DeleteFunc(numbered, wanted), c.numbersOf())
	kind, numbers := "numbers", c.numbersOf()
	if c.db.Dialector.Name() == "postgres" {
		kind, numbers = "among", " from the sequence of the column, which stands among the ids, because a program has set it to the largest key;"+
			" then a create may fail with a duplicate key"
	}
	if n := supply.Gap(c.Layout); n > 1 {
		numbers += ". Until this process starts again, the plugin leaves the " + strconv.FormatInt(n-1, 10) + " numbers after each id to such rows"
	}
	c.warnNumbered(kind, slices.DeleteFunc(among, wanted), numbers)
}

// countsAmongIDs reports whether the next number of a column that the database numbers may be that of an id. On MySQL it
// follows the largest id. A sequence of PostgreSQL counts on its own unless a program sets it, for example to the
// largest key; no sequence counts up to a thousandth of what ids are now.
func (c *catalog) countsAmongIDs(ctx context.Context, sql *sqldb.DB, table string, column sqldb.Column, readSequences bool) bool {
	if c.db.Dialector.Name() != "postgres" || !readSequences {
		return c.db.Dialector.Name() != "postgres"
	}
	last, err := sql.LastOf(ctx, table, column.Name)
	if err != nil {
		c.Log.Warn("uidplugin: the sequence of this column could not be read: if it was set to an id, nothing leaves room for its numbers",
			"table", column.Table, "column", column.Name, "error", err)
	}
	return last > c.Layout.TickAt(c.Now())<<(c.Layout.WorkerBits+c.Layout.SequenceBits)/1000
}

// warnNumbered warns of columns that the database numbers, once of each.
func (c *catalog) warnNumbered(kind string, columns []sqldb.Column, numbers string) {
	columns = slices.DeleteFunc(columns, func(column sqldb.Column) bool { return !c.once(kind, column.Table, column.Name) })
	if len(columns) == 0 {
		return
	}
	names := make([]string, len(columns))
	for i, column := range columns {
		names[i] = column.Table + "." + column.Name
	}
	slices.Sort(names)
	args := []any{"columns", strings.Join(names, ", ")}
	advice := ` When all that insert use the plugin, run the statements that "uid doctor" prints; docs/from-auto-increment.md has them too.`
	if statement := c.plainStatement(columns[0]); len(columns) == 1 && statement != "" {
		advice = " When all that insert use the plugin, run the statement; docs/from-auto-increment.md has the one for a key that foreign keys refer to."
		args = append(args, "statement", statement)
	}
	c.Log.Warn("uidplugin: the database numbers these columns: a row that is inserted without the plugin,"+
		" for example by an old process, gets a number"+numbers+"."+advice, args...)
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

// noLonger reports whether there was a warning that the database numbers a column. The next one is the first again.
func (c *catalog) noLonger(column sqldb.Column) (before bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, kind := range [...]string{"numbers", "among"} {
		key := [3]string{kind, column.Table, column.Name}
		before = before || c.warned[key]
		delete(c.warned, key)
	}
	return before
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
	const advice = ". Give the model to WithModels, or to the plugin's AutoMigrate, or tag the key autoIncrement:false, or" +
		" autoIncrement if the database shall number it"
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

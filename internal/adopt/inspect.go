package adopt

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/uidplugin/uidplugin/internal/catalog"
	"github.com/uidplugin/uidplugin/internal/inspect"
	"github.com/uidplugin/uidplugin/internal/model"
	"gorm.io/gorm"
	"gorm.io/gorm/schema"
)

// A columnName names a column of a table, in lower case because servers may change the case of names.
type columnName struct{ table, column string }

func columnNamed(table, column string) columnName {
	return columnName{strings.ToLower(table), strings.ToLower(column)}
}

// Inspect warns if the database numbers columns of existing tables. It checks the models and their associations,
// because models do not show such columns and AutoMigrate does not change keys. If the database uses the number after
// the largest, the column's ids get gaps. columns are those of the tables.
func (n *Numbering) Inspect(ctx context.Context, db *gorm.DB, models []any, columns []inspect.Column) {
	fields := map[columnName]*catalog.Field{}
	n.catalog.Visit(db, models, func(table string, s *schema.Schema) {
		for _, f := range n.catalog.Plan(s).Fields {
			fields[columnNamed(table, f.DBName)] = f
		}
	})
	n.inspectColumns(ctx, fields, columns)
}

// inspectColumns inspects the columns of fields, and the positions of their sequences.
func (n *Numbering) inspectColumns(ctx context.Context, fields map[columnName]*catalog.Field, columns []inspect.Column) {
	var numbered, among, always []inspect.Column
	for _, column := range columns {
		f, ok := fields[columnNamed(column.Table, column.Name)]
		switch {
		case !ok:
		case column.Always:
			always = append(always, column)
		case column.Auto && !f.Source.Foreign && n.countsAmongIDs(ctx, column):
			n.leaveGaps(f.Source)
			among = append(among, column)
		case column.Auto:
			numbered = append(numbered, column)
		}
	}
	wanted := func(column inspect.Column) bool {
		return model.WantsAutoIncrement(fields[columnNamed(column.Table, column.Name)].Field.Field)
	}
	n.warnAlways(always)
	n.warnNumbered("numbers", slices.DeleteFunc(numbered, wanted), n.numbersOf())
	kind, numbers := "numbers", n.numbersOf()
	if n.db.Dialector.Name() == "postgres" {
		kind, numbers = "among", " from the sequence of the column, which stands among the ids, because a program has set it to the largest key;"+
			" then a create may fail with a duplicate key"
	}
	if gap := Gap(n.Layout); gap > 1 {
		numbers += ". Until this process starts again, the plugin leaves the " + strconv.FormatInt(gap-1, 10) + " numbers after each id to such rows"
	}
	n.warnNumbered(kind, slices.DeleteFunc(among, wanted), numbers)
}

// countsAmongIDs reports whether the database's next number for a column may be an id. On MySQL it follows the largest
// id. A sequence of PostgreSQL counts on its own unless a program sets it, for example to the largest key. We treat
// anything above a thousandth of the present ids as set, because sequences do not count that far.
func (n *Numbering) countsAmongIDs(ctx context.Context, column inspect.Column) bool {
	if n.db.Dialector.Name() != "postgres" {
		return true
	}
	last, err := inspect.LastNumber(ctx, n.sql, n.quote(column.Table), column.Name)
	if err != nil {
		n.Log.Warn("uidplugin: the sequence of this column could not be read; gaps stay disabled, even if it was set to an id",
			"table", column.Table, "column", column.Name, "error", err)
	}
	return last > n.Layout.TickAt(n.Now())<<(n.Layout.WorkerBits+n.Layout.SequenceBits)/1000
}

// warnNumbered warns once of each column that the database numbers.
func (n *Numbering) warnNumbered(kind string, columns []inspect.Column, numbers string) {
	columns = slices.DeleteFunc(columns, func(column inspect.Column) bool { return !n.once(kind, column.Table, column.Name) })
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
	if statement := n.plainStatement(columns[0]); len(columns) == 1 && statement != "" {
		advice = " When all that insert use the plugin, run the statement; docs/from-auto-increment.md has the one for a key that foreign keys refer to."
		args = append(args, "statement", statement)
	}
	n.Log.Warn("uidplugin: the database numbers these columns: a row that is inserted without the plugin,"+
		" for example by an old process, gets a number"+numbers+"."+advice, args...)
}

// warnAlways warns once of each column that refuses ids because the database always numbers it.
func (n *Numbering) warnAlways(columns []inspect.Column) {
	for _, column := range columns {
		if !n.once("always", column.Table, column.Name) {
			continue
		}
		table, name := n.quote(column.Table), n.quote(column.Name)
		n.Log.Error("uidplugin: this column is GENERATED ALWAYS AS IDENTITY, so the database refuses the plugin's ids: creates fail; run the statement",
			"table", column.Table, "column", column.Name,
			"statement", "ALTER TABLE "+table+" ALTER COLUMN "+name+" SET GENERATED BY DEFAULT")
	}
}

// plainStatement returns a statement that stops the database from numbering a column, or "" on SQLite.
func (n *Numbering) plainStatement(column inspect.Column) string {
	return inspect.PlainStatement(n.db.Dialector.Name(), n.quote(column.Table), n.quote(column.Name), column.Type, column.Identity)
}

// numbersOf describes the number that the database gives to a row without a key.
func (n *Numbering) numbersOf() string {
	switch n.db.Dialector.Name() {
	case "mysql", "sqlite":
		return " from the database: the largest id plus one, which the plugin may be about to use;" +
			" then a create fails with a duplicate key"
	}
	return " from the sequence of the column, which counts independently of the plugin's ids:" +
		" no create fails, but such a row cannot be located"
}

// warnAutoIncrement warns of a model whose key GORM treats as AUTO_INCREMENT.
func (n *Numbering) warnAutoIncrement(s *schema.Schema) {
	change := ""
	switch n.db.Dialector.Name() {
	case "mysql":
		change = "; change a table that is there by ALTER TABLE ... MODIFY ... BIGINT NOT NULL"
	case "postgres":
		change = "; change a table that is there by ALTER TABLE ... ALTER COLUMN ... DROP DEFAULT"
	case "sqlite":
		change = "; but SQLite gives every integer primary key a number, so let nothing else insert"
	}
	key := s.PrioritizedPrimaryField
	const advice = ". List the model in WithModels, or migrate it with the plugin's AutoMigrate, or tag the key autoIncrement:false, or" +
		" autoIncrement if the database should number it"
	n.Log.Warn("uidplugin: GORM takes the key of this model for AUTO_INCREMENT: a row that is inserted without the plugin,"+
		" for example by raw SQL, gets a number"+n.numbersOf()+advice+change+".",
		"table", s.Table, "model", s.Name, "field", key.Name)
}

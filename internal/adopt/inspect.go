package adopt

import (
	"context"
	"database/sql"
	"slices"
	"strconv"
	"strings"

	"github.com/uidplugin/uidplugin/internal/catalog"
	"github.com/uidplugin/uidplugin/internal/inspect"
	"github.com/uidplugin/uidplugin/internal/model"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
	"gorm.io/gorm/schema"
)

// A columnName names a column of a table, in lower case because servers may change the case of names.
type columnName struct{ table, column string }

func columnNamed(table, column string) columnName {
	return columnName{strings.ToLower(table), strings.ToLower(column)}
}

// Inspect looks for columns that the database numbers, because models do not show this. The argument columns has
// the columns of the models and of their associations.
func (n *Numbering) Inspect(ctx context.Context, db *gorm.DB, models []any, columns []inspect.Column) {
	fields := map[columnName]*catalog.Field{}
	n.catalog.Visit(db, models, func(table string, s *schema.Schema) {
		for _, f := range n.catalog.Plan(s).Fields {
			fields[columnNamed(table, f.DBName)] = f
		}
	})
	var numbered []string
	for _, column := range columns {
		f, ok := fields[columnNamed(column.Table, column.Name)]
		if !ok {
			continue
		}
		if column.Always {
			n.reportAlways(column)
			continue
		}
		if !column.Auto {
			continue
		}
		among := !f.Source.Foreign && n.countsAmongIDs(ctx, column)
		if among {
			n.leaveGaps(f.Source)
		}
		if model.WantsAutoIncrement(f.Field.Field) {
			continue
		}
		numbered = append(numbered, column.Table+"."+column.Name)
		if among {
			n.warnNumbered(ctx, db, column)
		}
	}
	n.tell(numbered)
}

// countsAmongIDs reports whether the database's next number for a column may be an id. On MySQL and MariaDB this
// number follows the largest key. A sequence of PostgreSQL counts on its own unless a program sets it. If it has
// passed a thousandth of a present id, we assume that it was set, because no sequence counts that far.
func (n *Numbering) countsAmongIDs(ctx context.Context, column inspect.Column) bool {
	if n.db.Dialector.Name() != "postgres" {
		return true
	}
	last, err := inspect.LastNumber(ctx, n.sql, n.quote(column.Table), column.Name)
	if err != nil {
		n.Log.Warn("uidplugin: the sequence of this column could not be read; ids get no gaps, even if it was set to an id",
			"table", column.Table, "column", column.Name, "error", err)
	}
	return last > n.Layout.TickAt(n.Now())<<(n.Layout.WorkerBits+n.Layout.SequenceBits)/1000
}

// tell logs once that the database numbers keys. This does no harm if all programs that insert use the plugin.
func (n *Numbering) tell(columns []string) {
	const shown = 3
	if len(columns) == 0 || !n.once("told", "", "") {
		return
	}
	slices.Sort(columns)
	names := strings.Join(columns[:min(shown, len(columns))], ", ")
	if more := len(columns) - shown; more > 0 {
		names += " and " + strconv.Itoa(more) + " more"
	}
	n.Log.Info("uidplugin: the database numbers keys too; see docs/from-auto-increment.md", "columns", names)
}

// warnNumbered warns, once for each column, that the database gives rows numbers which lie among the column's ids.
// On PostgreSQL it does not look for such rows, because countsAmongIDs has looked at the sequence.
func (n *Numbering) warnNumbered(ctx context.Context, db *gorm.DB, column inspect.Column) {
	if n.db.Dialector.Name() != "postgres" {
		number, err := n.findNumber(ctx, db, column)
		if err != nil {
			n.Log.Warn("uidplugin: the newest keys of this table could not be read, so it is not known whether the database has numbered any",
				"table", column.Table, "error", err)
		}
		if number == 0 {
			return
		}
	}
	if !n.once("numbers", column.Table, column.Name) {
		return
	}
	args := []any{"column", column.Table + "." + column.Name}
	if statement := n.plainStatement(column); statement != "" {
		args = append(args, "statement", statement)
	}
	n.Log.Warn("uidplugin: the database numbers rows among the ids of this column, so a create can fail with a duplicate key;"+
		" when all programs that insert use the plugin, run the statement (docs/from-auto-increment.md)", args...)
}

// newestKeys is how many keys findNumber reads. They are next to each other in the index of the key.
const newestKeys = 100

// findNumber returns a number that the database has given to one of the newest rows of a table, or 0. Such a number
// has a worker id that does not exist. Or it has the worker id of another table, and the number just before it is
// also a key, with a different worker id.
func (n *Numbering) findNumber(ctx context.Context, db *gorm.DB, column inspect.Column) (number int64, err error) {
	keys := map[int64]bool{}
	var workers []int64
	name := n.quote(column.Name)
	err = n.sql.Query(ctx, func(rows *sql.Rows) error {
		var key int64
		err := rows.Scan(&key)
		if parts, failed := n.Layout.Decompose(key); failed == nil && parts.WorkerID > 0 {
			keys[key] = true
			workers = append(workers, parts.WorkerID)
		}
		return err
	}, "SELECT "+name+" FROM "+n.quote(column.Table)+" ORDER BY "+name+" DESC LIMIT "+strconv.Itoa(newestKeys))
	if err != nil || len(keys) == 0 {
		return 0, err
	}
	nodes, err := n.workers(db).Lookup(ctx, slices.Compact(slices.Sorted(slices.Values(workers)))...)
	if err != nil {
		return 0, err
	}
	for key := range keys {
		worker := key >> n.Layout.SequenceBits & n.Layout.MaxWorkerID()
		node := nodes[worker]
		switch {
		case node == nil:
			return key, nil
		case node.Table.Name == workernode.AllTables, strings.EqualFold(node.Table.Name, column.Table):
		case keys[key-1] && (key-1)>>n.Layout.SequenceBits != key>>n.Layout.SequenceBits:
			return key, nil
		}
	}
	return 0, nil
}

// reportAlways reports once a column that refuses ids because the database always numbers it.
func (n *Numbering) reportAlways(column inspect.Column) {
	if !n.once("always", column.Table, column.Name) {
		return
	}
	table, name := n.quote(column.Table), n.quote(column.Name)
	n.Log.Error("uidplugin: this column is GENERATED ALWAYS AS IDENTITY, so the database refuses the plugin's ids: creates fail; run the statement",
		"table", column.Table, "column", column.Name,
		"statement", "ALTER TABLE "+table+" ALTER COLUMN "+name+" SET GENERATED BY DEFAULT")
}

// plainStatement returns a statement that stops the database from numbering a column, or "" on SQLite.
func (n *Numbering) plainStatement(column inspect.Column) string {
	return column.PlainStatement(n.db.Dialector.Name(), n.quote(column.Table))
}

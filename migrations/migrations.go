// Package migrations creates and extends the tables of package workernode: WORKER_NODE, WORKER_SLOT, WORKER_SESSION and
// WORKER_REGISTRY. It only ever adds. Package segment creates its own table, leaf_alloc.
//
// # Who runs them
//
// By default db.Use calls [Up]. With the option WithoutMigration the plugin needs no right to create tables, and calls
// [Check]. Then call Up in a job that has the right, or run the statements with a migration tool.
//
// # The statements
//
// [Files] has them: mysql.sql, also for MariaDB and TiDB, postgres.sql, sqlite.sql, and mysql_uidgenerator.sql for a
// WORKER_NODE that UidGenerator created.
//
// # From a SQL prompt
//
// [CreateFunctions] creates functions and a view that say from SQL where an id came from: uid_time, uid_worker,
// uid_table and uid_origin. docs/sql.md describes them. Neither Up nor db.Use creates them.
package migrations

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// Files holds mysql.sql, postgres.sql and sqlite.sql, which create the tables,
// and mysql_uidgenerator.sql, which extends a table that UidGenerator made.
//
//go:embed *.sql
var Files embed.FS

// essential are the columns without which a table is another program's: of WORKER_NODE those
// of UidGenerator.
var essential = map[string][]string{
	workernode.NodeTable:     {"ID", "HOST_NAME", "PORT", "TYPE", "LAUNCH_DATE", "MODIFIED", "CREATED"},
	workernode.SlotTable:     {"ID", "FENCE", "VERSION", "HOLDER"},
	workernode.SessionTable:  {"SLOT", "START_TICK", "BEFORE_TICK"},
	workernode.RegistryTable: {"NAME", "LAYOUT", "NEXT_ID"},
}

// outdated are columns that only unreleased versions of uidplugin had. Their tables cannot be extended, because they do
// not say about worker ids what is needed.
var outdated = map[string]string{
	workernode.NodeTable:     "START_SECOND",
	workernode.RegistryTable: "FLOOR_SECOND",
}

// refuseOutdated returns an error if a table is one of an unreleased version.
func refuseOutdated(table string, have []string) error {
	column := outdated[table]
	if column == "" || len(missing([]string{column}, have)) > 0 {
		return nil
	}
	return fmt.Errorf("%w: it was created by an unreleased version of uidplugin (it has the column %s), and ids of that version cannot be continued:"+
		" start with a database of its own, or, if no row has such an id, drop %s and %s", workernode.ErrTable, column, workernode.NodeTable, workernode.RegistryTable)
}

// A table is what a CREATE TABLE statement of the files says.
type table struct {
	name    string
	create  string
	columns []string
	define  map[string]string // a column's definition, as ADD COLUMN takes it
	index   string            // a further CREATE INDEX, where CREATE TABLE cannot hold it
	key     string            // an index as ALTER TABLE ADD takes it, where it can
}

// Up creates the tables that are missing, and adds the columns that a table of
// UidGenerator's lacks. It changes nothing if there is nothing to add, and then
// needs no right but to read. Any number of processes may run it at once.
//
// Statements are sent on the pool of db, past GORM's callbacks; db must not be a transaction. Each
// may take a minute at most.
//
// It returns an error that wraps [workernode.ErrTable] if WORKER_NODE is a table
// of another kind.
func Up(ctx context.Context, db *gorm.DB) error {
	d, err := sqldb.Open(db, timeout)
	if err != nil {
		return fmt.Errorf("migrations: %w", err)
	}
	tables, err := parse(d.Dialect())
	if err != nil {
		return err
	}
	for _, t := range tables {
		if err := t.up(ctx, d); err != nil {
			return fmt.Errorf("migrations: %s: %w", t.name, err)
		}
	}
	return nil
}

// Check returns an error that wraps [workernode.ErrTable] if a table is missing
// or lacks a column. It changes nothing.
func Check(ctx context.Context, db *gorm.DB) error {
	d, err := sqldb.Open(db, timeout)
	if err != nil {
		return fmt.Errorf("migrations: %w", err)
	}
	tables, err := parse("sqlite") // the columns are the same in all dialects
	if err != nil {
		return err
	}
	for _, t := range tables {
		columns, err := d.Columns(ctx, t.name)
		have := namesOf(columns)
		if err != nil && sqldb.IsUnreachable(err) {
			return fmt.Errorf("migrations: %s: the database cannot be reached: %w", t.name, err)
		}
		if err != nil {
			return fmt.Errorf("migrations: %w: %s cannot be read: %w; migrations/%s.sql creates it; if it exists, "+
				"grant this user the rights on it (docs/operating.md)", workernode.ErrTable, t.name, err, fileOf(d))
		}
		if err := refuseOutdated(t.name, have); err != nil {
			return fmt.Errorf("migrations: %s: %w", t.name, err)
		}
		if lacks := missing(t.columns, have); len(lacks) > 0 {
			file := fileOf(d)
			if file == "mysql" && t.name == workernode.NodeTable {
				file = "mysql_uidgenerator"
			}
			return fmt.Errorf("migrations: %w: %s lacks the columns %s; migrations/%s.sql has them",
				workernode.ErrTable, t.name, strings.Join(lacks, ", "), file)
		}
		if err := t.refuseNarrow(d, columns); err != nil {
			return fmt.Errorf("migrations: %s: %w", t.name, err)
		}
	}
	return nil
}

// refuseNarrow returns an error if a column does not hold what the files define as BIGINT: MySQL without strict mode
// would store another number, such as an earlier FENCE. The column ID of UidGenerator's table may be narrower, because
// worker ids have few bits.
func (t *table) refuseNarrow(d *sqldb.DB, columns []sqldb.Column) error {
	for _, c := range columns {
		name := strings.ToUpper(c.Name)
		if strings.Contains(t.define[name], " BIGINT") && d.IsNarrow(c.Type) && (t.name != workernode.NodeTable || name != "ID") {
			return fmt.Errorf("%w: the column %s is of type %s, which is too narrow: make it BIGINT, as migrations/%s.sql has it",
				workernode.ErrTable, c.Name, c.Type, fileOf(d))
		}
	}
	return nil
}

func namesOf(columns []sqldb.Column) (names []string) {
	for _, c := range columns {
		names = append(names, c.Name)
	}
	return names
}

// fileOf returns the name of the file for a dialect; for a dialect without a file, the plainest.
func fileOf(db *sqldb.DB) string {
	if _, err := Files.Open(db.Dialect() + ".sql"); err != nil {
		return "sqlite"
	}
	return db.Dialect()
}

// timeout bounds a statement whose context does not end before.
const timeout = time.Minute

// attempts bounds how often a failed change is looked at again. Processes that migrate at once get in each other's way,
// but each time one of them makes progress.
const attempts = 10

func (t *table) up(ctx context.Context, db *sqldb.DB) error {
	var failed error
	for range attempts {
		columns, err := db.Columns(ctx, t.name)
		have := namesOf(columns)
		switch {
		case err != nil && sqldb.IsUnreachable(err):
			return fmt.Errorf("the database cannot be reached: %w", err)
		case err != nil && failed != nil:
			return fmt.Errorf("%w: the table cannot be read (%w), and cannot be created (%w); "+
				"if the user lacks the right to, create it manually with migrations/%s.sql", workernode.ErrTable, err, failed, db.Dialect())
		case err != nil:
			if failed = t.run(ctx, db, t.create, t.index); failed == nil {
				return nil
			}
			continue
		}
		if lacks := missing(essential[t.name], have); len(lacks) > 0 {
			return fmt.Errorf("%w: there is a table of this name without the columns %s (it has %s), "+
				"so it is not uidplugin's: rename it, or give uidplugin a database of its own",
				workernode.ErrTable, strings.Join(lacks, ", "), strings.Join(have, ", "))
		}
		if err := errors.Join(refuseOutdated(t.name, have), t.refuseNarrow(db, columns)); err != nil {
			return err
		}
		lacks := missing(t.columns, have)
		if len(lacks) == 0 {
			if failed = t.ensureIndex(ctx, db); failed == nil {
				return nil
			}
			continue // PostgreSQL refuses an index that another process is creating
		}
		if err := t.extend(ctx, db, lacks); err != nil {
			failed = fmt.Errorf("%w: it lacks the columns %s, and they cannot be added: %w",
				workernode.ErrTable, strings.Join(lacks, ", "), err)
			continue // perhaps another process has just added them
		}
	}
	return failed
}

// ensureIndex creates the index that a CREATE TABLE cannot hold, if an earlier attempt failed before that.
func (t *table) ensureIndex(ctx context.Context, db *sqldb.DB) error {
	if t.index == "" {
		return nil
	}
	has, err := db.HasIndex(ctx, strings.Trim(quoted(t.index), "`\""))
	if err != nil || has {
		return err
	}
	return t.run(ctx, db, t.index)
}

// extend adds columns, in one statement where the dialect can: SQLite cannot.
func (t *table) extend(ctx context.Context, db *sqldb.DB, columns []string) error {
	var adds []string
	for _, c := range columns {
		adds = append(adds, "ADD COLUMN "+t.define[c])
	}
	if t.key != "" && slices.Contains(columns, "SLOT") {
		adds = append(adds, "ADD "+t.key)
	}
	name := quoted(t.create)
	if db.Dialect() != "sqlite" {
		return t.run(ctx, db, "ALTER TABLE "+name+" "+strings.Join(adds, ", "), t.index)
	}
	for _, add := range adds {
		if err := db.Quiet().ExecRaw(ctx, "ALTER TABLE "+name+" "+add); err != nil {
			return err
		}
	}
	return t.run(ctx, db, t.index)
}

// run executes statements. Another process may execute them at the same moment.
func (t *table) run(ctx context.Context, db *sqldb.DB, statements ...string) error {
	for _, s := range statements {
		if s == "" {
			continue
		}
		if err := db.Quiet().ExecRaw(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// missing returns the names of want that are not in have. It ignores the case of column names, as MySQL and SQLite do.
// PostgreSQL distinguishes it, but no table has both.
func missing(want, have []string) (lacks []string) {
	for _, w := range want {
		if !slices.ContainsFunc(have, func(h string) bool { return strings.EqualFold(h, w) }) {
			lacks = append(lacks, w)
		}
	}
	return lacks
}

var (
	columnLine = regexp.MustCompile("^  [`\"]([A-Z_]+)[`\"] (.*?),?$")
	name       = regexp.MustCompile("[`\"][A-Z_]+[`\"]")
)

// quoted returns the first name in a statement, with its quotes.
func quoted(statement string) string { return name.FindString(statement) }

// parse reads the file of a dialect: statements end with ";" at the end of a
// line, and a CREATE TABLE has one column a line.
func parse(dialect string) ([]*table, error) {
	text, err := Files.ReadFile(dialect + ".sql")
	if err != nil {
		return nil, fmt.Errorf("migrations: no file for the dialect %q: create the tables manually, after sqlite.sql, and use WithoutMigration: %w",
			dialect, errors.ErrUnsupported)
	}
	var tables []*table
	for statement := range strings.SplitSeq(comment.ReplaceAllString(string(text), ""), ";\n") {
		statement = strings.TrimSpace(statement)
		switch {
		case strings.HasPrefix(statement, "CREATE INDEX"):
			tables[len(tables)-1].index = statement
		case strings.HasPrefix(statement, "CREATE TABLE"):
			t := &table{name: strings.Trim(quoted(statement), "`\""), create: statement, define: map[string]string{}}
			for line := range strings.SplitSeq(statement, "\n") {
				if m := columnLine.FindStringSubmatch(line); m != nil {
					t.columns = append(t.columns, m[1])
					t.define[m[1]] = strings.TrimSuffix(strings.TrimSpace(line), ",")
				} else if strings.HasPrefix(line, "  KEY ") {
					t.key = strings.TrimSpace(line)
				}
			}
			tables = append(tables, t)
		}
	}
	return tables, nil
}

var comment = regexp.MustCompile(`(?m)^--.*\n`)

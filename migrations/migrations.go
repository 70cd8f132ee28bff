// Package migrations creates and extends the tables of the lease protocol: WORKER_NODE, WORKER_SLOT, WORKER_SESSION and
// WORKER_REGISTRY. It never changes or drops a column. Package segment creates its own table, leaf_alloc.
//
// # Who runs them
//
// By default db.Use calls [Up]. With the option WithoutMigration it calls [Check] instead, so the plugin does not need
// the right to create tables. In that case, call Up in a job that has this right, or run the statements with a
// migration tool.
//
// # From a SQL prompt
//
// [CreateFunctions] creates functions and a view that decode and locate ids in SQL: uid_time, uid_worker, uid_table and
// uid_origin. docs/sql.md describes them. Neither Up nor db.Use creates them.
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

// Files contains mysql.sql (also for MariaDB), postgres.sql and sqlite.sql, which create the tables, and
// mysql_uidgenerator.sql, which extends UidGenerator's WORKER_NODE.
//
//go:embed *.sql
var Files embed.FS

// essential lists columns that mark a table as ours; for WORKER_NODE, the columns of UidGenerator.
var essential = map[string][]string{
	workernode.NodeTable:     {"ID", "HOST_NAME", "PORT", "TYPE", "LAUNCH_DATE", "MODIFIED", "CREATED"},
	workernode.SlotTable:     {"ID", "FENCE", "VERSION", "HOLDER"},
	workernode.SessionTable:  {"SLOT", "START_TICK", "BEFORE_TICK"},
	workernode.RegistryTable: {"NAME", "LAYOUT", "NEXT_ID"},
}

// outdated lists columns that only unreleased versions of uidplugin had. Tables with these columns cannot be extended,
// because they lack facts about worker ids.
var outdated = map[string]string{
	workernode.NodeTable:     "START_SECOND",
	workernode.RegistryTable: "FLOOR_SECOND",
}

func refuseOutdated(table string, columns []string) error {
	column := outdated[table]
	if column == "" || len(missing([]string{column}, columns)) > 0 {
		return nil
	}
	return fmt.Errorf("%w: it has the column %s, so it was created by an unreleased version of uidplugin:"+
		" use another database for uidplugin, or, if no row has an id of that version, drop %s and %s", workernode.ErrTable, column, workernode.NodeTable, workernode.RegistryTable)
}

// A table is a parsed CREATE TABLE statement.
type table struct {
	name    string
	create  string
	columns []string
	define  map[string]string // definitions of columns, as in ADD COLUMN
	index   string            // a CREATE INDEX statement, for dialects whose CREATE TABLE cannot contain the index
	key     string            // the index as in ALTER TABLE ADD, for the other dialects

	before func(context.Context) error // called before each change
}

// An Option says where the tables are. Without options, they are in the database of the connection. On PostgreSQL they
// are in the schema in which the search path finds WORKER_REGISTRY, or else in the current schema.
type Option func(*sqldb.Place)

// In names the schema of the tables on PostgreSQL, as the option WithSchema does. Without In, the functions of this
// package look in the schema described at [Option], and fail if another schema has a WORKER_REGISTRY, too. On other
// databases In has no effect.
func In(schema string) Option { return func(p *sqldb.Place) { p.Schema = schema } }

func open(ctx context.Context, db *gorm.DB, options []Option) (*sqldb.DB, sqldb.Place, error) {
	place := sqldb.Place{Option: "migrations.In"}
	for _, o := range options {
		o(&place)
	}
	d, err := sqldb.Open(db, timeout)
	if err == nil {
		d, err = workernode.Locate(ctx, d, place)
	}
	if err == nil {
		err = d.RefuseMode(ctx)
	}
	if err != nil {
		err = fmt.Errorf("migrations: %w", err)
	}
	return d, place, err
}

// Up creates missing tables, and adds missing columns to tables of UidGenerator and of earlier releases. Older programs
// of the same major version can continue to run. If there is nothing to add, Up only reads. Any number of processes may
// run it at once.
//
// Statements use the pool of db and bypass GORM's callbacks; db must not be a transaction. Each statement may take a
// minute at most.
//
// The error wraps uidplugin.ErrTable if a table cannot be used or created, for example because it belongs to
// another program, or because a later major version has upgraded it.
func Up(ctx context.Context, db *gorm.DB, options ...Option) error {
	d, place, err := open(ctx, db, options)
	if err != nil {
		return err
	}
	tables, err := parse(d.Dialect())
	if err != nil {
		return err
	}
	before, err := versionOf(ctx, d)
	if err != nil {
		return err
	}
	var refused error
	asked := place.Before == nil
	may := func(ctx context.Context) error {
		if !asked {
			refused, asked = place.Before(ctx), true
		}
		return refused
	}
	for _, t := range tables {
		t.before = may
		if err := t.up(ctx, d); err != nil {
			return fmt.Errorf("migrations: %s: %w", t.name, err)
		}
	}
	return raise(ctx, d, before)
}

// Check returns an error that wraps uidplugin.ErrTable if a table or a column is missing. The error has the statements
// that upgrade older tables. Check only reads.
func Check(ctx context.Context, db *gorm.DB, options ...Option) error {
	d, _, err := open(ctx, db, options)
	if err != nil {
		return err
	}
	tables, err := parse(fileOf(d))
	if err != nil {
		return err
	}
	version, err := versionOf(ctx, d)
	if err != nil {
		return err
	}
	var lack, statements []string
	for _, t := range tables {
		lacks, failed := t.check(ctx, d)
		if failed != nil {
			err = failed
			break
		}
		if len(lacks) > 0 {
			lack = append(lack, fmt.Sprintf("%s lacks the columns %s", t.name, strings.Join(lacks, ", ")))
			statements = append(statements, t.extension(d, lacks)...)
		}
	}
	if version.old() {
		lack = append(lack, fmt.Sprintf("SCHEMA_VERSION in %s is %d, not %d", workernode.RegistryTable, version.number, workernode.SchemaVersion))
	}
	if len(lack) == 0 {
		return err
	}
	return errors.Join(fmt.Errorf("migrations: %w: %s; run these statements (older programs may continue to run):\n%s;",
		workernode.ErrTable, strings.Join(lack, "; "), strings.Join(append(statements, d.Translate(raiseVersion)), ";\n")), err)
}

func (t *table) check(ctx context.Context, d *sqldb.DB) (lacks []string, err error) {
	columns, err := d.Columns(ctx, t.name)
	have := namesOf(columns)
	if err != nil && sqldb.IsUnreachable(err) {
		return nil, fmt.Errorf("migrations: %s: the database cannot be reached: %w", t.name, err)
	}
	if err != nil {
		return nil, fmt.Errorf("migrations: %w: %s cannot be read: %w; migrations/%s.sql creates it; if it exists, "+
			"grant this user the rights on it (docs/operating.md)", workernode.ErrTable, t.name, err, fileOf(d))
	}
	if err := errors.Join(refuseOutdated(t.name, have), t.refuseNarrow(d, columns)); err != nil {
		return nil, fmt.Errorf("migrations: %s: %w", t.name, err)
	}
	return missing(t.columns, have), nil
}

// refuseNarrow returns an error if a column should be BIGINT but is narrower, because MySQL without strict mode would
// store a smaller number, such as a smaller FENCE. The column ID of WORKER_NODE may be narrower, because worker ids
// have few bits.
func (t *table) refuseNarrow(d *sqldb.DB, columns []sqldb.Column) error {
	for _, c := range columns {
		name := strings.ToUpper(c.Name)
		if strings.Contains(t.define[name], " BIGINT") && d.IsNarrow(c.Type) && (t.name != workernode.NodeTable || name != "ID") {
			return fmt.Errorf("%w: the column %s is of type %s, which is too narrow: make it BIGINT, as in migrations/%s.sql",
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

// fileOf returns the name of a dialect's SQL file, without .sql. Unknown dialects get the simplest file.
func fileOf(db *sqldb.DB) string {
	if _, err := Files.Open(db.Dialect() + ".sql"); err != nil {
		return "sqlite"
	}
	return db.Dialect()
}

// timeout limits a statement whose context does not end earlier.
const timeout = time.Minute

// A refusal is an error of [table.before].
type refusal struct{ error }

// attempts limits how often a failed change is retried. Processes that migrate at once make each other fail, but each
// time one of them makes progress.
const attempts = 10

func (t *table) up(ctx context.Context, db *sqldb.DB) error {
	var failed error
	for range attempts {
		if refused := (refusal{}); errors.As(failed, &refused) {
			return refused.error
		}
		columns, err := db.Columns(ctx, t.name)
		have := namesOf(columns)
		switch {
		case err != nil && sqldb.IsUnreachable(err):
			return fmt.Errorf("the database cannot be reached: %w", err)
		case err != nil && failed != nil:
			return fmt.Errorf("%w: the table can be neither read (%w) nor created (%w); "+
				"if the user lacks the right, create it manually with migrations/%s.sql", workernode.ErrTable, err, failed, db.Dialect())
		case err != nil:
			create := qualified(db, t.create)
			if t.name == workernode.RegistryTable {
				create = db.CreateRegistry(create)
			}
			if failed = t.run(ctx, db, create, qualified(db, t.index)); failed == nil {
				return nil
			}
			continue
		}
		if lacks := missing(essential[t.name], have); len(lacks) > 0 {
			return fmt.Errorf("%w: a table of this name exists without the columns %s (it has %s), "+
				"so it does not belong to uidplugin: rename it, or use another database for uidplugin",
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
		if err := t.run(ctx, db, t.extension(db, lacks)...); err != nil {
			failed = fmt.Errorf("%w: the columns %s are missing and could not be added: %w; if the user lacks the right, "+
				"run these statements as another user:\n%s;", workernode.ErrTable, strings.Join(lacks, ", "), err,
				strings.Join(t.extension(db, lacks), ";\n"))
			continue // another process may have just added them
		}
	}
	return failed
}

// ensureIndex creates the separate index if an earlier attempt failed before creating it.
func (t *table) ensureIndex(ctx context.Context, db *sqldb.DB) error {
	if t.index == "" {
		return nil
	}
	has, err := db.HasIndex(ctx, strings.Trim(quoted(t.index), "`\""))
	if err != nil || has {
		return err
	}
	return t.run(ctx, db, qualified(db, t.index))
}

// extension returns the statements that add columns and the index. SQLite needs a statement for each column.
func (t *table) extension(db *sqldb.DB, columns []string) (statements []string) {
	var adds []string
	for _, c := range columns {
		adds = append(adds, "ADD COLUMN "+t.define[c])
	}
	if t.key != "" && slices.Contains(columns, "SLOT") {
		adds = append(adds, "ADD "+t.key)
	}
	if fileOf(db) != "sqlite" {
		adds = []string{strings.Join(adds, ", ")}
	}
	for _, add := range adds {
		statements = append(statements, qualified(db, "ALTER TABLE "+quoted(t.create)+" "+add))
	}
	if t.index != "" {
		statements = append(statements, qualified(db, t.index))
	}
	return statements
}

// qualified adds the schema to the tables in a statement. SQLite's CREATE INDEX allows it only before the index.
func qualified(db *sqldb.DB, statement string) string {
	const index = "CREATE INDEX IF NOT EXISTS "
	if rest, ok := strings.CutPrefix(statement, index); ok && db.Dialect() == "sqlite" && db.Schema() != "" {
		return index + db.Quoted(sqldb.Name{Schema: db.Schema(), Table: strings.Trim(quoted(rest), "`\"")}) + rest[len(quoted(rest)):]
	}
	return name.ReplaceAllStringFunc(statement, func(n string) string {
		if _, ok := essential[strings.Trim(n, "`\"")]; !ok || db.Schema() == "" {
			return n
		}
		return db.Quoted(sqldb.Name{Schema: db.Schema(), Table: strings.Trim(n, "`\"")})
	})
}

func (t *table) run(ctx context.Context, db *sqldb.DB, statements ...string) error {
	if err := t.before(ctx); err != nil {
		return refusal{err}
	}
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

// missing returns the names in required that are not in present. It ignores case, as MySQL and SQLite do. PostgreSQL
// does not, but no table has names that differ only in case.
func missing(required, present []string) (lacks []string) {
	for _, w := range required {
		if !slices.ContainsFunc(present, func(h string) bool { return strings.EqualFold(h, w) }) {
			lacks = append(lacks, w)
		}
	}
	return lacks
}

var (
	columnLine = regexp.MustCompile("^  [`\"]([A-Z_]+)[`\"] (.*?),?$")
	name       = regexp.MustCompile("[`\"][A-Z_]+[`\"]")
)

// quoted returns the first quoted name of a statement.
func quoted(statement string) string { return name.FindString(statement) }

// parse parses the file of a dialect. Each statement ends with ";" at the end of a line, and CREATE TABLE has one
// column per line.
func parse(dialect string) ([]*table, error) {
	text, err := Files.ReadFile(dialect + ".sql")
	if err != nil {
		return nil, fmt.Errorf("migrations: no file for the dialect %q: create the tables manually, modelled on sqlite.sql, and use WithoutMigration: %w",
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

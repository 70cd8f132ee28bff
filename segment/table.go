package segment

import (
	"cmp"
	"context"
	"database/sql"
	"embed"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/workernode"
)

// Files contains mysql.sql, postgres.sql and sqlite.sql, which create the table under its default name.
//
//go:embed *.sql
var Files embed.FS

// DefaultTable is the default of Config.Table: Leaf's name in lower case. On Linux, MySQL distinguishes it from
// LEAF_ALLOC.
const DefaultTable = "leaf_alloc"

// retryLimit limits how long transient errors and lost races are retried before the error is returned.
const retryLimit = 10 * time.Second

// A table sends the statements for one tag. Each is a transaction of its own.
//
// Column names are unquoted: they are not reserved words, and on PostgreSQL the table has them in lower case.
type table struct {
	db           *sqldb.DB
	given        string // as configured
	schema, name string // schema may be ""
	tag          string
}

type row struct {
	maxID, step int64
}

var tableName = regexp.MustCompile(`^(?:([A-Za-z_][A-Za-z0-9_$]{0,63})\.)?([A-Za-z_][A-Za-z0-9_$]{0,63})$`)

// newTable returns nil if the name is invalid.
func newTable(db *sqldb.DB, name, tag string) *table {
	m := tableName.FindStringSubmatch(name)
	if m == nil {
		return nil
	}
	return &table{db: db, given: name, schema: m[1], name: m[2], tag: tag}
}

// locate finds the schema of the table. All statements then name the schema, because the application may change the
// current schema of connections in the pool.
func (t *table) locate(ctx context.Context, schema string) (err error) {
	if t.schema = cmp.Or(t.schema, schema); t.schema != "" {
		return nil
	}
	exists := false
	if t.schema, exists, err = t.db.SchemaOf(ctx, t.name); err == nil && !exists && t.db.Dialect() == "postgres" {
		err = t.refuseSecond(ctx)
	}
	if err != nil {
		err = fmt.Errorf("segment: %w", err)
	}
	return err
}

// refuseSecond returns an error if another schema of the database has a table of this name, because processes with
// other search paths may use that table, and both tables would count the same numbers.
func (t *table) refuseSecond(ctx context.Context) error {
	other := "" // a schema other than t.schema, because another process may have just created the table in t.schema
	err := t.db.Query(ctx, func(rows *sql.Rows) error { return rows.Scan(&other) },
		`SELECT nspname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = relnamespace`+
			` JOIN pg_catalog.pg_attribute a ON attrelid = c.oid AND attname = 'biz_tag' AND NOT attisdropped`+
			` WHERE relname = ? AND relkind IN ('r', 'p', 'v', 'f') AND nspname !~ '^pg_' AND nspname <> ? ORDER BY nspname LIMIT 1`, t.name, t.schema)
	switch {
	case err != nil:
		return fmt.Errorf("look for %s in other schemas: %w", t.name, err)
	case other != "":
		return fmt.Errorf("%w: the schema %q has no %s, but %q has one, and two would give out the same numbers:"+
			" set segment.Config{Schema: %q}, or the schema of the table to use", workernode.ErrTable, t.schema, t.name, other, other)
	}
	return nil
}

func (t *table) quoted() string { return t.db.Quoted(sqldb.Name{Schema: t.schema, Table: t.name}) }

// prepare creates the table if it does not exist. With an unknown dialect it does nothing, so the table must exist.
func (t *table) prepare(ctx context.Context) error {
	for try := 0; ; try++ {
		has, err := t.exists(ctx)
		if err != nil && !sqldb.IsTransient(err) {
			return fmt.Errorf("segment: look for the table %s: %w", t, err)
		}
		if err == nil {
			if has {
				return nil
			}
			if err = t.create(ctx); err == nil {
				return nil
			}
		}
		// Processes that create the table at the same time make each other fail, so try again.
		if try == 10 || pause(ctx, try) != nil {
			return fmt.Errorf("segment: %w: the table %s does not exist and cannot be created (if the user lacks the right, create it manually with segment/%s.sql): %w",
				workernode.ErrTable, t, t.db.Dialect(), err)
		}
	}
}

// exists queries the catalogue, because GORM would log the failure of a query of a missing table.
func (t *table) exists(ctx context.Context) (ok bool, err error) {
	query, args := "", []any{t.name}
	switch t.db.Dialect() {
	case "mysql":
		query = `SELECT 1 FROM information_schema.tables WHERE table_name = ? AND table_schema = `
		if t.schema == "" {
			query += `DATABASE()`
		} else {
			query, args = query+`?`, append(args, t.schema)
		}
	case "postgres":
		query, args = `SELECT 1 WHERE to_regclass(?) IS NOT NULL`, []any{t.quoted()}
	case "sqlite":
		master := `sqlite_master`
		if t.schema != "" {
			master = sqldb.QuotePart("sqlite", t.schema) + ".sqlite_master"
		}
		query = `SELECT 1 FROM ` + master + ` WHERE name = ? COLLATE NOCASE`
	default:
		return true, nil
	}
	err = t.db.Query(ctx, func(*sql.Rows) error {
		ok = true
		return nil
	}, query, args...)
	return ok, err
}

func (t *table) create(ctx context.Context) error {
	text, err := Files.ReadFile(t.db.Dialect() + ".sql")
	if err != nil {
		return err
	}
	create := comment.ReplaceAllString(string(text), "")
	return t.db.Quiet().ExecRaw(ctx, named.ReplaceAllLiteralString(create, t.quoted()))
}

var (
	comment = regexp.MustCompile(`(?m)^--.*\n`)
	named   = regexp.MustCompile("[`\"]" + DefaultTable + "[`\"]")
)

// join inserts the row of the tag if it is missing; otherwise it returns the existing row. It refuses a new tag unless
// r.maxID is above used, the largest number of the column.
func (t *table) join(ctx context.Context, r row, used int64, description string) (existing row, inserted bool, err error) {
	var refused error // error of the last insert
	for try, begin := 0, time.Now(); ; try++ {
		existing, ok, err := t.read(ctx, "")
		switch {
		case err == nil && used >= r.maxID && (!ok || existing.maxID <= 1):
			return existing, false, t.isNew(ctx, ok, used, r.step)
		case ok:
			return existing, false, nil
		case err == nil && (refused == nil || sqldb.IsTransient(refused)):
			if refused = t.insert(ctx, r, description); refused == nil {
				return r, true, nil
			}
			err = refused // another process may have just inserted it
		case err == nil:
			return r, false, refused
		case !sqldb.IsTransient(err):
			return r, false, err
		}
		if time.Since(begin) > retryLimit || pause(ctx, try) != nil {
			return r, false, err
		}
	}
}

// isNew returns the error for a new tag whose column already has numbers; used is the largest.
func (t *table) isNew(ctx context.Context, exists bool, used, step int64) error {
	statement := fmt.Sprintf("INSERT INTO %s (biz_tag, max_id, step) VALUES (%s, %d, %d)", t.quoted(), t.literal(), used+1, step)
	if exists {
		statement = t.lift(used)
	}
	return fmt.Errorf("%w: the tag %q of %s is new, but another program has given the column numbers up to %d."+
		" If it is Leaf, use its tag and table (docs/from-leaf.md; this one is in %s). Otherwise stop it, then set Start, or run %s",
		ErrRow, t.tag, t, used, t.database(ctx), statement)
}

// isBehind returns the error for a row whose max_id is not above used, the largest number of its column.
func (t *table) isBehind(ctx context.Context, maxID, used int64) error {
	return fmt.Errorf("%w: the tag %q of %s, in %s, has max_id %d, but the column has numbers up to %d."+
		" Correct the tag (docs/from-leaf.md), or stop all programs that number the column, then run %s",
		ErrRow, t.tag, t, t.database(ctx), maxID, used, t.lift(used))
}

func (t *table) lift(used int64) string {
	return fmt.Sprintf("UPDATE %s SET max_id = %d WHERE biz_tag = %s", t.quoted(), used+1, t.literal())
}

func (t *table) literal() string { return "'" + strings.ReplaceAll(t.tag, "'", "''") + "'" }

// database names the table's database for an error.
func (t *table) database(ctx context.Context) string {
	name := ""
	query := map[string]string{"mysql": `SELECT DATABASE()`, "postgres": `SELECT current_database()`}[t.db.Dialect()]
	switch {
	case t.schema != "" && t.db.Dialect() == "mysql":
		name = t.schema
	case query == "" || t.db.Query(ctx, func(rows *sql.Rows) error { return rows.Scan(&name) }, query) != nil:
		return "the database of this connection"
	}
	return fmt.Sprintf("the database %q", name)
}

func (t *table) insert(ctx context.Context, r row, description string) error {
	_, err := t.db.Quiet().Exec(ctx, `INSERT INTO `+t.quoted()+` (biz_tag, max_id, step, description, update_time) VALUES (?, ?, ?, ?, CURRENT_TIMESTAMP)`,
		t.tag, r.maxID, r.step, sql.NullString{String: description, Valid: description != ""})
	if err != nil {
		return fmt.Errorf("segment: insert the tag %q into %s: %w", t.tag, t, err)
	}
	return nil
}

// read reads the row, and reports whether it exists. locking is appended to the statement.
func (t *table) read(ctx context.Context, locking string) (r row, ok bool, err error) {
	columns, into, autocommit, n := `max_id, step`, []any{&r.maxID, &r.step}, true, 0
	if t.db.Dialect() == "mysql" {
		columns, into = columns+`, @@autocommit`, append(into, &autocommit)
	}
	narrow := ""
	err = t.db.Query(ctx, func(rows *sql.Rows) error {
		n++
		if types, err := rows.ColumnTypes(); err == nil && t.db.IsNarrow(types[0].DatabaseTypeName()) {
			narrow = types[0].DatabaseTypeName()
		}
		return rows.Scan(into...)
	}, `SELECT `+columns+` FROM `+t.quoted()+` WHERE biz_tag = ?`+locking, t.tag)
	switch {
	case err != nil:
		return r, false, fmt.Errorf("segment: read the tag %q in %s: %w", t.tag, t, err)
	case !autocommit:
		// The process would use a range that is never committed. When the connection closes, another process would
		// fetch the same range.
		return r, false, fmt.Errorf("%w: autocommit is off on the connections of this pool, so no range would be kept: turn it on (in the DSN or the server's init_connect)", ErrConfig)
	case narrow != "":
		// MySQL without strict mode would store the largest number that fits, so ranges would overlap.
		return r, false, fmt.Errorf("%w: the column max_id of %s is of type %s, which is too narrow: make it BIGINT", workernode.ErrTable, t, narrow)
	case n > 1:
		return r, false, fmt.Errorf("%w: the tag %q is in %s %d times: make biz_tag its primary key", ErrRow, t.tag, t, n)
	}
	return r, n == 1, nil
}

// move changes max_id from present to next, and reports whether it did. It reads max_id back, because ranges would
// overlap if the database stored a smaller number. On MySQL and PostgreSQL the read locks the row, so it returns
// the newest version, and proxies ask the primary.
func (t *table) move(ctx context.Context, present, next int64) (bool, error) {
	changed, err := t.db.Exec(ctx, `UPDATE `+t.quoted()+` SET max_id = ?, update_time = CURRENT_TIMESTAMP WHERE biz_tag = ? AND max_id = ?`,
		next, t.tag, present)
	if err != nil {
		return false, fmt.Errorf("segment: fetch ids of the tag %q from %s: %w", t.tag, t, err)
	}
	if changed < 0 || changed > 1 {
		return false, fmt.Errorf("%w: the tag %q is in %s %d times: make biz_tag its primary key", ErrRow, t.tag, t, changed)
	}
	locking := ""
	if d := t.db.Dialect(); d == "mysql" || d == "postgres" {
		locking = ` FOR UPDATE`
	}
	switch now, ok, err := t.read(ctx, locking); {
	case err != nil || !ok:
		return false, err
	case changed == 1 && now.maxID < next, changed == 0 && now.maxID == present:
		return false, fmt.Errorf("%w: the database did not keep max_id = %d of the tag %q in %s: it stored %d and reported no error, so ids could come twice:"+
			" remove the trigger that changes it, or make max_id BIGINT", workernode.ErrTable, next, t.tag, t, now.maxID)
	}
	return changed == 1, nil
}

// hold returns a table whose statements share one connection, and a function that releases it.
func (t *table) hold() (*table, func()) {
	held, giveBack := t.db.Hold()
	other := *t
	other.db = held
	return &other, giveBack
}

// pause waits a random time before the next attempt, so that competing processes drift apart: up to 4 ms at first,
// later up to 64 ms.
func pause(ctx context.Context, try int) error {
	timer := time.NewTimer(rand.N(4 * time.Millisecond << min(try, 4)))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// String returns the configured name.
func (t *table) String() string { return t.given }

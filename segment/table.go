package segment

import (
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

// Files holds mysql.sql, postgres.sql and sqlite.sql, which create the table under its
// default name.
//
//go:embed *.sql
var Files embed.FS

// DefaultTable is the default of Config.Table: Leaf's, in lower case, because MySQL on Linux distinguishes it from
// LEAF_ALLOC.
const DefaultTable = "leaf_alloc"

// retryLimit bounds how long statements are sent again after errors that pass, and after conflicts with other
// processes, before the error is reported.
const retryLimit = 10 * time.Second

// A table sends the statements for one tag. Each is a transaction of its own.
//
// Names of columns are without quotes: they are no reserved words, and PostgreSQL makes them lower case, as they are in
// the table.
type table struct {
	db           *sqldb.DB
	schema, name string // schema may be empty
	tag          string
}

// A row is what the table says of the tag.
type row struct {
	maxID, step int64
}

var tableName = regexp.MustCompile(`^(?:([A-Za-z_][A-Za-z0-9_$]{0,63})\.)?([A-Za-z_][A-Za-z0-9_$]{0,63})$`)

// newTable returns a table, or nil if name is not a valid name.
func newTable(db *sqldb.DB, name, tag string) *table {
	m := tableName.FindStringSubmatch(name)
	if m == nil {
		return nil
	}
	return &table{db: db, schema: m[1], name: m[2], tag: tag}
}

// quoted returns the name for a statement.
func (t *table) quoted() string {
	q := `"`
	if t.db.Dialect() == "mysql" {
		q = "`"
	}
	name := q + t.name + q
	if t.schema != "" {
		name = q + t.schema + q + "." + name
	}
	return name
}

// prepare creates the table if it does not exist. In a dialect in which it cannot look for or create the table, the
// table must exist.
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
		// Processes that create the table at once get in each other's way.
		if try == 10 || pause(ctx, try) != nil {
			return fmt.Errorf("segment: %w: there is no %s, and it cannot be created (if the user lacks the right to, create it manually with segment/%s.sql): %w",
				workernode.ErrTable, t, t.db.Dialect(), err)
		}
	}
}

// exists looks into the catalogue, because GORM would log a statement that fails.
func (t *table) exists(ctx context.Context) (has bool, err error) {
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
			master = `"` + t.schema + `".sqlite_master`
		}
		query = `SELECT 1 FROM ` + master + ` WHERE name = ? COLLATE NOCASE`
	default:
		return true, nil
	}
	err = t.db.Query(ctx, func(*sql.Rows) error {
		has = true
		return nil
	}, query, args...)
	return has, err
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

// join inserts the row of the tag if it is missing, and reports whether it has inserted it. Otherwise it returns the
// row that exists. It refuses a new tag whose ids would not begin above used without r.maxID.
func (t *table) join(ctx context.Context, r row, used int64, description string) (existing row, inserted bool, err error) {
	var refused error // why it could not be inserted
	for try, begin := 0, time.Now(); ; try++ {
		existing, ok, err := t.read(ctx)
		switch {
		case err == nil && used >= r.maxID && (!ok || existing.maxID <= 1):
			return existing, false, t.isNew(ok, used, r.step)
		case ok:
			return existing, false, nil
		case err == nil && (refused == nil || sqldb.IsTransient(refused)):
			if refused = t.insert(ctx, r, description); refused == nil {
				return r, true, nil
			}
			err = refused // perhaps another process has just inserted it
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

// isNew says what to do about a new tag whose column has numbers up to used.
func (t *table) isNew(exists bool, used, step int64) error {
	tag := "'" + strings.ReplaceAll(t.tag, "'", "''") + "'"
	statement := fmt.Sprintf("INSERT INTO %s (biz_tag, max_id, step) VALUES (%s, %d, %d)", t.quoted(), tag, used+1, step)
	if exists {
		statement = fmt.Sprintf("UPDATE %s SET max_id = %d WHERE biz_tag = %s", t.quoted(), used+1, tag)
	}
	return fmt.Errorf("%w: the tag %q of %s is new, but another program has given the column numbers up to %d."+
		" If that is a Leaf service, use its table and tag, as in gorm:\"uid:segment:TAG\", because it may hold higher numbers in memory."+
		" Otherwise stop all other programs that number this column, then set Start above %d, or run %s",
		ErrRow, t.tag, t, used, used, statement)
}

func (t *table) insert(ctx context.Context, r row, description string) error {
	_, err := t.db.Quiet().Exec(ctx, `INSERT INTO `+t.quoted()+` (biz_tag, max_id, step, description, update_time) VALUES (?, ?, ?, ?, CURRENT_TIMESTAMP)`,
		t.tag, r.maxID, r.step, sql.NullString{String: description, Valid: description != ""})
	if err != nil {
		return fmt.Errorf("segment: insert the tag %q into %s: %w", t.tag, t, err)
	}
	return nil
}

// read reads the row, and reports whether one exists.
func (t *table) read(ctx context.Context) (r row, ok bool, err error) {
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
	}, `SELECT `+columns+` FROM `+t.quoted()+` WHERE biz_tag = ?`, t.tag)
	switch {
	case err != nil:
		return r, false, fmt.Errorf("segment: read the tag %q in %s: %w", t.tag, t, err)
	case !autocommit:
		// The process would use a range while its row waits for a COMMIT that never comes. When the connection closes,
		// another process fetches the range again.
		return r, false, fmt.Errorf("%w: autocommit is off on the connections of this pool, so no range would be kept: turn it on (in the DSN or the server's init_connect)", ErrConfig)
	case narrow != "":
		// MySQL without strict mode stores the largest number that fits, and processes fetch ranges that overlap.
		return r, false, fmt.Errorf("%w: the column max_id of %s is of type %s, which is too narrow: make it BIGINT", workernode.ErrTable, t, narrow)
	case n > 1:
		return r, false, fmt.Errorf("%w: the tag %q is in %s %d times: make biz_tag its primary key", ErrRow, t.tag, t, n)
	}
	return r, n == 1, nil
}

// move moves max_id from one number to another, and reports whether it has.
func (t *table) move(ctx context.Context, from, to int64) (bool, error) {
	changed, err := t.db.Exec(ctx, `UPDATE `+t.quoted()+` SET max_id = ?, update_time = CURRENT_TIMESTAMP WHERE biz_tag = ? AND max_id = ?`,
		to, t.tag, from)
	if err != nil {
		return false, fmt.Errorf("segment: fetch ids of the tag %q from %s: %w", t.tag, t, err)
	}
	if changed < 0 || changed > 1 {
		return false, fmt.Errorf("%w: the tag %q is in %s %d times: make biz_tag its primary key", ErrRow, t.tag, t, changed)
	}
	return changed == 1, nil
}

// pause waits before attempt try+1: a random time of up to 4 ms, and later up to 64 ms,
// so that processes that meet do not meet again.
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

// String returns the name as the configuration has it.
func (t *table) String() string { return strings.TrimPrefix(t.schema+"."+t.name, ".") }

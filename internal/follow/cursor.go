package follow

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin/internal/follow/consumer"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/workernode"
)

// A cursorRow sends the statements about a consumer's row of UID_CURSOR.
type cursorRow struct {
	db         *sqldb.DB
	key        ConsumerKey
	conditions string      // a hash of the conditions of the consumer
	mark       *Mark       // of the followed table, which may be in another database
	known      *statements // used only if key.Space is set; nil until UID_CURSOR was found
}

// statements returns the statements for the place where the cursor is. Without key.Space that is the schema where
// c.mark has found the table; if the table appears or moves meanwhile, a new lookup might find another UID_CURSOR.
func (c *cursorRow) statements(ctx context.Context) (*statements, error) {
	if c.key.Space == "" {
		return c.mark.statements(ctx)
	}
	if c.known != nil {
		return c.known, nil
	}
	f, at, err := cursorTable(ctx, c.db, c.key)
	if err != nil {
		return nil, err
	}
	s := newStatements(f, at)
	if exists, err := f.has(ctx, c.db, f.in(at, CursorTable)); err != nil {
		return nil, err
	} else if exists {
		c.known = s
	}
	return s, nil
}

func (s *statements) cursors() string { return s.flavor.in(s.table, CursorTable) }

// where returns the condition that finds the row. The method args returns the values for its placeholders.
func (c *cursorRow) where(s *statements) string {
	return " WHERE " + s.flavor.equal("CONSUMER", "SPACE", "TABLE_NAME")
}

// equal returns a condition that compares each column with a placeholder.
func (f Flavor) equal(columns ...string) string {
	for i, name := range columns {
		columns[i] = f.quote(name) + " = ?"
	}
	return strings.Join(columns, " AND ")
}

// args returns the leading values, followed by the values for the placeholders of the method where.
func (c *cursorRow) args(leading ...any) []any {
	return append(leading, c.key.Consumer, c.key.Space, c.key.Table)
}

// read reads the row. It reports false if the row or the table does not exist.
func (c *cursorRow) read(ctx context.Context) (row consumer.Row, found bool, err error) {
	s, err := c.statements(ctx)
	if err != nil {
		return row, false, err
	}
	err = c.db.Query(ctx, func(r *sql.Rows) error {
		found = true
		return r.Scan(&row.Last, &row.Paused, &row.Holder, &row.Until, &row.Attempts, &row.RetryAt, &row.StuckID, &row.StuckSince, &row.Conditions, &row.Mark, &row.Now)
	}, "SELECT "+s.flavor.columns("LAST_ID, PAUSED <> 0, HOLDER, HOLDER_UNTIL, ATTEMPTS, RETRY_AT, STUCK_ID, STUCK_SINCE, CONDITIONS, MARK")+", "+s.now()+
		" FROM "+s.cursors()+c.where(s), c.args()...)
	if err != nil && noTable.MatchString(err.Error()) {
		return row, false, nil
	}
	row.Mark = max(row.Mark, -math.MaxInt64) // somebody may have written math.MinInt64, which cannot be negated
	return row, found, err
}

// insert inserts the row, and creates the table if it is missing. It reports false if another process has inserted the
// row meanwhile.
func (c *cursorRow) insert(ctx context.Context, last int64) (inserted bool, err error) {
	s, err := c.statements(ctx)
	if err != nil {
		return false, err
	}
	if exists, err := s.flavor.has(ctx, c.db, s.cursors()); err != nil {
		return false, err
	} else if !exists {
		if err := retry(ctx, func() error { return c.db.ExecRaw(ctx, s.flavor.CreateCursors(s.table)) }); err != nil {
			return false, fmt.Errorf("create UID_CURSOR (follow.Enable does so, too): %w", err)
		}
	}
	if err := c.checkRenamed(ctx, s); err != nil {
		return false, err
	}
	if err := c.checkHidden(ctx, s); err != nil {
		return false, err
	}
	_, err = c.db.Exec(ctx, "INSERT INTO "+s.cursors()+" ("+s.flavor.columns("CONSUMER, SPACE, TABLE_NAME, LAST_ID, CONDITIONS")+
		") VALUES (?, ?, ?, ?, ?)", append(c.args(), last, c.conditions)...)
	if err != nil {
		if _, found, _ := c.read(ctx); found {
			return false, nil
		}
	}
	return err == nil, err
}

// checkRenamed returns an error if the consumer has a cursor for this table under another name, such as a former one.
// With a second cursor the consumer would handle all rows again. A name is taken for a former one if no table has it
// any more, even if a view has it.
func (c *cursorRow) checkRenamed(ctx context.Context, s *statements) error {
	followed, err := c.mark.statements(ctx)
	if err != nil {
		return err
	}
	database, withSchema := c.spaces(followed)
	var others []ConsumerKey
	err = c.db.Query(ctx, func(r *sql.Rows) error {
		k := ConsumerKey{Consumer: c.key.Consumer}
		err := r.Scan(&k.Space, &k.Table)
		others = append(others, k)
		return err
	}, "SELECT "+s.flavor.columns("SPACE, TABLE_NAME")+" FROM "+s.cursors()+" WHERE "+s.flavor.equal("CONSUMER")+
		" AND "+s.flavor.quote("SPACE")+" IN (?, ?)", c.key.Consumer, database, withSchema)
	if err != nil {
		return err
	}
	for _, k := range others {
		if k.Space == c.key.Space && k.Table == c.key.Table { // another process was faster
			continue
		}
		t, err := c.tableOf(ctx, followed, k, database)
		if err != nil {
			return err
		}
		set := "set TABLE_NAME of this row of UID_CURSOR to " + c.key.Table
		if k.Space != c.key.Space {
			set = fmt.Sprintf("set SPACE and TABLE_NAME of this row of UID_CURSOR to %s and %s", c.key.Space, c.key.Table)
		}
		if same, err := followed.isSame(ctx, c.mark.db, t); err != nil {
			return err
		} else if same {
			return fmt.Errorf("it has a cursor for %[1]s, which is the same table as %[2]s: let TableName return %[1]s; or end all its processes,"+
				" and %[3]s", k.Table, c.key.Table, set)
		}
		if exists, err := followed.flavor.isTable(ctx, c.mark.db, t); err != nil {
			return fmt.Errorf("check whether the table %s, for which it has a cursor, exists: %w", k.TableName(), err)
		} else if !exists {
			// With another SPACE, or another schema in the name, the command does not change the cursor.
			if c.key.Space == "" && inSchemaOf(k.Table, "") == inSchemaOf(c.key.Table, "") {
				set = "run uid tables rename " + k.Table + " " + c.key.Table
			}
			return fmt.Errorf("it has a cursor for %[2]s, which is not a table any more: if it was renamed to %[3]s, %[4]s;"+
				" otherwise uid follow consumers remove %[1]s --table %[2]s", k.Consumer, k.TableName(), c.key.TableName(), set)
		}
	}
	return nil
}

// checkHidden returns an error if the consumer has its cursor in another schema of the search path. With the option
// Into, UID_CURSOR is found by this path. A UID_CURSOR that is created later, as by [Enable], may hide the other.
func (c *cursorRow) checkHidden(ctx context.Context, s *statements) error {
	if c.key.Space == "" || s.flavor != Postgres {
		return nil
	}
	var schemas []string
	err := c.db.Query(ctx, func(r *sql.Rows) error {
		schemas = append(schemas, "")
		return r.Scan(&schemas[len(schemas)-1])
	}, "SELECT nspname FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace WHERE relkind IN ('r', 'p')"+
		" AND relname = ? AND nspname = ANY(current_schemas(false)) AND nspname <> ?", CursorTable, s.table.Schema)
	for _, schema := range schemas {
		found, other := false, newStatements(Postgres, Table{Name: CursorTable, Schema: schema})
		err := c.db.Query(ctx, func(*sql.Rows) error { found = true; return nil },
			"SELECT 1 FROM "+other.cursors()+c.where(other), c.args()...)
		if err != nil && !notAllowed.MatchString(err.Error()) {
			return err
		}
		if found {
			return fmt.Errorf("its cursor is in the schema %s, but now the search path leads to UID_CURSOR of %s: end all its"+
				" processes, and move this row there; or give the consumer another name", schema, s.table.Schema)
		}
	}
	return err
}

// spaces returns the SPACE without and with the schema of the followed table, because models may have named the
// schema before, or name it only now. Only PostgreSQL has schemas in SPACE: elsewhere the two are equal.
func (c *cursorRow) spaces(followed *statements) (database, withSchema string) {
	if c.key.Space == "" || followed.flavor != Postgres {
		return c.key.Space, c.key.Space
	}
	schema := "." + followed.table.schema()
	database = c.key.Space
	if followed.table.Schema != "" && followed.table.Schema != "public" {
		database = strings.TrimSuffix(database, schema)
	}
	return database, database + schema
}

// tableOf returns the table of another cursor of the consumer, which may not exist. If SPACE is only the database, the
// table is in public on PostgreSQL, unless its name has a schema. If public has no such table, it may have moved
// to the schema of the followed table, as that one did, so the result is the name in this schema.
func (c *cursorRow) tableOf(ctx context.Context, followed *statements, k ConsumerKey, database string) (Table, error) {
	inSchema := Table{Schema: followed.table.Schema, Name: inSchemaOf(followed.table.Name, bare(k.Table))}
	if database == "" || k.Space != database {
		return inSchema, nil
	}
	t, f := Table{Name: k.Table}, followed.flavor
	if f == Postgres {
		t.Schema = "public"
	}
	t, _, err := f.located(ctx, c.mark.db, t)
	if err != nil || f != Postgres || strings.Contains(k.Table, ".") || k.Table == bare(followed.table.Name) {
		return t, err
	}
	if exists, err := f.isTable(ctx, c.mark.db, t); exists || err != nil {
		return t, err
	}
	return inSchema, nil
}

// isSame reports whether t, a table that was located, is the followed table.
func (s *statements) isSame(ctx context.Context, db *sqldb.DB, t Table) (same bool, err error) {
	a, b := t.schema()+"."+bare(t.Name), s.table.schema()+"."+bare(s.table.Name)
	switch {
	case a == b || !strings.EqualFold(a, b):
		return a == b, nil
	case s.flavor == MySQL || s.flavor == MariaDB:
		err = db.Query(ctx, func(r *sql.Rows) error { return r.Scan(&same) }, "SELECT @@lower_case_table_names <> 0")
		return same, err
	}
	return s.flavor == SQLite, nil
}

// schema returns the schema of a table that was located.
func (t Table) schema() string {
	if i := strings.LastIndexByte(t.Name, '.'); i >= 0 {
		return t.Name[:i]
	}
	return cmp.Or(t.Schema, "main") // of SQLite
}

// change sends the UPDATE of a step through db. It reports whether the row of UID_CURSOR had the values that the step
// expects; otherwise the UPDATE changes nothing. message is the error of the handler, for a step that stores a failure.
func (c *cursorRow) change(ctx context.Context, db *sqldb.DB, step consumer.Step, message string) (bool, error) {
	s, err := c.statements(ctx)
	if err != nil {
		return false, err
	}
	to := step.Change
	set, values := "LAST_ID = ?, HOLDER = ?, HOLDER_UNTIL = ?, CONDITIONS = ?", []any{to.NewLast, to.Me, to.NewTerm, c.conditions}
	if f := step.Failed; step.Kind == consumer.Fail || to.NewLast != to.Last {
		set += ", ATTEMPTS = ?, RETRY_AT = ?, STUCK_ID = ?, STUCK_SINCE = ?, ERROR = ?"
		values = append(values, f.Attempts, f.RetryAt, f.StuckID, f.StuckSince, ascii(message))
	}
	if to.Mark != 0 {
		set, values = set+", MARK = ?", append(values, to.Mark)
	}
	where := c.where(s) + " AND " + s.flavor.equal("LAST_ID", "HOLDER", "HOLDER_UNTIL") + " AND " + s.flavor.quote("PAUSED") + " = 0"
	if s.flavor == Postgres {
		where += s.settings(step)
	}
	n, err := db.Exec(ctx, "UPDATE "+s.cursors()+" SET "+s.flavor.columns(set)+where,
		append(c.args(values...), to.Last, to.Holder, to.Until)...)
	return n > 0, err
}

// settings returns a condition for the UPDATE on PostgreSQL. The condition is always true, but it sets timeouts for the
// rest of the transaction, unless the application has set them. While the server sends rows to a process that hangs,
// the transaction is not idle, so tcp_user_timeout has to end it; only Linux has this setting.
func (s *statements) settings(step consumer.Step) string {
	const set = " AND CASE WHEN current_setting('%[1]s', true) = '0'%[2]s THEN set_config('%[1]s', '%[3]d', true) ELSE '' END IS NOT NULL"
	switch {
	case step.Kind == consumer.Take && step.Change.Holder != step.Change.Me:
		return fmt.Sprintf(set, "lock_timeout", "", time.Second.Milliseconds())
	case step.Kind != consumer.Handle && step.Kind != consumer.Fetch:
		return ""
	}
	return fmt.Sprintf(set, "idle_in_transaction_session_timeout", "", idleLimit.Milliseconds()) +
		fmt.Sprintf(set, "tcp_user_timeout", " AND version() LIKE '%linux%'", idleLimit.Milliseconds())
}

// idleLimit limits the time between two statements of a transaction that has locked the cursor. After this time the
// server ends the transaction, because a process that hangs must not keep the lock.
const idleLimit = 30 * time.Second

// processName returns a name for HOLDER and CLOSER, which have 64 characters: where the process runs, and a text that
// no other process has. The name has no plus sign, because package consumer appends one.
func processName(h workernode.Host) string {
	const maxHost = 40
	host := strings.ReplaceAll(ascii(h.Name+"/"+h.Port), "+", "-")
	return host[max(len(host)-maxHost, 0):] + "/" + rand.Text()[:16]
}

// HolderHost returns the host and port in a name that processName has made: at most their last 40 characters.
func HolderHost(name string) string {
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		return name[:i]
	}
	return name
}

// ascii makes a text fit into the column ERROR: at most 255 characters of ASCII.
func ascii(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, text)
	return text[:min(len(text), 255)]
}

// take sends the change of a process that wants to become the holder. It gives up if the row is locked, because then
// another process works. It tries to lock the row before it sends the UPDATE, because the UPDATE would wait for the
// lock. Suppose that the handler of the other process runs longer than the term, and then fails or skips the row. A
// waiting UPDATE would make this process the holder before the other process has stored this outcome. So the row would
// be handled again without a pause, and the cursor would never get past a row that the handler skips. The UPDATE is a
// transaction of its own, so that a process that hangs keeps no lock.
func (c *cursorRow) take(ctx context.Context, step consumer.Step) (changed bool, err error) {
	s, err := c.statements(ctx)
	if err != nil {
		return false, err
	}
	if s.flavor != SQLite { // SQLite has no locks of rows
		err = c.lock(ctx, s)
	}
	switch {
	case err != nil:
	case s.flavor != MySQL && s.flavor != MariaDB:
		changed, err = c.change(ctx, c.db, step, "")
	default:
		err = c.db.Together(ctx, func(ctx context.Context, conn *sqldb.DB) error {
			err := conn.ExecRaw(ctx, "SET @uid_wait = @@SESSION.innodb_lock_wait_timeout, SESSION innodb_lock_wait_timeout = 1")
			if err == nil {
				changed, err = c.change(ctx, conn, step, "")
			}
			return errors.Join(err, conn.ExecRaw(ctx, "SET SESSION innodb_lock_wait_timeout = @uid_wait"))
		})
	}
	if err != nil && (isLockTimeout(err) || s.flavor == SQLite && sqldb.IsTransient(err)) {
		return false, nil
	}
	return changed && err == nil, err
}

// lock locks the row for a moment. It fails at once if the row is locked.
func (c *cursorRow) lock(ctx context.Context, s *statements) error {
	return c.db.Query(ctx, func(*sql.Rows) error { return nil }, "SELECT 1 FROM "+s.cursors()+c.where(s)+" FOR UPDATE NOWAIT", c.args()...)
}

// release lets another process become the holder at once.
func (c *cursorRow) release(ctx context.Context, me string) error {
	s, err := c.statements(ctx)
	if err != nil {
		return err
	}
	_, err = c.db.Exec(ctx, "UPDATE "+s.cursors()+" SET "+s.flavor.columns("HOLDER = '', HOLDER_UNTIL = HOLDER_UNTIL + 1")+c.where(s)+
		" AND "+s.flavor.equal("HOLDER"), append(c.args(), me)...)
	return err
}

// limit makes MySQL and MariaDB close a connection on which this process sends no statement for the time idleLimit,
// even between two transactions, or reads no rows while the server sends some. For a handler, limit also turns
// autocommit off. Otherwise, if the server ends the transaction early, it would commit later statements of the
// handler one by one. Without autocommit these statements begin another transaction, which is rolled back. Call
// restore afterwards, and close the connection if restore fails.
func (c *cursorRow) limit(ctx context.Context, conn *sqldb.DB, handler bool) (restore func() error, err error) {
	s, err := c.statements(ctx)
	if err != nil || s.flavor != MySQL && s.flavor != MariaDB {
		return func() error { return nil }, err
	}
	set, back := "SET @uid_idle = @@SESSION.wait_timeout, SESSION wait_timeout = CAST(LEAST(@@SESSION.wait_timeout, %[1]d) AS SIGNED),"+
		" @uid_write = @@SESSION.net_write_timeout, SESSION net_write_timeout = CAST(LEAST(@@SESSION.net_write_timeout, %[1]d) AS SIGNED)",
		"SET SESSION wait_timeout = @uid_idle, SESSION net_write_timeout = @uid_write"
	if handler {
		set += ", @uid_auto = @@SESSION.autocommit, SESSION autocommit = 0"
		back += ", SESSION autocommit = @uid_auto"
	}
	err = conn.ExecRaw(ctx, fmt.Sprintf(set, int(idleLimit.Seconds())))
	return func() error { return conn.ExecRaw(context.WithoutCancel(ctx), back) }, err
}

// DatabaseName returns the name of a database; on SQLite it is the name of its file, or "". On MySQL and MariaDB it
// asks the connection only if db does not know its schema, because the application may have changed it there.
func DatabaseName(ctx context.Context, db *sqldb.DB) (name string, err error) {
	if name = db.Current(); name != "" && db.Dialect() == "mysql" {
		return name, nil
	}
	query := map[string]string{
		"mysql": "SELECT COALESCE(DATABASE(), '')", "postgres": "SELECT current_database()",
		"sqlite": "SELECT file FROM pragma_database_list WHERE name = 'main'",
	}[db.Dialect()]
	err = db.Query(ctx, func(r *sql.Rows) error { return r.Scan(&name) }, query)
	return name, err
}

// LowestCursor returns the lowest of the cursors that consumers of a table have in the database of this table. It
// reports false if there is none.
func LowestCursor(ctx context.Context, db *sqldb.DB, table string) (lowest int64, any bool, err error) {
	f, at, err := cursorTable(ctx, db, ConsumerKey{Table: table})
	if err != nil {
		return 0, false, err
	}
	var last sql.NullInt64
	err = db.Query(ctx, func(r *sql.Rows) error { return r.Scan(&last) }, "SELECT MIN("+f.quote("LAST_ID")+") FROM "+f.in(at, CursorTable)+
		" WHERE "+f.equal("TABLE_NAME", "SPACE"), table, "")
	if err != nil && noTable.MatchString(err.Error()) {
		return 0, false, nil
	}
	return last.Int64, last.Valid, err
}

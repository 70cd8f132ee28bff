package follow

import (
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

package follow

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin/internal/sqldb"
)

// The type statements sends the SQL about one followed table.
type statements struct {
	flavor Flavor
	table  Table
	names  names
}

func newStatements(f Flavor, t Table) *statements { return &statements{f, t, namesOf(t.Name)} }

// now is an expression for the database's clock, in milliseconds since 1970.
func (s *statements) now() string {
	switch s.flavor {
	case Postgres:
		return "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
	case SQLite:
		return "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)"
	}
	return "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000" // in local time one hour of each year comes twice
}

// exact returns the beginning of each statement that contains the subquery s.found(). On MariaDB it sets sql_mode,
// which decides whether the subquery rounds or truncates the time in CREATED.
func (s *statements) exact() string {
	if s.flavor != MariaDB {
		return ""
	}
	return "SET STATEMENT sql_mode = '" + sqldb.Mode + "' FOR "
}

// found returns a subquery for the identity of the table's trigger, if the trigger is enabled. A statement that
// contains the subquery must begin with s.exact().
func (s *statements) found() string {
	f, name := s.flavor, s.flavor.text(s.names.trigger)
	switch f {
	case Postgres:
		return "(SELECT t.oid::text FROM pg_trigger t WHERE tgname = " + name + " AND tgfoid = " + s.function() + " AND " + s.intact() + ")"
	case SQLite:
		return "(SELECT name || ' ' || sql FROM sqlite_schema WHERE type = 'trigger' AND name = " + name +
			" AND tbl_name = " + f.text(bare(s.table.Name)) + " COLLATE NOCASE)"
	}
	// Because the query names the table, MariaDB opens only the file of this table.
	return "(SELECT CAST(UNIX_TIMESTAMP(CREATED) AS CHAR) FROM information_schema.TRIGGERS WHERE EVENT_OBJECT_SCHEMA = " + f.schema(s.table) + " AND EVENT_OBJECT_TABLE = " +
		f.text(bare(s.table.Name)) + " AND TRIGGER_NAME = " + name + ")"
}

// function returns an expression for the function of the trigger on PostgreSQL. It names the schema, because
// another schema may have a function of the same name, with another mark.
func (s *statements) function() string {
	return "to_regproc(" + s.flavor.text(s.flavor.in(s.table, s.names.function)) + ")"
}

// mark returns an expression for the trigger's mark. It is NULL, or fails, if the mark or its sequence is missing.
func (s *statements) mark() string {
	sequence := s.flavor.in(s.table, s.names.mark)
	switch s.flavor {
	case Postgres:
		return "pg_sequence_last_value(" + s.flavor.text(sequence) + "::regclass)"
	case MariaDB:
		return "(SELECT next_not_cached_value FROM " + sequence + ")"
	case SQLite:
		return `(SELECT "MARK" FROM ` + s.gates() + s.row() + ")"
	}
	return "(SELECT MIN(MARK) FROM " + s.gates() + fmt.Sprintf(" WHERE ID IN (%d, %d) HAVING COUNT(*) = 2)", s.names.gate+usedGate, s.names.gate+idleGate)
}

// next returns a subquery for the lowest id that is not below the published mark. The outer query must give
// UID_FOLLOW the alias m. The subquery leaves out unsigned keys that are larger than any id.
func (s *statements) next() string {
	key := "t." + s.flavor.quote(s.table.Key)
	return "(SELECT " + key + " FROM " + s.flavor.in(s.table, bare(s.table.Name)) + " t WHERE " + key + " >= m." + s.flavor.quote("PUBLISHED") +
		" AND " + key + " <= " + strconv.FormatInt(math.MaxInt64, 10) + " ORDER BY " + key + " LIMIT 1)"
}

func (s *statements) marks() string { return s.flavor.in(s.table, markTable) }
func (s *statements) gates() string { return s.flavor.in(s.table, gateTable) }

// gate is the condition for the row of a gate. It uses the primary key, because InnoDB locks all rows that a
// statement reads.
func (s *statements) gate(gate int) string {
	return " WHERE ID = " + strconv.FormatInt(s.names.gate+int64(gate), 10)
}

// row is the condition for the table's row in UID_FOLLOW, and on SQLite also for its row in UID_FOLLOW_GATE.
func (s *statements) row() string {
	return " WHERE " + s.flavor.quote("TABLE_NAME") + " = " + s.flavor.text(s.table.Name)
}

// state reads the table's row in UID_FOLLOW. It returns ErrNotEnabled if there is none.
func (s *statements) state(ctx context.Context, db *sqldb.DB) (state State, err error) {
	rows := 0
	err = db.Query(ctx, func(r *sql.Rows) error {
		rows++
		var slack, until, now int64
		var found sql.NullString
		var next sql.NullInt64
		if err := r.Scan(&state.Published, &slack, &state.Trigger, &found, &state.Closer, &until, &now, &state.Recent, &next); err != nil {
			return err
		}
		if slack < MinSlack.Milliseconds() || slack > MaxSlack.Milliseconds() {
			return fmt.Errorf("%w: its SLACK in UID_FOLLOW is %d ms, but must be from %v to %v; call follow.Enable", ErrNotEnabled, slack, MinSlack, MaxSlack)
		}
		state.Slack, state.Found, state.Next = time.Duration(slack)*time.Millisecond, found.String, next.Int64
		state.Until, state.Now = time.UnixMilli(until), time.UnixMilli(now)
		return nil
	}, s.exact()+"SELECT "+s.flavor.columns("PUBLISHED, SLACK, TRIGGER_ID")+", "+s.found()+", "+s.flavor.columns("CLOSER, CLOSER_UNTIL")+", "+s.now()+
		", "+s.flavor.columns("RECENT")+", "+s.next()+" FROM "+s.marks()+" m"+s.row())
	if err == nil {
		err = oneRow(rows)
	}
	return state, err
}

// oneRow returns an error unless UID_FOLLOW has one row for the table. It may have several if its key was dropped.
func oneRow(rows int) error {
	switch rows {
	case 0:
		return fmt.Errorf("%w: UID_FOLLOW has no row for it; call follow.Enable", ErrNotEnabled)
	case 1:
		return nil
	}
	return fmt.Errorf("%w: UID_FOLLOW has %d rows for it; call follow.Disable, restore the primary key of UID_FOLLOW, and call follow.Enable", ErrNotEnabled, rows)
}

func (s *statements) published(ctx context.Context, db *sqldb.DB) (published int64, err error) {
	rows := 0
	err = db.Query(ctx, func(r *sql.Rows) error { rows++; return r.Scan(&published) },
		"SELECT "+s.flavor.quote("PUBLISHED")+" FROM "+s.marks()+s.row())
	if err == nil {
		err = oneRow(rows)
	}
	return published, err
}

// claim makes the process me the closer for a turn, and reports true, unless another process is the closer.
func (s *statements) claim(ctx context.Context, db *sqldb.DB, me string) (bool, error) {
	until, closer := s.flavor.quote("CLOSER_UNTIL"), s.flavor.quote("CLOSER")
	end := s.now() + " + " + strconv.FormatInt(turn.Milliseconds(), 10)
	n, err := db.Exec(ctx, "UPDATE "+s.marks()+" SET "+closer+" = ?, "+until+" = "+end+
		s.row()+" AND ("+closer+" = ? OR "+until+" <= "+s.now()+" OR "+until+" > "+end+")", me, me)
	return n > 0, err
}

// giveTurn ends the turn of the process me, if it is the closer.
func (s *statements) giveTurn(ctx context.Context, db *sqldb.DB, me string) error {
	_, err := db.Exec(ctx, "UPDATE "+s.marks()+" SET "+s.flavor.quote("CLOSER_UNTIL")+" = 0"+s.row()+" AND "+s.flavor.quote("CLOSER")+" = ?", me)
	return err
}

// raise raises the trigger's mark, except on MySQL, where pass does that. It never lowers the mark, even if other
// processes raise it at the same time.
func (s *statements) raise(ctx context.Context, db *sqldb.DB, mark int64) (err error) {
	value := strconv.FormatInt(mark, 10)
	switch s.flavor {
	case Postgres:
		sequence := s.flavor.text(s.flavor.in(s.table, s.names.mark)) + "::regclass"
		// setval does not compare marks, so the statement does, with a lock that ends with the statement.
		err = s.one(ctx, db, "WITH lock AS MATERIALIZED (SELECT pg_advisory_xact_lock("+s.advisory(raiseLock)+"))"+
			" SELECT setval("+sequence+", greatest("+value+", "+s.mark()+")) FROM lock")
	case MariaDB:
		// SETVAL is NULL, and changes nothing, if the sequence is beyond the mark.
		err = s.one(ctx, db, "SELECT SETVAL("+s.flavor.in(s.table, s.names.mark)+", "+value+", 0)")
	case SQLite:
		return s.update(ctx, db, "UPDATE "+s.gates()+` SET "MARK" = max("MARK", `+value+")"+s.row())
	}
	return err
}

// pass waits until all transactions that took the gate before the call have ended. It reports false if some of them
// have not ended after a while. On MySQL it also raises the mark in the gate.
//
// A writer may have chosen this gate but not asked for it yet. It would have to wait behind a closer that waits. So
// at first the closer does not wait, but asks again and again.
func (s *statements) pass(ctx context.Context, db *sqldb.DB, gate int, mark int64) (passed bool, err error) {
	begun := time.Now()
	for pause := time.Millisecond; time.Since(begun) < grace; pause = min(2*pause, 16*time.Millisecond) {
		switch s.flavor {
		case SQLite:
			return true, nil // it has one writer at a time
		case Postgres:
			err = db.Query(ctx, func(r *sql.Rows) error { return r.Scan(&passed) }, "SELECT pg_try_advisory_xact_lock("+s.advisory(gate)+")")
		default:
			passed, err = granted(ctx, s.one(ctx, db, "SELECT ID FROM "+s.gates()+s.gate(gate)+" FOR UPDATE NOWAIT"))
		}
		switch {
		case passed && s.flavor == MySQL: // its gates have the mark, and s.wait writes it
		case passed:
			return true, nil
		case errors.Is(err, ErrNotEnabled): // the gate is missing, which the UPDATE of MySQL would not notice
			return false, err
		case err != nil: // go on with s.wait, because asking without waiting only spares writers a wait
		case s.flavor == Postgres && gate == usedGate: // the trigger notices a closer that waits, and takes the other gate
		default:
			if !sleep(ctx, pause) {
				return false, ctx.Err()
			}
			continue
		}
		break
	}
	return s.wait(ctx, db, gate, mark)
}

// grace is how long the closer asks for a gate without waiting. A trigger chooses a gate and asks for it in less
// time.
const grace = 300 * time.Millisecond

// wait does what pass does, by one statement that waits. It gives up after the duration patience, or earlier if the
// database ends the statement (statement_timeout, max_statement_time).
func (s *statements) wait(ctx context.Context, db *sqldb.DB, gate int, mark int64) (bool, error) {
	switch s.flavor {
	case Postgres:
		seconds := strconv.Itoa(int(patience / time.Second))
		// The setting ends with the statement.
		return granted(ctx, s.one(ctx, db, "WITH setting AS MATERIALIZED (SELECT set_config('lock_timeout', '"+seconds+"s', true))"+
			" SELECT 1 FROM setting, LATERAL (SELECT pg_advisory_xact_lock("+s.advisory(gate)+") WHERE set_config IS NOT NULL) AS passed"))
	case MySQL:
		return granted(ctx, s.setGate(ctx, db, gate, "GREATEST(MARK, "+strconv.FormatInt(mark, 10)+")"))
	}
	return granted(ctx, s.one(ctx, db, "SELECT ID FROM "+s.gates()+s.gate(gate)+" FOR UPDATE"))
}

// setGate stores a mark in a gate on MySQL.
func (s *statements) setGate(ctx context.Context, db *sqldb.DB, gate int, mark string) error {
	return s.update(ctx, db, "UPDATE "+s.gates()+" SET MARK = "+mark+s.gate(gate))
}

// limit makes MySQL and MariaDB end a statement that waits too long for a gate, and close the connection if this
// process hangs, because it could hold divert's lock for hours. Call restore at the end of the round, and
// close the connection if restore fails. Both limits only shorten waits, so a round goes on if the server refuses
// them.
func (s *statements) limit(ctx context.Context, db *sqldb.DB) (restore func() error) {
	if s.flavor != MySQL && s.flavor != MariaDB {
		return func() error { return nil }
	}
	err := db.ExecRaw(ctx, fmt.Sprintf("SET @uid_wait = @@SESSION.innodb_lock_wait_timeout, @uid_idle = @@SESSION.wait_timeout,"+
		" SESSION innodb_lock_wait_timeout = %d, SESSION wait_timeout = %d", patience/time.Second, (turn-patience)/time.Second))
	after := "RELEASE_LOCK(" + s.flavor.userLock(s.table) + ")" // in case undivert has failed
	if err == nil {
		after += ", SESSION innodb_lock_wait_timeout = @uid_wait, SESSION wait_timeout = @uid_idle"
	}
	return func() error { return db.ExecRaw(ctx, "SET @uid_released = "+after) }
}

// patience is how long a statement waits at a gate before the closer checks whether it still is the closer.
const patience = 2 * time.Second

// divert makes new transactions use the second gate, and undivert makes them use the first again. On PostgreSQL
// they use the second gate by themselves while the closer waits for the first. If another process diverts already,
// divert changes nothing. Both statements only shorten waits, so a round goes on after their errors.
func (s *statements) divert(ctx context.Context, db *sqldb.DB) {
	if s.flavor == MySQL || s.flavor == MariaDB {
		_ = db.ExecRaw(ctx, "DO GET_LOCK("+s.flavor.userLock(s.table)+", 0)")
	}
}

func (s *statements) undivert(ctx context.Context, db *sqldb.DB) {
	if s.flavor == MySQL || s.flavor == MariaDB {
		_ = db.ExecRaw(ctx, "DO RELEASE_LOCK("+s.flavor.userLock(s.table)+")")
	}
}

// publish stores the mark for followers if the table still has the trigger and the published mark with which the
// round began. Somebody may have installed another trigger, or [Reset] may have lowered the marks. publish also
// compares the trigger's mark: a pooler may have sent the round to another server after a failover, and on SQLite a
// trigger that was installed again has the same identity. It returns the mark that followers see.
func (s *statements) publish(ctx context.Context, db *sqldb.DB, mark int64, began State) (int64, error) {
	published, greatest := s.flavor.quote("PUBLISHED"), "GREATEST"
	if s.flavor == SQLite {
		greatest = "max"
	}
	value, recent := strconv.FormatInt(mark, 10), began.Recent
	if mark > began.Published {
		recent = remember(mark-began.Published, recent)
	}
	n, err := db.Exec(ctx, s.exact()+"UPDATE "+s.marks()+" SET "+s.flavor.quote("RECENT")+" = ?, "+published+" = "+greatest+"("+published+", "+value+")"+
		s.row()+" AND "+published+" = ? AND "+s.flavor.quote("TRIGGER_ID")+" = ? AND "+s.found()+" = ? AND "+s.mark()+" >= "+value,
		recent, began.Published, began.Trigger, began.Trigger)
	if err != nil || n > 0 {
		return mark, err
	}
	return s.published(ctx, db) // MySQL counts a row only if its value has changed
}

func (s *statements) advisory(lock int) string {
	return advisory(s.flavor.in(s.table, s.names.mark), lock)
}

var errIncomplete = fmt.Errorf("%w: a part of its installation is missing; call follow.Disable and then follow.Enable", ErrNotEnabled)

// one runs a query that must return a row, and ignores the values of the row.
func (s *statements) one(ctx context.Context, db *sqldb.DB, query string) error {
	rows := 0
	err := db.Query(ctx, func(*sql.Rows) error { rows++; return nil }, query)
	if err == nil && rows == 0 {
		err = errIncomplete
	}
	return err
}

// update runs an UPDATE and checks that it finds a row, except on MySQL and MariaDB, which count changed rows.
func (s *statements) update(ctx context.Context, db *sqldb.DB, query string) error {
	n, err := db.Exec(ctx, query)
	if err == nil && n == 0 && s.flavor != MySQL && s.flavor != MariaDB {
		err = errIncomplete
	}
	return err
}

// granted reports false, but no error, if a statement gave up waiting for a lock or was ended while it waited.
func granted(ctx context.Context, err error) (bool, error) {
	if err != nil && (isLockTimeout(err) || ctx.Err() == nil && isEnded(err)) {
		return false, nil
	}
	return err == nil, err
}

// isEnded reports whether statement_timeout, max_statement_time or max_execution_time has ended a statement.
func isEnded(err error) bool {
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		return state.SQLState() == "57014"
	}
	return strings.Contains(err.Error(), "Error 1969 ") || strings.Contains(err.Error(), "Error 3024 ")
}

func isLockTimeout(err error) bool {
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		return state.SQLState() == "55P03"
	}
	return strings.Contains(err.Error(), "Error 1205") || strings.Contains(err.Error(), "Error 3572") // 3572 for NOWAIT
}

// enabled returns ErrNotEnabled if err says that a part of the installation is missing, as before the first
// [Enable], or during [Disable]. Otherwise it returns err.
func enabled(err error) error {
	if err == nil || !noPart.MatchString(err.Error()) || !strings.Contains(strings.ToUpper(err.Error()), markTable) {
		return err
	}
	return fmt.Errorf("%w: call follow.Enable: %w", ErrNotEnabled, err)
}

var noPart = regexp.MustCompile(noTable.String() + "|Error 4091 ") // 4091 for MariaDB's sequences

package follow

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin/internal/sqldb"
)

// A ConsumerKey names a cursor.
type ConsumerKey struct {
	Consumer string // as the application named it
	Space    string // the database of the followed table, perhaps with a schema; empty if it also has the cursor
	Table    string // the followed table, as in UID_FOLLOW
	Schema   string // of UID_CURSOR; empty means the schema of the table
}

// String returns the names for people.
func (k ConsumerKey) String() string { return k.Consumer + " of " + k.TableName() }

// TableName returns the table for people.
func (k ConsumerKey) TableName() string {
	if k.Space != "" {
		return k.Space + "." + k.Table
	}
	return k.Table
}

// A CursorStatus describes a cursor for operators.
type CursorStatus struct {
	ConsumerKey
	Last       int64 // every row up to it was handled, skipped or left out
	Paused     bool
	Holder     string    // the process that handles the rows
	Until      time.Time // the end of its term, which it extends again and again; zero if nobody holds the cursor
	locked     bool      // Until is past, but the row is locked, so a handler is running
	Attempts   int64     // how often the next row has failed
	RetryAt    time.Time // zero if it may be tried at once
	StuckID    int64     // the row that fails; 0 if none does
	StuckSince time.Time
	Error      string
	Now        time.Time // the database's clock

	Waiting int64 // number of rows above Last, but no more than MaxWaiting + 1; -1 if Unread is set
	Oldest  int64 // id of the first of these rows; 0 if none waits
	Unread  error // why the rows could not be counted
}

// Held reports whether a process holds the cursor.
func (c *CursorStatus) Held() bool { return c.Holder != "" && (c.locked || c.Now.Before(c.Until)) }

// MaxWaiting limits the rows that are counted behind a cursor.
const MaxWaiting = 10_000

// ErrNoConsumer reports a cursor that does not exist.
var ErrNoConsumer = errors.New("there is no such consumer")

// These are reasons why the table of a consumer cannot be read.
var (
	errElsewhere = errors.New("its table is in another database")
	errMoved     = errors.New("its table and its row of UID_CURSOR are in different schemas")
)

// ListConsumers returns the cursors in the default schema, and in the schemas of the known tables, as [List] does.
func ListConsumers(ctx context.Context, db *sqldb.DB, known ...string) (list []CursorStatus, err error) {
	f, err := FlavorOf(ctx, db)
	if err != nil {
		return nil, err
	}
	for _, prefix := range f.prefixes(known) {
		t, _, err := f.located(ctx, db, Table{Name: prefix + CursorTable})
		var found []CursorStatus
		if err == nil {
			found, err = f.cursorsIn(ctx, db.Quiet(), t)
		}
		switch {
		case err != nil && (noTable.MatchString(err.Error()) || prefix != "" && notAllowed.MatchString(err.Error())):
			continue
		case err != nil:
			return nil, fmt.Errorf("uidplugin: list consumers: %w", err)
		}
		for _, c := range found {
			if c.Space == "" && inSchemaOf(c.Table, "") == prefix || c.Space != "" && prefix == "" {
				c.locked = c.Holder != "" && !c.Held() && f.isLocked(ctx, db.Quiet(), t, c.ConsumerKey)
				list = append(list, c)
			}
		}
	}
	for i := range list {
		c := &list[i]
		if c.Waiting, c.Oldest, c.Unread = f.countRows(ctx, db.Quiet(), c.ConsumerKey, c.Last, math.MaxInt64); ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return list, nil
}

// cursorsIn reads the cursors in t, a table UID_CURSOR.
func (f Flavor) cursorsIn(ctx context.Context, db *sqldb.DB, t Table) (list []CursorStatus, err error) {
	err = db.Query(ctx, func(r *sql.Rows) error {
		var c CursorStatus
		var until, retry, since, now int64
		err := r.Scan(&c.Consumer, &c.Space, &c.Table, &c.Last, &c.Paused, &c.Holder, &until, &c.Attempts, &retry, &c.StuckID,
			&since, &c.Error, &now)
		c.Schema, c.Until, c.RetryAt, c.StuckSince, c.Now = t.Schema, timeOf(until), timeOf(retry), timeOf(since), timeOf(now)
		list = append(list, c)
		return err
	}, "SELECT "+f.columns("CONSUMER, SPACE, TABLE_NAME, LAST_ID, PAUSED <> 0, HOLDER, HOLDER_UNTIL, ATTEMPTS, RETRY_AT, STUCK_ID, STUCK_SINCE, ERROR")+
		", "+newStatements(f, t).now()+" FROM "+f.in(t, CursorTable))
	slices.SortFunc(list, func(a, b CursorStatus) int {
		return cmp.Or(strings.Compare(a.Consumer, b.Consumer), strings.Compare(a.Space, b.Space), strings.Compare(a.Table, b.Table))
	})
	return list, err
}

// isLocked reports whether a transaction, such as that of a handler, has locked a cursor in t. It reports false
// where it cannot find out: on SQLite, and without the privilege UPDATE.
func (f Flavor) isLocked(ctx context.Context, db *sqldb.DB, t Table, k ConsumerKey) bool {
	if f == SQLite {
		return false
	}
	row := cursorRow{db: db, key: k}
	err := row.lock(ctx, newStatements(f, t))
	return err != nil && isLockTimeout(err)
}

// timeOf returns the time of a column with milliseconds; zero for 0. It limits times to the years that JSON can
// have, because somebody may have written any number.
func timeOf(ms int64) (t time.Time) {
	const year1, year9999 = -62_135_596_800_000, 253_402_300_799_999
	if ms != 0 {
		t = time.UnixMilli(min(max(ms, year1), year9999)).UTC()
	}
	return t
}

// CountRows counts the rows of a consumer's table above one id, up to another id, but no more than MaxWaiting + 1.
func CountRows(ctx context.Context, db *sqldb.DB, k ConsumerKey, above, upTo int64) (n int64, err error) {
	f, err := FlavorOf(ctx, db)
	if err == nil {
		n, _, err = f.countRows(ctx, db.Quiet(), k, above, upTo)
	}
	return n, err
}

// countRows is CountRows, and also returns the id of the first row. After an error n is -1.
func (f Flavor) countRows(ctx context.Context, db *sqldb.DB, k ConsumerKey, above, upTo int64) (n, first int64, err error) {
	least := sql.NullInt64{}
	t, err := f.tableOf(ctx, db, k)
	if err == nil {
		err = db.Query(ctx, func(r *sql.Rows) error { return r.Scan(&n, &least) }, fmt.Sprintf("SELECT COUNT(*), MIN(k) FROM "+
			"(SELECT %[1]s AS k FROM %[2]s WHERE %[1]s > %[3]d AND %[1]s <= %[4]d ORDER BY %[1]s LIMIT %[5]d) w",
			f.quote(t.Key), f.in(t, bare(t.Name)), above, upTo, MaxWaiting+1))
	}
	if err != nil {
		return -1, 0, err
	}
	return n, least.Int64, nil
}

// SlackOf returns the slack of a consumer's table.
func SlackOf(ctx context.Context, db *sqldb.DB, k ConsumerKey) (time.Duration, error) {
	f, err := FlavorOf(ctx, db)
	if err != nil {
		return 0, err
	}
	t, err := f.tableOf(ctx, db.Quiet(), k)
	return t.Slack, cmp.Or(err, CheckSlack(t.Slack))
}

func (f Flavor) tableOf(ctx context.Context, db *sqldb.DB, k ConsumerKey) (t Table, err error) {
	if k.Space != "" {
		return t, errElsewhere
	}
	t, _, err = f.located(ctx, db, Table{Name: k.Table})
	if err == nil && t.Schema != k.Schema {
		err = errMoved
	}
	if err != nil {
		return t, err
	}
	s, slack := newStatements(f, t), int64(0)
	err = enabled(db.Query(ctx, func(r *sql.Rows) error { return r.Scan(&t.Key, &slack) },
		"SELECT "+f.columns("KEY_COLUMN, SLACK")+" FROM "+s.marks()+s.row()))
	if t.Slack = time.Duration(slack) * time.Millisecond; err == nil && t.Key == "" {
		err = oneRow(0)
	}
	return t, err
}

// ResetConsumer sets a cursor to an id, so that the rows above are handled next. A row that failed may be tried at
// once. Processes may run meanwhile: each of their transactions begins with an UPDATE that compares the cursor.
// MARK becomes 0, so that no process moves the cursor back because of lost commits.
func ResetConsumer(ctx context.Context, db *sqldb.DB, k ConsumerKey, id int64) error {
	return change(ctx, db, k, "LAST_ID = "+strconv.FormatInt(id, 10)+
		", MARK = 0, ATTEMPTS = 0, RETRY_AT = 0, STUCK_ID = 0, STUCK_SINCE = 0, ERROR = ''")
}

// PauseConsumer pauses a consumer, or resumes it. A paused consumer has no holder, so that the next holder does not
// log that the former one was killed.
func PauseConsumer(ctx context.Context, db *sqldb.DB, k ConsumerKey, paused bool) error {
	set := map[bool]string{false: "PAUSED = 0", true: "PAUSED = 1, HOLDER = ''"}[paused]
	return change(ctx, db, k, set)
}

// RemoveConsumer removes a cursor. Processes that run the consumer get an error.
func RemoveConsumer(ctx context.Context, db *sqldb.DB, k ConsumerKey) error {
	return change(ctx, db, k, "")
}

// change sets columns of a cursor, or removes it.
func change(ctx context.Context, db *sqldb.DB, k ConsumerKey, set string) error {
	f, at, err := cursorTable(ctx, db, k)
	if err == nil {
		err = f.change(ctx, db, at, k, set)
	}
	if err != nil && noTable.MatchString(err.Error()) {
		err = fmt.Errorf("%w: %w", ErrNoConsumer, err)
	}
	if err != nil {
		return fmt.Errorf("uidplugin: follow: the consumer %s: %w", k, err)
	}
	return nil
}

func (f Flavor) change(ctx context.Context, db *sqldb.DB, place Table, k ConsumerKey, set string, args ...any) error {
	table := f.in(place, CursorTable)
	where := " WHERE " + f.quote("CONSUMER") + " = ? AND " + f.quote("SPACE") + " = ? AND " + f.quote("TABLE_NAME") + " = ?"
	statement := "DELETE FROM " + table
	if set != "" {
		statement = "UPDATE " + table + " SET " + f.columns(set)
	}
	var n int64
	err := retry(ctx, func() (err error) {
		n, err = db.Exec(ctx, statement+where, append(args, k.Consumer, k.Space, k.Table)...)
		return err
	})
	if err == nil && n == 0 && set != "" { // MySQL does not count a row whose values stay the same
		err = db.Query(ctx, func(r *sql.Rows) error { return r.Scan(&n) }, "SELECT COUNT(*) FROM "+table+where, k.Consumer, k.Space, k.Table)
	}
	if err == nil && n == 0 {
		err = ErrNoConsumer
	}
	return err
}

// cursorTable returns a table in whose schema the cursor of a consumer is.
func cursorTable(ctx context.Context, db *sqldb.DB, k ConsumerKey) (f Flavor, place Table, err error) {
	f, err = FlavorOf(ctx, db)
	place = Table{Name: k.Table, Schema: k.Schema} // the cursor's schema, because the table may have moved since
	if k.Space != "" {
		place.Name = CursorTable
	}
	if err == nil {
		place, _, err = f.located(ctx, db, place)
	}
	return f, place, err
}

// RenameConsumers writes the new name of a renamed table into its cursors, and returns how many it changed. The
// other consumers are in unchanged: they also have a cursor with the new name, or the names have different schemas.
func RenameConsumers(ctx context.Context, db *sqldb.DB, from, to string) (renamed int64, unchanged []ConsumerKey, err error) {
	keys, err := ConsumersOf(ctx, db, from)
	if err != nil {
		return 0, nil, err
	}
	for _, k := range keys {
		f, at, err := cursorTable(ctx, db, k)
		if err == nil && inSchemaOf(from, "") == inSchemaOf(to, "") {
			err = f.change(ctx, db, at, k, "TABLE_NAME = ?, CONDITIONS = ''", to) // CONDITIONS depends on the name
		} else if err == nil {
			unchanged = append(unchanged, k)
			continue
		}
		switch {
		case err == nil:
			renamed++
		case db.IsDuplicate(err):
			unchanged = append(unchanged, k)
		case !errors.Is(err, ErrNoConsumer): // ErrNoConsumer means that the cursor was removed meanwhile
			return renamed, unchanged, fmt.Errorf("uidplugin: follow: rename the cursor of the consumer %s: %w", k, err)
		}
	}
	return renamed, unchanged, nil
}

// ConsumersOf returns the consumers of a table whose cursors are in the table's schema. The table need not exist.
func ConsumersOf(ctx context.Context, db *sqldb.DB, table string) (keys []ConsumerKey, err error) {
	f, at, err := cursorTable(ctx, db, ConsumerKey{Table: table})
	var found []CursorStatus
	if err == nil {
		found, err = f.cursorsIn(ctx, db.Quiet(), at)
	}
	if err != nil && noTable.MatchString(err.Error()) {
		return nil, nil
	}
	for _, c := range found {
		if c.Space == "" && c.Table == table {
			keys = append(keys, c.ConsumerKey)
		}
	}
	return keys, err
}

// prefixes returns prefixes for names of tables: "" for the default schema, and one for each known table's schema.
func (f Flavor) prefixes(known []string) []string {
	prefixes := []string{""}
	for _, name := range known {
		// On SQLite other schemas are files that the application attaches. A name with several dots has no schema.
		if f != SQLite && strings.Count(name, ".") == 1 {
			prefixes = append(prefixes, name[:len(name)-len(bare(name))])
		}
	}
	slices.Sort(prefixes)
	return slices.Compact(prefixes)
}

package sqldb_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/migrations"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
	"gorm.io/gorm/utils/tests"
)

var must, saysAll = testkit.Must, testkit.SaysAll

// open returns a DB on the pool of db.
func open(tb testing.TB, db *gorm.DB) *sqldb.DB {
	tb.Helper()
	d, err := sqldb.Open(db, time.Minute)
	must(tb, err)
	return d
}

// mocked returns a DB on a mock with a dialect.
func mocked(t *testing.T, dial func(gorm.ConnPool) gorm.Dialector) *sqldb.DB {
	t.Helper()
	db, _ := testkit.Mock(t, dial)
	return open(t, db)
}

// tables returns a handle on a database of its own that has the tables of package workernode.
func tables(tb testing.TB) *gorm.DB {
	tb.Helper()
	db := testkit.SQLite{}.Open(tb)
	must(tb, migrations.Up(tb.Context(), db))
	return db
}

// run executes a statement of the test.
func run(tb testing.TB, db *gorm.DB, query string, args ...any) {
	tb.Helper()
	must(tb, db.Exec(query, args...).Error)
}

// insertNode inserts a worker id.
func insertNode(db *gorm.DB, worker int64) error {
	return db.Exec(`INSERT INTO "WORKER_NODE" ("ID", "HOST_NAME", "PORT", "TYPE", "LAUNCH_DATE") VALUES (?, '', '', 1, '2024-02-29')`, worker).Error
}

func TestDBTranslate_QuotesNamesAndNumbersValuesAsTheDialectDoes(t *testing.T) {
	t.Parallel()

	const query = `SELECT "ID", MAX("FLOOR_TICK") FROM "WORKER_NODE" WHERE "ID" IN (?, ?) AND "NAME" = ?`
	my := mocked(t, testkit.OnMySQL)
	pg := mocked(t, testkit.OnPostgres)
	lite := open(t, testkit.SQLite{}.Open(t))
	for _, tt := range []struct {
		db            *sqldb.DB
		dialect, want string
	}{
		{my, "mysql", "SELECT `ID`, MAX(`FLOOR_TICK`) FROM `WORKER_NODE` WHERE `ID` IN (?, ?) AND `NAME` = ?"},
		{pg, "postgres", `SELECT "ID", MAX("FLOOR_TICK") FROM "WORKER_NODE" WHERE "ID" IN ($1, $2) AND "NAME" = $3`},
		{lite, "sqlite", "SELECT `ID`, MAX(`FLOOR_TICK`) FROM `WORKER_NODE` WHERE `ID` IN (?, ?) AND `NAME` = ?"},
	} {
		if got := tt.db.Translate(query); got != tt.want || tt.db.Dialect() != tt.dialect {
			t.Errorf("%s: %s", tt.db.Dialect(), got)
		}
	}
	if got := pg.Translate(strings.Repeat("(?, ?)", 6)); got != "($1, $2)($3, $4)($5, $6)($7, $8)($9, $10)($11, $12)" {
		t.Error(got)
	}
}

func TestIsTransient_TellsConflictsFromLastingErrors(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		err  error
		want bool
	}{
		{testkit.SQLState("40001"), true}, // serialization failure
		{testkit.SQLState("40P01"), true}, // deadlock
		{testkit.SQLState("55P03"), true}, // lock not available
		{testkit.SQLState("23505"), false},
		{testkit.SQLState("42501"), false},   // no right to
		{testkit.SQLiteCode(5), true},        // busy
		{testkit.SQLiteCode(5 | 2<<8), true}, // busy, snapshot
		{testkit.SQLiteCode(6), true},        // locked
		{testkit.SQLiteCode(6 | 1<<8), true}, // locked, shared cache
		{testkit.SQLiteCode(19), false},      // constraint
		{testkit.SQLiteCode(8), false},       // read-only
		{errors.New("Error 1205 (HY000): Lock wait timeout exceeded; try restarting transaction"), true},
		{errors.New("Error 1047 (08S01): WSREP has not yet prepared node for application use"), true},
		{errors.New("Error 1290 (HY000): The MySQL server is running with the --read-only option so it cannot execute this statement"), false}, // until an operator acts
		{errors.New("Error 1020 (HY000): Record has changed since last read in table 'WORKER_REGISTRY'"), true},
		{errors.New("Error 8002 (HY000): [2] can not retry select for update statement"), true}, // TiDB, as those below
		{errors.New("Error 8005 (HY000): Write Conflict, txnStartTS is stale"), true},
		{errors.New("Error 8022 (HY000): Error: KV error safe to retry"), true},
		{errors.New("Error 8028 (HY000): Information schema is changed during the execution of the statement"), true},
		{errors.New("Error 8027 (HY000): Information schema is out of date"), false},
		{errors.New("Error 1213 (40001): Deadlock found when trying to get lock; try restarting transaction"), true},
		{errors.New("Error 1180 (HY000): Got error 149 during COMMIT"), true},
		{errors.New("Error 3101 (40000): Plugin instructed the server to rollback the current transaction"), true},
		{errors.New("Error 1062 (23000): Duplicate entry '1205' for key 'PRIMARY'"), false},
		{errors.New("Error 12050 (HY000): no such error"), false},
		{errors.New("database is locked (5) (SQLITE_BUSY)"), true},
		{errors.New("database table is locked"), true},
		{context.DeadlineExceeded, false},
		{errors.New("no such table: WORKER_NODE"), false},
		{nil, false},
	} {
		if got := sqldb.IsTransient(tt.err); got != tt.want {
			t.Errorf("%v: %v", tt.err, got)
		}
		if tt.err != nil && sqldb.IsTransient(fmt.Errorf("workernode: %w", tt.err)) != tt.want {
			t.Errorf("%v: otherwise when wrapped", tt.err)
		}
	}
}

func TestIsReadOnly_KnowsWhatServersSay(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		err  error
		want bool
	}{
		{testkit.SQLState("25006"), true},
		{testkit.SQLState("42501"), false},
		{errors.New("Error 1290 (HY000): The MySQL server is running with the --super-read-only option so it cannot execute this statement"), true},
		{errors.New("Error 1290 (HY000): The MariaDB server is running with the --read-only option so it cannot execute this statement"), true},
		{errors.New("Error 1290 (HY000): The MySQL server is running with the --skip-grant-tables option so it cannot execute this statement"), false},
		{errors.New("Error 1836 (HY000): Running in read-only mode"), true},
		{errors.New("Error 1792 (25006): Cannot execute statement in a READ ONLY transaction"), true},
		{errors.New("Error 1062 (23000): Duplicate entry '1836' for key 'PRIMARY'"), false},
		{nil, false},
	} {
		if got := sqldb.IsReadOnly(tt.err); got != tt.want {
			t.Errorf("%v: %v", tt.err, got)
		}
	}
}

// errorOfPostgres has the one field that GORM's dialector looks at.
type errorOfPostgres struct{ Code string }

func (e errorOfPostgres) Error() string { return e.Code }

func TestDBIsDuplicate_TellsDuplicateKeysFromOtherErrors(t *testing.T) {
	t.Parallel()

	db := tables(t)
	must(t, insertNode(db, 5))
	again := insertNode(db, 5)
	null := db.Exec(`INSERT INTO "WORKER_NODE" ("ID") VALUES (6)`).Error
	if again == nil || null == nil {
		t.Fatal(again, null)
	}
	lite := open(t, db)
	pg := mocked(t, testkit.OnPostgres)
	dummy, err := gorm.Open(tests.DummyDialector{TranslatedErr: gorm.ErrDuplicatedKey}, &gorm.Config{ConnPool: hanging{}})
	must(t, err)
	for _, tt := range []struct {
		db   *sqldb.DB
		err  error
		want bool
	}{
		{lite, again, true},
		{lite, null, false},
		{lite, context.Canceled, false},
		{pg, errorOfPostgres{"23505"}, true},
		{pg, errorOfPostgres{"23502"}, false},
		{open(t, dummy), errors.New("any"), true},
	} {
		if got := tt.db.IsDuplicate(tt.err); got != tt.want {
			t.Errorf("%s: %v: %v", tt.db.Dialect(), tt.err, got)
		}
	}
}

func TestOpen_NeedsAPoolThatLasts(t *testing.T) {
	t.Parallel()

	db := testkit.SQLite{}.Open(t)
	tx := db.Begin()
	defer tx.Rollback()
	if _, err := sqldb.Open(tx, time.Second); err == nil {
		t.Error("a transaction was accepted")
	} else {
		saysAll(t, err.Error(), "transaction", "gorm.Open")
	}
	none, err := gorm.Open(tests.DummyDialector{}, &gorm.Config{})
	must(t, err)
	if _, err := sqldb.Open(none, time.Second); err == nil {
		t.Error("no pool was accepted")
	} else {
		saysAll(t, err.Error(), "no connection pool")
	}
	if _, ok := open(t, db).Stats(); !ok {
		t.Error("no statistics of a pool")
	}
}

// hanging is a pool on which each statement lasts until its context ends.
type hanging struct{ gorm.ConnPool }

func (hanging) ExecContext(ctx context.Context, _ string, _ ...any) (sql.Result, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (hanging) QueryContext(ctx context.Context, _ string, _ ...any) (*sql.Rows, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestDB_LimitsEachStatement(t *testing.T) {
	t.Parallel()

	db, err := gorm.Open(tests.DummyDialector{}, &gorm.Config{ConnPool: hanging{}, Logger: logger.Discard})
	must(t, err)
	d, err := sqldb.Open(db, time.Millisecond)
	must(t, err)
	ctx := t.Context()
	_, exec := d.Exec(ctx, "UPDATE")
	_, columns := d.Columns(ctx, "WORKER_NODE")
	for name, err := range map[string]error{
		"Exec": exec, "Columns": columns, "ExecRaw": d.ExecRaw(ctx, "CREATE"),
		"Query": d.Query(ctx, func(*sql.Rows) error { return nil }, "SELECT"),
	} {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// journal keeps what GORM's logger is told.
type journal struct {
	logger.Interface
	mu   sync.Mutex
	list []string
}

func (j *journal) Trace(_ context.Context, _ time.Time, fc func() (string, int64), err error) {
	sql, n := fc()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.list = append(j.list, fmt.Sprintf("%s [%d %v]", sql, n, err != nil))
}

// GORM's logger gets the statements with their values, except the check for tables.
func TestDB_LogsStatementsWithGORM(t *testing.T) {
	t.Parallel()

	db := tables(t)
	j := &journal{Interface: logger.Discard}
	db.Logger = j
	d := open(t, db)
	_, err := d.Columns(t.Context(), "NO_SUCH")
	if err == nil {
		t.Error("the columns of no table")
	}
	got, err := d.Columns(t.Context(), "WORKER_REGISTRY")
	must(t, err)
	var names []string
	for _, c := range got {
		names = append(names, c.Name)
	}
	if !slices.Equal(names, []string{"NAME", "ID_SPACE", "LAYOUT", "LEAD_TICKS", "NEXT_ID", "NEXT_SLOT", "FLOOR_TICK", "SCHEMA_VERSION", "STRIDE", "REMAINDER", "FIRST_ID"}) {
		t.Errorf("columns %q", names)
	}
	_, err = d.Exec(t.Context(), `INSERT INTO "WORKER_SESSION" VALUES (1, ?, ?, '', '', '', 1, '', '')`, 6, 7)
	must(t, err)
	must(t, d.Query(t.Context(), func(*sql.Rows) error { return nil }, `SELECT "SLOT" FROM "WORKER_SESSION" WHERE "BEFORE_TICK" = ?`, 7))
	if err := d.ExecRaw(t.Context(), "nonsense"); err == nil {
		t.Error("nonsense was run")
	}
	if err := d.Silent().ExecRaw(t.Context(), "hidden nonsense"); err == nil {
		t.Error("hidden nonsense was run")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	testkit.IsError(t, d.ExecRaw(ended, "cancelled nonsense"), context.Canceled)
	want := []string{
		"INSERT INTO `WORKER_SESSION` VALUES (1, 6, 7, '', '', '', 1, '', '') [1 false]",
		"SELECT `SLOT` FROM `WORKER_SESSION` WHERE `BEFORE_TICK` = 7 [1 false]",
		"nonsense [0 true]",
		"cancelled nonsense [0 false]", // as when Close ends a statement
	}
	if !slices.Equal(j.list, want) {
		t.Errorf("the log is %q", j.list)
	}
}

func TestDBQuery_EndsAtTheFirstErrorOfItsReader(t *testing.T) {
	t.Parallel()

	db := tables(t)
	for id := range int64(3) {
		must(t, insertNode(db, id+1))
	}
	calls, stop := 0, errors.New("stop")
	err := open(t, db).Query(t.Context(), func(*sql.Rows) error { calls++; return stop }, `SELECT "ID" FROM "WORKER_NODE"`)
	if !errors.Is(err, stop) || calls != 1 {
		t.Errorf("%d calls, %v", calls, err)
	}
}

// Of a row that cannot be read, an operator learns which one it is, and what is wrong with it.
func TestScan_NamesTheRow(t *testing.T) {
	t.Parallel()

	db := tables(t)
	for _, tt := range []struct{ slot, start, want string }{
		{"5", "1.5", `a row of WORKER_SESSION, with SLOT = 5 and START_TICK = 1.5, cannot be read: sql: Scan error`},
		{"'a\nb'", "7", `with SLOT = "a\nb" and START_TICK = 7`},
		{"x'00ff'", "7", `with SLOT = "\x00\xff" and START_TICK = 7`},
	} {
		run(t, db, `DELETE FROM "WORKER_SESSION"`)
		run(t, db, `INSERT INTO "WORKER_SESSION" VALUES (`+tt.slot+`, `+tt.start+`, 0, 'a', 'h', 'p', 2, '2026-06-01', 'x')`)
		var slot, start int64
		err := open(t, db).Query(t.Context(), func(rows *sql.Rows) error {
			return sqldb.Scan(rows, "WORKER_SESSION", 2, &slot, &start)
		}, `SELECT "SLOT", "START_TICK" FROM "WORKER_SESSION"`)
		testkit.IsError(t, err, nil, tt.want, "int64")
	}
}

// wired returns a DB on a database with a table t, with a limit of each statement, and its wire.
func wired(t *testing.T, limit time.Duration) (*sqldb.DB, *testkit.Wire) {
	t.Helper()
	db, wire := wiredHandle(t)
	d, err := sqldb.Open(db, limit)
	must(t, err)
	return d, wire
}

// wiredHandle returns a handle on a database with a table t, and its wire.
func wiredHandle(t *testing.T) (*gorm.DB, *testkit.Wire) {
	t.Helper()
	wire := &testkit.Wire{}
	db := wire.Open(t, testkit.SQLite{})
	run(t, db, `CREATE TABLE "T" ("A" INT)`)
	return db, wire
}

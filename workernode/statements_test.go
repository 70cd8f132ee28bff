package workernode

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode/internal/lease"
	"gorm.io/gorm"
)

// statementsOn returns the statements of a process on a handle.
func statementsOn(t *testing.T, db *gorm.DB) *statements {
	t.Helper()
	d, err := Open(db, time.Minute)
	testkit.Must(t, err)
	return &statements{db: d, layout: generator.DefaultLayout(), host: Host{Name: "web-1", Port: "8080", Kind: Container, Application: "shop"},
		launched: time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)}
}

// statementsOnTables returns the statements of a process on a SQLite database with the tables.
func statementsOnTables(t *testing.T) (*statements, *gorm.DB) {
	t.Helper()
	db := testkit.SQLite{}.Open(t)
	createTables(t, db)
	s := statementsOn(t, db)
	r, err := s.db.OpenRegistry(t.Context(), s.layout, time.Second, Region{})
	testkit.Must(t, err)
	s.space, s.region = r.Space, r.Region
	return s, db
}

// createTables executes the SQL of package migrations, which this package cannot import.
func createTables(t *testing.T, db *gorm.DB) {
	t.Helper()
	text, err := os.ReadFile("../migrations/sqlite.sql")
	testkit.Must(t, err)
	testkit.Must(t, db.Exec(string(text)).Error)
}

func at(tick int64) func() int64 { return func() int64 { return tick } }

// begun inserts the slot 1 with a session that begins at 10,000.
func begun(t *testing.T, s *statements) lease.Change {
	t.Helper()
	c := lease.Change{Slot: 1, Insert: true, NewHolder: "me", NewVersion: 1, NewFence: 11_000}
	_, _, ok, err := s.beginSession(t.Context(), &c, at(10_000))
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	return lease.Change{Slot: 1, Holder: "me", Version: 1, Fence: 11_000, NewHolder: "me", NewVersion: 2, NewFence: 11_500}
}

// Each statement changes the row only if HOLDER, VERSION and FENCE are as it compares. Without any one of them, two
// processes can be granted the same ticks.
func TestStatements_CompareHolderVersionAndFence(t *testing.T) {
	t.Parallel()

	for name, spoil := range map[string]func(*lease.Change){
		"": func(*lease.Change) {}, "slot": func(c *lease.Change) { c.Slot = 2 }, "holder": func(c *lease.Change) { c.Holder = "Me" }, "no holder": func(c *lease.Change) { c.Holder = "" },
		"version": func(c *lease.Change) { c.Version = 0 }, "fence": func(c *lease.Change) { c.Fence++ },
	} {
		for what, send := range map[string]func(ctx context.Context, s *statements, c lease.Change) (bool, error){
			"update": func(ctx context.Context, s *statements, c lease.Change) (bool, error) {
				return s.update(ctx, c, 10_100)
			},
			"session": func(ctx context.Context, s *statements, c lease.Change) (bool, error) {
				_, _, ok, err := s.beginSession(ctx, &c, at(10_100))
				return ok, err
			},
			"add": func(ctx context.Context, s *statements, c lease.Change) (bool, error) {
				_, ok, err := s.add(ctx, c, []newNode{{7, Table{Name: "items"}}}, at(10_100))
				return ok, err
			},
		} {
			s, db := statementsOnTables(t)
			c := begun(t, s)
			testkit.Must(t, db.Exec(`INSERT INTO "WORKER_NODE" ("ID", "HOST_NAME", "PORT", "TYPE", "LAUNCH_DATE", "SLOT") VALUES (5, '', '', 1, '2026-06-01', 1)`).Error)
			c.Least = 11_001
			spoil(&c)
			ok, err := send(t.Context(), s, c)
			testkit.Must(t, err)
			var fence, version, sessions, items int64
			testkit.Must(t, db.Raw(`SELECT "FENCE", "VERSION", (SELECT COUNT(*) FROM "WORKER_SESSION"), (SELECT COUNT(*) FROM "WORKER_NODE" WHERE "TABLE_NAME" = 'items') FROM "WORKER_SLOT"`).
				Row().Scan(&fence, &version, &sessions, &items))
			changed := fence == 11_500 && version == 2 && (sessions == 2) == (what == "session") && (items == 1) == (what == "add" || what == "bind")
			untouched := fence == 11_000 && version == 1 && sessions == 1 && items == 0
			if ok != (name == "") || ok && !changed || !ok && !untouched {
				t.Errorf("%s %s: %v: FENCE %d, VERSION %d, %d sessions, %d rows of items", what, name, ok, fence, version, sessions, items)
			}
		}
	}
}

// A session whose transaction waited until its fence had passed grants nothing, and leaves no trace.
func TestStatementsSession_WithoutATickIsRolledBack(t *testing.T) {
	t.Parallel()

	s, db := statementsOnTables(t)
	c := begun(t, s)
	c.Before, c.Least = 11_000, 11_001
	for _, tt := range []struct {
		now int64
		ok  bool
	}{{11_501, false}, {11_500, true}} {
		nodes, _, ok, err := s.beginSession(t.Context(), &c, at(tt.now))
		if err != nil || ok != tt.ok || len(nodes) != 0 || ok && c.First != tt.now {
			t.Errorf("at %d: %v, %v, %+v", tt.now, ok, err, c)
		}
	}
	var rows []struct{ StartTick, BeforeTick int64 }
	testkit.Must(t, db.Raw(`SELECT "START_TICK" AS start_tick, "BEFORE_TICK" AS before_tick FROM "WORKER_SESSION" ORDER BY 1`).Scan(&rows).Error)
	if len(rows) != 2 || rows[0].StartTick != 9_999 || rows[1].StartTick != 11_499 || rows[1].BeforeTick != 11_000 {
		t.Errorf("%+v", rows)
	}
}

// Two sessions with one START_TICK could not be told apart; the key refuses the second.
func TestStatementsSession_TwiceIsAnError(t *testing.T) {
	t.Parallel()

	s, _ := statementsOnTables(t)
	c := begun(t, s)
	c.Least = 10_000
	if _, _, ok, err := s.beginSession(t.Context(), &c, at(10_000)); err == nil || ok {
		t.Errorf("%v, %v", ok, err)
	}
	r, found, _, err := s.read(t.Context(), 1)
	if err != nil || !found || r.Version != 1 || r.Fence != 11_000 {
		t.Errorf("%+v, %v", r, err)
	}
}

// The worker id of another program is not overwritten, and the error says so, because other worker ids must then be
// taken.
func TestStatementsAdd_TellsOfAWorkerIDThatIsTaken(t *testing.T) {
	t.Parallel()

	s, db := statementsOnTables(t)
	c := begun(t, s)
	testkit.Must(t, db.Exec(`INSERT INTO "WORKER_NODE" ("ID", "HOST_NAME", "PORT", "TYPE", "LAUNCH_DATE") VALUES (8, 'java', '', 1, '2026-06-01')`).Error)
	_, ok, err := s.add(t.Context(), c, []newNode{{7, Table{Name: "a"}}, {8, Table{Name: "b"}}}, at(10_100))
	if !errors.Is(err, errTaken) || ok {
		t.Errorf("%v, %v", ok, err)
	}
	nodes, err := s.db.Nodes(t.Context(), 0, 10)
	if err != nil || len(nodes) != 1 || nodes[0].Slot != 0 {
		t.Errorf("%+v, %v", nodes, err)
	}
}

// START_TICK of new worker ids is just before the clock as it was read after the slot's row was locked, or the floor.
func TestStatementsAdd_SetsStartTick(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct{ floor, start int64 }{{0, 10_099}, {10_099, 10_099}, {10_100, 10_100}, {11_499, 11_499}} {
		s, db := statementsOnTables(t)
		c := begun(t, s)
		testkit.Must(t, db.Exec(`UPDATE "WORKER_REGISTRY" SET "FLOOR_TICK" = ?`, tt.floor).Error)
		start, ok, err := s.add(t.Context(), c, []newNode{{7, Table{Database: "d", Name: "a"}}, {9, Table{}}}, at(10_100))
		if err != nil || !ok || start != tt.start {
			t.Fatalf("floor %d: %d, %v, %v", tt.floor, start, ok, err)
		}
		nodes, err := s.db.nodesOf(t.Context(), 1)
		testkit.Must(t, err)
		for i, want := range []Node{{WorkerID: 7, Table: Table{"d", "a"}}, {WorkerID: 9}} {
			if n := nodes[i]; n.WorkerID != want.WorkerID || n.Table != want.Table || n.Start != tt.start || n.Slot != 1 || n.Layout != s.layout.String() {
				t.Errorf("%+v", n)
			}
		}
	}
}

// Candidates are slots that may be reclaimed, and no others: of this application and layout, reusable, and left alone
// for long enough.
func TestStatementsCandidates_AreThoseThatMayBeReclaimed(t *testing.T) {
	t.Parallel()

	s, db := statementsOnTables(t)
	p := lease.Params{Lead: 1000, Settle: 2001, Grace: 60_000, Quiet: 60_000, Last: s.layout.MaxTick()}
	now := int64(1_000_000)
	mine := s.layout.String()
	for i, r := range []struct {
		layout                          string
		reusable                        int
		fence, version                  int64
		holder                          string
		seen                            int64
		application, host, port, wanted string
	}{
		{mine, 1, now - 2002, 5, "", now, "shop", "web-1", "8080", "2"}, // same host and port
		{mine, 1, now - 2002, 5, "", 0, "shop", "web-2", "8080", "1"},
		{mine, 1, now - 2001, 5, "", 0, "shop", "web-2", "8080", ""},
		{mine, 1, now - 60_001, 5, "other", now - 60_001, "shop", "web-1", "9", "1"},
		{mine, 1, now - 60_001, 5, "other", now - 60_000, "shop", "web-1", "9", ""},
		{mine, 1, now - 60_000, 5, "other", 0, "shop", "web-1", "9", ""},
		{mine, 0, 5, 5, "", 0, "shop", "web-1", "8080", ""},
		{"other", 1, 5, 5, "", 0, "shop", "web-1", "8080", ""},
		{mine, 1, 5, 5, "", 0, "store", "web-1", "8080", ""},
		{mine, 1, -7, 5, "", 0, "shop", "", "", "1"},
		{mine, 1, 5, -1, "", 0, "shop", "", "", ""},
		{mine, 1, 5, 1 << 62, "", 0, "shop", "", "", ""},
	} {
		testkit.Must(t, db.Exec(`INSERT INTO "WORKER_SLOT" VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, CURRENT_TIMESTAMP, 0)`, i+1, r.layout, r.reusable, r.fence, r.version, r.holder, r.seen, r.application, r.host, r.port).Error)
		rows, err := s.candidatesOfApplication(t.Context(), p, now)
		testkit.Must(t, err)
		got := ""
		for _, c := range rows {
			if c.ID == int64(i+1) {
				got = []string{"0", "1", "2"}[c.Near]
			}
		}
		if got != r.wanted {
			t.Errorf("%+v: near %q", r, got)
		}
	}
	// When worker ids are used up: slots of any application that have a worker id of the tables.
	testkit.Must(t, db.Exec(`INSERT INTO "WORKER_NODE" ("ID", "HOST_NAME", "PORT", "TYPE", "LAUNCH_DATE", "SLOT", "TABLE_NAME") VALUES (5, '', '', 1, '2026-06-01', 9, 'orders'), (6, '', '', 1, '2026-06-01', 3, 'orders'), (7, '', '', 1, '2026-06-01', 2, 'items')`).Error)
	rows, err := s.candidatesWithTables(t.Context(), p, now, []Table{{Name: "orders"}, {Name: "users"}})
	if err != nil || len(rows) != 1 || rows[0].ID != 9 || rows[0].Near != 0 {
		t.Errorf("%+v, %v", rows, err)
	}
}

// Names from the tables are shown so that they cannot pass for something else in a log.
func TestPrintable_QuotesWhatCouldMislead(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]string{"orders": "orders", "": "", "a b": `"a b"`, "a\nb": `"a\nb"`, "x, y 5": `"x, y 5"`, "\x00": `"\x00"`, `a"b`: `"a\"b"`, "表": "表"} {
		if got := printable(text); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// The statements in the words of MySQL and PostgreSQL. A change of them has to be tried on servers, too.
func TestStatements_AreTranslated(t *testing.T) {
	t.Parallel()

	for name, dial := range map[string]func(gorm.ConnPool) gorm.Dialector{"mysql": testkit.OnMySQL, "postgres": testkit.OnPostgres} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			db, mock := testkit.Mock(t, dial)
			s := statementsOn(t, db)
			words := func(mysql, postgres string) string {
				if name == "mysql" {
					return strings.ReplaceAll(mysql, `"`, "`")
				}
				return postgres
			}
			one := sqlmock.NewResult(0, 1)
			mock.ExpectBegin()
			mock.ExpectExec(words(`UPDATE "WORKER_SLOT" SET "FENCE" = ?, "VERSION" = ?, "HOLDER" = ?, "SEEN_TICK" = ?, "APPLICATION" = ?, "HOST_NAME" = ?, "PORT" = ?, "MODIFIED" = CURRENT_TIMESTAMP WHERE "ID" = ? AND "HOLDER" = ? AND "VERSION" = ? AND "FENCE" = ?`,
				`UPDATE "WORKER_SLOT" SET "FENCE" = $1, "VERSION" = $2, "HOLDER" = $3, "SEEN_TICK" = $4, "APPLICATION" = $5, "HOST_NAME" = $6, "PORT" = $7, "MODIFIED" = CURRENT_TIMESTAMP WHERE "ID" = $8 AND "HOLDER" = $9 AND "VERSION" = $10 AND "FENCE" = $11`)).
				WithArgs(11_500, 2, "me", 10_100, "shop", "web-1", "8080", 1, "you", 1, 10_000).WillReturnResult(one)
			kept := words(`SELECT COALESCE("R"."FLOOR_TICK", 0), COALESCE("R"."ID_SPACE", '') FROM "WORKER_SLOT" "S" LEFT JOIN "WORKER_REGISTRY" "R" ON "R"."NAME" = ? WHERE "S"."ID" = ? AND "S"."HOLDER" = ? AND "S"."VERSION" = ? AND "S"."FENCE" = ?`,
				`SELECT COALESCE("R"."FLOOR_TICK", 0), COALESCE("R"."ID_SPACE", '') FROM "WORKER_SLOT" "S" LEFT JOIN "WORKER_REGISTRY" "R" ON "R"."NAME" = $1 WHERE "S"."ID" = $2 AND "S"."HOLDER" = $3 AND "S"."VERSION" = $4 AND "S"."FENCE" = $5`)
			mock.ExpectQuery(kept).WithArgs("default", 1, "me", 2, 11_500).WillReturnRows(sqlmock.NewRows(make([]string, 2)).AddRow(10_200, ""))
			mock.ExpectExec(words(`INSERT INTO "WORKER_SESSION" ("SLOT", "START_TICK", "BEFORE_TICK", "APPLICATION", "HOST_NAME", "PORT", "TYPE", "LAUNCHED", "HOLDER") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
				`INSERT INTO "WORKER_SESSION" ("SLOT", "START_TICK", "BEFORE_TICK", "APPLICATION", "HOST_NAME", "PORT", "TYPE", "LAUNCHED", "HOLDER") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`)).
				WithArgs(1, 10_200, 10_000, "shop", "web-1", "8080", 1, "2026-06-01 12:00:00.000", "me").WillReturnResult(one)
			mock.ExpectQuery(words(selectNodes+` WHERE "SLOT" = ? ORDER BY "ID"`, selectNodes+` WHERE "SLOT" = $1 ORDER BY "ID"`)).
				WithArgs(1).WillReturnRows(sqlmock.NewRows(make([]string, 7)).AddRow(7, 1, "", "orders", s.layout.String(), 5, time.Time{}))
			mock.ExpectCommit()
			c := lease.Change{Slot: 1, Holder: "you", Version: 1, Fence: 10_000, NewHolder: "me", NewVersion: 2, NewFence: 11_500, Before: 10_000, Least: 10_001}
			nodes, floor, ok, err := s.beginSession(t.Context(), &c, at(10_100))
			if err != nil || !ok || floor != 10_200 || c.First != 10_201 || len(nodes) != 1 || nodes[0].Table.Name != "orders" {
				t.Errorf("%+v, %d, %v, %v", nodes, floor, ok, err)
			}

			mock.ExpectBegin()
			mock.ExpectExec(words(`UPDATE "WORKER_SLOT" SET "FENCE" = ?, "VERSION" = ?, "HOLDER" = ?, "SEEN_TICK" = ?, "MODIFIED" = CURRENT_TIMESTAMP WHERE "ID" = ? AND "HOLDER" = ? AND "VERSION" = ? AND "FENCE" = ?`,
				`UPDATE "WORKER_SLOT" SET "FENCE" = $1, "VERSION" = $2, "HOLDER" = $3, "SEEN_TICK" = $4, "MODIFIED" = CURRENT_TIMESTAMP WHERE "ID" = $5 AND "HOLDER" = $6 AND "VERSION" = $7 AND "FENCE" = $8`)).WillReturnResult(one)
			mock.ExpectQuery(kept).WithArgs("default", 1, "me", 3, 11_600).WillReturnRows(sqlmock.NewRows(make([]string, 2)).AddRow(0, ""))
			const head = `INSERT INTO "WORKER_NODE" ("ID", "HOST_NAME", "PORT", "TYPE", "LAUNCH_DATE", "MODIFIED", "CREATED", "SLOT", "DATABASE_NAME", "TABLE_NAME", "LAYOUT", "START_TICK") SELECT "N"."ID", `
			const middle = `, 1, CURRENT_DATE, CURRENT_TIMESTAMP, CURRENT_TIMESTAMP, "S"."ID", "N"."DATABASE_NAME", "N"."TABLE_NAME", "S"."LAYOUT", 10099 FROM "WORKER_SLOT" "S" CROSS JOIN (`
			mock.ExpectExec(words(head+`?, ?`+middle+`SELECT 7 AS "ID", SUBSTR(?, 1) AS "DATABASE_NAME", SUBSTR(?, 1) AS "TABLE_NAME" UNION ALL SELECT 8, SUBSTR(?, 1), SUBSTR(?, 1)) "N" WHERE "S"."ID" = ? AND "S"."HOLDER" = ? AND "S"."VERSION" = ?`,
				head+`$1, $2`+middle+`SELECT 7 AS "ID", SUBSTR($3, 1) AS "DATABASE_NAME", SUBSTR($4, 1) AS "TABLE_NAME" UNION ALL SELECT 8, SUBSTR($5, 1), SUBSTR($6, 1)) "N" WHERE "S"."ID" = $7 AND "S"."HOLDER" = $8 AND "S"."VERSION" = $9`)).
				WithArgs("web-1", "8080", "", "items", "d", "items", 1, "me", 3).WillReturnResult(sqlmock.NewResult(0, 1))
			mock.ExpectRollback()
			c = lease.Change{Slot: 1, Holder: "me", Version: 2, Fence: 11_500, NewHolder: "me", NewVersion: 3, NewFence: 11_600}
			_, ok, err = s.add(t.Context(), c, []newNode{{7, Table{"", "items"}}, {8, Table{"d", "items"}}}, at(10_100))
			if testkit.IsError(t, err, nil, "add worker ids to slot 1", "1 new rows, not 2"); ok { // one new row of two
				t.Error("it has added rows")
			}
		})
	}
}

// If a trigger or a narrow column changes a row that is inserted into WORKER_NODE, ids would resolve to a table that
// does not exist.
func TestStatementsAdd_RefusesARowThatWasNotKept(t *testing.T) {
	t.Parallel()

	for _, change := range []string{`"TABLE_NAME" = 'x'`, `"SLOT" = 2`, `"START_TICK" = 0`, `"LAYOUT" = ''`, `"DATABASE_NAME" = 'x'`, `"ID" = 8`} {
		s, db := statementsOnTables(t)
		c := begun(t, s)
		testkit.Must(t, db.Exec(`CREATE TRIGGER "T" AFTER INSERT ON "WORKER_NODE" BEGIN UPDATE "WORKER_NODE" SET `+change+`; END`).Error)
		_, _, err := s.add(t.Context(), c, []newNode{{7, Table{Name: "orders"}}}, at(10_100))
		testkit.IsError(t, err, ErrTable, "did not keep "+strings.Split(change, `"`)[1]+" = ", "of worker id 7 in WORKER_NODE", "trigger")
		if nodes, err := s.db.nodesOf(t.Context(), 1); err != nil || len(nodes) != 0 {
			t.Errorf("%s: %d rows, %v", change, len(nodes), err)
		}
	}
}

package migrations_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/migrations"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

var must = testkit.Must

// A tap keeps the statements of the code under test, and fails those that the function fail selects.
type tap struct {
	mu   sync.Mutex
	list []string
	fail func(statement string) error
}

func (p *tap) before(_ context.Context, statement string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = append(p.list, statement)
	if p.fail == nil {
		return nil
	}
	return p.fail(statement)
}

// handle returns a handle on a SQLite file, for the test itself.
func handle(tb testing.TB, path string, options ...string) *gorm.DB {
	tb.Helper()
	return testkit.SQLite{Path: path, Params: options}.Open(tb)
}

// open returns two handles on a new database: one for the test, and one with a pool of its own for the code under
// test.
func open(tb testing.TB) (*gorm.DB, *gorm.DB, *tap) {
	tb.Helper()
	path, p := testkit.SQLitePath(tb), &tap{}
	d := handle(tb, path)
	plugintest.Tapped(d, p.before)
	return handle(tb, path), d, p
}

// shape returns the columns and indexes of the tables, as SQLite describes them.
func shape(t *testing.T, db *gorm.DB) (lines []string) {
	t.Helper()
	var rows []struct {
		Table, Name, Type string
		Notnull, Pk       int
		Default           *string
	}
	must(t, db.Raw(`SELECT m.name AS "table", c.name, c.type, c."notnull", c.pk, c.dflt_value AS "default"
		FROM sqlite_master m, pragma_table_info(m.name) c WHERE m.type = 'table' AND m.name LIKE 'WORKER%' ORDER BY m.name, c.cid`).Scan(&rows).Error)
	for _, r := range rows {
		value := "-"
		if r.Default != nil {
			value = *r.Default
		}
		lines = append(lines, fmt.Sprint(r.Table, ".", r.Name, " ", r.Type, " ", r.Notnull, " ", r.Pk, " ", value))
	}
	var indexes []string
	must(t, db.Raw(`SELECT m.name || ' ' || i.name || ' ' || c.name FROM sqlite_master m, pragma_index_list(m.name) i, pragma_index_info(i.name) c
		WHERE m.type = 'table' AND m.name LIKE 'WORKER%' ORDER BY 1`).Scan(&indexes).Error)
	return append(lines, indexes...)
}

// byHand runs the file, as a person does.
func byHand(t *testing.T, db *gorm.DB) {
	t.Helper()
	text, err := migrations.Files.ReadFile("sqlite.sql")
	must(t, err)
	must(t, db.Exec(string(text)).Error)
}

// uidGenerator makes the table of UidGenerator with two rows.
func uidGenerator(t *testing.T, db *gorm.DB) {
	t.Helper()
	must(t, db.Exec(`CREATE TABLE "WORKER_NODE" (
  "ID" INTEGER PRIMARY KEY AUTOINCREMENT,
  "HOST_NAME" VARCHAR(64) NOT NULL,
  "PORT" VARCHAR(64) NOT NULL,
  "TYPE" INT NOT NULL,
  "LAUNCH_DATE" DATE NOT NULL,
  "MODIFIED" TIMESTAMP NOT NULL,
  "CREATED" TIMESTAMP NOT NULL
)`).Error)
	for range 2 {
		java(t, db)
	}
}

// java inserts a row as UidGenerator does.
func java(t *testing.T, db *gorm.DB) {
	t.Helper()
	must(t, db.Exec(`INSERT INTO "WORKER_NODE" ("HOST_NAME", "PORT", "TYPE", "LAUNCH_DATE", "MODIFIED", "CREATED")
		VALUES ('java-1', '8080', 1, '2024-02-29', '2024-02-29 13:14:15', '2024-02-29 13:14:15')`).Error)
}

// rows returns the first seven columns of all rows.
func rows(t *testing.T, db *gorm.DB) (list []string) {
	t.Helper()
	must(t, db.Raw(`SELECT "ID" || "HOST_NAME" || "PORT" || "TYPE" || "LAUNCH_DATE" || "MODIFIED" || "CREATED" FROM "WORKER_NODE" ORDER BY "ID"`).
		Scan(&list).Error)
	return list
}

func TestUp_CreatesWhatTheFileCreates(t *testing.T) {
	t.Parallel()

	db, d, _ := open(t)
	must(t, migrations.Up(t.Context(), d))
	other, _, _ := open(t)
	byHand(t, other)
	up, hand := shape(t, db), shape(t, other)
	if len(up) < 39 || !slices.Equal(up, hand) {
		t.Errorf("Up makes\n\t%s\nand the file\n\t%s", strings.Join(up, "\n\t"), strings.Join(hand, "\n\t"))
	}
	byHand(t, other) // again does no harm
	must(t, migrations.Check(t.Context(), d))
}

func TestUp_OnlyReadsTheSecondTime(t *testing.T) {
	t.Parallel()

	_, d, p := open(t)
	must(t, migrations.Up(t.Context(), d))
	p.list = nil
	must(t, migrations.Up(t.Context(), d))
	must(t, migrations.Check(t.Context(), d))
	if len(p.list) == 0 || slices.ContainsFunc(p.list, func(s string) bool { return !strings.HasPrefix(s, "SELECT ") }) {
		t.Errorf("statements %q", p.list)
	}
}

func TestUp_NeedsOnlyTheRightToReadWhereNothingIsMissing(t *testing.T) {
	t.Parallel()

	path := filepath.Join(t.TempDir(), "test.db")
	byHand(t, handle(t, path))
	d := handle(t, path, "mode=ro")
	must(t, migrations.Up(t.Context(), d))

	path = filepath.Join(t.TempDir(), "empty.db")
	must(t, handle(t, path).Exec("CREATE TABLE t (a)").Error)
	d = handle(t, path, "mode=ro")
	err := migrations.Up(t.Context(), d)
	testkit.IsError(t, err, workernode.ErrTable, "migrations: WORKER_NODE", "manually", "sqlite.sql", "right", "readonly")
}

func TestUp_ExtendsTheTableOfUidGenerator(t *testing.T) {
	t.Parallel()

	db, d, _ := open(t)
	uidGenerator(t, db)
	before := rows(t, db)
	must(t, migrations.Up(t.Context(), d))
	must(t, migrations.Check(t.Context(), d))
	if after := rows(t, db); len(before) != 2 || !slices.Equal(after, before) {
		t.Errorf("the rows were %q and are %q", before, after)
	}
	var added []string
	must(t, db.Raw(`SELECT COALESCE("SLOT", 'NULL') || '|' || "DATABASE_NAME" || '|' || "TABLE_NAME" || '|' || "LAYOUT" || '|' || "START_TICK" FROM "WORKER_NODE"`).Scan(&added).Error)
	if !slices.Equal(added, []string{"NULL||||0", "NULL||||0"}) {
		t.Errorf("the new columns are %q", added)
	}
	java(t, db) // still works
	if n := len(rows(t, db)); n != 3 {
		t.Errorf("%d rows", n)
	}
	// Up adds the columns that it would have created.
	fresh, f, _ := open(t)
	must(t, migrations.Up(t.Context(), f))
	isAdded := func(line string) bool {
		return !strings.HasPrefix(line, "WORKER_NODE") || strings.Contains(line, "IDX_") ||
			slices.ContainsFunc([]string{"SLOT", "DATABASE_NAME", "TABLE_NAME", "LAYOUT", "START_TICK"}, func(c string) bool {
				return strings.HasPrefix(line, "WORKER_NODE."+c+" ")
			})
	}
	keep := func(lines []string) []string {
		return slices.DeleteFunc(lines, func(l string) bool { return !isAdded(l) })
	}
	if got, want := keep(shape(t, db)), keep(shape(t, fresh)); len(got) < 10 || !slices.Equal(got, want) {
		t.Errorf("added\n\t%s\nnot\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// After an interruption at any statement, the next Up finishes the work.
func TestUp_ContinuesWhereItWasInterrupted(t *testing.T) {
	t.Parallel()

	for after := range 10 {
		db, d, p := open(t)
		uidGenerator(t, db)
		before, changes := rows(t, db), 0
		broken := errors.New("the cable is broken")
		p.fail = func(s string) error {
			if !strings.HasPrefix(s, "SELECT") {
				if changes++; changes > after {
					return broken
				}
			}
			return nil
		}
		first := migrations.Up(t.Context(), d)
		if changes > after && !errors.Is(first, broken) {
			t.Errorf("after %d changes: %v", after, first)
		}
		p.fail = nil
		must(t, migrations.Up(t.Context(), d))
		must(t, migrations.Check(t.Context(), d))
		if got := rows(t, db); !slices.Equal(got, before) {
			t.Errorf("the rows are %q", got)
		}
	}
}

// If Up could not create an index, it returns an error, or the next Up creates the index.
func TestUp_DoesNotForgetAnIndexThatItCouldNotCreate(t *testing.T) {
	t.Parallel()

	for _, start := range []string{"empty", "UidGenerator"} {
		db, d, p := open(t)
		if start == "UidGenerator" {
			uidGenerator(t, db)
		}
		broken := errors.New("the disk is full")
		p.fail = func(s string) error {
			if strings.HasPrefix(s, "CREATE INDEX") {
				return broken
			}
			return nil
		}
		testkit.IsError(t, migrations.Up(t.Context(), d), broken)
		p.fail = nil
		must(t, migrations.Up(t.Context(), d))
		if !slices.ContainsFunc(shape(t, db), func(l string) bool { return strings.Contains(l, "IDX_WORKER_NODE_SLOT") }) {
			t.Errorf("%s: the index is missing", start)
		}
	}
}

// If a statement fails because another process has created the table, Up checks again and succeeds.
func TestUp_AcceptsWhatAnotherProcessHasCreated(t *testing.T) {
	t.Parallel()

	db, d, p := open(t)
	exists := errors.New("Error 1050 (42S01): Table 'WORKER_NODE' already exists")
	p.fail = func(s string) error {
		if strings.HasPrefix(s, "CREATE TABLE") {
			byHand(t, db)
			return exists
		}
		return nil
	}
	must(t, migrations.Up(t.Context(), d))
}

func TestMigrations_RefuseAnUnknownDialect(t *testing.T) {
	t.Parallel()

	db := plugintest.Nowhere(t)
	testkit.IsError(t, migrations.Up(t.Context(), db), errors.ErrUnsupported)
	testkit.IsError(t, migrations.CreateFunctions(t.Context(), db), errors.ErrUnsupported, `"dummy"`)
}

package follow_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/follow"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

const (
	createEvents = "CREATE TABLE events (id BIGINT PRIMARY KEY, v BIGINT)"
	rename       = "ALTER TABLE events RENAME TO events_old"
)

// swaps are what schema-change tools and people do to a followed table events, by engine. The former table is
// events_old then, if it still exists.
var swaps = []struct {
	name       string
	engines    string // empty: all
	statements []string
}{
	{"gh-ost", "mariadb mysql", []string{
		"CREATE TABLE _events_gho LIKE events", "RENAME TABLE events TO events_old, _events_gho TO events",
	}},
	{"pt-online-schema-change", "mariadb mysql", []string{
		"CREATE TABLE _events_new LIKE events",
		"CREATE TRIGGER pt_osc_ins AFTER INSERT ON events FOR EACH ROW REPLACE INTO _events_new (id, v) VALUES (NEW.id, NEW.v)",
		"RENAME TABLE events TO events_old, _events_new TO events", "DROP TRIGGER pt_osc_ins",
	}},
	{"a new table", "", []string{rename, createEvents}},
	{"a dropped table", "", []string{"DROP TABLE events", createEvents}},
	{"a copy", "postgres", []string{
		"CREATE TABLE events_new (LIKE events INCLUDING ALL)", rename, "ALTER TABLE events_new RENAME TO events",
	}},
	{"a table with partitions", "postgres", []string{
		rename, "CREATE TABLE events (id BIGINT PRIMARY KEY, v BIGINT) PARTITION BY RANGE (id)",
		"ALTER TABLE events_old ALTER COLUMN id SET NOT NULL",
		"CREATE TABLE events_p PARTITION OF events FOR VALUES FROM (0) TO (9000000000000000000)",
	}},
	{"the old table as a partition", "postgres", []string{
		"ALTER TABLE events RENAME TO events_p", "CREATE TABLE events (id BIGINT PRIMARY KEY, v BIGINT) PARTITION BY RANGE (id)",
		"ALTER TABLE events ATTACH PARTITION events_p FOR VALUES FROM (0) TO (9000000000000000000)",
	}},
	{"there and back", "", []string{
		rename, createEvents, "ALTER TABLE events RENAME TO events_new", "ALTER TABLE events_old RENAME TO events",
	}},
	{"a disabled trigger", "postgres", []string{"ALTER TABLE events DISABLE TRIGGER USER"}},
	{"a trigger for replicas", "postgres", []string{"ALTER TABLE events ENABLE REPLICA TRIGGER uid_follow_events_862417"}},
	{"a trigger that does nothing", "mariadb mysql", []string{
		"DROP TRIGGER uid_follow_events_862417",
		"CREATE TRIGGER uid_follow_events_862417 AFTER INSERT ON events FOR EACH ROW SET @nothing = 1",
	}},
	{"a trigger that does nothing", "sqlite", []string{
		"DROP TRIGGER uid_follow_events_862417", "CREATE TRIGGER uid_follow_events_862417 AFTER INSERT ON events BEGIN SELECT 1; END",
	}},
	{"without a trigger", "mariadb mysql sqlite", []string{"DROP TRIGGER uid_follow_events_862417"}},
}

// eachSwap runs a test after each swap.
func eachSwap(t *testing.T, test func(t *testing.T, e followed, mark int64)) {
	t.Helper()
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		for _, s := range swaps {
			if s.engines != "" && !slices.Contains(strings.Fields(s.engines), d.Name) {
				continue
			}
			t.Run(s.name, func(t *testing.T) {
				e := enable(t, d.New(t))
				mark := testkit.Advanced(t, e.mark)
				time.Sleep(20 * time.Millisecond) // MySQL and MariaDB tell triggers apart by hundredths of a second
				for _, statement := range s.statements {
					testkit.Must(t, e.db.Exec(statement).Error)
				}
				test(t, e, mark)
			})
		}
	})
}

// isGuarded reports whether a table refuses rows below a mark.
func isGuarded(t *testing.T, db *gorm.DB, table string, mark int64) bool {
	t.Helper()
	err := db.Exec("INSERT INTO "+table+" (id) VALUES (?)", mark-1).Error
	if err != nil {
		testkit.SaysAll(t, err.Error(), "uid_follow: too late")
		return true
	}
	testkit.Must(t, db.Exec("DELETE FROM "+table+" WHERE id = ?", mark-1).Error)
	return false
}

// triggers returns the names of all triggers that begin like ours, with their tables.
func (e followed) triggers(t *testing.T) (names []string) {
	t.Helper()
	query := "SELECT CONCAT(TRIGGER_NAME, ' ', EVENT_OBJECT_TABLE) FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA = DATABASE()"
	switch e.f {
	case follow.Postgres:
		query = "SELECT tgname || ' ' || tgrelid::regclass FROM pg_trigger WHERE tgname LIKE 'uid%' AND tgrelid IN" +
			" (SELECT oid FROM pg_class WHERE relnamespace = current_schema()::regnamespace)"
	case follow.SQLite:
		query = "SELECT name || ' ' || tbl_name FROM sqlite_schema WHERE type = 'trigger'"
	}
	testkit.Must(t, e.db.Raw(query).Scan(&names).Error)
	return names
}

// A trigger stays with the table that is renamed, and its name is taken in the whole database on MySQL, MariaDB and
// SQLite. follow.Enable used to return nil although the new table had no trigger.
func TestEnable_GuardsTheTableThatHasTheNameNow(t *testing.T) {
	eachSwap(t, func(t *testing.T, e followed, mark int64) {
		testkit.Must(t, follow.Enable(t.Context(), e.conn, e.table))
		again := testkit.Advanced(t, e.mark)
		if again < mark {
			t.Fatalf("%d after %d", again, mark)
		}
		if !isGuarded(t, e.db, "events", again) {
			t.Error("it is not guarded")
		}
		testkit.Must(t, e.db.Exec("INSERT INTO events (id) VALUES (?)", again).Error)
		if e.db.Migrator().HasTable("events_old") && isGuarded(t, e.db, "events_old", mark) {
			t.Error("the renamed table still has the trigger")
		}
		testkit.Must(t, follow.Disable(t.Context(), e.conn, e.table))
		if left := e.triggers(t); len(left) > 0 || isGuarded(t, e.db, "events", again) {
			t.Errorf("after Disable: %q", left)
		}
	})
}

// Disable removes the trigger wherever it is now, or nothing at all.
func TestDisable_RemovesTheTriggerFromTheTableThatHasIt(t *testing.T) {
	eachSwap(t, func(t *testing.T, e followed, mark int64) {
		testkit.Must(t, follow.Disable(t.Context(), e.conn, e.table))
		if left := e.triggers(t); len(left) > 0 || isGuarded(t, e.db, "events", mark) {
			t.Errorf("%q", left)
		}
		if e.db.Migrator().HasTable("events_old") && isGuarded(t, e.db, "events_old", mark) {
			t.Error("the renamed table still refuses rows")
		}
		if list, err := follow.List(t.Context(), e.conn, generator.DefaultLayout()); err != nil || len(list) > 0 {
			t.Errorf("%+v, %v", list, err)
		}
		testkit.Must(t, follow.Enable(t.Context(), e.conn, e.table))
		if !isGuarded(t, e.db, "events", testkit.Advanced(t, e.mark)) {
			t.Error("enabled again, it is not guarded")
		}
	})
}

// The renamed table may be followed under its new name, whether Enable is called for it before or after the new table.
func TestEnable_GuardsTheRenamedTableToo(t *testing.T) {
	eachSwap(t, func(t *testing.T, e followed, _ int64) {
		if !e.db.Migrator().HasTable("events_old") {
			return
		}
		old := follow.Table{Name: "events_old", Key: "id", Slack: time.Second}
		for _, first := range []follow.Table{old, e.table} {
			second := e.table
			if first.Name == second.Name {
				second = old
			}
			for _, table := range []follow.Table{first, second} {
				testkit.Must(t, follow.Enable(t.Context(), e.conn, table))
			}
			for _, table := range []follow.Table{first, second} {
				mark := testkit.Advanced(t, follow.NewMark(e.conn, table, generator.DefaultLayout(), time.Now))
				if !isGuarded(t, e.db, table.Name, mark) {
					t.Errorf("%s is not guarded by %d", table.Name, mark)
				}
			}
			if got := e.triggers(t); len(got) < 2 {
				t.Errorf("%q", got)
			}
			testkit.Must(t, follow.Disable(t.Context(), e.conn, first))
			mark := testkit.Advanced(t, follow.NewMark(e.conn, second, generator.DefaultLayout(), time.Now))
			if !isGuarded(t, e.db, second.Name, mark) || isGuarded(t, e.db, first.Name, mark) {
				t.Errorf("%s after Disable of %s", second.Name, first.Name)
			}
			testkit.Must(t, follow.Disable(t.Context(), e.conn, second))
			if left := e.triggers(t); len(left) > 0 {
				t.Errorf("%q", left)
			}
		}
	})
}

// Until follow.Enable is called, followers get an error instead of rows that nobody guards.
func TestMark_NoticesASwappedTable(t *testing.T) {
	eachSwap(t, func(t *testing.T, e followed, _ int64) {
		_, err := e.mark.Advance(t.Context())
		if strings.HasSuffix(t.Name(), "there_and_back") && err == nil {
			return // the table has its trigger again
		}
		testkit.IsError(t, err, follow.ErrNotEnabled, "call follow.Enable again")
	})
}

// The processes of a deployment start at the same time, and each calls follow.Enable. None removes the trigger that
// another one has just created.
func TestEnable_ManyAtOnceAfterASwap(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		e := enable(t, d)
		for round := range 3 {
			mark := testkit.Advanced(t, e.mark)
			testkit.Must(t, e.db.Exec(fmt.Sprintf("%s_%d", rename, round)).Error)
			testkit.Must(t, e.db.Exec(createEvents).Error)
			var enabling sync.WaitGroup
			for range 4 {
				conn, err := sqldb.Open(d.Open(t, nil), time.Minute)
				testkit.Must(t, err)
				enabling.Go(func() {
					if err := follow.Enable(t.Context(), conn, e.table); err != nil {
						t.Error(err)
					}
					if _, err := follow.NewMark(conn, e.table, generator.DefaultLayout(), time.Now).Advance(t.Context()); err != nil {
						t.Errorf("after Enable has returned: %v", err)
					}
				})
			}
			enabling.Wait()
			if !isGuarded(t, e.db, "events", mark) {
				t.Error("it is not guarded")
			}
		}
	})
}

// A dump contains the trigger, so the restored table has a new trigger with the same text. It guards the table already,
// and must not be dropped meanwhile.
func TestEnable_AcceptsARestoredTrigger(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		e := enable(t, d)
		mark := testkit.Advanced(t, e.mark)
		dump := map[string]string{
			"postgres": "SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgrelid = 'events'::regclass",
			"sqlite":   "SELECT sql FROM sqlite_schema WHERE type = 'trigger'",
		}[d.Name]
		text := ""
		if d.IsMySQL() {
			row := map[string]any{}
			testkit.Must(t, e.db.Raw("SHOW CREATE TRIGGER uid_follow_events_862417").Scan(&row).Error)
			text = fmt.Sprint(row["SQL Original Statement"])
			time.Sleep(20 * time.Millisecond) // as above
		} else {
			testkit.Must(t, e.db.Raw(dump).Scan(&text).Error)
		}
		for _, statement := range []string{"DROP TABLE events", createEvents, text} {
			testkit.Must(t, e.db.Exec(statement).Error)
		}
		before := e.identity(t)
		testkit.Must(t, follow.Enable(t.Context(), e.conn, e.table))
		if after := e.identity(t); after != before {
			t.Errorf("the trigger was %s, and is %s", before, after)
		}
		if again := testkit.Advanced(t, e.mark); again < mark || !isGuarded(t, e.db, "events", again) {
			t.Errorf("%d after %d", again, mark)
		}
	})
}

// identity returns when the trigger was created, or its number.
func (e followed) identity(t *testing.T) (id string) {
	t.Helper()
	query := "SELECT CREATED FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA = DATABASE()"
	switch e.f {
	case follow.Postgres:
		query = "SELECT oid FROM pg_trigger WHERE tgrelid = 'events'::regclass"
	case follow.SQLite:
		query = "SELECT sql || rowid FROM sqlite_schema WHERE type = 'trigger'"
	}
	testkit.Must(t, e.db.Raw(query).Scan(&id).Error)
	return id
}

// A trigger compares one column. Enable for another one must not return nil and change nothing.
func TestEnable_RefusesAnotherKey(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		e := enable(t, d)
		table := e.table
		table.Key = "v"
		testkit.IsError(t, follow.Enable(t.Context(), e.conn, table), nil, "its trigger compares the column id, not v", "follow.Disable")
		testkit.Must(t, follow.Disable(t.Context(), e.conn, table))
		testkit.Must(t, follow.Enable(t.Context(), e.conn, table))
	})
}

// A new table may have another key than the one that it replaces. UID_FOLLOW must have the new one: otherwise the next
// follow.Enable refuses the table, and the doctor looks for the old column.
func TestEnable_StoresTheKeyOfANewTable(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		e := enable(t, d)
		testkit.Must(t, e.db.Exec(rename).Error)
		testkit.Must(t, e.db.Exec("CREATE TABLE events (event_id BIGINT PRIMARY KEY, v BIGINT)").Error)
		e.table.Key = "event_id"
		for range 2 {
			testkit.Must(t, follow.Enable(t.Context(), e.conn, e.table))
		}
		if s := e.status(t); s.Key != "event_id" || s.Refused != nil {
			t.Errorf("%+v", s)
		}
	})
}

package follow_test

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/follow"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// A followed table is the table events of a database.
type followed struct {
	db    *gorm.DB
	conn  *sqldb.DB
	f     follow.Flavor
	table follow.Table
	mark  *follow.Mark
}

func enable(t *testing.T, d *testkit.Database) followed {
	t.Helper()
	e := followed{db: d.Open(t, nil), table: follow.Table{Name: "events", Key: "id", Slack: time.Second}}
	testkit.Must(t, e.db.AutoMigrate(&event{}))
	var err error
	e.conn, err = sqldb.Open(e.db, time.Minute)
	testkit.Must(t, err)
	e.f, err = follow.FlavorOf(t.Context(), e.conn)
	testkit.Must(t, err)
	testkit.Must(t, follow.Enable(t.Context(), e.conn, e.table))
	e.mark = follow.NewMark(e.conn, e.table, generator.DefaultLayout(), time.Now)
	return e
}

var capitals = regexp.MustCompile(`[A-Z_]*_[A-Z_]+|PUBLISHED|SLACK|CLOSER|CONSUMER|CONDITIONS|SPACE|ATTEMPTS|ERROR`)

// quoted quotes the names of our tables and columns, because PostgreSQL folds those without quotes to lower case.
func (e followed) quoted(statement string) string {
	return capitals.ReplaceAllStringFunc(statement, func(name string) string { return e.db.Statement.Quote(name) })
}

// status returns the status of events.
func (e followed) status(t *testing.T) follow.Status {
	t.Helper()
	list, err := follow.List(t.Context(), e.conn, generator.DefaultLayout())
	testkit.Must(t, err)
	if len(list) != 1 {
		t.Fatalf("%+v", list)
	}
	checkUnread(t, list[0])
	return list[0]
}

// checkUnread checks that all was read. On our MySQL performance_schema is off, so the test in integration/follow starts
// another server.
func checkUnread(t *testing.T, s follow.Status) {
	t.Helper()
	if s.Unread != nil && !strings.Contains(s.Unread.Error(), "performance_schema is OFF") {
		t.Error(s.Unread)
	}
}

func (e followed) id(t *testing.T, ago time.Duration) int64 {
	t.Helper()
	id, err := follow.MarkAt(generator.DefaultLayout(), time.Now().Add(-ago))
	testkit.Must(t, err)
	return id
}

func TestList_ShowsTheMarkAndTheTrigger(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		conn, err := sqldb.Open(d.Open(t, nil), time.Minute)
		testkit.Must(t, err)
		if list, err := follow.List(t.Context(), conn, generator.DefaultLayout(), "missing.events"); err != nil || len(list) > 0 {
			t.Errorf("without UID_FOLLOW: %v, %v", list, err)
		}
		if _, ok, err := follow.StatusOf(t.Context(), conn, generator.DefaultLayout(), "events"); err != nil || ok {
			t.Errorf("without UID_FOLLOW: %t, %v", ok, err)
		}
		e := enable(t, d)
		s := e.status(t)
		if s.Table != "events" || s.Key != "id" || s.Slack != time.Second || s.Published != 0 || s.Raised != 1 || s.Behind() != 0 ||
			s.Closing() || s.Trigger != follow.TriggerInstalled || time.Since(s.Now).Abs() > time.Minute {
			t.Errorf("after Enable: %+v", s)
		}
		published := testkit.Advanced(t, e.mark)
		s = e.status(t)
		if s.Published != published || s.Raised != published || s.Behind() < time.Second || s.Behind() > 2*time.Minute || s.Ahead() != 0 || !s.Closing() {
			t.Errorf("after a round: %+v, behind %v", s, s.Behind())
		}
		trigger := triggerOf(t, e)
		drop := "DROP TRIGGER " + trigger
		if e.f == follow.Postgres {
			drop += " ON events"
		}
		testkit.Must(t, e.db.Exec(drop).Error)
		if s = e.status(t); s.Trigger != follow.TriggerGone {
			t.Errorf("without its trigger: %+v", s)
		}
		create := "CREATE TRIGGER " + trigger + " AFTER INSERT ON events "
		switch e.f {
		case follow.SQLite:
			create += "BEGIN SELECT 1; END"
		case follow.Postgres:
			create += "FOR EACH STATEMENT EXECUTE FUNCTION " + trigger + "()"
		default:
			time.Sleep(20 * time.Millisecond) // times of creation have hundredths of a second
			create += "FOR EACH ROW SET @uid = 1"
		}
		testkit.Must(t, e.db.Exec(create).Error)
		if s = e.status(t); s.Trigger != follow.TriggerReplaced {
			t.Errorf("with another trigger: %+v", s)
		}
	})
}

// triggerOf returns the name of the only trigger.
func triggerOf(t *testing.T, e followed) (name string) {
	t.Helper()
	query := "SELECT TRIGGER_NAME FROM information_schema.TRIGGERS WHERE EVENT_OBJECT_SCHEMA = DATABASE() AND EVENT_OBJECT_TABLE = 'events'"
	switch e.f {
	case follow.SQLite:
		query = "SELECT name FROM sqlite_schema WHERE type = 'trigger'"
	case follow.Postgres:
		query = "SELECT tgname FROM pg_trigger WHERE tgrelid = 'events'::regclass"
	}
	testkit.Must(t, e.db.Raw(query).Scan(&name).Error)
	return name
}

// A transaction that has inserted a row is found while the closer waits for it, but not for another table.
func TestList_NamesTheTransactionThatHoldsTheMark(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		e := enable(t, d)
		other := e.table
		other.Name = "event_" // similar to events, also as a pattern
		testkit.Must(t, e.db.Exec("CREATE TABLE event_ (id bigint PRIMARY KEY)").Error)
		testkit.Must(t, follow.Enable(t.Context(), e.conn, other))
		tx := e.db.Begin()
		defer tx.Rollback()
		testkit.Must(t, tx.Exec("INSERT INTO event_ VALUES (?)", e.id(t, 0)).Error)
		query := "SELECT CONNECTION_ID()"
		if e.f == follow.Postgres {
			query = "SELECT pg_backend_pid()"
		}
		var session int64
		testkit.Must(t, tx.Raw(query).Scan(&session).Error)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		mark := follow.NewMark(e.conn, other, generator.DefaultLayout(), time.Now)
		go func() { defer close(ended); _, _ = mark.Advance(ctx) }()
		defer func() { stop(); <-ended }()
		for begin := time.Now(); ; time.Sleep(300 * time.Millisecond) { // InnoDB renews its lists after 100 ms without readers
			list, err := follow.List(t.Context(), e.conn, generator.DefaultLayout())
			if err != nil || len(list) != 2 || len(list[1].Holders) > 0 {
				t.Fatalf("%+v, %v", list, err)
			}
			if checkUnread(t, list[0]); list[0].Unread != nil {
				t.Skip(list[0].Unread)
			}
			h := list[0].Holders
			if len(h) == 1 && h[0].Session == session && h[0].User == "test" && time.Since(h[0].Since).Abs() < time.Minute {
				break
			}
			if time.Since(begin) > time.Minute {
				t.Fatalf("session %d: %+v", session, list)
			}
		}
	}, "mariadb", "mysql", "postgres")
}

// UID_FOLLOW is in the schema of its tables. Others are left out, because their tables may be locked.
func TestList_ReadsTheSchemasOfKnownTables(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		e, other := enable(t, d), d.Beside(t)
		table := follow.Table{Name: other + ".events", Key: "id", Slack: time.Second}
		testkit.Must(t, e.db.Exec("CREATE TABLE "+table.Name+" (id BIGINT PRIMARY KEY)").Error)
		testkit.Must(t, follow.Enable(t.Context(), e.conn, table))
		for _, known := range [][]string{nil, {"a.b.c", "missing.events"}, {table.Name, table.Name}} {
			list, err := follow.List(t.Context(), e.conn, generator.DefaultLayout(), known...)
			var names []string
			for _, s := range list {
				names = append(names, s.Table)
				checkUnread(t, s)
			}
			want := []string{"events"}
			if len(known) == 2 && known[0] == table.Name {
				want = append(want, table.Name)
			}
			if err != nil || !slices.Equal(names, want) {
				t.Errorf("%q: %q, %v", known, names, err)
			}
		}
		testkit.Must(t, follow.Reset(t.Context(), e.conn, table.Name, generator.DefaultLayout(), time.Now))
		testkit.Must(t, follow.Disable(t.Context(), e.conn, table))
		if _, ok, err := follow.StatusOf(t.Context(), e.conn, generator.DefaultLayout(), table.Name); ok || err != nil {
			t.Errorf("after Disable: %t, %v", ok, err)
		}
	}, "mariadb", "mysql", "postgres")
}

package follow_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/follow"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// An installation waits for a transaction that has inserted rows, but does not make others wait for it.
func TestEnable_LetsOthersPassWhileItWaits(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		testkit.Must(t, db.AutoMigrate(&event{}))
		conn, err := sqldb.Open(db, time.Minute)
		testkit.Must(t, err)
		tx := db.Begin()
		defer tx.Rollback()
		testkit.Must(t, tx.Create(&event{ID: 1}).Error)
		enabled := make(chan error, 1)
		go func() {
			enabled <- follow.Enable(t.Context(), conn, follow.Table{Name: "events", Key: "id", Slack: time.Second})
		}()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for id := range int64(8) {
			testkit.Must(t, db.WithContext(ctx).Create(&event{ID: 2 + id}).Error)
			time.Sleep(100 * time.Millisecond)
		}
		select {
		case err := <-enabled:
			t.Fatalf("it did not wait: %v", err)
		default:
		}
		testkit.Must(t, tx.Commit().Error)
		testkit.Must(t, <-enabled)
	}, "mariadb", "mysql", "postgres")
}

// Some lists of information_schema open every table of the server, and wait for those that are being dropped.
func TestEnable_DoesNotWaitForOtherDatabases(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db, other := d.Open(t, nil), d.Schema+"_other"
		for _, statement := range []string{
			"CREATE DATABASE %", "CREATE TABLE %.UID_FOLLOW (n INT)", "CREATE TABLE %.used (n INT) ENGINE=InnoDB",
			"CREATE TRIGGER %.other AFTER INSERT ON %.UID_FOLLOW FOR EACH ROW SET @uid = 1",
		} {
			testkit.Must(t, db.Exec(strings.ReplaceAll(statement, "%", other)).Error)
		}
		tx := db.Begin()
		defer tx.Rollback()
		testkit.Must(t, tx.Exec("INSERT INTO "+other+".used VALUES (1)").Error)
		dropped := make(chan error, 1)
		go func() { dropped <- db.Exec("DROP DATABASE " + other).Error }()
		waits := "SELECT COUNT(*) FROM information_schema.processlist WHERE INFO = 'DROP DATABASE " + other + "' AND STATE LIKE 'Waiting%'"
		for n, begin := 0, time.Now(); n == 0; time.Sleep(10 * time.Millisecond) {
			testkit.Must(t, db.Raw(waits).Scan(&n).Error)
			if time.Since(begin) > time.Minute {
				t.Fatal("DROP DATABASE does not wait")
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		e := enable(t, d)
		testkit.Advanced(t, e.mark)
		list, err := follow.List(ctx, e.conn, generator.DefaultLayout())
		if err != nil || len(list) != 1 || list[0].Trigger != follow.TriggerInstalled {
			t.Errorf("%+v, %v", list, err)
		}
		testkit.Must(t, follow.Disable(ctx, e.conn, e.table))
		testkit.Must(t, tx.Rollback().Error)
		testkit.Must(t, <-dropped)
	}, "mariadb", "mysql")
}

// Two services share a table, and the search path of each begins with a schema of its own. If one of them had a second
// mark, which the trigger does not read, its followers would miss rows.
func TestEnable_TwoSearchPathsHaveOneMark(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		admin := d.Open(t, nil)
		testkit.Must(t, admin.AutoMigrate(&event{}))
		table, last := follow.Table{Name: "events", Key: "id", Slack: time.Second}, int64(0)
		for i := range 2 {
			own := fmt.Sprintf("%s_%d", d.Schema, i)
			testkit.Must(t, admin.Exec("CREATE SCHEMA "+own).Error)
			t.Cleanup(func() { admin.Exec("DROP SCHEMA " + own + " CASCADE") })
			db := d.Open(t, nil, "search_path="+own+",public")
			conn, err := sqldb.Open(db, time.Minute)
			testkit.Must(t, err)
			testkit.Must(t, follow.Enable(t.Context(), conn, table))
			for _, statement := range follow.Postgres.Install(table) {
				testkit.Must(t, conn.ExecRaw(t.Context(), statement)) // as "uid sql" prints them
			}
			published := testkit.Advanced(t, follow.NewMark(conn, table, generator.DefaultLayout(), time.Now))
			if published < last {
				t.Errorf("%d after %d", published, last)
			}
			last = published
			time.Sleep(5 * time.Millisecond)
		}
		var marks []string
		testkit.Must(t, admin.Raw("SELECT nspname FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace WHERE relname = 'UID_FOLLOW'").Scan(&marks).Error)
		if !slices.Equal(marks, []string{"public"}) {
			t.Errorf("UID_FOLLOW is in the schemas %q", marks)
		}
	}, "postgres")
}

// The application may leave the connections of the pool in another schema, whose table of the same name stays as it is.
func TestEnable_ConnectionsMayBeLeftInAnotherSchema(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		ctx, here, elsewhere := t.Context(), d.Current(), d.Beside(t)
		db := d.Open(t, nil)
		pool, err := db.DB()
		testkit.Must(t, err)
		pool.SetMaxOpenConns(1)
		conn, err := sqldb.Open(db, time.Minute)
		testkit.Must(t, err)
		conn, err = conn.Home(ctx)
		testkit.Must(t, err)
		for _, schema := range []string{here, elsewhere} {
			testkit.Must(t, db.Exec("CREATE TABLE "+schema+".events (id BIGINT PRIMARY KEY)").Error)
			testkit.Must(t, db.Exec("CREATE TABLE "+schema+".orders (id BIGINT PRIMARY KEY)").Error)
		}
		leave := func() { // again, because a connection is closed after an error
			t.Helper()
			set := "USE " + elsewhere
			if d.Name == "postgres" {
				set = "SET search_path TO " + elsewhere
			}
			testkit.Must(t, db.Exec(set).Error)
		}
		triggers := func() (names []string) {
			t.Helper()
			query := "SELECT CONCAT(TRIGGER_SCHEMA, '.', EVENT_OBJECT_TABLE, ' ', TRIGGER_NAME) FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA IN (?)"
			if d.Name == "postgres" {
				query = "SELECT nspname || '.' || relname || ' ' || tgname FROM pg_trigger JOIN pg_class c ON c.oid = tgrelid" +
					" JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname IN (?)"
			}
			testkit.Must(t, db.Raw(query, []string{here, elsewhere}).Scan(&names).Error)
			return names
		}
		want := func(what string, names ...string) {
			t.Helper()
			got := triggers()
			if !slices.EqualFunc(got, names, func(a, b string) bool { return strings.HasPrefix(a, b) }) {
				t.Errorf("%s: the triggers are %q, want %q", what, got, names)
			}
		}
		events, orders := follow.Table{Name: "events", Key: "id", Slack: time.Second}, follow.Table{Name: "orders", Key: "id", Slack: time.Second}
		leave()
		testkit.Must(t, follow.Enable(ctx, conn, events))
		want("enabled", here+".events uid_follow_events_")

		leave()
		testkit.Must(t, db.Exec("DROP TABLE "+here+".orders").Error)
		testkit.Must(t, db.Exec("ALTER TABLE "+here+".events RENAME TO "+map[bool]string{true: "orders", false: here + ".orders"}[d.Name == "postgres"]).Error)
		testkit.Must(t, db.Exec("CREATE TABLE "+here+".events (id BIGINT PRIMARY KEY)").Error)
		testkit.Must(t, follow.Disable(ctx, conn, events))
		want("renamed and disabled")

		leave()
		testkit.Must(t, follow.Enable(ctx, conn, orders))
		want("renamed and enabled", here+".orders uid_follow_orders_")
		installed, err := follow.IsInstalled(ctx, conn, orders)
		if err != nil || !installed {
			t.Errorf("IsInstalled: %v, %v", installed, err)
		}
		list, err := follow.List(ctx, conn, generator.DefaultLayout())
		if err != nil || len(list) != 1 || list[0].Table != "orders" || list[0].Trigger != follow.TriggerInstalled {
			t.Errorf("List: %+v, %v", list, err)
		}

		statements, err := follow.Removal(ctx, conn)
		testkit.Must(t, err)
		for _, statement := range statements {
			leave()
			testkit.Must(t, follow.Exec(ctx, conn, statement))
		}
		want("removed")
		left, err := follow.Removal(ctx, conn)
		if err != nil || len(left) > 0 {
			t.Errorf("after the removal: %q, %v", left, err)
		}
	}, "mariadb", "mysql", "postgres")
}

// A table that has children in the sense of INHERITS shows their rows, which its trigger does not guard.
func TestEnable_RefusesATableThatIsInherited(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		testkit.Must(t, db.AutoMigrate(&event{}))
		testkit.Must(t, db.Exec("CREATE TABLE special () INHERITS (events)").Error)
		conn, err := sqldb.Open(db, time.Minute)
		testkit.Must(t, err)
		err = follow.Enable(t.Context(), conn, follow.Table{Name: "events", Key: "id", Slack: time.Second})
		if !errors.Is(err, follow.ErrRefused) {
			t.Error(err)
		}
	}, "postgres")
}

// An installation that lacks a part refuses all rows. It must not seem to be complete.
func TestEnable_NoticesAnIncompleteInstallation(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		for name, statement := range map[string]string{
			"gates": "DELETE FROM UID_FOLLOW_GATE", "gate table": "DROP TABLE UID_FOLLOW_GATE", "sequence": "DROP SEQUENCE uid_follow_events_862417_mark",
		} {
			hasGates, hasSequence := d.Name != "postgres", d.Name == "postgres" || d.Name == "mariadb"
			if name == "sequence" && !hasSequence || name != "sequence" && !hasGates {
				continue
			}
			t.Run(name, func(t *testing.T) {
				e := enable(t, d.New(t))
				before := testkit.Advanced(t, e.mark)
				testkit.Must(t, e.db.Exec(statement).Error)
				err := follow.Enable(t.Context(), e.conn, e.table)
				if !errors.Is(err, follow.ErrNotEnabled) || !strings.Contains(err.Error(), "call follow.Disable and then follow.Enable") {
					t.Error(err)
				}
				if s := statusNow(t, e); !errors.Is(s.Broken, follow.ErrNotEnabled) {
					t.Errorf("the status is %+v", s)
				}
				testkit.Must(t, follow.Disable(t.Context(), e.conn, e.table))
				testkit.Must(t, follow.Enable(t.Context(), e.conn, e.table))
				if s := statusNow(t, e); s.Broken != nil {
					t.Errorf("enabled again, the status is %+v", s)
				}
				now, err := follow.MarkAt(generator.DefaultLayout(), time.Now())
				testkit.Must(t, err)
				testkit.Must(t, e.db.Create(&event{ID: now}).Error)
				if after := testkit.Advanced(t, e.mark); after <= before {
					t.Errorf("%d after %d", after, before)
				}
			})
		}
	})
}

// statusNow returns the status of events, of which parts may be missing.
func statusNow(t *testing.T, e followed) follow.Status {
	t.Helper()
	s, ok, err := follow.StatusOf(t.Context(), e.conn, generator.DefaultLayout(), "events")
	if err != nil || !ok {
		t.Fatalf("%+v, %t, %v", s, ok, err)
	}
	return s
}

// The function of the trigger names the schema, because its search path is fixed. After the schema was renamed it fails
// for each row.
func TestEnable_CorrectsTheFunctionAfterTheSchemaWasRenamed(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		conn, err := sqldb.Open(db, time.Minute)
		testkit.Must(t, err)
		run := func(statement string) error { return db.Exec(statement).Error }
		old, renamed := d.Beside(t), d.Beside(t)
		testkit.Must(t, run("DROP SCHEMA "+renamed))
		testkit.Must(t, run("CREATE TABLE "+old+".events (id BIGINT PRIMARY KEY)"))
		table := follow.Table{Name: "events", Schema: old, Key: "id", Slack: time.Second}
		testkit.Must(t, follow.Enable(t.Context(), conn, table))
		before := testkit.Advanced(t, follow.NewMark(conn, table, generator.DefaultLayout(), time.Now))

		testkit.Must(t, run("ALTER SCHEMA "+old+" RENAME TO "+renamed))
		table.Schema = renamed
		insert := func(id int64) error { return run(fmt.Sprintf("INSERT INTO %s.events VALUES (%d)", renamed, id)) }
		if err := insert(before + 1); err == nil || !strings.Contains(err.Error(), old) {
			t.Errorf("before Enable: %v", err)
		}
		elsewhere, err := sqldb.Open((&testkit.Database{Engine: d.Engine, Schema: d.Schema, Path: renamed}).Open(t, nil), time.Minute)
		testkit.Must(t, err)
		s, ok, err := follow.StatusOf(t.Context(), elsewhere, generator.DefaultLayout(), "events")
		if err != nil || !ok || !errors.Is(s.Broken, follow.ErrNotEnabled) || !strings.Contains(s.Broken.Error(), "schema") {
			t.Errorf("%+v, %t, %v", s, ok, err)
		}
		testkit.Must(t, follow.Enable(t.Context(), conn, table))
		after := testkit.Advanced(t, follow.NewMark(conn, table, generator.DefaultLayout(), time.Now))
		if after < before {
			t.Errorf("%d after %d", after, before)
		}
		testkit.Must(t, insert(after))
		if err := insert(after - 1); err == nil || !strings.Contains(err.Error(), "too late") {
			t.Errorf("a row below the mark: %v", err)
		}
		if s, _, err = follow.StatusOf(t.Context(), elsewhere, generator.DefaultLayout(), "events"); err != nil || s.Broken != nil {
			t.Errorf("%+v, %v", s, err)
		}
	}, "postgres")
}

package follow_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/follow"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
)

type event struct {
	ID int64 `gorm:"primaryKey;autoIncrement:false"`
	V  int
}

// Enabling a table twice is like once, and after Disable it refuses nothing.
func TestMark_RefusesRowsBelow(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		testkit.Must(t, db.AutoMigrate(&event{}))
		conn, err := sqldb.Open(db, time.Minute)
		testkit.Must(t, err)
		ctx := context.Background()
		table := follow.Table{Name: "events", Key: "id", Slack: time.Second}
		for range 2 {
			testkit.Must(t, follow.Enable(ctx, conn, table))
		}
		layout := generator.DefaultLayout()
		m := follow.NewMark(conn, table, layout, time.Now)
		published := int64(0)
		for range 3 {
			higher := testkit.Advanced(t, m)
			if higher <= published {
				t.Fatalf("%d was published after %d", higher, published)
			}
			published = higher
			time.Sleep(2 * time.Millisecond)
		}
		if err := db.Create(&event{ID: published - 1}).Error; err == nil || !strings.Contains(err.Error(), "uid_follow: too late") {
			t.Errorf("a row below the mark: %v", err)
		}
		testkit.Must(t, db.Create(&event{ID: published}).Error)
		testkit.Must(t, follow.Disable(ctx, conn, table))
		testkit.Must(t, db.Create(&event{ID: published - 1}).Error)
	})
}

// If follow.Enable was never called, or follow.Disable is called during a round, the error says so. The database's
// message would be about a table or a sequence that the user has never heard of.
func TestMark_ReportsAMissingInstallationAsNotEnabled(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		testkit.Must(t, db.AutoMigrate(&event{}))
		conn, err := sqldb.Open(db, time.Minute)
		testkit.Must(t, err)
		table := follow.Table{Name: "events", Key: "id", Slack: time.Second}
		m := follow.NewMark(conn, table, generator.DefaultLayout(), time.Now)
		_, err = m.Advance(t.Context())
		testkit.IsError(t, err, follow.ErrNotEnabled, "follow events", "call follow.Enable", "UID_FOLLOW")
		_, err = m.Published(t.Context(), db.ConnPool)
		testkit.IsError(t, err, follow.ErrNotEnabled, "call follow.Enable", "UID_FOLLOW")
		testkit.Must(t, follow.Enable(t.Context(), conn, table))
		flavor, err := follow.FlavorOf(t.Context(), conn)
		testkit.Must(t, err)
		for _, statement := range flavor.Uninstall(table) {
			if strings.HasPrefix(statement, "DROP SEQUENCE") {
				testkit.Must(t, conn.ExecRaw(t.Context(), statement))
				_, err = m.Advance(t.Context())
				testkit.IsError(t, err, follow.ErrNotEnabled, "follow events", "call follow.Enable")
			}
		}
		testkit.Must(t, follow.Disable(t.Context(), conn, table))
		testkit.Must(t, db.Migrator().DropTable(&event{})) // a table that is missing is not the installation
		testkit.Must(t, db.Exec("DELETE FROM "+db.Statement.Quote("UID_FOLLOW")).Error)
		_, err = m.Advance(t.Context())
		if err == nil || strings.Contains(err.Error(), "not enabled") {
			t.Errorf("without the followed table: %v", err)
		}
	})
}

// publishing begins the statement that publishes a mark.
const publishing = "UPDATE UID_FOLLOW SET RECENT"

// publishes reports whether a statement publishes a mark.
func publishes(c *testkit.Crossing) bool {
	return c.Is(publishing) || c.Is("SET STATEMENT sql_mode = '"+sqldb.Mode+"' FOR "+publishing)
}

// Another process that is the closer may publish a mark seconds later, which is above the rows that came meanwhile.
func TestMark_BeginIsBelowIdsThatAreMadeAfterTheCall(t *testing.T) {
	t.Parallel()
	testkit.SkipIfShort(t, "it could take two seconds")
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		e := enable(t, d)
		testkit.Must(t, e.db.Exec(e.quoted("UPDATE UID_FOLLOW SET CLOSER = 'another', CLOSER_UNTIL = ?"), time.Now().Add(2*time.Second).UnixMilli()).Error)
		called := time.Now()
		begin, err := e.mark.Begin(t.Context())
		testkit.Must(t, err)
		layout := generator.DefaultLayout()
		old, err := follow.MarkAt(layout, called.Add(-e.table.Slack-100*time.Millisecond))
		testkit.Must(t, err)
		if made, err := follow.MarkAt(layout, called); err != nil || begin < old || begin > made {
			t.Errorf("it begins at %d, but an id made before the call is %d, and one made after it %d; %v", begin, old, made, err)
		}
	})
}

// A round that began before the trigger was installed again must not publish: the new mark may be lower than its own.
func TestMark_PublishesNothingAfterAnotherInstallation(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db, wire := testkit.OpenWire(t, d)
		testkit.Must(t, db.AutoMigrate(&event{}))
		conn, err := sqldb.Open(db, time.Minute)
		testkit.Must(t, err)
		ctx := context.Background()
		table := follow.Table{Name: "events", Key: "id", Slack: time.Second}
		testkit.Must(t, follow.Enable(ctx, conn, table))
		m := follow.NewMark(conn, table, generator.DefaultLayout(), time.Now)
		again := false
		wire.Set(func(c *testkit.Crossing) error {
			if !again && publishes(c) {
				again = true
				testkit.Must(t, follow.Disable(ctx, conn, table))
				testkit.Must(t, follow.Enable(ctx, conn, table))
			}
			return c.Run()
		})
		published, err := m.Advance(ctx)
		if err != nil || published != 0 || !again {
			t.Errorf("%d was published, %v; installed again: %t", published, err, again)
		}
	})
}

// A closer that stands still in its round holds the lock that sends all new transactions to one gate. The server closes
// its connection, because nobody with another account can.
func TestMark_LosesItsLockIfItStandsStill(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		e := enable(t, d)
		db, wire := testkit.OpenWire(t, d)
		conn, err := sqldb.Open(db, time.Minute)
		testkit.Must(t, err)
		held := func() (held bool) {
			testkit.Must(t, e.db.Raw("SELECT IS_USED_LOCK("+userLockOf(t, e.db)+") IS NOT NULL").Scan(&held).Error)
			return held
		}
		stood := false
		wire.Set(func(c *testkit.Crossing) error {
			err := c.Run()
			if !stood && c.Is("DO GET_LOCK") {
				if stood = held(); stood {
					testkit.Eventually(t, "the lock is free", time.Minute, func() bool { return !held() })
				}
			}
			return err
		})
		m := follow.NewMark(conn, e.table, generator.DefaultLayout(), time.Now)
		if _, err := m.Advance(t.Context()); !stood {
			t.Errorf("it has never held the lock: %v", err)
		}
		testkit.Advanced(t, m)
	}, "mysql", "mariadb")
}

// A round must leave nothing behind on a connection of the application's pool: neither its limits nor its lock.
func TestMark_RestoresTheSettingsOfItsConnection(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		e := enable(t, d)
		db, wire := testkit.OpenWire(t, d)
		pool, err := db.DB()
		testkit.Must(t, err)
		pool.SetMaxOpenConns(1)
		conn, err := sqldb.Open(db, time.Minute)
		testkit.Must(t, err)
		m := follow.NewMark(conn, e.table, generator.DefaultLayout(), time.Now)
		settings := func() (text string) {
			testkit.Must(t, db.Raw("SELECT CONCAT_WS(' ', @@SESSION.wait_timeout, @@SESSION.innodb_lock_wait_timeout, IS_USED_LOCK("+
				userLockOf(t, e.db)+"))").Scan(&text).Error)
			return text
		}
		before := settings()
		for _, fails := range []string{"", "SET @uid_wait", "DO GET_LOCK", "DO RELEASE_LOCK", "SET @uid_released", publishing} {
			failed := false
			wire.Set(func(c *testkit.Crossing) error {
				if fails != "" && c.Is(fails) || fails == publishing && publishes(c) {
					failed = true
					return errors.New("denied")
				}
				return c.Run()
			})
			published, err := m.Advance(t.Context())
			wire.Set(nil)
			if s := e.status(t); err == nil && s.Published != published {
				t.Errorf("if %q fails: %d, but %d is stored", fails, published, s.Published)
			}
			if after := settings(); after != before || failed != (fails != "") {
				t.Errorf("if %q fails: %s, before %s, %v", fails, after, before, err)
			}
			time.Sleep(5 * time.Millisecond) // marks have milliseconds
		}
	}, "mysql", "mariadb")
}

// A server may end statements earlier than the reader wants to wait for a transaction.
func TestMark_WaitsInPiecesBelowTheLimitOfStatements(t *testing.T) {
	t.Parallel()
	limits := map[string]string{"postgres": "statement_timeout=200", "mariadb": "max_statement_time=0.2", "mysql": "max_execution_time=200"}
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		e := enable(t, d)
		conn, err := sqldb.Open(d.Open(t, nil, limits[d.Name]), time.Minute)
		testkit.Must(t, err)
		writer := e.db.Begin()
		defer writer.Rollback()
		testkit.Must(t, writer.Create(&event{ID: e.id(t, 0)}).Error)
		ended := make(chan error)
		go func() { time.Sleep(1500 * time.Millisecond); ended <- writer.Commit().Error }()
		published, err := follow.NewMark(conn, e.table, generator.DefaultLayout(), time.Now).Advance(t.Context())
		testkit.Must(t, <-ended)
		if err != nil || published == 0 {
			t.Errorf("%d was published, %v", published, err)
		}
	}, "postgres", "mariadb", "mysql")
}

// A key of type bigint unsigned may be larger than any id. A follower does not wait for such a row.
func TestMark_IgnoresKeysThatAreNoIDs(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		e := enable(t, d)
		testkit.Must(t, e.db.Exec("ALTER TABLE events MODIFY id BIGINT UNSIGNED NOT NULL").Error)
		testkit.Must(t, e.db.Exec("INSERT INTO events (id) VALUES (9223372036854775808)").Error)
		testkit.Advanced(t, e.mark)
	}, "mysql", "mariadb")
}

// A writer that has chosen the gate for which the reader waits must not wait for another writer.
func TestMark_LetsNobodyWaitBehindTheReader(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db, wire := testkit.OpenWire(t, d)
		testkit.Must(t, db.AutoMigrate(&event{}))
		conn, err := sqldb.Open(db, time.Minute)
		testkit.Must(t, err)
		table := follow.Table{Name: "events", Key: "id", Slack: time.Second}
		testkit.Must(t, follow.Enable(t.Context(), conn, table))
		now, err := follow.MarkAt(generator.DefaultLayout(), time.Now())
		testkit.Must(t, err)
		long := db.Begin()
		defer long.Rollback() // after a failure, too
		testkit.Must(t, long.Create(&event{ID: now}).Error)
		tried := 0
		wire.Set(func(c *testkit.Crossing) error {
			err := c.Run()
			if strings.HasSuffix(c.SQL, "NOWAIT") && err != nil {
				if tried++; tried == 1 {
					begun := time.Now()
					testkit.Must(t, db.Exec("SELECT MARK FROM UID_FOLLOW_GATE WHERE TABLE_NAME = 'events' LOCK IN SHARE MODE").Error)
					t.Logf("a writer waited for %v", time.Since(begun))
					testkit.Must(t, long.Commit().Error)
				}
			}
			return err
		})
		if testkit.Advanced(t, follow.NewMark(conn, table, generator.DefaultLayout(), time.Now)); tried == 0 {
			t.Error("the reader has not tried")
		}
	}, "mysql", "mariadb")
}

// A pooler may send the steps of a round to two servers if the first fails in between. The second server may lack the
// mark.
func TestMark_PublishesNothingIfTheMarkWasLost(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		e := enable(t, d)
		db, wire := testkit.OpenWire(t, d)
		conn, err := sqldb.Open(db, time.Minute)
		testkit.Must(t, err)
		m := follow.NewMark(conn, e.table, generator.DefaultLayout(), time.Now)
		first := testkit.Advanced(t, m)
		lost := map[string]string{
			"postgres": "SELECT setval('uid_follow_events_862417_mark', 5)", "mariadb": "ALTER SEQUENCE uid_follow_events_862417_mark RESTART 5",
			"mysql": "UPDATE UID_FOLLOW_GATE SET MARK = 5", "sqlite": `UPDATE "UID_FOLLOW_GATE" SET "MARK" = 5`,
		}[d.Name]
		done := false
		wire.Set(func(c *testkit.Crossing) error {
			if !done && publishes(c) {
				done = true
				testkit.Must(t, e.db.Exec(lost).Error)
			}
			return c.Run()
		})
		time.Sleep(5 * time.Millisecond)
		published, err := m.Advance(t.Context())
		if err != nil || published != first || !done {
			t.Errorf("%d was published after %d, %v; lost: %t", published, first, err, done)
		}
	})
}

// A closer that loses its turn in the middle of a round has waited in vain. So after a long wait at the first gate it
// renews its turn before it waits at the second.
func TestMark_RenewsItsTurnBetweenTheGates(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		e := enable(t, d)
		db, wire := testkit.OpenWire(t, d)
		conn, err := sqldb.Open(db, time.Minute)
		testkit.Must(t, err)
		writer := e.db.Begin()
		testkit.Must(t, writer.Exec("SELECT MARK FROM UID_FOLLOW_GATE ORDER BY ID DESC LIMIT 1 LOCK IN SHARE MODE").Error)
		ended := make(chan struct{})
		go func() { time.Sleep(2 * time.Second); writer.Rollback(); close(ended) }()
		defer func() { <-ended }()
		left := 0
		wire.Set(func(c *testkit.Crossing) error {
			if c.Is("DO GET_LOCK") {
				testkit.Must(t, e.db.Raw("SELECT CLOSER_UNTIL - TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000 FROM UID_FOLLOW").Scan(&left).Error)
			}
			return c.Run()
		})
		published, err := follow.NewMark(conn, e.table, generator.DefaultLayout(), time.Now).Advance(t.Context())
		if err != nil || published == 0 || left < 4000 {
			t.Errorf("%d was published, %v; %d ms of the turn were left", published, err, left)
		}
	}, "mysql", "mariadb")
}

// If the database's clock is set back by an hour, the turn of the last closer seems to last so long. Formerly, after
// its process had ended, followers stood still for that hour.
func TestMark_TakesATurnThatLastsTooLong(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		e := enable(t, d)
		until := time.Now().Add(time.Hour).UnixMilli()
		testkit.Must(t, e.db.Exec(e.quoted("UPDATE UID_FOLLOW SET CLOSER = 'gone', CLOSER_UNTIL = ?"), until).Error)
		testkit.Advanced(t, e.mark)
	})
}

// A wrong row of UID_FOLLOW makes followers stop with an error. Formerly they missed rows with a mark that the trigger
// did not know, and with a slack below zero the mark was in the future.
func TestMark_ReportsAWrongRowOfUIDFollow(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		e := enable(t, d)
		wrong := func(statement string, is error, text string) {
			t.Helper()
			testkit.Must(t, e.db.Exec(e.quoted(statement)).Error)
			_, err := e.mark.Advance(t.Context())
			testkit.IsError(t, err, is, "follow events", text)
		}
		wrong("UPDATE UID_FOLLOW SET SLACK = -3600000", follow.ErrNotEnabled, "SLACK")
		wrong("UPDATE UID_FOLLOW SET SLACK = 9223372036854775807", follow.ErrNotEnabled, "SLACK")
		testkit.Must(t, follow.Enable(t.Context(), e.conn, e.table))
		wrong("UPDATE UID_FOLLOW SET PUBLISHED = 9223372036854775807", workernode.ErrClock, "uid follow reset")
		testkit.Must(t, follow.Reset(t.Context(), e.conn, "events", generator.DefaultLayout(), time.Now))
		if published := testkit.Advanced(t, e.mark); published > e.id(t, 0) {
			t.Errorf("%d was published", published)
		}
		testkit.Must(t, e.db.Exec(e.quoted("CREATE TABLE copied AS SELECT * FROM UID_FOLLOW")).Error) // without its key
		testkit.Must(t, e.db.Exec(e.quoted("DROP TABLE UID_FOLLOW")).Error)
		testkit.Must(t, e.db.Exec(e.quoted("ALTER TABLE copied RENAME TO UID_FOLLOW")).Error)
		wrong("INSERT INTO UID_FOLLOW SELECT * FROM UID_FOLLOW", follow.ErrNotEnabled, "2 rows")
	})
}

// On MySQL and SQLite the mark is in UID_FOLLOW_GATE. Without it nothing can be published, and the trigger refuses rows,
// so followers must get an error instead of no rows.
func TestMark_ReportsAMissingGate(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		for _, order := range []string{"MIN", "MAX"} {
			e := enable(t, d.New(t))
			testkit.Advanced(t, e.mark)
			which := " WHERE ID = (SELECT * FROM (SELECT " + order + "(ID) FROM UID_FOLLOW_GATE) AS one)"
			if d.Name == "sqlite" {
				which = "" // it has one
			}
			testkit.Must(t, e.db.Exec("DELETE FROM UID_FOLLOW_GATE"+which).Error)
			_, err := e.mark.Advance(t.Context())
			testkit.IsError(t, err, follow.ErrNotEnabled, "a part of its installation is missing")
		}
	}, "mysql", "mariadb", "sqlite")
}

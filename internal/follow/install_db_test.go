package follow_test

import (
	"context"
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
		conn, err := sqldb.Open(db, 20*time.Second)
		testkit.Must(t, err)
		tx := db.Begin()
		defer tx.Rollback()
		testkit.Must(t, tx.Create(&event{ID: 1}).Error)
		enabled := make(chan error, 1)
		go func() {
			enabled <- follow.Enable(t.Context(), conn, follow.Table{Name: "events", Key: "id", Slack: time.Second})
		}()
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
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
			if time.Since(begin) > 20*time.Second {
				t.Fatal("DROP DATABASE does not wait")
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		e := enable(t, d)
		_, err := e.mark.Advance(ctx)
		testkit.Must(t, err)
		list, err := follow.List(ctx, e.conn, generator.DefaultLayout())
		if err != nil || len(list) != 1 || list[0].Trigger != follow.TriggerInstalled {
			t.Errorf("%+v, %v", list, err)
		}
		testkit.Must(t, follow.Disable(ctx, e.conn, e.table))
		testkit.Must(t, tx.Rollback().Error)
		testkit.Must(t, <-dropped)
	}, "mariadb", "mysql")
}

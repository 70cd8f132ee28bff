package follow_test

import (
	"context"
	"testing"
	"time"

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

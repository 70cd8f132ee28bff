package follow_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/follow"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// MariaDB releases the gate of a transaction at XA PREPARE, so a mark is published above its rows, and they appear
// later. A follower misses them, unless its reads lock: these wait for the transaction. MySQL keeps the gate until it
// crashes.
func TestFollow_ALockingReadWaitsForPreparedTransactions(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		testkit.Must(t, db.AutoMigrate(&event{}))
		conn, err := sqldb.Open(db, time.Minute)
		testkit.Must(t, err)
		testkit.Must(t, follow.Enable(t.Context(), conn, hostileTable))
		m := follow.NewMark(conn, hostileTable, generator.DefaultLayout(), time.Now)
		id, err := follow.MarkAt(generator.DefaultLayout(), time.Now())
		testkit.Must(t, err)
		name := fmt.Sprintf("'uid-%s-%d'", d.Schema, os.Getpid())
		pool, err := db.DB()
		testkit.Must(t, err)
		session, err := pool.Conn(t.Context())
		testkit.Must(t, err)
		defer func() { _ = session.Close() }()
		run := func(query string) {
			_, err := session.ExecContext(t.Context(), query)
			testkit.Must(t, err)
		}
		run("XA START " + name)
		run(fmt.Sprintf("INSERT INTO events (id, writer, n) VALUES (%d, 1, 1)", id))
		run("XA END " + name)
		run("XA PREPARE " + name)
		ended := false
		defer func() {
			if !ended {
				_, _ = session.ExecContext(context.Background(), "XA ROLLBACK "+name)
			}
		}()

		time.Sleep(hostileTable.Slack + 100*time.Millisecond)
		if d.Name == "mysql" {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			published, err := m.Advance(ctx)
			cancel()
			if err == nil && published > id {
				t.Errorf("%d was published before the transaction with %d ended", published, id)
			}
			run("XA COMMIT " + name)
			ended = true
			return
		}
		published := testkit.Advanced(t, m)
		if published <= id {
			t.Fatalf("%d was published, not above %d", published, id)
		}
		if rows, err := rowsBelow(db, published, ""); err != nil || len(rows) > 0 {
			t.Errorf("a read that does not lock: %v, %v", rows, err)
		}
		var rows []int64
		var failed error
		read := make(chan struct{})
		go func() {
			rows, failed = rowsBelow(db, published, " LOCK IN SHARE MODE")
			close(read)
		}()
		select {
		case <-read:
			t.Errorf("a read that locks did not wait: %v, %v", rows, failed)
		case <-time.After(300 * time.Millisecond):
		}
		run("XA COMMIT " + name)
		ended = true
		if <-read; failed != nil || !slices.Equal(rows, []int64{id}) {
			t.Errorf("a read that locks: %v, %v", rows, failed)
		}
	}, "mariadb", "mysql")
}

func rowsBelow(db *gorm.DB, mark int64, lock string) (ids []int64, err error) {
	err = db.Transaction(func(tx *gorm.DB) error {
		return tx.Raw("SELECT id FROM events WHERE id < ? ORDER BY id"+lock, mark).Scan(&ids).Error
	}, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	return ids, err
}

package follow_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/follow"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// A waitLog keeps the errors that GORM's logger shows, and the time of a long statement.
type waitLog struct {
	logger.Interface
	longest atomic.Int64 // time of a long statement
	errors  chan string
}

func (l *waitLog) Trace(_ context.Context, begin time.Time, f func() (string, int64), err error) {
	if err != nil {
		query, _ := f()
		l.errors <- query + ": " + err.Error()
	}
	if took := time.Since(begin); took > time.Second {
		l.longest.Store(int64(took))
	}
}

// A transaction that stays open is no error of the reader that waits for it, so the log has none every two seconds. Each
// wait is shorter than the turn of the closer, because the next one would end its connection.
func TestMark_LogsNoErrorsWhileItWaitsForATransaction(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		log := &waitLog{Interface: logger.Discard, errors: make(chan string, 1000)}
		db := d.Open(t, &gorm.Config{Logger: log})
		testkit.Must(t, db.AutoMigrate(&event{}))
		conn, err := sqldb.Open(db, 10*time.Second)
		testkit.Must(t, err)
		table := follow.Table{Name: "events", Key: "id", Slack: time.Second}
		testkit.Must(t, follow.Enable(t.Context(), conn, table))
		m := follow.NewMark(conn, table, generator.DefaultLayout(), time.Now)
		mark, err := m.Advance(t.Context())
		testkit.Must(t, err)
		tx := db.Begin()
		defer tx.Rollback()
		testkit.Must(t, tx.Create(&event{ID: mark + 1}).Error)
		for len(log.errors) > 0 {
			<-log.errors // of Enable
		}
		ended := make(chan error)
		go func() { _, err := m.Advance(t.Context()); ended <- err }()
		testkit.Eventually(t, "the reader gives up once", 20*time.Second, func() bool { return log.longest.Load() > 0 })
		if took := time.Duration(log.longest.Load()); took > 4*time.Second {
			t.Errorf("it has waited for %v at a time, so another process may have ended its connection meanwhile", took)
		}
		testkit.Must(t, tx.Commit().Error)
		testkit.Must(t, <-ended)
		for len(log.errors) > 0 {
			t.Error(<-log.errors)
		}
	}, "mariadb", "mysql", "postgres")
}

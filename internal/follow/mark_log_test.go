package follow_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/follow"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm/logger"
)

// A gormLog keeps the statements that GORM's logger sees, with their errors.
type gormLog struct {
	logger.Interface
	lines
}

func (l *gormLog) Trace(_ context.Context, _ time.Time, f func() (string, int64), err error) {
	query, _ := f()
	_, _ = fmt.Fprintln(l, query, err)
}

// lines keeps what is written.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// While a transaction stays open, a reader gives up and tries again every two seconds, and a follower that leaves
// interrupts its statement. Neither is an error, so GORM's logger sees no statement. The plugin's log has one line for
// the whole wait, and one for its end.
func TestMark_LogsOnceThatATableIsHeldUp(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		e := enable(t, d)
		seen, own := &gormLog{Interface: logger.Discard}, &lines{}
		db, wire := testkit.OpenWire(t, d)
		db.Logger = seen
		conn, err := sqldb.Open(db, time.Minute)
		testkit.Must(t, err)
		m := follow.NewMark(conn, e.table, generator.DefaultLayout(), time.Now)
		m.SetLogger(slog.New(slog.NewTextHandler(own, nil)))
		m.SetHeldAfter(time.Millisecond)
		tx := e.db.Begin()
		defer tx.Rollback()
		testkit.Must(t, tx.Create(&event{ID: e.id(t, 0)}).Error)
		var pieces atomic.Int64 // how often a statement has given up
		wire.Set(func(c *testkit.Crossing) error {
			err := c.Run()
			if err != nil && c.Context.Err() == nil && !strings.HasSuffix(c.SQL, "NOWAIT") {
				pieces.Add(1)
			}
			return err
		})
		ctx, leave := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		read := func(context.Context, follow.Cursor, int) ([]int64, int64, error) { return nil, 1, nil }
		go func() {
			for range follow.Rows(ctx, m, follow.Cursor{}, follow.Options[int64]{Limit: 1}, read) {
			}
			ended <- nil
		}()
		testkit.Eventually(t, "the reader has given up twice", time.Minute, func() bool { return pieces.Load() >= 2 })
		leave()
		<-ended
		go func() { _, err := m.Advance(t.Context()); ended <- err }()
		testkit.Eventually(t, "the reader has given up again", time.Minute, func() bool { return pieces.Load() >= 3 })
		testkit.Must(t, tx.Commit().Error)
		testkit.Must(t, <-ended)
		want := regexp.MustCompile(`^time=\S+ level=WARN msg="uidplugin: a followed table is held up: [^"]*" table=events\n` +
			`time=\S+ level=INFO msg="uidplugin: a followed table is no longer held up" table=events after=\S+\n$`)
		testkit.Eventually(t, "both lines are there", time.Minute, func() bool { return strings.Count(own.String(), "\n") >= 2 })
		if !want.MatchString(own.String()) {
			t.Errorf("the log: %s", own)
		}
		if seen.String() != "" {
			t.Errorf("GORM's log: %s", seen)
		}
	}, "mariadb", "mysql", "postgres")
}

package follow_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/follow"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// A hostileTask is the work of some writers or of a follower, in this process or in a child.
type hostileTask struct {
	Name     string
	Database testkit.Database
	Address  string // of a proxy; empty connects directly
	Flaky    bool   // delays and breaks connections to SQLite
	Own      bool   // the server belongs to the test, with a binary log, and with prepared transactions
	Behind   time.Duration
	First    int // number of the first writer
	Writers  int
	Locking  bool  // a follower's reads wait for prepared transactions, on MySQL and MariaDB
	After    int64 // where a follower begins
}

var hostileTable = follow.Table{Name: "events", Key: "id", Slack: time.Second}

func (t hostileTask) connect() (*gorm.DB, error) {
	config := &gorm.Config{SkipDefaultTransaction: true}
	switch {
	case t.Flaky:
		wire := &testkit.Wire{}
		wire.Set(flaky)
		db, err := wire.Connect(t.Database.Engine, t.Database.DSN())
		if err != nil {
			return nil, err
		}
		return db.Session(&gorm.Session{SkipDefaultTransaction: true}), nil
	case t.Address != "":
		return t.Database.ConnectTo(t.Address, config)
	}
	return t.Database.Connect(config)
}

// now is the clock of the task.
func (t hostileTask) now() time.Time { return time.Now().Add(-t.Behind) }

// follow calls row for each row after t.After, in the order of their ids.
func (t hostileTask) follow(ctx context.Context, db *gorm.DB, row func(int64), failed func(error)) {
	conn, err := sqldb.Open(db, 5*time.Second)
	if err != nil {
		failed(err)
		return
	}
	m := follow.NewMark(conn, hostileTable, generator.DefaultLayout(), t.now)
	read := func(ctx context.Context, cursor follow.Cursor, limit int) (ids []int64, published int64, err error) {
		lock, options := "", &sql.TxOptions{}
		if t.Locking && t.Database.IsMySQL() {
			lock, options.Isolation = " LOCK IN SHARE MODE", sql.LevelReadCommitted
		}
		err = db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			if published, err = m.Published(ctx, tx.Statement.ConnPool); err != nil {
				return err
			}
			query := "SELECT id FROM events WHERE id > ? AND id < ? ORDER BY id LIMIT ?" + lock
			return tx.Raw(query, cursor.Last, published, limit).Scan(&ids).Error
		}, options)
		return ids, published, err
	}
	o := follow.Options[int64]{Limit: 100, ID: func(id int64) int64 { return id }}
	for id, err := range follow.Rows(ctx, m, follow.Cursor{Last: t.After}, o, read) {
		if err != nil {
			failed(err)
		} else {
			row(id)
		}
	}
}

// The roles of child processes. They print what they have done, a line for each.
var hostileRoles = testkit.Roles{
	"hostile writers": testkit.Role(func(t hostileTask) error {
		ctx, db, err := harness.Child(t.connect)
		if err != nil {
			return err
		}
		var group sync.WaitGroup
		for i := range t.Writers {
			r := reports{open: func(int, bool) {}, took: func(time.Duration) {}}
			r.note = func(what string, n int) { fmt.Printf("%d %s\n", n, strings.ReplaceAll(what, "\n", " ")) }
			group.Go(func() { t.writer(db, t.First+i, r).write(ctx) })
		}
		group.Wait()
		return nil
	}),
	"hostile follower": testkit.Role(func(t hostileTask) error {
		ctx, db, err := harness.Child(t.connect)
		if err != nil {
			return err
		}
		t.follow(ctx, db, func(id int64) { fmt.Println(id) }, func(err error) {
			fmt.Println("error:", strings.ReplaceAll(err.Error(), "\n", " "))
		})
		return nil
	}),
}

// A hostileFollower is a follower of the test, in this process or in a child, and what it has seen.
type hostileFollower struct {
	hostileTask
	child   bool
	control bool // is expected to miss rows

	mu   sync.Mutex
	seen []int64
}

func (f *hostileFollower) saw(id int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen = append(f.seen, id)
}

// last returns the last row that it has seen, and 0 if it has seen none.
func (f *hostileFollower) last() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return lastOf(f.seen)
}

// line reads a line of a child.
func (f *hostileFollower) line(h *hostile, line string) {
	if id, err := strconv.ParseInt(line, 10, 64); err == nil {
		f.saw(id)
	} else {
		h.followerFailed(f, errors.New(line))
	}
}

// followerFailed counts an error of a follower, or reports one that no fault of the test explains.
func (h *hostile) followerFailed(f *hostileFollower, err error) {
	text := err.Error()
	switch {
	case strings.Contains(text, workernode.ErrClock.Error()) && f.Behind > 0:
		h.Note("clocks differ", 1)
	case strings.Contains(text, "context canceled"):
	case sqldb.IsTransient(err), transient.MatchString(text), harness.Unreachable.MatchString(text):
		h.Note("errors of followers", 1)
	default:
		h.Errorf("follower %s: %v", f.Name, err)
	}
}

// flaky is what a proxy does, for statements to SQLite.
func flaky(c *testkit.Crossing) error {
	switch n := rand.IntN(1000); {
	case n < 3:
		return testkit.ErrLost
	case n < 6: // the answer is lost
		_ = c.Run()
		return testkit.ErrLost
	case n < 30:
		if err := c.Sleep(rand.N(10 * time.Millisecond)); err != nil {
			return err
		}
	}
	return c.Run()
}

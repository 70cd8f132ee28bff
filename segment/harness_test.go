package segment_test

import (
	"context"
	"database/sql"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/segment"
	"gorm.io/gorm"
)

const tag = "orders"

var must, file = testkit.Must, testkit.SQLitePath

var quiet = slog.New(slog.DiscardHandler)

// handle returns a handle on a SQLite file with a pool of its own.
func handle(tb testing.TB, path string) *gorm.DB {
	tb.Helper()
	return testkit.SQLite{Path: path, Params: []string{"_txlock=immediate"}}.Open(tb)
}

// open returns a generator, which is closed when the test ends.
func open(tb testing.TB, db *gorm.DB, c segment.Config) *segment.Generator {
	tb.Helper()
	if c.Log == nil {
		c.Log = quiet
	}
	c.Timeout = time.Minute
	g, err := segment.Open(tb.Context(), db, tag, c)
	must(tb, err)
	tb.Cleanup(g.Close)
	return g
}

// next takes one id.
func next(tb testing.TB, g *segment.Generator) int64 {
	tb.Helper()
	id, err := g.Next(tb.Context())
	must(tb, err)
	return id
}

// fill takes n ids.
func fill(tb testing.TB, g *segment.Generator, n int64) []int64 {
	tb.Helper()
	ids := make([]int64, n)
	must(tb, g.Fill(tb.Context(), ids))
	return ids
}

// run executes a statement past everything that is tested.
func run(tb testing.TB, db *gorm.DB, query string, args ...any) {
	tb.Helper()
	must(tb, db.Exec(query, args...).Error)
}

// stored returns what the row says.
func stored(tb testing.TB, db *gorm.DB) (maxID, step int64) {
	tb.Helper()
	must(tb, db.Raw("SELECT max_id, step FROM leaf_alloc WHERE biz_tag = ?", tag).Row().Scan(&maxID, &step))
	return maxID, step
}

// leaf makes the table with a row, as Leaf's operator does.
func leaf(tb testing.TB, db *gorm.DB, maxID, step int64) {
	tb.Helper()
	run(tb, db, "CREATE TABLE `leaf_alloc` (`biz_tag` varchar(128) NOT NULL DEFAULT '', `max_id` bigint(20) NOT NULL DEFAULT '1', `step` int(11) NOT NULL,"+
		" `description` varchar(256) DEFAULT NULL, `update_time` timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP, PRIMARY KEY (`biz_tag`))")
	run(tb, db, "insert into leaf_alloc(biz_tag, max_id, step, description) values(?, ?, ?, 'Test leaf Segment Mode Get Id')", tag, maxID, step)
}

// pause is the time of a slow statement.
func pause() { time.Sleep(5 * time.Millisecond) }

// eventually waits until f is true.
func eventually(tb testing.TB, what string, f func() bool) {
	tb.Helper()
	testkit.Eventually(tb, what, 20*time.Second, f)
}

// A pool is a connection pool whose statements a test can meddle with.
type pool struct {
	gorm.ConnPool
	mu   sync.Mutex
	meet func(query string, run func() error) error // nil runs it
	sent []string
}

func (p *pool) set(meet func(query string, run func() error) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.meet = meet
}

func (p *pool) on(query string, run func() error) error {
	p.mu.Lock()
	meet := p.meet
	p.sent = append(p.sent, query)
	p.mu.Unlock()
	if meet == nil {
		return run()
	}
	return meet(query, run)
}

// updates returns how many times ids were to be fetched.
func (p *pool) updates() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, q := range p.sent {
		if strings.HasPrefix(q, "UPDATE") {
			n++
		}
	}
	return n
}

func (p *pool) ExecContext(ctx context.Context, query string, args ...any) (r sql.Result, err error) {
	err = p.on(query, func() (err error) {
		r, err = p.ConnPool.ExecContext(ctx, query, args...)
		return err
	})
	return r, err
}

func (p *pool) QueryContext(ctx context.Context, query string, args ...any) (r *sql.Rows, err error) {
	err = p.on(query, func() (err error) {
		r, err = p.ConnPool.QueryContext(ctx, query, args...)
		return err
	})
	if err != nil && r != nil {
		_ = r.Close()
		r = nil
	}
	return r, err
}

// meddled returns a handle on the database of db with a pool of its own.
func meddled(db *gorm.DB) (*gorm.DB, *pool) {
	p := &pool{ConnPool: db.Config.ConnPool}
	config := *db.Config
	config.ConnPool = p
	copied := *db
	copied.Config = &config
	return &copied, p
}

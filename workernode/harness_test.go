package workernode_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/glebarez/sqlite"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/migrations"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// must stops the test at an error.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// saysAll checks that a message names everything that a reader needs to know.
func saysAll(tb testing.TB, message string, words ...string) {
	tb.Helper()
	for _, w := range words {
		if !strings.Contains(message, w) {
			tb.Errorf("the message\n\t%s\ndoes not say %q", message, w)
		}
	}
}

// handle returns a handle on a SQLite file.
func handle(tb testing.TB, path string) *gorm.DB {
	tb.Helper()
	db, err := gorm.Open(sqlite.Open("file:"+path+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(0)"),
		&gorm.Config{Logger: logger.Discard})
	must(tb, err)
	pool, err := db.DB()
	must(tb, err)
	tb.Cleanup(func() { _ = pool.Close() })
	return db
}

// tables returns a handle on a database of its own with the two tables.
func tables(tb testing.TB) *gorm.DB {
	tb.Helper()
	db := handle(tb, filepath.Join(tb.TempDir(), "test.db"))
	must(tb, migrations.Up(tb.Context(), open(tb, db)))
	return db
}

func open(tb testing.TB, db *gorm.DB) *workernode.DB {
	tb.Helper()
	d, err := workernode.Open(db, time.Minute)
	must(tb, err)
	return d
}

// assigner returns one start of a process.
func assigner(tb testing.TB, db *gorm.DB, layout generator.Layout) *workernode.Disposable {
	tb.Helper()
	return workernode.NewDisposable(open(tb, db), layout, web1, atNoon)
}

var (
	web1   = workernode.Host{Name: "web-1", Port: "8080", Kind: workernode.Container}
	layout = generator.DefaultLayout()
	noon   = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
)

func atNoon() time.Time { return noon }

// narrow is a layout of few worker ids.
func narrow(workerBits uint8) generator.Layout {
	l := layout
	l.WorkerBits = workerBits
	return l
}

// workers returns the worker ids of leases.
func workers(leases []generator.Lease) (ids []int64) {
	for _, l := range leases {
		ids = append(ids, l.WorkerID)
	}
	return ids
}

// names returns n names of tables.
func names(n int) []string {
	return strings.Split(strings.TrimSuffix(strings.Repeat("orders,", n), ","), ",")
}

// run executes a statement past everything that is tested.
func run(tb testing.TB, db *gorm.DB, query string, args ...any) {
	tb.Helper()
	must(tb, db.Exec(query, args...).Error)
}

// foreign inserts a row as UidGenerator does, with a worker id of its choice.
func foreign(tb testing.TB, db *gorm.DB, worker int64) {
	tb.Helper()
	run(tb, db, `INSERT INTO "WORKER_NODE" ("ID", "HOST_NAME", "PORT", "TYPE", "LAUNCH_DATE", "MODIFIED", "CREATED")
		VALUES (?, 'java-1', '8080', 1, '2024-02-29', CURRENT_TIMESTAMP, CURRENT_TIMESTAMP)`, worker)
}

// A pool is a connection pool whose statements a test can meddle with.
type pool struct {
	gorm.ConnPool
	exec  func(query string, run func() (sql.Result, error)) (sql.Result, error)
	query func(query string, run func() (*sql.Rows, error)) (*sql.Rows, error)
}

func (p *pool) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	run := func() (sql.Result, error) { return p.ConnPool.ExecContext(ctx, query, args...) }
	if p.exec == nil {
		return run()
	}
	return p.exec(query, run)
}

func (p *pool) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	run := func() (*sql.Rows, error) { return p.ConnPool.QueryContext(ctx, query, args...) }
	if p.query == nil {
		return run()
	}
	return p.query(query, run)
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

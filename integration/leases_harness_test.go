package integration_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// What the tests of leased worker ids have in common.

// A movedClock runs factor times as fast as the real one, or stands still with 0, and
// can be moved.
type movedClock struct {
	base   time.Time
	factor int64
	moved  atomic.Int64
}

func newMovedClock(factor int64) *movedClock { return &movedClock{base: time.Now(), factor: factor} }

func (c *movedClock) now() time.Time {
	return c.base.Add(time.Since(c.base)*time.Duration(c.factor) + time.Duration(c.moved.Load()))
}

func (c *movedClock) move(d time.Duration) { c.moved.Add(int64(d)) }

// A journal is a log that tests read.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements [io.Writer].
func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

func (j *journal) option() uidplugin.Option {
	return uidplugin.WithLogger(slog.New(slog.NewTextHandler(j, nil)))
}

// saysOnce fails unless the log has the text exactly once, within some seconds.
func (j *journal) saysOnce(t *testing.T, text string) {
	t.Helper()
	eventually(t, 5*time.Second, "a log that says "+text, func() bool { return strings.Contains(j.String(), text) })
	if n := strings.Count(j.String(), text); n != 1 {
		t.Errorf("the log says %q %d times:\n%s", text, n, j)
	}
}

// eventually fails the test unless f is true within limit.
func eventually(t *testing.T, limit time.Duration, what string, f func() bool) {
	t.Helper()
	for begin := time.Now(); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Since(begin) > limit {
			t.Errorf("no %s within %v", what, limit)
			return
		}
	}
}

// small is a layout with so few ids a tick that they are soon used up.
func small(sequenceBits uint8) generator.Layout {
	l := generator.DefaultLayout()
	l.SequenceBits = sequenceBits
	return l
}

// A valve is a connection pool that counts what is sent through it, and sends
// nothing while it is shut.
type valve struct {
	*sql.DB
	shut atomic.Bool
	n    atomic.Int64

	after atomic.Pointer[func(query string)] // called when a statement has changed rows
}

var errValve = errors.New("the valve is shut")

func (v *valve) open() error {
	v.n.Add(1)
	if v.shut.Load() {
		return errValve
	}
	return nil
}

func (v *valve) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if err := v.open(); err != nil {
		return nil, err
	}
	result, err := v.DB.ExecContext(ctx, query, args...)
	if after := v.after.Load(); after != nil && err == nil {
		(*after)(query)
	}
	return result, err
}

func (v *valve) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if err := v.open(); err != nil {
		return nil, err
	}
	return v.DB.QueryContext(ctx, query, args...)
}

// GetDBConn implements [gorm.GetDBConnector].
func (v *valve) GetDBConn() (*sql.DB, error) { return v.DB, nil }

// valved returns a new handle with a valve.
func valved(t *testing.T, d *database) (*gorm.DB, *valve) {
	t.Helper()
	db := open(t, d)
	pool, err := db.DB()
	must(t, err)
	v := &valve{DB: pool}
	db.Config.ConnPool, db.Statement.ConnPool = v, v
	return db, v
}

// A relay passes connections on to a server until it is cut.
type relay struct {
	address, server string

	mu       sync.Mutex
	listener net.Listener
	ends     map[net.Conn]bool
}

// newRelay returns a relay to a server.
func newRelay(t *testing.T, server string) *relay {
	t.Helper()
	r := &relay{server: server, address: "127.0.0.1:0", ends: map[net.Conn]bool{}}
	r.mend(t)
	t.Cleanup(r.cut)
	return r
}

// mend lets connections through, at the same address as before.
func (r *relay) mend(t *testing.T) {
	t.Helper()
	var l net.Listener
	var err error
	for range 100 {
		if l, err = net.Listen("tcp", r.address); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	must(t, err)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.address, r.listener = l.Addr().String(), l
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			r.pass(l, c)
		}
	}()
}

func (r *relay) pass(l net.Listener, c net.Conn) {
	s, err := net.Dial("tcp", r.server)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil || r.listener != l { // cut meanwhile
		_ = c.Close()
		if err == nil {
			_ = s.Close()
		}
		return
	}
	r.ends[c], r.ends[s] = true, true
	both := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		_, _ = to.Close(), from.Close()
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.ends, to)
		delete(r.ends, from)
	}
	go both(c, s)
	go both(s, c)
}

// cut ends all connections, and refuses others.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listener != nil {
		_ = r.listener.Close()
		r.listener = nil
	}
	for c := range r.ends {
		_ = c.Close()
	}
}

var (
	mysqlAddress = regexp.MustCompile(`tcp\(([^)]*)\)`)
	pgAddress    = regexp.MustCompile(`host=(\S+) port=(\S+)`)
)

// address returns where the server listens.
func (d *database) address() string {
	if d.name == "postgres" {
		m := pgAddress.FindStringSubmatch(os.Getenv(d.env))
		return net.JoinHostPort(m[1], m[2])
	}
	return mysqlAddress.FindStringSubmatch(os.Getenv(d.env))[1]
}

// relayed returns a handle through a relay of its own, or for SQLite a valve, and what
// takes the database away and brings it back.
func relayed(t *testing.T, d *database) (db *gorm.DB, away, back func()) {
	t.Helper()
	if d.name == "sqlite" {
		db, v := valved(t, d)
		return db, func() { v.shut.Store(true) }, func() { v.shut.Store(false) }
	}
	r := newRelay(t, d.address())
	host, port, _ := net.SplitHostPort(r.address)
	dsn := pgAddress.ReplaceAllString(d.dsn(), "host="+host+" port="+port)
	if d.isMySQL() {
		dsn = mysqlAddress.ReplaceAllString(d.dsn(), "tcp("+r.address+")")
	}
	db, err := gorm.Open(d.dialector(dsn), &gorm.Config{Logger: logger.Discard})
	must(t, err)
	pool, err := db.DB()
	must(t, err)
	t.Cleanup(func() { _ = pool.Close() })
	return db, r.cut, func() { r.mend(t) }
}

// rows returns all of WORKER_NODE.
func rows(t *testing.T, db *gorm.DB) []*workernode.Node {
	t.Helper()
	d, err := workernode.Open(db, time.Minute)
	must(t, err)
	nodes, err := d.Nodes(context.Background(), 0, 10000)
	must(t, err)
	return nodes
}

// execute runs a statement with "quoted" names, past what is tested.
func execute(t *testing.T, db *gorm.DB, query string, args ...any) {
	t.Helper()
	d, err := workernode.Open(db, time.Minute)
	must(t, err)
	_, err = d.Exec(context.Background(), query, args...)
	must(t, err)
}

// used collects ids and fails if one comes twice.
type used struct {
	mu  sync.Mutex
	ids map[int64]string
}

// add notes an id of somebody.
func (u *used) add(t *testing.T, id int64, who string) {
	t.Helper()
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ids == nil {
		u.ids = map[int64]string{}
	}
	if other, ok := u.ids[id]; ok {
		t.Fatalf("id %d is of %s and of %s", id, other, who)
	}
	u.ids[id] = who
}

// nextID returns an id for T1, within some seconds.
func nextID(p *uidplugin.Plugin) (int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return p.NextID(ctx, &T1{})
}

package integration_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
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
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/migrations"
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

// small is a layout with ticks of a second and so few ids in each that they are soon used up.
func small(sequenceBits uint8) generator.Layout {
	return generator.Layout{TimeBits: 32, WorkerBits: 18, SequenceBits: sequenceBits, Tick: time.Second,
		Epoch: generator.DefaultLayout().Epoch}
}

// manager returns the lease manager of one start of a process, past the plugin, with the layout small(4). Each
// is another machine.
func manager(t *testing.T, db *gorm.DB, c *movedClock, change func(*workernode.Config)) *workernode.Manager {
	t.Helper()
	d, err := workernode.Open(db, 10*time.Second)
	must(t, err)
	must(t, migrations.Up(t.Context(), db))
	config := workernode.Config{Now: c.now, Lead: workernode.DefaultLead}
	if change != nil {
		change(&config)
	}
	host := workernode.Host{Name: fmt.Sprint("h", serial.Add(1)), Port: "1", Kind: workernode.Actual, Application: "tests"}
	m, err := workernode.NewManager(t.Context(), d, small(4), host, config)
	must(t, err)
	t.Cleanup(func() { _ = m.Close(context.Background()) })
	return m
}

// A tenant makes ids of a table and does not wait.
type tenant struct {
	*generator.Cached
	lease *workernode.TableLease
}

func newTenant(t *testing.T, m *workernode.Manager, table string) *tenant {
	t.Helper()
	leases, err := m.Assign(t.Context(), []workernode.Table{{Name: table}}, nil)
	must(t, err)
	return attached(t, m, leases[0])
}

// attached returns the generator of a lease.
func attached(t *testing.T, m *workernode.Manager, l *workernode.TableLease) *tenant {
	t.Helper()
	g, err := generator.NewCached(generator.CachedConfig{Layout: small(4), Lease: l.Leases()[0], NoWait: true,
		Clock:     generator.NewClock(m.Now),
		MaxBorrow: time.Hour, OnLow: func() {}})
	must(t, err)
	l.Attach(g)
	return &tenant{g, l}
}

// drain takes all ids that a tenant has.
func (g *tenant) drain(t *testing.T) (ids []int64) {
	t.Helper()
	for {
		id, err := g.Next(t.Context())
		if err == nil {
			ids = append(ids, id)
			continue
		}
		if !errors.Is(err, generator.ErrLeaseExpired) {
			t.Fatal(err)
		}
		return ids
	}
}

// renewed waits until a tenant has ids again. The clock moves: a statement whose outcome is unknown may have used up
// the ticks of the moment.
func (g *tenant) renewed(t *testing.T, m *workernode.Manager, c *movedClock) {
	t.Helper()
	begin := time.Now()
	eventually(t, 10*time.Second, "renewal", func() bool {
		m.RequestRenewal()
		if time.Since(begin) > 100*time.Millisecond {
			begin = time.Now()
			c.move(time.Second)
		}
		return g.Usage().Left > 0
	})
}

// A relay passes connections on to a server until it is cut.
type relay struct {
	address, server string

	slow atomic.Int64 // each answer is delayed by up to so long, in nanoseconds

	mu       sync.Mutex
	listener net.Listener
	ends     map[net.Conn]bool
}

// newRelay returns a relay to a server.
func newRelay(t *testing.T, server string) *relay {
	t.Helper()
	r := &relay{server: server, address: "127.0.0.1:0", ends: map[net.Conn]bool{}}
	r.restore(t)
	t.Cleanup(r.cut)
	return r
}

// restore lets connections through, at the same address as before.
func (r *relay) restore(t *testing.T) {
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
		var source io.Reader = from
		if to == c {
			source = slowReader{from, &r.slow}
		}
		_, _ = io.Copy(to, source)
		_, _ = to.Close(), from.Close()
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.ends, to)
		delete(r.ends, from)
	}
	go both(c, s)
	go both(s, c)
}

// A slowReader returns what it reads after a random time.
type slowReader struct {
	net.Conn
	most *atomic.Int64
}

func (s slowReader) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	if most := s.most.Load(); most > 0 {
		time.Sleep(rand.N(time.Duration(most)))
	}
	return n, err
}

// WriteTo hides that of the connection, which would not call Read.
func (s slowReader) WriteTo(w io.Writer) (int64, error) {
	return io.Copy(w, struct{ io.Reader }{s})
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

// relayed returns a handle through a relay of its own, or for SQLite a tap, and what
// takes the database away and brings it back.
func relayed(t *testing.T, d *database) (db *gorm.DB, away, back func()) {
	t.Helper()
	if d.name == "sqlite" {
		db, tap := tapped(t, d)
		return db, func() { tap.shut.Store(true) }, func() { tap.shut.Store(false) }
	}
	r := newRelay(t, d.address())
	return r.open(t, d), r.cut, func() { r.restore(t) }
}

// open returns a handle through the relay.
func (r *relay) open(t *testing.T, d *database, params ...string) *gorm.DB {
	t.Helper()
	host, port, _ := net.SplitHostPort(r.address)
	dsn := pgAddress.ReplaceAllString(d.dsn(params...), "host="+host+" port="+port)
	if d.isMySQL() {
		dsn = mysqlAddress.ReplaceAllString(d.dsn(params...), "tcp("+r.address+")")
	}
	db, err := gorm.Open(d.dialector(dsn), &gorm.Config{Logger: logger.Discard})
	must(t, err)
	t.Cleanup(func() { _ = closed(db) })
	return db
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

// slots returns all of WORKER_SLOT.
func slots(t *testing.T, db *gorm.DB) []workernode.Slot {
	t.Helper()
	d, err := workernode.Open(db, time.Minute)
	must(t, err)
	all, err := d.Slots(context.Background(), 0, 10000)
	must(t, err)
	return all
}

// execute runs a statement with "quoted" names, past what is tested.
func execute(t *testing.T, db *gorm.DB, query string, args ...any) {
	t.Helper()
	d, err := sqldb.Open(db, time.Minute)
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
	id, err := p.NextID(ctx, &T1{})
	return id.Int64(), err
}

package workernode_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/migrations"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

var (
	must, saysAll = testkit.Must, testkit.SaysAll

	layout = generator.DefaultLayout()
	web1   = workernode.Host{Name: "web-1", Port: "8080", Kind: workernode.Container, Application: "shop"}
)

// open returns a DB on the pool of db.
func open(tb testing.TB, db *gorm.DB) *workernode.DB {
	tb.Helper()
	d, err := workernode.Open(db, time.Minute)
	must(tb, err)
	return d
}

// mocked returns a DB on a mock with a dialect.
func mocked(t *testing.T, dial func(gorm.ConnPool) gorm.Dialector) (*workernode.DB, sqlmock.Sqlmock) {
	t.Helper()
	db, mock := testkit.Mock(t, dial)
	return open(t, db), mock
}

// tables returns a handle on a database of its own that has the tables.
func tables(tb testing.TB) *gorm.DB {
	tb.Helper()
	db := testkit.SQLite{}.Open(tb)
	must(tb, migrate(tb, db))
	return db
}

func migrate(tb testing.TB, db *gorm.DB) error {
	tb.Helper()
	return migrations.Up(tb.Context(), db)
}

// narrow is the default layout with few worker ids.
func narrow(workerBits uint8) generator.Layout {
	l := layout
	l.WorkerBits = workerBits
	return l
}

func run(tb testing.TB, db *gorm.DB, query string, args ...any) {
	tb.Helper()
	must(tb, db.Exec(query, args...).Error)
}

// foreign inserts a row as UidGenerator does, with a worker id of the test's choice.
func foreign(tb testing.TB, db *gorm.DB, worker int64) {
	tb.Helper()
	run(tb, db, `INSERT INTO "WORKER_NODE" ("ID", "HOST_NAME", "PORT", "TYPE", "LAUNCH_DATE", "MODIFIED", "CREATED")
		VALUES (?, 'java-1', '8080', 1, '2024-02-29', CURRENT_TIMESTAMP, CURRENT_TIMESTAMP)`, worker)
}

// A world is one database and its processes, with a clock that they share. Use it in a bubble of synctest, whose
// time it shows, 26 years later.
type world struct {
	tb     testing.TB
	path   string
	db     *gorm.DB // for the test itself
	log    *testkit.Log
	ledger *testkit.Ledger
	layout generator.Layout
}

func newWorld(tb testing.TB) *world {
	tb.Helper()
	w := &world{tb: tb, path: testkit.SQLitePath(tb), log: &testkit.Log{}, ledger: testkit.NewLedger(tb), layout: layout}
	w.db = testkit.SQLite{Path: w.path}.Open(tb)
	must(tb, migrate(tb, w.db))
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Log(w.log)
		}
	})
	return w
}

// now is the time of the bubble, moved to where the layout has ticks.
func now() time.Time { return time.Now().Add(26 * 365 * 24 * time.Hour) }

func (w *world) tick() int64 { return w.layout.TickAt(now()) }

// A process is one start of a process, with its own pool and wire.
type process struct {
	*workernode.Manager
	world *world
	wire  *testkit.Wire
	db    *gorm.DB
	clock *generator.Clock

	generators map[workernode.Table]generator.Renewable
}

// start starts a process. change, if it is not nil, changes its config and host.
func (w *world) start(change func(*workernode.Config, *workernode.Host)) *process {
	w.tb.Helper()
	p, err := w.tryStart(change)
	must(w.tb, err)
	return p
}

func (w *world) tryStart(change func(*workernode.Config, *workernode.Host)) (*process, error) {
	w.tb.Helper()
	config, host := workernode.Config{Lead: time.Second, Now: now, Log: w.log.Logger()}, web1
	if change != nil {
		change(&config, &host)
	}
	wire := &testkit.Wire{}
	p := &process{world: w, wire: wire, db: wire.Open(w.tb, testkit.SQLite{Path: w.path}), generators: map[workernode.Table]generator.Renewable{}}
	m, err := workernode.NewManager(w.tb.Context(), open(w.tb, p.db), w.layout, host, config)
	if err != nil {
		return nil, err
	}
	p.Manager, p.clock = m, generator.NewClock(m.Now)
	w.tb.Cleanup(p.stop)
	return p, nil
}

// stop ends the process as a crash does: without a statement.
func (p *process) stop() {
	for _, g := range p.generators {
		g.Close()
	}
	p.wire.Set(func(*testkit.Crossing) error { return testkit.ErrLost })
	_ = p.Close(context.Background())
}

// until returns the last tick that a process may stamp.
func (p *process) until() int64 { return p.world.layout.TickAt(p.Stats().Until) - 1 }

func table(name string) workernode.Table { return workernode.Table{Name: name} }

func tablesNamed(n int) []workernode.Table {
	list := make([]workernode.Table, n)
	for i := range list {
		list[i] = table(fmt.Sprintf("t%03d", i))
	}
	return list
}

// assign gets a lease for each of the tables, and makes a generator of each.
func (p *process) assign(tables ...workernode.Table) []*workernode.TableLease {
	p.world.tb.Helper()
	leases := p.leases(tables...)
	for _, l := range leases {
		p.attach(l)
	}
	return leases
}

// leases gets a lease for each of the tables.
func (p *process) leases(tables ...workernode.Table) []*workernode.TableLease {
	p.world.tb.Helper()
	leases, err := p.Assign(p.world.tb.Context(), tables, nil)
	must(p.world.tb, err)
	return leases
}

// refused asks for a worker id of a table, and fails the test unless it gets an error with words within a time.
func (p *process) refused(limit time.Duration, x workernode.Table, want error, words ...string) {
	p.world.tb.Helper()
	ctx, cancel := context.WithTimeout(p.world.tb.Context(), limit)
	defer cancel()
	_, err := p.Assign(ctx, []workernode.Table{x}, nil)
	testkit.IsError(p.world.tb, err, want, words...)
	if ctx.Err() != nil {
		p.world.tb.Fatalf("the context of %v ended first: %v", x, err)
	}
}

// attach makes a generator that stamps with a lease.
func (p *process) attach(l *workernode.TableLease) generator.Renewable {
	p.world.tb.Helper()
	g, err := generator.NewCached(generator.CachedConfig{Layout: p.world.layout, Lease: l.Leases()[0], OnLow: p.RequestRenewal, Clock: p.clock})
	must(p.world.tb, err)
	l.Attach(g)
	p.generators[l.Table()] = g
	return g
}

// make makes n ids of a table, and notes them in the ledger.
func (p *process) make(t workernode.Table, n int) []int64 {
	p.world.tb.Helper()
	ids := make([]int64, n)
	must(p.world.tb, p.generators[t].Fill(p.world.tb.Context(), ids))
	p.world.ledger.Add(t.String(), ids...)
	return ids
}

// parts returns the worker id and the tick of an id.
func (w *world) parts(id int64) (worker, tick int64) {
	w.tb.Helper()
	parts, err := w.layout.Decompose(id)
	must(w.tb, err)
	return parts.WorkerID, w.layout.TickAt(parts.Time)
}

// number returns the number that a query selects.
func (w *world) number(query string, args ...any) (n int64) {
	w.tb.Helper()
	must(w.tb, w.db.Raw(query, args...).Scan(&n).Error)
	return n
}

type slotRow struct {
	Holder                  string
	Fence, Version, Seen    int64 // Seen: SEEN_TICK
	Application, Host, Port string
}

func (w *world) slot(id int64) (s slotRow) {
	w.tb.Helper()
	must(w.tb, w.db.Raw(`SELECT "HOLDER", "FENCE", "VERSION", "SEEN_TICK", "APPLICATION", "HOST_NAME", "PORT" FROM "WORKER_SLOT" WHERE "ID" = ?`, id).
		Row().Scan(&s.Holder, &s.Fence, &s.Version, &s.Seen, &s.Application, &s.Host, &s.Port))
	return s
}

// nodes returns all rows of WORKER_NODE, in ascending order.
func (w *world) nodes() []*workernode.Node {
	w.tb.Helper()
	nodes, err := open(w.tb, w.db).Nodes(w.tb.Context(), -1<<62, 100_000)
	must(w.tb, err)
	return nodes
}

// nodesOfLedger returns the rows of WORKER_NODE by worker id. It fails the test if the worker id of an id in the ledger
// has no row, or one of another table. unresolved counts ids whose tick the row excludes.
func (w *world) nodesOfLedger() (byID map[int64]*workernode.Node, unresolved int) {
	w.tb.Helper()
	byID = map[int64]*workernode.Node{}
	for _, n := range w.nodes() {
		byID[n.WorkerID] = n
	}
	for id, t := range w.ledger.Tables() {
		worker, tick := w.parts(id)
		switch n := byID[worker]; {
		case n == nil:
			w.tb.Fatalf("the id %d of %s: its worker id %d has no row", id, t, worker)
		case n.Table.Name == "" || tick <= n.Start:
			unresolved++
		case n.Table.String() != t:
			w.tb.Fatalf("the id %d of %s: its worker id %d is of the table %q", id, t, worker, n.Table)
		}
	}
	return byID, unresolved
}

// checkWorkerIDs verifies that no id resolves to another table.
func (w *world) checkWorkerIDs() {
	w.tb.Helper()
	if _, unresolved := w.nodesOfLedger(); unresolved > w.ledger.Len()/10 {
		w.tb.Errorf("%d of %d ids resolve to no table", unresolved, w.ledger.Len())
	}
}

// check verifies that each id of the ledger resolves to its table, and that ids were stamped in a session of the worker
// id's slot: the first and the last of each worker id, and some in between.
func (w *world) check() {
	w.tb.Helper()
	_, unresolved := w.nodesOfLedger()
	if unresolved > 0 {
		w.tb.Errorf("%d ids have a tick up to START_TICK of their worker ids", unresolved)
	}
	d, ticks, faults := open(w.tb, w.db), map[int64][]int64{}, 0
	for id := range w.ledger.Tables() {
		worker, tick := w.parts(id)
		ticks[worker] = append(ticks[worker], tick)
	}
	for worker, list := range ticks {
		slices.Sort(list)
		list = slices.Compact(list)
		for i, tick := range list {
			if i%50 != 0 && i != len(list)-1 {
				continue
			}
			if _, o, ok, err := d.Trace(w.tb.Context(), w.layout, worker, tick); (err != nil || !ok) && faults < 5 {
				faults++
				w.tb.Errorf("the tick %d of the worker id %d has no session: %+v, %v", tick, worker, o, err)
			}
		}
	}
}

// logs reports an error for each of words that no line of the log has.
func (w *world) logs(words ...string) {
	w.tb.Helper()
	for range 1000 { // the log is written in the background
		if text := w.log.String(); !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) }) {
			return
		}
		time.Sleep(time.Millisecond)
	}
	saysAll(w.tb, w.log.String(), words...)
}

// bubble runs a test with a clock of its own, in parallel with others.
func bubble(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	bubbleWith(t, layout, test)
}

// each runs a test in a bubble for each of cases.
func each[T any](t *testing.T, cases map[string]T, test func(t *testing.T, w *world, tt T)) {
	t.Helper()
	t.Parallel()
	for name, tt := range cases {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) { test(t, w, tt) })
		})
	}
}

// bubbleWith is bubble for ids of another layout.
func bubbleWith(t *testing.T, layout generator.Layout, test func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.layout = layout
		test(t, w)
	})
}

// formers leaves n slots of former processes, with a worker id of a table, that can be reclaimed.
func (w *world) formers(n int, x workernode.Table) {
	w.tb.Helper()
	list := make([]*process, n)
	for i := range list {
		list[i] = w.start(nil)
		list[i].assign(x)
		list[i].make(x, 10)
	}
	for _, p := range list {
		p.end(w.tb)
	}
	time.Sleep(3 * time.Second)
}

// patient calls f until it succeeds, for a minute at most. Callers of an application try again, too.
func patient(tb testing.TB, what string, f func(ctx context.Context) error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	for {
		err := f(ctx)
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			tb.Fatalf("%s: %v", what, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func leadOf(d time.Duration) func(*workernode.Config, *workernode.Host) {
	return func(c *workernode.Config, _ *workernode.Host) { c.Lead = d }
}

// use makes ids of a table, and gets its lease first if it has none.
func (p *process) use(t *testing.T, x workernode.Table, n int) {
	t.Helper()
	if p.generators[x] == nil {
		patient(t, "a lease for "+x.String(), func(ctx context.Context) error {
			leases, err := p.Assign(ctx, []workernode.Table{x}, nil)
			if err == nil {
				p.attach(leases[0])
			}
			return err
		})
	}
	patient(t, "ids of "+x.String(), func(ctx context.Context) error {
		for ; n > 0; n-- {
			id, err := p.generators[x].Next(ctx)
			if err != nil {
				return err
			}
			p.world.ledger.Add(x.String(), id)
		}
		return nil
	})
}

// work makes n ids of each of some tables, for some times, with a tenth of a second before each time.
func (p *process) work(t *testing.T, times, n int, tables ...workernode.Table) {
	t.Helper()
	for range times {
		time.Sleep(100 * time.Millisecond)
		for _, x := range tables {
			p.use(t, x, n)
		}
	}
}

// end closes a process as an application does: the generators first.
func (p *process) end(tb testing.TB) {
	tb.Helper()
	for _, g := range p.generators {
		g.Close()
	}
	patient(tb, "Close", p.Close)
}

// Start gets the slot, without a worker id.
func (p *process) Start(ctx context.Context) error {
	_, err := p.Assign(ctx, nil, nil)
	return err
}

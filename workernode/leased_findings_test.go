package workernode_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/workernode"
)

// One id twice: a hold is found by the worker id it began with, which another hold
// of the same process may have meanwhile.
func TestAHoldIsNotFoundByAWorkerIDThatItHasLost(t *testing.T) {
	db, c := tables(t), &clock{now: noon}
	gc := generator.NewClock(c.read)
	k := leased(t, db, c, nil)
	first, err := k.Assign(t.Context(), "orders") // field 1 of table orders: uid:cached
	must(t, err)
	g1, err := generator.NewCached(generator.CachedConfig{Layout: layout, Lease: first[0], Clock: gc, Low: k.Need})
	must(t, err)
	k.Keep(first[0], g1)

	// The process is paused; another one takes the worker id over, and ends.
	c.move(2 * time.Minute)
	other := leased(t, db, c, nil)
	l, err := other.Assign(t.Context(), "orders")
	must(t, err)
	if l[0].WorkerID != first[0].WorkerID {
		t.Fatal(l)
	}
	must(t, other.Close(t.Context()))
	_, err = g1.Next(t.Context())
	must(t, err)
	must(t, k.Pass(t.Context())) // finds out, gets another worker id
	t.Logf("first generator now has %+v", k.Leases(first[0]))
	// Later the second field of the table (uid:default) is used for the first time.
	for range 6 {
		c.move(4 * time.Second)
		_, err = g1.Next(t.Context())
		must(t, err)
		must(t, k.Pass(t.Context()))
	}
	second, err := k.Assign(t.Context(), "orders")
	must(t, err)
	g2, err := generator.NewCached(generator.CachedConfig{Layout: layout, Lease: second[0], Clock: gc, Low: k.Need})
	must(t, err)
	k.Keep(second[0], g2)
	t.Logf("second lease %+v", second[0])
	seen := map[int64]string{}
	for range 4 {
		c.move(5 * time.Second)
		time.Sleep(20 * time.Millisecond) // for the generators' clock
		for i, g := range []*generator.Cached{g1, g2} {
			ids := make([]int64, 100)
			must(t, g.Fill(t.Context(), ids))
			for _, id := range ids {
				if who, ok := seen[id]; ok {
					p, _ := layout.Decompose(id)
					t.Fatalf("id %d twice: of %s and of g%d (%+v)", id, who, i+1, p)
				}
				seen[id] = fmt.Sprintf("g%d", i+1)
			}
		}
		must(t, k.Pass(t.Context()))
	}
}

// FLOOR_SECOND is not looked at when rows are taken over.
func TestFloorSecondCountsForWorkerIDsThatAreTakenOver(t *testing.T) {
	for _, durable := range []bool{false, true} {
		db, c := tables(t), &clock{now: noon}
		k := leased(t, db, c, func(c *workernode.LeasedConfig) { c.Durable = durable })
		_, err := k.Assign(t.Context(), "orders")
		must(t, err)
		must(t, k.Close(t.Context()))
		// all stopped; the backup (this database) is restored; the operator does what running.md says
		c.move(2 * time.Hour)
		floor := layout.TickAt(c.read()) + 3600
		run(t, db, `UPDATE "WORKER_REGISTRY" SET "FLOOR_SECOND" = ?, "NEXT_ID" = "NEXT_ID" + 100`, floor)
		k = leased(t, db, c, func(c *workernode.LeasedConfig) { c.Durable = durable })
		l, err := k.Assign(t.Context(), "orders")
		must(t, err)
		if l[0].From <= floor {
			t.Errorf("durable %t: worker id %d from tick %d on; FLOOR_SECOND is %d", durable, l[0].WorkerID, l[0].From, floor)
		}
	}
}

// A free row of one table is not had because another table wants too many.
func TestSparesAreNotWorthAnError(t *testing.T) {
	db, c := tables(t), &clock{now: noon}
	few := narrow(2)
	start := func(spares int) *workernode.Leased {
		k, err := workernode.NewLeased(open(t, db), few, web1, workernode.LeasedConfig{Now: c.read, Spares: spares})
		must(t, err)
		t.Cleanup(func() { _ = k.Close(context.Background()) })
		return k
	}
	k := start(0)
	_, err := k.Assign(t.Context(), "a", "b", "c")
	must(t, err)
	must(t, k.Close(t.Context()))
	c.move(time.Hour)
	if _, err = start(1).Assign(t.Context(), "a"); err != nil {
		t.Errorf("a is free, and is not given because there is no spare: %v", err)
	}
	c.move(time.Hour)
	k = start(1)
	if err = k.Start(t.Context()); err != nil {
		t.Errorf("db.Use fails though all tables of the application have free worker ids: %v", err)
	}
}

// A table that has lost its worker id, when there is none to be had, waits for
// ever, and nobody is told.
func TestWhoHasLostTheLastWorkerIDIsTold(t *testing.T) {
	db, c := tables(t), &clock{now: noon}
	few := narrow(1) // worker id 1
	start := func() *workernode.Leased {
		k, err := workernode.NewLeased(open(t, db), few, web1, workernode.LeasedConfig{Now: c.read})
		must(t, err)
		t.Cleanup(func() { _ = k.Close(context.Background()) })
		return k
	}
	k := start()
	l, err := k.Assign(t.Context(), "a")
	must(t, err)
	g, err := generator.NewCached(generator.CachedConfig{Layout: few, Lease: l[0], Clock: generator.NewClock(c.read), Low: k.Need})
	must(t, err)
	k.Keep(l[0], g)
	c.move(2 * time.Minute) // paused
	_, err = start().Assign(t.Context(), "a")
	must(t, err)
	ids := make([]int64, 200_000) // more than the old lease has
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	begin := time.Now()
	err = g.Fill(ctx, ids)
	t.Logf("after %v: %v; stats %+v", time.Since(begin), err, k.Stats())
	if errors.Is(err, context.DeadlineExceeded) && k.Stats().LastError == nil {
		t.Errorf("the caller is not told why (%v), Stats().LastError (Health) is nil", err)
	}
}

// A spare whose lease has ended, and that others have taken over, is bound.
func TestASpareThatMayBeAnothersIsNotUsed(t *testing.T) {
	db, c := tables(t), &clock{now: noon}
	k := leased(t, db, c, func(c *workernode.LeasedConfig) { c.Spares = 1 })
	must(t, k.Start(t.Context()))
	c.move(15 * time.Minute) // nobody has used anything for more than ten minutes, so nothing is renewed
	must(t, k.Pass(t.Context()))
	other := leased(t, db, c, func(c *workernode.LeasedConfig) { c.Spares = 1 })
	must(t, other.Start(t.Context()))
	mine, ok := k.Spare("orders")
	if !ok {
		return // good
	}
	nodes, err := open(t, db).Lookup(t.Context(), mine.WorkerID)
	must(t, err)
	n := nodes[mine.WorkerID]
	t.Logf("bound to orders: %+v; now is %d; its row: %+v", mine, layout.TickAt(c.read()), *n)
	if mine.Until <= n.Start {
		t.Errorf("ids of orders with worker id %d up to tick %d lead nowhere: START_SECOND is %d already, HOLDER is another", mine.WorkerID, mine.Until, n.Start)
	}
}

// (run alone) The keeper logs with its mutex held.
func TestALogHandlerMayLookAtTheStats(t *testing.T) {
	db, c := tables(t), &clock{now: noon}
	var k *workernode.Leased
	done := make(chan struct{})
	once := sync.Once{}
	h := handlerFunc(func(r slog.Record) {
		if strings.Contains(r.Message, "another process has this worker id") {
			once.Do(func() { _ = k.Stats(); close(done) })
		}
	})
	k = leased(t, db, c, func(c *workernode.LeasedConfig) { c.Log = slog.New(h) })
	l, err := k.Assign(t.Context(), "a")
	must(t, err)
	g := &stamper{}
	g.want(true, false, 1)
	k.Keep(l[0], g)
	run(t, db, `UPDATE "WORKER_NODE" SET "HOLDER" = 'x', "FENCE" = "FENCE" + 1`)
	c.move(5 * time.Second)
	go func() { _ = k.Pass(context.Background()) }()
	select {
	case <-done:
	case <-time.After(2 * time.Second):
		t.Fatal("deadlock: the handler's Stats() waits for the mutex that the keeper holds while it logs")
	}
}

type handlerFunc func(slog.Record)

func (f handlerFunc) Enabled(context.Context, slog.Level) bool      { return true }
func (f handlerFunc) Handle(_ context.Context, r slog.Record) error { f(r); return nil }
func (f handlerFunc) WithAttrs([]slog.Attr) slog.Handler            { return f }
func (f handlerFunc) WithGroup(string) slog.Handler                 { return f }

// With ticks of milliseconds groups never merge.
func TestShortTicksAreRenewedInOneStatement(t *testing.T) {
	db := tables(t)
	ms := generator.SnowflakeLayout()
	statements := counted(db)
	k, err := workernode.NewLeased(open(t, db), ms, web1, workernode.LeasedConfig{})
	must(t, err)
	t.Cleanup(func() { _ = k.Close(context.Background()) })
	for i := range 30 {
		l, err := k.Assign(t.Context(), fmt.Sprint("t", i))
		must(t, err)
		g := &stamper{}
		g.want(true, false, 1)
		k.Keep(l[0], g)
		time.Sleep(2 * time.Millisecond)
	}
	must(t, k.Pass(t.Context())) // their fences differ at first
	for range 3 {
		before := statements()
		must(t, k.Pass(t.Context()))
		if n := statements() - before; n > 1 {
			t.Errorf("a renewal of 30 tables takes %d statements", n)
		}
	}
}

// A pool that is replaced by another: one statement meets the old one closed.
func TestThePoolMayBeReplaced(t *testing.T) {
	db := tables(t)
	m, p := meddled(db)
	fail := false
	var mu sync.Mutex
	p.exec = func(query string, run func() (sql.Result, error)) (sql.Result, error) {
		mu.Lock()
		f := fail
		fail = false
		mu.Unlock()
		if f {
			return nil, errors.New("sql: database is closed")
		}
		return run()
	}
	c := &clock{now: noon}
	k := leased(t, m, c, nil)
	l, err := k.Assign(t.Context(), "a")
	must(t, err)
	g := &stamper{}
	g.want(true, false, 1)
	k.Keep(l[0], g)
	mu.Lock()
	fail = true
	mu.Unlock()
	c.move(5 * time.Second)
	k.Need()
	time.Sleep(500 * time.Millisecond)
	g.want(true, true, 1)
	for range 30 {
		c.move(time.Second)
		k.Need()
		time.Sleep(100 * time.Millisecond)
	}
	if got, _ := g.has(); len(got) == 0 || got[0].Until <= l[0].Until {
		t.Errorf("never renewed again: %+v, %+v", got, k.Stats())
	}
}

// Close whose context ended does nothing when it is called again.
func TestCloseTriesAgain(t *testing.T) {
	db, c := tables(t), &clock{now: noon}
	m, p := meddled(db)
	k := leased(t, m, c, nil)
	l, err := k.Assign(t.Context(), "a")
	must(t, err)
	block := make(chan struct{})
	entered := make(chan struct{})
	var once sync.Once
	p.exec = func(query string, run func() (sql.Result, error)) (sql.Result, error) {
		if strings.Contains(query, `SET "FENCE"`) || strings.Contains(query, "SET `FENCE`") {
			once.Do(func() { close(entered); <-block })
		}
		return run()
	}
	g := &stamper{}
	g.want(true, false, 1)
	k.Keep(l[0], g)
	c.move(5 * time.Second)
	k.Need()
	<-entered
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err = k.Close(ctx)
	if err == nil {
		t.Fatal("closed")
	}
	close(block)
	time.Sleep(100 * time.Millisecond)
	must(t, k.Close(t.Context())) // says nil
	nodes, err := open(t, db).Lookup(t.Context(), l[0].WorkerID)
	must(t, err)
	if n := nodes[l[0].WorkerID]; n.Holder != "" {
		t.Errorf("the second Close returned nil, and the worker id is not given back: %+v", *n)
	}
}

// A spare that gets lanes before it is written down.
func TestASpareThatGetsLanesIsWrittenDown(t *testing.T) {
	db, c := tables(t), &clock{now: noon}
	// rows 1 and 2 are of orders, free; the spare is 3
	k0 := leased(t, db, c, nil)
	_, err := k0.Assign(t.Context(), "orders", "orders")
	must(t, err)
	must(t, k0.Close(t.Context()))
	c.move(10 * time.Minute)

	m, p := meddled(db)
	k := leased(t, m, c, func(c *workernode.LeasedConfig) { c.Spares, c.MaxLanes = 1, 4 })
	must(t, k.Start(t.Context()))
	g := &stamper{}
	var lease generator.Lease
	var once sync.Once
	p.exec = func(query string, run func() (sql.Result, error)) (sql.Result, error) {
		r, err := run()
		if strings.HasPrefix(query, "UPDATE") && strings.Contains(query, "SET `FENCE`") { // the renewal of this pass, after write()
			once.Do(func() {
				lease, _ = k.Spare("orders")
				g.want(true, false, 1)
				k.Keep(lease, g)
				time.Sleep(20 * time.Millisecond)
				c.move(time.Second)
				g.mu.Lock()
				g.usage = generator.Usage{Tick: layout.TickAt(c.read()) + 15, Used: true, Waiting: true, Lanes: 1, Left: 0}
				g.mu.Unlock()
			})
		}
		return r, err
	}
	_, err = k.Assign(t.Context(), "users") // so that there is something to renew
	must(t, err)
	c.move(5 * time.Second)
	k.Need()
	time.Sleep(400 * time.Millisecond)
	got, _ := g.has()
	t.Logf("spare %d, lanes %v", lease.WorkerID, workers(got))
	g.want(true, false, len(got))
	for range 5 {
		c.move(time.Second)
		k.Need()
		time.Sleep(300 * time.Millisecond)
	}
	nodes, err := open(t, db).Lookup(t.Context(), lease.WorkerID)
	must(t, err)
	if n := nodes[lease.WorkerID]; n.Table != "orders" {
		t.Errorf("the spare's table was never written: %+v", *n)
	}
}

// Concurrent first inserts take more spares than told.
func TestFirstInsertsAtOnceTakeNoMoreSparesThanTold(t *testing.T) {
	db, c := tables(t), &clock{now: noon}
	k := leased(t, db, c, func(c *workernode.LeasedConfig) { c.Spares = 2 })
	gun := make(chan struct{})
	var group sync.WaitGroup
	for i := range 10 {
		group.Go(func() {
			<-gun
			if _, err := k.Assign(context.Background(), fmt.Sprint("t", i)); err != nil {
				t.Error(err)
			}
		})
	}
	close(gun)
	group.Wait()
	t.Logf("%+v", k.Stats())
	if s := k.Stats(); s.Spares != 2 {
		t.Errorf("%d spares", s.Spares)
	}
}

// A claim that fails takes what is free out of service for 20 s.
func TestAClaimThatFailsKeepsNobodyFromWhatItGot(t *testing.T) {
	db, c := tables(t), &clock{now: noon}
	few := narrow(2)
	start := func() *workernode.Leased {
		k, err := workernode.NewLeased(open(t, db), few, web1, workernode.LeasedConfig{Now: c.read})
		must(t, err)
		t.Cleanup(func() { _ = k.Close(context.Background()) })
		return k
	}
	k := start()
	_, err := k.Assign(t.Context(), "a", "b", "c")
	must(t, err)
	must(t, k.Close(t.Context()))
	c.move(time.Hour)
	k = start()
	if _, err := k.Assign(t.Context(), "a", "d"); !errors.Is(err, workernode.ErrExhausted) {
		t.Fatal(err)
	}
	if _, err := k.Assign(t.Context(), "a"); err != nil {
		t.Errorf("nobody has a, and yet: %v", err)
	}
}

package workernode_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// clock is one that tests move.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) read() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// diary is a log that tests read.
type diary struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements [io.Writer].
func (j *diary) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *diary) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// leased returns one start of a process in the guarded mode.
func leased(tb testing.TB, db *gorm.DB, c *clock, change func(*workernode.LeasedConfig)) *workernode.Leased {
	tb.Helper()
	config := workernode.LeasedConfig{Now: c.read}
	if change != nil {
		change(&config)
	}
	k, err := workernode.NewLeased(open(tb, db), layout, web1, config)
	must(tb, err)
	tb.Cleanup(func() { _ = k.Close(context.Background()) })
	return k
}

// stamper is a generator as the keeper sees it.
type stamper struct {
	generator.Renewable
	mu        sync.Mutex
	leases    []generator.Lease
	usage     generator.Usage
	suspended error
}

func (s *stamper) Renew(leases ...generator.Lease) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leases, s.suspended = slices.Clone(leases), nil
	return nil
}

func (s *stamper) Suspend(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.suspended = cause
}

func (s *stamper) Usage() generator.Usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.usage
}

func (s *stamper) has() (leases []generator.Lease, suspended error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leases, s.suspended
}

// want sets how the generator stands: fresh, as one that is up with the clock, or in
// need.
func (s *stamper) want(used, waiting bool, lanes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.usage = generator.Usage{Used: used, Waiting: waiting, Lanes: lanes, Left: 1 << 60}
	if waiting {
		s.usage.Left = 0
	}
}

const lead, margin = 20, 10 // of the guarded mode, in ticks of a second

func TestALeaseBeginsMarginAheadAndEndsLeadAhead(t *testing.T) {
	t.Parallel()

	db, c := tables(t), &clock{now: noon}
	k := leased(t, db, c, nil)
	leases, err := k.Assign(t.Context(), "orders", "items", "orders")
	must(t, err)
	now := layout.TickAt(noon)
	for i, l := range leases {
		if (l != generator.Lease{WorkerID: int64(i + 1), From: now + margin, Until: now + lead}) {
			t.Errorf("lease %d: %+v, now is %d", i, l, now)
		}
	}
	nodes, err := open(t, db).Lookup(t.Context(), 1, 2, 3)
	must(t, err)
	for i, table := range []string{"orders", "items", "orders"} {
		n := nodes[int64(i+1)]
		n.LaunchDate = time.Time{}
		want := workernode.Node{WorkerID: int64(i + 1), Table: table, Layout: layout.String(), Host: "web-1", Port: "8080", Kind: workernode.Container,
			Start: now + margin - 1, Held: now + margin - 1, Fence: now + lead, Holder: k.Holder()}
		if *n != want {
			t.Errorf("%+v, want %+v", *n, want)
		}
	}
	if s := k.Stats(); s.Held != 3 || s.Fresh != 3 || s.Taken != 0 {
		t.Errorf("%+v", s)
	}
}

func TestAWorkerIDThatWasGivenBackIsTakenByTheNextOfItsTable(t *testing.T) {
	t.Parallel()

	db, c := tables(t), &clock{now: noon}
	first := leased(t, db, c, nil)
	_, err := first.Assign(t.Context(), "orders", "items")
	must(t, err)
	must(t, first.Close(t.Context()))

	// Its last tick is still ahead of the clock: nobody may have it yet.
	early := leased(t, db, c, nil)
	leases, err := early.Assign(t.Context(), "orders")
	must(t, err)
	if got := workers(leases); !slices.Equal(got, []int64{3}) {
		t.Errorf("before the fence has passed: %v", got)
	}
	c.move(21 * time.Second)
	second := leased(t, db, c, nil)
	leases, err = second.Assign(t.Context(), "items", "users", "orders")
	must(t, err)
	if got := workers(leases); !slices.Equal(got, []int64{2, 4, 1}) {
		t.Errorf("worker ids %v", got)
	}
	now := layout.TickAt(c.read())
	nodes, err := open(t, db).Lookup(t.Context(), 1)
	must(t, err)
	if n := nodes[1]; n.Table != "orders" || n.Holder != second.Holder() || n.Start != layout.TickAt(noon)+margin-1 || n.Held != now+margin-1 ||
		n.Fence <= leases[2].Until-2 || leases[2].From <= now {
		t.Errorf("%+v, lease %+v", n, leases[2])
	}
	if s := second.Stats(); s.Taken != 2 || s.Fresh != 1 {
		t.Errorf("%+v", s)
	}
}

func TestAWorkerIDOfACrashedProcessIsFreeAfterItsGrace(t *testing.T) {
	t.Parallel()

	db, c := tables(t), &clock{now: noon}
	crashed := leased(t, db, c, nil)
	held, err := crashed.Assign(t.Context(), "orders")
	must(t, err)
	for _, step := range []struct {
		after time.Duration
		want  int64
	}{{21 * time.Second, 2}, {81*time.Second - 21*time.Second, 1}} {
		c.move(step.after)
		leases, err := leased(t, db, c, nil).Assign(t.Context(), "orders")
		must(t, err)
		if leases[0].WorkerID != step.want {
			t.Errorf("%v later: %d, want %d", step.after, leases[0].WorkerID, step.want)
		}
	}
	// It was only paused, and finds out.
	s := &stamper{}
	crashed.Keep(held[0], s)
	s.want(true, false, 1)
	must(t, crashed.Pass(t.Context()))
	got, _ := s.has()
	if len(got) != 1 || got[0].WorkerID == 1 || got[0].From < layout.TickAt(c.read())+margin {
		t.Errorf("after the loss: %+v", got)
	}
	if st := crashed.Stats(); st.Lost != 1 {
		t.Errorf("%+v", st)
	}
}

func TestRowsOfOthersAreNeverTaken(t *testing.T) {
	t.Parallel()

	db, c := tables(t), &clock{now: noon}
	foreign(t, db, 1)
	row := `INSERT INTO "WORKER_NODE" ("ID", "HOST_NAME", "PORT", "TYPE", "LAUNCH_DATE", "TABLE_NAME", "LAYOUT", "REUSABLE", "FENCE", "HOLDER") VALUES (?, 'h', 'p', 1, '2026-01-01', ?, ?, ?, ?, ?)`
	run(t, db, row, 2, "orders", layout.String(), 0, 5, "")                            // disposable
	run(t, db, row, 3, "orders", generator.SnowflakeLayout().String(), 1, 5, "")       // of another layout
	run(t, db, row, 4, "items", layout.String(), 1, 5, "")                             // of another table
	run(t, db, row, 5, "orders", layout.String(), 1, layout.TickAt(noon)+1, "")        // with a fence in the future
	run(t, db, row, 6, "orders", layout.String(), 1, layout.TickAt(noon)-1, "someone") // held
	run(t, db, row, 8, "orders ", layout.String(), 1, 5, "")                           // of a table that some databases take for the same
	k := leased(t, db, c, func(c *workernode.LeasedConfig) { c.Spares = 1 })
	leases, err := k.Assign(t.Context(), "orders")
	must(t, err)
	if leases[0].WorkerID != 9 {
		t.Errorf("took %d", leases[0].WorkerID)
	}
	spare, ok := k.Spare("users")
	if !ok || spare.WorkerID != 10 {
		t.Errorf("the spare is %+v", spare)
	}
}

func TestRenewalsMoveAllFencesInOneStatement(t *testing.T) {
	t.Parallel()

	db, c := tables(t), &clock{now: noon}
	statements := counted(db)
	k := leased(t, db, c, nil)
	leases, err := k.Assign(t.Context(), slices.Repeat([]string{"orders", "items"}, 300)...)
	must(t, err)
	generators := make([]*stamper, len(leases))
	for i, l := range leases {
		generators[i] = &stamper{}
		generators[i].want(true, false, 1)
		k.Keep(l, generators[i])
	}
	for range 4 {
		c.move(5 * time.Second)
		before := statements()
		must(t, k.Pass(t.Context()))
		if n := statements() - before; n != 1 {
			t.Errorf("%d statements", n)
		}
		now := layout.TickAt(c.read())
		for i, g := range generators {
			if got, _ := g.has(); len(got) != 1 || got[0].Until != now+lead || got[0].From != leases[i].From {
				t.Fatalf("generator %d: %+v, first %+v", i, got, leases[i])
			}
		}
	}
	// A long silence: what was granted before is used no more, and there is a hole.
	c.move(15 * time.Second)
	must(t, k.Pass(t.Context()))
	if got, _ := generators[0].has(); got[0].From != layout.TickAt(c.read())+margin {
		t.Errorf("after the silence: %+v", got)
	}
	// Unused for long: no statement any more.
	for _, g := range generators {
		g.want(false, false, 1)
	}
	c.move(11 * time.Minute)
	before := statements()
	must(t, k.Pass(t.Context()))
	if n := statements() - before; n != 0 {
		t.Errorf("%d statements for what nobody uses", n)
	}
}

func TestStartsTakeAFewStatementsForAnyNumberOfTables(t *testing.T) {
	t.Parallel()

	db, c := tables(t), &clock{now: noon}
	statements := counted(db)
	list := make([]string, 1000)
	for i := range list {
		list[i] = fmt.Sprintf("t%d", i)
	}
	k := leased(t, db, c, nil)
	_, err := k.Assign(t.Context(), list...)
	must(t, err)
	if n := statements(); n > 7 { // with those that begin the registry
		t.Errorf("%d statements for new worker ids", n)
	}
	must(t, k.Close(t.Context()))
	c.move(30 * time.Second)
	before := statements()
	k = leased(t, db, c, nil)
	leases, err := k.Assign(t.Context(), list...)
	must(t, err)
	if n := statements() - before; n > 4 || k.Stats().Taken != 1000 {
		t.Errorf("%d statements to take over, %+v", n, k.Stats())
	}
	slices.SortFunc(leases, func(a, b generator.Lease) int { return int(a.WorkerID - b.WorkerID) })
	if leases[0].WorkerID != 1 || leases[999].WorkerID != 1000 {
		t.Errorf("worker ids %d to %d", leases[0].WorkerID, leases[999].WorkerID)
	}
}

// Processes that want the same rows at once share them out.
func TestStartsAtOnceGetDifferentWorkerIDs(t *testing.T) {
	t.Parallel()

	db, c := tables(t), &clock{now: noon}
	list := make([]string, 20)
	for i := range list {
		list[i] = fmt.Sprintf("t%d", i)
	}
	for range 3 {
		k := leased(t, db, c, nil)
		_, err := k.Assign(t.Context(), list...)
		must(t, err)
		must(t, k.Close(t.Context()))
		c.move(-21 * time.Second)
	}
	c.now = noon.Add(time.Minute)
	var mu sync.Mutex
	seen := map[int64]bool{}
	var group sync.WaitGroup
	for range 8 {
		k := leased(t, db, c, nil)
		group.Go(func() {
			leases, err := k.Assign(context.Background(), list...)
			if err != nil {
				t.Error(err)
			}
			nodes, err := open(t, db).Lookup(context.Background(), workers(leases)...)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			for i, l := range leases {
				if n := nodes[l.WorkerID]; seen[l.WorkerID] || n.Table != list[i] || n.Holder != k.Holder() || l.Until > n.Fence || l.From <= n.Start {
					t.Errorf("%+v: %+v, given out before: %t", l, n, seen[l.WorkerID])
				}
				seen[l.WorkerID] = true
			}
		})
	}
	group.Wait()
}

func TestASpareIsBoundAtOnceAndWrittenDownLater(t *testing.T) {
	t.Parallel()

	db, c := tables(t), &clock{now: noon}
	statements := counted(db)
	k := leased(t, db, c, func(c *workernode.LeasedConfig) { c.Spares = 2 })
	_, err := k.Assign(t.Context(), "orders")
	must(t, err)
	before := statements()
	lease, ok := k.Spare("items")
	if !ok || k.TableOf(lease.WorkerID, lease.From) != "items" || lease.From > lease.Until {
		t.Fatalf("%+v, %t", lease, ok)
	}
	if n := statements() - before; n != 0 {
		// The keeper may have been fast.
		t.Logf("%d statements", n)
	}
	for range 100 {
		nodes, err := open(t, db).Lookup(t.Context(), lease.WorkerID)
		must(t, err)
		if nodes[lease.WorkerID].Table == "items" && k.Stats().Spares == 2 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	nodes, err := open(t, db).Lookup(t.Context(), lease.WorkerID)
	must(t, err)
	if nodes[lease.WorkerID].Table != "items" || k.Stats().Spares != 2 {
		t.Errorf("%+v, %+v", nodes[lease.WorkerID], k.Stats())
	}
	must(t, k.Close(t.Context()))
	c.move(time.Minute)
	next := leased(t, db, c, func(c *workernode.LeasedConfig) { c.Spares = 2 })
	leases, err := next.Assign(t.Context(), "orders", "items")
	must(t, err)
	if got := workers(leases); !slices.Equal(got, []int64{1, lease.WorkerID}) || next.Stats().Fresh != 0 {
		t.Errorf("the next process got %v, %+v", got, next.Stats())
	}
}

// A process that ends without writing the table of a spare down leaves a worker id
// that others take over, and ids that lead nowhere, not to the table of the others.
func TestTheSpareOfACrashedProcessIsFreeAfterItsGrace(t *testing.T) {
	t.Parallel()

	db, c := tables(t), &clock{now: noon}
	crashed := leased(t, db, c, func(c *workernode.LeasedConfig) { c.Spares = 1 })
	must(t, crashed.Start(t.Context()))
	old, ok := crashed.Spare("items")
	if !ok {
		t.Fatal("no spare")
	}
	must(t, crashed.Pass(t.Context()))
	time.Sleep(50 * time.Millisecond)                                                     // for its keeper, which writes the table too
	run(t, db, `UPDATE "WORKER_NODE" SET "TABLE_NAME" = '' WHERE "ID" = ?`, old.WorkerID) // as if it had not been written

	later := &clock{now: noon.Add(time.Hour)}
	k := leased(t, db, later, func(c *workernode.LeasedConfig) { c.Spares = 4 }) // more than there are
	must(t, k.Start(t.Context()))
	spare, ok := k.Spare("orders")
	for ok && spare.WorkerID != old.WorkerID {
		spare, ok = k.Spare("orders")
	}
	if !ok || spare.From <= old.Until {
		t.Fatalf("the spare is %+v, %t; it was %+v", spare, ok, old)
	}
	must(t, k.Pass(t.Context()))
	nodes, err := open(t, db).Lookup(t.Context(), old.WorkerID)
	must(t, err)
	if n := nodes[old.WorkerID]; n.Table != "orders" || n.Start < old.Until || n.Start >= spare.From || n.Start != n.Held {
		t.Errorf("%+v; it was stamped with up to %d, and is now from %d on", n, old.Until, spare.From)
	}

	// The first one must not come back to it, nor write its table.
	must(t, crashed.Pass(t.Context()))
	nodes, err = open(t, db).Lookup(t.Context(), old.WorkerID)
	must(t, err)
	if n := nodes[old.WorkerID]; n.Table != "orders" || n.Holder != k.Holder() {
		t.Errorf("%+v", n)
	}
}

func TestGeneratorsGetLanesAndGiveThemBack(t *testing.T) {
	t.Parallel()

	db, c, j := tables(t), &clock{now: noon}, &diary{}
	k := leased(t, db, c, func(c *workernode.LeasedConfig) {
		c.MaxLanes, c.Log = 4, slog.New(slog.NewTextHandler(j, nil))
	})
	leases, err := k.Assign(t.Context(), "orders")
	must(t, err)
	g := &stamper{}
	k.Keep(leases[0], g)
	lanes := 1
	// pass lets the keeper look, a second after the last time, at a generator with so
	// many ids left.
	pass := func(left uint64, waiting bool, want int) {
		t.Helper()
		c.move(time.Second)
		g.mu.Lock()
		g.usage = generator.Usage{Tick: layout.TickAt(c.read()) + 1, Used: true, Waiting: waiting, Lanes: lanes, Left: left}
		g.mu.Unlock()
		must(t, k.Pass(t.Context()))
		got, _ := g.has()
		if len(got) != want || !slices.IsSortedFunc(got, func(a, b generator.Lease) int { return int(a.WorkerID - b.WorkerID) }) ||
			got[0].From != got[want-1].From || got[0].Until != got[want-1].Until || got[0].From > got[0].Until {
			t.Fatalf("want %d lanes: %+v", want, got)
		}
		lanes = want
	}
	const second = 8192
	pass(10*second, false, 1)
	pass(9*second, false, 1)  // two seconds' worth in one, but there is plenty
	pass(4*second, false, 4)  // six in one
	pass(30*second, false, 4) // another number of lanes: nothing to compare with
	pass(14*second, false, 4) // five seconds' worth of four lanes: no more are allowed
	pass(0, true, 4)          // and now callers wait
	saysAll(t, j.String(), "lanes=4", "cannot have more", "table=orders", "most=4")

	for _, want := range []int{2, 1, 1} {
		pass(1<<40, false, lanes)
		c.move(time.Minute)
		pass(1<<40, false, want)
	}
	free := 0
	nodes, err := open(t, db).Nodes(t.Context(), 0, 10)
	must(t, err)
	for _, n := range nodes {
		if n.Holder == "" {
			free++
		}
	}
	if len(nodes) != 4 || free != 3 {
		t.Errorf("%d rows, %d free", len(nodes), free)
	}
}

func TestALostCommitIsNoticedAndRepaired(t *testing.T) {
	t.Parallel()

	db, c, j := tables(t), &clock{now: noon}, &diary{}
	k := leased(t, db, c, func(c *workernode.LeasedConfig) { c.Log = slog.New(slog.NewTextHandler(j, nil)) })
	leases, err := k.Assign(t.Context(), "orders")
	must(t, err)
	g := &stamper{}
	g.want(true, false, 1)
	k.Keep(leases[0], g)
	run(t, db, `UPDATE "WORKER_NODE" SET "FENCE" = "FENCE" - 15`)
	c.move(5 * time.Second)
	must(t, k.Pass(t.Context()))
	got, _ := g.has()
	nodes, err := open(t, db).Lookup(t.Context(), 1)
	must(t, err)
	if now := layout.TickAt(c.read()); nodes[1].Fence != now+lead || got[0].Until != now+lead || got[0].WorkerID != 1 {
		t.Errorf("%+v, row %+v", got, nodes[1])
	}
	if s := k.Stats(); s.Regressed != 1 || s.Lost != 0 {
		t.Errorf("%+v", s)
	}
	saysAll(t, j.String(), "lost commits", "table=orders", "worker_id=1")
}

func TestGeneratorsAreToldWhyTheirLeasesEnd(t *testing.T) {
	t.Parallel()

	db, c := tables(t), &clock{now: noon}
	k := leased(t, db, c, nil)
	leases, err := k.Assign(t.Context(), "orders")
	must(t, err)
	g := &stamper{}
	g.want(true, true, 1)
	k.Keep(leases[0], g)
	run(t, db, `ALTER TABLE "WORKER_NODE" RENAME TO "AWAY"`)
	c.move(5 * time.Second)
	if err := k.Pass(t.Context()); err == nil {
		t.Fatal("no error")
	}
	k.Need() // the keeper itself comes to the same
	for range 200 {
		if _, suspended := g.has(); suspended != nil && k.Stats().LastError != nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if _, suspended := g.has(); suspended == nil || k.Stats().LastError == nil {
		t.Fatalf("suspended: %v, %+v", suspended, k.Stats())
	}
	run(t, db, `ALTER TABLE "AWAY" RENAME TO "WORKER_NODE"`)
	for range 200 {
		if _, suspended := g.has(); suspended == nil && k.Stats().LastError == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if _, suspended := g.has(); suspended != nil || k.Stats().LastError != nil {
		t.Fatalf("after the return: %v, %+v", suspended, k.Stats())
	}
}

func TestCloseMayComeTwiceAndWithoutTheDatabase(t *testing.T) {
	t.Parallel()

	db, c := tables(t), &clock{now: noon}
	k := leased(t, db, c, nil)
	_, err := k.Assign(t.Context(), "orders")
	must(t, err)
	pool, err := db.DB()
	must(t, err)
	must(t, pool.Close())
	if err := k.Close(t.Context()); err == nil {
		t.Error("no error though nothing was given back")
	}
	if err := k.Close(t.Context()); err == nil {
		t.Error("no error the second time, and nothing was given back either")
	}
	if _, err := k.Assign(t.Context(), "items"); err == nil {
		t.Error("a worker id after Close")
	}
}

func TestTheEndOfWorkerIDs(t *testing.T) {
	t.Parallel()

	db, c := tables(t), &clock{now: noon}
	few := narrow(2) // 1, 2 and 3
	start := func() *workernode.Leased {
		k, err := workernode.NewLeased(open(t, db), few, web1, workernode.LeasedConfig{Now: c.read, MaxLanes: 2})
		must(t, err)
		t.Cleanup(func() { _ = k.Close(context.Background()) })
		return k
	}
	k := start()
	_, err := k.Assign(t.Context(), "a", "b", "c")
	must(t, err)
	if _, err := start().Assign(t.Context(), "a"); !errors.Is(err, workernode.ErrExhausted) {
		t.Errorf("a fourth: %v", err)
	}
	must(t, k.Close(t.Context()))
	c.move(21 * time.Second)
	if _, err := start().Assign(t.Context(), "d"); !errors.Is(err, workernode.ErrExhausted) {
		t.Errorf("of another table: %v", err)
	}
	leases, err := start().Assign(t.Context(), "b")
	must(t, err)
	if leases[0].WorkerID != 2 {
		t.Errorf("%+v", leases)
	}
}

// Sticky, a process gets what its predecessor of the same host and port had, if it is
// free.
func TestStickyWorkerIDs(t *testing.T) {
	t.Parallel()

	db, c := tables(t), &clock{now: noon}
	start := func(name string, sticky bool) *workernode.Leased {
		k, err := workernode.NewLeased(open(t, db), layout, workernode.Host{Name: name, Port: "1"}, workernode.LeasedConfig{Now: c.read, Sticky: sticky})
		must(t, err)
		return k
	}
	had := map[string]int64{}
	for _, sticky := range []bool{true, true, true, false} {
		same := 0
		var all []*workernode.Leased
		for i := range 20 {
			name := fmt.Sprint("web-", i)
			k := start(name, sticky)
			leases, err := k.Assign(t.Context(), "orders")
			must(t, err)
			if had[name] == leases[0].WorkerID {
				same++
			}
			had[name] = leases[0].WorkerID
			all = append(all, k)
		}
		for _, k := range all {
			must(t, k.Close(t.Context()))
		}
		first := c.read().Equal(noon)
		if c.move(time.Hour); sticky && !first && same != 20 || !sticky && same > 15 {
			t.Errorf("sticky %t: %d of 20 have what they had", sticky, same)
		}
	}
}

// All worker ids but a few are taken, and many want those few at once: nobody is
// told that there are none as long as one is free for him.
func TestTheLastWorkerIDsGoToWhoeverWantsThem(t *testing.T) {
	t.Parallel()

	db, c := tables(t), &clock{now: noon}
	few := narrow(5) // 1 to 31
	start := func() *workernode.Leased {
		k, err := workernode.NewLeased(open(t, db), few, web1, workernode.LeasedConfig{Now: c.read})
		must(t, err)
		t.Cleanup(func() { _ = k.Close(context.Background()) })
		return k
	}
	first := start()
	_, err := first.Assign(t.Context(), slices.Repeat([]string{"orders"}, 31)...)
	must(t, err)
	must(t, first.Close(t.Context()))
	c.move(time.Hour)

	var mu sync.Mutex
	workers := map[int64]bool{}
	var wg sync.WaitGroup
	for range 31 {
		wg.Go(func() {
			leases, err := start().Assign(t.Context(), "orders")
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
				return
			}
			workers[leases[0].WorkerID] = true
		})
	}
	wg.Wait()
	if len(workers) != 31 && !t.Failed() {
		t.Errorf("%d worker ids", len(workers))
	}
	_, err = start().Assign(t.Context(), "orders", "items")
	if !errors.Is(err, workernode.ErrExhausted) {
		t.Errorf("one more: %v", err)
	}
	saysAll(t, fmt.Sprint(err), "5 bits hold 1 to 31", "items, orders", "orders 31, of which 31 are held", "more worker bits")
}

// counted returns how many statements a handle has sent.
func counted(db *gorm.DB) func() int {
	l := &countingLogger{Interface: db.Logger}
	db.Config.Logger = l
	return func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.n
	}
}

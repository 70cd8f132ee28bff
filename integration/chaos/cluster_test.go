//go:build linux

package chaos_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
)

// A cluster has three servers, each of which takes writes.
type cluster struct {
	*testing.T
	begin  time.Time
	nodes  []*harness.MariaDB
	clears []nodeClear
	homes  map[string]int // the node of each process, by the names of its files
	back   func(i int)    // waits until a node that was stopped takes statements again, as one of three

	patience time.Duration // how long a process may have no ids
}

// A nodeClear is the moment at which a fault of a node was over.
type nodeClear struct {
	what string
	node int
	at   time.Time
}

func newCluster(t *testing.T) *cluster {
	return &cluster{T: t, begin: time.Now(), homes: map[string]int{}, patience: 3 * time.Minute}
}

func (g *cluster) since() time.Duration { return time.Since(g.begin).Round(10 * time.Millisecond) }

// cleared notes that a fault of a node is over.
func (g *cluster) cleared(i int, what string) {
	what = g.nodes[i].Name + ", " + what
	g.clears = append(g.clears, nodeClear{what, i, time.Now()})
	g.Logf("%v: %s", g.since(), what)
}

// dsn returns the data source name of a database on a node.
func (g *cluster) dsn(i int, schema string) string {
	return harness.MariaDBDSN(g.nodes[i].Address(), schema)
}

// releaseOld frees the slots of a database whose holders have been silent for so long; see chaos.releaseOld.
func (g *cluster) releaseOld(node int, schema string, silent time.Duration) {
	now := generator.DefaultLayout().TickAt(time.Now().Add(-silent))
	statement := fmt.Sprintf("UPDATE %s.WORKER_SLOT SET HOLDER = '', VERSION = VERSION + 1000 WHERE HOLDER <> '' AND SEEN_TICK < %d", schema, now)
	err := g.nodes[node].Exec(statement)
	for begin := time.Now(); err != nil && time.Since(begin) < time.Minute; err = g.nodes[node].Exec(statement) {
		time.Sleep(100 * time.Millisecond) // a renewal was faster, or the cluster is busy
	}
	testkit.Must(g.T, err)
}

// disturb runs processes at all nodes, and disturbs these: once, or for the length of the long form. It calls killed to
// kill a node, and halved to take two nodes away for a while.
func (g *cluster) disturb(length, away time.Duration, killed func(i int), halved func(survivor int, away time.Duration)) {
	c, control := g.writers(), g.control()
	g.grants()
	pause := 8 * time.Second
	if length > 0 { // longer than all leases, and than the gap that docs/failures.md asks for
		pause, away = 24*time.Second, 14*time.Second
	}
	for round := 0; (round == 0 || g.since() < length) && !g.Failed(); round++ {
		killed((2 + round) % 3)
		g.stopped((1+round)%3, pause, c, control)
		if control != nil {
			g.proves(control)
			control = nil
		}
		halved(round%3, away)
	}
	for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(500 * time.Millisecond) { // on a busy machine, later
		if e, err := c.count.events(nil); err == nil && e.reclaimed > 0 && e.lost > 0 {
			break
		}
	}
	c.end()
	g.report(c)
}

// stopped stops a node, and a process at another node, for longer than short grants last. Meanwhile another process
// starts and reclaims the slot. If there is a control, its first processes are stopped, too, and its others start.
func (g *cluster) stopped(i int, d time.Duration, c, control *chaos) {
	n, one, two := g.nodes[i], (i+1)%3, (i+2)%3
	asleep := []*chaosSlot{c.slots[4+one]}
	testkit.Must(g.T, n.Pause())
	c.stop(asleep[0], time.Minute)
	if control != nil {
		for _, s := range control.slots[:2] {
			control.stop(s, time.Minute)
			asleep = append(asleep, s)
		}
	}
	g.Logf("%v: %s is stopped, and a process at another node", g.since(), n.Name)
	time.Sleep(d)
	again := c.slots[4+two]
	c.kill(again)
	if d > 2*chaosLead+time.Second { // then their slots can be reclaimed
		g.releaseOld(one, "uid", 2*chaosLead+time.Second)
		g.releaseOld(one, "control", 2*chaosLead+time.Second)
	}
	g.start(c, again, two)
	if control != nil {
		for _, s := range control.slots[2:] {
			control.start(s)
		}
	}
	time.Sleep(2 * time.Second)
	testkit.Must(g.T, n.Resume())
	for _, s := range asleep {
		s.resume(true)
	}
	g.cleared(i, "stopped, goes on")
	g.back(i)
	g.cleared(i, "stopped, has joined again")
	time.Sleep(3 * time.Second)
}

// roaming is the home of processes that move from node to node.
const roaming = 3

func (g *cluster) home(i int) string {
	if i == roaming {
		return "all nodes in turn"
	}
	return g.nodes[i].Name
}

// writers starts processes that make ids: on each node one with the plugin and its defaults, and one without the
// plugin. Two more move from node to node. The next node may not know yet what they have written to the one before.
func (g *cluster) writers() *chaos {
	c := newChaos(g.T)
	c.connect(g.dsn(0, "uid"))
	route := testkit.NewRelay(g.T, g.nodes[0].Address())
	dsns := []string{g.dsn(0, "uid"), g.dsn(1, "uid"), g.dsn(2, "uid"), harness.MariaDBDSN(route.Address(), "uid")}
	for i := range 2 * len(dsns) {
		task := chaosTask{DSN: dsns[i%4], Clock: filepath.Join(c.dir, "clock"), Tables: len(chaosTables), Batch: 1024, Rate: 1000,
			Plugin: i < 4, Skew: workernode.DefaultMaxSkew}
		if i%2 == 0 {
			task.DSN += "&interpolateParams=true"
		}
		c.slots = append(c.slots, &chaosSlot{task: task})
	}
	for i, s := range c.slots {
		g.start(c, s, i%4)
	}
	quit := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		for i := 1; ; i++ {
			select {
			case <-quit:
				return
			case <-time.After(700 * time.Millisecond):
				route.Route(g.T, g.nodes[i%3].Address())
			}
		}
	})
	g.Cleanup(func() {
		close(quit)
		group.Wait()
	})
	return c
}

// start starts a process that writes to a node.
func (g *cluster) start(c *chaos, s *chaosSlot, node int) {
	c.start(s)
	g.homes[filepath.Base(s.files)] = node
}

// control starts processes that renew without comparing FENCE; see TestChaosControl. They are stopped later, and two
// more start and reclaim their slots.
func (g *cluster) control() *chaos {
	c := newChaos(g.T)
	c.connect(g.dsn(0, "control"))
	for _, node := range []int{0, 2, 2, 0} {
		c.slots = append(c.slots, &chaosSlot{task: chaosTask{DSN: g.dsn(node, "control") + "&interpolateParams=true", Clock: filepath.Join(c.dir, "clock"), Unguarded: "blind",
			Tables: 2, Batch: 1024, Rate: 5000}})
	}
	for _, s := range c.slots[:2] {
		c.start(s)
	}
	return c
}

// proves reports whether the control has found duplicates.
func (g *cluster) proves(control *chaos) {
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(500 * time.Millisecond) {
		testkit.Must(g.T, control.count.update())
		if n, _ := control.count.duplicates(); n > 0 {
			break
		}
	}
	control.end()
	r := control.report(0)
	g.Logf("control, renewals that do not compare: %d ids, %d duplicates; %s", r.ids, r.duplicates, r.first)
	if r.duplicates == 0 {
		g.Error("no duplicate was found without the protection: this proves nothing")
	}
}

// report judges what the processes have written.
func (g *cluster) report(c *chaos) {
	r := c.report(0)
	shared, first := c.count.sharedTicks()
	g.Logf("%v: %d ids, %d duplicates, %d ticks of worker ids with ids of two processes", g.since(), r.ids, r.duplicates, shared)
	g.Logf("%d worker ids; %d slots reclaimed, %d new, %d lost, %d with lost commits; %d processes started", r.workers, r.reclaimed, r.allocated, r.lost, r.lostCommits, c.starts)
	if r.duplicates > 0 || shared > 0 {
		g.Errorf("%d duplicates, the first: %s; %d shared ticks, the first: %s", r.duplicates, r.first, shared, first)
	}
	for _, fault := range r.faults {
		g.Error(fault)
	}
	if r.reclaimed == 0 || r.lost == 0 {
		g.Errorf("%d slots were reclaimed, %d lost: this shows little", r.reclaimed, r.lost)
	}
	g.stalls(c)
}

// grants makes all nodes allocate numbers from one row for 3 s, and longer on a busy machine: by reading and writing it in
// a transaction, and by the compare-and-set of the lease protocol. Reading and writing allocates numbers twice, although
// all nodes are healthy.
func (g *cluster) grants() {
	testkit.Must(g.T, g.nodes[0].Exec("CREATE TABLE control.grants (id INT PRIMARY KEY, fence BIGINT NOT NULL)", "INSERT INTO control.grants VALUES (1, 0), (2, 0)"))
	var mu sync.Mutex
	granted := [2]map[int64]int{{}, {}}
	var errs [2]int
	var group sync.WaitGroup
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	twice, begin := false, time.Now()
	for how, next := range []func(context.Context, *sql.DB) (int64, error){grantRead, grantCompared} {
		for i := range g.nodes {
			db, err := sql.Open("mysql", g.dsn(i, "control"))
			testkit.Must(g.T, err)
			defer db.Close()
			group.Go(func() {
				for ctx.Err() == nil {
					fence, err := next(ctx, db)
					mu.Lock()
					switch {
					case err != nil:
						errs[how]++
					case fence > 0:
						granted[how][fence]++
						twice = twice || how == 0 && granted[how][fence] > 1
					}
					if twice && len(granted[1]) > 0 && time.Since(begin) > 3*time.Second {
						cancel()
					}
					mu.Unlock()
					time.Sleep(time.Millisecond)
				}
			})
		}
	}
	group.Wait()
	for how, name := range []string{"read, then written", "compared and set"} {
		all, twice := 0, 0
		for _, n := range granted[how] {
			all += n
			twice += n - 1
		}
		g.Logf("numbers given out by a row that is %s, on all nodes: %d, %d of them again; %d errors", name, all, twice, errs[how])
		if (twice > 0) != (how == 0) || all == 0 {
			g.Errorf("%d of %d numbers were given out again", twice, all)
		}
	}
}

// grantRead gives out the number after the one that it reads.
func grantRead(ctx context.Context, db *sql.DB) (fence int64, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }()
	if err := tx.QueryRowContext(ctx, "SELECT fence FROM grants WHERE id = 1").Scan(&fence); err != nil {
		return 0, err
	}
	if _, err := tx.ExecContext(ctx, "UPDATE grants SET fence = ? WHERE id = 1", fence+1); err != nil {
		return 0, err
	}
	return fence + 1, tx.Commit()
}

// grantCompared does the same by compare-and-set. It returns 0 if another process was faster.
func grantCompared(ctx context.Context, db *sql.DB) (fence int64, err error) {
	if err := db.QueryRowContext(ctx, "SELECT fence FROM grants WHERE id = 2").Scan(&fence); err != nil {
		return 0, err
	}
	result, err := db.ExecContext(ctx, "UPDATE grants SET fence = ? WHERE id = 2 AND fence = ?", fence+1, fence)
	if err != nil {
		return 0, err
	}
	if n, err := result.RowsAffected(); err != nil || n != 1 {
		return 0, err
	}
	return fence + 1, nil
}

// sharedTicks counts the ticks of worker ids that have ids of two processes. The protocol grants each tick to one
// process. The spans must be sorted.
func (c *chaosCount) sharedTicks() (n int, first string) {
	for worker, w := range c.workers {
		owner := map[int64]int{}
		for _, s := range w.spans {
			for tick := s.at >> chaosSequenceBits; tick <= (s.end-1)>>chaosSequenceBits; tick++ {
				other, ok := owner[tick]
				if !ok {
					owner[tick] = s.file
				} else if other != s.file {
					n++
					first = fmt.Sprintf("worker id %d, tick %d, of %s and %s", worker, tick, c.files[other], c.files[s.file])
				}
			}
		}
	}
	return n, first
}

// regressed logs that a process found an older row than it had acknowledged. Galera can lose commits when nodes are
// killed soon after each other, and a node that was stopped returns old rows until it notices that it has left the
// cluster.
func (g *cluster) regressed(name, line string) {
	_, text, _ := strings.Cut(line, "time=")
	at, err := time.Parse(time.RFC3339Nano, strings.SplitN(text, " ", 2)[0])
	testkit.Must(g.T, err)
	_, slot, _ := strings.Cut(line, "slot=")
	g.Logf("%s has found at %v that its row went back: slot %s", name, at.Sub(g.begin).Round(10*time.Millisecond), strings.TrimSpace(slot))
}

// stalls logs the longest time that each process had no ids of a table, and the longest time after a fault of its
// node had ended.
func (g *cluster) stalls(c *chaos) {
	names, err := filepath.Glob(filepath.Join(c.dir, "*.events"))
	testkit.Must(g.T, err)
	after := make([]time.Duration, len(g.clears))
	count := make([]int, len(g.clears))
	for _, name := range names {
		text, err := os.ReadFile(name)
		testkit.Must(g.T, err)
		name = strings.TrimSuffix(filepath.Base(name), ".events")
		var stats [5]int64 // as chaosProcess.snapshot writes them
		var longest time.Duration
		var when time.Time
		for line := range strings.Lines(string(text)) {
			if rest, ok := strings.CutPrefix(line, "stats "); ok {
				_, _ = fmt.Sscan(rest, &stats[0], &stats[1], &stats[2], &stats[3], &stats[4])
			}
			if strings.HasPrefix(line, "log ") && strings.Contains(line, "lost commits that it had acknowledged") {
				g.regressed(name, line)
			}
			var what, table string
			var begin, end, ms int64
			var clock, stopped bool
			if n, _ := fmt.Sscan(line, &what, &begin, &end, &ms, &clock, &stopped, &table); n < 7 || what != "stalled" && what != "stalls" {
				continue
			}
			if d := time.Duration(ms) * time.Millisecond; d > longest {
				longest, when = d, time.Unix(0, end)
			}
			for i, clear := range g.clears {
				if at := clear.at.UnixNano(); begin < at && at < end && !stopped && clear.node == g.homes[name] {
					after[i] = max(after[i], time.Duration(end-at))
					if what == "stalled" {
						count[i]++
					}
				}
			}
		}
		line := fmt.Sprintf("%-12s of %s: %d new slots, %d reclaimed, %d renewals, %d lost, %d with lost commits; longest time without an id of a table %v",
			name, g.home(g.homes[name]), stats[1], stats[0], stats[3], stats[2], stats[4], longest)
		if longest > 0 {
			line += fmt.Sprintf(", until %v", when.Sub(g.begin).Round(10*time.Millisecond))
		}
		g.Log(line)
		if longest > g.patience {
			g.Errorf("%s: nobody should wait that long", line)
		}
	}
	for i, clear := range g.clears {
		g.Logf("%-55s of its callers %d had waited, the last of them for %v more", clear.what+":", count[i], after[i].Round(time.Millisecond))
	}
}

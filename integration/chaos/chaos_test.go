//go:build unix

package chaos_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/migrations"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

var (
	chaosFor   = flag.Duration("chaos.for", 0, "how long TestChaos makes ids: its long form")
	chaosIDs   = flag.Int64("chaos.ids", 0, "how many ids TestChaos aims at: 400,000 a second in the long form")
	chaosDelay = flag.Duration("chaos.delay", 0,
		"how long each answer of the server takes in TestChaos; 20ms in one of its long forms")
	chaosSeed = flag.Uint64("chaos.seed", 0, "repeats the faults of a run of TestChaos, as far as the machine allows")
)

const (
	chaosShort     = 20 * time.Second
	chaosShortIDs  = 4_000_000
	chaosProcesses = 16
)

// Processes make ids of four tables while they are killed, stopped and restarted, clocks are set, connections are cut,
// answers are lost, statements come late, and the server crashes. No id is made twice, each resolves to its table, and
// the row of its slot allows its tick. Without the comparison of FENCE this test finds duplicates; see
// TestChaosControl.
//
// The long form:
//
//	go test -run 'TestChaos$' -v -timeout 0 ./integration/chaos/ -chaos.for 10m
func TestChaos(t *testing.T) {
	t.Parallel()
	length, target := chaosShort, int64(chaosShortIDs)
	long := *chaosFor > 0
	if long {
		length, target = *chaosFor, int64(400_000*chaosFor.Seconds())
	}
	if *chaosIDs > 0 {
		target = *chaosIDs
	}
	if !long {
		testkit.MariaDB().Need(t)
	}
	c := newChaos(t)
	c.up()
	t.Logf("seed %d: repeat with -chaos.seed", c.seed)

	// A process that is down makes no ids, so the others make more.
	rate := 2 * float64(target) / length.Seconds() / chaosProcesses / float64(len(chaosTables))
	clocks := map[int]string{}
	for i := range chaosProcesses {
		clocks[i] = filepath.Join(c.dir, fmt.Sprintf("clock%d", i))
		task := chaosTask{DSN: c.proxied, Clock: clocks[i], Tables: len(chaosTables), Batch: 16384, Rate: rate}
		if !long {
			task.Batch = 4096
		}
		if i%3 == 0 {
			task.Plugin = true
		}
		if i%2 == 0 {
			task.Skew = workernode.DefaultMaxSkew
		}
		if i%4 == 0 {
			task.DSN += "&interpolateParams=true" // else prepared statements
		}
		c.slots = append(c.slots, &chaosSlot{task: task})
	}
	for _, s := range c.slots {
		c.start(s)
	}
	c.proxy.quiet.Store(false)

	least := target / 4
	if !long {
		least /= 10 // a busy machine makes fewer
	}
	every, away := 8*time.Second, 3*time.Second
	if long {
		every, away = 30*time.Second, 10*time.Second
	}
	var server sync.WaitGroup
	stop := make(chan struct{})
	begin := time.Now()
	server.Go(func() { c.crashServer(every, away, stop) })
	progress := time.Now()
	for !t.Failed() {
		if ran := time.Since(begin); ran > length && (long || ran > 15*length || c.happened() && c.made() >= least) {
			break // on a busy machine, later
		}
		time.Sleep(200*time.Millisecond + time.Duration(c.random.IntN(400))*time.Millisecond)
		for _, s := range c.slots {
			if !s.stopped.IsZero() && time.Now().After(s.stopped) {
				c.releaseOld(2*chaosLead + time.Second) // it may have lost its slot when it resumes
			}
			s.resume(false)
			if c.running(s) {
				continue
			}
			if time.Now().After(s.again) {
				c.start(s)
			}
		}
		s := c.slots[c.random.IntN(len(c.slots))]
		switch what := c.random.IntN(100); {
		case what < 30:
			c.kill(s)
		case what < 55:
			c.stop(s, c.pause(s, long))
		case what < 67:
			c.terminate(s)
		case what < 85:
			steps := []int{-2 * 3600, -3600, -60, -5, -1, 0, 0, 0, 1, 5, 75, 90, 150, 540, 3600,
				3 * 3600} // more than a minute: slots in use are reclaimed
			c.setClock(s, steps[c.random.IntN(len(steps))])
		case what < 92:
			c.proxy.cutAll(c.random.Float64())
		default:
			c.releaseOld(2*chaosLead + time.Second)
		}
		if long && time.Since(progress) > 5*time.Second {
			progress = time.Now()
			testkit.Must(t, c.count.update())
			t.Logf("%v: %d ids, %d worker ids, %d processes started, %d killed, %d stopped, %d server crashes",
				time.Since(begin).Round(time.Second),
				c.count.ids, len(c.count.workers), c.starts, c.kills, c.stops, c.crashes())
		}
	}
	close(stop)
	server.Wait()
	ran := time.Since(begin)
	c.end()

	r := c.report(ran)
	t.Log("\n" + r.text())
	if r.duplicates > 0 {
		t.Errorf("%d duplicates, the first: %s", r.duplicates, r.first)
	}
	for _, fault := range r.faults {
		t.Error(fault)
	}
	if r.lostCommits > 0 {
		t.Errorf("%d slots were found to have lost commits, and the database loses none", r.lostCommits)
	}
	if c.count.ids < least {
		t.Errorf("%d ids in %v, far from the %d that were wanted: most callers must have waited", c.count.ids, ran, target)
	}
	if !c.happened() {
		t.Errorf("%d slots reclaimed, %d lost, %d answers cut, %d crashes of the server: there was no chaos",
			r.reclaimed, r.lost, c.proxy.cut.Load(), len(c.returns))
	}
	// A late statement of a transaction keeps its rows locked for up to 6 s, and several may follow each other, more of them
	// on a busy machine.
	limit := c.longest + 2*time.Minute
	if r.stall > limit {
		t.Errorf("a caller has waited for %v, and the server was away for %v at most: %s", r.stall, c.longest, r.stallOf)
	}
	if r.stallClock > limit {
		t.Errorf("a caller whose clock was set has waited for %v, and the server was away for %v at most: %s", r.stallClock,
			c.longest, r.stallClockOf)
	}
}

// Without the protection, the same processes, tables and counting find duplicates; with it there are none. Processes
// are stopped until their grants have passed, and resume when others have reclaimed their slots.
func TestChaosControl(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		protections := []string{"", "blind", "deaf"} // see unguarded
		var all []*chaos
		for _, how := range protections {
			c := newChaos(t)
			c.connect(d.New(t).DSN())
			for range 6 {
				c.slots = append(c.slots, &chaosSlot{task: chaosTask{DSN: c.dsn + "&interpolateParams=true",
					Clock: filepath.Join(c.dir, "clock"), Unguarded: how,
					Tables: 2, Batch: 512, Rate: 5000}})
			}
			all = append(all, c)
		}
		const half = 3
		// A busy machine takes longer than the sleeps below.
		each := func(what string, holds func(c *chaos, how string) bool) {
			t.Helper()
			for i, how := range protections {
				testkit.Eventually(t, fmt.Sprintf("unguarded=%q: %s", how, what), 2*time.Minute, func() bool {
					testkit.Must(t, all[i].count.update())
					return holds(all[i], how)
				})
			}
		}
		slots := func(c *chaos) (reclaimed, lost int64) {
			e, err := c.count.events(nil)
			testkit.Must(t, err)
			return e.reclaimed, e.lost
		}
		on := func(from, to int, do func(c *chaos, s *chaosSlot)) {
			for _, c := range all {
				for _, s := range c.slots[from:to] {
					do(c, s)
				}
			}
		}
		on(0, half, (*chaos).start)
		time.Sleep(6 * time.Second)
		each("ids of all processes", func(c *chaos, _ string) bool { return len(c.count.files) == half })
		on(0, half, func(c *chaos, s *chaosSlot) { c.stop(s, time.Minute) })
		time.Sleep(2*chaosLead + 1800*time.Millisecond) // until their fences, and Lead and a second after them, have passed
		for _, c := range all {
			c.releaseOld(0)
		}
		on(half, 2*half, (*chaos).start)
		time.Sleep(6 * time.Second)
		each("a slot is reclaimed", func(c *chaos, _ string) bool { n, _ := slots(c); return n > 0 })
		on(0, half, func(_ *chaos, s *chaosSlot) { s.resume(true) })
		time.Sleep(4 * time.Second)
		each("a slot is lost, or an id comes twice", func(c *chaos, how string) bool {
			twice, _ := c.count.duplicates()
			_, lost := slots(c)
			return how == "blind" && twice > 0 || how != "blind" && lost > 0
		})
		for i, how := range protections {
			all[i].end()
			r := all[i].report(0)
			t.Logf("unguarded=%q: %d ids, %d duplicates, %d slots reclaimed, %d lost; %s", how, r.ids, r.duplicates,
				r.reclaimed, r.lost, r.first)
			switch {
			case r.reclaimed == 0:
				t.Error("no slot was reclaimed, so this has shown nothing")
			case how == "blind" && r.duplicates == 0:
				t.Error("no duplicate was found without the protection: TestChaos proves nothing")
			// A false answer to a renewal that was on its way while the process was stopped leaves ids above FENCE.
			// Nobody else makes these ids, but they do not resolve.
			case how == "deaf" && len(r.faults) == len(all[i].count.nowhere) && r.duplicates == 0 && r.lost > 0:
			case how != "blind" && (r.duplicates > 0 || len(r.faults) > 0 || r.lost == 0):
				t.Errorf("unguarded=%q: %d duplicates, %q, and %d slots lost", how, r.duplicates, r.faults, r.lost)
			}
		}
	}, "mariadb")
}

// releaseOld frees the slots whose holders have been silent for so long, as an operator might. No id comes twice,
// because HOLDER only decides which process tries to reclaim a slot. Otherwise a slot is reclaimed after a minute.
func (c *chaos) releaseOld(silent time.Duration) {
	now := generator.DefaultLayout().TickAt(time.Now().Add(-silent))
	_, err := c.sql.Exec(c.Context(), `UPDATE "WORKER_SLOT" SET "HOLDER" = '', "VERSION" = "VERSION" + 1000 WHERE "HOLDER" <> '' AND "SEEN_TICK" < ?`, now)
	if err != nil && c.proxy == nil {
		c.Error(err)
	}
}

// chaos is processes that make ids, and what happens to them.
type chaos struct {
	*testing.T
	dir    string // of files
	engine string // mariadb if empty
	dsn    string
	direct *workernode.DB
	sql    *sqldb.DB
	plugin *uidplugin.Plugin // which locates ids
	count  *chaosCount
	slots  []*chaosSlot

	seed   uint64
	random *rand.Rand

	starts, kills, stops, closes, steps int

	// With a server of its own.
	server  string // its folder
	proxy   *chaosProxy
	proxied string // the DSN by way of it

	mu      sync.Mutex
	returns []time.Time   // of the server after a crash
	longest time.Duration // that it was away
}

// newChaos makes a folder for what the processes write. It is kept if the test fails.
func newChaos(t *testing.T) *chaos {
	c := &chaos{T: t, seed: *chaosSeed}
	for c.seed == 0 {
		c.seed = rand.Uint64()
	}
	c.random = rand.New(rand.NewPCG(c.seed, 0))
	var err error
	if c.dir, err = os.MkdirTemp("", "chaos"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, s := range c.slots {
			if c.running(s) {
				_ = s.cmd.Process.Kill()
				<-s.ended
			}
		}
		if t.Failed() {
			t.Log("what the processes have written is in", c.dir)
		} else {
			_ = os.RemoveAll(c.dir)
		}
	})
	c.count = newChaosCount(c.dir)
	return c
}

// connect makes the tables.
func (c *chaos) connect(dsn string) {
	c.dsn = dsn
	db, err := gorm.Open(chaosDialector(c.engine, dsn), &gorm.Config{Logger: logger.Discard})
	if err != nil {
		c.Fatal(err)
	}
	pool, err := db.DB()
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() { _ = pool.Close() })
	pool.SetMaxIdleConns(0) // the server will crash
	for _, table := range chaosTables {
		if err := db.AutoMigrate(table.model); err != nil {
			c.Fatal(err)
		}
	}
	if c.direct, err = workernode.Open(db, time.Minute); err != nil {
		c.Fatal(err)
	}
	if c.sql, err = sqldb.Open(db, time.Minute); err != nil {
		c.Fatal(err)
	}
	if err := migrations.Up(c.Context(), db); err != nil {
		c.Fatal(err)
	}
	c.plugin = harness.Use(c.T, db, uidplugin.WithLead(chaosLead))
}

// made returns how many ids the processes have written down.
func (c *chaos) made() int64 {
	testkit.Must(c, c.count.update())
	return c.count.ids
}

// happened reports whether everything has happened that TestChaos is about.
func (c *chaos) happened() bool {
	e, err := c.count.events(nil)
	return err == nil && e.reclaimed > 0 && e.lost > 0 && c.proxy.cut.Load() > 0 && c.crashes() > 0
}

// end ends all processes, and reads what they have written.
func (c *chaos) end() {
	if c.proxy != nil {
		c.proxy.quiet.Store(true)
	}
	for _, s := range c.slots {
		s.resume(true)
		c.terminate(s)
	}
	for _, s := range c.slots {
		for c.running(s) {
			time.Sleep(10 * time.Millisecond)
		}
	}
	if c.proxy != nil {
		time.Sleep(time.Second) // for the last late statement
	}
	if err := c.count.update(); err != nil {
		c.Fatal(err)
	}
}

package leases_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
)

// makeIDs is the role of a process that makes ids of T1 until its input ends, and prints them.
const makeIDs = "make ids"

type makerTask struct {
	Database *testkit.Database
	Ahead    time.Duration // of its clock
	Port     string
	Worker   int64 // a fixed worker id, if it is not 0
}

func maker(task makerTask) error {
	db, err := task.Database.Connect(nil)
	if err != nil {
		return err
	}
	options := []uidplugin.Option{harness.Quiet, uidplugin.WithModels(&harness.T1{}),
		uidplugin.WithClock(func() time.Time { return time.Now().Add(task.Ahead) }),
		uidplugin.WithHost(workernode.Host{Port: task.Port})}
	if task.Worker > 0 {
		options = append(options, uidplugin.WithWorkerID(task.Worker))
	}
	p := uidplugin.New(options...)
	if err := db.Use(p); err != nil {
		return err
	}
	for ended := testkit.InputEnded(); ; {
		if id, err := harness.NextID(p); err == nil {
			fmt.Println(id)
		} else if !errors.Is(err, generator.ErrLeaseExpired) { // a process that was stopped has no lease for a while
			return err
		}
		select {
		case <-ended:
			return p.Close(context.Background())
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// A maker's ids, as a test reads them.
type made struct {
	*testkit.Process
	mu  sync.Mutex
	all []int64
}

func startMaker(t *testing.T, task makerTask) *made {
	t.Helper()
	m := &made{}
	m.Process = testkit.Start(t, makeIDs, task, func(line string) {
		var id int64
		if _, err := fmt.Sscan(line, &id); err != nil {
			t.Errorf("a process says %q", line)
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		m.all = append(m.all, id)
	})
	return m
}

func (m *made) ids() []int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.all[:len(m.all):len(m.all)]
}

// A process is stopped until another one has its slot, and goes on. It may still stamp its grants, which are below all
// ticks that the other one stamps with the same worker id, and then it gets another slot. Without fences both would
// stamp the same ticks.
func TestSlot_OfAStoppedProcessIsReclaimed(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		theirs := startMaker(t, makerTask{Database: d, Port: "stopped"})
		testkit.Eventually(t, "ids of the other process", time.Minute, func() bool { return len(theirs.ids()) > 100 })
		testkit.Must(t, theirs.Signal(syscall.SIGSTOP))
		time.Sleep(100 * time.Millisecond) // for what is on its way
		before := len(theirs.ids())

		// A clock that is 90 s ahead makes the wait short.
		ahead := 90 * time.Second
		if d.Name == "sqlite" {
			ahead += 10 * time.Minute
		}
		p := harness.Use(t, d.Open(t, nil), uidplugin.WithModels(&harness.T1{}),
			uidplugin.WithClock(func() time.Time { return time.Now().Add(ahead) }),
			uidplugin.WithHost(workernode.Host{Port: "reclaims"}))
		worker := p.Stats().Tables[0].WorkerIDs[0]
		if s := p.Stats().Slot; s.Reclaimed != 1 {
			t.Errorf("no slot was reclaimed: %+v", s)
		}
		var ours []int64
		take := func(n int) {
			for range n {
				id, err := harness.NextID(p)
				testkit.Must(t, err)
				ours = append(ours, id)
				time.Sleep(time.Millisecond)
			}
		}
		take(100)
		testkit.Must(t, theirs.Signal(syscall.SIGCONT))
		take(300)
		testkit.Eventually(t, "other worker id for the process that was stopped", time.Minute, func() bool {
			all := theirs.ids()
			last, err := p.Decode(uidplugin.ID(all[len(all)-1]))
			return err == nil && len(all) > before && last.WorkerID != worker || d.Name == "sqlite" && len(all) > before+100
		})
		take(50)
		testkit.Must(t, theirs.Stop())

		ledger := testkit.NewLedger(t)
		ledger.Add("t1", ours...)
		ledger.Add("t1", theirs.ids()...)
		for _, id := range theirs.ids() {
			if parts, _ := p.Decode(uidplugin.ID(id)); parts.WorkerID == worker && id >= ours[0] {
				t.Fatalf("id %d is of worker id %d and not below %d, when it was another's", id, worker, ours[0])
			}
		}
		harness.Resolves(t, p, "t1", "reclaims", ours[0], ours[len(ours)-1])
		harness.Resolves(t, p, "t1", "stopped", theirs.ids()[0], theirs.ids()[before-1], theirs.ids()[len(theirs.ids())-1])
	})
}

// Processes whose clocks are years apart make different ids on one database. Each id carries the time of its
// process.
func TestSlot_ClocksThatAreYearsApart(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		ledger := testkit.NewLedger(t)
		start := func(off time.Duration) *uidplugin.Plugin {
			c := testkit.NewRunningClock(time.Now(), 1)
			c.Add(off)
			begun := c.Now()
			p := harness.Use(t, d.Open(t, nil), uidplugin.WithModels(&harness.T1{}), uidplugin.WithClock(c.Now))
			for range 500 {
				id, err := harness.NextID(p)
				testkit.Must(t, err)
				ledger.Add("t1", id)
				parts, err := p.Decode(uidplugin.ID(id))
				testkit.Must(t, err)
				if at := parts.Time; at.Before(begun.Add(-2*time.Second)) || at.After(c.Now().Add(2*time.Second)) {
					t.Fatalf("%v off: an id of %v at %v", off, at, c.Now())
				}
			}
			return p
		}
		for range 3 {
			var plugins []*uidplugin.Plugin
			for _, off := range []time.Duration{0, 3 * 365 * 24 * time.Hour, -200 * 24 * time.Hour, time.Minute} {
				plugins = append(plugins, start(off))
			}
			for _, p := range plugins {
				harness.Close(t, p)
			}
		}
	})
}

// The clock is set back while a process is down, so that time comes twice. No id does. With a fixed worker id no row
// has the last tick, so with the same clocks ids do come twice.
func TestSlot_ClockSetOverARestart(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		for _, step := range []time.Duration{-time.Hour, -30 * time.Second, 30 * time.Second, 365 * 24 * time.Hour} {
			for _, control := range []bool{false, true} {
				d := d.New(t)
				begin := time.Now()
				c := testkit.NewClock(begin)
				ledger := &testkit.Ledger{}
				for _, off := range []time.Duration{0, step.Abs(), min(step+step.Abs(), 0), step.Abs(), 0} { // there and back again
					c.Set(begin.Add(off))
					options := []uidplugin.Option{uidplugin.WithModels(&harness.T1{}), uidplugin.WithClock(c.Now)}
					if control {
						options = append(options, uidplugin.WithWorkerID(1))
					}
					p := harness.Use(t, d.Open(t, nil), options...)
					for i := range 500 {
						id, err := harness.NextID(p)
						testkit.Must(t, err)
						ledger.Add("t1", id)
						parts, err := p.Decode(uidplugin.ID(id))
						testkit.Must(t, err)
						if ahead := parts.Time.Sub(c.Now()); ahead < -time.Second || ahead > 11*time.Second && d.Name != "sqlite" {
							t.Fatalf("%v: an id that is %v ahead", step, ahead)
						}
						if !control && (i%50 == 0 || i == 499) { // each takes a round trip
							harness.Resolves(t, p, "t1", "", id)
						}
					}
					_ = p.Close(t.Context()) // a slot that was not released does no harm here
				}
				if control != (ledger.Twice() > 0) {
					t.Errorf("%v, control %t: %d of %d ids came twice", step, control, ledger.Twice(), ledger.Len())
				}
			}
		}
	}, "sqlite", "mariadb")
}

// A clock that is wrong is noticed at the start, and when it becomes wrong later.
func TestSlot_WrongClocksAreRefused(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		skew, lead := plugintest.WithMaxSkew(10*time.Minute), uidplugin.WithLead(time.Second) // soon used up
		for _, off := range []time.Duration{-time.Hour, time.Hour, 3 * 365 * 24 * time.Hour} {
			c := testkit.NewRunningClock(time.Now(), 1)
			c.Add(off)
			hour := c.Now().UTC().Truncate(time.Hour)
			err := d.Open(t, nil).Use(uidplugin.New(harness.Quiet, skew, lead, uidplugin.WithModels(&harness.T1{}), uidplugin.WithClock(c.Now)))
			if now := c.Now().UTC().Truncate(time.Hour); !now.Equal(hour) {
				continue // the error has either of them
			}
			testkit.IsError(t, err, workernode.ErrClock, "correct the wrong clock", hour.Format("2006-01-02 15"))
		}
		c := testkit.NewRunningClock(time.Now(), 1)
		c.Add(5 * time.Minute)
		p := harness.Use(t, d.Open(t, nil), skew, lead, uidplugin.WithClock(c.Now), uidplugin.WithModels(&harness.T1{}))
		harness.MustID(t, p)
		c.Add(365 * 24 * time.Hour)
		begin := time.Now()
		err := harness.Refused(t, "error of the wrong clock", func() error {
			id, err := harness.NextID(p)
			if parts, _ := p.Decode(uidplugin.ID(id)); err == nil && parts.Time.After(begin.Add(time.Hour)) {
				t.Fatalf("an id of %v", parts.Time)
			}
			return err
		}, func(err error) bool { return errors.Is(err, workernode.ErrClock) })
		testkit.IsError(t, err, generator.ErrLeaseExpired, "t1")
		testkit.Eventually(t, "Health that says so", time.Minute, func() bool { return errors.Is(p.Health(), workernode.ErrClock) })
		c.Add(-365 * 24 * time.Hour)
		testkit.Eventually(t, "health with the right clock", time.Minute, func() bool { return p.Health() == nil })
		harness.MustID(t, p)
	}, "mariadb", "mysql", "postgres")
}

// A process is paused between a statement and its next look at the clock. It must not use ticks that passed
// meanwhile as if they were of one session, and it recovers by itself.
func TestSlot_LateAcknowledgements(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		for _, test := range []struct {
			statement string
			reclaim   bool
			pause     time.Duration
		}{
			{"WORKER_SLOT", false, 3 * time.Second}, {"COMMIT", false, 15 * time.Second}, {"COMMIT", false, 2 * time.Hour},
			{"WORKER_SLOT", true, 15 * time.Second}, {"COMMIT", true, 15 * time.Second}, {"COMMIT", true, 2 * time.Hour},
		} {
			d := d.New(t)
			ledger := testkit.NewLedger(t)
			c := testkit.NewClock(time.Now())
			if test.reclaim {
				former := harness.NewManager(t, d.Open(t, nil), c, nil)
				ledger.Add("t1", harness.NewTenant(t, former, "t1").Drain(t)...)
				harness.Close(t, former)
				c.Add(2 * time.Hour)
			}
			db, wire := testkit.OpenWire(t, d)
			m := harness.NewManager(t, db, c, nil)
			paused := false
			wire.Set(func(x *testkit.Crossing) error {
				err := x.Run()
				if !paused && strings.Contains(x.SQL, test.statement) && !x.Is("SELECT") {
					paused = true
					c.Add(test.pause)
				}
				return err
			})
			g := harness.NewTenant(t, m, "t1")
			wire.Set(nil)
			l := g.Lease.Leases()[0]
			if now := harness.SmallLayout(4).TickAt(c.Now()); !paused || l.Until < now {
				t.Errorf("%+v: lease %+v at %d", test, l, now)
			}
			ledger.Add("t1", g.Drain(t)...)
			c.Add(5 * time.Second)
			g.Renewed(t, m, c)
			ids := g.Drain(t)
			ledger.Add("t1", ids...)
			p := harness.Use(t, d.Open(t, nil), uidplugin.WithLayout(harness.SmallLayout(4)), uidplugin.WithClock(c.Now))
			harness.Resolves(t, p, "t1", "", ids[0], ids[len(ids)-1])
		}
	})
}

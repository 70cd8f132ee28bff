package integration_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/config"
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
	options := []uidplugin.Option{quiet, uidplugin.WithModels(&T1{}),
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
		id, err := nextID(p)
		if err != nil {
			return err
		}
		fmt.Println(id)
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

// A process is stopped until another one has its slot, and goes on. Without fences both would stamp the same
// ticks: what it still stamps lies below all that the other one stamps with the same worker id, and then it gets
// another slot.
func TestSlot_OfAStoppedProcessIsReclaimed(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		theirs := startMaker(t, makerTask{Database: d.kit(), Port: "stopped"})
		eventually(t, 20*time.Second, "ids of the other process", func() bool { return len(theirs.ids()) > 100 })
		must(t, theirs.Signal(syscall.SIGSTOP))
		time.Sleep(100 * time.Millisecond) // for what is on its way
		before := len(theirs.ids())

		// A clock that is 90 s ahead makes the wait short.
		ahead := 90 * time.Second
		if d.name == "sqlite" {
			ahead += workernode.DefaultLeadSQLite
		}
		p := use(t, open(t, d), uidplugin.WithModels(&T1{}),
			uidplugin.WithClock(func() time.Time { return time.Now().Add(ahead) }),
			uidplugin.WithHost(workernode.Host{Port: "reclaims"}))
		worker := p.Stats().Tables[0].WorkerIDs[0]
		if s := p.Stats().Slot; s.Reclaimed != 1 {
			t.Errorf("no slot was reclaimed: %+v", s)
		}
		var ours []int64
		take := func(n int) {
			for range n {
				id, err := nextID(p)
				must(t, err)
				ours = append(ours, id)
				time.Sleep(time.Millisecond)
			}
		}
		take(100)
		must(t, theirs.Signal(syscall.SIGCONT))
		take(300)
		eventually(t, 10*time.Second, "other worker id for the process that was stopped", func() bool {
			all := theirs.ids()
			last, err := p.Decode(uidplugin.ID(all[len(all)-1]))
			return err == nil && len(all) > before && last.WorkerID != worker || d.name == "sqlite" && len(all) > before+100
		})
		take(50)
		must(t, theirs.Stop())

		ledger := testkit.NewLedger(t)
		ledger.Add("t1", ours...)
		ledger.Add("t1", theirs.ids()...)
		for _, id := range theirs.ids() {
			if parts, _ := p.Decode(uidplugin.ID(id)); parts.WorkerID == worker && id >= ours[0] {
				t.Fatalf("id %d is of worker id %d and not below %d, when it was another's", id, worker, ours[0])
			}
		}
		resolves(t, p, "t1", "reclaims", ours[0], ours[len(ours)-1])
		resolves(t, p, "t1", "stopped", theirs.ids()[0], theirs.ids()[before-1], theirs.ids()[len(theirs.ids())-1])
	})
}

// resolves checks that ids resolve to a table, and to a process by its port.
func resolves(t *testing.T, p *uidplugin.Plugin, table, port string, ids ...int64) {
	t.Helper()
	for _, id := range ids {
		l, err := p.Locate(context.Background(), uidplugin.ID(id))
		if err != nil || l.Table != table || port != "" && l.Session.Port != port {
			t.Errorf("Locate(%d) = %+v, %v; want table %s and port %s", id, l, err, table, port)
		}
	}
}

// Processes whose clocks are years apart make different ids on one database. Each id carries the time of its
// process.
func TestSlot_ClocksThatAreYearsApart(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		ledger := testkit.NewLedger(t)
		start := func(off time.Duration) *uidplugin.Plugin {
			c := newMovedClock(1)
			c.move(off)
			p := use(t, open(t, d), uidplugin.WithModels(&T1{}), uidplugin.WithClock(c.now))
			for range 500 {
				id, err := nextID(p)
				must(t, err)
				ledger.Add("t1", id)
				parts, err := p.Decode(uidplugin.ID(id))
				must(t, err)
				if ahead := parts.Time.Sub(c.now()); ahead < -2*time.Second || ahead > 2*time.Second {
					t.Fatalf("%v off: an id that is %v ahead", off, ahead)
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
				must(t, p.Close(t.Context()))
			}
		}
	})
}

// The clock is set while a process is down, so that time comes twice. No id does. A fixed worker id has no row that
// remembers: with it the same clocks make ids twice.
func TestSlot_ClockSetOverARestart(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		for _, step := range []time.Duration{-time.Hour, -30 * time.Second, 30 * time.Second, 365 * 24 * time.Hour} {
			for _, control := range []bool{false, true} {
				d := fresh(t, d.engine)
				c := newMovedClock(0)
				ledger := &testkit.Ledger{}
				for _, off := range []time.Duration{0, step.Abs(), min(step+step.Abs(), 0), step.Abs(), 0} { // there and back again
					c.moved.Store(int64(off))
					options := []uidplugin.Option{uidplugin.WithModels(&T1{}), uidplugin.WithClock(c.now)}
					if control {
						options = append(options, uidplugin.WithWorkerID(1))
					}
					p := use(t, open(t, d), options...)
					for range 500 {
						id, err := nextID(p)
						must(t, err)
						ledger.Add("t1", id)
						parts, err := p.Decode(uidplugin.ID(id))
						must(t, err)
						if ahead := parts.Time.Sub(c.now()); ahead < -time.Second || ahead > 11*time.Second && d.name != "sqlite" {
							t.Fatalf("%v: an id that is %v ahead", step, ahead)
						}
						if !control {
							resolves(t, p, "t1", "", id)
						}
					}
					must(t, p.Close(t.Context()))
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
	each(t, func(t *testing.T, d *database) {
		skew, lead := config.WithMaxSkew(10*time.Minute), uidplugin.WithLead(time.Second) // soon used up
		for _, off := range []time.Duration{-time.Hour, time.Hour, 3 * 365 * 24 * time.Hour} {
			c := newMovedClock(1)
			c.move(off)
			err := open(t, d).Use(uidplugin.New(quiet, skew, lead, uidplugin.WithModels(&T1{}), uidplugin.WithClock(c.now)))
			says(t, err, workernode.ErrClock, "set the clock", c.now().UTC().Format("2006-01-02 15"))
		}
		c := newMovedClock(1)
		c.move(5 * time.Minute)
		p := use(t, open(t, d), skew, lead, uidplugin.WithClock(c.now), uidplugin.WithModels(&T1{}))
		_, err := nextID(p)
		must(t, err)
		c.move(365 * 24 * time.Hour)
		begin := time.Now()
		for err == nil && time.Since(begin) < time.Minute {
			var id int64
			if id, err = nextID(p); err == nil {
				if parts, _ := p.Decode(uidplugin.ID(id)); parts.Time.After(begin.Add(time.Hour)) {
					t.Fatalf("an id of %v", parts.Time)
				}
			}
		}
		says(t, err, generator.ErrLeaseExpired, "t1")
		says(t, err, workernode.ErrClock)
		says(t, p.Health(), workernode.ErrClock)
		c.move(-365 * 24 * time.Hour)
		eventually(t, 10*time.Second, "health with the right clock", func() bool { return p.Health() == nil })
		if _, err := nextID(p); err != nil {
			t.Errorf("with the right clock: %v", err)
		}
	}, "mariadb", "mysql", "postgres")
}

// A process is paused between a statement and its next look at the clock. It must not use ticks that passed
// meanwhile as if they were of one session, and it recovers by itself.
func TestSlot_LateAcknowledgements(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		for _, test := range []struct {
			statement string
			reclaim   bool
			pause     time.Duration
		}{
			{"WORKER_SLOT", false, 3 * time.Second}, {"COMMIT", false, 15 * time.Second}, {"COMMIT", false, 2 * time.Hour},
			{"WORKER_SLOT", true, 15 * time.Second}, {"COMMIT", true, 15 * time.Second}, {"COMMIT", true, 2 * time.Hour},
		} {
			d := fresh(t, d.engine)
			ledger := testkit.NewLedger(t)
			c := newMovedClock(0)
			if test.reclaim {
				former := manager(t, open(t, d), c, nil)
				ledger.Add("t1", newTenant(t, former, "t1").drain(t)...)
				must(t, former.Close(t.Context()))
				c.move(2 * time.Hour)
			}
			db, tap := tapped(t, d)
			m := manager(t, db, c, nil)
			paused := false
			tap.meet(func(query string, run func() error) error {
				err := run()
				if !paused && strings.Contains(query, test.statement) && !strings.HasPrefix(query, "SELECT") {
					paused = true
					c.move(test.pause)
				}
				return err
			})
			g := newTenant(t, m, "t1")
			tap.meet(nil)
			l := g.lease.Leases()[0]
			if now := small(4).TickAt(c.now()); !paused || l.Until < now {
				t.Errorf("%+v: lease %+v at %d", test, l, now)
			}
			ledger.Add("t1", g.drain(t)...)
			c.move(5 * time.Second)
			g.renewed(t, m, c)
			ids := g.drain(t)
			ledger.Add("t1", ids...)
			p := use(t, open(t, d), uidplugin.WithLayout(small(4)), uidplugin.WithClock(c.now))
			resolves(t, p, "t1", "", ids[0], ids[len(ids)-1])
		}
	})
}

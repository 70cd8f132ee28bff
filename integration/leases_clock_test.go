package integration_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/workernode"
)

// pausedVariable makes TestPausedProcess the process that is paused.
const pausedVariable = "UID_TEST_PAUSED"

type pausedTask struct {
	Engine, Env, Schema string
	Base                time.Time // of the clock
}

// pausedFactor makes the 80 seconds, after which a worker id is taken over, 4.
const pausedFactor = 20

// A process is stopped until another one has its worker id, and goes on. What it makes
// with that worker id lies before all that the other one makes with it, and then it
// gets another.
func TestPausedProcess(t *testing.T) {
	if text := os.Getenv(pausedVariable); text != "" {
		paused(t, text)
		return
	}
	if testing.Short() {
		t.Skip("it takes some seconds")
	}
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		base := time.Now()
		c := &movedClock{base: base, factor: pausedFactor}
		task, err := json.Marshal(pausedTask{Engine: d.name, Env: d.env, Schema: d.schema, Base: base})
		must(t, err)
		cmd := exec.Command(os.Args[0], "-test.run=^TestPausedProcess$", "-test.v")
		cmd.Env = append(os.Environ(), pausedVariable+"="+string(task))
		in, err := cmd.StdinPipe()
		must(t, err)
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		defer func() { _ = cmd.Process.Kill() }()
		var mu sync.Mutex
		var theirs []int64
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for lines := bufio.NewScanner(out); lines.Scan(); {
				var id int64
				if n, _ := fmt.Sscanf(lines.Text(), "id %d", &id); n == 1 {
					mu.Lock()
					theirs = append(theirs, id)
					mu.Unlock()
				} else if strings.Contains(lines.Text(), "FAIL") || strings.Contains(lines.Text(), "_test.go") {
					t.Errorf("the process that is paused: %s", lines.Text())
				}
			}
		}()
		count := func() int {
			mu.Lock()
			defer mu.Unlock()
			return len(theirs)
		}
		eventually(t, 20*time.Second, "ids of the other process", func() bool { return count() > 100 })
		must(t, cmd.Process.Signal(syscall.SIGSTOP))
		time.Sleep(100 * time.Millisecond) // for what is on its way
		before := count()
		time.Sleep(85*time.Second/pausedFactor + 200*time.Millisecond)

		p := use(t, open(t, d), uidplugin.WithLayout(small(8)), uidplugin.WithModels(&T1{}), uidplugin.WithClock(c.now), uidplugin.WithSpares(0))
		worker := p.Stats().Tables[0].WorkerIDs[0]
		if s := p.Stats().Leases; s.Taken != 1 {
			t.Errorf("no worker id was taken over: %+v", s)
		}
		var ours []int64
		take := func(span time.Duration) {
			for begin := time.Now(); time.Since(begin) < span; time.Sleep(2 * time.Millisecond) {
				id, err := nextID(p)
				must(t, err)
				ours = append(ours, id)
			}
		}
		take(300 * time.Millisecond)
		must(t, cmd.Process.Signal(syscall.SIGCONT))
		take(time.Second)
		eventually(t, 5*time.Second, "other worker id for the process that was paused", func() bool {
			mu.Lock()
			defer mu.Unlock()
			last, err := p.Decode(theirs[len(theirs)-1])
			return err == nil && len(theirs) > before && last.WorkerID != worker
		})
		take(100 * time.Millisecond)
		must(t, in.Close())
		<-ended
		must(t, cmd.Wait())

		var all used
		first := int64(0)
		for _, id := range ours {
			all.add(t, id, "the one that took over")
			if parts, _ := p.Decode(id); parts.WorkerID == worker && first == 0 {
				first = id
			}
		}
		others := 0
		for i, id := range theirs {
			all.add(t, id, "the one that was paused")
			if parts, _ := p.Decode(id); parts.WorkerID != worker {
				others++
			} else if id >= first {
				t.Errorf("id %d (number %d of %d, %d before the pause) is of worker id %d and not below %d, when it was another's", id, i, len(theirs), before, worker, first)
			}
		}
		t.Logf("%d ids here, %d there, %d of them with another worker id", len(ours), len(theirs), others)
	}, "mariadb", "postgres")
}

// paused makes ids until its input ends.
func paused(t *testing.T, text string) {
	var task pausedTask
	must(t, json.Unmarshal([]byte(text), &task))
	d := &database{engine: engine{name: task.Engine, env: task.Env}, schema: task.Schema}
	c := &movedClock{base: task.Base, factor: pausedFactor}
	p := use(t, open(t, d), uidplugin.WithLayout(small(8)), uidplugin.WithModels(&T1{}), uidplugin.WithClock(c.now), uidplugin.WithSpares(0))
	end := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(end)
	}()
	for {
		select {
		case <-end:
			return
		case <-time.After(2 * time.Millisecond):
		}
		id, err := nextID(p)
		must(t, err)
		fmt.Printf("id %d\n", id)
	}
}

// Processes whose clocks are years apart make different ids on one database, that bear
// the time of the process that made them.
func TestClocksThatAreApart(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		var all used
		start := func(off time.Duration, round int) *uidplugin.Plugin {
			c := newMovedClock(1)
			c.move(off)
			p := use(t, open(t, d), uidplugin.WithModels(&T1{}), uidplugin.WithClock(c.now))
			for range 500 {
				id, err := nextID(p)
				must(t, err)
				all.add(t, id, fmt.Sprintf("%v off, round %d", off, round))
				parts, err := p.Decode(id)
				must(t, err)
				if ahead := parts.Time.Sub(c.now()); ahead < -2*time.Second || ahead > 25*time.Second {
					t.Fatalf("%v off: an id that is %v ahead", off, ahead)
				}
			}
			return p
		}
		for round := range 3 {
			var plugins []*uidplugin.Plugin
			for _, off := range []time.Duration{0, 3 * 365 * 24 * time.Hour, -200 * 24 * time.Hour, time.Minute} {
				plugins = append(plugins, start(off, round))
			}
			for _, p := range plugins {
				must(t, p.Close(t.Context()))
			}
		}
	})
}

// A clock that is wrong is noticed at the start, and when it gets wrong later.
func TestWrongClocks(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		skew := uidplugin.WithMaxClockSkew(10 * time.Minute)
		for _, off := range []time.Duration{-time.Hour, time.Hour, 3 * 365 * 24 * time.Hour} {
			c := newMovedClock(1)
			c.move(off)
			err := open(t, d).Use(uidplugin.New(quiet, skew, uidplugin.WithClock(c.now)))
			says(t, err, workernode.ErrClock, "set the clock", c.now().UTC().Format("2006-01-02 15"))
		}
		d = fresh(t, d.engine) // which has a layout already
		c := newMovedClock(1)
		c.move(5 * time.Minute)
		p := use(t, open(t, d), skew, uidplugin.WithClock(c.now), uidplugin.WithModels(&T1{}), uidplugin.WithLayout(small(4)))
		_, err := nextID(p)
		must(t, err)
		c.move(365 * 24 * time.Hour)
		begin := time.Now()
		for err == nil && time.Since(begin) < 10*time.Second {
			var id int64
			if id, err = nextID(p); err == nil {
				if parts, _ := p.Decode(id); parts.Time.After(begin.Add(time.Hour)) {
					t.Fatalf("an id of %v", parts.Time)
				}
			}
		}
		says(t, err, generator.ErrLeaseExpired, "t1")
		says(t, err, workernode.ErrClock)
		says(t, p.Health(), workernode.ErrClock)
		c.move(-365 * 24 * time.Hour)
		eventually(t, 5*time.Second, "health with the right clock", func() bool { return p.Health() == nil })
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if _, err := p.NextID(ctx, &T1{}); err != nil {
			t.Errorf("with the right clock: %v", err)
		}
	}, "mariadb", "mysql", "postgres")
}

// A process that is paused after a statement, before it has read the clock again, uses
// nothing of what was granted meanwhile, and tries again.
func TestLateAcknowledgements(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		for _, test := range []struct {
			name, statement string
			pause           time.Duration
			durable         bool
		}{
			{"insert", "INSERT INTO", 15 * time.Second, false},
			{"insert", "INSERT INTO", 2 * time.Minute, true},
			{"take over", "HELD_SECOND", 15 * time.Second, false},
			{"take over", "HELD_SECOND", 2 * time.Minute, true},
		} {
			func() {
				db, v := valved(t, fresh(t, d.engine))
				c := newMovedClock(0)
				config := func(l *workernode.LeasedConfig) { l.Durable = test.durable }
				if test.name == "take over" {
					former := lessor(t, db, c, config)
					drain(t, tenant(t, former, c, "t1"))
					must(t, former.Close(t.Context()))
					c.move(2 * time.Hour)
				}
				k := lessor(t, db, c, config)
				pauses := 0
				pause := func(query string) {
					if strings.Contains(query, test.statement) && strings.Contains(query, "WORKER_NODE") && pauses == 0 {
						pauses++
						c.move(test.pause)
					}
				}
				v.after.Store(&pause)
				defer func() {
					if r := recover(); r != nil {
						t.Errorf("%s, durable %t: panic: %v", test.name, test.durable, r)
					}
				}()
				leases, err := k.Assign(t.Context(), "t1")
				if pauses != 1 {
					t.Errorf("%s, durable %t: no statement was late", test.name, test.durable)
				}
				if now := small(4).TickAt(c.now()); err != nil || leases[0].Until < now || !test.durable && leases[0].From < now+10 {
					t.Errorf("%s, durable %t: %+v at %d, %v", test.name, test.durable, leases, now, err)
				}
			}()
		}
	})
}

package leases_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/config"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/internal/workernode"
)

var startsProcesses = flag.Int("starts.processes", 0,
	"how many processes TestProcesses_StartAtOnce starts, on a server of its own: 200 in the long form")

// startAndReport is the role of a process of TestProcesses_StartAtOnce.
const startAndReport = "start and report"

// startedTables are what each of these processes writes.
var startedTables = []any{&harness.T1{}, &harness.T2{}, &harness.T3{}, &harness.T4{}, &harness.T5{}}

// A startedTask is what a process of TestProcesses_StartAtOnce is to do.
type startedTask struct {
	Database *testkit.Database
	Ahead    time.Duration // of its clock
	Same     time.Time     // for the control: where the clocks of all stand, who share a worker id
}

// A startedReport is what it has seen.
type startedReport struct {
	Open, Use, First time.Duration // for the handle, for db.Use, and for the first row of each table
	Workers          map[string]int64
	IDs              []int64
	Slot             uidplugin.SlotStats
	Connections      int
	Port             string
}

// started waits for a line, registers the plugin, creates rows, reports, and goes on
// until its input ends.
func started(task startedTask) (err error) {
	in := bufio.NewReader(os.Stdin)
	fmt.Println("up")
	if _, err := in.ReadString('\n'); err != nil {
		return err
	}
	var r startedReport
	begin := time.Now()
	db, err := task.Database.Connect(nil)
	if err != nil {
		return err
	}
	pool, err := db.DB()
	if err != nil {
		return err
	}
	r.Open = time.Since(begin)
	// The default options, but for the clock, which is within what may be.
	options := []uidplugin.Option{harness.Quiet, uidplugin.WithModels(startedTables...),
		config.WithMaxSkew(workernode.DefaultMaxSkew),
		uidplugin.WithClock(func() time.Time { return time.Now().Add(task.Ahead) })}
	if !task.Same.IsZero() {
		options = []uidplugin.Option{harness.Quiet, uidplugin.WithWorkerID(7),
			uidplugin.WithClock(func() time.Time { return task.Same })}
	}
	r.Port = fmt.Sprint("started-", os.Getpid())
	p := uidplugin.New(append(options, uidplugin.WithHost(workernode.Host{Port: r.Port}))...)
	if err := db.Use(p); err != nil {
		return fmt.Errorf("after %v: %w", time.Since(begin), err)
	}
	r.Use = time.Since(begin)
	if task.Same.IsZero() {
		a, b, c, e, f := harness.T1{}, harness.T2{}, harness.T3{}, harness.T4{}, harness.T5{}
		for _, row := range []any{&a, &b, &c, &e, &f} {
			if err := db.Create(row).Error; err != nil {
				return err
			}
		}
		text, err := uidplugin.ParseID(e.ID)
		if err != nil {
			return err
		}
		r.IDs = []int64{a.ID.Int64(), b.ID, int64(c.ID), text.Int64(), f.Key.Int64()}
	}
	r.First = time.Since(begin)
	for range 3 {
		id, err := p.NextID(db.Statement.Context, &harness.T1{})
		if err != nil {
			return err
		}
		r.IDs = append(r.IDs, int64(id))
	}
	r.Workers = map[string]int64{}
	for _, table := range p.Stats().Tables {
		r.Workers[table.Table] = table.WorkerIDs[0]
	}
	r.Slot, r.Connections = p.Stats().Slot, pool.Stats().OpenConnections
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	fmt.Println(string(line))
	_, _ = io.Copy(io.Discard, in)
	return errors.Join(p.Close(db.Statement.Context), pool.Close())
}

// startAtOnce starts n processes, lets all begin at the same moment, and calls during
// when all are up. It returns what they have seen, in the order of their first rows,
// and how long it took until all had those.
func startAtOnce(t *testing.T, n int, task startedTask, during func()) (reports []startedReport, took time.Duration) {
	t.Helper()
	processes, lines := make([]*testkit.Process, n), make([]chan string, n)
	begin := time.Now()
	for i := range processes {
		lines[i] = make(chan string, 2)
		processes[i] = testkit.Start(t, startAndReport, task, func(line string) { lines[i] <- line })
	}
	next := func(i int) (line string) {
		select {
		case line = <-lines[i]:
		case <-processes[i].Done():
		}
		return line
	}
	for i := range processes {
		if line := next(i); line != "up" {
			t.Errorf("process %d: %q", i, line)
		}
	}
	running := time.Since(begin)
	begin = time.Now()
	for _, p := range processes {
		testkit.Must(t, p.Send("go"))
	}
	var mu sync.Mutex
	var group sync.WaitGroup
	for i := range processes {
		group.Go(func() {
			line := next(i)
			var r startedReport
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				t.Errorf("process %d says %q: %v", i, line, err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			reports = append(reports, r)
		})
	}
	group.Wait()
	took = time.Since(begin)
	if during != nil && !t.Failed() {
		during()
	}
	begin = time.Now()
	for i, p := range processes {
		group.Go(func() {
			if err := p.Stop(); err != nil {
				t.Errorf("process %d ended with %v", i, err)
			}
		})
	}
	group.Wait()
	if len(reports) == n {
		at := func(part float64, of func(startedReport) time.Duration) time.Duration {
			all := make([]time.Duration, n)
			for i, r := range reports {
				all[i] = of(r)
			}
			slices.Sort(all)
			return all[int(part*float64(n-1))].Round(time.Millisecond)
		}
		open, use, first := func(r startedReport) time.Duration { return r.Open }, func(r startedReport) time.Duration { return r.Use - r.Open }, func(r startedReport) time.Duration { return r.First }
		t.Logf("%d processes: running after %v, rows in all tables of all after %v more (median %v, longest %v; db.Use %v and %v, connecting %v and %v), ended in %v",
			n, running.Round(time.Millisecond), took.Round(time.Millisecond), at(0.5, first), at(1, first), at(0.5, use), at(1,
				use), at(0.5, open), at(1, open), time.Since(begin).Round(time.Millisecond))
	}
	return reports, took
}

// sameIDs counts the ids of processes that come twice, and the worker ids.
func sameIDs(reports []startedReport) (ids, workers int) {
	seen, held := map[int64]bool{}, map[int64]bool{}
	for _, r := range reports {
		for _, id := range r.IDs {
			if seen[id] {
				ids++
			}
			seen[id] = true
		}
		for _, w := range r.Workers {
			if held[w] {
				workers++
			}
			held[w] = true
		}
	}
	return ids, workers
}

// Many processes, each with the default options, five tables, and connections of its
// own, start at the same moment on an empty database: all come up within seconds, each
// with its own worker ids. They end, all are started again, and reclaim what those
// before them had. The long form:
//
//	go test -run TestProcesses_StartAtOnce -v ./integration/leases/ -starts.processes 200
func TestProcesses_StartAtOnce(t *testing.T) {
	t.Parallel()
	testkit.MariaDB().Need(t)
	n := 30
	if testing.Short() {
		n = 10
	}
	run := func(d *testkit.Database) { startsAtOnce(t, d, n) }
	if *startsProcesses == 0 {
		run(testkit.MariaDB().New(t))
		return
	}
	// It wants connections that others would miss.
	n = *startsProcesses
	run(testkit.MariaDB().NewServer(t).New(t))
}

func startsAtOnce(t *testing.T, d *testkit.Database, n int) {
	admin, db := (&testkit.Database{Engine: d.Engine}).Open(t, nil), d.Open(t, nil)
	testkit.Must(t, db.AutoMigrate(startedTables...))
	own := connections(t, admin, d)
	task := startedTask{Database: d}
	var all []startedReport
	before := 0
	for round, ahead := range []time.Duration{0, 30 * time.Second} { // by which the fences of the first round have passed
		task.Ahead = ahead
		var held []workernode.Slot
		var conns int64
		reports, took := startAtOnce(t, n, task, func() {
			held, conns = harness.Slots(t, db), connections(t, admin, d)-own
		})
		if t.Failed() {
			return
		}
		// So many processes on so few cores take their time to run at all.
		if limit := 10*time.Second + time.Duration(n)*200*time.Millisecond; took > limit {
			t.Errorf("it took %v until all had their rows", took)
		}
		all = append(all, reports...)
		if ids, _ := sameIDs(all); ids > 0 {
			t.Errorf("%d ids came twice", ids)
		}
		if _, workers := sameIDs(reports); workers > 0 {
			t.Errorf("%d worker ids have two holders", workers)
		}
		var reclaimed, allocated int64
		holders, slot := 0, map[int64]bool{}
		for _, r := range reports {
			reclaimed, allocated, slot[r.Slot.ID] = reclaimed+r.Slot.Reclaimed, allocated+r.Slot.Allocated, true
		}
		for _, s := range held {
			if s.Holder != "" {
				holders++
			}
		}
		nodes := harness.Nodes(t, db)
		t.Logf("start %d: %d slots new, %d reclaimed; %d worker ids; %d slots, %d before, %d of them held; %d connections",
			round+1, allocated, reclaimed, len(nodes), len(held), before, holders, conns)
		if len(slot) != n || holders < n || reclaimed+allocated < int64(n) {
			t.Errorf("%d processes have %d slots; %d are held", n, len(slot), holders)
		}
		if round == 1 && reclaimed == 0 {
			t.Error("nothing was reclaimed")
		}
		if conns > 2*int64(n) {
			t.Errorf("%d connections of %d processes", conns, n)
		}
		before = len(held)
		testkit.Eventually(t, "end of the connections", 5*time.Second, func() bool { return connections(t, admin, d) == own })
		for _, s := range harness.Slots(t, db) {
			if s.Holder != "" && slot[s.ID] {
				t.Errorf("slot %d was not released", s.ID)
				break
			}
		}
	}
	p := harness.Use(t, db, uidplugin.WithModels(startedTables...))
	tables := []string{"t1", "t2", "t3", "t4", "t5", "t1", "t1", "t1"}
	for _, r := range all {
		for i, id := range r.IDs {
			harness.Resolves(t, p, tables[i], r.Port, id)
		}
	}
}

// The same processes with one worker id that somebody has set for all: there are ids
// that come twice, which the test above would have seen.
func TestProcesses_WithTheSameWorkerID(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		reports, _ := startAtOnce(t, 8, startedTask{Database: d, Same: time.Now()}, nil)
		if ids, _ := sameIDs(reports); ids == 0 {
			t.Error("no id came twice, so TestProcesses_StartAtOnce proves nothing")
		}
	}, "sqlite")
}

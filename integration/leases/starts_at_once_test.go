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
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

var startsProcesses = flag.Int("starts.processes", 0,
	"how many processes TestProcesses_StartAtOnce starts, on a server of its own: 200 in the long form")

// startAndReport is the role of a process of TestProcesses_StartAtOnce.
const startAndReport = "start and report"

// startedTables are the tables that each of these processes writes.
var startedTables = []any{&harness.T1{}, &harness.T2{}, &harness.T3{}, &harness.T4{}, &harness.T5{}}

// A startedTask is the work of a process of TestProcesses_StartAtOnce.
type startedTask struct {
	Database *testkit.Database
	Ahead    time.Duration // of its clock
	Same     time.Time     // for the control: where the clocks of all stand, who share a worker id
}

// A startedReport is the report of such a process.
type startedReport struct {
	Open, Use, First time.Duration // for the handle, for db.Use, and for the first row of each table
	Workers          map[string]int64
	IDs              map[string][]int64 // by table
	Slot             workernode.SlotStats
	Connections      int
	Port             string
}

// started waits for a line, registers the plugin, creates rows and reports. Then it waits for the end of its input.
func started(task startedTask) (err error) {
	in := bufio.NewReader(os.Stdin)
	fmt.Println("up")
	if _, err := in.ReadString('\n'); err != nil {
		return err
	}
	r := startedReport{IDs: map[string][]int64{}}
	begin := time.Now()
	var params []string
	if task.Database.Name == "postgres" {
		params = append(params, "application_name="+task.Database.Schema) // by which connections counts
	}
	db, err := task.Database.Connect(nil, params...)
	if err != nil {
		return err
	}
	pool, err := db.DB()
	if err != nil {
		return err
	}
	r.Open = time.Since(begin)
	// The default options, but for the clock, which is within what may be, and for the time that so many processes need
	// on few cores.
	options := []uidplugin.Option{harness.Quiet, uidplugin.WithModels(startedTables...), uidplugin.WithTimeout(time.Minute),
		plugintest.WithMaxSkew(workernode.DefaultMaxSkew),
		uidplugin.WithClock(func() time.Time { return time.Now().Add(task.Ahead) })}
	if task.Database.Name == "sqlite" {
		options = append(options, uidplugin.WithLead(workernode.DefaultLead)) // else the fences have not passed in time
	}
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
		for range 5 {
			if err := r.create(db); err != nil {
				return err
			}
		}
	}
	r.First = time.Since(begin)
	for range 3 {
		id, err := p.NextID(db.Statement.Context, &harness.T1{})
		if err != nil {
			return err
		}
		r.IDs["t1"] = append(r.IDs["t1"], int64(id))
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
	for try := 0; ; try++ { // a statement may take too long on a busy machine
		if err = p.Close(db.Statement.Context); err == nil || try == 5 {
			return errors.Join(err, pool.Close())
		}
	}
}

// create creates a row in each table, and seven in one.
func (r *startedReport) create(db *gorm.DB) error {
	a, b, c, e, f := harness.T1{}, harness.T2{}, make([]harness.T3, 7), harness.T4{}, harness.T5{}
	for _, row := range []any{&a, &b, &c, &e, &f} {
		if err := db.Create(row).Error; err != nil {
			return err
		}
	}
	text, err := uidplugin.ParseID(e.ID)
	if err != nil {
		return err
	}
	for _, row := range c {
		r.IDs["t3"] = append(r.IDs["t3"], int64(row.ID))
	}
	for table, id := range map[string]int64{"t1": int64(a.ID), "t2": b.ID, "t4": int64(text), "t5": int64(f.Key)} {
		r.IDs[table] = append(r.IDs[table], id)
	}
	return nil
}

// startAtOnce starts n processes, lets all begin at the same moment, and calls during when all have started. It
// returns their reports in the order of their first rows.
func startAtOnce(t *testing.T, n int, task startedTask, during func()) (reports []startedReport) {
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
	took := time.Since(begin)
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
	return reports
}

// sameIDs counts the ids of processes that come twice, and the worker ids.
func sameIDs(reports []startedReport) (ids, workers int) {
	seen, held := map[int64]bool{}, map[int64]bool{}
	for _, r := range reports {
		for _, all := range r.IDs {
			for _, id := range all {
				if seen[id] {
					ids++
				}
				seen[id] = true
			}
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

// Many processes with the default options, five tables and their own connections start at the same moment on an empty
// database. Each gets ready, and has its own worker ids. They end, all are started again, and reclaim
// the slots of those before them. The long form:
//
//	go test -run TestProcesses_StartAtOnce -v ./integration/leases/ -starts.processes 200
func TestProcesses_StartAtOnce(t *testing.T) {
	t.Parallel()
	if *startsProcesses > 0 { // it wants connections that others would miss
		startsAtOnce(t, testkit.MariaDB().NewServer(t).New(t), *startsProcesses)
		return
	}
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		n := 20
		switch {
		case d.Name == "sqlite":
			n = 4 // one writes at a time
		case testing.Short():
			n = 10
		case d.Name == "mariadb":
			n = 30
		}
		startsAtOnce(t, d, n)
	})
}

func startsAtOnce(t *testing.T, d *testkit.Database, n int) {
	db := d.Open(t, nil)
	testkit.Must(t, db.AutoMigrate(startedTables...))
	own := connections(t, db, d)
	task := startedTask{Database: d}
	var all []startedReport
	before := 0
	for round, ahead := range []time.Duration{0, 30 * time.Second} { // by which the fences of the first round have passed
		task.Ahead = ahead
		var held []workernode.Slot
		var conns int64
		reports := startAtOnce(t, n, task, func() {
			held, conns = harness.Slots(t, db), connections(t, db, d)-own
		})
		if t.Failed() {
			return
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
			if s.Held {
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
		testkit.Eventually(t, "end of the connections", time.Minute, func() bool { return connections(t, db, d) == own })
		for _, s := range harness.Slots(t, db) {
			if s.Held && slot[s.ID] {
				t.Errorf("slot %d was not released", s.ID)
				break
			}
		}
	}
	p := harness.Use(t, db, uidplugin.WithModels(startedTables...))
	for _, r := range all {
		if len(r.IDs) != 5 || len(r.IDs["t3"]) != 5*7 {
			t.Errorf("ids of %s: %v", r.Port, r.IDs)
		}
		for table, ids := range r.IDs {
			harness.Resolves(t, p, table, r.Port, ids[0], ids[len(ids)-1])
		}
	}
}

// If somebody sets one worker id for all these processes, ids come twice. So the test above would find duplicates.
func TestProcesses_WithTheSameWorkerID(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		reports := startAtOnce(t, 8, startedTask{Database: d, Same: time.Now()}, nil)
		if ids, _ := sameIDs(reports); ids == 0 {
			t.Error("no id came twice, so TestProcesses_StartAtOnce proves nothing")
		}
	}, "sqlite")
}

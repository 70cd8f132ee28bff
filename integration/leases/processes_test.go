package leases_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// createRows is the role of a process that creates rows.
const createRows = "create rows"

// childTask is what a child is to do.
type childTask struct {
	Database *testkit.Database
	Rows     int
}

// child registers the plugin, creates rows in all tables, and prints a line for each id.
func child(task childTask) error {
	db, err := task.Database.Connect(nil)
	if err != nil {
		return err
	}
	p := uidplugin.New(harness.Quiet)
	if err := db.Use(p); err != nil {
		return err
	}
	out := bufio.NewWriter(os.Stdout)
	for range task.Rows {
		var (
			a harness.T1
			b harness.T2
			c = make([]harness.T3, 7)
			e harness.T4
			f harness.T5
		)
		for _, row := range []any{&a, &b, &c, &e, &f} {
			if err := db.Create(row).Error; err != nil {
				return err
			}
		}
		fmt.Fprintln(out, "t1", a.ID)
		fmt.Fprintln(out, "t2", b.ID)
		for _, row := range c {
			fmt.Fprintln(out, "t3", row.ID)
		}
		fmt.Fprintln(out, "t4", e.ID)
		fmt.Fprintln(out, "t5", f.Key)
	}
	return out.Flush()
}

// start runs n processes at once and returns their lines.
func start(t *testing.T, d *testkit.Database, n, rows int) (lines []string) {
	task := childTask{Database: d, Rows: rows}
	var mu sync.Mutex
	processes := make([]*testkit.Process, n)
	for i := range processes {
		processes[i] = testkit.Start(t, createRows, task, func(line string) {
			mu.Lock()
			defer mu.Unlock()
			lines = append(lines, line)
		})
	}
	for _, p := range processes {
		if err := p.Wait(); err != nil {
			t.Error(err)
		}
	}
	return lines
}

// Twenty processes start at once on an empty database and create rows in five
// tables each: no two rows of any tables have one id, and each id leads to its
// table.
func TestProcesses_ManyProcesses(t *testing.T) {
	t.Parallel()
	const perTable = 20
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		processes := 20
		if d.Name == "sqlite" {
			processes = 4 // one writes at a time
		}
		db := d.Open(t, nil)
		// The tables themselves are there; the plugin's own are not.
		if err := db.AutoMigrate(&harness.T1{}, &harness.T2{}, &harness.T3{}, &harness.T4{}, &harness.T5{}); err != nil {
			t.Fatal(err)
		}
		lines := start(t, d, processes, perTable)
		if want := processes * perTable * 11; len(lines) != want {
			t.Fatalf("%d rows, want %d", len(lines), want)
		}

		p := harness.Use(t, db)
		table := map[int64]string{}
		for _, line := range lines {
			var name string
			var id int64
			if _, err := fmt.Sscan(line, &name, &id); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			if other, ok := table[id]; ok {
				t.Fatalf("id %d is in %s and in %s", id, other, name)
			}
			table[id] = name
		}
		of := map[int64]string{} // worker id -> table
		for _, n := range harness.Nodes(t, db) {
			of[n.WorkerID] = n.Table.Name
		}
		workers, located := map[int64]string{}, 0
		for id, name := range table {
			parts, err := p.Decode(uidplugin.ID(id))
			if err != nil || of[parts.WorkerID] != name {
				t.Fatalf("Decode(%d) = %+v, %v, a worker id of %q; want table %s", id, parts, err, of[parts.WorkerID], name)
			}
			workers[parts.WorkerID] = name
			if located++; located%20 != 0 { // each takes a round trip
				continue
			}
			where, err := p.Locate(context.Background(), uidplugin.ID(id))
			if err != nil || where.Table != name {
				t.Fatalf("Locate(%d) = %+v, %v; want table %s", id, where, err, name)
			}
		}
		if want := processes * 5; len(workers) != want {
			t.Errorf("%d worker ids, want %d", len(workers), want)
		}
		if n := len(harness.Slots(t, db)); n != processes {
			t.Errorf("%d slots, want one for each of %d processes", n, processes)
		}
	})
}

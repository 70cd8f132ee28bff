package integration_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// The five tables that every process writes.
type (
	T1 struct{ uidplugin.Model }
	T2 struct {
		ID int64 `gorm:"primaryKey;uid"`
	}
	T3 struct {
		ID uint64 `gorm:"primaryKey;uid"`
	}
	T4 struct {
		ID string `gorm:"primaryKey;uid;size:20"`
	}
	T5 struct {
		Key uidplugin.ID `gorm:"primaryKey;uid:default"`
	}
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
	p := uidplugin.New(quiet)
	if err := db.Use(p); err != nil {
		return err
	}
	out := bufio.NewWriter(os.Stdout)
	for range task.Rows {
		var (
			a T1
			b T2
			c = make([]T3, 7)
			e T4
			f T5
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
func start(t *testing.T, d *database, n, rows int) (lines []string) {
	task := childTask{Database: d.kit(), Rows: rows}
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
func TestManyProcesses(t *testing.T) {
	t.Parallel()
	const perTable = 20
	each(t, func(t *testing.T, d *database) {
		processes := 20
		if d.name == "sqlite" {
			processes = 4 // one writes at a time
		}
		db := open(t, d)
		// The tables themselves are there; the plugin's own are not.
		if err := db.AutoMigrate(&T1{}, &T2{}, &T3{}, &T4{}, &T5{}); err != nil {
			t.Fatal(err)
		}
		lines := start(t, d, processes, perTable)
		if want := processes * perTable * 11; len(lines) != want {
			t.Fatalf("%d rows, want %d", len(lines), want)
		}

		p := use(t, db)
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
		for _, n := range rows(t, db) {
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
		if n := len(slots(t, db)); n != processes+1 {
			t.Errorf("%d slots, want one for each of %d processes", n, processes+1)
		}
	})
}

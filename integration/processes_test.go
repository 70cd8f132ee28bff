package integration_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/uidplugin/uidplugin"
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

// childVariable makes the test binary a process that creates rows.
const childVariable = "UID_TEST_CHILD"

// childTask is what a child is to do.
type childTask struct {
	Engine, Env, Schema string
	Rows                int
}

// runChild does the task of a child process, if this is one: it registers the
// plugin, creates rows in all tables, and prints a line for each id.
func runChild() bool {
	text := os.Getenv(childVariable)
	if text == "" {
		return false
	}
	if err := child(text); err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		os.Exit(1)
	}
	return true
}

func child(text string) error {
	var task childTask
	if err := json.Unmarshal([]byte(text), &task); err != nil {
		return err
	}
	d := &database{engine: engine{name: task.Engine, env: task.Env}, schema: task.Schema}
	db, err := d.connect(nil)
	if err != nil {
		return err
	}
	p := uidplugin.New(quiet, uidplugin.WithSpares(0))
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
	task, err := json.Marshal(childTask{Engine: d.name, Env: d.env, Schema: d.schema, Rows: rows})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), childVariable+"="+string(task))
			cmd.Stderr = os.Stderr
			out, err := cmd.Output()
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Errorf("a process ended with %v", err)
			}
			for line := range strings.Lines(string(out)) {
				lines = append(lines, line)
			}
		})
	}
	wg.Wait()
	return lines
}

// Twenty processes start at once on an empty database and create rows in five
// tables each: no two rows of any tables have one id, and each id leads to its
// table.
func TestManyProcesses(t *testing.T) {
	t.Parallel()
	const rows = 20
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
		lines := start(t, d, processes, rows)
		if want := processes * rows * 11; len(lines) != want {
			t.Fatalf("%d rows, want %d", len(lines), want)
		}

		p := use(t, db, uidplugin.WithSpares(0))
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
		workers := map[int64]string{}
		for id, name := range table {
			where, err := p.Locate(context.Background(), id)
			if err != nil || where.Table != name {
				t.Fatalf("Locate(%d) = %+v, %v; want table %s", id, where, err, name)
			}
			workers[where.WorkerID] = where.Table
		}
		if want := processes * 5; len(workers) != want {
			t.Errorf("%d worker ids, want %d", len(workers), want)
		}
		nodes, err := p.Nodes(context.Background(), 0, 1000)
		if err != nil || len(nodes) != len(workers) {
			t.Errorf("%d worker nodes, %v; want %d", len(nodes), err, len(workers))
		}
	})
}

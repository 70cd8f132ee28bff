package integration_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// Many processes start at once, and again when the former ones have ended: all come up
// soon, and no slot has two holders.
func TestManyStartsAtOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		n := 40
		switch d.name {
		case "mariadb":
			n = 100
		case "sqlite":
			n = 8 // one writes at a time
		}
		c := newMovedClock(0)
		ledger := testkit.NewLedger(t)
		tables := []any{&T1{}, &T2{}, &T3{}, &T4{}, &T5{}}
		var fresh, taken int64
		for range 2 {
			plugins := make([]*uidplugin.Plugin, n)
			begin := time.Now()
			var longest time.Duration
			var mu sync.Mutex
			var group sync.WaitGroup
			for i := range plugins {
				group.Go(func() {
					db, err := d.connect(nil)
					if err != nil {
						t.Error(err)
						return
					}
					pool, _ := db.DB()
					pool.SetMaxOpenConns(1)
					t.Cleanup(func() { _ = pool.Close() })
					p := uidplugin.New(quiet, uidplugin.WithModels(tables...), uidplugin.WithClock(c.now),
						uidplugin.WithTimeout(30*time.Second))
					if err := db.Use(p); err != nil {
						t.Errorf("process %d, after %v: %v", i, time.Since(begin), err)
						return
					}
					mu.Lock()
					longest = max(longest, time.Since(begin))
					mu.Unlock()
					plugins[i] = p
				})
			}
			group.Wait()
			if t.Failed() {
				return
			}
			t.Logf("%d processes came up in %v", n, longest)
			if longest > 25*time.Second {
				t.Errorf("a start took %v", longest)
			}
			holder, slot := map[int64]int{}, map[int64]int{}
			fresh, taken = 0, 0
			for i, p := range plugins {
				s := p.Stats()
				for _, table := range s.Tables {
					if other, ok := holder[table.WorkerIDs[0]]; ok {
						t.Errorf("processes %d and %d have worker id %d", i, other, table.WorkerIDs[0])
					}
					holder[table.WorkerIDs[0]] = i
				}
				fresh, taken = fresh+s.Slot.Allocated, taken+s.Slot.Reclaimed
				if other, ok := slot[s.Slot.ID]; ok {
					t.Errorf("processes %d and %d have slot %d", i, other, s.Slot.ID)
				}
				slot[s.Slot.ID] = i
				for range 3 {
					id, err := nextID(p)
					must(t, err)
					ledger.Add("t1", id)
				}
			}
			if want := n * len(tables); len(holder) != want || fresh+taken != int64(n) {
				t.Errorf("%d worker ids, want %d; %d slots new, %d reclaimed", len(holder), want, fresh, taken)
			}
			for _, p := range plugins {
				must(t, p.Close(context.Background()))
			}
			c.move(time.Hour + time.Minute)
		}
		// Those who find that others were faster take new ones.
		t.Logf("the second time %d slots were new, %d reclaimed", fresh, taken)
		if taken == 0 {
			t.Error("the second time no slot was reclaimed")
		}
	})
}

// The models of a thousand tables.
type (
	digit interface{ digit() int }
	d0    struct{}
	d1    struct{}
	d2    struct{}
	d3    struct{}
	d4    struct{}
	d5    struct{}
	d6    struct{}
	d7    struct{}
	d8    struct{}
	d9    struct{}

	// Numbered is the model of the table n_ABC.
	Numbered[A, B, C digit] struct {
		ID int64 `gorm:"primaryKey;autoIncrement:false;uid"`
	}
)

func (d0) digit() int { return 0 }
func (d1) digit() int { return 1 }
func (d2) digit() int { return 2 }
func (d3) digit() int { return 3 }
func (d4) digit() int { return 4 }
func (d5) digit() int { return 5 }
func (d6) digit() int { return 6 }
func (d7) digit() int { return 7 }
func (d8) digit() int { return 8 }
func (d9) digit() int { return 9 }

// TableName implements [schema.Tabler].
func (Numbered[A, B, C]) TableName() string {
	var a A
	var b B
	var c C
	return fmt.Sprintf("n_%d%d%d", a.digit(), b.digit(), c.digit())
}

func ten[A, B digit]() []any {
	return []any{
		&Numbered[A, B, d0]{}, &Numbered[A, B, d1]{}, &Numbered[A, B, d2]{}, &Numbered[A, B, d3]{}, &Numbered[A, B, d4]{},
		&Numbered[A, B, d5]{}, &Numbered[A, B, d6]{}, &Numbered[A, B, d7]{}, &Numbered[A, B, d8]{}, &Numbered[A, B, d9]{},
	}
}

func hundred[A digit]() (models []any) {
	for _, f := range []func() []any{ten[A, d0], ten[A, d1], ten[A, d2], ten[A, d3], ten[A, d4], ten[A, d5], ten[A, d6],
		ten[A, d7], ten[A, d8], ten[A, d9]} {
		models = append(models, f()...)
	}
	return models
}

func thousand() (models []any) {
	for _, f := range []func() []any{hundred[d0], hundred[d1], hundred[d2], hundred[d3], hundred[d4], hundred[d5],
		hundred[d6], hundred[d7], hundred[d8], hundred[d9]} {
		models = append(models, f()...)
	}
	return models
}

// A restart takes the worker ids of all its tables over with its slot. How many statements about the slot come before
// the first id does not depend on the number of tables.
func TestRestart_FewStatementsForManyTables(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		c := newMovedClock(0)
		for _, tables := range []int{10, 200} {
			d := fresh(t, d.engine)
			for round := range 2 {
				db, tap := tapped(t, d)
				var mu sync.Mutex
				var sent []string
				tap.meet(func(query string, run func() error) error {
					if about := strings.NewReplacer("`", "", `"`, "").Replace(query); aboutSlots.MatchString(about) {
						mu.Lock()
						sent = append(sent, about)
						mu.Unlock()
					}
					return run()
				})
				p := uidplugin.New(quiet, uidplugin.WithModels(thousand()[:tables]...), uidplugin.WithClock(c.now))
				must(t, db.Use(p))
				_, err := p.NextID(t.Context(), &Numbered[d0, d0, d0]{})
				must(t, err)
				mu.Lock()
				n, list := len(sent), strings.Join(sent, "\n")
				mu.Unlock()
				if round == 1 && (n > 8 || p.Stats().Slot.Reclaimed != 1) {
					t.Errorf("%d tables: %d statements before the first id, want 8 at most:\n%s", tables, n, list)
				}
				must(t, p.Close(t.Context()))
				c.move(2 * time.Hour)
			}
		}
	})
}

// Statements about slots, and what is around them. Tables are created and the registry is read before.
var aboutSlots = regexp.MustCompile(`^(BEGIN|COMMIT|ROLLBACK)|^(SELECT|UPDATE|INSERT) .*(WORKER_SLOT|WORKER_SESSION|FROM WORKER_NODE WHERE SLOT|SELECT FLOOR_TICK|INTO WORKER_NODE)`)

// A start with a thousand models takes about as many statements as one with ten, for new worker ids and for those of a
// former process.
func TestAThousandModels(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		models := thousand()
		start := func(n int, c *movedClock, d *database) int64 {
			db, tap := tapped(t, d)
			p := uidplugin.New(quiet, uidplugin.WithModels(models[:n]...), uidplugin.WithClock(c.now))
			must(t, db.Use(p))
			sent := tap.n.Load()
			if got := len(p.Stats().Tables); got != n {
				t.Errorf("%d tables, want %d", got, n)
			}
			must(t, p.Close(t.Context()))
			c.move(2 * time.Hour)
			return sent
		}
		few, many, c := fresh(t, d.engine), d, newMovedClock(0)
		for _, what := range []string{"new", "reclaimed"} {
			n := 1000
			if d.name == "sqlite" {
				n = 200 // the race detector makes it slow
			}
			a, b := start(10, c, few), start(n, c, many)
			// An INSERT has room for some hundred worker ids.
			if most := a + 1 + int64(n/100); b > most || what == "reclaimed" && b > a+1 {
				t.Errorf("%s: %d statements for %d models, %d for 10", what, b, n, a)
			}
		}
	})
}

// Every process needs the registry's row to get a slot or worker ids. One whose machine vanishes in the middle of that
// once left the row locked until the server gave its connection up, and no other process could start.
func TestStart_WhileAnotherProcessHangsAnywhere(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		must(t, closeOf(use(t, open(t, d), uidplugin.WithModels(&T2{}), uidplugin.WithDisposable()))) // creates the tables
		n := 1
		for ; hangsAt(t, d, n); n++ {
		}
		if n < 12 {
			t.Errorf("a start took %d statements", n-1)
		}
	}, "mariadb", "mysql", "postgres")
}

// hangsAt starts a process that hangs after its nth statement, and another one. It reports whether there were so many.
func hangsAt(t *testing.T, d *database, n int) bool {
	t.Helper()
	models := uidplugin.WithModels(&T1{}, &T2{})
	db, tap := tapped(t, d)
	var sent atomic.Int64
	hangs, goOn := make(chan struct{}), make(chan struct{})
	tap.meet(func(_ string, run func() error) error {
		err := run()
		if sent.Add(1) == int64(n) {
			close(hangs)
			<-goOn
		}
		return err
	})
	p, used := uidplugin.New(quiet, models), make(chan error, 1)
	go func() { used <- db.Use(p) }()
	reached := false
	select {
	case err := <-used:
		must(t, err)
		used <- nil
	case <-hangs:
		reached = true
		begin := time.Now()
		other := uidplugin.New(quiet, models)
		if err := open(t, d).Use(other); err != nil {
			t.Errorf("statement %d hangs: %v", n, err)
		} else if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("statement %d hangs, and another process started after %v", n, took)
		}
		must(t, closeOf(other))
	}
	tap.meet(nil)
	close(goOn)
	<-used
	must(t, closeOf(p))
	return reached
}

// A transaction of the lease manager had 2 s for all of its answers. A process whose database is far away never got
// a slot.
func TestStart_WithASlowDatabase(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		must(t, closeOf(use(t, open(t, d)))) // creates the tables
		db, tap := tapped(t, d)
		tap.meet(func(_ string, run func() error) error {
			time.Sleep(300 * time.Millisecond)
			return run()
		})
		p := use(t, db, uidplugin.WithModels(&T1{}))
		for range 3 {
			_, err := p.NextID(t.Context(), &T1{})
			must(t, err)
		}
		tap.meet(nil)
	}, "mariadb", "postgres")
}

package integration_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
)

// Many processes start at once, and again when the former ones have ended: all come up
// soon, and no worker id has two holders.
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
		var all used
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
					p := uidplugin.New(quiet, uidplugin.WithModels(tables...), uidplugin.WithClock(c.now), uidplugin.WithSpares(0), uidplugin.WithTimeout(30*time.Second))
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
			holder := map[int64]int{}
			fresh, taken = 0, 0
			for i, p := range plugins {
				s := p.Stats()
				for _, table := range s.Tables {
					if other, ok := holder[table.WorkerIDs[0]]; ok {
						t.Errorf("processes %d and %d have worker id %d", i, other, table.WorkerIDs[0])
					}
					holder[table.WorkerIDs[0]] = i
				}
				fresh, taken = fresh+s.Leases.Fresh, taken+s.Leases.Taken
				for range 3 {
					id, err := nextID(p)
					must(t, err)
					all.add(t, id, fmt.Sprint("process ", i))
				}
			}
			if want := n * len(tables); len(holder) != want || fresh+taken != int64(want) {
				t.Errorf("%d worker ids, %d new and %d taken over; want %d", len(holder), fresh, taken, want)
			}
			for _, p := range plugins {
				must(t, p.Close(context.Background()))
			}
			c.move(time.Hour + time.Minute)
		}
		// Those who find that others were faster take new ones.
		t.Logf("the second time %d worker ids were new, %d taken over", fresh, taken)
		if taken == 0 {
			t.Errorf("the second time no worker id was taken over")
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
	for _, f := range []func() []any{ten[A, d0], ten[A, d1], ten[A, d2], ten[A, d3], ten[A, d4], ten[A, d5], ten[A, d6], ten[A, d7], ten[A, d8], ten[A, d9]} {
		models = append(models, f()...)
	}
	return models
}

func thousand() (models []any) {
	for _, f := range []func() []any{hundred[d0], hundred[d1], hundred[d2], hundred[d3], hundred[d4], hundred[d5], hundred[d6], hundred[d7], hundred[d8], hundred[d9]} {
		models = append(models, f()...)
	}
	return models
}

// A start with a thousand models takes as many statements as one with ten, be it for new
// worker ids as well as for those of a former process.
func TestAThousandModels(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		models := thousand()
		start := func(n int, c *movedClock, d *database) int64 {
			db, v := valved(t, d)
			p := uidplugin.New(quiet, uidplugin.WithModels(models[:n]...), uidplugin.WithClock(c.now))
			must(t, db.Use(p))
			sent := v.n.Load()
			if got := len(p.Stats().Tables); got != n {
				t.Errorf("%d tables, want %d", got, n)
			}
			must(t, p.Close(t.Context()))
			c.move(2 * time.Hour)
			return sent
		}
		few, many, c := fresh(t, d.engine), d, newMovedClock(0)
		for _, what := range []string{"new", "taken over"} {
			n := 1000
			if d.name == "sqlite" {
				n = 200 // the race detector makes it slow
			}
			a, b := start(10, c, few), start(n, c, many)
			if b > a+2 {
				t.Errorf("%s: %d statements for %d models, %d for 10", what, b, n, a)
			}
		}
	})
}

package paths_test

import (
	"sync"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// Event says when it was made, next to its key.
type Event struct {
	ID   int64 `gorm:"primaryKey;autoIncrement:false;uid"`
	Made int64 // in milliseconds
}

// Several processes create rows, and some borrow time. A search by the time in the keys finds exactly the rows with
// that time. If the span is extended by the time that ids may be ahead according to the documentation, it finds all
// rows that were created in it.
func TestCreatedBetween_OfSeveralProcesses(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		p := harness.Use(t, db, uidplugin.WithModels(&Event{}))
		testkit.Must(t, db.AutoMigrate(&Event{}))
		begin := time.Now().Truncate(time.Millisecond) // the start of a tick
		var group sync.WaitGroup
		for i := range 3 {
			other := d.Open(t, nil)
			options := []uidplugin.Option{uidplugin.WithModels(&Event{})}
			if i == 0 { // lanes would keep its ids close to the clock
				options = append(options, uidplugin.WithDisposable())
			}
			q := harness.Use(t, other, options...)
			group.Go(func() {
				for round := range 6 {
					if i == 0 { // burns ids, so that those of its rows are of ticks to come
						for range 80_000 {
							id, err := q.NextID(t.Context(), &Event{})
							if err != nil {
								t.Error(err)
								return
							}
							if l, err := q.Decode(id); err != nil || l.Time.After(time.Now().Add(1500*time.Millisecond)) {
								break
							}
						}
					}
					events := make([]Event, 20)
					for k := range events {
						events[k].Made = time.Now().UnixMilli()
					}
					if err := other.Create(&events).Error; err != nil {
						t.Errorf("round %d: %v", round, err)
						return
					}
					time.Sleep(300 * time.Millisecond)
				}
			})
		}
		group.Wait()
		var all []Event
		testkit.Must(t, db.Find(&all).Error)
		if len(all) != 3*6*20 {
			t.Fatalf("%d rows", len(all))
		}
		ahead := 0
		for _, e := range all {
			if l, err := p.Decode(uidplugin.ID(e.ID)); err != nil || l.Time.UnixMilli() > e.Made+1000 {
				ahead++
			}
		}
		if ahead == 0 {
			t.Error("no id is ahead of its time: nothing is tested")
		}
		const most = 21 * time.Second // what a lease is ahead, and the tick
		for from := begin.Add(-2 * time.Second); from.Before(begin.Add(5 * time.Second)); from = from.Add(700 * time.Millisecond) {
			to := from.Add(1500 * time.Millisecond)
			ended := to.Before(time.Now().Add(-2 * time.Second)) // otherwise it may have no upper bound
			var exact, wide []Event
			testkit.Must(t, db.Scopes(p.CreatedBetween(from, to)).Find(&exact).Error)
			testkit.Must(t, db.Scopes(p.CreatedBetween(from.Add(-time.Second), to.Add(most))).Find(&wide).Error)
			found := map[int64]bool{}
			for _, e := range exact {
				found[e.ID] = true
			}
			there := map[int64]bool{}
			for _, e := range wide {
				there[e.ID] = true
			}
			for _, e := range all {
				parts, err := p.Decode(uidplugin.ID(e.ID))
				testkit.Must(t, err)
				inSpan := !parts.Time.Before(from) && parts.Time.Before(to)
				if inSpan != found[e.ID] && (ended || inSpan) {
					t.Errorf("an id of %v: found %t from %v to %v", parts.Time, found[e.ID], from, to)
				}
				if made := time.UnixMilli(e.Made); !made.Before(from) && made.Before(to) && !there[e.ID] {
					t.Errorf("a row made at %v, whose id is of %v, is not found up to %v later", made, parts.Time, most)
				}
			}
		}
	})
}

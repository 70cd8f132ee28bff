package segment_test

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/segment"
)

// Several generators fetch ids of one tag from one file. Each has a pool of its own and several callers, which take
// single ids and batches, some larger than a range. No id is handed out twice, the ids of each caller ascend, and
// every fetched id was handed out or is left in a generator.
func TestHammer_HandsOutEachIDOnce(t *testing.T) {
	t.Parallel()

	const generators, callers, calls = 4, 4, 400
	path := file(t)
	handle(t, path) // makes the file
	ledger := testkit.NewLedger(t)
	var wg sync.WaitGroup
	var all []*segment.Generator
	for i := range generators {
		all = append(all, open(t, handle(t, path), segment.Config{Step: 50, MaxStep: 50 << (2 * i)}))
	}
	for _, g := range all {
		for range callers {
			wg.Go(func() {
				last := int64(0)
				for range calls {
					n := 1 + rand.IntN(10)
					if rand.IntN(50) == 0 {
						n = 500
					}
					ids := make([]int64, n)
					var err error
					if n == 1 {
						ids[0], err = g.Next(t.Context())
					} else {
						err = g.Fill(t.Context(), ids)
					}
					if err != nil {
						t.Error(err)
						return
					}
					ledger.Add(tag, ids...)
					for _, id := range ids {
						if id <= last {
							t.Errorf("id %d after %d", id, last)
						}
						last = id
					}
				}
			})
		}
	}
	wg.Wait()
	var left int64
	for _, g := range all {
		g.Close()
		left += g.State().Left
		if s := g.State(); s.Ranges < 10 {
			t.Errorf("%d ranges, want 10 at least: %+v", s.Ranges, s)
		}
	}
	maxID, _ := stored(t, handle(t, path))
	// Close may have ended a fetch whose range is then lost.
	if lost := maxID - 1 - int64(ledger.Len()) - left; lost < 0 || lost > 50*(1+4+16+64) {
		t.Errorf("max_id %d, %d ids handed out, %d left", maxID, ledger.Len(), left)
	}
}

// Many callers take ids from a range that is much too small, and the database is slow. They wait, and no call fails.
// Leaf would return an error here, because neither of its two segments is ready.
func TestGeneratorNext_WaitsForTheNextRange(t *testing.T) {
	t.Parallel()

	db, wire := wired(t)
	g := open(t, db, segment.Config{Step: 10, MaxStep: 10})
	wire.Set(func(c *testkit.Crossing) error {
		time.Sleep(5 * time.Millisecond) // a round trip to a database in another town
		return c.Run()
	})
	ledger := testkit.NewLedger(t)
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for range 10 {
				id, err := g.Next(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				ledger.Add(tag, id)
			}
		})
	}
	wg.Wait()
	if ledger.Len() != 640 {
		t.Errorf("%d ids, want 640", ledger.Len())
	}
}

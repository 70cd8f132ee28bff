package segment_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/segment"
)

// use takes ids until the next range is due, so that it is fetched.
func use(t *testing.T, g *segment.Generator) segment.State {
	t.Helper()
	s := g.State()
	for next(t, g) != s.First+(s.Last-s.First+1)/10 {
	}
	synctest.Wait()
	if after := g.State(); after.Ranges != s.Ranges+1 {
		t.Fatalf("range %d was not fetched: %+v", s.Ranges+1, after)
	}
	return g.State()
}

// The size of a range depends on how long the range before has lasted, by Leaf's rule.
func TestGeneratorStep_FollowsUse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := testkit.NewClock(time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC))
		db := handle(t, file(t))
		leaf(t, db, 1, 100)
		g := open(t, db, segment.Config{Now: c.Now, MaxStep: 1000})
		synctest.Wait()
		if s := g.State(); s.Step != 100 || s.MinStep != 100 {
			t.Fatalf("%+v", s)
		}
		for i, tt := range []struct {
			after time.Duration
			want  int64
		}{
			{10 * time.Hour, 100}, // how long the first one lasts is not known yet
			{0, 200},
			{15*time.Minute - 1, 400},
			{15 * time.Minute, 400},
			{30*time.Minute - 1, 400},
			{time.Second, 800},
			{time.Second, 1000}, // not beyond MaxStep
			{time.Second, 1000},
			{-time.Hour, 1000}, // the clock was set back
			{30 * time.Minute, 500},
			{time.Hour, 250},
			{time.Hour, 125},
			{100 * time.Hour, 100}, // not below the step of the row
			{time.Hour, 100},
		} {
			c.Add(tt.after)
			if s := use(t, g); s.Step != tt.want || s.Last-s.First+1 != tt.want || s.MinStep != 100 {
				t.Fatalf("line %d, after %v: %+v, want a step of %d", i, tt.after, s, tt.want)
			}
		}
		if _, step := stored(t, db); step != 100 {
			t.Errorf("the step of the row is %d", step)
		}
	})
}

// A step that an operator writes into the row is used from the next fetch on, whether it is larger or smaller. Ranges
// grow from there.
func TestGeneratorStep_FollowsTheOperator(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db := handle(t, file(t))
		g := open(t, db, segment.Config{Step: 100, MaxStep: 4000})
		synctest.Wait()
		for range 4 {
			use(t, g)
		}
		if s := g.State(); s.Step != 800 {
			t.Fatalf("%+v", s)
		}
		for _, tt := range []struct{ step, want int64 }{{50, 50}, {50, 100}, {3000, 3000}, {3000, 4000}, {5000, 5000}, {5000, 5000}, {10, 10}, {10, 20}} {
			run(t, db, "UPDATE leaf_alloc SET step = ?", tt.step)
			if s := use(t, g); s.Step != tt.want || s.MinStep != tt.step {
				t.Fatalf("after the step was set to %d: %+v, want %d", tt.step, s, tt.want)
			}
		}
	})
}

// At the end of the 63 bits the last ids are handed out, and then there is an error.
func TestGeneratorNext_HandsOutTheLastIDs(t *testing.T) {
	t.Parallel()

	db := handle(t, file(t))
	leaf(t, db, math.MaxInt64-25, 10)
	g := open(t, db, segment.Config{MaxStep: 1})
	for want := int64(math.MaxInt64 - 25); want < math.MaxInt64; want++ {
		gapless(t, want, next(t, g))
	}
	for range 2 {
		fails(t, g, segment.ErrExhausted)
	}
	if maxID, _ := stored(t, db); maxID != math.MaxInt64 {
		t.Errorf("max_id %d", maxID)
	}
	g.Close()
	_, err := segment.Open(t.Context(), db, tag, segment.Config{Start: 7, Log: quiet})
	testkit.IsError(t, err, segment.ErrExhausted)
}

// A row with invalid values is reported, and ids continue once it is repaired.
func TestGeneratorNext_TellsOfSpoiltRows(t *testing.T) {
	t.Parallel()

	db := handle(t, file(t))
	g := open(t, db, segment.Config{Step: 10, MaxStep: 1})
	for _, tt := range []struct{ spoil, fix, says string }{
		{"DELETE FROM leaf_alloc", "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('orders', 1000, 10)", "was deleted"},
		{"UPDATE leaf_alloc SET step = 0", "UPDATE leaf_alloc SET step = 10", "step"},
		{"UPDATE leaf_alloc SET step = -5", "UPDATE leaf_alloc SET step = 10", "step"},
	} {
		run(t, db, tt.spoil)
		var last int64
		for {
			id, err := g.Next(t.Context())
			if err != nil {
				testkit.IsError(t, err, segment.ErrRow, tt.says)
				break
			}
			last = id
		}
		run(t, db, tt.fix)
		eventually(t, "id after "+tt.fix, func() bool {
			id, err := g.Next(t.Context())
			return err == nil && id > last
		})
	}
}

// max_id goes back, as after the restore of a backup. The process continues above its own ids, raises max_id, and
// logs it once.
func TestGenerator_GoesOnAboveItsIDsWhenMaxIDWentBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		log := &testkit.Log{}
		db := handle(t, file(t))
		g := open(t, db, segment.Config{Step: 10, MaxStep: 1, Log: log.Logger()})
		last := fill(t, g, 100)[99]
		synctest.Wait()
		run(t, db, "UPDATE leaf_alloc SET max_id = 5")
		last = above(t, last, fill(t, g, 100)...)
		synctest.Wait()
		if maxID, _ := stored(t, db); maxID <= last {
			t.Errorf("max_id is %d, after %d", maxID, last)
		}
		log.SaysOnce(t, "went back")
	})
}

package segment_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/segment"
)

// Ids ascend without a gap over many ranges. After Close there are none, and the next process continues above.
func TestGenerator_IDsBeginAtStartAndAscend(t *testing.T) {
	t.Parallel()

	log := &testkit.Log{}
	db := handle(t, file(t))
	g := open(t, db, segment.Config{Start: 5001, Step: 10, MaxStep: 10, Description: "what is ordered", Log: log.Logger()})
	log.SaysOnce(t, "tag inserted")
	for want := int64(5001); want < 5100; want++ {
		gapless(t, want, next(t, g))
	}
	gapless(t, 5100, fill(t, g, 1000)...) // over several ranges
	var description string
	must(t, db.Raw("SELECT description FROM leaf_alloc").Row().Scan(&description))
	if description != "what is ordered" {
		t.Error(description)
	}
	g.Close()
	g.Close()
	fails(t, g, generator.ErrClosed)
	testkit.IsError(t, g.Fill(t.Context(), make([]int64, 3)), generator.ErrClosed)
	// The next process leaves a hole.
	last := g.State().Last
	gapless(t, last+1, next(t, open(t, db, segment.Config{})))
}

// If Leaf has made the row, its step is used and not the configured one. The ids are those that Leaf would hand out,
// from max_id on.
func TestGenerator_RespectsLeafsRow(t *testing.T) {
	t.Parallel()

	db := handle(t, file(t))
	leaf(t, db, 7001, 25)
	g := open(t, db, segment.Config{Step: 3, MaxStep: 25, Start: 10, Description: "not written"})
	if id := next(t, g); id != 7001 {
		t.Errorf("the first id is %d", id)
	}
	eventually(t, "first range", func() bool { return g.State().Ranges == 1 })
	if maxID, step := stored(t, db); maxID != 7026 || step != 25 {
		t.Errorf("max_id %d, step %d", maxID, step)
	}
	fill(t, g, 2)
	eventually(t, "second range", func() bool { return g.State().Ranges == 2 })
	want := segment.State{Tag: tag, Left: 47, First: 7026, Last: 7050, Step: 25, MinStep: 25, Ranges: 2}
	eventually(t, "state", func() bool { return g.State() == want })
	var description string
	must(t, db.Raw("SELECT description FROM leaf_alloc").Row().Scan(&description))
	if description != "Test leaf Segment Mode Get Id" {
		t.Error(description)
	}
}

// A row whose max_id is below Start, zero or negative is lifted: 0 is no id to GORM. The log has no warning, because the
// column is empty.
func TestOpen_LiftsRowsBelowStart(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct{ maxID, start, want int64 }{
		{0, 0, 1}, {-500, 0, 1}, {1, 0, 1}, {1, 42, 42}, {41, 42, 42}, {43, 42, 43},
	} {
		db := handle(t, file(t))
		leaf(t, db, tt.maxID, 10)
		log := &testkit.Log{}
		g := open(t, db, segment.Config{Start: tt.start, Log: log.Logger()})
		if id := next(t, g); id != tt.want || len(log.Lines("another program")) > 0 {
			t.Errorf("%+v: the first id is %d, logged\n%s", tt, id, log)
		}
		g.Close()
		if maxID, _ := stored(t, db); maxID < tt.want+10 {
			t.Errorf("%+v: max_id is %d", tt, maxID)
		}
	}
}

// The next range is fetched when a tenth of the present one is used up, and not before, however large ranges have
// become.
func TestGenerator_FetchesTheNextRangeAtATenth(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db := handle(t, file(t))
		g := open(t, db, segment.Config{Step: 100, MaxStep: 1600})
		synctest.Wait()
		size := []int64{100, 100, 200, 400, 800, 1600, 1600, 1600}
		for i, n := range size {
			if s := g.State(); s.Ranges != int64(i+1) || s.Last-s.First+1 != n {
				t.Fatalf("before range %d: %+v", i+1, s)
			}
			first := g.State().First
			for next(t, g) != first+n/10-1 {
			}
			synctest.Wait()
			if s := g.State(); s.Ranges != int64(i+1) {
				t.Fatalf("one id before a tenth of range %d: %+v", i+1, s)
			}
			next(t, g)
			synctest.Wait()
			if s := g.State(); s.Ranges != int64(i+2) {
				t.Fatalf("at a tenth of range %d: %+v", i+1, s)
			}
		}
	})
}

// A step of 1 works, and so does a batch that needs hundreds of ranges.
func TestGeneratorFill_WorksWithTheSmallestStep(t *testing.T) {
	t.Parallel()

	g := open(t, handle(t, file(t)), segment.Config{Step: 1, MaxStep: 1})
	gapless(t, 1, fill(t, g, 300)...)
}

// An id from memory must cost no memory, or a busy application pays for it in garbage collections.
func TestGeneratorNext_DoesNotAllocate(t *testing.T) {
	testkit.SkipWithRace(t) // the race detector allocates
	g := open(t, handle(t, file(t)), segment.Config{Step: 1_000_000})
	ids, ctx := make([]int64, 100), t.Context()
	next(t, g)
	fill(t, g, 200_000)
	eventually(t, "second range", func() bool { return g.State().Ranges == 2 })
	for name, f := range map[string]func() error{
		"Next": func() error { _, err := g.Next(ctx); return err },
		"Fill": func() error { return g.Fill(ctx, ids) },
	} {
		if n := testing.AllocsPerRun(1000, func() { must(t, f()) }); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}

// Formerly a caller without a deadline waited as long as a driver that does not answer.
func TestGeneratorNext_GivesUpAfterMaxWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g, _, wire := begun(t, segment.Config{Step: 1, MaxStep: 1, MaxWait: 3 * time.Second})
		hang := func() (answer func()) {
			answered := make(chan struct{})
			wire.Set(func(*testkit.Crossing) error {
				<-answered
				return testkit.SQLiteCode(5) // an error that passes
			})
			return func() { close(answered) }
		}
		answer := hang()
		next(t, g) // of the second range; the third hangs
		late := func(ctx context.Context, waits time.Duration, says string) {
			t.Helper()
			begin := time.Now()
			err := g.Fill(ctx, make([]int64, 1))
			if took := time.Since(begin); err == nil || took != waits || !strings.Contains(err.Error(), says) {
				t.Fatalf("after %v, want %v: %v, want %q", took, waits, err, says)
			}
			if _, ok := ctx.Deadline(); errors.Is(err, generator.ErrSource) == ok || errors.Is(err, context.DeadlineExceeded) != (ok || says == "has not answered") {
				t.Errorf("%v", err)
			}
		}
		cancelable, cancel := context.WithCancel(context.Background())
		defer cancel()
		late(context.Background(), 3*time.Second, "has not answered")
		late(cancelable, 3*time.Second, "has not answered")
		other, cancelOther := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancelOther()
		late(other, 5*time.Second, "deadline")

		// The reason of an attempt that failed is told while the next one hangs.
		first := answer
		answer = hang()
		first()
		synctest.Wait()
		time.Sleep(time.Second)
		late(context.Background(), 3*time.Second, "constraint failed: 5")
		third, cancelThird := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancelThird()
		late(third, 5*time.Second, "constraint failed: 5")

		wire.Set(nil)
		answer()
		eventually(t, "id", func() bool { _, err := g.Next(t.Context()); return err == nil })
	})
}

// Formerly nobody noticed a failed fetch until the ids were used up, and on an idle table it was not sent again.
func TestGeneratorHealth_TellsOfFetchesThatFail(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db, wire := wired(t)
		g := open(t, db, segment.Config{Step: 100, MaxStep: 1})
		fill(t, g, 5)
		must(t, g.Health())
		time.Sleep(time.Hour)
		refused, since := errors.New("connection refused"), time.Now()
		wire.Set(func(*testkit.Crossing) error { return refused })
		fill(t, g, 10)
		synctest.Wait()
		for range 3 {
			testkit.IsError(t, g.Health(), refused, `"orders"`, "leaf_alloc", since.UTC().Format(time.DateTime), "85 are left")
			if s := g.State(); !s.FailingSince.Equal(since) {
				t.Errorf("%+v", s)
			}
			time.Sleep(time.Minute)
		}
		if failed := g.State().Failed; failed < 10 {
			t.Errorf("%d fetches in 3 minutes", failed)
		}
		wire.Set(nil)
		time.Sleep(10 * time.Second) // and no caller
		if err := g.Health(); err != nil || !g.State().FailingSince.IsZero() || g.State().Ranges != 2 {
			t.Errorf("after the database's return: %v, %+v", err, g.State())
		}
	})
}

// Step also applies to a row that exists with a smaller step, until somebody changes the step of the row.
func TestGeneratorStep_AppliesToARowWithASmallerOne(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ row, config, want int64 }{{10, 0, 10}, {10, 5, 10}, {10, 50, 50}} {
		db := handle(t, file(t))
		leaf(t, db, 7001, tt.row)
		g := open(t, db, segment.Config{Step: tt.config, MaxStep: 1})
		if s := g.State(); s.Step != tt.want || s.MinStep != tt.row || s.Last-s.First+1 != tt.want {
			t.Errorf("row %d, Step %d: %+v", tt.row, tt.config, s)
		}
		if maxID, step := stored(t, db); maxID != 7001+tt.want || step != tt.row {
			t.Errorf("row %d, Step %d: max_id %d and step %d in the row", tt.row, tt.config, maxID, step)
		}
		run(t, db, "UPDATE leaf_alloc SET step = 7")
		fill(t, g, tt.want+1)
		eventually(t, "a range with the new step", func() bool { return g.State().Step == 7 })
	}
}

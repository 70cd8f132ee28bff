package supply

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// A process that had the worker id before may have stamped lead ahead of its clock, a part of a tick included.
func TestNewFixed_BeginsAfterWhatAProcessBeforeMayHaveStamped(t *testing.T) {
	t.Parallel()

	l := generator.DefaultLayout()
	tick := l.TickAt(instant)
	for _, tt := range []struct {
		into, lead time.Duration // into the tick, at the start
		from       int64         // in ticks from the present one
		wait       time.Duration
	}{
		{0, 0, 0, 0},
		{400 * time.Microsecond, 0, 0, 0},
		{0, 1, 2, time.Millisecond},
		{400 * time.Microsecond, time.Millisecond, 2, 600 * time.Microsecond},
		{0, time.Millisecond + 1, 3, time.Millisecond},
		{999999, time.Second, 1001, 1},
	} {
		start := instant.Add(tt.into)
		f := NewFixed(l, 7, tt.lead, func() time.Time { return start })
		if f.lease.From != tick+tt.from || f.begins.Sub(start) != tt.wait || f.lease.WorkerID != 7 {
			t.Errorf("%v into the tick, lead %v: from %d on, after %v", tt.into, tt.lead, f.lease.From-tick, f.begins.Sub(start))
		}
		if last := l.TickAt(start.Add(tt.lead)); tt.lead > 0 && f.lease.From <= last {
			t.Errorf("%v into the tick, lead %v: a process before may have stamped the tick %d", tt.into, tt.lead, last-tick)
		}
	}
}

func TestFixedWait_EndsWhenTheWorkerIDMayBeUsedOrWithItsContext(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		l := generator.DefaultLayout()
		l.Tick, l.Epoch = time.Minute, time.Now().Add(-90*time.Second)
		f := NewFixed(l, 7, time.Second, time.Now)
		ctx, cancel := context.WithTimeout(t.Context(), 29*time.Second)
		defer cancel()
		testkit.IsError(t, f.wait(ctx), context.DeadlineExceeded,
			"worker id 7 must not be used before 2000-01-01 00:00:30 UTC")
		testkit.Must(t, f.wait(t.Context()))
		if got := l.TickAt(time.Now()); got != 2 || time.Since(f.begins) != 0 {
			t.Errorf("in the tick %d, %v late", got, time.Since(f.begins))
		}
		before := time.Now()
		testkit.Must(t, f.wait(ctx)) // which has ended
		if time.Now() != before {
			t.Error("it waits again")
		}
	})
}

// Rows of an import with WithWorkerID sort after those of other processes for up to Lead; the log is the only sign of it.
func TestNoteFar_LogsOnceThatIDsRunFarAhead(t *testing.T) {
	t.Parallel()

	var log testkit.Log
	l := generator.DefaultLayout()
	s := New(Config{Layout: l, Now: func() time.Time { return instant }, Log: log.Logger()})
	defer s.Close(t.Context())
	s.openGate()
	now := l.TickAt(instant)
	for _, tt := range []struct {
		from  int64 // of the lease
		ahead []int64
		lines int
	}{
		{0, []int64{0, 200, 250}, 0},
		{1000, []int64{1000, 1250}, 0}, // the lease begins ahead
		{1000, []int64{1251}, 1},
		{0, []int64{251, 252, 300}, 2},
	} {
		note := s.noteFar(now + tt.from)
		for _, ahead := range tt.ahead {
			id, err := l.Compose(generator.Parts{WorkerID: 7, Time: l.TimeOf(now + ahead)})
			testkit.Must(t, err)
			note(id)
		}
		s.queue.Flush(t.Context(), time.Second)
		if n := len(log.Lines("run ahead of the clock")); n != tt.lines {
			t.Errorf("%+v: %d lines", tt, n)
		}
	}
}

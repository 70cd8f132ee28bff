package generator_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// with returns a layout with ticks of a second after a change.
func with(change func(l *generator.Layout)) generator.Layout {
	l := seconds(28, 22, 13)
	change(&l)
	return l
}

func widths(timeBits, workerBits, sequenceBits uint8) generator.Layout {
	return with(func(l *generator.Layout) {
		l.TimeBits, l.WorkerBits, l.SequenceBits = timeBits, workerBits, sequenceBits
	})
}

// An invalid layout is refused with its numbers, here and wherever ids are made or read; otherwise fields overlap.
func TestLayoutValidate_SaysWhatIsWrong(t *testing.T) {
	t.Parallel()

	long := func(bits uint8, tick time.Duration) generator.Layout {
		return generator.Layout{TimeBits: bits, WorkerBits: 1, SequenceBits: 1, Tick: tick, Epoch: date(2026, 1, 1)}
	}
	tests := []struct {
		name   string
		layout generator.Layout
		says   string // in the error; "" for a valid layout
	}{
		{"default", generator.DefaultLayout(), ""},
		{"all 63 bits", widths(21, 21, 21), ""},
		{"one bit each", widths(1, 1, 1), ""},
		{"zero", generator.Layout{}, "0/0/0"},
		{"no time", widths(0, 22, 13), "0/22/13"},
		{"no worker id", widths(28, 0, 13), "28/0/13"},
		{"no sequence", widths(28, 22, 0), "28/22/0"},
		{"64 bits", widths(28, 22, 14), "64 bits"},
		{"widths that overflow a byte", widths(255, 255, 255), "765 bits"},
		{"widths that are 1 modulo 256", widths(200, 50, 7), "257 bits"},

		{"no tick", with(func(l *generator.Layout) { l.Tick = 0 }), "0s"},
		{"tick of less than 1ms", with(func(l *generator.Layout) { l.Tick = time.Millisecond - 1 }), "999.999µs"},
		{"tick of 1ms", with(func(l *generator.Layout) { l.Tick = time.Millisecond }), ""},
		{"negative tick", with(func(l *generator.Layout) { l.Tick = -time.Second }), "-1s"},
		{"least tick", with(func(l *generator.Layout) { l.Tick = math.MinInt64 }), "-2562047h"},

		{"no epoch", with(func(l *generator.Layout) { l.Epoch = time.Time{} }), "no epoch"},
		{"no epoch, elsewhere", with(func(l *generator.Layout) { l.Epoch = time.Time{}.In(time.FixedZone("", 3600)) }), "no epoch"},
		{"epoch in year 1", with(func(l *generator.Layout) { l.Epoch = time.Time{}.Add(1) }), ""},
		{"epoch in 1969", with(func(l *generator.Layout) { l.Epoch = date(1969, 12, 31) }), ""},
		{"latest epoch", with(func(l *generator.Layout) { l.Epoch = time.Unix(1<<53, 0) }), ""},
		{"too late epoch", with(func(l *generator.Layout) { l.Epoch = time.Unix(1<<53+1, 0) }), "too far"},
		{"earliest epoch", with(func(l *generator.Layout) { l.Epoch = time.Unix(-1<<53, 0) }), ""},
		{"too early epoch", with(func(l *generator.Layout) { l.Epoch = time.Unix(-1<<53-1, 0) }), "too far"},

		// 2^53 seconds are the limit: 2^61 ticks of 3.9 ms are below, of 4 ms above.
		{"61 bits of 1ms", long(61, time.Millisecond), ""},
		{"61 bits of 3.9ms", long(61, 3900*time.Microsecond), ""},
		{"2^61 ticks of 4ms", long(61, 4*time.Millisecond), "2^61 ticks of 4ms"},
		{"53 bits of 1s", long(53, time.Second), ""},
		{"53 bits of 1s and 1ns", long(53, time.Second+1), "last longer"},
		{"54 bits of 1s", long(54, time.Second), "last longer"},
		{"61 bits of the longest tick", long(61, math.MaxInt64), "last longer"},
		{"20 bits of the longest tick", long(20, math.MaxInt64), "last longer"},
		{"19 bits of the longest tick", long(19, math.MaxInt64), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.layout.Validate()
			if tt.says == "" {
				testkit.Must(t, err)
				return
			}
			testkit.IsError(t, err, generator.ErrLayout, tt.says)
			// A caller that does not validate gets the same error where it matters.
			for what, other := range map[string]error{
				"Compose":   second(tt.layout.Compose(generator.Parts{Time: date(2026, 2, 1)})),
				"Decompose": second(tt.layout.Decompose(1)),
				"ValidAt":   tt.layout.ValidAt(date(2026, 2, 1)),
			} {
				if fmt.Sprint(other) != fmt.Sprint(err) {
					t.Errorf("%s of an invalid layout says %v, want %v", what, other, err)
				}
			}
			_ = tt.layout.Expires() // means nothing, but must not panic
		})
	}
}

func second[T any](_ T, err error) error { return err }

// One nanosecond before the epoch, or at the end, there is no tick to stamp.
func TestLayoutValidAt_IsNilFromTheEpochToTheEnd(t *testing.T) {
	t.Parallel()

	for name, l := range layouts {
		t.Run(name, func(t *testing.T) {
			for _, good := range []time.Time{l.Epoch, l.Epoch.Add(1), l.Expires().Add(-1)} {
				testkit.Must(t, l.ValidAt(good))
			}
			for _, bad := range []time.Time{{}, l.Epoch.Add(-1), l.Expires(), l.Expires().Add(1), date(-3000, 1, 1)} {
				testkit.IsError(t, l.ValidAt(bad), generator.ErrLayout)
			}
		})
	}
}

// Two layouts make the same ids if, and only if, their strings are the same.
func TestLayoutString_IsTheSameOnlyForTheSameIDs(t *testing.T) {
	t.Parallel()

	epoch := func(e time.Time) generator.Layout { return with(func(l *generator.Layout) { l.Epoch = e }) }
	tick := func(d time.Duration) generator.Layout { return with(func(l *generator.Layout) { l.Tick = d }) }
	for want, l := range map[string]generator.Layout{
		"1-28-13-22/1s@1767225600": widths(28, 13, 22), "1-22-28-13/1s@1767225600": widths(22, 28, 13),
		"61-1-1-1/1s@1767225600": widths(1, 1, 1), "1-28-22-13/1h0m0s@1767225600": tick(time.Hour),
		"1-28-22-13/1.000000001s@1767225600": tick(time.Second + 1),
		"1-28-22-13/1s@0":                    epoch(time.Unix(0, 0)), "1-28-22-13/1s@-1": epoch(time.Unix(-1, 0)),
		"1-28-22-13/1s@1.1002003": epoch(time.Unix(1, 100200300)), "1-28-22-13/1s@10.00000001": epoch(time.Unix(10, 10)),
		"1-28-22-13/1s@-0.5":   epoch(time.UnixMilli(-500)), // this was -1.5 once
		"1-28-22-13/1s@-1.999": epoch(time.UnixMilli(-1999)), "1-28-22-13/1s@-0.001": epoch(time.UnixMilli(-1)),
		"1-28-22-13/1s@1.5": epoch(time.Unix(1, 5e8).In(time.FixedZone("CST", 8*60*60))), // without the zone
	} {
		if got := l.String(); got != want {
			t.Errorf("String() = %q, want %q", got, want)
		}
	}
}

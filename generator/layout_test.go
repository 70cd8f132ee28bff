package generator_test

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/generator/foreign"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// layouts are the presets and the corners of what is allowed.
var layouts = map[string]generator.Layout{
	"default":       generator.DefaultLayout(),
	"snowflake":     generator.SnowflakeLayout(),
	"jssafe":        generator.JSSafeLayout(),
	"jssafe tables": generator.JSSafeTablesLayout(),
	"seconds":       seconds(28, 22, 13),

	"least":            {TimeBits: 1, WorkerBits: 1, SequenceBits: 1, Tick: time.Millisecond, Epoch: date(2026, 1, 1)},
	"longest time":     {TimeBits: 61, WorkerBits: 1, SequenceBits: 1, Tick: time.Millisecond, Epoch: date(2026, 1, 1)},
	"longest worker":   {TimeBits: 1, WorkerBits: 61, SequenceBits: 1, Tick: time.Hour, Epoch: date(2026, 1, 1)},
	"longest sequence": {TimeBits: 1, WorkerBits: 1, SequenceBits: 61, Tick: time.Hour, Epoch: date(2026, 1, 1)},

	"tick 10ms":    {TimeBits: 39, WorkerBits: 16, SequenceBits: 8, Tick: 10 * time.Millisecond, Epoch: date(2025, 1, 1)},
	"tick 7s":      {TimeBits: 30, WorkerBits: 10, SequenceBits: 20, Tick: 7 * time.Second, Epoch: date(2026, 1, 1)},
	"tick 1h":      {TimeBits: 20, WorkerBits: 3, SequenceBits: 40, Tick: time.Hour, Epoch: date(2026, 1, 1)},
	"tick 1.5ms":   {TimeBits: 40, WorkerBits: 10, SequenceBits: 10, Tick: 1500 * time.Microsecond, Epoch: date(2026, 1, 1)},
	"longest tick": {TimeBits: 19, WorkerBits: 10, SequenceBits: 10, Tick: math.MaxInt64, Epoch: date(2026, 1, 1)},

	"epoch in 1883":     {TimeBits: 34, WorkerBits: 10, SequenceBits: 10, Tick: time.Second, Epoch: date(1883, 11, 18)},
	"epoch in year 1":   {TimeBits: 38, WorkerBits: 10, SequenceBits: 10, Tick: time.Second, Epoch: time.Time{}.Add(1)},
	"epoch with ns":     {TimeBits: 41, WorkerBits: 10, SequenceBits: 12, Tick: time.Millisecond, Epoch: date(2026, 1, 1).Add(123456789)},
	"epoch before 1970": {TimeBits: 41, WorkerBits: 10, SequenceBits: 12, Tick: 7 * time.Millisecond, Epoch: time.Unix(-1, 999999999)},
}

// seconds is a layout with ticks of a second.
func seconds(timeBits, workerBits, sequenceBits uint8) generator.Layout {
	return generator.Layout{TimeBits: timeBits, WorkerBits: workerBits, SequenceBits: sequenceBits, Tick: time.Second, Epoch: date(2026, 1, 1)}
}

func date(year int, month time.Month, day int) time.Time {
	return time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
}

// instant returns the start of a tick, moved by ns. It computes with integers that cannot overflow.
func instant(l generator.Layout, tick, ns int64) time.Time {
	n := new(big.Int).Mul(big.NewInt(tick), big.NewInt(int64(l.Tick)))
	n.Add(n, big.NewInt(ns))
	n.Add(n, big.NewInt(int64(l.Epoch.Nanosecond())))
	seconds, rest := new(big.Int).DivMod(n, big.NewInt(1e9), new(big.Int))
	return time.Unix(seconds.Int64()+l.Epoch.Unix(), rest.Int64()).UTC()
}

// The last value of each field is composed, and one beyond is refused. JSSafe changes between 53 and 54 bits, because
// 2^53 is the first number with a neighbour that a float64 does not have.
func TestLayout_ComposesTheLastValueOfEachField(t *testing.T) {
	t.Parallel()

	for name, l := range layouts {
		lastTick, lastWorker, lastSequence := int64(1)<<l.TimeBits-1, int64(1)<<l.WorkerBits-1, int64(1)<<l.SequenceBits-1
		if l.MaxTick() != lastTick || l.MaxWorkerID() != lastWorker || l.MaxSequence() != lastSequence || !l.Expires().Equal(instant(l, lastTick+1, 0)) {
			t.Errorf("%s: maxima are %d, %d, %d; it expires %v", name, l.MaxTick(), l.MaxWorkerID(), l.MaxSequence(), l.Expires())
		}
		type parts = generator.Parts
		first, last := instant(l, 0, 0), instant(l, lastTick, 0)
		lastID := int64(1)<<(l.TimeBits+l.WorkerBits+l.SequenceBits) - 1
		for p, want := range map[parts]int64{
			{first, 0, 0}: 0, {first, 0, lastSequence}: lastSequence, {first, 1, 0}: lastSequence + 1,
			{instant(l, 1, 0), 0, 0}: int64(1) << (l.WorkerBits + l.SequenceBits), {last, lastWorker, lastSequence}: lastID,
		} {
			if id, err := l.Compose(p); id != want || err != nil {
				t.Errorf("%s: Compose(%v) = %d, %v; want %d", name, p, id, err, want)
			}
		}
		if l.MaxID() != lastID || l.JSSafe() != (lastID <= 9007199254740991) {
			t.Errorf("%s: MaxID() = %d, JSSafe() = %v", name, l.MaxID(), l.JSSafe())
		}
		// Parts of a tick are truncated, up to the last nanosecond.
		if id, err := l.Compose(parts{instant(l, lastTick, int64(l.Tick)-1), lastWorker, lastSequence}); id != lastID || err != nil {
			t.Errorf("%s: Compose at its end = %d, %v; want %d", name, id, err, lastID)
		}
		for _, p := range []parts{
			{instant(l, 0, -1), 0, 0}, {instant(l, lastTick+1, 0), 0, 0},
			{first, -1, 0}, {first, lastWorker + 1, 0}, {first, math.MinInt64, 0}, {first, math.MaxInt64, 0},
			{first, 0, -1}, {first, 0, lastSequence + 1}, {first, 0, math.MinInt64}, {first, 0, math.MaxInt64},
		} {
			if id, err := l.Compose(p); id != 0 || !errors.Is(err, generator.ErrLayout) {
				t.Errorf("%s: Compose(%v) = %d, %v; want 0 and ErrLayout", name, p, id, err)
			}
		}
	}
	if !seconds(51, 1, 1).JSSafe() || seconds(52, 1, 1).JSSafe() {
		t.Error("JSSafe does not change between 53 and 54 bits")
	}
}

// Ids of the default layout have 19 digits from the time in its comment on. So as text they sort like numbers.
func TestDefaultLayout_HasIDsOfNineteenDigits(t *testing.T) {
	t.Parallel()

	l := generator.DefaultLayout()
	since := time.Date(2025, 7, 22, 11, 22, 59, 102e6, time.UTC)
	first, _, err := l.Range(since, l.Expires())
	if err != nil || first < 1e18 || len(strconv.FormatInt(l.MaxID(), 10)) != 19 {
		t.Errorf("ids go from %d to %d, %v", first, l.MaxID(), err)
	}
	if first, _, err := l.Range(since.Add(-l.Tick), since); err != nil || first >= 1e18 {
		t.Errorf("the tick before begins with %d, %v", first, err)
	}
}

// TestLayout_PresetsNeverChange pins what can never change once ids exist.
func TestLayout_PresetsNeverChange(t *testing.T) {
	t.Parallel()

	tests := []struct {
		layout  generator.Layout
		text    string
		expires time.Time
		bits    int
	}{
		{generator.DefaultLayout(), "1-41-18-4/1ms@1514764800", time.Date(2087, 9, 7, 15, 47, 35, 552e6, time.UTC), 63},
		{generator.SnowflakeLayout(), "1-41-10-12/1ms@1288834974.657", time.Date(2080, 7, 10, 17, 30, 30, 209e6, time.UTC), 63},
		{generator.JSSafeTablesLayout(), "11-37-13-3/10ms@1514764800", time.Date(2061, 7, 21, 6, 52, 14, 720e6, time.UTC), 53},
		{foreign.UidGeneratorLayout(), "1-28-22-13/1s@1463673600", time.Date(2024, 11, 20, 13, 24, 16, 0, time.UTC), 63},
		{generator.JSSafeLayout(), "11-32-5-16/1s@1546300800", time.Date(2155, 2, 7, 6, 28, 16, 0, time.UTC), 53},
	}
	for _, tt := range tests {
		l := tt.layout
		testkit.Must(t, l.Validate())
		if l.String() != tt.text {
			t.Errorf("String() = %q, want %q", l.String(), tt.text)
		}
		if !l.Expires().Equal(tt.expires) || l.Expires().Location() != time.UTC {
			t.Errorf("%v expires %v, want %v", l, l.Expires(), tt.expires)
		}
		if want := int64(1)<<tt.bits - 1; l.MaxID() != want {
			t.Errorf("last id of %v is %d, want %d", l, l.MaxID(), want)
		}
	}
}

func ExampleLayout_Decompose() {
	layout := generator.DefaultLayout()

	parts, err := layout.Decompose(1_113_799_104_921_619_749)
	if err != nil {
		panic(err)
	}
	fmt.Println(parts.Time.Format(time.DateTime))
	fmt.Println(parts.WorkerID, parts.Sequence)
	// Output:
	// 2026-06-01 12:00:00
	// 1234 5
}

func ExampleLayout_String() {
	layout := generator.Layout{
		TimeBits: 41, WorkerBits: 10, SequenceBits: 12,
		Tick: time.Millisecond, Epoch: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	fmt.Println(layout)
	fmt.Println(generator.DefaultLayout())
	// Output:
	// 1-41-10-12/1ms@1767225600
	// 1-41-18-4/1ms@1514764800
}

// TickAt returns -1 for every instant before the epoch, and math.MaxInt64 for one beyond all layouts. Formerly the
// two were exchanged at the ends of Time, because the difference of seconds overflowed.
func TestLayoutTickAt_AtTheEndsOfTime(t *testing.T) {
	t.Parallel()

	l := generator.DefaultLayout()
	if past := time.Unix(math.MinInt64, 0); !past.Before(l.Epoch) || l.TickAt(past) != -1 {
		t.Errorf("TickAt in the year %d is %d, want -1", past.Year(), l.TickAt(past))
	}
	l.Epoch = time.Unix(-1<<53, 0)
	if future := time.Unix(math.MaxInt64-62135596800, 0); !future.After(l.Epoch) || l.TickAt(future) != math.MaxInt64 {
		t.Errorf("TickAt in the year %d is %d, want MaxInt64", future.Year(), l.TickAt(future))
	}
}

// An endless lease begins with the present tick, or with tick 0 if the clock is before the epoch.
func TestLayoutFullLease_GoesToTheLastTick(t *testing.T) {
	t.Parallel()

	l := ticks(time.Second, 4)
	for now, from := range map[time.Time]int64{
		l.Epoch.Add(-year): 0, l.Epoch: 0, l.Epoch.Add(time.Second - 1): 0, l.Epoch.Add(time.Second): 1,
		l.Expires().Add(-1): l.MaxTick(),
	} {
		if got, want := l.FullLease(5, now), (generator.Lease{WorkerID: 5, From: from, Until: l.MaxTick()}); got != want {
			t.Errorf("Endless at %v = %+v, want %+v", now, got, want)
		}
	}
}

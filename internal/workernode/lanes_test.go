package workernode

import (
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
)

// A rate that is guessed from too short or too long a time would give a table lanes that it does not need, and keep
// them permanently.
func TestLaneSampleRate_IsKnownOnlyFromASuitableTime(t *testing.T) {
	t.Parallel()

	at := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	first := laneSample{at: at, left: 1_000, until: 500, lanes: 2}
	for _, tt := range []struct {
		name  string
		next  laneSample
		want  float64
		known bool
	}{
		{"half used", laneSample{at.Add(100 * time.Millisecond), 500, 500, 2}, 5_000, true},
		{"renewed meanwhile", laneSample{at.Add(100 * time.Millisecond), 2_000, 550, 2}, 6_000, true}, // 50 ticks x 16 x 2 came
		{"none used", laneSample{at.Add(100 * time.Millisecond), 1_000, 500, 2}, 0, true},
		{"the clock made some expire, and others came", laneSample{at.Add(time.Second), 5_000, 500, 2}, 0, true},
		{"more lanes", laneSample{at.Add(100 * time.Millisecond), 500, 500, 4}, 0, false},
		{"too short", laneSample{at.Add(sampleInterval/2 - 1), 500, 500, 2}, 0, false},
		{"too long", laneSample{at.Add(staleSample + 1), 500, 500, 2}, 0, false},
	} {
		if got, known := first.rate(tt.next, 16); known != tt.known || got != tt.want {
			t.Errorf("%s: %v ids a second, %v", tt.name, got, known)
		}
	}
}

// A generator that is up with the clock is not in need, however few ids its lease still has.
func TestInNeed_ComparesWithWhatLiesAhead(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		name       string
		usage      generator.Usage
		until, now int64
		want       bool
	}{
		{"up with the clock", generator.Usage{Tick: 100, Left: 1, Lanes: 1}, 199, 100, false},
		{"half is used", generator.Usage{Tick: 150, Left: 800, Lanes: 1}, 199, 100, false},
		{"more than half is used", generator.Usage{Tick: 150, Left: 799, Lanes: 1}, 199, 100, true},
		{"the same with two lanes", generator.Usage{Tick: 150, Left: 1_599, Lanes: 2}, 199, 100, true},
		{"a caller waits for the lease", generator.Usage{Tick: 200, Left: 0, Lanes: 1, Waiting: true}, 199, 100, true},
		{"a caller waits at the borrowing limit", generator.Usage{Tick: 100, Left: 900, Lanes: 1, Waiting: true}, 199, 100, false},
		{"the lease is of the past, and nobody waits", generator.Usage{Tick: 90, Left: 5, Lanes: 1}, 99, 100, false},
		{"no lease", generator.Usage{}, 0, 100, false},
	} {
		if got := inNeed(tt.usage, tt.until, tt.now, 16); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

// The number of lanes is a power of two that never falls; anything else is refused by generators.
func TestWantedLanes_IsAPowerOfTwoThatNeverFalls(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		have, most int
		perSecond  float64
		sampled    time.Duration
		want       int
	}{
		{1, 16, 0, time.Second, 1},
		{1, 16, 16_000, time.Second, 2},
		{1, 16, 12_800, time.Second, 1},
		{1, 16, 100_000, time.Second, 8},
		{1, 16, 100_000, longSample - 1, 4}, // a short burst is no rate
		{1, 16, 1e9, time.Second, 16},
		{1, 2, 1e9, time.Second, 2},
		{1, 3, 1e9, time.Second, 2},
		{8, 16, 0, time.Second, 8},
		{8, 4, 1e9, time.Second, 8}, // the most was lowered
		{16, 16, 1e9, time.Second, 16},
	} {
		if got := wantedLanes(tt.have, tt.most, tt.perSecond, 16_000, tt.sampled); got != tt.want {
			t.Errorf("%+v: %d", tt, got)
		}
	}
}

// A layout with few worker ids must have some left for other tables and processes.
func TestMaxLanes_LeavesWorkerIDsForOthers(t *testing.T) {
	t.Parallel()

	for bits, want := range map[uint8]int{1: 1, 2: 1, 3: 1, 4: 2, 5: 4, 6: 8, 7: 16, 8: 16, 18: 16} {
		l := generator.DefaultLayout()
		if l.WorkerBits = bits; maxLanes(l) != want {
			t.Errorf("%d bits: %d lanes, want %d", bits, maxLanes(l), want)
		}
	}
}

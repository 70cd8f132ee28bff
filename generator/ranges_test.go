package generator_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// A range that is off by a tick at either end has rows of another time, or misses some.
func TestLayoutRange_HasTheTicksThatBeginInTheSpan(t *testing.T) {
	t.Parallel()

	l := seconds(28, 22, 13)
	second := func(s float64) time.Time { return l.Epoch.Add(time.Duration(s * float64(time.Second))) }
	end := l.Expires()
	tests := []struct {
		name        string
		from, to    time.Time
		first, last int64 // ticks
		why         string
	}{
		{"a second", second(5), second(6), 5, 5, ""},
		{"a day", date(2026, 1, 2), date(2026, 1, 3), 86400, 2*86400 - 1, ""},
		{"another zone", date(2026, 1, 2).In(time.FixedZone("", 3600)), date(2026, 1, 3), 86400, 2*86400 - 1, ""},
		{"begins within a tick", second(4.5), second(6), 5, 5, ""},
		{"ends within a tick", second(5), second(5.5), 5, 5, ""},
		{"ends one ns into a tick", second(5), second(6).Add(1), 5, 6, ""},
		{"an instant at the start of a tick", second(5), second(5).Add(1), 5, 5, ""},
		{"all", time.Time{}, date(9999, 1, 1), 0, 1<<28 - 1, ""},
		{"all, exactly", l.Epoch, end, 0, 1<<28 - 1, ""},
		{"from before the layout", date(1900, 1, 1), second(1), 0, 0, ""},
		{"until after the layout", end.Add(-time.Second), time.Unix(1<<60, 0), 1<<28 - 1, 1<<28 - 1, ""},
		{"until one ns into the layout", second(-1), second(0).Add(1), 0, 0, ""},

		{"empty", second(5), second(5), 0, 0, "the span is empty"},
		{"inverted", second(6), second(5), 0, 0, "the span is empty"},
		{"inverted within a tick", second(5.6), second(5.5), 0, 0, "the span is empty"},
		{"within a tick", second(5.5), second(5.6), 0, 0, "no tick"},
		{"the rest of a tick", second(5.5), second(6), 0, 0, "no tick"},
		{"before the layout", date(1900, 1, 1), second(-5), 0, 0, "begins at 2026-01-01"},
		{"until its beginning", date(1900, 1, 1), l.Epoch, 0, 0, "begins at 2026-01-01"},
		{"from its end", end, end.Add(time.Hour), 0, 0, "ends at 2034-07-04"},
		{"in its last tick", end.Add(-1), end, 0, 0, "ends at 2034-07-04"},
		{"long after it", time.Unix(1<<60, 0), time.Unix(1<<60, 1), 0, 0, "ends at 2034-07-04"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			first, last, err := l.Range(tt.from, tt.to)
			if tt.why != "" {
				if testkit.IsError(t, err, generator.ErrLayout, tt.why); first != 0 || last != 0 {
					t.Errorf("next to the error there are %d and %d", first, last)
				}
				return
			}
			if err != nil || first != tt.first<<35 || last != (tt.last+1)<<35-1 {
				t.Errorf("Range = %d, %d, %v; want ticks %d to %d", first, last, err, tt.first, tt.last)
			}
		})
	}
	_, _, err := (generator.Layout{}).Range(date(2026, 1, 1), date(2027, 1, 1))
	testkit.IsError(t, err, generator.ErrLayout)
}

// FuzzRange checks that an id is in the range exactly if its time is in the span.
func FuzzRange(f *testing.F) {
	seeds := [][2]int64{{0, 0}, {5e9, 1e9}, {-1, 2}, {1 << 62, 1 << 61}, {1<<63 - 1, 1}, {7, 0}, {7, -1}, {1 << 20, 1}}
	fuzzLayouts(f, seeds, func(t *testing.T, l generator.Layout, a, b int64) {
		from := l.TimeOf(a & l.MaxTick()).Add(time.Duration(b))
		to := from.Add(time.Duration(a ^ b))
		in := func(id int64) bool {
			p, err := l.Decompose(id)
			testkit.Must(t, err)
			return !p.Time.Before(from) && p.Time.Before(to)
		}

		first, last, err := l.Range(from, to)
		if err != nil {
			if in(0) || in(l.MaxID()) || in(a&l.MaxID()) || in(b&l.MaxID()) {
				t.Fatalf("no range from %v to %v of %v: %v", from, to, l, err)
			}
			return
		}
		if first > last || !in(first) || !in(last) || first > 0 && in(first-1) || last < l.MaxID() && in(last+1) {
			t.Fatalf("%d to %d from %v to %v of %v", first, last, from, to, l)
		}
		if id := a & l.MaxID(); in(id) != (id >= first && id <= last) {
			t.Fatalf("%d, of %d to %d from %v to %v of %v", id, first, last, from, to, l)
		}
		// Any other way of writing the smallest and the largest of them agrees.
		p, _ := l.Decompose(first)
		q, _ := l.Decompose(last)
		if p.WorkerID != 0 || p.Sequence != 0 || q.WorkerID != l.MaxWorkerID() || q.Sequence != l.MaxSequence() {
			t.Fatalf("from %v to %v", p, q)
		}
	})
}

// Ids that are not above the keys of a table collide with them some day: the error says from when on they do not.
func TestLayoutAbove_SaysFromWhenIDsAreAbove(t *testing.T) {
	t.Parallel()

	l := seconds(28, 22, 13)
	now := date(2026, 3, 1).Add(time.Millisecond) // tick 59 x 86,400
	today := int64(59*86400) << 35
	tests := []struct {
		name    string
		largest int64
		from    string // "" if they are above
	}{
		{"no row", 0, ""},
		{"negative keys", -1, ""},
		{"the smallest number", math.MinInt64, ""},
		{"AUTO_INCREMENT of an int", math.MaxInt32, ""},
		{"the last before this tick", today - 1, ""},
		{"the smallest of this tick", today, "2026-03-01 00:00:01 UTC"},
		{"within this tick", today + 12345, "2026-03-01 00:00:01 UTC"},
		{"the first of the next tick", today + 1<<35, "2026-03-01 00:00:02 UTC"},
		{"half of all ids", 1 << 62, "2030-04-03 10:42:09 UTC"},
		{"the last but one tick", l.MaxTick()<<35 - 1, "2034-07-04 21:24:15 UTC"},
		{"the last tick", l.MaxTick() << 35, "only ids above"},
		{"the largest number", math.MaxInt64, "only ids above"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := l.Above(tt.largest, now)
			if tt.from == "" {
				testkit.Must(t, err)
				return
			}
			testkit.IsError(t, err, generator.ErrLayout, tt.from)
		})
	}
	testkit.IsError(t, l.Above(0, l.Epoch), generator.ErrLayout)                                          // worker id 0 may make id 0
	testkit.IsError(t, generator.JSSafeLayout().Above(1<<53, now), generator.ErrLayout, "only ids above") // an id of more bits
	for _, never := range []time.Time{l.Epoch.Add(-1), l.Expires(), {}} {
		testkit.IsError(t, l.Above(-1, never), generator.ErrLayout)
	}
	testkit.IsError(t, (generator.Layout{}).Above(-1, now), generator.ErrLayout)
}

// FuzzAbove checks the answer against the smallest id that can be made.
func FuzzAbove(f *testing.F) {
	seeds := [][2]int64{{0, 0}, {1 << 62, 5}, {1<<63 - 1, 1<<63 - 1}, {-1, 1}}
	fuzzLayouts(f, seeds, func(t *testing.T, l generator.Layout, largest, at int64) {
		now := l.TimeOf(at & l.MaxTick())
		smallest, err := l.Compose(generator.Parts{Time: now})
		testkit.Must(t, err)
		if err := l.Above(largest, now); (err == nil) != (smallest > largest) {
			t.Fatalf("Above(%d, %v) = %v with %v; the smallest id is %d", largest, now, err, l, smallest)
		}
	})
}

func ExampleLayout_Range() {
	layout := generator.DefaultLayout()
	from := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

	first, last, err := layout.Range(from, from.AddDate(0, 0, 1))
	if err != nil {
		panic(err)
	}
	fmt.Printf("SELECT * FROM orders WHERE id BETWEEN %d AND %d\n", first, last)
	// Output:
	// SELECT * FROM orders WHERE id BETWEEN 1080278227353600000 AND 1080640615219199999
}

func ExampleLayout_Above() {
	largest := int64(3_200_169_789_968_523_265) // SELECT MAX(id)

	layout := generator.DefaultLayout()
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	fmt.Println(layout.Above(largest, now) == nil)

	layout = generator.Layout{TimeBits: 31, WorkerBits: 19, SequenceBits: 13, Tick: time.Second,
		Epoch: time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC)}
	fmt.Println(layout.Above(largest, now) == nil, layout.Expires().Year())
	// Output:
	// false
	// true 2058
}

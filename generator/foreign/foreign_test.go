package foreign_test

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/generator/foreign"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// A foreignID is an id that a system made, with parts that are known independently: from a publication, or from the
// system's own decoder.
type foreignID struct {
	system string
	id     int64
	want   generator.Parts
}

var foreignIDs = []foreignID{
	// This tweet is in Twitter's documentation, with "created_at": "Wed Oct 10 20:19:24 +0000 2018". Milliseconds and
	// worker are not known.
	{"Twitter snowflake, Leaf", 1050118621198921728, generator.Parts{Time: time.Date(2018, 10, 10, 20, 19, 24, 211e6, time.UTC), WorkerID: 347}},
	// The tweet in Wikipedia's article on snowflake ids, which takes it apart.
	{"Twitter snowflake, Leaf", 1541815603606036480, generator.Parts{Time: time.Date(2022, 6, 28, 16, 7, 40, 105e6, time.UTC), WorkerID: 378}},
	// The parts in the comment on decodeSnowflakeId in Leaf's LeafMonitorController:
	// 1567733700834, worker 39, sequence 3448; the id is theirs by Leaf's formula.
	{"Twitter snowflake, Leaf", (1567733700834-1288834974657)<<22 | 39<<12 | 3448, generator.Parts{Time: time.UnixMilli(1567733700834).UTC(), WorkerID: 39, Sequence: 3448}},
	// Of 23:26:39 in China, worker 21, sequence 1: in several articles on UidGenerator.
	{"UidGenerator", 3200169789968523265, generator.Parts{Time: time.Date(2019, 5, 2, 15, 26, 39, 0, time.UTC), WorkerID: 21, Sequence: 1}},
	// UidGenerator's README: 2017-01-19 12:15:46 in China, worker 4, sequence 9.
	{"UidGenerator, sample configuration", 180363646902239241, generator.Parts{Time: time.Date(2017, 1, 19, 4, 15, 46, 0, time.UTC), WorkerID: 4, Sequence: 9}},
	// Discord's API reference gives 2016-04-30 11:18:25.796 UTC, worker 1, process 0, increment 7.
	{"Discord", 175928847299117063, generator.Parts{Time: time.Date(2016, 4, 30, 11, 18, 25, 796e6, time.UTC), WorkerID: 1 << 5, Sequence: 7}},
	// https://stackoverflow.com/questions/63683015 has the times that Instagram gives for these posts, 13:43:27 and
	// 13:52:46. Shard and sequence are not known.
	{"Instagram", 2384288897814875714, generator.Parts{Time: time.Date(2020, 8, 26, 13, 43, 27, 313e6, time.UTC), WorkerID: 2675, Sequence: 578}},
	{"Instagram", 2383568809444681765, generator.Parts{Time: time.Date(2020, 8, 25, 13, 52, 46, 90e6, time.UTC), WorkerID: 2474, Sequence: 37}},
	// The example of IdGenerator's README for an id after a year.
	{"yitter IdGenerator", 129053495681099, generator.Parts{Time: time.Date(2021, 2, 18, 10, 20, 3, 94e6, time.UTC), WorkerID: 1, Sequence: 11}},
	// Made by its Go package as worker 37; 5 is the first sequence of a millisecond.
	{"yitter IdGenerator", 872715881408837, generator.Parts{Time: time.Date(2026, 11, 20, 19, 10, 2, 734e6, time.UTC), WorkerID: 37, Sequence: 5}},
	// By Compose and NextID of sonyflake v2.
	{"sonyflake v2", 26892697443045940, generator.Parts{Time: time.Date(2025, 7, 5, 12, 34, 56, 780e6, time.UTC), WorkerID: 4660, Sequence: 37}},
	{"sonyflake v2", 99844855454419710, generator.Parts{Time: time.Date(2026, 11, 20, 19, 9, 31, 420e6, time.UTC), WorkerID: 51966, Sequence: 2}},
	// By NextID of sonyflake v1.
	{"sonyflake v1", 647050535496698622, generator.Parts{Time: time.Date(2026, 11, 20, 19, 9, 33, 200e6, time.UTC), WorkerID: 51966, Sequence: 1}},
}

func system(t *testing.T, name string) foreign.System {
	t.Helper()

	systems := foreign.Systems()
	i := slices.IndexFunc(systems, func(s foreign.System) bool { return s.Name == name })
	if i < 0 {
		t.Fatalf("no %s", name)
	}
	return systems[i]
}

// The parts of each id are known from elsewhere, so a wrong width, epoch or order of fields shows.
func TestSystemDecode_ReadsPublishedIDs(t *testing.T) {
	t.Parallel()

	for _, tt := range foreignIDs {
		f := system(t, tt.system)
		if p, err := f.Decode(tt.id); p != tt.want || err != nil {
			t.Errorf("%s: Decode(%d) = %v, %v; want %v", tt.system, tt.id, p, err, tt.want)
		}
		// As a number the id is in the layout's order, whatever the order of the fields.
		first, last, err := f.Layout.Range(tt.want.Time, tt.want.Time.Add(f.Layout.Tick))
		if err != nil || tt.id < first || tt.id > last {
			t.Errorf("%s: %d is not in the range from %d to %d, %v", tt.system, tt.id, first, last, err)
		}
		if !f.SequenceFirst {
			if id, err := f.Layout.Compose(tt.want); id != tt.id || err != nil {
				t.Errorf("%s: Compose(%v) = %d, %v; want %d", tt.system, tt.want, id, err, tt.id)
			}
		}
	}
}

// TestSystems_AreLaidOutAsPublished checks that each has an id above, and pins the layouts.
func TestSystems_AreLaidOutAsPublished(t *testing.T) {
	t.Parallel()

	layouts := map[string]string{
		"Twitter snowflake, Leaf":            "1-41-10-12/1ms@1288834974.657 until 2080-07-10",
		"UidGenerator":                       "1-28-22-13/1s@1463673600 until 2024-11-20",
		"UidGenerator, sample configuration": "1-29-21-13/1s@1474300800 until 2033-09-24",
		"Discord":                            "1-41-10-12/1ms@1420070400 until 2084-09-06",
		"Instagram":                          "1-40-13-10/1ms@1314220021.721 until 2046-06-27",
		"yitter IdGenerator":                 "1-51-6-6/1ms@1582136402 until 73376-10-30",
		"sonyflake v2":                       "1-39-16-8/10ms@1735689600 until 2199-03-19",
		"sonyflake v1":                       "1-39-16-8/10ms@1409529600 until 2188-11-16",
	}
	for _, f := range foreign.Systems() {
		testkit.Must(t, f.Layout.Validate())
		if got := f.Layout.String() + " until " + f.Layout.Expires().Format(time.DateOnly); got != layouts[f.Name] {
			t.Errorf("%s is %s, want %s", f.Name, got, layouts[f.Name])
		}
		if !slices.ContainsFunc(foreignIDs, func(of foreignID) bool { return of.system == f.Name }) {
			t.Errorf("there is no id of %s", f.Name)
		}
		delete(layouts, f.Name)
	}
	if len(layouts) != 0 {
		t.Errorf("missing: %v", layouts)
	}
	foreign.Systems()[0].Name = "changed"
	if foreign.Systems()[0].Name == "changed" {
		t.Error("callers share a slice")
	}
}

// A number that is no id of the system is an error, and is not split into plausible parts.
func TestSystemDecode_RefusesWhatIsNoID(t *testing.T) {
	t.Parallel()

	var zero foreign.System
	_, err := zero.Decode(1)
	testkit.IsError(t, err, generator.ErrLayout)
	for _, f := range foreign.Systems() {
		for _, id := range []int64{-1, math.MinInt64} {
			if p, err := f.Decode(id); p != (generator.Parts{}) || !errors.Is(err, generator.ErrLayout) {
				t.Errorf("%s: Decode(%d) = %v, %v", f.Name, id, p, err)
			}
		}
	}
	narrow := foreign.System{Layout: generator.Layout{TimeBits: 30, WorkerBits: 16, SequenceBits: 4, Tick: time.Second, Epoch: date(2026, 1, 1)}, SequenceFirst: true}
	if p, err := narrow.Decode(1 << 50); p != (generator.Parts{}) || !errors.Is(err, generator.ErrLayout) {
		t.Errorf("an id of more bits: %v, %v", p, err)
	}
}

// FuzzForeign checks that no bit of an id is lost, in either order of the fields.
func FuzzForeign(f *testing.F) {
	for _, tt := range foreignIDs {
		f.Add(tt.id)
	}
	f.Fuzz(func(t *testing.T, id int64) {
		for _, f := range foreign.Systems() {
			p, err := f.Decode(id)
			if err != nil {
				if id >= 0 {
					t.Fatalf("%s: %v", f.Name, err)
				}
				continue
			}
			l := f.Layout
			if f.SequenceFirst {
				l.WorkerBits, l.SequenceBits = l.SequenceBits, l.WorkerBits
				p.WorkerID, p.Sequence = p.Sequence, p.WorkerID
			}
			if back, err := l.Compose(p); back != id || err != nil {
				t.Fatalf("%s: %d became %d, %v", f.Name, id, back, err)
			}
		}
	})
}

// The time at which a row was made tells the systems apart, up to the tolerance and not a nanosecond further.
func TestIdentify_FindsTheSystemByTheTime(t *testing.T) {
	t.Parallel()

	for _, tt := range foreignIDs {
		for _, made := range []time.Time{tt.want.Time, tt.want.Time.Add(time.Minute), tt.want.Time.Add(-time.Minute)} {
			got := foreign.Identify(tt.id, made, time.Minute)
			if len(got) != 1 || got[0].Name != tt.system {
				t.Errorf("Identify(%d, %v) = %v, want %s", tt.id, made, got, tt.system)
			}
		}
		for _, none := range [][]foreign.System{
			foreign.Identify(tt.id, tt.want.Time.Add(time.Minute+1), time.Minute),
			foreign.Identify(tt.id, tt.want.Time, -1),
			foreign.Identify(tt.id, time.Time{}, 0),
			foreign.Identify(-tt.id, tt.want.Time, math.MaxInt64),
		} {
			if len(none) != 0 {
				t.Errorf("%d was identified as %v", tt.id, none)
			}
		}
	}
	if got := foreign.Identify(1<<62, date(2026, 1, 1), math.MaxInt64); len(got) != len(foreign.Systems()) {
		t.Errorf("within all times there are %d", len(got))
	}
}

// A Java process in UTC begins its epoch eight hours later than one in China, so Identify finds nothing. With the epoch
// of docs/from-uidgenerator.md, its ids can be read.
func TestUidGeneratorSampleLayout_OfAnotherTimeZone(t *testing.T) {
	t.Parallel()

	made, zone := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC), time.UTC
	layout := foreign.UidGeneratorSampleLayout()
	layout.Epoch = time.Date(2016, 9, 20, 0, 0, 0, 0, zone)
	id, err := layout.Compose(generator.Parts{Time: made, WorkerID: 21, Sequence: 1})
	testkit.Must(t, err)
	if got := foreign.Identify(id, made, time.Hour); len(got) != 0 {
		t.Errorf("Identify finds %v", got)
	}
	old, err := foreign.UidGeneratorSampleLayout().Decompose(id)
	if err != nil || made.Sub(old.Time) != 8*time.Hour {
		t.Errorf("with the epoch of China the time is %v, %v", old.Time, err)
	}
}

// CachedUidGenerator with the default configuration does not check its bits, so since the end of the layout the seconds
// reach into the sign. With the layout for negative ids of docs/from-uidgenerator.md, such ids can be read.
func TestUidGeneratorLayout_ReadsNegativeIDs(t *testing.T) {
	t.Parallel()

	layout := foreign.UidGeneratorLayout()
	seconds := func(at time.Time) int64 { return at.Unix() - foreign.UidGeneratorLayout().Epoch.Unix() }
	made := time.Date(2026, 11, 27, 0, 22, 55, 0, time.UTC)
	id := seconds(made)<<35 | 2<<13 | 7 // BitsAllocator.allocate
	if _, err := layout.Decompose(id); id >= 0 || err == nil {
		t.Errorf("%d is an id of the layout, %v", id, err)
	}
	layout.Epoch = layout.Expires()
	want := generator.Parts{Time: made, WorkerID: 2, Sequence: 7}
	if parts, err := layout.Decompose(id & math.MaxInt64); parts != want || err != nil {
		t.Errorf("%d was made %v, %v; want %v", id, parts, err, want)
	}
	if end := layout.Expires(); seconds(end) != 1<<29 {
		t.Errorf("the ids are negative until %v", end)
	}
}

func TestSystems_HaveTheNumbersOfMigrating(t *testing.T) {
	t.Parallel()

	twitter, next := generator.SnowflakeLayout(), generator.DefaultLayout()
	next.Epoch = twitter.Epoch.AddDate(0, -4, 0)
	if next.MaxWorkerID() != 262143 || next.Expires().Format(time.DateOnly) != "2080-03-09" {
		t.Errorf("%v: %d worker ids, until %v", next, next.MaxWorkerID(), next.Expires())
	}
	newest := func(l generator.Layout, at time.Time) int64 {
		_, last, err := l.Range(l.Epoch, at)
		testkit.Must(t, err)
		return last
	}
	for at := date(2026, 1, 1); at.Year() < 2078; at = at.AddDate(0, 1, 0) {
		if err := next.Above(newest(twitter, at), at.Add(-24*time.Hour)); err != nil {
			t.Errorf("a day before %v: %v", at, err)
		}
		first, _, err := next.Range(at, at.Add(time.Second))
		testkit.Must(t, err)
		if old := newest(twitter, at.AddDate(0, 0, 119)); old >= first {
			t.Errorf("119 days after %v an old id is %d, the first new one %d", at, old, first)
		}
	}

	// Discord and Instagram: the widths and epochs of docs/migrating.md.
	discord, instagram := generator.DefaultLayout(), system(t, "Instagram").Layout
	discord.Epoch = system(t, "Discord").Layout.Epoch.AddDate(0, -1, 0)
	instagram.WorkerBits, instagram.SequenceBits, instagram.Epoch = 19, 4, instagram.Epoch.AddDate(0, -1, 0)
	for at := date(2026, 1, 1); at.Year() < 2046; at = at.AddDate(0, 1, 0) {
		for name, l := range map[string]generator.Layout{"Discord": discord, "Instagram": instagram} {
			if err := l.Above(newest(system(t, name).Layout, at), at.Add(-24*time.Hour)); err != nil {
				t.Errorf("%s, a day before %v: %v", name, at, err)
			}
		}
	}

	own := generator.DefaultLayout()
	for _, name := range []string{"sonyflake v2", "sonyflake v1", "yitter IdGenerator"} {
		old := system(t, name).Layout
		for at := date(2026, 1, 1); at.Year() < 2087; at = at.AddDate(0, 6, 0) {
			if err := own.Above(newest(old, at), at); err != nil {
				t.Errorf("%s on %v: %v", name, at, err)
			}
		}
	}
	sample := newest(foreign.UidGeneratorSampleLayout(), date(2026, 3, 1))
	testkit.IsError(t, own.Above(sample, date(2026, 3, 1)), generator.ErrLayout, "2056-09-06")
	lastDay := newest(foreign.UidGeneratorLayout(), date(2024, 11, 20))
	testkit.IsError(t, own.Above(lastDay, date(2026, 3, 1)), generator.ErrLayout, "2087-09-03")
	if _, last, err := system(t, "yitter IdGenerator").Layout.Range(date(2021, 1, 1), date(2089, 10, 26)); err != nil || last > 1<<53 {
		t.Errorf("yitter's ids have 53 bits until %d, %v", last, err)
	}
}

func date(year int, month time.Month, day int) time.Time {
	return time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
}

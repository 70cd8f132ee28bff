package adopt_test

import (
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/generator/foreign"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// layouts are the layouts to measure, with ticks of 1 ms, 10 ms and a second.
var layouts = []struct {
	name   string
	layout generator.Layout
}{
	{"1 ms", generator.DefaultLayout()},
	{"10 ms", generator.JSSafeTablesLayout()},
	{"1 s", foreign.UidGeneratorSampleLayout()},
}

// Two ids are made one right after the other, and rows of another program come between their rows. On MySQL these get
// the numbers after the first id. Without gaps the second id is one of them.
func TestGaps_RowsOfOthersFitBetweenTwoIDs(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		for _, l := range layouts {
			for _, generator := range []string{"cached", "snowflake", "paired"} {
				_, other := adopted(t, d)
				db, p := process(t, d, uidplugin.WithLayout(l.layout), uidplugin.WithDefaultGenerator(generator))
				for range 10 {
					var ids [2]uidplugin.ID
					for i := range ids {
						id, err := p.NextID(t.Context(), &Order{})
						testkit.Must(t, err)
						ids[i] = id
					}
					for _, id := range ids {
						if err := db.Create(&Order{ID: int64(id)}).Error; err != nil {
							t.Fatalf("%s, %s: %d of %d: %v", l.name, generator, id, ids, err)
						}
						for range 5 {
							testkit.Must(t, insert(other))
						}
					}
				}
				d = d.New(t)
			}
		}
	}, servers...)
}

// A batch is one statement, and rows of others come between its rows. The ids of the rows leave room for them, and so do
// those of another process.
func TestGaps_IDsOfBatchesAndProcessesLeaveRoom(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		adopted(t, d)
		gap, seen := int64(16), map[int64]bool{}
		if d.Name == "postgres" {
			gap = 1 // its sequence does not follow the ids
		}
		for range 3 {
			db, _ := process(t, d)
			rows := make([]Order, 1000)
			testkit.Must(t, db.Create(&rows).Error)
			multiples := 0
			for _, row := range rows {
				if row.ID%gap == 0 {
					multiples++
				}
				seen[row.ID] = true
			}
			if multiples != len(rows) {
				t.Errorf("%d of %d ids are multiples of %d", multiples, len(rows), gap)
			}
		}
		if len(seen) != 3000 {
			t.Errorf("%d different ids", len(seen))
		}
	}, servers...)
}

// A table that nothing numbers has no gaps: neither a new one, nor one whose key has been made plain before the start.
func TestGaps_PlainKeysHaveNone(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db, p := process(t, d)
		testkit.Must(t, p.AutoMigrate(&Order{}))
		rows := make([]Order, 100)
		testkit.Must(t, db.Create(&rows).Error)
		for _, row := range rows {
			if row.ID%16 != 0 {
				return
			}
		}
		t.Errorf("ids from %d to %d have gaps", rows[0].ID, rows[len(rows)-1].ID)
	}, servers...)
}

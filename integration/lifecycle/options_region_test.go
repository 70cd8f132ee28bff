package lifecycle_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

func TestWithRegion_RefusesRegionsThatCannotBe(t *testing.T) {
	t.Parallel()
	for _, tt := range [][2]int{{0, 0}, {-1, 2}, {2, 2}, {0, -1}, {0, 1 << 18}} {
		err := plugintest.Bare(t).Use(uidplugin.New(uidplugin.WithRegion(tt[0], tt[1])))
		testkit.IsError(t, err, uidplugin.ErrOption, fmt.Sprintf("WithRegion(%d, %d)", tt[0], tt[1]))
	}
	err := plugintest.Bare(t).Use(uidplugin.New(uidplugin.WithRegion(0, 2), uidplugin.WithWorkerID(3)))
	testkit.IsError(t, err, uidplugin.ErrOption)
}

// A registry keeps its region, so a process that sets another one is refused.
func TestWithRegion_MustBeThatOfTheRegistry(t *testing.T) {
	t.Parallel()
	file := testkit.SQLite{Path: testkit.SQLitePath(t)}
	plugintest.Use(t, file.Open(t), uidplugin.WithRegion(1, 3))
	plugintest.Use(t, file.Open(t), uidplugin.WithRegion(1, 3))
	plugintest.Use(t, file.Open(t)) // any region
	for _, tt := range [][2]int{{0, 3}, {1, 6}, {0, 1}} {
		testkit.IsError(t, file.Open(t).Use(uidplugin.New(uidplugin.WithRegion(tt[0], tt[1]))), uidplugin.ErrRegion)
	}
	undivided := testkit.SQLite{Path: testkit.SQLitePath(t)}
	plugintest.Use(t, undivided.Open(t))
	testkit.IsError(t, undivided.Open(t).Use(uidplugin.New(uidplugin.WithRegion(0, 2))), uidplugin.ErrRegion)
}

// Plugins that share a registry, and its slot, must agree.
func TestWithRegion_OfPluginsWithOneRegistry(t *testing.T) {
	t.Parallel()
	registry := testkit.SQLite{}.Open(t)
	plugintest.Use(t, testkit.SQLite{}.Open(t), uidplugin.WithRegistry(registry), uidplugin.WithRegion(1, 2))
	plugintest.Use(t, testkit.SQLite{}.Open(t), uidplugin.WithRegistry(registry))
	err := testkit.SQLite{}.Open(t).Use(uidplugin.New(uidplugin.WithRegistry(registry), uidplugin.WithRegion(0, 2)))
	testkit.IsError(t, err, uidplugin.ErrRegion)
	plugintest.Use(t, testkit.SQLite{}.Open(t), uidplugin.WithRegistry(registry), uidplugin.WithRegion(1, 2))
}

type (
	regionRow  struct{ ID uidplugin.ID }
	regionUsed struct {
		ID uidplugin.ID `gorm:"uid:segment"`
	}
)

// All worker ids of both tables leave the region's remainder, also those that a burst adds.
func TestWithRegion_AllIDsAreOfTheRegion(t *testing.T) {
	t.Parallel()
	const n, of = 2, 5
	for _, options := range [][]uidplugin.Option{nil, {uidplugin.WithOneWorkerID()}, {uidplugin.WithDisposable()}, {uidplugin.WithDefaultGenerator("paired")}} {
		db := testkit.SQLite{}.Open(t)
		p := plugintest.Use(t, db, append(options, uidplugin.WithRegion(n, of), uidplugin.WithModels(&regionRow{}, &plugintest.Part{}))...)
		must(t, db.AutoMigrate(&regionRow{}, &plugintest.Part{}))
		workers := map[int64]bool{}
		for range 100 {
			rows, parts := make([]regionRow, 100), make([]plugintest.Part, 10)
			must(t, db.Create(&rows).Error)
			must(t, db.Create(&parts).Error)
			var ids []uidplugin.ID
			for _, row := range rows {
				ids = append(ids, row.ID)
			}
			for _, row := range parts {
				ids = append(ids, uidplugin.ID(row.ID))
			}
			for _, id := range ids {
				decoded, err := p.Decode(id)
				must(t, err)
				workers[decoded.WorkerID] = true
			}
		}
		for worker := range workers {
			if worker%of != n {
				t.Errorf("worker id %d", worker)
			}
		}
		if len(workers) == 0 {
			t.Error("no worker id")
		}
	}
}

// Segments of two regions would make the same numbers. Formerly both began with 1.
func TestWithRegion_RefusesSegments(t *testing.T) {
	t.Parallel()
	db := testkit.SQLite{}.Open(t)
	must(t, db.AutoMigrate(&regionUsed{}))
	err := db.Use(uidplugin.New(uidplugin.WithRegion(1, 2), uidplugin.WithModels(&regionUsed{})))
	testkit.IsError(t, err, uidplugin.ErrOption)
	db = testkit.SQLite{}.Open(t)
	must(t, db.AutoMigrate(&regionUsed{}))
	plugintest.Use(t, db, uidplugin.WithRegion(1, 2))
	testkit.IsError(t, db.Create(&regionUsed{}).Error, uidplugin.ErrOption)
}

// A layout with few worker ids ends earlier in a region, and says so.
func TestWithRegion_ExhaustionNamesTheRegion(t *testing.T) {
	t.Parallel()
	layout := generator.DefaultLayout()
	layout.WorkerBits, layout.SequenceBits = 3, 19
	db := testkit.SQLite{}.Open(t)
	plugintest.Use(t, db, uidplugin.WithLayout(layout), uidplugin.WithRegion(1, 4))
	plugintest.Migrate(t, db, &regionRow{}, &plugintest.Part{}, &plugintest.Counter{})
	must(t, db.Create(&regionRow{}).Error)       // worker id 1
	must(t, db.Create(&plugintest.Part{}).Error) // worker id 5
	testkit.IsError(t, db.Create(&plugintest.Counter{}).Error, uidplugin.ErrExhausted, "region 1 of 4", "one in 4")
}

// In an empty database, WithRegion begins with the first worker ids. They are taken if another registry was divided after
// it had given them out, and nothing else shows that. So the log does.
func TestWithRegion_TheLogNamesARegionThatBegins(t *testing.T) {
	t.Parallel()
	file := testkit.SQLite{Path: testkit.SQLitePath(t)}
	for _, tt := range []struct {
		file  testkit.SQLite
		n, of int
		want  bool
	}{{file, 1, 2, true}, {file, 1, 2, false}, {testkit.SQLite{}, 0, 1, false}, {testkit.SQLite{}, 0, 2, true}} {
		log := &testkit.Log{}
		plugintest.Use(t, tt.file.Open(t), uidplugin.WithRegion(tt.n, tt.of), uidplugin.WithLogger(log.Logger()))
		if got := strings.Contains(log.String(), "has begun a region"); got != tt.want {
			t.Errorf("%+v: %s", tt, log.String())
		}
	}
}

package lookup_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
)

func TestPluginLocate_TellsNumbersApartThatAreNoIDs(t *testing.T) {
	t.Parallel()

	l := generator.DefaultLayout()
	now := l.TickAt(plugintest.Noon)
	db := plugintest.Open(t, uidplugin.WithClock(plugintest.AtNoon))
	p := uidplugin.From(db)
	orders := workernode.Table{Name: "orders"}
	addNode(t, db, workernode.Node{WorkerID: 20})
	addNode(t, db, workernode.Node{WorkerID: 21, Slot: 40, Table: orders, Layout: generator.SnowflakeLayout().String()})
	addNode(t, db, workernode.Node{WorkerID: 22, Slot: 40, Table: orders, Layout: l.String(), Start: now - 10_001})
	addNode(t, db, workernode.Node{WorkerID: 23, Slot: 40, Table: orders, Layout: l.String()})
	addNode(t, db, workernode.Node{WorkerID: 24, Slot: 41, Table: orders, Layout: l.String()})
	addNode(t, db, workernode.Node{WorkerID: 25, Slot: 40, Layout: l.String()})
	// The first process was granted ticks up to now-7,001, the second one began at now-4,000.
	addSlot(t, db, 40, now-3_001, sessionRow{Start: now - 10_001, Host: "web-1"},
		sessionRow{Start: now - 4_001, Before: now - 7_001, Host: "web-2"})

	stamped := func(worker, tick int64) int64 {
		id, err := l.Compose(generator.Parts{Time: l.TimeOf(tick), WorkerID: worker, Sequence: 3})
		must(t, err)
		return id
	}
	for _, tt := range []struct {
		name string
		id   int64
		kind error
		says []string
	}{
		{"negative", -1, uidplugin.ErrNegativeID, []string{"-1"}},
		{"most negative", -1 << 63, uidplugin.ErrNegativeID, []string{"-9223372036854775808"}},
		{"future", stamped(22, now+660_002), uidplugin.ErrFutureID, []string{"2026-06-01 12:11:00.002 UTC", "2026-06-01 12:11:00.001 UTC"}},
		{"far future", 1<<63 - 1, uidplugin.ErrFutureID, []string{"9223372036854775807", "2087"}},
		{"no such worker id", stamped(999, now), uidplugin.ErrUnknownID, []string{"999", "WORKER_NODE"}},
		{"zero", 0, uidplugin.ErrNotDecodable, []string{"0 is too small for the layout: it may be a key from before the plugin"}},
		{"small", 1 << 20, uidplugin.ErrNotDecodable, []string{"too small"}},
		{"row of UidGenerator", stamped(20, now), uidplugin.ErrOtherLayout, []string{"20", "UidGenerator", "2024-02-29"}},
		{"row with another layout", stamped(21, now), uidplugin.ErrOtherLayout, []string{"21", generator.SnowflakeLayout().String(), l.String()}},
		{"before the worker id was added", stamped(22, now-10_001), uidplugin.ErrUnknownID, []string{"22", "11:59:49.999", "11:59:50"}},
		{"spare without a table", stamped(25, now-4_000), uidplugin.ErrUnknownID, []string{"25", "table"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			got, err := p.Locate(t.Context(), uidplugin.ID(tt.id))
			plugintest.Only(t, err, tt.kind, append(tt.says, "uidplugin: ")...)
			if got != (uidplugin.Location{}) {
				t.Errorf("Locate: %+v", got)
			}
			plugintest.Only(t, plugintest.Second(p.Find(t.Context(), uidplugin.ID(tt.id))), tt.kind)
		})
	}
	for name, id := range map[string]int64{
		"after the fence":                      stamped(22, now-3_000),
		"between two sessions":                 stamped(22, now-7_000),
		"right before a session":               stamped(22, now-4_001),
		"before the first session of the slot": stamped(23, now-10_001),
		"of a slot without a row":              stamped(24, now-4_000),
	} {
		got, err := p.Locate(t.Context(), uidplugin.ID(id))
		plugintest.Only(t, err, uidplugin.ErrUnknownID, "uidplugin: ", "no process", "slot 4")
		if got != (uidplugin.Location{}) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	for tick, host := range map[int64]string{now - 10_000: "web-1", now - 7_001: "web-1", now - 4_000: "web-2", now - 3_001: "web-2"} {
		got, err := p.Locate(t.Context(), uidplugin.ID(stamped(22, tick)))
		want := workernode.Session{Slot: 40, Application: "shop", Host: host, Port: "80", Kind: workernode.Actual,
			Launched: plugintest.Noon.Add(-time.Hour), From: l.TimeOf(now - 10_000)}
		if want.Until = l.TimeOf(now - 4_000); host == "web-2" {
			want.From, want.Until = want.Until, time.Time{}
		}
		if err != nil || got.Table != "orders" || got.Session != want {
			t.Errorf("Locate: %+v, %v; want the session %+v", got, err, want)
		}
	}
	// The latest that another process may have stamped is not of the future.
	_, err := p.Locate(t.Context(), uidplugin.ID(stamped(999, now+660_001)))
	plugintest.Only(t, err, uidplugin.ErrUnknownID)
}

func TestPluginLocate_RefusesBitsThatTheLayoutDoesNotHave(t *testing.T) {
	t.Parallel()

	db := plugintest.Open(t, uidplugin.WithLayout(generator.JSSafeLayout()))
	for _, id := range []int64{1 << 53, 1<<63 - 1} {
		_, err := uidplugin.From(db).Locate(t.Context(), uidplugin.ID(id))
		plugintest.Only(t, err, uidplugin.ErrUnknownID, "53 bits")
		testkit.IsError(t, err, generator.ErrLayout)
		testkit.IsError(t, plugintest.Second(uidplugin.From(db).Decode(uidplugin.ID(id))), generator.ErrLayout)
	}
	testkit.IsError(t, plugintest.Second(uidplugin.From(db).Decode(-1)), uidplugin.ErrNegativeID)
}

// Formerly Locate named this process for each id with its number, also for ids of processes that had the number before.
func TestPluginLocate_WithAFixedWorkerIDKnowsNoProcess(t *testing.T) {
	t.Parallel()

	db := plugintest.Open(t, uidplugin.WithWorkerID(7), uidplugin.WithClock(plugintest.AtNoon), uidplugin.WithHost(workernode.Host{Application: "shop", Name: "web-1", Port: "8080", Kind: 1}))
	plugintest.Migrate(t, db, &plugintest.Part{})
	r := plugintest.Part{}
	must(t, db.Create(&r).Error)
	p := uidplugin.From(db)
	want := uidplugin.Location{ID: uidplugin.ID(r.ID), Parts: generator.Parts{Time: plugintest.Noon, WorkerID: 7}}
	if got, err := p.Locate(t.Context(), uidplugin.ID(r.ID)); err != nil || got != want {
		t.Errorf("Locate: %+v, %v", got, err)
	}
	_, err := p.Locate(t.Context(), uidplugin.ID(plugintest.At(t, 8, 0)))
	plugintest.Only(t, err, uidplugin.ErrUnknownID, "worker id 8", "7", "WithWorkerID")
	plugintest.Only(t, plugintest.Second(p.Find(t.Context(), uidplugin.ID(r.ID))), uidplugin.ErrNoModel, "all tables")
	if s := p.Stats(); s.Space != "" || s.Slot != (workernode.SlotStats{}) {
		t.Errorf("Stats: %+v", s)
	}
	if tables := p.Stats().Tables; len(tables) != 1 || tables[0].Table != "*" || tables[0].WorkerIDs[0] != 7 {
		t.Errorf("Stats: %+v", tables)
	}
}

// The wall clock is set back by hours, and the generators do not follow it. An id that was created just now is then
// ahead of the wall clock, and must not be one of the future, for any kind of generator.
func TestPluginLocate_KnowsNewIDsAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()

	for _, kind := range []string{"cached", "snowflake", "paired"} {
		clock := testkit.NewClock(plugintest.Noon)
		db, p := openParts(t, uidplugin.WithClock(clock.Now), uidplugin.WithDefaultGenerator(kind))
		must(t, db.Create(&plugintest.Part{}).Error)
		clock.Add(-2 * time.Hour)
		var made []int64
		for range 10 {
			r := plugintest.Part{}
			must(t, db.Create(&r).Error)
			plugintest.IsOurs(t, db, "parts", r.ID)
			if parts, err := p.Decode(uidplugin.ID(r.ID)); err != nil || parts.Time.Before(plugintest.Noon) || parts.Time.After(plugintest.Noon.Add(time.Second)) {
				t.Errorf("%s: Decode: %+v, %v", kind, parts, err)
			}
			finds(t, p, r.ID, r)
			made = append(made, r.ID)
		}
		if found, err := p.FindAll(t.Context(), uidplugin.IDs(made...)); err != nil || len(found) != len(made) {
			t.Errorf("%s: FindAll: %d of %d, %v", kind, len(found), len(made), err)
		}
	}
}

// After the database has lost commits, a worker id may be of another table than it was. Formerly a process that had
// looked it up before then named the old table for new ids, and found no row.
func TestPluginLocate_FollowsADatabaseThatLostCommits(t *testing.T) {
	t.Parallel()

	l := generator.DefaultLayout()
	db, _, _ := crates(t)
	p := uidplugin.From(db)
	now := l.TickAt(time.Now())
	addNode(t, db, elsewhere(50, "slips"))
	addSlot(t, db, 50, now, sessionRow{})
	before := uidplugin.ID(stampedAt(t, 50, l.TimeOf(now-5000)))
	after := uidplugin.ID(stampedAt(t, 50, l.TimeOf(now-10)))
	must(t, db.Create(&slip{ID: int64(before)}).Error)
	finds(t, p, int64(before), slip{ID: int64(before)})
	plugintest.IsOurs(t, db, "slips", int64(before))
	must(t, db.Exec(`UPDATE "WORKER_NODE" SET "TABLE_NAME" = 'crates' WHERE "ID" = 50`).Error)
	must(t, db.Create(&crate{ID: int64(after), Name: "new"}).Error)
	plugintest.IsOurs(t, db, "crates", int64(after))
	findsCrate(t, p, int64(after), "new")
	if rows, err := p.FindAll(t.Context(), []uidplugin.ID{after}); err != nil || rows[after] == nil {
		t.Errorf("FindAll: %v, %v", rows, err)
	}
}

// The number to which JavaScript rounds an id can be an id of another table. The error says so, or people look for the
// row.
func TestIDError_SaysThatANumberMayHaveBeenRounded(t *testing.T) {
	t.Parallel()

	db, mine, _ := crates(t)
	p := uidplugin.From(db)
	for int64(float64(mine.ID)) == mine.ID || mine.ID%100 == 0 || (mine.ID+1<<40)%100 == 0 { // the last one looks rounded
		mine = crate{}
		must(t, db.Create(&mine).Error)
	}
	for n, want := range map[int64]bool{int64(float64(mine.ID)): true, mine.ID / 10_000 * 10_000: true, mine.ID + 1<<40: false} {
		_, err := p.Find(t.Context(), uidplugin.ID(n))
		if !errors.Is(err, uidplugin.ErrNoSuchID) || strings.Contains(err.Error(), "rounded the number") != want {
			t.Errorf("%d of %d: %v", n, mine.ID, err)
		}
	}
}

// After a restore an operator sets the floor above the clock. Ids are stamped from there on.
func TestPluginLocate_KnowsIDsAboveAFloor(t *testing.T) {
	t.Parallel()

	path, floor := filepath.Join(t.TempDir(), "test.db"), plugintest.Noon.Add(5*time.Minute)
	plugintest.Use(t, plugintest.File(t, path, nil))
	db := plugintest.File(t, path, nil)
	must(t, db.Exec(`UPDATE "WORKER_REGISTRY" SET "FLOOR_TICK" = ?`, generator.DefaultLayout().TickAt(floor)).Error)
	plugintest.Use(t, db, uidplugin.WithClock(plugintest.AtNoon))
	plugintest.Migrate(t, db, &plugintest.Part{})
	r := plugintest.Part{}
	must(t, db.Create(&r).Error)
	parts, err := uidplugin.From(db).Decode(uidplugin.ID(r.ID))
	if err != nil || !parts.Time.After(floor) {
		t.Fatalf("the id is stamped %v, %v", parts.Time, err)
	}
	plugintest.IsOurs(t, db, "parts", r.ID)
}

// Decode refuses the ids of the first tick, as keys from before the plugin look like them. If a process could stamp that
// tick, Decode would refuse an id that was made. The clock of this test stands at the epoch.
func TestPluginDecode_NoLeasedIDHasTheFirstTick(t *testing.T) {
	t.Parallel()

	layout := generator.DefaultLayout()
	for _, kind := range []string{"cached", "snowflake", "paired"} {
		db, p := openParts(t, uidplugin.WithDefaultGenerator(kind), uidplugin.WithClock(func() time.Time { return layout.Epoch }))
		rows := make([]plugintest.Part, 10) // fewer than a tick has
		must(t, db.Create(&rows).Error)
		for _, r := range rows {
			if parts, err := p.Decode(uidplugin.ID(r.ID)); err != nil || layout.TickAt(parts.Time) != 1 {
				t.Errorf("%s: the id %d is of %v, %v; want the second tick", kind, r.ID, parts.Time, err)
			}
		}
	}
}

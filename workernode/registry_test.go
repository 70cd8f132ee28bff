package workernode_test

import (
	"errors"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

func registered(t *testing.T) (*gorm.DB, *workernode.DB) {
	t.Helper()
	db := tables(t)
	d := open(t, db)
	_, err := d.OpenRegistry(t.Context(), layout, time.Second, workernode.Region{})
	must(t, err)
	return db, d
}

// The first process decides; with two layouts, two rows could get one id.
func TestDBOpenRegistry_PinsTheLayout(t *testing.T) {
	t.Parallel()

	d := open(t, tables(t))
	first, err := d.OpenRegistry(t.Context(), layout, 10*time.Second, workernode.Region{})
	must(t, err)
	if first.Layout != layout.String() || first.LeadTicks != 10_000 || first.NextID != 1025 || first.FirstID != 1025 || first.NextSlot != 1 || first.Floor != 0 || len(first.Space) != 13 {
		t.Errorf("%+v", first)
	}
	again, err := d.OpenRegistry(t.Context(), layout, time.Minute, workernode.Region{})
	if must(t, err); again != first {
		t.Errorf("%+v, then %+v", first, again)
	}
	for _, other := range []generator.Layout{generator.SnowflakeLayout(), generator.JSSafeLayout(), narrow(17)} {
		_, err := d.OpenRegistry(t.Context(), other, 10*time.Second, workernode.Region{})
		testkit.IsError(t, err, workernode.ErrLayoutMismatch, layout.String(), other.String(), "two rows could get the same id", "WithLayout")
	}
}

// UidGenerator's rows have worker ids that its processes stamp with. One that fits no layout is none, and must not use
// up the worker ids.
func TestDBOpenRegistry_BeginsAboveTheRowsThatExist(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		rows        []int64
		first, next int64
	}{
		{nil, 1025, 1025}, {[]int64{-5}, 1025, 1025}, {[]int64{5000}, 1025, 5001}, {[]int64{1 << 40}, 1025, 1025},
		{[]int64{41, 7}, 1, 42}, {[]int64{1024}, 1, 1025}, {[]int64{3, layout.MaxWorkerID() + 1}, 1, 4}, {[]int64{3, 1 << 40, math.MaxInt64}, 1, 4},
	} {
		db := tables(t)
		for _, id := range tt.rows {
			foreign(t, db, id)
		}
		if r, err := open(t, db).OpenRegistry(t.Context(), layout, time.Second, workernode.Region{}); err != nil || r.FirstID != tt.first || r.NextID != tt.next {
			t.Errorf("%d: %+v, %v", tt.rows, r, err)
		}
	}
}

// Somebody deletes the row of the registry and other rows, while a process runs. Formerly a new registry gave out its
// worker ids again, and both made the same ids.
func TestDBOpenRegistry_BeginsNoneWhereAProcessHadASlot(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.start(nil)
		a.use(t, table("orders"), 10)
		old := w.snapshot()
		for _, kept := range []string{"WORKER_NODE", "WORKER_SLOT", "WORKER_SESSION"} {
			w.restore(snapshot{"WORKER_REGISTRY": nil, "WORKER_NODE": nil, "WORKER_SLOT": nil, "WORKER_SESSION": nil, kept: old[kept]})
			_, err := open(t, w.db).OpenRegistry(t.Context(), layout, time.Second, workernode.Region{})
			testkit.IsError(t, err, workernode.ErrTable, "WORKER_REGISTRY was deleted", "restore it", "docs/failures.md")
			if n := w.number(`SELECT COUNT(*) FROM "WORKER_REGISTRY"`); n != 0 {
				t.Errorf("%d rows", n)
			}
		}
		w.restore(old)
		a.use(t, table("orders"), 10)
	})
}

// Somebody empties or replaces all tables while a process runs. Formerly it got a slot of the new id space, with ids of
// its own layout and without its own worker ids, and the ids of both came twice.
func TestManager_GetsNothingOfAnotherIDSpace(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.start(nil)
		a.use(t, table("orders"), 10)
		old := w.snapshot()
		empty := snapshot{"WORKER_REGISTRY": nil, "WORKER_NODE": nil, "WORKER_SLOT": nil, "WORKER_SESSION": nil}
		lost := func(words ...string) {
			t.Helper()
			time.Sleep(3 * time.Second)
			a.refused(time.Minute, table("orders"), workernode.ErrTable, words...)
			testkit.IsError(t, a.Stats().LastError, workernode.ErrTable, words...)
		}
		w.restore(empty)
		lost("of WORKER_REGISTRY is missing", "restore it", "restart this process")
		w.logs("level=ERROR", "restart this process")
		l := w.layout
		w.layout = narrow(17)
		b := w.start(nil)
		w.layout = l
		must(t, b.Start(t.Context()))
		lost("belongs to another id space", "restart this process")
		if n := w.number(`SELECT COUNT(*) FROM "WORKER_SLOT"`); n != 1 {
			t.Errorf("%d slots", n)
		}
		if n := w.number(`SELECT "NEXT_SLOT" FROM "WORKER_REGISTRY"`); n != 2 {
			t.Errorf("NEXT_SLOT is %d", n)
		}
		w.restore(old)
		a.use(t, table("orders"), 10)
	})
}

// If only the registry is replaced, the process can renew its slot, although its worker ids may be given out again.
func TestManager_FindsAnotherIDSpaceWithinTenMinutes(t *testing.T) {
	each(t, map[string]func(*process) error{
		"at the next worker id": func(p *process) error {
			_, err := p.Assign(p.world.tb.Context(), []workernode.Table{table("items")}, nil)
			return err
		},
		"within ten minutes": func(p *process) error {
			for range 11 * 60 {
				time.Sleep(time.Second)
				_, _ = p.generators[table("orders")].Next(p.world.tb.Context())
			}
			return p.Stats().LastError
		},
	}, func(t *testing.T, w *world, use func(*process) error) {
		p := w.start(nil)
		p.use(t, table("orders"), 10)
		run(t, w.db, `UPDATE "WORKER_REGISTRY" SET "ID_SPACE" = 'other'`)
		testkit.IsError(t, use(p), workernode.ErrTable, "belongs to another id space", "ID_SPACE is other")
		time.Sleep(2 * time.Second)
		if s := p.Stats(); s.ID != 0 || w.slot(1).Fence > w.tick() {
			t.Errorf("it renews its slot: %+v", s)
		}
	})
}

// Somebody sets a counter back, and deletes the slots, while processes run. Formerly the next process got the same slot
// with the worker ids of the first, and both made the same ids.
func TestManager_SurvivesACounterThatIsSetBack(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, other, unused := w.start(nil), w.start(nil), w.start(nil)
		a.assign(table("orders"))
		other.assign(table("items"))
		must(t, unused.Start(t.Context())) // only a session names its slot
		a.make(table("orders"), 10)
		run(t, w.db, `UPDATE "WORKER_REGISTRY" SET "NEXT_SLOT" = 1`)
		run(t, w.db, `DELETE FROM "WORKER_SLOT"`)
		time.Sleep(5 * time.Millisecond) // b may stamp the ticks that were granted to a
		b := w.start(nil)
		b.assign(table("orders"))
		if got := b.Stats().ID; got != 1 {
			t.Errorf("slot %d", got)
		}
		for range 30 {
			b.use(t, table("orders"), 100)
			a.use(t, table("orders"), 100)
			other.use(t, table("items"), 100)
			time.Sleep(100 * time.Millisecond)
		}
		w.checkWorkerIDs()
	})
}

// Processes with several layouts begin an empty registry at once. One layout wins, and there is one id space.
func TestDBOpenRegistry_PinsOneOfManyLayoutsAtOnce(t *testing.T) {
	t.Parallel()

	db := tables(t)
	layouts := []generator.Layout{layout, generator.SnowflakeLayout(), narrow(17)}
	var won [3]atomic.Int64
	var spaces sync.Map
	var group sync.WaitGroup
	start := make(chan struct{})
	for i := range 24 {
		d := open(t, db)
		group.Go(func() {
			<-start
			switch r, err := d.OpenRegistry(t.Context(), layouts[i%3], time.Second, workernode.Region{}); {
			case err == nil:
				won[i%3].Add(1)
				spaces.Store(r.Space, true)
			case !errors.Is(err, workernode.ErrLayoutMismatch):
				t.Error(err)
			}
		})
	}
	close(start)
	group.Wait()
	if a, b, c := won[0].Load(), won[1].Load(), won[2].Load(); a+b+c != 8 || max(a, b, c) != 8 {
		t.Errorf("the layouts were accepted %d, %d and %d times", a, b, c)
	}
	n := 0
	spaces.Range(func(any, any) bool { n++; return true })
	if n != 1 {
		t.Errorf("%d id spaces", n)
	}
}

// A registry that somebody has damaged must not be used: NEXT_ID 0 would give out the worker id 0.
func TestDBOpenRegistry_RefusesADamagedRow(t *testing.T) {
	t.Parallel()

	for _, set := range []string{`"LEAD_TICKS" = 2`, `"LEAD_TICKS" = -1`, `"NEXT_ID" = 0`, `"NEXT_SLOT" = 0`, `"NEXT_SLOT" = -7`} {
		db, d := registered(t)
		run(t, db, `UPDATE "WORKER_REGISTRY" SET `+set)
		_, err := d.OpenRegistry(t.Context(), layout, time.Second, workernode.Region{})
		testkit.IsError(t, err, workernode.ErrTable, "WORKER_REGISTRY", strings.Fields(strings.ReplaceAll(set, `"`, ""))[0])
	}
}

// Errors name the table, so that a user knows what is missing.
func TestDBOpenRegistry_WithoutTablesNamesTheTable(t *testing.T) {
	t.Parallel()

	d := open(t, testkit.SQLite{}.Open(t))
	_, err := d.OpenRegistry(t.Context(), layout, time.Second, workernode.Region{})
	_, lookup := d.Lookup(t.Context(), 1)
	_, nodes := d.Nodes(t.Context(), 0, 1)
	_, slots := d.Slots(t.Context(), layout, 0, 1)
	_, sessions := d.Sessions(t.Context(), layout, 0, time.Time{}, 1)
	_, _, _, origin := d.Trace(t.Context(), layout, 1, 1)
	for says, err := range map[string]error{
		"read WORKER_REGISTRY": err, "look up worker ids": lookup, "list worker nodes": nodes, "list slots": slots, "list sessions": sessions,
		"look up the worker id 1": origin,
	} {
		testkit.IsError(t, err, nil, "workernode: ", says, "no such table")
	}
}

// A user who may not insert gets the reason, after one attempt.
func TestDBOpenRegistry_ReportsWhyItCannotInsert(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		err   error
		calls int
	}{{testkit.SQLiteCode(8), 1}, {testkit.SQLiteCode(5), 3}} {
		wire := &testkit.Wire{}
		path := testkit.SQLitePath(t)
		db := wire.Open(t, testkit.SQLite{Path: path})
		must(t, migrate(t, db))
		calls := 0
		wire.Set(func(c *testkit.Crossing) error {
			if c.Is("INSERT INTO WORKER_REGISTRY") {
				if calls++; calls < 3 {
					return tt.err
				}
			}
			return c.Run()
		})
		_, err := open(t, db).OpenRegistry(t.Context(), layout, time.Second, workernode.Region{})
		if calls != tt.calls || (err == nil) != (tt.calls == 3) {
			t.Fatalf("%d calls, %v", calls, err)
		}
		if err != nil {
			saysAll(t, err.Error(), "insert the row of WORKER_REGISTRY", tt.err.Error())
		}
	}
}

// With autocommit off, a renewal would be undone when its connection closes, and ids come twice.
func TestDBOpenRegistry_RefusesAutocommitOff(t *testing.T) {
	t.Parallel()

	d, mock := mocked(t, testkit.OnMySQL)
	mock.ExpectQuery("SELECT @@autocommit = 1 AND @@completion_type <> 'CHAIN'").WillReturnRows(sqlmock.NewRows([]string{"n"}).AddRow(0))
	_, err := d.OpenRegistry(t.Context(), layout, time.Second, workernode.Region{})
	testkit.IsError(t, err, nil, "autocommit is off")
}

package workernode_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
)

// patient calls f until it succeeds, for a minute at most. Callers of an application try again, too.
func patient(t *testing.T, what string, f func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		err := f(ctx)
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// use makes ids of a table, and gets its lease first if it has none.
func (p *process) use(t *testing.T, x workernode.Table, n int) {
	t.Helper()
	if p.generators[x] == nil {
		patient(t, "a lease for "+x.String(), func(ctx context.Context) error {
			leases, err := p.Assign(ctx, []workernode.Table{x}, nil)
			if err == nil {
				p.attach(leases[0])
			}
			return err
		})
	}
	patient(t, "ids of "+x.String(), func(ctx context.Context) error {
		for ; n > 0; n-- {
			id, err := p.generators[x].Next(ctx)
			if err != nil {
				return err
			}
			p.world.ledger.Add(x.String(), id)
		}
		return nil
	})
}

// end closes a process as an application does: the generators first.
func (p *process) end(t *testing.T) {
	t.Helper()
	for _, g := range p.generators {
		g.Close()
	}
	patient(t, "Close", p.Close)
}

// life is what a process does from its start to its end: all statements of the protocol occur.
func (w *world) life(t *testing.T, p *process) {
	t.Helper()
	patient(t, "Start", p.Start)
	p.use(t, table("orders"), 20)
	spare := table("spared")
	patient(t, "a spare", func(context.Context) error {
		l, ok := p.Spare(spare, 1)
		if !ok {
			return errors.New("no spare")
		}
		p.attach(l)
		return nil
	})
	p.use(t, spare, 5)
	for range 10 {
		time.Sleep(100 * time.Millisecond)
		p.use(t, table("orders"), 20)
		p.use(t, table("items"), 20)
		p.use(t, spare, 5)
	}
	time.Sleep(3 * time.Second)
	p.use(t, table("orders"), 5)
	p.end(t)
}

// faults are what can become of a statement, or of its answer.
var faults = map[string]func(c *testkit.Crossing) error{
	"lost":        func(c *testkit.Crossing) error { return testkit.ErrLost },
	"answer lost": func(c *testkit.Crossing) error { return errors.Join(c.Run(), testkit.ErrLost) },
	"odd error":   func(c *testkit.Crossing) error { return errors.Join(c.Run(), errors.New("odd")) },
	"no answer in time": func(c *testkit.Crossing) error {
		return errors.Join(c.Run(), c.Sleep(time.Second), context.DeadlineExceeded)
	},
	"unchanged": func(c *testkit.Crossing) error {
		if c.Is("UPDATE", "INSERT") {
			return testkit.ErrUnchanged
		}
		return c.Run()
	},
	"changed, and says it did not": func(c *testkit.Crossing) error {
		if c.Is("UPDATE", "INSERT") {
			return errors.Join(c.Run(), testkit.ErrUnchanged)
		}
		return c.Run()
	},
	"twice": func(c *testkit.Crossing) error {
		if c.Is("UPDATE", "SELECT") {
			return errors.Join(c.Run(), c.Run())
		}
		return c.Run()
	},
	"executed 100 ms later": func(c *testkit.Crossing) error {
		c.Later(100*time.Millisecond, nil)
		return testkit.ErrLost
	},
	"executed 800 ms later": func(c *testkit.Crossing) error {
		c.Later(800*time.Millisecond, nil)
		return testkit.ErrLost
	},
}

var faultsAll = flag.Bool("faults.all", false, "TestManager_SurvivesOneFaultAtAnyStatement tries all statements, not a part of them")

// One fault at any statement costs a process nothing but time: it gets its ids, none comes twice, and each resolves
// to its table and to a session. The same holds for the next process.
func TestManager_SurvivesOneFaultAtAnyStatement(t *testing.T) {
	t.Parallel()

	step := 4
	switch {
	case *faultsAll:
		step = 1
	case testkit.Race || testing.Short():
		step = 16
	}
	for i, name := range slices.Sorted(maps.Keys(faults)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fault := faults[name]
			for at, last := 1+i%step, step; at <= last; at += step {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					p := w.start(func(c *workernode.Config, _ *workernode.Host) { c.Spares = 1 })
					count, hit := 0, ""
					p.wire.Set(func(c *testkit.Crossing) error {
						if count++; count == at {
							hit = c.SQL
							return fault(c)
						}
						return c.Run()
					})
					w.life(t, p)
					last = count
					if s := p.Stats(); s.Lost+s.LostCommits > 0 && name != "changed, and says it did not" {
						t.Errorf("the slot was lost: %+v", s)
					}
					time.Sleep(3 * time.Second)
					next := w.start(nil)
					next.assign(table("orders"), table("items"), table("spared"))
					for x := range next.generators {
						next.make(x, 20)
					}
					if s := next.Stats(); s.Reclaimed != 1 {
						t.Errorf("the next process has no slot of the first: %+v", s)
					}
					w.check()
					if t.Failed() {
						t.Logf("the fault was at statement %d, %s", at, hit)
					}
				})
				if t.Failed() {
					return
				}
			}
		})
	}
}

// Rows of the tables as they were once, to restore them.
type snapshot map[string][]map[string]any

func (w *world) snapshot() snapshot {
	w.tb.Helper()
	s := snapshot{}
	for _, name := range []string{"WORKER_NODE", "WORKER_SLOT", "WORKER_SESSION", "WORKER_REGISTRY"} {
		var rows []map[string]any
		must(w.tb, w.db.Table(name).Find(&rows).Error)
		s[name] = rows
	}
	return s
}

func (w *world) restore(s snapshot) {
	w.tb.Helper()
	for name, rows := range s {
		run(w.tb, w.db, `DELETE FROM "`+name+`"`)
		for _, row := range rows {
			must(w.tb, w.db.Table(name).Create(row).Error)
		}
	}
}

// A promoted replica or a restored backup has old rows. If it was unreachable for longer than the lead, no tick is
// stamped twice, and the holder notices.
func TestManager_NoticesLostCommits(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		p.use(t, table("orders"), 10)
		old := w.snapshot()
		for range 10 {
			time.Sleep(100 * time.Millisecond)
			p.use(t, table("orders"), 10)
			p.use(t, table("items"), 10)
		}
		down := func(d time.Duration) {
			p.wire.Set(func(*testkit.Crossing) error { return testkit.ErrLost })
			for range 10 {
				time.Sleep(d / 10)
				_, _ = p.generators[table("orders")].Next(t.Context())
			}
			p.wire.Set(nil)
		}
		down(2100 * time.Millisecond)
		w.restore(old)
		for range 20 {
			time.Sleep(100 * time.Millisecond)
			p.use(t, table("orders"), 10)
			p.use(t, table("items"), 10)
		}
		if s := p.Stats(); s.LostCommits != 1 || s.Lost != 0 {
			t.Errorf("%+v", s)
		}
		w.logs("the database has lost commits")
		// Another process may get the slot that was given up: it stamps ticks that nobody has.
		time.Sleep(2 * time.Second)
		next := w.start(nil)
		for range 5 {
			next.use(t, table("orders"), 10)
			next.use(t, table("items"), 10)
		}
	})
}

// The same when another process is first to see the old rows.
func TestManager_LostCommitsWhenAnotherProcessIsFirst(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		p.use(t, table("orders"), 10)
		p.end(t)
		time.Sleep(3 * time.Second)
		old := w.snapshot() // the slot is free
		p = w.start(nil)
		p.use(t, table("orders"), 10)
		for range 10 {
			time.Sleep(100 * time.Millisecond)
			p.use(t, table("orders"), 5000)
		}
		p.wire.Set(func(*testkit.Crossing) error { return testkit.ErrLost })
		time.Sleep(2100 * time.Millisecond)
		w.restore(old)
		next := w.start(nil)
		next.use(t, table("orders"), 5000)
		if s := next.Stats(); s.Reclaimed != 1 || s.Slot != 1 {
			t.Errorf("%+v", s)
		}
		p.wire.Set(nil)
		for range 10 {
			time.Sleep(100 * time.Millisecond)
			p.use(t, table("orders"), 500)
			next.use(t, table("orders"), 500)
		}
		if s := p.Stats(); s.Lost != 1 || s.Slot == 1 {
			t.Errorf("%+v", s)
		}
	})
}

// A slot whose row is gone, or which somebody has emptied, is lost, and another one follows.
func TestManager_SurvivesRowsThatAreChanged(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		change func(w *world) string
		logs   string
		slot   int64 // afterwards; 0: any
	}{
		"deleted":                {func(*world) string { return `DELETE FROM "WORKER_SLOT"` }, "has lost its slot", 2},
		"emptied":                {func(*world) string { return `UPDATE "WORKER_SLOT" SET "HOLDER" = ''` }, "has lost its slot", 2},
		"another holder":         {func(*world) string { return `UPDATE "WORKER_SLOT" SET "HOLDER" = 'a' || char(10) || 'b'` }, "has lost its slot", 2},
		"a later version":        {func(*world) string { return `UPDATE "WORKER_SLOT" SET "VERSION" = "VERSION" + 100` }, "", 1},
		"an earlier version":     {func(*world) string { return `UPDATE "WORKER_SLOT" SET "VERSION" = 0` }, "lost commits", 2},
		"a huge version":         {func(*world) string { return `UPDATE "WORKER_SLOT" SET "VERSION" = 9223372036854775807` }, "", 0},
		"a lower fence":          {func(*world) string { return `UPDATE "WORKER_SLOT" SET "FENCE" = "FENCE" - 500` }, "", 1},
		"a fence slightly ahead": {func(*world) string { return `UPDATE "WORKER_SLOT" SET "FENCE" = "FENCE" + 5` }, "", 0},
		"a fence of tomorrow":    {func(*world) string { return `UPDATE "WORKER_SLOT" SET "FENCE" = "FENCE" + 86400000` }, "further ahead of the clock than the lead", 2},
		"a fence at the end":     {func(w *world) string { return fmt.Sprintf(`UPDATE "WORKER_SLOT" SET "FENCE" = %d`, layout.MaxTick()) }, "further ahead of the clock than the lead", 2},
		"the largest fence":      {func(*world) string { return `UPDATE "WORKER_SLOT" SET "FENCE" = 9223372036854775807` }, "further ahead of the clock than the lead", 2},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				p := w.start(func(c *workernode.Config, _ *workernode.Host) { c.Spares = 1 })
				p.use(t, table("orders"), 10)
				time.Sleep(100 * time.Millisecond)
				run(t, w.db, tt.change(w))
				for range 30 {
					time.Sleep(100 * time.Millisecond)
					p.use(t, table("orders"), 10)
				}
				w.logs(tt.logs)
				s := p.Stats()
				if s.Slot == 0 || tt.slot != 0 && s.Slot != tt.slot || s.LastError != nil {
					t.Errorf("%+v", s)
				}
				next := w.start(nil)
				next.use(t, table("orders"), 10)
				time.Sleep(2 * time.Minute)
				next.use(t, table("orders"), 10)
			})
		})
	}
}

// FLOOR_TICK is set after a restore, when nobody knows how far ids went: no tick up to it may be stamped.
func TestManager_StampsNoTickUpToTheFloor(t *testing.T) {
	t.Parallel()

	for _, ahead := range []int64{-1000, -1, 0, 1, 500, 999} {
		t.Run(fmt.Sprint(ahead), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				first := w.start(nil)
				first.use(t, table("orders"), 10)
				first.end(t)
				time.Sleep(3 * time.Second)
				floor := w.tick() + ahead
				run(t, w.db, `UPDATE "WORKER_REGISTRY" SET "FLOOR_TICK" = ?`, floor)
				for _, host := range []string{"shop", "other"} { // one reclaims, the other inserts
					p := w.start(func(_ *workernode.Config, h *workernode.Host) { h.Application = host })
					for _, l := range p.assign(table("orders"), table("items")) {
						for _, lease := range l.Leases() {
							if lease.From != max(floor+1, w.tick()) {
								t.Errorf("%s: from %d, the floor is %d and now is %d", host, lease.From, floor, w.tick())
							}
						}
					}
					for _, id := range p.make(table("items"), 20) {
						if _, tick := w.parts(id); tick <= floor {
							t.Errorf("the tick %d is not above the floor %d", tick, floor)
						}
					}
				}
				w.check()
			})
		})
	}
}

// A floor that leaves nothing to stamp must be an error that names it, for a process that starts and for one that
// adds a table.
func TestManager_AFloorTooFarAheadIsAnError(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		name  string
		floor int64
	}{{"an hour", 0}, {"the last tick", layout.MaxTick()}, {"the largest number", 1<<63 - 1}} {
		for _, running := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, running %v", tt.name, running), func(t *testing.T) {
				bubble(t, func(t *testing.T, w *world) {
					p := w.start(nil)
					if running {
						p.use(t, table("orders"), 10)
					}
					floor := tt.floor
					if floor == 0 {
						floor = w.tick() + 3_600_000
					}
					run(t, w.db, `UPDATE "WORKER_REGISTRY" SET "FLOOR_TICK" = ?`, floor)
					p.wire.Set(func(c *testkit.Crossing) error { return errors.Join(c.Sleep(time.Millisecond), c.Run()) })
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
					defer cancel()
					_, err := p.Assign(ctx, []workernode.Table{table("items")}, nil)
					if !errors.Is(err, workernode.ErrClock) || ctx.Err() != nil {
						t.Fatalf("%v, %v", err, ctx.Err())
					}
					saysAll(t, err.Error(), "FLOOR_TICK", fmt.Sprint(floor), "WORKER_REGISTRY")
				})
			})
		}
	}
}

// Rows that no process can use are reported, and left alone.
func TestManager_IgnoresHostileRows(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		first := w.start(nil)
		first.use(t, table("orders"), 10)
		first.end(t)
		row := `INSERT INTO "WORKER_NODE" ("ID", "HOST_NAME", "PORT", "TYPE", "LAUNCH_DATE", "SLOT", "TABLE_NAME", "LAYOUT", "START_TICK") VALUES (?, '', '', 1, '2026-01-01', ?, ?, ?, ?)`
		for _, r := range []struct {
			id, slot int64
			layout   string
			start    int64
		}{
			{0, 1, layout.String(), 0}, {-4, 1, layout.String(), 0}, {layout.MaxWorkerID() + 1, 1, layout.String(), 0}, {1 << 62, 1, layout.String(), 0},
			{100, 1, generator.SnowflakeLayout().String(), 0}, {101, 1, "", 0}, {102, 1, layout.String(), 1 << 62}, {103, 1, layout.String(), w.tick() + 3_600_000},
		} {
			run(t, w.db, row, r.id, r.slot, "items", r.layout, r.start)
		}
		slot := `INSERT INTO "WORKER_SLOT" VALUES (?, ?, ?, ?, ?, ?, ?, 'shop', 'web-1', '8080', CURRENT_TIMESTAMP)`
		for _, r := range []struct {
			id             int64
			layout         string
			reusable       int
			fence, version int64
			holder         string
			seen           int64
		}{
			{0, layout.String(), 1, 5, 5, "", 5}, {-3, layout.String(), 1, 5, 5, "", 5},
			{50, layout.String(), 1, 5, 1<<63 - 1, "", 5}, {51, layout.String(), 1, 5, -1, "", 5}, {52, layout.String(), 1, 1<<63 - 1, 5, "", 5},
			{53, layout.String(), 0, 5, 5, "", 5}, {54, generator.SnowflakeLayout().String(), 1, 5, 5, "", 5},
			{55, layout.String(), 1, 5, 5, "some\nbody", 1 << 62}, {56, layout.String(), 1, -1 << 63, 5, "\x00", 1 << 62},
		} {
			run(t, w.db, slot, r.id, r.layout, r.reusable, r.fence, r.version, r.holder, r.seen)
		}
		time.Sleep(3 * time.Second)
		for range 2 {
			p := w.start(nil)
			p.assign(table("orders"), table("items"))
			if got := p.Stats().Slot; got != 1 && got != 2 {
				t.Errorf("slot %d", got)
			}
			for _, id := range append(p.make(table("items"), 10), p.make(table("orders"), 10)...) {
				if worker, _ := w.parts(id); worker < 1 || worker > 10 && worker < 100 || worker >= 100 && worker <= 103 {
					t.Fatalf("the worker id %d is used", worker)
				}
			}
		}
		w.logs("is not used", "outside the layout", "LAYOUT is", "START_TICK is ahead of the clock")
	})
}

// An audit trigger inserts into other tables, so that LAST_INSERT_ID, or the number of changes, is of those.
func TestManager_AuditTriggersDoNotDisturb(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		run(t, w.db, `CREATE TABLE "AUDIT" ("ID" INTEGER PRIMARY KEY AUTOINCREMENT, "WHAT" TEXT)`)
		run(t, w.db, `INSERT INTO "AUDIT" VALUES (5000, 'x')`)
		for _, name := range []string{"WORKER_NODE", "WORKER_SLOT", "WORKER_SESSION", "WORKER_REGISTRY"} {
			for _, event := range []string{"INSERT", "UPDATE"} {
				run(t, w.db, fmt.Sprintf(`CREATE TRIGGER "%[1]s_%[2]s" AFTER %[2]s ON "%[1]s" BEGIN INSERT INTO "AUDIT" ("WHAT") VALUES ('%[1]s'), ('again'); END`, name, event))
			}
		}
		p := w.start(func(c *workernode.Config, _ *workernode.Host) { c.Spares = 1 })
		w.life(t, p)
		if s := p.Stats(); s.Sessions > 2 || s.Lost+s.LostCommits > 0 {
			t.Errorf("%+v", s)
		}
		for _, n := range w.nodes() {
			if n.WorkerID > 10 {
				t.Errorf("%+v", n)
			}
		}
		w.check()
	})
}

// A trigger that undoes every change leaves nothing that a process could do. It must say so, and not keep the
// database busy.
func TestManager_ReportsATriggerThatUndoesChanges(t *testing.T) {
	for name, trigger := range map[string]string{
		"ignored":  `CREATE TRIGGER "UNDO" BEFORE UPDATE ON "WORKER_SLOT" BEGIN SELECT RAISE(IGNORE); END`,
		"restored": `CREATE TRIGGER "UNDO" AFTER UPDATE ON "WORKER_SLOT" WHEN OLD."VERSION" < 1000000 BEGIN UPDATE "WORKER_SLOT" SET "VERSION" = "OLD"."VERSION" + 2000000, "FENCE" = "OLD"."FENCE" WHERE "ID" = "OLD"."ID"; END`,
		"refused":  `CREATE TRIGGER "UNDO" BEFORE UPDATE ON "WORKER_SLOT" BEGIN SELECT RAISE(ABORT, 'not while I watch'); END`,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				p := w.start(nil)
				must(t, p.Start(t.Context()))
				run(t, w.db, trigger)
				p.wire.Take()
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				_, err := p.Assign(ctx, []workernode.Table{table("orders")}, nil)
				switch {
				case err == nil:
					t.Fatal("no error")
				case ctx.Err() != nil:
					t.Fatalf("the context ended first: %v", err)
				case name == "ignored":
					saysAll(t, err.Error(), "changed no row", "slot 1", "VERSION", "undoes the change")
				case name == "restored": // the trigger lets the second attempt pass
					saysAll(t, err.Error(), "0 new rows")
				default:
					saysAll(t, err.Error(), "not while I watch")
				}
				time.Sleep(20 * time.Second)
				if n := len(p.wire.Take()); n > 2000 {
					t.Errorf("%d statements", n)
				}
				run(t, w.db, `DROP TRIGGER "UNDO"`)
				p.use(t, table("orders"), 10)
			})
		})
	}
}

// A process whose user may not insert fails at every start. Each would use up worker ids, until none were left.
func TestManager_WithoutTheRightToInsertUsesUpNoWorkerIDs(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.start(nil)
		for range 5 {
			p := w.start(nil)
			denied := errors.New("Error 1142 (42000): INSERT command denied to user")
			p.wire.Set(func(c *testkit.Crossing) error {
				if c.Is("INSERT INTO WORKER_NODE") {
					return denied
				}
				return c.Run()
			})
			for range 3 {
				_, err := p.Assign(t.Context(), []workernode.Table{table("orders")}, nil)
				if !errors.Is(err, denied) {
					t.Fatal(err)
				}
				saysAll(t, err.Error(), "WORKER_NODE", "right to insert")
			}
			must(t, p.Close(t.Context()))
			time.Sleep(3 * time.Second)
		}
		if n := w.number(`SELECT "NEXT_ID" FROM "WORKER_REGISTRY"`); n != 1 {
			t.Errorf("NEXT_ID is %d", n)
		}
		if n := w.number(`SELECT COUNT(*) FROM "WORKER_SLOT"`); n != 1 {
			t.Errorf("%d slots", n)
		}
	})
}

// lock makes statements that change the row of a slot wait, as a transaction that holds a lock on it does. Those that
// read it work.
func (w *world) lock(slot int64) {
	w.tb.Helper()
	run(w.tb, w.db, fmt.Sprintf(`CREATE TRIGGER "LOCK%d" BEFORE UPDATE ON "WORKER_SLOT" WHEN OLD."ID" = %d BEGIN SELECT RAISE(ABORT, 'row locked'); END`, slot, slot))
}

func (w *world) unlock(slot int64) {
	w.tb.Helper()
	run(w.tb, w.db, fmt.Sprintf(`DROP TRIGGER "LOCK%d"`, slot))
}

// waits is the hook of a process that waits for locks until its context ends.
func waits(c *testkit.Crossing) error {
	err := c.Run()
	if err != nil && strings.Contains(err.Error(), "row locked") {
		<-c.Context.Done()
		err = c.Context.Err()
	}
	return err
}

// A transaction that held a lock on the row of a free slot kept each new process from starting, which tried that slot
// again and again. It must take another one.
func TestManager_StartsWhileFreeSlotsAreLocked(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct{ free, locked int64 }{{1, 1}, {2, 1}, {4, 4}} {
		t.Run(fmt.Sprintf("%d of %d", tt.locked, tt.free), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				var before []*process
				for range tt.free {
					p := w.start(nil)
					p.use(t, table("orders"), 10)
					before = append(before, p)
				}
				for _, p := range before {
					p.end(t)
				}
				time.Sleep(3 * time.Second)
				for slot := range tt.locked {
					w.lock(slot + 1)
				}
				p := w.start(nil)
				p.wire.Set(waits)
				begin := time.Now()
				p.use(t, table("orders"), 10)
				if took := time.Since(begin); took > 15*time.Second {
					t.Errorf("the first ids came after %v", took)
				}
				if s := p.Stats(); s.Slot <= tt.locked || (tt.free > tt.locked) != (s.Reclaimed == 1) {
					t.Errorf("%+v", s)
				}
				for range 30 {
					time.Sleep(100 * time.Millisecond)
					p.use(t, table("orders"), 10)
				}
				w.check()
			})
		})
	}
}

// A process whose own row somebody had locked made no ids until the lock was released. It must take another slot as
// soon as what was granted is used up, and not sooner: that would cost worker ids each time.
func TestManager_LeavesALockedSlot(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		locked time.Duration
		lost   uint64
	}{
		"for a moment": {600 * time.Millisecond, 0},
		"for long":     {20 * time.Second, 1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				p := w.start(nil)
				p.wire.Set(waits)
				p.use(t, table("orders"), 10)
				until := p.Stats().Until
				w.lock(1)
				longest := time.Duration(0)
				for begin := time.Now(); time.Since(begin) < tt.locked; time.Sleep(50 * time.Millisecond) {
					if s := p.Stats(); s.Slot != 1 && w.tick() <= until {
						t.Fatalf("the slot was given up before the tick %d: %+v", until, s)
					}
					asked := time.Now()
					p.use(t, table("orders"), 200) // more in all than a lead has
					longest = max(longest, time.Since(asked))
				}
				w.unlock(1)
				if longest > 15*time.Second {
					t.Errorf("ids came after %v", longest)
				}
				for range 30 {
					time.Sleep(100 * time.Millisecond)
					p.use(t, table("orders"), 10)
				}
				if s := p.Stats(); s.Slot == 0 || (s.Slot != 1) != (tt.lost > 0) || s.LastError != nil {
					t.Errorf("%+v", s)
				}
				if tt.lost > 0 {
					w.logs("its row can be read and not be changed")
				}
				w.check()
			})
		})
	}
}

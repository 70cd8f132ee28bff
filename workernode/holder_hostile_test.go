package workernode_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
)

// Rows that no process can use are reported and stay unchanged.
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
			{2100, 1, generator.SnowflakeLayout().String(), 0}, {2101, 1, "", 0}, {2102, 1, layout.String(), 1 << 62}, {2103, 1, layout.String(), w.tick() + 3_600_000},
			{1024, 1, layout.String(), 0},
		} {
			run(t, w.db, row, r.id, r.slot, "items", r.layout, r.start)
		}
		slot := `INSERT INTO "WORKER_SLOT" VALUES (?, ?, ?, ?, ?, ?, ?, 'shop', 'web-1', '8080', CURRENT_TIMESTAMP, 0)`
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
			if got := p.Stats().ID; got != 1 && got != 2 {
				t.Errorf("slot %d", got)
			}
			for _, id := range append(p.make(table("items"), 10), p.make(table("orders"), 10)...) {
				if worker, _ := w.parts(id); worker < 1025 || worker > 1034 {
					t.Fatalf("the worker id %d is used", worker)
				}
			}
		}
		w.logs("is not used", "outside the layout", "LAYOUT is", "START_TICK is ahead of the clock", "below FIRST_ID")
	})
}

// An audit trigger inserts into other tables, so LAST_INSERT_ID and the number of changes may be those of its INSERT.
func TestManager_AuditTriggersDoNotDisturb(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		run(t, w.db, `CREATE TABLE "AUDIT" ("ID" INTEGER PRIMARY KEY AUTOINCREMENT, "WHAT" TEXT)`)
		run(t, w.db, `INSERT INTO "AUDIT" VALUES (5000, 'x')`)
		for _, name := range []string{"WORKER_NODE", "WORKER_SLOT", "WORKER_SESSION", "WORKER_REGISTRY"} {
			for _, event := range []string{"INSERT", "UPDATE"} {
				run(t, w.db, fmt.Sprintf(`CREATE TRIGGER "%[1]s_%[2]s" AFTER %[2]s ON "%[1]s" BEGIN INSERT INTO "AUDIT" ("WHAT") VALUES ('%[1]s'), ('again'); END`, name, event))
			}
		}
		p := w.start(nil)
		w.life(t, p)
		if s := p.Stats(); s.Sessions > 2 || s.Lost+s.LostCommits > 0 {
			t.Errorf("%+v", s)
		}
		for _, n := range w.nodes() {
			if n.WorkerID > 1034 {
				t.Errorf("%+v", n)
			}
		}
		w.check()
	})
}

// A trigger that undoes every change leaves nothing that a process could do. It must say so, and not keep the
// database busy.
func TestManager_ReportsATriggerThatUndoesChanges(t *testing.T) {
	type undone struct {
		trigger string
		says    []string
	}
	each(t, map[string]undone{
		"ignored": {`CREATE TRIGGER "UNDO" BEFORE UPDATE ON "WORKER_SLOT" BEGIN SELECT RAISE(IGNORE); END`,
			[]string{"changed no row", "slot 1", "VERSION", "undoes our change"}},
		"restored": {`CREATE TRIGGER "UNDO" AFTER UPDATE ON "WORKER_SLOT" WHEN OLD."VERSION" < 1000000 BEGIN UPDATE "WORKER_SLOT" SET "VERSION" = "OLD"."VERSION" + 2000000, "FENCE" = "OLD"."FENCE" WHERE "ID" = "OLD"."ID"; END`,
			[]string{"did not keep FENCE"}},
		"refused": {`CREATE TRIGGER "UNDO" BEFORE UPDATE ON "WORKER_SLOT" BEGIN SELECT RAISE(ABORT, 'not while I watch'); END`,
			[]string{"not while I watch"}},
	}, func(t *testing.T, w *world, tt undone) {
		p := w.start(nil)
		must(t, p.Start(t.Context()))
		run(t, w.db, tt.trigger)
		p.wire.Take()
		p.refused(20*time.Second, table("orders"), nil, tt.says...)
		time.Sleep(20 * time.Second)
		if n := len(p.wire.Take()); n > 1000 {
			t.Errorf("%d statements", n)
		}
		run(t, w.db, `DROP TRIGGER "UNDO"`)
		p.use(t, table("orders"), 10)
	})
}

// A database that stores another FENCE than it acknowledges gives one tick to two processes. No process may begin with
// it. One that runs already must notice it at its next renewal, say so, get nothing more, and keep its slot from
// others.
func TestManager_GrantsNothingIfFenceIsNotKept(t *testing.T) {
	const (
		lowered   = `CREATE TRIGGER "LOWER" AFTER UPDATE ON "WORKER_SLOT" WHEN NEW."FENCE" > 5 BEGIN UPDATE "WORKER_SLOT" SET "FENCE" = 5 WHERE "ID" = NEW."ID"; END`
		unchanged = `CREATE TRIGGER "LOWER" AFTER UPDATE ON "WORKER_SLOT" BEGIN UPDATE "WORKER_SLOT" SET "FENCE" = OLD."FENCE" WHERE "ID" = NEW."ID"; END`
	)
	says := []string{"WORKER_SLOT", "did not keep FENCE = ", " of slot ", "trigger", "too narrow"}
	for name, trigger := range map[string]string{"lowered": lowered, "unchanged": unchanged} {
		t.Run(name+" at the start", func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				run(t, w.db, trigger)
				p := w.start(nil)
				p.refused(time.Minute, table("orders"), workernode.ErrTable, says...)
				if n := w.number(`SELECT COUNT(*) FROM "WORKER_SLOT"`); n != 0 {
					t.Errorf("%d slots", n)
				}
				run(t, w.db, `DROP TRIGGER "LOWER"`)
				p.use(t, table("orders"), 10)
			})
		})
		t.Run(name+" at a reclaim", func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				w.formers(3, table("a"))
				run(t, w.db, trigger)
				p := w.start(nil)
				p.refused(time.Minute, table("a"), workernode.ErrTable, says...)
				run(t, w.db, `DROP TRIGGER "LOWER"`)
				p.use(t, table("a"), 10)
				if s := p.Stats(); s.ID > 3 {
					t.Errorf("it has not reclaimed a slot: %+v", s)
				}
			})
		})
		t.Run(name+" while it runs", func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				p := w.start(nil)
				p.use(t, table("orders"), 10)
				run(t, w.db, trigger)
				time.Sleep(3 * time.Second)
				var err error
				for n := 0; err == nil && n < 100_000; n++ { // of what was granted before
					var id int64
					if id, err = p.generators[table("orders")].Next(t.Context()); err == nil {
						w.ledger.Add("orders", id)
					}
				}
				testkit.IsError(t, err, generator.ErrLeaseExpired, says...)
				testkit.IsError(t, p.Stats().LastError, workernode.ErrTable, says...)
				w.logs("level=ERROR", "did not keep FENCE")
				p.refused(time.Minute, table("items"), workernode.ErrTable, says...)
				_, err = p.closeWithin(t, time.Minute)
				testkit.IsError(t, err, workernode.ErrTable, says...)
				run(t, w.db, `DROP TRIGGER "LOWER"`)
				if s := w.slot(1); s.Holder == "" {
					t.Errorf("the slot is free, with a FENCE below what was stamped: %+v", s)
				}
				next := w.start(nil) // the slot is not free for a minute
				next.use(t, table("orders"), 10)
				if s := next.Stats(); s.ID != 2 {
					t.Errorf("%+v", s)
				}
			})
		})
		t.Run(name+" for a while", func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				p := w.start(nil)
				p.use(t, table("orders"), 10)
				run(t, w.db, trigger)
				time.Sleep(2 * time.Second)
				if p.Stats().LastError == nil {
					t.Error("it has not noticed")
				}
				run(t, w.db, `DROP TRIGGER "LOWER"`)
				time.Sleep(time.Second)
				p.use(t, table("orders"), 1000)
				if s := p.Stats(); s.LastError != nil || s.Lost != 0 || s.ID != 1 {
					t.Errorf("%+v", s)
				}
				w.check()
			})
		})
	}
}

// A trigger that clears the row of a free slot lowers FENCE when a process releases its slot. Formerly the next process
// then stamped ticks that the former one had stamped ahead of the clock.
func TestManager_KeepsASlotWhoseReleaseLowersFence(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		run(t, w.db, `CREATE TRIGGER "CLEAR" AFTER UPDATE ON "WORKER_SLOT" WHEN NEW."HOLDER" = '' BEGIN UPDATE "WORKER_SLOT" SET "FENCE" = 0 WHERE "ID" = NEW."ID"; END`)
		p := w.start(nil)
		p.use(t, table("orders"), 30_000)
		_, err := p.closeWithin(t, time.Minute)
		testkit.IsError(t, err, workernode.ErrTable, "did not keep FENCE")
		next := w.start(nil)
		next.use(t, table("orders"), 30_000)
		w.check()
	})
}

// Somebody deletes or changes rows of WORKER_NODE while a process stamps with their worker ids. The log must say so,
// and later ids must have worker ids that resolve, also if the row comes back.
func TestManager_ReplacesWorkerIDsThatWereDeleted(t *testing.T) {
	each(t, map[string]string{
		"deleted": `DELETE FROM "WORKER_NODE" WHERE "TABLE_NAME" = 'orders'`,
		"renamed": `UPDATE "WORKER_NODE" SET "TABLE_NAME" = 'invoices' WHERE "TABLE_NAME" = 'orders'`,
	}, func(t *testing.T, w *world, change string) {
		p := w.start(nil)
		p.use(t, table("orders"), 10)
		p.use(t, table("items"), 10)
		run(t, w.db, change)
		for range 22 * 60 {
			time.Sleep(time.Second)
			p.use(t, table("items"), 1)
		}
		w.logs("level=ERROR", "the row of a worker id was deleted", "table=orders")
		ids := p.make(table("orders"), 1)
		ids = append(ids, p.make(table("orders"), 10)...)
		worker, _ := w.parts(ids[len(ids)-1])
		if n := w.number(`SELECT COUNT(*) FROM "WORKER_NODE" WHERE "ID" = ? AND "TABLE_NAME" = 'orders'`, worker); n != 1 {
			t.Errorf("the worker id %d has no row", worker)
		}
		p.use(t, table("invoices"), 10)
		if worker, _ := w.parts(p.make(table("invoices"), 1)[0]); worker <= 2 {
			t.Errorf("the worker id %d of another table is used", worker)
		}
		if s := p.Stats(); s.LastError != nil || s.WorkerIDs != 3 {
			t.Errorf("%+v", s)
		}
		if n := strings.Count(w.log.String(), "was deleted"); n != 1 {
			t.Errorf("%d lines about one row", n)
		}
	})
}

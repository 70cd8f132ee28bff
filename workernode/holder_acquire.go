package workernode

import (
	"context"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/workernode/internal/lease"
)

// acquire gets a slot that a process has left, or a new one. If tables is empty, it reclaims only slots of this
// application. Otherwise it reclaims slots of any application that own worker ids for one of the tables.
func (h *slotHolder) acquire(ctx context.Context, tables []Table) error {
	if err := h.clock.layout.ValidAt(h.clock.now()); err != nil {
		return err
	}
	if err := h.check.check(ctx); err != nil {
		return err
	}
	if !h.store.disposable {
		if ok, err := h.reclaim(ctx, tables); ok || err != nil {
			return err
		}
	}
	slot, err := h.store.nextSlot(ctx, h.leastSlot)
	if err != nil {
		return fmt.Errorf("workernode: reserve a slot: %w", err)
	}
	c := h.lease.AllocateChange(h.params, slot, h.clock.tick(), h.me)
	ok, err := h.beginSession(ctx, &c)
	if errors.Is(err, errTaken) && h.slotTries < maxTries {
		h.slotTries++ // NEXT_SLOT is behind, because its latest commits were lost or the row was restored
		h.leastSlot = slot + 1<<h.slotTries
		return pause(ctx, h.slotTries)
	}
	h.slotTries = 0
	if ok {
		h.stats.Allocated++
	}
	return err
}

// reclaim tries to get a slot that a process has left.
func (h *slotHolder) reclaim(ctx context.Context, tables []Table) (bool, error) {
	for look := 1; ; look++ {
		rows, err := h.candidates(ctx, tables)
		if err != nil {
			return false, err
		}
		rows = lease.InOrder(rows, mathrand.Shuffle)
		got, refused, err := h.reclaimOne(ctx, rows)
		if got || err != nil || !lease.LooksAgain(len(rows), refused, look) {
			return got, err
		}
	}
}

// reclaimOne tries to get one of the slots in rows. refused counts slots that were changed after the read.
func (h *slotHolder) reclaimOne(ctx context.Context, rows []lease.Row) (got bool, refused int, err error) {
	failures := 0
	for _, r := range rows {
		if time.Since(h.avoid[r.ID]) < grace && !h.avoid[r.ID].IsZero() {
			continue
		}
		c := h.lease.ReclaimChange(h.params, r, h.clock.tick(), h.me)
		ok, err := h.beginSession(ctx, &c)
		if errors.Is(err, sqldb.ErrNoConnection) || errors.Is(err, ErrTable) || sqldb.IsTransient(err) && !lockWait.MatchString(err.Error()) {
			return false, refused, err // another slot would not help: no connection, a bad table, or a conflict
		}
		if err != nil {
			// The row may be locked or unreadable, so try another slot or a new one.
			h.avoid[r.ID] = time.Now()
			if timedOut(err) {
				failures++
			}
			if failures > 1 || ctx.Err() != nil || !timedOut(err) && sqldb.IsUnreachable(err) {
				return false, refused, err
			}
			continue
		}
		if ok {
			h.stats.Reclaimed++
			return true, refused, nil
		}
		refused++
	}
	return false, refused, nil
}

func (h *slotHolder) candidates(ctx context.Context, tables []Table) ([]lease.Row, error) {
	if len(tables) > 0 {
		return h.store.candidatesWithTables(ctx, h.params, h.clock.tick(), tables)
	}
	return h.store.candidatesOfApplication(ctx, h.params, h.clock.tick())
}

// begin begins a new session in the same slot.
func (h *slotHolder) begin(ctx context.Context) error {
	if err := h.check.check(ctx); err != nil {
		return err
	}
	c := h.lease.BeginChange(h.params, h.clock.tick(), h.me)
	ok, err := h.beginSession(ctx, &c)
	if err == nil && !ok {
		return h.refuse(ctx, "begin a session")
	}
	return err
}

// beginSession begins a session by the change c, in the same slot or another.
func (h *slotHolder) beginSession(ctx context.Context, c *lease.Change) (bool, error) {
	nodes, floor, ok, err := h.store.beginSession(ctx, c, h.clock.tick)
	if !ok {
		if h.lease.Held {
			h.lease.Doubt()
			h.giveUpIfLocked(err)
		}
		layout := h.clock.layout
		if err == nil && floor >= c.NewFence {
			err = fmt.Errorf("%w: FLOOR_TICK in %s is %d (%s), but the clock is at %s, and ids are stamped at most %v ahead;"+
				" correct the clock if it is behind, or else wait, or set FLOOR_TICK as docs/failures.md describes",
				ErrClock, RegistryTable, floor, layout.TimeOf(min(floor, layout.MaxTick())),
				h.clock.now().UTC().Format(time.RFC3339), h.lead)
		} else if err == nil && c.First > c.NewFence {
			err = h.tooLate()
		}
		return false, err
	}
	h.nodes = nodes
	if c.Insert {
		h.nodes = nil // the slot is new, so it owns no worker ids
	}
	h.lease.NoteSession(*c, floor)
	h.noteAck()
	h.stats.Sessions++
	return true, nil
}

// tooLate is the error for a session whose ticks have passed before the process could use it.
func (h *slotHolder) tooLate() error {
	return fmt.Errorf("workernode: begin a session: the database's answers took longer than the lead of %v (LEAD_TICKS in %s): %w",
		h.lead, RegistryTable, context.DeadlineExceeded)
}

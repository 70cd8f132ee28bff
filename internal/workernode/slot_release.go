package workernode

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// How a slotHolder loses or releases its slot. lost sends no statement. release sends the UPDATE that frees the slot.

// lost forgets the slot and logs the reason.
func (h *slotHolder) lost(slot int64, why string) {
	if !h.closing() {
		h.log.Warn("uidplugin: this process has lost its slot and gets another: "+why, "slot", slot)
	}
	h.lease.lose()
}

// giveUpIfLocked gives up a slot whose row seems to be locked: statements time out although the row can be read, and
// its grants are used up. Giving up a slot is always safe.
func (h *slotHolder) giveUpIfLocked(err error) {
	if err == nil || !timedOut(err) && !lockWait.MatchString(err.Error()) {
		h.timeouts = 0
		return
	}
	h.timeouts++
	if h.timeouts > 2 && h.clock.tick() > h.lease.granted {
		h.timeouts = 0
		h.avoid[h.lease.id] = time.Now()
		h.lost(h.lease.id, "its row can be read and not be changed; another transaction may hold a lock")
	}
}

// checkLostCommits releases a slot whose row has an older VERSION than acknowledged. If that succeeds, the database has
// lost commits.
func (h *slotHolder) checkLostCommits(ctx context.Context) error {
	slot := h.lease.id
	if ok, err := h.release(ctx); !ok {
		return err
	}
	h.stats.LostCommits++
	h.lost(slot, "the database has lost commits that it had acknowledged")
	return nil
}

// abandon releases a slot whose fence is too far ahead to grant anything.
func (h *slotHolder) abandon(ctx context.Context) error {
	slot, fence, layout := h.lease.id, h.lease.fence, h.clock.layout
	if ok, err := h.release(ctx); !ok {
		return err
	}
	h.lost(slot, fmt.Sprintf("FENCE in %s is %d (%s), further ahead of the clock than the lead of %v",
		SlotTable, fence, layout.TimeOf(min(max(fence, 0), layout.MaxTick())), h.lead))
	return nil
}

// release frees the slot as last read, and forgets it. It reports false if the slot was not released.
func (h *slotHolder) release(ctx context.Context) (bool, error) {
	c := h.lease.releaseChange(h.me)
	ok, err := h.store.release(ctx, c, h.clock.tick())
	if ok, err := h.counts(ctx, ok, err, "release the slot"); !ok {
		return false, err
	}
	h.refused = 0
	h.lease.lose()
	return true, nil
}

// releaseForClose sends one statement after another, until the slot is released or one fails.
func (h *slotHolder) releaseForClose(ctx context.Context) error {
	for range 4 * maxRefused {
		var err error
		switch next := h.lease.next(h.params, h.clock.tick()); {
		case next == stepAcquire:
			return nil
		case next == stepRead:
			err = h.read(ctx)
		case next == stepCheckCommits:
			err = h.checkLostCommits(ctx)
		case h.lease.altered():
			return errFence(h.lease.id, h.lease.granted)
		default:
			_, err = h.release(ctx)
		}
		if err != nil {
			return err
		}
	}
	return errors.New("workernode: the slot was not released: its row changes all the time")
}

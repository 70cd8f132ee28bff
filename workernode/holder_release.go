package workernode

import (
	"context"
	"errors"
	"fmt"
)

// How a slotHolder releases its slot.

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
	return errors.New("workernode: the slot was not released: its row keeps changing")
}

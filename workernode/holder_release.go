package workernode

import (
	"context"
	"errors"
	"fmt"

	"github.com/uidplugin/uidplugin/workernode/internal/lease"
)

// checkLostCommits releases a slot whose row has an old VERSION. If this succeeds, the database has lost commits.
func (h *slotHolder) checkLostCommits(ctx context.Context) error {
	slot := h.lease.ID
	if ok, err := h.release(ctx); !ok {
		return err
	}
	h.stats.LostCommits++
	h.lost(slot, "the database has lost commits that it had acknowledged")
	return nil
}

// abandon releases a slot whose fence is too far ahead to grant anything.
func (h *slotHolder) abandon(ctx context.Context) error {
	slot, fence, layout := h.lease.ID, h.lease.Fence, h.clock.layout
	if ok, err := h.release(ctx); !ok {
		return err
	}
	h.lost(slot, fmt.Sprintf("FENCE in %s is %d (%s), further ahead of the clock than the lead of %v",
		SlotTable, fence, layout.TimeOf(min(max(fence, 0), layout.MaxTick())), h.lead))
	return nil
}

// release frees the slot if its row is as last known, and then forgets the slot.
func (h *slotHolder) release(ctx context.Context) (bool, error) {
	c := h.lease.ReleaseChange(h.me)
	ok, err := h.store.release(ctx, c, h.clock.tick())
	if ok, err := h.succeeded(ctx, ok, err, "release the slot"); !ok {
		return false, err
	}
	h.refused = 0
	h.lease.Lose()
	return true, nil
}

// releaseForClose sends one statement after another, until the process has no slot or a statement fails.
func (h *slotHolder) releaseForClose(ctx context.Context) error {
	for range 4 * lease.MaxRefused {
		var err error
		switch next := h.lease.Next(h.params, h.clock.tick()); {
		case next == lease.StepAcquire:
			return nil
		case next == lease.StepRead:
			err = h.read(ctx)
		case next == lease.StepCheckCommits:
			err = h.checkLostCommits(ctx)
		case h.lease.Altered():
			return errFence(h.lease.ID, h.lease.Granted)
		default:
			_, err = h.release(ctx)
		}
		if err != nil {
			return err
		}
	}
	return errors.New("workernode: the slot was not released: its row keeps changing")
}

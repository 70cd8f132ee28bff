package workernode

import (
	"context"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"regexp"
	"time"

	"github.com/uidplugin/uidplugin/workernode/internal/lease"
)

// A slotHolder acquires, renews and releases the slot of this process, as package lease decides. No lock is needed,
// because only the Manager's goroutine uses a slotHolder. After the goroutine has ended, Close uses it.
type slotHolder struct {
	store   *statements
	params  lease.Params
	me      string        // HOLDER: a random token of this start
	lead    time.Duration // of the registry
	clock   *clock
	check   *clockCheck
	log     *slog.Logger
	closing func() bool // reports whether Close was called

	lease lease.Slot
	nodes []*Node   // the slot's worker ids, as read by the transaction that began the latest session
	stats SlotStats // counters, and the error of the latest statement

	lastAck       time.Time     // when a renewal, keep-alive or session was last acknowledged
	renewInterval time.Duration // the next renewal is due this long after lastAck
	seen          int64         // SEEN_TICK of the last keep-alive
	refused       int           // consecutive statements that changed no row
	timeouts      int           // consecutive sessions of a held slot that timeouts or locks prevented

	slotTries int                 // consecutive attempts to insert a slot that already existed
	leastSlot int64               // the smallest slot to reserve
	avoid     map[int64]time.Time // slots that seemed locked or unreadable, and when
}

func (h *slotHolder) renew(ctx context.Context) error {
	if err := h.check.check(ctx); err != nil {
		return err
	}
	c := h.lease.RenewChange(h.params, h.clock.tick(), h.me)
	ok, err := h.store.update(ctx, c, h.clock.tick())
	if ok, err := h.succeeded(ctx, ok, err, "renew the slot"); !ok {
		return err
	}
	h.noteRenewal(c)
	return nil
}

// add adds worker ids to the slot in a transaction that also renews it, and returns their START_TICK.
func (h *slotHolder) add(ctx context.Context, nodes []newNode) (start int64, ok bool, err error) {
	c := h.lease.RenewChange(h.params, h.clock.tick(), h.me)
	start, ok, err = h.store.add(ctx, c, nodes, h.clock.tick)
	if err != nil || !ok {
		h.lease.Doubt()
		return 0, false, err
	}
	h.lease.Floor = max(h.lease.Floor, start) // FLOOR_TICK may be ahead of the clock; then a new session follows
	h.noteRenewal(c)
	return start, true, nil
}

// keepAlive prevents other processes from reclaiming an idle process's slot. It grants nothing.
func (h *slotHolder) keepAlive(ctx context.Context) error {
	c, now := h.lease.KeepAliveChange(h.me), h.clock.tick()
	ok, err := h.store.update(ctx, c, now)
	if ok, err := h.succeeded(ctx, ok, err, "keep the slot alive"); !ok {
		return err
	}
	h.seen = now
	h.lease.NoteAck(c)
	h.noteAck()
	return nil
}

// succeeded reports whether a statement changed the expected rows. Otherwise it records the outcome, and returns an
// error, or nil if the statement should be tried again.
func (h *slotHolder) succeeded(ctx context.Context, changed bool, err error, name string) (bool, error) {
	switch {
	case err != nil:
		h.lease.Doubt()
		return false, err
	case !changed:
		return false, h.refuse(ctx, name)
	}
	return true, nil
}

// noteRenewal records an acknowledged renewal, or an add, which also renews.
func (h *slotHolder) noteRenewal(c lease.Change) {
	if h.lease.NoteRenewal(c, h.clock.tick()) {
		h.stats.Renewals++
	}
	h.noteAck()
}

// noteAck records an acknowledged statement about the slot, and schedules the next renewal.
func (h *slotHolder) noteAck() {
	h.refused, h.timeouts = 0, 0
	h.lastAck = time.Now()
	h.setRenewInterval()
}

// setRenewInterval chooses a random interval of about a third of the lead, so that processes do not all renew at once.
func (h *slotHolder) setRenewInterval() {
	third := h.lead / 3
	h.renewInterval = third - third/8 + mathrand.N(third/8+1)
}

// refuse records that a statement about the held slot changed no row, and waits briefly. After too many such
// statements it returns an error instead.
func (h *slotHolder) refuse(ctx context.Context, name string) error {
	h.lease.Doubt()
	h.refused++
	if h.refused <= lease.MaxRefused {
		return pause(ctx, h.refused)
	}
	h.refused = lease.MaxRefused // so that the next refused statement fails at once, too
	slot := h.lease.ID
	r, found, _, err := h.store.read(ctx, slot)
	switch {
	case err != nil:
		return err
	case !found:
		return fmt.Errorf("workernode: %s: slot %d no longer has a row in %s", name, slot, SlotTable)
	}
	return fmt.Errorf("workernode: %s: %d consecutive statements changed no row, and the database reports no error: slot %d has VERSION %d, FENCE %d and HOLDER %s; something else changes %s, or undoes our change",
		name, lease.MaxRefused+1, slot, r.Version, r.Fence, printable(r.Holder), SlotTable)
}

// read reads the slot's row after a statement with an unknown outcome.
func (h *slotHolder) read(ctx context.Context) error {
	r, found, floor, err := h.store.read(ctx, h.lease.ID)
	if err != nil {
		return err
	}
	slot, acked, used := h.lease.ID, h.lease.AckedVersion, h.lease.Used
	if held := h.lease.NoteRow(r, found, h.me); held {
		h.lease.Floor = max(h.lease.Floor, floor)
		if h.lease.Altered() {
			return errFence(slot, h.lease.Granted)
		}
		return nil
	}
	if found && r.Holder == "" && acked < r.Version && r.Version <= used { // a release was executed, but its answer was lost
		h.lost(slot, "it was released")
		return nil
	}
	if !found || r.Version < acked { // no process deletes a slot, or lowers VERSION
		h.stats.LostCommits++
		h.lost(slot, "the database has lost commits that it had acknowledged, or somebody deleted, changed or restored the row")
		return nil
	}
	h.stats.Lost++
	h.lost(slot, "another process has the slot now, because it was not renewed in time")
	return nil
}

func (h *slotHolder) lost(slot int64, reason string) {
	if !h.closing() {
		h.log.Warn("uidplugin: this process has lost its slot and acquires another: "+reason, "slot", slot)
	}
	h.lease.Lose()
}

// giveUpIfLocked gives up a slot whose grants are used up, and whose row can be read but not changed. Giving up a
// slot is always safe.
func (h *slotHolder) giveUpIfLocked(err error) {
	if err == nil || !timedOut(err) && !lockWait.MatchString(err.Error()) {
		h.timeouts = 0
		return
	}
	h.timeouts++
	if h.timeouts > 2 && h.clock.tick() > h.lease.Granted {
		h.timeouts = 0
		h.avoid[h.lease.ID] = time.Now()
		h.lost(h.lease.ID, "its row can be read but not changed, so another transaction may hold a lock")
	}
}

// lockWait matches errors of the server's own lock timeout, on MySQL and PostgreSQL.
var lockWait = regexp.MustCompile(`Error 1205\b|SQLSTATE 55P03`)

package workernode

import (
	"context"
	"errors"
	"fmt"

	"github.com/uidplugin/uidplugin/internal/sqldb"
)

// How the lease manager loses or releases its slot. The rules of slot.go apply here, too.
//
// noteLost and forget send no statement. They update this process's state when the slot is free or another's. release
// sends the UPDATE that frees the slot, for checkLostCommits, abandon and releaseForClose.

// noteLost forgets the slot and logs the reason. The caller holds the mutex.
func (m *Manager) noteLost(slot int64, why string) {
	if !m.closed {
		m.log.Warn("uidplugin: this process has lost its slot and gets another: "+why, "slot", slot)
	}
	m.forget()
}

// forget forgets the slot and its worker ids, and detaches all generators, which use up their leases. The caller holds
// the mutex.
func (m *Manager) forget() {
	m.slot.lose()
	m.workers = nil
	for _, l := range m.tableLeases {
		l.want = max(l.want, len(l.lanes), 1)
		l.lanes = nil
	}
}

// checkLostCommits releases a slot whose row has an older VERSION than acknowledged. If that succeeds, the database has
// lost commits.
func (m *Manager) checkLostCommits(ctx context.Context) error {
	return m.release(ctx, func(slot int64) {
		m.stats.LostCommits++
		m.noteLost(slot, "the database has lost commits that it had acknowledged")
	})
}

// abandon releases a slot whose fence is too far ahead to grant anything.
func (m *Manager) abandon(ctx context.Context) error {
	fence := m.slot.fence
	return m.release(ctx, func(slot int64) {
		m.noteLost(slot, fmt.Sprintf("FENCE in %s is %d (%s), further ahead of the clock than the lead of %v",
			SlotTable, fence, m.layout.TimeOf(min(max(fence, 0), m.layout.MaxTick())), m.config.Lead))
	})
}

// release frees the slot as last read, and then calls done with the mutex held.
func (m *Manager) release(ctx context.Context, done func(slot int64)) error {
	c := m.slot.releaseChange(m.me)
	ok, err := m.store.release(ctx, c, m.tick())
	if ok, err := m.counts(ctx, ok, err, "release the slot"); !ok {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refused = 0
	done(c.slot)
	return nil
}

// releaseForClose frees the slot for Close, with retries.
func (m *Manager) releaseForClose(ctx context.Context) error {
	defer m.store.hold()()
	for try := 0; ; try++ {
		err := m.tryRelease(ctx)
		if err == nil || ctx.Err() != nil || !sqldb.IsTransient(err) || try >= maxTries || pause(ctx, try) != nil {
			return err
		}
	}
}

// tryRelease sends one statement after another, until the slot is released or one fails.
func (m *Manager) tryRelease(ctx context.Context) error {
	for range 4 * maxRefused {
		var err error
		switch next := m.slot.next(m.params, m.tick()); {
		case next == stepAcquire:
			return nil
		case next == stepRead:
			err = m.read(ctx)
		case next == stepCheckCommits:
			err = m.checkLostCommits(ctx)
		case m.slot.altered():
			return errFence(m.slot.id, m.slot.granted)
		default:
			err = m.release(ctx, func(int64) { m.forget() })
		}
		if err != nil {
			return err
		}
	}
	return errors.New("workernode: the slot was not released: its row changes all the time")
}

package workernode

import (
	"context"
	"errors"
	"fmt"

	"github.com/uidplugin/uidplugin/internal/sqldb"
)

// How the lease manager loses or releases its slot. The rules of slot.go hold here too.
//
// noteLost and forget send no statement: they change what this process knows, when the slot is another's or free.
// release sends the UPDATE that frees the slot, for checkLostCommits, abandon and releaseForClose.

// noteLost forgets the slot and detaches all generators from it: they use up what they have. The caller holds the
// mutex.
func (m *Manager) noteLost(slot int64, why string) {
	if !m.closed {
		m.log.Warn("uidplugin: this process has lost its slot and gets another: "+why, "slot", slot)
	}
	m.forget()
	for _, l := range m.tableLeases {
		l.want = max(l.want, len(l.lanes), 1)
		l.lanes = nil
	}
}

// forget forgets the slot and its worker ids. The caller holds the mutex.
func (m *Manager) forget() {
	m.slot.lose()
	for _, w := range m.workers {
		if w.toBind {
			m.log.Error("uidplugin: the slot was given up before the table of a spare worker id was written: its ids cannot be located",
				"table", w.table.String(), "worker_id", w.id)
		}
	}
	m.workers = nil
}

// checkLostCommits checks whether the database has lost commits: the VERSION of the row is older than what was
// acknowledged. They were lost if the row can be released as it was read.
func (m *Manager) checkLostCommits(ctx context.Context) error {
	return m.release(ctx, func(slot int64) {
		m.stats.LostCommits++
		m.noteLost(slot, "the database has lost commits that it had acknowledged")
	})
}

// abandon releases a slot whose fence is ahead of all that can be granted.
func (m *Manager) abandon(ctx context.Context) error {
	fence := m.slot.fence
	return m.release(ctx, func(slot int64) {
		m.noteLost(slot, fmt.Sprintf("FENCE in %s is %d (%s), further ahead of the clock than the lead of %v",
			SlotTable, fence, m.layout.TimeOf(min(max(fence, 0), m.layout.MaxTick())), m.config.Lead))
	})
}

// release frees the slot as it was read last, and then calls done with the mutex held.
func (m *Manager) release(ctx context.Context, done func(slot int64)) error {
	c := m.slot.releaseChange(m.me)
	ok, err := m.store.update(ctx, c, m.tick())
	if ok, err := m.counts(ctx, ok, err, "release the slot"); !ok {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refused = 0
	done(c.slot)
	return nil
}

// releaseForClose writes the tables of spares in use and frees the slot, for Close.
func (m *Manager) releaseForClose(ctx context.Context) error {
	defer m.store.hold()()
	for try := 0; ; try++ {
		err := m.tryRelease(ctx)
		if err == nil || ctx.Err() != nil || !sqldb.IsTransient(err) || try >= maxTries || pause(ctx, try) != nil {
			return err
		}
	}
}

// tryRelease is one attempt of releaseForClose: one statement after another, until the slot is released or one fails.
func (m *Manager) tryRelease(ctx context.Context) error {
	for range 4 * maxRefused {
		m.mu.Lock()
		binds := m.toBind()
		m.mu.Unlock()
		var err error
		switch next := m.slot.next(m.params, m.tick()); {
		case next == stepAcquire:
			return nil
		case next == stepRead:
			err = m.read(ctx)
		case next == stepCheckCommits:
			err = m.checkLostCommits(ctx)
		case m.slot.altered():
			return errNotKept(m.slot.id, "FENCE", m.slot.granted)
		case len(binds) > 0 && next == stepReady:
			err = m.bind(ctx, binds)
		case len(binds) > 0 && next == stepBegin:
			err = m.begin(ctx)
		default:
			err = m.release(ctx, func(int64) { m.forget() })
		}
		if err != nil {
			return err
		}
	}
	return errors.New("workernode: the slot was not released: its row changes all the time")
}

package workernode

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Only the goroutine of the lease manager calls the functions of this file.

// An addError is the error of a failed add. Tables that have worker ids continue, because the error does not affect
// the lease of the slot.
type addError struct{ error }

func (e addError) Unwrap() error { return e.error }

func (m *Manager) add(ctx context.Context, tables []Table) error {
	nodes, err := m.rows.reserve(ctx, tables)
	if errors.Is(err, ErrExhausted) {
		return m.usedUp(ctx, err, tables)
	}
	if err != nil {
		return err
	}
	start, ok, err := m.slot.add(ctx, nodes)
	if err != nil {
		return m.notAdded(ctx, tables, err)
	}
	if !ok {
		return m.slot.refuse(ctx, "add worker ids")
	}
	m.exhausted = false
	m.rows.noteAdded(nodes)
	m.allocator.add(nodes, start)
	if last, most := nodes[len(nodes)-1].worker, m.layout.MaxWorkerID(); last > most-(most-m.registry.FirstID+1)/10 {
		m.log.Warn("uidplugin: more than nine tenths of the worker ids were given out; once all are, new processes and tables can only use the worker ids of free slots",
			"worker_id", last, "of", most, "layout", m.layout.String())
	}
	return nil
}

func (m *Manager) notAdded(ctx context.Context, tables []Table, cause error) error {
	m.rows.mustReread = true
	optional := !m.requests.any() && m.allocator.postpone(tables, m.later())
	if errors.Is(cause, errTaken) { // UidGenerator inserts into the same table
		if again, err := m.rows.noteTaken(ctx); again || err != nil {
			return err
		}
	}
	if !optional || ctx.Err() != nil { // Close has ended ctx, and so the statement
		return cause
	}
	m.log.Warn("uidplugin: could not add further worker ids for a table; trying again later", "error", cause)
	return nil
}

func (m *Manager) later() time.Time { return m.clock.now().Add(grace / 2) }

// usedUp handles a layout that has no worker ids left. Generators continue without further lanes. If no generator
// has a worker id, the process once releases its slot for a free slot that has some. Otherwise requests fail.
func (m *Manager) usedUp(ctx context.Context, cause error, tables []Table) error {
	later := m.later()
	more, used := m.allocator.limit(cause, later)
	if more {
		return nil // the next pass tries again without the optional lanes
	}
	if !used && !m.exhausted && !m.config.Disposable {
		others, err := m.slot.candidates(ctx, tables)
		if err != nil {
			return err
		}
		if len(others) > 0 {
			m.exhausted = true
			_, err = m.slot.release(ctx)
			return err
		}
	}
	m.exhausted = false
	err := m.explain(ctx, cause, tables)
	m.allocator.exhaust(err, later)
	m.requests.fail(err)
	return nil
}

// explain adds the tables with the most worker ids, and a remedy, to an error that wraps [ErrExhausted].
func (m *Manager) explain(ctx context.Context, err error, tables []Table) error {
	owners, e := m.store.owners(ctx)
	if e != nil {
		return errors.Join(err, e)
	}
	if m.config.Disposable {
		return fmt.Errorf("%w (used most by: %s); each start of a process takes one for each table, and none is reused:"+
			" use a layout with more worker bits in a new id space, write to fewer tables, or drop WithDisposable", err, owners)
	}
	if n := m.allocator.soonFree(tables); n > 0 {
		return fmt.Errorf("%w (used most by: %s); %d worker ids of closed plugins of this process become free within %v: try again then",
			err, owners, n, m.config.Lead+m.layout.Tick)
	}
	return fmt.Errorf("%w (used most by: %s), and no free slot has a worker id for a table that needs one:"+
		" end processes, write to fewer tables, or use a layout with more worker bits in a new id space (docs/failures.md)", err, owners)
}

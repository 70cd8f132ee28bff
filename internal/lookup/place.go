package lookup

import (
	"errors"
	"fmt"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/supply"
	"github.com/uidplugin/uidplugin/workernode"
)

// A Place is the origin of an id.
type Place struct {
	ID int64
	generator.Parts
	Database string // of the table; empty for the database of WORKER_NODE
	Table    string // empty if the worker id serves all tables
	Session  workernode.Session
}

// split returns the parts of a place that the id contains.
func (loc *Locator) split(id int64) (Place, error) {
	parts, err := loc.Decode(id)
	switch {
	case errors.Is(err, ErrNotDecodable), errors.Is(err, ErrNegativeID):
		return Place{}, &failure{id, err}
	case err != nil:
		return Place{}, &failure{id, fmt.Errorf("%w: %w", ErrUnknownID, err)}
	}
	return Place{ID: id, Parts: parts}, nil
}

// place completes l from n, the row of its worker id in WORKER_NODE, or nil. It sets only the slot of l.Session.
func (loc *Locator) place(l *Place, n *workernode.Node) error {
	switch {
	case loc.Test != nil:
		return loc.placeTest(l)
	case loc.Fixed:
		if l.WorkerID != loc.WorkerID && !(loc.Generator == supply.Paired && l.WorkerID == loc.Layout.BackupWorker(loc.WorkerID)) {
			return fmt.Errorf("%w: %d has the worker id %d; this process knows only its own, %d, because of WithWorkerID",
				ErrUnknownID, l.ID, l.WorkerID, loc.WorkerID)
		}
		return loc.notYet(l, 0)
	}
	if n == nil {
		if err := loc.notYet(l, 0); err != nil {
			return err
		}
		return fmt.Errorf("%w: %d has the worker id %d, which %s does not have",
			ErrUnknownID, l.ID, l.WorkerID, workernode.NodeTable)
	}
	switch {
	case n.Layout == "" || n.Slot == 0:
		return fmt.Errorf("%w: %d has the worker id %d, which another program, such as UidGenerator, took on %s",
			ErrOtherLayout, l.ID, l.WorkerID, n.LaunchDate.Format(time.DateOnly))
	case n.Layout != loc.Layout.String():
		return fmt.Errorf("%w: %d has the worker id %d, whose ids have the layout %q, not %s",
			ErrOtherLayout, l.ID, l.WorkerID, n.Layout, loc.Layout)
	}
	future := loc.notYet(l, n.Start)
	if loc.Layout.TickAt(l.Time) <= n.Start {
		if future != nil {
			return future
		}
		return fmt.Errorf("%w: %d is stamped %s, and its worker id %d was in use only from %s on",
			ErrUnknownID, l.ID, supply.FormatTime(l.Time), l.WorkerID, supply.FormatTime(loc.TimeOf(n.Start+1)))
	}
	if n.Table.Name == "" {
		return fmt.Errorf("%w: %d has the worker id %d, whose row in %s has no table",
			ErrUnknownID, l.ID, l.WorkerID, workernode.NodeTable)
	}
	l.Session.Slot = n.Slot
	l.Database, l.Table = n.Table.Database, n.Table.Name
	if l.Table == supply.AllTables {
		l.Table = "" // because the worker id serves all tables
	}
	return future
}

// maxAhead returns how far an id may be ahead of this process's clock: Lead, a tick, and a minute for the clocks.
func (loc *Locator) maxAhead() time.Duration {
	lead := loc.FixedLead()
	if loc.Manager != nil {
		lead = time.Duration(loc.Manager.Registry().LeadTicks) * loc.Layout.Tick
	}
	const century = 100 * 365 * 24 * time.Hour // longer durations would overflow
	return min(lead, century) + min(loc.Layout.Tick, century) + time.Minute
}

// notYet returns an error if the id is stamped later than a process may stamp now. The limit is maxAhead after the
// clock or after the first tick of the worker id, whichever is later.
func (loc *Locator) notYet(l *Place, start int64) error {
	latest := loc.Clock()
	if from := loc.TimeOf(min(start, loc.Layout.MaxTick()) + 1); from.After(latest) {
		latest = from // START_TICK is in the future, because an operator has set FLOOR_TICK
	}
	latest = latest.Add(loc.maxAhead())
	if l.Time.After(latest) {
		return fmt.Errorf("%w: %d is stamped %s, and the latest that a process would stamp now is %s",
			ErrFutureID, l.ID, supply.FormatTime(l.Time), supply.FormatTime(latest))
	}
	return nil
}

// placeTest implements place for plugins of package uidtest, whose ids come from one process with the slot 1.
func (loc *Locator) placeTest(l *Place) error {
	table, ok := loc.Test.Table(l.ID)
	if !ok {
		if err := loc.notYet(l, 0); err != nil {
			return err
		}
		return fmt.Errorf("%w: %d has the worker id %d, whose table this plugin of %s does not know; list the model with WithModels, "+
			"or create the row with this plugin if two tables share the worker id",
			ErrUnknownID, l.ID, l.WorkerID, loc.Test.Name)
	}
	l.Session.Slot = 1
	if table != supply.AllTables {
		l.Table = table
	}
	return loc.notYet(l, 0)
}

package lookup

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/uidplugin/uidplugin/internal/supply"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// Locate returns the place of an id. It avoids the transaction of the handle db; see WorkersFor.
func (loc *Locator) Locate(ctx context.Context, db *gorm.DB, id int64) (Place, error) {
	l, err := loc.locateOne(ctx, db, id)
	if err != nil {
		return Place{}, loc.errorOf(err)
	}
	return l, nil
}

func (loc *Locator) locateOne(ctx context.Context, db *gorm.DB, id int64) (Place, error) {
	l, err := loc.split(id)
	if err != nil {
		return Place{}, err
	}
	var n *workernode.Node
	var s workernode.Session
	stamped := false
	if !loc.Fixed {
		n, s, stamped, err = loc.WorkersFor(db).Trace(ctx, loc.Layout, l.WorkerID, loc.Layout.TickAt(l.Time))
		if err != nil {
			return Place{}, fmt.Errorf("uidplugin: locate: %w", err)
		}
	}
	err = loc.place(&l, n)
	switch {
	case err != nil && !(stamped && l.Session.Slot != 0 && errors.Is(err, ErrFutureID)):
		return Place{}, &failure{id, err} // a stamped id may be in the future if a clock was ahead
	case loc.Fixed && loc.Test == nil:
		return l, nil // any process that has had the worker id may have made it
	case loc.Fixed: // in a test only this process makes ids
		host := loc.DetectHost()
		l.Session.Application, l.Session.Host, l.Session.Port, l.Session.Kind = host.Application, host.Name, host.Port, host.Kind
		return l, nil
	case !stamped:
		return Place{}, failuref(id, "%w: %d has the time %s, but no process could use its worker id %d (slot %d) then, unless the database has lost the commits of that time",
			ErrUnknownID, id, supply.FormatTime(l.Time), l.WorkerID, l.Session.Slot)
	}
	if l.Session = s; s.Pruned() {
		l.Session = workernode.Session{}
	}
	return l, nil
}

// locate calls the function found with the place of each id, whose Session has only the slot. It returns the errors
// of the others. future is the error of an id that seems to be in the future; it may be valid if a clock was ahead.
// locate reads WORKER_NODE each time, because remembered rows could be wrong after lost commits.
func (loc *Locator) locate(ctx context.Context, db *workernode.DB, ids []int64, found func(l *Place, future error)) (errs []error) {
	nodes := map[int64]*workernode.Node{}
	for _, id := range ids {
		if l, err := loc.split(id); err == nil {
			nodes[l.WorkerID] = nil
		}
	}
	if !loc.Fixed {
		var err error
		if nodes, err = db.Lookup(ctx, slices.Sorted(maps.Keys(nodes))...); err != nil {
			return []error{fmt.Errorf("uidplugin: locate: %w", err)}
		}
	}
	for _, id := range ids {
		l, err := loc.split(id)
		if err == nil {
			if err = loc.place(&l, nodes[l.WorkerID]); err != nil {
				err = &failure{id, err}
			}
		}
		if err == nil || errors.Is(err, ErrFutureID) && l.Session.Slot != 0 {
			found(&l, err)
			continue
		}
		errs = append(errs, err)
	}
	return errs
}

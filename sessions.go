package uidplugin

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/uidplugin/uidplugin/internal/supply"
	"github.com/uidplugin/uidplugin/workernode"
)

// A Session is a time in which one process held a slot: it stamped the ids of the slot's
// worker ids from From on, until the next session of the slot began.
type Session struct {
	Slot        int64           `json:"slot,omitempty"`
	Application string          `json:"application"` // name of the executable, or Host.Application
	Host        string          `json:"host"`
	Port        string          `json:"port"`
	Kind        workernode.Kind `json:"kind,omitempty"`
	Launched    time.Time       `json:"launched,omitzero"` // start of the process, by its clock
	From        time.Time       `json:"from,omitzero"`     // no id of the session has an earlier time
	Until       time.Time       `json:"until,omitzero"`    // start of the next session of the slot; zero if no session followed
	Last        time.Time       `json:"last,omitzero"`     // no id of the session has a later time: up to Lead after the process ended; zero in a Location
}

// Pruned reports whether nothing is known of the process, because [workernode.DB.PruneSessions] has removed it. In a list
// the session stands for all that were removed.
func (s Session) Pruned() bool {
	return s.Application == "" && s.Host == "" && s.Port == "" && s.Kind == 0
}

// A Slot is a reusable process identity. It permanently owns worker ids, and one process at a
// time holds it.
type Slot struct {
	ID       int64
	Held     bool      // a process has it, or ended without releasing it
	Reusable bool      // false for one of WithDisposable, which no other process ever gets
	Fence    time.Time // no process has stamped a later time with a worker id of the slot
	Seen     time.Time // clock of the last holder at its last statement

	// The last holder.
	Application string
	Host        string
	Port        string
}

// State returns the state of a slot at a time, which should be the present:
//
//   - live: a process holds it and may stamp ids
//   - idle: a process holds it, and has made no ids for minutes
//   - overdue: its process should have renewed it and has not; it has ended, is paused, or cannot reach the database
//   - expired: the same for more than a minute, so another process may reclaim it
//   - free: it was released
//   - retired: it is one of [WithDisposable], and nobody will use it again
//
// A process that ends without [Plugin.Close] is live until its fence has passed or two renewals are missing: up to 10 s
// with the default [WithLead].
func (s Slot) State(now time.Time) string {
	const (
		missing = 45 * time.Second // a process that makes no ids sends a statement every 30 s
		grace   = time.Minute      // as in package workernode
	)
	granted := s.Fence.Sub(s.Seen) // by the last statement; an idle process is granted nothing, so its FENCE is behind
	silent := now.Sub(s.Seen)
	switch overdue := silent > max(granted-granted/3, missing) || granted >= 0 && !s.Fence.After(now); {
	case s.Held && !overdue && s.Fence.After(now):
		return "live"
	case s.Held && !overdue:
		return "idle"
	case s.Held && min(silent, now.Sub(s.Fence)) < grace:
		return "overdue"
	case !s.Reusable:
		return "retired"
	case s.Held:
		return "expired"
	}
	return "free"
}

// Nodes returns up to limit rows of WORKER_NODE with worker ids above after, in ascending order: every worker id, and
// its table and slot. With [WithWorkerID] it returns nil.
func (p *Plugin) Nodes(ctx context.Context, after int64, limit int) ([]*workernode.Node, error) {
	loc, err := p.located()
	if err != nil || loc.Fixed {
		return nil, err
	}
	return loc.wdb.Nodes(ctx, after, limit)
}

// Slots returns up to limit slots with an ID above after, in ascending order. With [WithWorkerID] it returns nil.
func (p *Plugin) Slots(ctx context.Context, after int64, limit int) ([]Slot, error) {
	loc, err := p.located()
	if err != nil || loc.Fixed {
		return nil, err
	}
	rows, err := loc.wdb.Slots(ctx, after, limit)
	if err != nil {
		return nil, err
	}
	slots := make([]Slot, len(rows))
	for i, r := range rows {
		slots[i] = Slot{
			ID: r.ID, Held: r.Holder != "", Reusable: r.Reusable, Fence: loc.timeOf(r.Fence), Seen: loc.timeOf(r.Seen),
			Application: r.Application, Host: r.Host, Port: r.Port,
		}
	}
	return slots, nil
}

// Sessions returns up to limit sessions that began before an instant, the latest first; a zero instant means all. A
// slot of 0 means the sessions of all slots; the database sorts them, and Until and Last are zero. With [WithWorkerID] it
// returns nil.
func (p *Plugin) Sessions(ctx context.Context, slot int64, before time.Time, limit int) ([]Session, error) {
	loc, err := p.located()
	if err != nil || loc.Fixed {
		return nil, err
	}
	latest := int64(math.MaxInt64)
	if !before.IsZero() {
		latest = loc.Layout.TickAt(before)
		if !loc.timeOf(latest).Before(before) {
			latest-- // a session has its first tick after START_TICK
		}
	}
	rows, err := loc.wdb.Sessions(ctx, slot, latest, limit)
	if err != nil {
		return nil, err
	}
	sessions := make([]Session, len(rows))
	for i, r := range rows {
		sessions[i] = loc.session(r)
		if r.Last >= 0 {
			sessions[i].Last = loc.timeOf(r.Last)
		}
	}
	return sessions, nil
}

// located returns the locator of a plugin that is in use.
func (p *Plugin) located() (*locator, error) {
	shared, err := p.initialized()
	if err != nil {
		return nil, err
	}
	return shared.locator.Load(), nil
}

// session returns a session as the package shows it.
func (loc *locator) session(o workernode.Origin) Session {
	s := Session{Slot: o.Slot, From: loc.timeOf(o.Start + 1)}
	if !o.Pruned() {
		s.Application, s.Host, s.Port, s.Kind, s.Launched = o.Application, o.Host, o.Port, o.Kind, o.Launched
	}
	if o.Until >= 0 {
		s.Until = loc.timeOf(o.Until + 1)
	}
	return s
}

// timeOf returns the start of a tick that was read from a table, as far as JSON can say it.
func (loc *locator) timeOf(tick int64) time.Time {
	return workernode.TimeOf(loc.Layout, tick)
}

// placeTest is place for a plugin of package uidtest. Its process holds the only slot.
func (loc *locator) placeTest(l *Location) error {
	table, ok := loc.Test.Table(int64(l.ID))
	if !ok {
		if err := loc.notYet(l, 0); err != nil {
			return err
		}
		return fmt.Errorf("%w: %d is the id of no table that this plugin of %s knows; list the model with WithModels, or create the row with this plugin",
			ErrUnknownID, l.ID, loc.Test.Name)
	}
	l.Session.Slot = 1
	if table != supply.AllTables {
		l.Table = table
	}
	return loc.notYet(l, 0)
}

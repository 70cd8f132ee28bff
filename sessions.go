package uidplugin

import (
	"context"
	"time"
)

// A Session is the time during which one process held a slot. Only this process used the slot's worker ids between From
// and the slot's next session.
type Session struct {
	Slot        int64     `json:"slot,omitempty"`
	Application string    `json:"application"` // name of the executable, or Host.Application
	Host        string    `json:"host"`
	Port        string    `json:"port"`
	Kind        Kind      `json:"kind,omitempty"`
	Launched    time.Time `json:"launched,omitzero"` // start of the process, by its clock
	From        time.Time `json:"from,omitzero"`     // no id of the session has an earlier time
	Until       time.Time `json:"until,omitzero"`    // start of the slot's next session; zero if none followed
	Last        time.Time `json:"last,omitzero"`     // no id of the session has a later time: up to Lead after the process ended; zero in a Location
}

// Pruned reports whether "uid sessions prune" removed the session, so the process is unknown. In a list it represents all
// removed sessions.
func (s Session) Pruned() bool {
	return s.Application == "" && s.Host == "" && s.Port == "" && s.Kind == 0
}

// A Slot is a reusable process identity. It owns worker ids permanently, and at most one process holds it at a time.
type Slot struct {
	ID       int64
	Held     bool      // by a process that runs, or ended without releasing it
	Reusable bool      // false with WithDisposable, because other processes never reclaim it
	Region   int64     // only processes of this region hold it; 0 without [WithRegion]
	Remote   bool      // of another region; the row is replicated, and may be old
	Fence    time.Time // no process has stamped a later time with the slot
	Seen     time.Time // the last holder's clock at its last statement

	// The last holder.
	Application string
	Host        string
	Port        string
}

// State returns the state of a slot at now, which should be the present:
//
//   - live: a process holds it and may stamp ids
//   - idle: a process holds it and has made no ids for minutes
//   - overdue: a renewal is missing, because the process ended, is paused, cannot reach the database, or its clock is
//     behind
//   - expired: overdue for more than a minute, so another process may reclaim it
//   - free: released
//   - retired: from [WithDisposable], and never used again
//   - remote: of another region, whose database knows the state
//
// After a process ends without [Plugin.Close], its slot stays live until the fence has passed or two renewals are
// missing: up to 10 s with the default [WithLead].
func (s Slot) State(now time.Time) string {
	const (
		missing = 45 * time.Second // because an idle process sends a statement every 30 s
		grace   = time.Minute      // same as in package workernode
	)
	granted := s.Fence.Sub(s.Seen) // granted by the last statement; negative once the FENCE of an idle process is behind
	silent := now.Sub(s.Seen)
	switch overdue := silent > max(granted-granted/3, missing) || granted >= 0 && !s.Fence.After(now); {
	case s.Remote:
		return "remote"
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

// Nodes returns up to limit rows of WORKER_NODE with worker ids above after, in ascending order. With [WithWorkerID] it
// returns nil.
func (p *Plugin) Nodes(ctx context.Context, after int64, limit int) ([]*Node, error) {
	loc, err := p.located()
	if err != nil || loc.Fixed {
		return nil, err
	}
	return loc.Workers.Nodes(ctx, after, limit)
}

// Slots returns up to limit slots with an ID above after, in ascending order. With [WithWorkerID] it returns nil.
func (p *Plugin) Slots(ctx context.Context, after int64, limit int) ([]Slot, error) {
	loc, err := p.located()
	if err != nil || loc.Fixed {
		return nil, err
	}
	rows, err := loc.Workers.Slots(ctx, after, limit)
	if err != nil {
		return nil, err
	}
	slots := make([]Slot, len(rows))
	for i, r := range rows {
		slots[i] = Slot{
			ID: r.ID, Held: r.Holder != "", Reusable: r.Reusable, Region: r.Region, Remote: r.Remote, Fence: loc.TimeOf(r.Fence), Seen: loc.TimeOf(r.Seen),
			Application: r.Application, Host: r.Host, Port: r.Port,
		}
	}
	return slots, nil
}

// Sessions returns up to limit sessions that began before the given time, latest first; the zero time means all. If
// slot is 0 it returns sessions of all slots, sorted by the database, without Until and Last. With [WithWorkerID] it
// returns nil.
func (p *Plugin) Sessions(ctx context.Context, slot int64, before time.Time, limit int) ([]Session, error) {
	loc, err := p.located()
	if err != nil {
		return nil, err
	}
	found, err := loc.Sessions(ctx, slot, before, limit)
	if err != nil || found == nil {
		return nil, err
	}
	sessions := make([]Session, len(found))
	for i, s := range found {
		sessions[i] = Session(s)
	}
	return sessions, nil
}

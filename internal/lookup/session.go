package lookup

import (
	"context"
	"math"
	"time"

	"github.com/uidplugin/uidplugin/workernode"
)

// A Session is the time during which one process held a slot.
type Session struct {
	Slot        int64
	Application string
	Host        string
	Port        string
	Kind        workernode.Kind
	Launched    time.Time
	From        time.Time
	Until       time.Time
	Last        time.Time
}

// Sessions returns up to limit sessions that began before the given time, latest first. The zero time means all, and
// slot 0 means all slots. A fixed worker id has none.
func (loc *Locator) Sessions(ctx context.Context, slot int64, before time.Time, limit int) ([]Session, error) {
	if loc.Fixed {
		return nil, nil
	}
	latest := int64(math.MaxInt64)
	if !before.IsZero() {
		latest = loc.Layout.TickAt(before)
		if !loc.TimeOf(latest).Before(before) {
			latest-- // because a session begins after START_TICK
		}
	}
	rows, err := loc.Workers.Sessions(ctx, slot, latest, limit)
	if err != nil {
		return nil, err
	}
	sessions := make([]Session, len(rows))
	for i, r := range rows {
		sessions[i] = loc.session(r)
		if r.Last >= 0 {
			sessions[i].Last = loc.TimeOf(r.Last)
		}
	}
	return sessions, nil
}

func (loc *Locator) session(o workernode.Origin) Session {
	s := Session{Slot: o.Slot, From: loc.TimeOf(o.Start + 1)}
	if !o.Pruned() {
		s.Application, s.Host, s.Port, s.Kind, s.Launched = o.Application, o.Host, o.Port, o.Kind, o.Launched
	}
	if o.Until >= 0 {
		s.Until = loc.TimeOf(o.Until + 1)
	}
	return s
}

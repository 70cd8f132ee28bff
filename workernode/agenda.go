package workernode

import (
	"fmt"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/workernode/internal/lease"
)

// An agenda is what is due at one moment.
type agenda struct {
	lease.Needs
	missing []Table       // tables of the worker ids to add
	stuck   error         // callers wait, but the clock stands still
	wait    time.Duration // until the next look
}

// lookAndServe serves the requests for which the slot has worker ids, and returns the work that needs a statement.
func (m *Manager) lookAndServe() *agenda {
	now := m.clock.now()
	d, tick := m.allocator.look(now)
	waiting := m.requests.any()
	w := &agenda{}
	w.Idle = !waiting && now.Sub(d.lastUse) > idleAfter && now.Sub(m.requests.lastUse()) > idleAfter
	w.Wanted = waiting || !w.Idle && d.leases > 0
	if w.Idle {
		w.rest(m.slot, now)
		return w
	}
	w.schedule(m.slot, d, now, tick)
	if (d.starving || waiting) && m.slot.lease.Held {
		w.stuck = m.still.check(tick, m.layout)
	}
	lack := m.allocator.provide(now)
	m.requests.serve(func(r *request) []*TableLease {
		leases := m.allocator.assign(r.tables, r.lanes)
		for i, t := range r.tables {
			if leases == nil {
				lack[t] += r.lanes[i]
			}
		}
		return leases
	})
	w.missing = m.allocator.missing(lack)
	w.Add = len(w.missing) > 0
	return w
}

// rest decides when an idle process sends its next keep-alive.
func (w *agenda) rest(h *slotHolder, now time.Time) {
	w.wait = grace / 2
	if !h.lease.Held {
		return
	}
	rest := grace/2 - time.Since(h.lastAck)
	if h.seen <= h.lease.Fence { // send one when the clock passes FENCE: it shows that this process has not ended
		rest = min(rest, h.clock.layout.TimeOf(h.lease.Fence+1).Sub(now))
	}
	w.KeepAlive = rest <= 0
	w.wait = max(rest, time.Millisecond)
}

// schedule decides when the next renewal is due.
func (w *agenda) schedule(h *slotHolder, d generatorNeeds, now time.Time, tick int64) {
	w.wait = h.renewInterval
	since, pause := time.Since(h.lastAck), min(minPause, h.renewInterval/4)
	w.Due = since >= h.renewInterval
	w.Stale = (d.pressing || tick > h.lease.Granted) && since >= pause
	switch {
	case d.pressing && !w.Due:
		w.wait = min(w.wait, max(pause-since, time.Millisecond))
	case !w.Due:
		w.wait = min(w.wait, max(h.renewInterval-since, time.Millisecond))
	}
	if h.lease.Held && h.params.FenceAt(tick, h.lease.Fence) <= h.lease.Granted {
		// No further tick can be granted before the clock shows the next tick.
		w.wait = max(w.wait, min(h.clock.layout.TimeOf(tick+1).Sub(now), h.renewInterval))
	}
}

// stillness tracks how long the clock has shown the same tick.
type stillness struct {
	tick  int64
	since time.Time
}

// check returns an error if the clock stands still for long, because then no further tick can be granted.
func (s *stillness) check(tick int64, layout generator.Layout) error {
	if now := time.Now(); tick != s.tick || s.since.IsZero() {
		s.tick, s.since = tick, now
	} else if now.Sub(s.since) > time.Second+2*layout.Tick {
		return fmt.Errorf("%w: the clock stands still at %s, so no ids can be made; correct the clock of this machine", ErrClock, layout.TimeOf(tick))
	}
	return nil
}

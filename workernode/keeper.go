package workernode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin/generator"
)

// run is the keeper: it renews the worker ids of the process until Close.
func (k *Leased) run() {
	defer close(k.done)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-k.quit:
			cancel()
		case <-ctx.Done():
		}
	}()
	failures, again := 0, false
	timer := time.NewTimer(jitter(beat))
	defer timer.Stop()
	for {
		needed := again
		select {
		case <-k.quit:
			return
		case <-timer.C:
		case <-k.wake:
			needed = true
		}
		wait, least := beat, minPause
		if err := k.pass(ctx, needed); err != nil {
			if ctx.Err() != nil {
				return // Close
			}
			if poolClosed(err) && k.db.poolOpen() != nil { // not just a connection of another pool
				k.suspend(err)
				return // for good: who closes the pool seldom closes the plugin
			}
			wait, again = min(20*time.Millisecond<<min(failures, 10), maxPause), false
			failures++
			// A lock that somebody holds for a moment is nothing to speak of.
			if !Passing(err) || failures > maxTries {
				k.failed(err)
			}
		} else {
			failures = 0
			k.recovered()
			if again = k.puzzled(); again {
				wait = glance
			}
			// Whoever comes to be in need after a rest is served at once.
			if again || !needed {
				least = glance
			}
		}
		// Whoever is in need now is served after a short pause.
		pause := time.NewTimer(min(least, wait))
		select {
		case <-k.quit:
			pause.Stop()
			return
		case <-pause.C:
		}
		timer.Reset(jitter(max(wait-least, 0)))
	}
}

// poolOpen returns the error of a sql.DB that was closed, without asking the database:
// with a context that has ended, it never comes so far.
func (d *DB) poolOpen() error {
	pool, err := d.gorm.DB()
	if err != nil || pool == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	conn, err := pool.Conn(ctx)
	if err == nil {
		return conn.Close()
	}
	if poolClosed(err) {
		return err
	}
	return nil
}

// poolClosed tells whether an error is that of a sql.DB that was closed.
func poolClosed(err error) bool { return strings.Contains(err.Error(), "sql: database is closed") }

// jitter returns a random time around d, so that processes do not march in step.
func jitter(d time.Duration) time.Duration {
	return d*3/4 + rand.N(d/2+1)
}

// pass renews what is in use, replaces what was lost, and gives generators the
// lanes that they need. needed tells that somebody is in need.
func (k *Leased) pass(ctx context.Context, needed bool) error {
	if err := k.db.poolOpen(); err != nil {
		return err
	}
	k.observe(needed)
	if err := k.probe(ctx); err != nil {
		return err
	}
	if err := k.write(ctx); err != nil {
		return err
	}
	if err := k.renew(ctx); err != nil {
		return err
	}
	k.mu.Lock()
	for _, h := range k.holds {
		k.publish(h)
	}
	k.unlock()
	return k.supply(ctx)
}

// probe finds out whether the database is back, if it was away: there may be nothing
// else to ask.
func (k *Leased) probe(ctx context.Context) error {
	k.mu.Lock()
	away := k.stats.LastError != nil
	k.mu.Unlock()
	if !away {
		return nil
	}
	_, err := k.read(ctx, []int64{0})
	return err
}

// observe notes which generators are in use.
func (k *Leased) observe(needed bool) {
	now := k.clock()
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, h := range k.holds {
		if u := h.look(now); needed && u.Left == 0 {
			h.used = now // its callers may be told why, and not wait
		}
	}
	if k.terms.window > 0 {
		// Windows grow while somebody needs them, and shrink again.
		base, _ := k.config.terms(k.layout)
		if needed {
			k.terms.window = min(2*k.terms.window, k.terms.lead)
		} else {
			k.terms.window = max(k.terms.window/2, base.window)
		}
	}
}

// look returns how a generator stands, and notes whether it is in use.
func (h *hold) look(now time.Time) (u generator.Usage) {
	if h.generator == nil {
		h.used = now // it is being made
		return u
	}
	if u = h.generator.Usage(); u.Used || u.Waiting {
		h.used = now
	}
	return u
}

// renew moves the fences of all rows that are in use: one statement for those that
// have the same, which is all of them if nothing has happened.
func (k *Leased) renew(ctx context.Context) error {
	if err := k.checkClock(ctx); err != nil {
		return err
	}
	for round := 0; ; round++ {
		t := k.current()
		now := k.tick(t)
		groups, unsure := k.due(t)
		if len(unsure) > 0 {
			if err := k.reread(ctx, unsure); err != nil {
				return err
			}
			groups, _ = k.due(t)
		}
		again := false
		for _, group := range groups {
			for part := range slices.Chunk(group.seats, chunk) {
				refused, err := k.extendSeats(ctx, t, part, now, group.next)
				if err != nil && !Passing(err) {
					return err
				}
				again = again || refused || err != nil
			}
		}
		if !again {
			return nil
		}
		if round >= maxRounds {
			return fmt.Errorf("workernode: renewing worker ids was refused %d times in a row", round+1)
		}
		if err := pause(ctx, round); err != nil {
			return err
		}
	}
}

// A group is seats that compare with the same fence.
type group struct {
	seats []*seat
	next  int64 // the latest tick that a generator of theirs is about to stamp
}

// due returns the seats that are in use, by the fence that they compare with, and
// those whose rows must be read first.
func (k *Leased) due(t terms) (groups map[int64]*group, unsure []*seat) {
	now := k.clock()
	k.mu.Lock()
	defer k.mu.Unlock()
	groups = map[int64]*group{}
	tick := k.tick(t)
	add := func(s *seat, next int64) {
		switch g := groups[s.compare]; {
		case s.lost || !t.due(s, tick, next):
		case s.unsure:
			unsure = append(unsure, s)
		case g == nil:
			groups[s.compare] = &group{[]*seat{s}, next}
		default:
			g.seats, g.next = append(g.seats, s), max(g.next, next)
		}
	}
	idle := true
	for _, h := range k.holds {
		u := h.look(now)
		if now.Sub(h.used) < unusedAfter {
			idle = false
			for _, s := range h.lanes {
				add(s, u.Tick)
			}
		}
	}
	if !idle {
		for _, s := range k.spares {
			add(s, 0)
		}
	}
	return groups, unsure
}

// reread reads the rows of seats whose last statement had no clear outcome.
func (k *Leased) reread(ctx context.Context, seats []*seat) error {
	rows, err := k.read(ctx, workersOf(seats))
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.unlock()
	for _, s := range seats {
		r := rows[s.worker] // the zero row if there is none
		s.read(r.fence, r.holder == k.holder)
		if s.lost {
			k.stats.Lost++
			k.say(slog.LevelWarn, "uidplugin: another process has this worker id now, because it was not renewed in time or the database has lost commits; this one gets another",
				"table", s.table, "worker_id", s.worker)
		}
	}
	return nil
}

// supply replaces lost worker ids, gives generators more lanes or takes some back, and
// fills up the spares; each on its own, so that one that cannot be had keeps no other
// from what it needs.
func (k *Leased) supply(ctx context.Context) error {
	now, tick := k.clock(), k.tick(k.current())
	var lost, more []want
	k.mu.Lock()
	back := k.dropped
	k.dropped = nil
	for _, h := range k.holds {
		n := 0
		for _, s := range h.lanes {
			if s.lost {
				n++
			}
		}
		wanted := k.wanted(h, now, tick)
		switch {
		case now.Sub(h.used) >= unusedAfter || now.Before(h.again):
		case n > 0:
			lost = append(lost, want{h, n, len(h.lanes)})
		case wanted > len(h.lanes):
			more = append(more, want{h, wanted - len(h.lanes), len(h.lanes)})
		case wanted < len(h.lanes):
			back = append(back, workersOf(h.lanes[wanted:])...)
			h.lanes = slices.Clone(h.lanes[:wanted])
			k.publish(h)
			k.say(slog.LevelInfo, "uidplugin: worker ids given back, the table needs fewer", "table", h.table, "lanes", wanted)
		}
	}
	k.spares = slices.DeleteFunc(k.spares, func(s *seat) bool { return s.lost })
	spares := k.config.Spares - len(k.spares)
	if now.Before(k.sparesAgain) {
		spares = 0
	}
	k.unlock()
	if len(back) > 0 {
		if err := k.giveBack(ctx, back); err != nil {
			k.mu.Lock()
			k.dropped = append(k.dropped, back...)
			k.mu.Unlock()
			return err
		}
	}
	for _, w := range append(lost, more...) {
		if err := k.get(ctx, w); err != nil {
			return err
		}
	}
	if spares <= 0 {
		return nil
	}
	seats, err := k.claim(ctx, make([]string, spares))
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.addSpares(seats); slices.Contains(seats, nil) {
		k.sparesAgain = k.clock().Add(time.Minute)
	}
	return nil
}

// A want is a number of worker ids that a generator should have more.
type want struct {
	hold *hold
	n    int
	had  int // lanes before
}

// get gives a generator the worker ids that it wants, in place of those that it has lost.
func (k *Leased) get(ctx context.Context, w want) error {
	h := w.hold
	seats, err := k.claim(ctx, slices.Repeat([]string{h.table}, w.n))
	k.mu.Lock()
	defer k.unlock()
	if errors.Is(err, ErrExhausted) {
		h.again = k.clock().Add(beat)
		healthy := slices.DeleteFunc(slices.Clone(h.lanes), func(s *seat) bool { return s.lost })
		if n := len(healthy); n > 0 {
			// What is there goes on, alone: a lane that is lost would hold up the others.
			for n&(n-1) != 0 {
				n &= n - 1
			}
			for _, s := range healthy[n:] {
				k.dropped = append(k.dropped, s.worker)
			}
			if h.lanes = healthy[:n]; n < w.had {
				k.publish(h)
			}
			k.bound(h, err)
			return nil
		}
		if h.starved == nil {
			k.say(slog.LevelError, "uidplugin: a table has lost its worker id, and there is no other: creates fail", "table", h.table, "error", err)
		}
		h.starved = fmt.Errorf("the table %s has lost its worker id: %w", h.table, err)
		if k.stats.LastError == nil {
			k.stats.Since = k.clock()
		}
		if k.stats.LastError = h.starved; h.generator != nil {
			h.generator.Suspend(h.starved)
		}
		return nil
	} else if err != nil {
		return err
	}
	lanes := slices.DeleteFunc(slices.Clone(h.lanes), func(s *seat) bool { return s.lost })
	lanes = append(lanes, seats...)
	slices.SortFunc(lanes, func(a, b *seat) int { return cmp.Compare(a.worker, b.worker) })
	grown := len(lanes) > len(h.lanes)
	h.lanes, h.starved = lanes, nil
	k.publish(h)
	if h.generator != nil {
		k.judge(h, k.clock(), h.look(k.clock()))
	}
	if grown {
		k.say(slog.LevelInfo, "uidplugin: more worker ids for a table that needs them", "table", h.table, "lanes", len(lanes), "worker_id", workersOf(lanes))
	} else {
		k.say(slog.LevelInfo, "uidplugin: worker ids replaced", "table", h.table, "worker_id", workersOf(lanes))
	}
	return nil
}

// judge notes how a generator stands. It returns how many ids were taken since it was
// judged before, and how long ago that was. The number is only right for a generator
// that is ahead of the clock, as those in need are, and if it is known: if the
// generator has as many lanes as before, and its lease joins the one before.
func (k *Leased) judge(h *hold, now time.Time, u generator.Usage) (taken uint64, passed time.Duration, known bool) {
	from, until := h.published[0].From, h.published[0].Until
	had := h.left + uint64(max(until-h.lastUntil, 0))*uint64(u.Lanes)*uint64(k.layout.MaxSequence()+1)
	// Ticks between two leases that do not join were not there to be taken.
	passed, known = now.Sub(h.judged), h.judgedLanes == u.Lanes && from <= h.lastUntil+1
	h.judged, h.left, h.lastUntil, h.judgedLanes = now, u.Left, until, u.Lanes
	return had - min(u.Left, had), passed, known
}

// wanted returns how many lanes a generator should have: more if it takes ids faster
// than its lanes make them and has used up half of what it may borrow, and half of
// them if it has been up with the clock for a while.
func (k *Leased) wanted(h *hold, now time.Time, tick int64) (lanes int) {
	lanes = len(h.lanes)
	h.puzzling = false
	if h.generator == nil || len(h.published) == 0 {
		return lanes
	}
	u, lease := h.look(now), h.published[0]
	perTick := k.layout.MaxSequence() + 1
	capacity := uint64(max(lease.Until-max(tick, lease.From)+1, 0)) * uint64(u.Lanes) * uint64(perTick)
	ahead := u.Tick > tick
	need := u.Waiting && u.Left == 0 || ahead && u.Left < capacity/2
	if now.Sub(h.judged) < glance/2 && h.judgedLanes == u.Lanes {
		h.puzzling = need
		return lanes
	}
	taken, passed, known := k.judge(h, now, u)
	switch {
	case lanes < u.MinLanes:
		lanes = u.MinLanes
	case need:
		h.calm = time.Time{}
		if h.puzzling = !known || passed > staleLook; !known {
			return lanes
		}
		if k.terms.window > 0 && !u.Waiting {
			h.puzzling = false
			return lanes // a longer window will do
		}
		made := float64(perTick) / k.layout.Tick.Seconds() // by one lane, in a second
		needed := 1.25 * float64(taken) / passed.Seconds() / made
		most := min(k.config.MaxLanes, cmp.Or(u.MaxLanes, generator.MaxLanes))
		atOnce := most
		if passed < longLook {
			atOnce = min(most, boldly*lanes)
		}
		for float64(lanes) < needed && lanes < atOnce {
			lanes *= 2
		}
		if u.Waiting && float64(lanes) < needed && len(h.lanes) == most {
			k.bound(h, nil)
		}
		if lanes > len(h.lanes) {
			h.steady = max(h.steady, calmAfter)
			if now.Sub(h.shrunk) < 4*h.steady {
				h.steady = min(2*h.steady, unusedAfter) // they were given up too soon
			}
		}
	case ahead && u.Left < capacity/4*3:
		h.calm = time.Time{}
	case h.calm.IsZero():
		h.calm = now
	case lanes > max(u.MinLanes, 1) && now.Sub(h.calm) > max(h.steady, calmAfter):
		h.calm, h.shrunk, h.bounded = now, now, false
		lanes /= 2
	}
	return lanes
}

// puzzled tells whether a generator in need should be looked at again soon.
func (k *Leased) puzzled() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.ContainsFunc(k.holds, func(h *hold) bool { return h.puzzling })
}

// bound says once that a generator needs more lanes than it can have.
func (k *Leased) bound(h *hold, why error) {
	if !h.bounded {
		h.bounded = true
		args := []any{"table", h.table, "lanes", len(h.lanes), "most", k.config.MaxLanes}
		if why != nil {
			args = append(args, "error", why)
		}
		k.say(slog.LevelWarn, "uidplugin: a table takes ids faster than its worker ids make them, and cannot have more of them: creates will wait"+
			" (a layout with more sequence bits, WithMaxLanes, WithDurableDatabase help)", args...)
	}
}

// publish tells a generator what it may stamp, if that has changed. Lanes that were
// lost stay until they are replaced: what was granted to them is this process's.
func (k *Leased) publish(h *hold) {
	leases := leaseOf(h.lanes)
	if h.generator == nil || leases == nil || slices.Equal(leases, h.published) {
		return
	}
	if err := h.generator.Renew(leases...); errors.Is(err, generator.ErrClosed) {
		return
	} else if err != nil {
		k.say(slog.LevelError, "uidplugin: a generator refuses its lease", "table", h.table, "error", err)
		return
	}
	h.published = leases
}

// write writes the tables of spares that are in use into their rows. One that fails does
// not keep the others from it.
func (k *Leased) write(ctx context.Context) error {
	k.mu.Lock()
	var unwritten []*hold
	for _, h := range k.holds {
		if h.unwritten != 0 {
			unwritten = append(unwritten, h)
		}
	}
	k.mu.Unlock()
	var errs []error
	for _, h := range unwritten {
		ours, err := k.bind(ctx, h.unwritten, h.table)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		k.mu.Lock()
		if !ours {
			for _, s := range h.lanes {
				s.lost = s.lost || s.worker == h.unwritten
			}
			k.stats.Lost++
			k.say(slog.LevelError, "uidplugin: a spare worker id was lost before its table was written down: ids that were made with it lead nowhere",
				"table", h.table, "worker_id", h.unwritten)
		}
		h.unwritten = 0
		k.unlock()
	}
	return errors.Join(errs...)
}

// failed tells the generators why their leases are not renewed, for those whose
// leases end.
func (k *Leased) failed(err error) {
	if first := k.suspend(err); first {
		k.config.Log.Warn("uidplugin: worker ids cannot be renewed; ids are made until what was renewed before is used up", "error", err)
	}
}

// suspend is failed without a word. It reports whether it was well before.
func (k *Leased) suspend(err error) (first bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if first = k.stats.LastError == nil; first {
		k.stats.Since = k.clock()
	}
	k.stats.LastError = err
	for _, h := range k.holds {
		if h.generator != nil {
			h.generator.Suspend(err)
		}
	}
	return first
}

// recovered takes back what failed has done.
func (k *Leased) recovered() {
	k.mu.Lock()
	defer k.unlock()
	if k.stats.LastError == nil || slices.ContainsFunc(k.holds, func(h *hold) bool { return h.starved != nil }) {
		return
	}
	k.say(slog.LevelInfo, "uidplugin: worker ids are renewed again", "after", k.clock().Sub(k.stats.Since))
	k.stats.LastError, k.stats.Since = nil, time.Time{}
	for _, h := range k.holds {
		if h.generator != nil {
			h.generator.Suspend(nil)
		}
	}
}

var _ generator.Renewable = (*generator.Cached)(nil)

package workernode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin/generator"
)

// How worker ids are got: those that are free are taken over, and new ones make up for
// the rest.

// claim returns a seat for each of tables, in their order; for a spare, whose table is
// empty, nil if worker ids are used up.
func (k *Leased) claim(ctx context.Context, tables []string) ([]*seat, error) {
	seats := make([]*seat, len(tables))
	k.unstash(tables, seats)
	var atLeast int64
	for try := 0; ; try++ {
		err := k.claimOnce(ctx, tables, seats, atLeast)
		if err == nil {
			return seats, nil
		}
		switch {
		case try >= maxTries:
		case errors.Is(err, errTaken):
			// UidGenerator inserts into the same table. Its ids come from
			// AUTO_INCREMENT, so go where that is.
			largest, e := k.db.largest(ctx, k.layout)
			if e == nil && largest+int64(len(tables)) <= k.layout.MaxWorkerID() {
				atLeast = largest + 1
			}
			if e == nil {
				continue
			}
			err = e
		case errors.Is(err, errSlow):
			if err = pause(ctx, try); err == nil {
				continue
			}
		case Passing(err):
			if err = pause(ctx, try); err == nil {
				continue
			}
		}
		k.mu.Lock()
		for _, s := range seats {
			if s != nil {
				k.stash = append(k.stash, s)
			}
		}
		k.mu.Unlock()
		return nil, err
	}
}

// unstash fills seats with those in the stash that are for tables, and gives those back
// whose fences have passed.
func (k *Leased) unstash(tables []string, seats []*seat) {
	k.mu.Lock()
	defer k.mu.Unlock()
	tick := k.tick(k.terms)
	k.stash = slices.DeleteFunc(k.stash, func(s *seat) bool {
		if s.until < max(s.from, tick+k.terms.slack) {
			k.dropped = append(k.dropped, s.worker)
			return true
		}
		for i, table := range tables {
			if seats[i] == nil && table == s.table {
				seats[i] = s
				return true
			}
		}
		return false
	})
}

// errSlow reports rows that were inserted too late to be used.
var errSlow = errors.New("workernode: inserting worker ids took too long")

// drop gives back what a claim has got that Close was faster than, in vain if the
// database is away.
func (k *Leased) drop(seats []*seat) {
	var workers []int64
	for _, s := range seats {
		if s != nil {
			workers = append(workers, s.worker)
		}
	}
	if len(workers) > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = k.giveBack(ctx, workers)
	}
}

// claimOnce fills those of seats that are nil: with rows that are free, and with
// new ones for the rest.
func (k *Leased) claimOnce(ctx context.Context, tables []string, seats []*seat, atLeast int64) error {
	if err := k.layout.ValidAt(k.clock()); err != nil {
		return err
	}
	if err := k.checkClock(ctx); err != nil {
		return err
	}
	r, err := k.db.Join(ctx, k.layout)
	if err != nil {
		return err
	}
	k.mu.Lock()
	k.terms.floor = max(k.terms.floor, r.Floor)
	t := k.terms
	k.mu.Unlock()
	if err := k.takeOver(ctx, t, tables, seats, maxRounds); err != nil {
		return err
	}
	var missing []int
	for i, s := range seats {
		if s == nil {
			missing = append(missing, i)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	block, err := k.db.reserve(ctx, k.layout, r, int64(len(missing)), atLeast)
	if errors.Is(err, ErrExhausted) {
		t.grace = 0 // rather than none
		if e := k.takeOver(ctx, t, tables, seats, maxTries); e != nil {
			return errors.Join(err, e)
		}
		// Spares are not worth an error.
		missing = slices.DeleteFunc(missing, func(i int) bool { return seats[i] != nil || tables[i] == "" })
		if len(missing) == 0 {
			return nil
		}
		if block, err = k.db.reserve(ctx, k.layout, r, int64(len(missing)), atLeast); errors.Is(err, ErrExhausted) {
			return k.exhausted(ctx, err, tables, seats)
		}
	}
	if err != nil {
		return err
	}
	t = k.current()
	before := k.tick(t)
	start, fence := t.begin(before), t.target(before, before)
	if fence <= start {
		return fmt.Errorf("%w: the last tick of the layout is %d, now is %d", generator.ErrTimeExhausted, t.last, before)
	}
	nodes := make([]newNode, len(missing))
	for i, at := range missing {
		nodes[i] = newNode{worker: block.worker(i), table: tables[at], reusable: true, start: start, fence: fence}
	}
	if err := k.insert(ctx, nodes); err != nil {
		return err
	}
	after := k.tick(t)
	var slow error
	var fresh int64
	for i, at := range missing {
		s, usable := t.inserted(nodes[i].worker, tables[at], start, fence, before, after)
		if !usable {
			k.mu.Lock()
			k.dropped = append(k.dropped, s.worker)
			k.mu.Unlock()
			k.Need()
			slow = errSlow
			continue
		}
		seats[at] = &s
		fresh++
	}
	k.count(func(s *LeaseStats) { s.Fresh += fresh })
	return slow
}

// exhausted says of an ErrExhausted who has all the worker ids.
func (k *Leased) exhausted(ctx context.Context, err error, tables []string, seats []*seat) error {
	var names []string
	for i, s := range seats {
		if s == nil && tables[i] != "" && !slices.Contains(names, tables[i]) {
			names = append(names, tables[i])
		}
	}
	slices.Sort(names)
	owners, e := k.owners(ctx, 5)
	if e != nil {
		return errors.Join(err, e)
	}
	return fmt.Errorf("%w; none of those that were given to %s is free, and a worker id is never given to another table (most have: %s);"+
		" those that are not held are free when the clock has passed what was granted of them, the next of these tables %s;"+
		" else end processes that are not needed, write to fewer tables, or take a layout with more worker bits for a new id space",
		err, strings.Join(names, ", "), owners, k.nextFree(ctx, names))
}

// nextFree says when the next worker id of tables that was given back is free.
func (k *Leased) nextFree(ctx context.Context, tables []string) string {
	fence, err := k.earliestFence(ctx, tables)
	if err != nil || fence < 0 {
		return "when a process has ended"
	}
	return "at " + k.layout.TimeOf(min(fence, k.layout.MaxTick())).Format(time.RFC3339)
}

// takeOver fills those of seats that are nil with rows that are free, as far as
// there are any. It goes on as long as others were faster to get what it wanted, up to
// a number of rounds.
func (k *Leased) takeOver(ctx context.Context, t terms, tables []string, seats []*seat, rounds int) error {
	for round := range rounds {
		tried, err := k.takeFree(ctx, t, tables, seats)
		if err != nil || tried == 0 || !slices.Contains(seats, nil) {
			return err
		}
		if err := pause(ctx, round); err != nil {
			return err
		}
	}
	return nil
}

// takeFree is one round of takeOver. It returns how many rows it wanted.
func (k *Leased) takeFree(ctx context.Context, t terms, tables []string, seats []*seat) (tried int, err error) {
	wanted := map[string][]int{}
	var names []string
	n := 0
	for i, s := range seats {
		if s == nil {
			if wanted[tables[i]] == nil {
				names = append(names, tables[i])
			}
			wanted[tables[i]] = append(wanted[tables[i]], i)
			n++
		}
	}
	if n == 0 {
		return 0, nil
	}
	// As many that others, who start now as well, find others.
	free, err := k.candidates(ctx, t, k.tick(t), k.config.Sticky, max(500, 4*min(n, chunk)), names...)
	if err != nil {
		return 0, err
	}
	rand.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
	var rows []row
	place := map[int64]int{} // in seats, of a worker id
	k.mu.Lock()
	free = slices.DeleteFunc(free, func(r row) bool { return r.table == "" && k.usedUp[r.worker] > 0 })
	k.mu.Unlock()
	if k.config.Sticky {
		slices.SortStableFunc(free, func(a, b row) int { return cmp.Compare(b.own, a.own) })
	}
	for _, r := range free {
		if at := wanted[r.table]; len(at) > 0 {
			rows, place[r.worker] = append(rows, r), at[0]
			wanted[r.table] = at[1:]
		}
	}
	for _, part := range inParts(rows) {
		taken, err := k.takeRows(ctx, t, part)
		if err != nil {
			return 0, err
		}
		for _, s := range taken {
			seats[place[s.worker]] = s
		}
	}
	return len(rows), nil
}

// takeRows takes rows over and returns the seats of those that nobody else was
// faster to get.
func (k *Leased) takeRows(ctx context.Context, t terms, rows []row) (taken []*seat, err error) {
	now := k.tick(t)
	fence := t.target(now, now)
	if len(rows) > 1 {
		fence-- // leaves room for another statement if some are refused
	}
	for _, r := range rows {
		if fence <= r.fence {
			return nil, nil // the clock is at the end of the layout
		}
	}
	changed, err := k.take(ctx, t.held(row{}, now), fence, rows)
	after := k.tick(t)
	if err == nil && changed == int64(len(rows)) {
		for _, r := range rows {
			s := t.taken(r, fence, after)
			taken = append(taken, &s)
		}
		// Those whose acknowledgement came too late are free again after their grace.
		taken = slices.DeleteFunc(taken, func(s *seat) bool { return s.left(0) == 0 })
		k.count(func(s *LeaseStats) { s.Taken += int64(len(taken)) })
		return taken, nil
	}
	if err != nil || changed == 0 {
		return nil, err
	}
	// Which are ours? What the statement has granted is not known of any of them, so
	// those that are get another.
	workers := make([]int64, len(rows))
	for i, r := range rows {
		workers[i] = r.worker
	}
	there, err := k.read(ctx, workers)
	if err != nil {
		return nil, err
	}
	var ours []*seat
	for _, r := range rows {
		if now := there[r.worker]; now.holder == k.holder {
			ours = append(ours, &seat{worker: r.worker, table: r.table, compare: now.fence, from: now.fence + 1, until: now.fence})
		}
	}
	if len(ours) == 0 {
		return nil, nil
	}
	if refused, err := k.extendSeats(ctx, t, ours, k.tick(t), 0); err != nil || refused {
		return nil, err // these rows are free again when their grace is over
	}
	taken = slices.DeleteFunc(ours, func(s *seat) bool { return s.left(0) == 0 })
	k.count(func(s *LeaseStats) { s.Taken += int64(len(taken)) })
	return taken, nil
}

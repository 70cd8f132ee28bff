package workernode

import "slices"

// This file decides what a process may stamp and which statement it sends next. It knows neither SQL nor clocks nor
// goroutines. All outside events come in as arguments, so the model (model_test.go) drives this code through everything
// that can happen. doc.go has the protocol in words.
//
// START_TICK, FLOOR_TICK and the fields start and floor are the tick before the first one that may be stamped. FENCE,
// BEFORE_TICK and granted are the last tick that may be, or may have been, stamped.
//
// What begins, renews, keeps, releases, reclaims or allocates a slot is a [change]. The functions called ...Change
// return it, and those called note... take the answer of the database.

// leaseParams are the numbers of the protocol, in ticks of the layout.
type leaseParams struct {
	lead   int64 // how far ahead of the clock a fence is set
	settle int64 // how long ago the fence of a free slot must have passed before it is reclaimed
	grace  int64 // the same for a slot that has a holder
	quiet  int64 // how long ago the last statement of the holder must be: longer than what it was granted may last
	last   int64 // last tick of the layout
}

// A slotRow is what was read of a row of WORKER_SLOT.
type slotRow struct {
	id      int64
	holder  string
	version int64
	fence   int64
	seen    int64
	near    int // preference for reclaiming: 2 same host and port, 1 same application, 0 another application
}

// A change is one statement on a row of WORKER_SLOT: what it compares, and what it sets.
type change struct {
	slot           int64
	insert         bool   // the row is inserted; nothing is compared
	holder         string // compared
	version, fence int64  // compared

	newHolder            string
	newVersion, newFence int64
	first, before, least int64 // of a session: its first tick, its BEFORE_TICK, and the least that the first may be
}

// A slotLease is what a process knows of the slot that it holds. The zero slotLease holds no slot.
//
// Invariant: an acknowledged statement granted every tick in (start, granted] to this process and to no other. It
// moved the slot's FENCE from below the tick to the tick or above. granted only grows while the slot is held.
type slotLease struct {
	held bool
	id   int64

	version, fence int64 // what the next statement compares
	ackedVersion   int64 // VERSION of the last acknowledged statement

	start   int64 // START_TICK of the current session: the tick before its first one
	granted int64 // last tick that may be stamped
	floor   int64 // FLOOR_TICK: no tick up to it is stamped

	inDoubt   bool // the outcome of the last statement is unknown
	regressed bool // the row was read with a VERSION below acknowledged

	// used is the largest version that this process has sent for any slot. It survives the
	// loss of a slot, so one holder never uses a version twice.
	used int64
}

// A step is what a lease manager does next about its slot.
type step int

const (
	stepAcquire      step = iota // it has no slot: reclaim one, or insert one
	stepRead                     // the outcome of a statement is unknown: read the row
	stepCheckCommits             // the row is older than what was acknowledged: check whether commits were lost
	stepBegin                    // begin a new session
	stepAbandon                  // the fence is ahead of what can be granted: release the slot and acquire another
	stepReady                    // renewing, adding and binding are possible
	stepWait                     // the fence is as far ahead as it may be: a session can begin when the clock has moved
	stepExhausted                // the layout has no tick left
)

// next returns what must be done before, or for, a grant; now is the clock.
func (l *slotLease) next(p leaseParams, now int64) step {
	switch {
	case !l.held:
		return stepAcquire
	case l.inDoubt:
		return stepRead
	case l.regressed:
		return stepCheckCommits
	case l.contiguous(now):
		return stepReady
	case l.fence > p.fenceAt(now, 0):
		return stepAbandon
	case l.fence >= p.last:
		return stepExhausted
	case l.fence == p.fenceAt(now, 0):
		return stepWait
	}
	return stepBegin
}

// contiguous reports whether a grant that is made now continues the one before: it begins
// with the next tick, which the clock has not passed.
func (l *slotLease) contiguous(now int64) bool {
	return l.fence == l.granted && now <= l.granted+1 && l.floor <= l.granted
}

// altered reports whether the row has less than what an acknowledged statement has written, although its VERSION is not
// below: the database did not keep it. Only a session can follow, whose transaction reads back what it has written. The
// slot must not be released meanwhile, because its next holder would begin below what this process has stamped.
func (l *slotLease) altered() bool {
	return l.held && !l.inDoubt && !l.regressed && l.fence < l.granted
}

// fenceAt returns the FENCE that a statement sets which compares with the given one.
func (p leaseParams) fenceAt(now, compared int64) int64 {
	return max(min(now+p.lead, p.last), compared)
}

// reclaimable reports whether a slot may be reclaimed. Two things rest on it: rule 6 of doc.go, and
// what doc.go says of databases that lose commits.
func (p leaseParams) reclaimable(r slotRow, now int64) bool {
	if r.holder == "" {
		return r.fence < now-p.settle
	}
	return r.fence < now-p.grace && r.seen < now-p.quiet
}

// usable reports whether a row that was read is one that a process may reclaim: its values are such that a slot can
// have.
func (p leaseParams) usable(r slotRow, now int64) bool {
	return p.reclaimable(r, now) && r.id > 0 && r.version >= 0 && r.version < maxVersion && r.fence <= p.last
}

// inOrder returns the slots that a process tries to reclaim, in this order: those with the largest near first.
// Otherwise the order is random, so that processes that start at once do not all try the same slot. It changes the
// order of rows.
func inOrder(rows []slotRow, shuffle func(n int, swap func(i, j int))) []slotRow {
	shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
	slices.SortStableFunc(rows, func(a, b slotRow) int { return b.near - a.near })
	return rows[:min(len(rows), 2*maxRefused)]
}

// looksAgain reports whether a process that got none of the slots that it tried looks for others: all were refused, so
// other processes were faster. When many start at once there are more free slots than each has read or tried. It gives
// up after some looks, and inserts a slot.
func looksAgain(tried, refused, looks int) bool {
	return tried > 0 && refused == tried && looks <= maxRefused
}

// startOf returns START_TICK of worker ids that are added now; floor is the registry's.
func startOf(now, floor int64) int64 { return max(now-1, floor) }

// maxVersion is the largest VERSION that a row can have for this package to use it.
const maxVersion = 1 << 62

// nextVersion reserves a version for a statement that compares with the given one. No earlier statement of this process
// has it.
func (l *slotLease) nextVersion(compared int64) int64 {
	l.used = max(l.used, compared) + 1
	return l.used
}

// reclaimChange returns the change that reclaims a slot. Its session begins at first, which [change.setFirst] sets when
// the row is locked.
func (l *slotLease) reclaimChange(p leaseParams, r slotRow, now int64, me string) change {
	return change{
		slot: r.id, holder: r.holder, version: r.version, fence: r.fence,
		newHolder: me, newVersion: l.nextVersion(r.version), newFence: p.fenceAt(now, r.fence),
		before: r.fence, least: r.fence + 1,
	}
}

// allocateChange returns the change that inserts a new slot.
func (l *slotLease) allocateChange(p leaseParams, slot, now int64, me string) change {
	return change{slot: slot, insert: true, newHolder: me, newVersion: l.nextVersion(0), newFence: p.fenceAt(now, 0)}
}

// beginChange returns the change that begins a new session of the same holder. BEFORE_TICK is what the session before
// was granted. FENCE may be above that: what an unacknowledged statement moved it by was never stamped.
func (l *slotLease) beginChange(p leaseParams, now int64, me string) change {
	c := l.keepAliveChange(me)
	c.newFence = p.fenceAt(now, l.fence)
	c.before, c.least = l.granted, max(l.fence, l.granted)+1
	return c
}

// setFirst sets the first tick of the session that c begins. now is the clock, read after the slot's row was locked,
// and floor the registry's. It reports whether there is a tick to grant.
func (c *change) setFirst(now, floor int64) bool {
	c.first = max(c.least, now, min(floor, c.newFence)+1)
	return c.first <= c.newFence
}

// renewChange returns the change that moves the fence on. The same change goes first in a transaction that adds or
// binds worker ids. If the clock has passed what was granted since [slotLease.next] looked, the change grants nothing,
// and a new session follows, whose ticks are above FENCE. So FENCE moves no further than in time, and leaves the
// session the rest.
func (l *slotLease) renewChange(p leaseParams, now int64, me string) change {
	return change{
		slot: l.id, holder: me, version: l.version, fence: l.fence,
		newHolder: me, newVersion: l.nextVersion(l.version), newFence: p.fenceAt(min(now, l.granted+1), l.fence),
	}
}

// keepAliveChange returns the change of an idle process: FENCE stays.
func (l *slotLease) keepAliveChange(me string) change {
	return change{
		slot: l.id, holder: me, version: l.version, fence: l.fence,
		newHolder: me, newVersion: l.nextVersion(l.version), newFence: l.fence,
	}
}

// releaseChange returns the change that frees the slot. FENCE stays.
func (l *slotLease) releaseChange(me string) change {
	c := l.keepAliveChange(me)
	c.newHolder = ""
	return c
}

// noteSession notes that the transaction of c, which began a session, was acknowledged.
func (l *slotLease) noteSession(c change, floor int64) {
	*l = slotLease{
		held: true, id: c.slot, version: c.newVersion, fence: c.newFence, ackedVersion: c.newVersion,
		start: c.first - 1, granted: c.newFence, floor: floor, used: l.used,
	}
}

// noteRenewal notes that c, a renewal, was acknowledged; now is the clock after that. What it
// granted is usable only if it continues what was granted before; otherwise a new session
// has to begin. It reports whether anything was granted.
func (l *slotLease) noteRenewal(c change, now int64) bool {
	joins := l.contiguous(now)
	grew := joins && c.newFence > l.granted
	if joins {
		l.granted = c.newFence
	}
	l.noteAck(c)
	return grew
}

// noteAck notes that c was acknowledged, and grants nothing.
func (l *slotLease) noteAck(c change) {
	l.version, l.fence, l.ackedVersion, l.inDoubt = c.newVersion, c.newFence, c.newVersion, false
}

// doubt notes that the outcome of a statement is unknown, or that it changed fewer rows
// than it should have. Nothing was granted.
func (l *slotLease) doubt() { l.inDoubt, l.regressed = true, false }

// noteRow notes what the slot's row says after a doubt; found is false if the row does not exist. It reports whether
// the slot is still held. The next statement compares with what was read, which is never used.
func (l *slotLease) noteRow(r slotRow, found bool, me string) bool {
	if !found || r.holder != me || r.version > maxVersion {
		l.lose()
		return false
	}
	l.inDoubt = false
	l.version, l.fence = r.version, r.fence
	l.regressed = r.version < l.ackedVersion
	return true
}

// lose forgets the slot. What was granted may be used up.
func (l *slotLease) lose() { *l = slotLease{used: l.used} }

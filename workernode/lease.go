package workernode

import "slices"

// This file decides which ticks a process may stamp, and which statement it sends next. It uses no SQL, clock or
// goroutine, so the model (model_test.go) can drive it through every sequence of events. doc.go describes the protocol.
//
// START_TICK, FLOOR_TICK, start and floor are the tick before the first one that may be stamped. FENCE, BEFORE_TICK and
// granted are the last tick that may be, or may have been, stamped.
//
// Functions named ...Change return a [change], and functions named note... record the database's answer.

// leaseParams are the durations of the protocol, in ticks of the layout.
type leaseParams struct {
	lead   int64 // how far ahead of the clock a fence is set
	settle int64 // how long the fence of a free slot must have passed before it is reclaimed
	grace  int64 // the same for a slot with a holder
	quiet  int64 // how old the holder's last statement must be: longer than its grants may last
	last   int64 // last tick of the layout
	region int64 // REGION of the slots that this process may hold
}

// A slotRow is a row of WORKER_SLOT as it was read.
type slotRow struct {
	id      int64
	holder  string
	version int64
	fence   int64
	seen    int64
	region  int64
	near    int // preference for reclaiming: 2 same host and port, 1 same application, 0 another application
}

// A change is one statement on a row of WORKER_SLOT: the values it compares, and the values it sets. It begins, renews,
// keeps, releases, reclaims or allocates a slot.
type change struct {
	slot           int64
	insert         bool   // inserts the row, and compares nothing
	holder         string // compared
	version, fence int64  // compared

	newHolder            string
	newVersion, newFence int64
	first, before, least int64 // for a session: its first tick, its BEFORE_TICK, and the smallest possible first
}

// A slotLease is a process's knowledge of its slot. The zero slotLease holds none.
//
// Invariant: each tick in (start, granted] was granted to this process only, by an acknowledged statement that moved
// FENCE from below the tick to the tick or above. granted only grows while the slot is held.
type slotLease struct {
	held bool
	id   int64

	version, fence int64 // the values that the next statement compares
	ackedVersion   int64 // VERSION of the last acknowledged statement

	start   int64 // START_TICK of the current session: the tick before its first one
	granted int64 // last tick that may be stamped
	floor   int64 // FLOOR_TICK: no tick up to it is stamped

	inDoubt   bool // the outcome of the last statement is unknown
	regressed bool // the row was read with a VERSION below acknowledged

	// used is the largest version that this process has sent for any slot. It survives the loss of a slot, so one
	// holder never uses a version twice.
	used int64
}

// A step is the next thing that a lease manager does about its slot.
type step int

const (
	stepAcquire      step = iota // reclaim or insert a slot, because none is held
	stepRead                     // read the row, because the outcome of a statement is unknown
	stepCheckCommits             // check for lost commits, because the row is older than the acknowledged one
	stepBegin                    // begin a new session
	stepAbandon                  // the fence is too far ahead to grant anything: release the slot and acquire another
	stepReady                    // renewals and adding worker ids are possible
	stepWait                     // the fence is at its limit: a session can begin when the clock has moved
	stepExhausted                // the layout has no tick left
)

// next returns the step that has to precede a grant, or that makes one. now is the clock.
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

// contiguous reports whether a grant made now continues the previous one: it begins with the next tick, which the clock
// has not passed.
func (l *slotLease) contiguous(now int64) bool {
	return l.fence == l.granted && now <= l.granted+1 && l.floor <= l.granted
}

// altered reports whether the row has a lower FENCE than acknowledged although its VERSION is not below, because the
// database did not keep it. Only a session can follow, because its transaction reads back its values. Until then the
// slot must not be released: its next holder would begin below ticks that this process has stamped.
func (l *slotLease) altered() bool {
	return l.held && !l.inDoubt && !l.regressed && l.fence < l.granted
}

// fenceAt returns the FENCE to set by a statement that compares with the given one.
func (p leaseParams) fenceAt(now, compared int64) int64 {
	return max(min(now+p.lead, p.last), compared)
}

// reclaimable reports whether a slot may be reclaimed. Rule 6 and the section about lost commits in doc.go rely on it.
func (p leaseParams) reclaimable(r slotRow, now int64) bool {
	if r.holder == "" {
		return r.fence < now-p.settle
	}
	return r.fence < now-p.grace && r.seen < now-p.quiet
}

// usable reports whether a process may reclaim the slot of r: it is reclaimable, of the process's region, and its values
// are valid. A slot of another region may be a replicated row, whose present values only its region knows.
func (p leaseParams) usable(r slotRow, now int64) bool {
	return p.reclaimable(r, now) && r.region == p.region && r.id > 0 && r.version >= 0 && r.version < maxVersion && r.fence <= p.last
}

// inOrder returns up to 2*maxRefused of rows in the order in which to try them, those with the largest near first.
// Otherwise the order is random, so that processes that start at once do not all try the same slot.
func inOrder(rows []slotRow, shuffle func(n int, swap func(i, j int))) []slotRow {
	shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
	slices.SortStableFunc(rows, func(a, b slotRow) int { return b.near - a.near })
	return rows[:min(len(rows), 2*maxRefused)]
}

// maxRefused bounds how often a refused statement is retried at once.
const maxRefused = 4

// looksAgain reports whether a process that got no slot should read candidates again. It should if all were refused,
// because more slots are free than each of many starting processes has read. After some looks it inserts a slot
// instead.
func looksAgain(tried, refused, looks int) bool {
	return tried > 0 && refused == tried && looks <= maxRefused
}

// startOf returns START_TICK for worker ids that are added now. floor is the registry's.
func startOf(now, floor int64) int64 { return max(now-1, floor) }

// maxVersion is the largest VERSION that this package accepts in a row.
const maxVersion = 1 << 62

// nextVersion reserves a version that no earlier statement of this process has used, above the given one.
func (l *slotLease) nextVersion(compared int64) int64 {
	l.used = max(l.used, compared) + 1
	return l.used
}

// reclaimChange returns the change that reclaims a slot. [change.setFirst] sets the first tick of its session once the
// row is locked.
func (l *slotLease) reclaimChange(p leaseParams, r slotRow, now int64, me string) change {
	return change{
		slot: r.id, holder: r.holder, version: r.version, fence: r.fence,
		newHolder: me, newVersion: l.nextVersion(r.version), newFence: p.fenceAt(now, r.fence),
		before: r.fence, least: r.fence + 1,
	}
}

func (l *slotLease) allocateChange(p leaseParams, slot, now int64, me string) change {
	return change{slot: slot, insert: true, newHolder: me, newVersion: l.nextVersion(0), newFence: p.fenceAt(now, 0)}
}

// beginChange returns the change that begins a new session of the same holder. BEFORE_TICK is the last granted tick.
// FENCE may be above it, because ticks of an unacknowledged statement were never stamped.
func (l *slotLease) beginChange(p leaseParams, now int64, me string) change {
	c := l.keepAliveChange(me)
	c.newFence = p.fenceAt(now, l.fence)
	c.before, c.least = l.granted, max(l.fence, l.granted)+1
	return c
}

// setFirst sets the first tick of the session that c begins, and reports whether c grants any tick. Read the clock for
// now only after the slot's row was locked. floor is the registry's.
func (c *change) setFirst(now, floor int64) bool {
	c.first = max(c.least, now, min(floor, c.newFence)+1)
	return c.first <= c.newFence
}

// renewChange returns the change that moves the fence on. It also goes first in a transaction that adds worker ids. If
// the clock has passed the last grant since [slotLease.next] looked, the change grants nothing and a new session
// follows above FENCE. So FENCE moves no further than it would have in time, and leaves the rest to that session.
func (l *slotLease) renewChange(p leaseParams, now int64, me string) change {
	return change{
		slot: l.id, holder: me, version: l.version, fence: l.fence,
		newHolder: me, newVersion: l.nextVersion(l.version), newFence: p.fenceAt(min(now, l.granted+1), l.fence),
	}
}

// keepAliveChange returns the change for an idle process. FENCE stays.
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

// noteSession records that the transaction of c, which begins a session, was acknowledged.
func (l *slotLease) noteSession(c change, floor int64) {
	*l = slotLease{
		held: true, id: c.slot, version: c.newVersion, fence: c.newFence, ackedVersion: c.newVersion,
		start: c.first - 1, granted: c.newFence, floor: floor, used: l.used,
	}
}

// noteRenewal records that the renewal c was acknowledged, and reports whether it granted anything. now is the clock
// after that. A grant must continue the previous one. Otherwise a new session has to begin.
func (l *slotLease) noteRenewal(c change, now int64) bool {
	joins := l.contiguous(now)
	grew := joins && c.newFence > l.granted
	if joins {
		l.granted = c.newFence
	}
	l.noteAck(c)
	return grew
}

// noteAck records that c was acknowledged. It grants nothing.
func (l *slotLease) noteAck(c change) {
	l.version, l.fence, l.ackedVersion, l.inDoubt = c.newVersion, c.newFence, c.newVersion, false
}

// doubt records that a statement granted nothing, because its outcome is unknown or it changed fewer rows than
// expected.
func (l *slotLease) doubt() { l.inDoubt, l.regressed = true, false }

// noteRow records the slot's row after a doubt, and reports whether the slot is still held. found is false if the row
// does not exist. The next statement compares with the values of r, but they grant nothing.
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

// lose forgets the slot. Earlier grants may still be used up.
func (l *slotLease) lose() { *l = slotLease{used: l.used} }

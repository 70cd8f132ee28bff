// Package lease decides which ticks a process may stamp, and which statement its lease manager sends next. It knows no
// SQL, clock or goroutine, so its model (model_test.go) can drive it through every sequence of events. The comment of
// package workernode describes the protocol.
package lease

import "slices"

// START_TICK, FLOOR_TICK, Start and Floor are the tick before the first one that may be stamped. FENCE and Granted are
// the last tick that may be stamped, and BEFORE_TICK the last one that earlier sessions of the slot may have stamped.

// Params are the durations of the protocol, in ticks of the layout.
type Params struct {
	Lead   int64 // how far ahead of the clock a fence is set
	Settle int64 // how far the clock must be past the fence of a free slot before the slot is reclaimed
	Grace  int64 // the same for a slot with a holder
	Quiet  int64 // how old the last statement of the holder must be, so that its grants have certainly ended
	Last   int64 // last tick of the layout
	Region int64 // REGION of the slots that this process may hold
}

// A Row is a row of WORKER_SLOT as it was read.
type Row struct {
	ID      int64
	Holder  string
	Version int64
	Fence   int64
	Seen    int64
	Region  int64
	Near    int // preference for reclaiming: 2 same host and port, 1 same application, 0 another application
}

// A Change is one statement on a row of WORKER_SLOT: the values it expects, and the values it sets.
type Change struct {
	Slot           int64
	Insert         bool   // inserts the row, and expects nothing
	Holder         string // expected
	Version, Fence int64  // expected

	NewHolder            string
	NewVersion, NewFence int64
	First, Before, Least int64 // for a session: its first tick, its BEFORE_TICK, and its smallest possible first tick
}

// A Slot is what a process knows about its slot. The zero Slot stands for a process without a slot.
//
// Invariant: each tick in (Start, Granted] was granted to this process only, by an acknowledged statement that moved
// FENCE from below the tick to the tick or above. Granted only grows while the slot is held.
type Slot struct {
	Held bool
	ID   int64

	Version, Fence int64 // the values that the next statement compares
	AckedVersion   int64 // VERSION of the last acknowledged statement

	Start   int64 // START_TICK of the current session: the tick before its first one
	Granted int64 // last tick that may be stamped
	Floor   int64 // FLOOR_TICK: no tick up to it is stamped

	InDoubt   bool // the outcome of the last statement is unknown
	Regressed bool // the row was read with a VERSION below AckedVersion

	// Used is the largest version that this process has sent for any slot. It survives the loss of a slot, so one
	// holder never uses a version twice.
	Used int64
}

// A Step is the next thing that a lease manager does about its slot.
type Step int

const (
	StepAcquire      Step = iota // reclaim or insert a slot, because none is held
	StepRead                     // read the row, because the outcome of a statement is unknown
	StepCheckCommits             // check for lost commits, because the row is older than the acknowledged one
	StepBegin                    // begin a new session
	StepAbandon                  // the fence is too far ahead to grant anything: release the slot and acquire another
	StepReady                    // renewals and adding worker ids are possible
	StepWait                     // the fence is Lead ahead of the clock: a session can begin when the clock has moved
	stepExhausted                // the layout has no tick left
)

// Next returns what the lease manager must do next to be granted ticks.
func (l *Slot) Next(p Params, now int64) Step {
	switch {
	case !l.Held:
		return StepAcquire
	case l.InDoubt:
		return StepRead
	case l.Regressed:
		return StepCheckCommits
	case l.contiguous(now):
		return StepReady
	case l.Fence > p.FenceAt(now, 0):
		return StepAbandon
	case l.Fence >= p.Last:
		return stepExhausted
	case l.Fence == p.FenceAt(now, 0):
		return StepWait
	}
	return StepBegin
}

// contiguous reports whether a grant made now continues the previous one. It would begin with the tick Granted+1,
// which must be above FLOOR_TICK, and which the clock must not have passed.
func (l *Slot) contiguous(now int64) bool {
	return l.Fence == l.Granted && now <= l.Granted+1 && l.Floor <= l.Granted
}

// Altered reports whether the database did not keep FENCE, although it acknowledged the change. Only a new session
// helps, because its transaction reads the values back. Until then the slot must not be released, because its next
// holder would begin below ticks that this process has stamped.
func (l *Slot) Altered() bool {
	return l.Held && !l.InDoubt && !l.Regressed && l.Fence < l.Granted
}

// FenceAt returns the FENCE to set: Lead ahead of now, but not beyond Last, nor below the FENCE that is expected.
func (p Params) FenceAt(now, expected int64) int64 {
	return max(min(now+p.Lead, p.Last), expected)
}

// Reclaimable reports whether a slot may be reclaimed: its fence has passed, and its holder, if any, has been quiet.
func (p Params) Reclaimable(r Row, now int64) bool {
	if r.Holder == "" {
		return r.Fence < now-p.Settle
	}
	return r.Fence < now-p.Grace && r.Seen < now-p.Quiet
}

// Usable reports whether a process may reclaim the slot of r. A slot of another region may be a replicated row,
// whose present values only its region knows.
func (p Params) Usable(r Row, now int64) bool {
	return p.Reclaimable(r, now) && r.Region == p.Region && r.ID > 0 && r.Version >= 0 && r.Version < maxVersion && r.Fence <= p.Last
}

// InOrder returns up to 2*MaxRefused of the rows in the order in which to try them, the largest Near first. Rows
// with the same Near are in random order, because processes that start at once should not all try the same slot.
func InOrder(rows []Row, shuffle func(n int, swap func(i, j int))) []Row {
	shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
	slices.SortStableFunc(rows, func(a, b Row) int { return b.Near - a.Near })
	return rows[:min(len(rows), 2*MaxRefused)]
}

// MaxRefused limits the immediate retries of a refused statement, and of a look for free slots.
const MaxRefused = 4

// LooksAgain reports whether a process that got no slot should read candidates again. If all candidates were
// refused, other processes were faster, and more slots may be free.
func LooksAgain(tried, refused, looks int) bool {
	return tried > 0 && refused == tried && looks <= MaxRefused
}

// StartOf returns START_TICK for worker ids that are added now. floor is FLOOR_TICK.
func StartOf(now, floor int64) int64 { return max(now-1, floor) }

// maxVersion is the largest VERSION that this package accepts in a row.
const maxVersion = 1 << 62

// nextVersion returns a version above expected that this process has not used yet.
func (l *Slot) nextVersion(expected int64) int64 {
	l.Used = max(l.Used, expected) + 1
	return l.Used
}

// ReclaimChange returns the change that reclaims a slot. Call [Change.SetFirst] once the row is locked.
func (l *Slot) ReclaimChange(p Params, r Row, now int64, me string) Change {
	return Change{
		Slot: r.ID, Holder: r.Holder, Version: r.Version, Fence: r.Fence,
		NewHolder: me, NewVersion: l.nextVersion(r.Version), NewFence: p.FenceAt(now, r.Fence),
		Before: r.Fence, Least: r.Fence + 1,
	}
}

// AllocateChange returns the change that inserts a new slot. Call [Change.SetFirst] once the row is inserted.
func (l *Slot) AllocateChange(p Params, slot, now int64, me string) Change {
	return Change{Slot: slot, Insert: true, NewHolder: me, NewVersion: l.nextVersion(0), NewFence: p.FenceAt(now, 0)}
}

// BeginChange returns the change that begins a new session of the same holder. FENCE may be above the last granted
// tick, after a statement without acknowledgement. Nobody has stamped the ticks between.
func (l *Slot) BeginChange(p Params, now int64, me string) Change {
	c := l.KeepAliveChange(me)
	c.NewFence = p.FenceAt(now, l.Fence)
	c.Before, c.Least = l.Granted, max(l.Fence, l.Granted)+1
	return c
}

// SetFirst sets the first tick of the session that c begins, and reports whether c grants any tick. now must be a
// reading of the clock after the slot's row was locked. floor is FLOOR_TICK.
func (c *Change) SetFirst(now, floor int64) bool {
	c.First = max(c.Least, now, min(floor, c.NewFence)+1)
	return c.First <= c.NewFence
}

// RenewChange returns the change that moves the fence on. It also goes first in a transaction that adds worker ids.
// If the clock has passed the tick after the last grant since [Slot.Next] looked, the change grants nothing, and a
// new session begins above FENCE. So FENCE is then counted from the last grant: if it were Lead ahead of now, it
// would leave that session no tick.
func (l *Slot) RenewChange(p Params, now int64, me string) Change {
	return Change{
		Slot: l.ID, Holder: me, Version: l.Version, Fence: l.Fence,
		NewHolder: me, NewVersion: l.nextVersion(l.Version), NewFence: p.FenceAt(min(now, l.Granted+1), l.Fence),
	}
}

// KeepAliveChange returns the change for an idle process. FENCE stays.
func (l *Slot) KeepAliveChange(me string) Change {
	return Change{
		Slot: l.ID, Holder: me, Version: l.Version, Fence: l.Fence,
		NewHolder: me, NewVersion: l.nextVersion(l.Version), NewFence: l.Fence,
	}
}

// ReleaseChange returns the change that frees the slot. FENCE stays.
func (l *Slot) ReleaseChange(me string) Change {
	c := l.KeepAliveChange(me)
	c.NewHolder = ""
	return c
}

// NoteSession records that the transaction of c, which begins a session, was acknowledged.
func (l *Slot) NoteSession(c Change, floor int64) {
	*l = Slot{
		Held: true, ID: c.Slot, Version: c.NewVersion, Fence: c.NewFence, AckedVersion: c.NewVersion,
		Start: c.First - 1, Granted: c.NewFence, Floor: floor, Used: l.Used,
	}
}

// NoteRenewal records that the renewal c was acknowledged, and reports whether it granted anything. now is the
// clock after the acknowledgement. A renewal that does not continue the previous grant grants nothing.
func (l *Slot) NoteRenewal(c Change, now int64) bool {
	joins := l.contiguous(now)
	grew := joins && c.NewFence > l.Granted
	if joins {
		l.Granted = c.NewFence
	}
	l.NoteAck(c)
	return grew
}

// NoteAck records that c was acknowledged. It grants nothing.
func (l *Slot) NoteAck(c Change) {
	l.Version, l.Fence, l.AckedVersion, l.InDoubt = c.NewVersion, c.NewFence, c.NewVersion, false
}

// Doubt records that a statement granted nothing, because its outcome is unknown or it changed too few rows.
func (l *Slot) Doubt() { l.InDoubt, l.Regressed = true, false }

// NoteRow records the row as read after a doubt, and reports whether the slot is still held. found is false if the
// row does not exist. The values of r grant nothing.
func (l *Slot) NoteRow(r Row, found bool, me string) bool {
	if !found || r.Holder != me || r.Version > maxVersion {
		l.Lose()
		return false
	}
	l.InDoubt = false
	l.Version, l.Fence = r.Version, r.Fence
	l.Regressed = r.Version < l.AckedVersion
	return true
}

// Lose forgets the slot. Earlier grants may still be used up.
func (l *Slot) Lose() { *l = Slot{Used: l.Used} }

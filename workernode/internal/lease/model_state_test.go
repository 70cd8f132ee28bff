package lease

import (
	"fmt"
	"unsafe"
)

// This file has the state of the model. It is a value without pointers, so it can be copied, compared and hashed by
// its bytes. Ticks are 0 to 15, each one bit of a uint16.

const (
	modelProcs    = 3
	modelSlots    = 2
	modelNodes    = 3 // worker ids
	modelSessions = 5 // sessions of a slot

	modelFree = 4 // added to the table of a worker id of the process that no generator uses
)

// modelTokens are the values of HOLDER. Process i has modelTokens[i+1], unless it is a copy.
var modelTokens = [...]string{"", "p1", "p2", "p3"}

func modelToken(holder string) uint8 {
	for i, t := range modelTokens {
		if t == holder {
			return uint8(i)
		}
	}
	panic("the model has no holder " + holder)
}

func modelByte(n int64) uint8 {
	if n < 0 || n > 255 {
		panic(fmt.Sprintf("the model cannot hold %d", n))
	}
	return uint8(n)
}

// A modelLease is a Slot in fewer bytes.
type modelLease struct {
	held, inDoubt, regressed                                          bool
	slot, version, fence, acknowledged, session, granted, floor, used uint8
}

func (x *modelLease) lease() Slot {
	return Slot{
		Held: x.held, ID: int64(x.slot), Version: int64(x.version), Fence: int64(x.fence),
		AckedVersion: int64(x.acknowledged), Start: int64(x.session), Granted: int64(x.granted),
		Floor:   int64(x.floor),
		InDoubt: x.inDoubt, Regressed: x.regressed, Used: int64(x.used),
	}
}

func modelLeaseOf(l Slot) modelLease {
	return modelLease{
		held: l.Held, inDoubt: l.InDoubt, regressed: l.Regressed, slot: modelByte(l.ID), version: modelByte(l.Version),
		fence: modelByte(l.Fence), acknowledged: modelByte(l.AckedVersion), session: modelByte(l.Start),
		granted: modelByte(l.Granted), floor: modelByte(l.Floor), used: modelByte(l.Used),
	}
}

// A modelChange is a change in fewer bytes.
type modelChange struct {
	slot, holder, version, fence, newHolder, newVersion, newFence, first, before, least uint8
	insert                                                                              bool
}

func (x *modelChange) change() Change {
	return Change{
		Slot: int64(x.slot), Insert: x.insert, Holder: modelTokens[x.holder],
		Version: int64(x.version), Fence: int64(x.fence),
		NewHolder: modelTokens[x.newHolder], NewVersion: int64(x.newVersion), NewFence: int64(x.newFence),
		First: int64(x.first), Before: int64(x.before), Least: int64(x.least),
	}
}

func modelChangeOf(c Change) modelChange {
	return modelChange{
		slot: modelByte(c.Slot), insert: c.Insert, holder: modelToken(c.Holder),
		version: modelByte(c.Version), fence: modelByte(c.Fence),
		newHolder: modelToken(c.NewHolder), newVersion: modelByte(c.NewVersion), newFence: modelByte(c.NewFence),
		first: modelByte(c.First), before: modelByte(c.Before), least: modelByte(c.Least),
	}
}

type modelKind uint8

const (
	modelNothing     modelKind = iota
	modelReclaim               // the transaction of a session, of a slot of another holder
	modelBegin                 // the same, of the slot that it holds
	modelAllocate              // the same, of a new slot
	modelReserveSlot           // NEXT_SLOT
	modelRenew
	modelKeepAlive
	modelAdd         // the transaction that adds worker ids
	modelInsertAlone // INSERT WORKER_NODE alone (a mutant)
	modelRelease
)

var modelKinds = [...]string{"", "reclaim", "begin", "allocate", "NEXT_SLOT",
	"renew", "keep-alive", "add", "insert worker id", "release"}

// A modelList has an element for each worker id.
type modelList [modelNodes]uint8

// A modelStatement is on its way, was executed, or was refused.
type modelStatement struct {
	kind     modelKind
	proc     uint8
	change   modelChange
	open     bool      // a transaction whose first statement has matched
	why      uint8     // of a release
	start    uint8     // START_TICK: of an add for the new worker ids
	reserved bool      // an add: worker is the first worker id; otherwise it is drawn when it is executed
	worker   uint8     // first new worker id
	tables   modelList // add: of each new worker id; session: of each worker id there is
	starts   modelList // session: START_TICK of each worker id that it read
}

// transaction reports whether the statement is the first of a transaction.
func (q *modelStatement) transaction() bool {
	switch q.kind {
	case modelReclaim, modelBegin, modelAllocate, modelAdd:
		return true
	}
	return false
}

type (
	modelSlotRow    struct{ exists, fence, version, holder uint8 }
	modelNodeRow    struct{ slot, table, start uint8 } // slot is SLOT + 1; 0 is no row
	modelSessionRow struct{ holder, start, before uint8 }
)

// A modelDB is all that can be lost together.
type modelDB struct {
	slots            [modelSlots]modelSlotRow
	nodes            [modelNodes]modelNodeRow
	sessions         [modelSlots][modelSessions]modelSessionRow // ascending; holder 0 is no row
	nextID, nextSlot uint8
}

const (
	modelUnborn uint8 = iota
	modelAlive
	modelDead
)

// These are the states of a statement.
const (
	modelIdle    uint8 = iota // there is none
	modelSent                 // it is on its way
	modelDone                 // it was executed
	modelRefused              // it was executed and changed nothing
	modelBroken               // it is gone, and the process does not know what it did
)

// A modelProc is a process.
type modelProc struct {
	mode, token uint8
	lease       modelLease
	wants       uint8     // bits 1 and 2: worker ids of tables 1 and 2; bit 0: a second lane of table 1
	uses        modelList // by worker id: a table, modelFree + table; 0: it has not got it
	starts      modelList // worker.start
	holed       bool      // a grant was found to leave a gap
	mustReread  bool      // workerRows.mustReread
	doing       uint8     // what it has decided, and not yet sent: an action, or modelAllocates
	avoid       bool      // workerRows.atLeast
	reserved    uint8     // of an add or a new slot
	adding      modelList
	flight      [2]modelStatement // the second only with a mutant
	answers     [2]uint8
}

// Why a slot is released.
const (
	modelCloses uint8 = 1 + iota // the process ends
	modelChecksCommits
	modelAbandons
)

var modelReasons = [...]string{"", " to close", " to check commits", " to abandon"}

const modelAllocates = 100 // doing: the slot's number was reserved

type modelState struct {
	stamped                   [modelNodes][modelProcs][2]uint16 // ticks, by worker id, process and table
	procs                     [modelProcs]modelProc
	db, replica               modelDB
	left                      modelStatement // a statement that nothing waits for any more
	now, down, losses, clones uint8
	floor, fault, born        uint8
	_                         [2]uint8
}

func (s *modelState) bytes() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(s)), unsafe.Sizeof(*s))
}

// modelWindow is the set of the ticks from lo to hi.
func modelWindow(lo, hi uint8) (b uint16) {
	for t := lo; t <= hi && t < 16; t++ {
		b |= 1 << t
	}
	return b
}

func modelAbove(t uint8) uint16 { return ^modelWindow(0, t) }

// A modelEvent leads from one state to the next.
type modelEvent struct {
	what       string
	proc, a, b uint8
	q          modelStatement
}

var modelDeeds = [...]string{DoRenew: "renew", DoAdd: "add"}

type modelVisitor func(e modelEvent, s *modelState)

func (e modelEvent) String() string {
	switch e.what {
	case "tick":
		return fmt.Sprintf("it is %d o'clock", e.a)
	case "copy":
		return "the replica is brought up to date"
	case "loss":
		return "COMMITS ARE LOST: the replica takes over"
	case "restore":
		return fmt.Sprintf("all processes end, the BACKUP IS RESTORED, FLOOR_TICK = %d", e.a)
	case "late":
		return fmt.Sprintf("LATE: %v", e.q)
	case "reads its worker ids":
		return fmt.Sprintf("p%d %s%s", e.proc+1, e.what, [...]string{"", " (an earlier state)"}[e.a])
	case "starts", "asks":
		return fmt.Sprintf("p%d %s, table %d, worker id %d", e.proc+1, e.what, e.a, e.b)
	case "is copied":
		return fmt.Sprintf("p%d is copied: p%d", e.a+1, e.proc+1)
	case "decides":
		return fmt.Sprintf("p%d, clock %d, decides to %s", e.proc+1, e.a, modelDeeds[e.b])
	}
	if e.q.kind == modelNothing {
		return fmt.Sprintf("p%d %s (version %d, fence %d)", e.proc+1, e.what, e.a, e.b)
	}
	if e.what == "sends" || e.what == "has the answer to" {
		return fmt.Sprintf("p%d, clock %d, %s: %v; granted %d", e.proc+1, e.a, e.what, e.q, e.b)
	}
	if e.what == "begins" {
		return fmt.Sprintf("p%d, clock %d, %s: %v", e.proc+1, e.a, e.what, e.q)
	}
	return fmt.Sprintf("p%d %s: %v", e.proc+1, e.what, e.q)
}

func (q modelStatement) String() string {
	c := q.change
	b := fmt.Sprintf("%s of p%d, slot %d, holder %d to %d, version %d to %d, fence %d to %d",
		modelKinds[q.kind]+modelReasons[q.why], q.proc+1, c.slot+1, c.holder, c.newHolder,
		c.version, c.newVersion, c.fence, c.newFence)
	if q.kind == modelAdd {
		b += fmt.Sprintf(", tables %v, START_TICK %d, worker ids from %d", q.tables, q.start, q.worker)
	}
	if c.first != 0 {
		b += fmt.Sprintf(", first tick %d, BEFORE_TICK %d", c.first, c.before)
	}
	return b
}

package workernode

import "fmt"

// A worldEvent is what happens from one state to the next.
type worldEvent struct {
	what           eventKind
	p              int
	q              worldStatement
	a, from, until uint8
	yes            bool
}

type eventKind uint8

const (
	evTick eventKind = iota
	evLate
	evCopy
	evLoss
	evRestore
	evStart
	evClone
	evCrash
	evCrashLeaving
	evSend
	evArrive
	evLearn
	evGiveUp
	evGiveUpLeaving
	evRead
	evReadTaken
	evStamp
	evBind
	evRelease
	evReleaseLater
)

func (e worldEvent) String() string {
	p, q := fmt.Sprintf("p%d", e.p+1), e.q
	switch e.what {
	case evTick:
		return fmt.Sprintf("it is %d o'clock", e.a)
	case evLate:
		return fmt.Sprintf("a statement that was left behind is carried out: %v", q)
	case evCopy:
		return "the replica, or the backup, is brought up to date"
	case evLoss:
		return "COMMITS ARE LOST: the replica takes over"
	case evRestore:
		return fmt.Sprintf("THE BACKUP IS RESTORED, and FLOOR_SECOND set to %d", e.a)
	case evStart:
		return fmt.Sprintf("%s starts, for table %q", p, worldTables[q.table])
	case evClone:
		return fmt.Sprintf("%s is a copy of p%d", p, e.a+1)
	case evCrash:
		return p + " crashes"
	case evCrashLeaving:
		return fmt.Sprintf("%s crashes, and leaves behind: %v", p, q)
	case evSend:
		return fmt.Sprintf("%s, whose clock shows %d, sends: %v", p, e.a, q)
	case evArrive:
		if !e.yes {
			return fmt.Sprintf("the statement of %s changes nothing: %v", p, q)
		}
		return fmt.Sprintf("the statement of %s is carried out: %v", p, q)
	case evLearn:
		switch q.kind {
		case stmtReserve:
			return fmt.Sprintf("%s has a worker id: row %d", p, q.old+1)
		case stmtBind:
			return fmt.Sprintf("%s believes that its row says table %s now", p, worldTables[q.table])
		}
		if !e.yes {
			return fmt.Sprintf("%s, whose clock shows %d, forgets row %d", p, e.a, q.worker+1)
		}
		may := "nothing"
		if e.from <= e.until {
			may = fmt.Sprintf("%d to %d", e.from, e.until)
		}
		return fmt.Sprintf("%s, whose clock shows %d, counts as done: %v, and may stamp %s of row %d", p, e.a, q, may, q.worker+1)
	case evGiveUp:
		if e.yes {
			return p + " learns that its statement changed nothing"
		}
		return p + " gives up waiting"
	case evGiveUpLeaving:
		return fmt.Sprintf("%s gives up waiting, and leaves behind: %v", p, q)
	case evRead:
		if !e.yes {
			return fmt.Sprintf("%s reads that row %d is not its own", p, q.worker+1)
		}
		return fmt.Sprintf("%s reads that row %d is its own, with FENCE %d", p, q.worker+1, e.a)
	case evReadTaken:
		return fmt.Sprintf("%s, which did not get all rows that it wanted, reads that it has row %d, with FENCE %d", p, q.worker+1, e.a)
	case evStamp:
		return fmt.Sprintf("%s STAMPS %d of row %d", p, e.a, q.worker+1)
	case evBind:
		return fmt.Sprintf("%s uses its spare row %d for table %s", p, q.worker+1, worldTables[q.table])
	case evRelease:
		return fmt.Sprintf("%s gives its row back: %v", p, q)
	case evReleaseLater:
		return fmt.Sprintf("%s gives its row back, and leaves behind: %v", p, q)
	}
	return "?"
}

func (q worldStatement) String() string {
	switch q.kind {
	case stmtReserve:
		return fmt.Sprintf("NEXT_ID %d -> %d", q.old+1, q.to+1)
	case stmtInsert:
		return fmt.Sprintf("insert row %d for table %q, START_SECOND %d, FENCE %d", q.worker+1, worldTables[q.table], q.old, q.to)
	case stmtClaim:
		return fmt.Sprintf("claim row %d, FENCE %d -> %d", q.worker+1, q.old, q.to)
	case stmtExtend:
		return fmt.Sprintf("extend row %d, FENCE %d -> %d", q.worker+1, q.old, q.to)
	}
	if q.kind == stmtBind {
		return fmt.Sprintf("set the table of row %d to %s", q.worker+1, worldTables[q.table])
	}
	if q.old != q.to {
		return fmt.Sprintf("release row %d, FENCE %d -> %d", q.worker+1, q.old, q.to)
	}
	return fmt.Sprintf("release row %d", q.worker+1)
}

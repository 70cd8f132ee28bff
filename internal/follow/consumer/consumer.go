// Package consumer decides what a process of a consumer does next. A consumer handles each row of a followed table
// once, because one transaction writes the effects of a row and the cursor, which is a row of UID_CURSOR.
//
// # The protocol
//
// Any number of processes may run a consumer. One of them is the holder, whose name is in the cursor, and the
// others stand by. The holder fetches rows, which it then has in hand. To handle them, it begins a transaction with
// a [Change] of the cursor: an UPDATE that compares the cursor with what the process has last read or written. If
// the UPDATE changes no row, another process was faster, or an operator has set the cursor, and the transaction is
// rolled back. Otherwise the transaction has locked the cursor, so nobody else handles the rows until it ends.
//
// The name of the holder only decides who works. Because of the comparison each row is handled once, whatever
// clocks, pauses and lost answers do. A process that does not know whether its COMMIT succeeded reads the cursor
// again, and goes on from there.
//
// # Lost commits
//
// A database may lose its latest commits, as after a failover, and with them rows in hand. The mark of the table,
// below which no rows come, is then lower again, so other rows may come with ids below those in hand. So the
// transaction that fetches rows also sets HOLDER and HOLDER_UNTIL of the cursor to a pair of values that they never
// had before, and later changes compare them. A database that loses a commit loses all later ones. So if the cursor
// has the values, the fetched rows are still there. With the cursor in another database, the caller compares marks.
//
// The model in model_test.go drives these decisions through everything that may happen between them.
package consumer

import (
	"cmp"
	"strconv"
	"strings"
)

// The times are in milliseconds.
const (
	validity = 3000  // how long a process remains the holder after a change
	Interval = 1000  // the cursor is read again after this time
	longest  = 60000 // the longest pause after a row has failed
	tries    = 3     // the last of this many consecutive outcomes Again counts as Failed
)

// A Row is a consumer's row of UID_CURSOR. The times come from the database's clock.
type Row struct {
	Last       int64  // every row up to it was handled, skipped or left out
	Paused     bool   // by an operator
	Holder     string // the process that works
	Until      int64  // the end of its term, HOLDER_UNTIL, which the holder extends again and again
	Attempts   int    // how often the next row has failed
	RetryAt    int64  // when the next row may be tried again
	StuckID    int64  // the row that fails
	StuckSince int64
	Conditions string // a hash of the conditions that rows must meet
	Mark       int64  // the table's mark when rows were last fetched; 0 if unknown or not needed; -m: go back to m-1
	Now        int64  // when this was read
}

// A Change is an UPDATE of the row by the process Me. It changes the row only if Last, Holder and Until still have
// the values that the process knows, and nobody has paused the consumer.
type Change struct {
	Last   int64
	Holder string
	Until  int64

	Me      string
	NewLast int64
	NewTerm int64 // the new HOLDER_UNTIL, which the row never had before
	Mark    int64 // the new mark; 0 leaves it as it is
}

// Next returns the change that may follow c after c has changed the row.
func (c Change) Next() Change {
	return Change{c.NewLast, c.Me, c.NewTerm, c.Me, c.NewLast, c.NewTerm + 1, c.Mark}
}

// A Kind is a kind of step.
type Kind int

// The kinds of steps.
const (
	Read    Kind = iota // read the row
	Insert              // insert the row, and read it
	Removed             // end, because an operator has removed the row
	Stand               // do nothing until the step's time, because somebody else works or the consumer is paused
	Take                // change the row: become the holder, or remain it, perhaps with a higher cursor
	Fetch               // change the row and fetch rows after the step's id, in one transaction
	Wait                // do nothing until the step's time, or until rows may have come
	Handle              // change the row and handle rows in one transaction
	Move                // change the row: the cursor moves without effects
	Fail                // change the row: remember the row that fails, and when it may be tried again
)

// A Step is what a process does next.
type Step struct {
	Kind   Kind
	At     int64  // of Stand and Wait: until when
	After  int64  // of Fetch
	Rows   int    // of Handle: how many of the rows in hand to handle
	Change Change // of Take, Fetch, Handle, Move and Fail
	Failed Row    // of Fail: Attempts, RetryAt, StuckID and StuckSince
}

// An Outcome is how a transaction of Handle ended.
type Outcome int

// Outcomes. Lost, Failed and Skipped mean a rollback. After Again, COMMIT may have succeeded or may succeed yet.
const (
	Committed Outcome = iota
	Lost              // the change has changed no row
	Again             // it failed, but probably not because of the rows: a deadlock, for example, or COMMIT has failed
	Failed            // the handler has failed
	Skipped           // the handler wants to skip the row
)

// A Process is what a process knows about its consumer. The caller executes the step that Next returns, reports the
// result by Seen, Wrote, Fetched or Ended, and calls Next again. If the result is unknown, it calls Forget instead.
type Process struct {
	Me   string // a name that no other process has; p.take changes it after the clock was set back
	Size int    // the most rows in a transaction

	row   Row
	known bool // the field row has what this process has last read or written
	found bool // the row of UID_CURSOR exists; valid only if known is set
	seen  bool // the row of UID_CURSOR has existed

	ids     []int64 // the rows in hand: all rows of this region above the cursor, up to the id through
	through int64

	names   int   // how many new names p.take has made
	begun   int64 // the RetryAt when this process became the holder; ignored, because its handler may be newer code
	single  int64 // handle one row at a time up to this id
	again   int   // number of consecutive outcomes Again
	pending Kind  // Move: set the cursor to target. Fail: the row with the id target has failed. Read: neither
	target  int64
	mark    int64 // of Move: the new mark
}

// Next returns the next step. The arguments are the database's clock, and whether there may be rows to fetch.
func (p *Process) Next(now int64, more bool) Step {
	switch {
	case !p.known || now-p.row.Now >= Interval && p.pending == Read:
		return Step{Kind: Read}
	case !p.found && p.seen:
		return Step{Kind: Removed}
	case !p.found:
		return Step{Kind: Insert}
	case p.row.Paused, !p.Holds() && p.row.Holder != "" && p.row.Until > now && !p.setBack(now):
		return Step{Kind: Stand, At: p.row.Now + Interval}
	case !p.Holds(), p.setBack(now):
		return Step{Kind: Take, Change: p.take(now)}
	case p.pending == Move:
		change := p.change(p.target, now)
		change.Mark = p.mark
		return Step{Kind: Move, Change: change}
	case p.pending == Fail:
		return Step{Kind: Fail, Change: p.change(p.row.Last, now), Failed: p.failed(now)}
	case p.row.Until-now <= validity-Interval:
		return Step{Kind: Take, Change: p.change(p.Passed(), now)}
	case len(p.ids) > 0 && p.pauses(now):
		return Step{Kind: Wait, At: min(p.row.RetryAt, p.row.Now+Interval)}
	case len(p.ids) > 0:
		n := min(p.Size, len(p.ids))
		if p.row.Attempts > 0 || p.ids[0] <= p.single {
			n = 1
		}
		return Step{Kind: Handle, Rows: n, Change: p.change(p.ids[n-1], now)}
	case more:
		return Step{Kind: Fetch, After: p.through, Change: p.change(p.Passed(), now)}
	}
	return Step{Kind: Wait, At: p.row.Now + Interval}
}

// pauses reports whether the next row has failed, and may not be tried again yet. It ignores a RetryAt beyond twice
// the longest pause, because somebody may have written any number. The caller estimates the time, so RetryAt may be
// a little beyond the longest pause.
func (p *Process) pauses(now int64) bool {
	return now < p.row.RetryAt && p.row.RetryAt-now <= 2*longest && p.row.RetryAt != p.begun
}

// Holds reports whether this process works, as far as it knows.
func (p *Process) Holds() bool {
	return p.known && p.found && p.row.Holder == p.Me && !p.row.Paused
}

// IDs returns the rows in hand.
func (p *Process) IDs() []int64 { return p.ids }

// Row returns the row as last read or written.
func (p *Process) Row() Row { return p.row }

// Through returns the id up to which all rows were fetched.
func (p *Process) Through() int64 { return p.through }

// Passed returns the largest id up to which nothing is left to handle.
func (p *Process) Passed() int64 {
	if p.known && len(p.ids) == 0 {
		return p.through
	}
	return p.row.Last
}

// setBack reports whether the database's clock was set back since the present term began.
func (p *Process) setBack(now int64) bool { return p.row.Until > now && p.row.Until-now > 2*validity }

// take returns the change of a process that becomes the holder. A term usually ends later than the term before.
// After the clock was set back it must end earlier: otherwise each process would take the cursor from the others
// until the clock has caught up. The process then gets a new name, so that its terms differ from its earlier ones.
func (p *Process) take(now int64) Change {
	change := p.change(p.row.Last, now)
	if p.setBack(now) {
		p.names++
		change.Me, change.NewTerm = plain(p.Me)+"+"+strconv.Itoa(p.names), now+validity
	}
	return change
}

// IsOwn reports whether a holder is this process, perhaps by an earlier name.
func (p *Process) IsOwn(holder string) bool { return plain(holder) == plain(p.Me) }

// plain returns the name of a process without the suffix that p.take adds.
func plain(name string) string {
	name, _, _ = strings.Cut(name, "+")
	return name
}

func (p *Process) change(last, now int64) Change {
	return Change{p.row.Last, p.row.Holder, p.row.Until, p.Me, last, max(now+validity, p.row.Until+1), 0}
}

// failed returns the columns that a step Fail writes, after another failure of the row p.target.
func (p *Process) failed(now int64) Row {
	before := min(max(p.row.Attempts, 0), 1<<30) // somebody may have written another number
	f := Row{Attempts: before + 1, StuckID: p.target, StuckSince: now, RetryAt: now + longest}
	if p.row.StuckID == p.target {
		f.StuckSince = p.row.StuckSince
	}
	if before < 6 {
		f.RetryAt = now + min(longest, int64(Interval)<<before)
	}
	return f
}

// Forget forgets the row and the fetched rows, because the last step failed or has an unknown result.
func (p *Process) Forget() {
	p.known, p.ids, p.pending = false, nil, Read
}

// Seen reports the row that was read. It drops the rows in hand if somebody else has changed the cursor.
func (p *Process) Seen(row Row, found bool) {
	same := p.known && p.found && found && p.row.Last == row.Last && p.row.Holder == row.Holder && p.row.Until == row.Until
	if !same {
		p.Forget()
		p.through = row.Last
	}
	if p.row, p.known, p.found = row, true, found; p.IsOwn(row.Holder) {
		p.Me = row.Holder
	}
	p.seen = p.seen || found
}

// Wrote reports whether the change of a step has changed the row.
func (p *Process) Wrote(s Step, changed bool) {
	if !changed {
		p.Forget()
		return
	}
	if s.Kind == Take && !p.IsOwn(s.Change.Holder) {
		p.begun = p.row.RetryAt
	}
	p.Me = s.Change.Me
	// Fetch again: a Move may have lowered the cursor, and a failed handler may have changed its rows.
	if s.Kind == Move || s.Kind == Fail {
		p.Forget()
		return
	}
	p.row.Mark = cmp.Or(s.Change.Mark, p.row.Mark)
	if p.row.Holder, p.row.Until = s.Change.Me, s.Change.NewTerm; s.Change.NewLast != p.row.Last {
		p.row.Last, p.row.Attempts, p.row.RetryAt = s.Change.NewLast, 0, 0
	}
}

// Fetched reports the rows that a Fetch has found, in ascending order, and whether its change has changed the row.
// There are no other rows up to the id in the argument through.
func (p *Process) Fetched(s Step, changed bool, ids []int64, through int64) {
	if p.Wrote(s, changed); changed {
		p.ids, p.through = append(p.ids, ids...), through
	}
}

// Ended reports how the transaction of a Handle ended. The outcome becomes Failed if Again came too often.
func (p *Process) Ended(s Step, o Outcome) Outcome {
	if p.again++; o != Again {
		p.again = 0
	} else if p.again >= tries {
		o, p.again = Failed, 0
	}
	switch {
	case o == Committed:
		p.Wrote(s, true)
		p.ids = p.ids[s.Rows:]
		return o
	case (o == Failed || o == Skipped) && s.Rows == 1:
		p.pending, p.target, p.mark = Fail, p.ids[0], 0
		if o == Skipped {
			p.pending = Move
		}
		return o
	case o == Failed || o == Skipped:
		p.single = p.ids[s.Rows-1]
	}
	p.Forget()
	return o
}

// Rewind makes the process set the cursor back to the last id below a mark before it handles more rows, because
// other rows may have come with ids from this mark on.
func (p *Process) Rewind(mark int64) { p.pending, p.target, p.mark = Move, mark-1, mark }

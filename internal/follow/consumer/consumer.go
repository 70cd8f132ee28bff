// Package consumer decides what a process of a consumer does next. A consumer handles each row of a followed table once:
// the effects of a row and the cursor, a row of UID_CURSOR, are written in one transaction.
//
// # The protocol
//
// Any number of processes may run a consumer. One of them is the holder, whose name the cursor has, and the others stand
// by. The holder fetches rows, and then begins a transaction with a [Change] of the cursor: an UPDATE that compares all
// that this process knows about it. If it changes no row, somebody else was faster, or an operator has reset the cursor,
// and the transaction is rolled back. Otherwise the transaction has locked the cursor, so the rows are handled by nobody
// else until it ends.
//
// The name of the holder only decides who works. Rows are handled once because of the comparison, whatever clocks,
// pauses and lost answers do. A process that does not know how its COMMIT ended reads the cursor, which tells it.
//
// # Lost commits
//
// A database may lose its latest commits, as after a failover, and rows that were fetched with them. Then the mark of
// the table is lower again, and other rows may come below those in hand. So rows are fetched in a transaction that
// changes the cursor: it gives HOLDER_UNTIL a value that it never had, and later changes compare it. Commits are lost
// from the end, so a cursor that has this value proves that the rows in hand are still there.
//
// The model in this package drives these decisions through everything that may happen between them.
package consumer

// The times are in milliseconds.
const (
	Validity = 3000  // of a holder
	Interval = 1000  // after which the cursor is read again
	Longest  = 60000 // pause after a row has failed
	tries    = 3     // of a transaction that fails by no fault of the rows, before that counts as a failure
)

// A Row is a consumer's row of UID_CURSOR. The times are those of the database's clock.
type Row struct {
	Last       int64  // every row up to it was handled or passed over
	Paused     bool   // by an operator
	Holder     string // the process that works
	Until      int64  // the end of its term, if it does not extend it
	Attempts   int    // how often the next row has failed
	RetryAt    int64  // when it may be tried again
	StuckID    int64  // the row that fails
	StuckSince int64
	Conditions string // a hash of the conditions that rows must meet
	Now        int64  // when this was read
}

// A Change is an UPDATE of the row by the process Me. It changes nothing unless the row is as this process has seen it,
// and not paused.
type Change struct {
	Last   int64
	Holder string
	Until  int64

	Me      string
	NewLast int64
	NewTerm int64 // its HOLDER_UNTIL, which the row has never had before
}

// Matches reports whether the change applies to a row, as its statement does.
func (c Change) Matches(r Row) bool {
	return r.Last == c.Last && r.Holder == c.Holder && r.Until == c.Until && !r.Paused
}

// A Kind is what a process does next.
type Kind int

// The kinds of steps.
const (
	Read    Kind = iota // read the row
	Begin               // insert the row, and read it
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
	Rows   int    // of Handle: how many of those in hand
	Change Change // of Take, Fetch, Handle, Move and Fail
	Failed Row    // of Fail: Attempts, RetryAt, StuckID and StuckSince
}

// An Outcome is how a transaction of Handle ended.
type Outcome int

// The outcomes. All but Committed and Unknown have rolled back.
const (
	Committed Outcome = iota
	Lost              // the change has changed no row
	Unknown           // COMMIT has failed, so it may have succeeded
	Again             // it failed by no fault of the rows, as in a deadlock
	Failed            // the handler has failed
	Skipped           // the handler wants to skip the row
)

// A Process is what a process knows. The caller does the steps of Next, one after the other, and reports each result
// with Seen, Wrote, Fetched, Ended, or Forget if it is not known.
type Process struct {
	Me   string
	Size int // the most rows in a transaction

	row   Row
	known bool // row was read or written by the last step about it
	found bool // the row exists; only if known
	seen  bool // the row has existed

	ids     []int64 // rows in hand: all after the cursor and up to through
	through int64

	single  int64 // handle one row at a time up to this id
	again   int   // outcomes Again, one after the other
	pending Kind  // Move to target, or Fail with the row target; Read if there is neither
	target  int64
}

// Next returns the next step. now is the database's clock. more reports that there may be rows to fetch.
func (p *Process) Next(now int64, more bool) Step {
	switch {
	case !p.known || now-p.row.Now >= Interval && p.pending == Read:
		return Step{Kind: Read}
	case !p.found && p.seen:
		return Step{Kind: Removed}
	case !p.found:
		return Step{Kind: Begin}
	case p.row.Paused, !p.Holds() && p.row.Holder != "" && p.row.Until > now && p.row.Until-now <= 2*Validity:
		return Step{Kind: Stand, At: p.row.Now + Interval}
	case !p.Holds():
		return Step{Kind: Take, Change: p.change(p.row.Last, now)}
	case p.pending == Move:
		return Step{Kind: Move, Change: p.change(p.target, now)}
	case p.pending == Fail:
		return Step{Kind: Fail, Change: p.change(p.row.Last, now), Failed: p.failed(now)}
	case p.row.Until-now <= Validity-Interval:
		return Step{Kind: Take, Change: p.change(p.Passed(), now)}
	case len(p.ids) > 0 && now < p.row.RetryAt && p.row.RetryAt-now <= Longest:
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

// Holds reports whether this process works, as far as it knows.
func (p *Process) Holds() bool {
	return p.known && p.found && p.row.Holder == p.Me && !p.row.Paused
}

// IDs returns the rows in hand.
func (p *Process) IDs() []int64 { return p.ids }

// Row returns what is known of the row.
func (p *Process) Row() Row { return p.row }

// Through returns the id up to which all rows were fetched.
func (p *Process) Through() int64 { return p.through }

// Passed returns the id up to which there is nothing left to handle.
func (p *Process) Passed() int64 {
	if len(p.ids) == 0 {
		return p.through
	}
	return p.row.Last
}

func (p *Process) change(last, now int64) Change {
	return Change{p.row.Last, p.row.Holder, p.row.Until, p.Me, last, max(now+Validity, p.row.Until+1)}
}

// failed returns what the row says after another failure of the target.
func (p *Process) failed(now int64) Row {
	f := Row{Attempts: p.row.Attempts + 1, StuckID: p.target, StuckSince: now, RetryAt: now + Longest}
	if p.row.StuckID == p.target {
		f.StuckSince = p.row.StuckSince
	}
	if p.row.Attempts < 6 {
		f.RetryAt = now + min(Longest, int64(Interval)<<p.row.Attempts)
	}
	return f
}

// Forget forgets the row and what was fetched, because the last step failed or has an unknown result.
func (p *Process) Forget() {
	p.known, p.ids, p.pending = false, nil, Read
}

// Seen reports the row that was read. Rows in hand remain only if nobody else has written it.
func (p *Process) Seen(row Row, found bool) {
	same := p.known && p.found && found && p.row.Last == row.Last && p.row.Holder == row.Holder && p.row.Until == row.Until
	if !same {
		p.Forget()
		p.through = row.Last
	}
	p.row, p.known, p.found = row, true, found
	p.seen = p.seen || found
}

// Wrote reports whether the change of a step has changed the row.
func (p *Process) Wrote(s Step, changed bool) {
	if !changed {
		p.Forget()
		return
	}
	if s.Kind == Move || s.Kind == Fail { // what is in hand is below a cursor that moves back, or the handler has used it
		p.Forget()
		return
	}
	if p.row.Holder, p.row.Until = s.Change.Me, s.Change.NewTerm; s.Change.NewLast != p.row.Last {
		p.row.Last, p.row.Attempts, p.row.RetryAt = s.Change.NewLast, 0, 0
	}
}

// Fetched reports rows that were fetched after the id of the step, in ascending order, and whether the change has changed
// the row. There are no other rows up to through.
func (p *Process) Fetched(s Step, changed bool, ids []int64, through int64) {
	if p.Wrote(s, changed); changed {
		p.ids, p.through = append(p.ids, ids...), through
	}
}

// Ended reports how the transaction of a step ended. It returns the outcome that counts.
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
		p.pending, p.target = Fail, p.ids[0]
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

// Rewind makes the next step move the cursor back, because rows may have come below it.
func (p *Process) Rewind(last int64) { p.pending, p.target = Move, last }

package workernode

// This file holds all that decides who may stamp what. It knows neither SQL nor
// clocks nor goroutines: what happens outside comes in as arguments, so that a
// test can drive it through everything that can happen outside. doc.go has the
// protocol in words.

// terms are the numbers of the protocol, in ticks of the layout.
type terms struct {
	// lead is how far beyond the clock a fence is set at most.
	lead int64
	// margin: of a grant only ticks that are at least margin beyond the clock, read
	// after the acknowledgement, are used, so that grants which the database lost
	// are not given twice. 0 trusts the database to keep what it acknowledged.
	margin int64
	// window, if it is not 0, sets fences by need: at most window beyond the next
	// tick that is to be stamped, even if that is ahead of the clock.
	window int64
	// slack is how long the statement that inserts a row may take.
	slack int64
	// grace is how long a row must have been left alone before it is taken over.
	grace int64
	// floor is the operator's FLOOR_SECOND: no tick up to it is stamped.
	floor int64
	// last is the last tick of the layout.
	last int64
}

// A seat is what a process knows of one row that it holds. The zero seat holds
// nothing.
//
// Invariants: until only grows, and until <= compare, unless the database has lost
// what it acknowledged. Every tick in [from, until] was
// granted by an acknowledged statement of this process that moved the row's FENCE
// from below it to or above it, and no such tick was ever granted to anybody else.
type seat struct {
	worker int64
	table  string

	// compare is the FENCE that the row has, if nobody else has moved it: what the
	// next statement compares with.
	compare int64

	// from and until are the first and the last tick that may be stamped; none may
	// if from is above until.
	from, until int64

	unsure bool // the outcome of the last statement is not known: read the row first
	lost   bool // somebody else has the row; what is left up to until may be used up
}

// A row is what was read of a row of WORKER_NODE.
type row struct {
	worker int64
	table  string
	fence  int64
	holder string
	own    int // 1 if a process of the same host and port had it last
}

// takeable tells whether a row may be taken over: it was given back, or nobody has
// renewed it for long. Only liveness rests on it: the statement that takes the
// row compares its fence.
func (t terms) takeable(r row, now int64) bool {
	return r.fence <= now && (r.holder == "" || r.fence < now-t.grace)
}

// held returns the last tick that is not of the process that takes a row over: what
// it will stamp is later, and what others have stamped, even if the database has lost
// that, is not. A row without a table is a spare, whose process may have stamped ids of
// a table that it could not write down; held becomes its START_SECOND, so that these ids
// lead nowhere, and not to the table that the spare is used for next.
func (t terms) held(r row, now int64) int64 { return max(r.fence, now+t.margin-1) }

// target returns where the next statement sets the fence; next is the tick that is
// to be stamped next.
func (t terms) target(now, next int64) int64 {
	to := now + t.lead
	if t.window > 0 {
		to = max(now, next) + t.window
	}
	return min(to, t.last)
}

// taken returns the seat of a row that was taken over: the acknowledged statement
// moved its fence from r.fence to fence. after is the clock after the
// acknowledgement.
func (t terms) taken(r row, fence, after int64) seat {
	s := seat{worker: r.worker, table: r.table, compare: r.fence, from: r.fence + 1, until: r.fence}
	t.granted(&s, fence, after)
	return s
}

// begin returns START_SECOND of a new row: no tick up to it is stamped with this
// worker id. It is so late that nobody can have stamped a later one whose row, of
// the same worker id, the database has lost.
func (t terms) begin(now int64) int64 { return max(now+max(t.margin, 0)-1, t.floor, -1) }

// inserted returns the seat of a row that was inserted with the given start and
// fence, acknowledged; before and after are the clock around the statement. It is
// not usable, and to be forgotten, if the statement took so long that start was too
// early.
func (t terms) inserted(worker int64, table string, start, fence, before, after int64) (s seat, usable bool) {
	s = seat{worker: worker, table: table, compare: start, from: start + 1, until: start}
	t.granted(&s, fence, after)
	return s, s.from <= s.until && (t.margin == 0 || after <= before+t.slack)
}

// granted notes that the row's fence was moved from s.compare to fence, by an
// acknowledged statement of this process and nobody else.
func (t terms) granted(s *seat, fence, after int64) {
	first := max(s.compare+1, s.until+1, t.floor+1, after+t.margin)
	s.compare, s.unsure = fence, false
	switch {
	case first > fence:
		// The acknowledgement came so late that nothing of the grant is usable. What
		// was usable before still is.
	case first == s.until+1 && s.from <= s.until: // the windows join
		s.until = fence
	default:
		s.from, s.until = first, fence
	}
}

// doubt notes that a statement about the row failed, or changed fewer rows than it
// should have. Nothing was granted, whatever has become of it.
func (s *seat) doubt() { s.unsure = true }

// read notes what the row says, after a doubt. ours tells whether its holder is this
// process. What was read is compared with, and never used: a statement of ours that is
// still on its way may have moved the fence, or will; and it may have been stale.
func (s *seat) read(fence int64, ours bool) {
	if !ours {
		s.lost = true
		return
	}
	s.compare, s.unsure = fence, false
}

// behind tells whether the next statement compares with less than what was granted. If
// that is acknowledged the database has lost what it had acknowledged before; otherwise it
// was a stale read.
func (s *seat) behind() bool { return s.compare < s.until }

// extendable tells whether the fence of the row may be moved to a given tick. It
// must rise above what the row has, and above what was granted before, which the
// database may have forgotten.
func (s *seat) extendable(fence int64) bool {
	return !s.lost && !s.unsure && fence > s.compare && fence > s.until
}

// due tells whether it is time to renew a seat: always, unless fences are set by need
// and more than half of the window is left.
func (t terms) due(s *seat, now, next int64) bool {
	return t.window == 0 || s.unsure || s.until-max(now, next) < t.window/2
}

// left tells how many ticks from next on may be stamped.
func (s *seat) left(next int64) int64 { return max(s.until-max(s.from, next)+1, 0) }

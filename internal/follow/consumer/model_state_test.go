package consumer

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// A modelDB is the committed state.
type modelDB struct {
	Exists    bool
	Row       Row
	Rows      uint16   // bits of the ids that exist
	Published int64    // all below it exist, or will never
	Effects   [8]int64 // ids, in the order of the effects
	N         int
	Total     int    // written by handlers as one more than they have read
	Exempt    uint16 // passed over by a skip or an operator
}

type phase int

const (
	idle phase = iota
	begun
	locked // the change has changed the row
	ready  // the handler has returned
	settle // for the mutant cursorAfter: the effects are committed
)

// A modelProcess is a process with its connection.
type modelProcess struct {
	Process
	Ended   bool
	Phase   phase
	Step    Step
	Tx      modelDB // what the transaction sees
	Snap    int     // the Total that it reads
	Old     modelDB // the snapshot of a mutant
	Done    int     // rows of the step
	Gone    bool    // the server has ended the transaction, and the process has not noticed
	Swallow bool    // the handler has swallowed the error
	Skipped uint16  // rows that this process wanted to skip
	Born    int
	Saw     bool // the row has existed
}

type modelState struct {
	DB, Saved modelDB
	IsSaved   bool
	P         [2]modelProcess
	Late      modelDB // a COMMIT that the server has not got yet
	IsLate    bool
	Faults    int
	Lost      bool
	Operated  bool
	Removed   bool
	Inserted  int64
}

// lockedBy returns the process whose transaction has locked the cursor: 0 or 1, 2 for a late COMMIT, or -1.
func (s *modelState) lockedBy() int {
	for i, p := range s.P {
		if (p.Phase == locked || p.Phase == ready) && !p.Gone {
			return i
		}
	}
	if s.IsLate {
		return 2
	}
	return -1
}

func bit(id int64) uint16 { return 1 << id }

// check returns what is wrong with a committed state: each row up to the cursor has its effect, once and in order, and
// no other has one.
func (d modelDB) check() string {
	if !d.Exists {
		return ""
	}
	var want []int64
	for id := range int64(16) {
		if d.Rows&bit(id) != 0 && id <= d.Row.Last && d.Exempt&bit(id) == 0 {
			want = append(want, id)
		}
	}
	switch got := d.Effects[:d.N]; {
	case !slices.Equal(got, want):
		return fmt.Sprintf("the effects are %v, and the rows up to the cursor %d are %v", got, d.Row.Last, want)
	case d.Total != d.N:
		return fmt.Sprintf("%d effects were counted as %d", d.N, d.Total)
	}
	return ""
}

// times calls f for each time in the state that is compared with others.
func (s *modelState) times(f func(*int64)) {
	for _, d := range []*modelDB{&s.DB, &s.Saved, &s.Late, &s.P[0].Tx, &s.P[1].Tx} {
		f(&d.Row.Until)
		f(&d.Row.RetryAt)
	}
	for i := range s.P {
		p := &s.P[i]
		f(&p.row.Until)
		f(&p.row.RetryAt)
		f(&p.row.Now)
		f(&p.begun)
		f(&p.Step.Change.Until)
		f(&p.Step.Change.NewTerm)
	}
}

func (s *modelState) latest() (latest int64) {
	s.times(func(t *int64) { latest = max(latest, *t) })
	return latest
}

// key tells states apart. Only the order of times matters, and whether a term is about to end. Of the names of
// processes only their equality matters.
func (s *modelState) key() string {
	var all []int64
	s.times(func(t *int64) { all = append(all, *t) })
	slices.Sort(all)
	all = slices.Compact(all)
	rank := func(t int64) byte { n, _ := slices.BinarySearch(all, t); return byte(n) }
	var b []byte
	flag := func(flags ...bool) {
		n := byte(0)
		for i, f := range flags {
			if f {
				n |= 1 << i
			}
		}
		b = append(b, n)
	}
	names := map[string]byte{"": 0}
	text := func(name string) {
		if _, known := names[name]; !known {
			names[name] = byte(len(names))
		}
		b = append(b, names[name])
	}
	row := func(r Row) {
		b = append(b, byte(r.Last), rank(r.Until), rank(r.RetryAt), byte(r.Attempts))
		flag(r.Paused, r.Until-r.Now <= validity-Interval, r.Until <= r.Now, r.RetryAt <= r.Now, r.Until-r.Now > 2*validity)
		text(r.Holder)
	}
	db := func(d modelDB) {
		flag(d.Exists)
		row(d.Row)
		b = append(b, byte(d.Published), byte(d.N), byte(d.Total))
		for _, id := range d.Effects[:d.N] {
			b = append(b, byte(id))
		}
		b = binary.LittleEndian.AppendUint16(b, d.Rows)
		b = binary.LittleEndian.AppendUint16(b, d.Exempt)
	}
	db(s.DB)
	db(s.Saved)
	db(s.Late)
	flag(s.IsSaved, s.IsLate, s.Lost, s.Operated, s.Removed)
	b = append(b, byte(s.Faults), byte(s.Inserted))
	for _, p := range s.P {
		flag(p.Ended, p.Gone, p.Swallow, p.known, p.found, p.seen, p.Saw)
		b = append(b, byte(p.Phase), byte(p.Step.Kind), byte(p.Step.Rows), byte(p.Snap), byte(p.Done), byte(p.Born), byte(p.again),
			byte(p.pending), byte(p.target), byte(p.single), byte(p.through), byte(p.Skipped), byte(len(p.ids)),
			byte(p.Step.Change.Last), byte(p.Step.Change.NewLast), rank(p.Step.Change.Until), rank(p.Step.Change.NewTerm), rank(p.begun))
		text(p.Me)
		text(p.Step.Change.Me)
		text(p.Step.Change.Holder)
		for _, id := range p.ids {
			b = append(b, byte(id))
		}
		if p.known {
			row(p.row)
		}
		if p.Phase == locked || p.Phase == ready {
			db(p.Tx)
		}
		if p.Old.Exists {
			db(p.Old)
		}
	}
	return string(b)
}

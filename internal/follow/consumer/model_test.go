package consumer

import (
	"fmt"
	"slices"
	"testing"

	"github.com/uidplugin/uidplugin/internal/testkit"
)

// The model explores every order of the steps of two processes of one consumer, with the database, an operator and
// faults. It drives Process. A transaction changes the cursor, adds an effect for each row, and commits.

// A mutant leaves a rule out, or breaks it.
type mutant string

const (
	cursorAfter    mutant = "the cursor moves after the effects, in another transaction"
	comparesNoLast mutant = "the change does not compare the old cursor"
	loserCommits   mutant = "a transaction whose change has changed no row goes on"
	skipStays      mutant = "a skipped row leaves the cursor where it is"
	swallowed      mutant = "a transaction goes on after a deadlock that the handler has swallowed"
	snapshotFirst  mutant = "the transaction compares the cursor in a snapshot that is older than its lock"
	inMemory       mutant = "the cursor is kept in memory"
	noProof        mutant = "rows are handled without a change after they were fetched"
	beginsAnew     mutant = "a row that was removed is inserted again"
	ignoresPause   mutant = "the change does not look whether the consumer is paused"
	holderOnly     mutant = "the change compares only the holder"
)

type world struct {
	processes int
	size      int
	faults    int  // crashes, ended transactions, unknown outcomes, failures of the handler
	loses     bool // the database loses commits once
	operates  bool // an operator acts once
	skips     bool // the handler skips the row 2
	inserts   int64
	mutant    mutant

	seen      map[string]bool
	queue     []modelState
	finished  int
	violation string
}

func (w *world) add(s modelState) {
	if w.violation != "" {
		return
	}
	if wrong := s.DB.check(); wrong != "" {
		w.violation = fmt.Sprintf("%s: %+v", wrong, s)
		return
	}
	if key := s.key(); !w.seen[key] {
		w.seen[key] = true
		w.queue = append(w.queue, s)
	}
}

func (s *modelState) newProcess(i, size, born int) {
	s.P[i] = modelProcess{Process: Process{Me: fmt.Sprintf("%c%d", 'a'+i, born), Size: size}, Born: born}
}

func (w *world) explore() {
	w.seen = map[string]bool{}
	s := modelState{DB: modelDB{Rows: bit(2) | bit(4), Published: 5}}
	if w.loses { // the others come later
		s.DB = modelDB{Rows: bit(2), Published: 3}
	}
	for i := range s.P {
		s.newProcess(i, w.size, 0)
	}
	w.add(s)
	for len(w.queue) > 0 && w.violation == "" {
		s := w.queue[len(w.queue)-1]
		w.queue = w.queue[:len(w.queue)-1]
		if s.DB.Exists && s.DB.Row.Last >= 2 {
			w.finished++
		}
		for i := range w.processes {
			if !s.P[i].Ended {
				w.process(s, i)
				w.harm(s, i)
			}
		}
		w.late(s)
		w.insert(s)
		w.operate(s)
		w.lose(s)
	}
}

// process does the next step of a process.
func (w *world) process(s modelState, i int) {
	p := &s.P[i]
	p.ids = slices.Clone(p.ids)
	switch p.Phase {
	case idle:
		latest := s.latest()
		for _, now := range []int64{p.row.Now, p.row.Now + Interval - 1, s.DB.Row.Until - validity, latest + 1} {
			w.step(s, i, max(now, p.row.Now))
		}
	case begun:
		w.begun(s, i)
	case locked:
		w.handle(s, i)
	case ready:
		w.commit(s, i)
	case settle: // mutant
		if p.change(0, 0); applies(p.Step.Change, s.DB.Row) {
			s.DB.Row.Last = p.Step.Change.NewLast
			s.DB.Row.Until = p.Step.Change.NewTerm
			p.end(Committed)
		} else {
			p.end(Lost)
		}
		w.add(s)
	}
}

// end reports the outcome of a transaction to the process.
func (p *modelProcess) end(o Outcome) {
	p.Process.Ended(p.Step, o)
	p.Phase, p.Step, p.Tx, p.Old, p.Snap, p.Done, p.Gone, p.Swallow = idle, Step{}, modelDB{}, modelDB{}, 0, 0, false, false
}

func (w *world) matches(c Change, d modelDB) bool {
	r := d.Row
	switch w.mutant {
	case comparesNoLast:
		c.Last = r.Last
	case inMemory, holderOnly:
		c.Last, c.Until = r.Last, r.Until
	case ignoresPause:
		r.Paused = false
	}
	return d.Exists && applies(c, r)
}

// applies reports whether the statement of a change would change a row.
func applies(c Change, r Row) bool {
	return r.Last == c.Last && r.Holder == c.Holder && r.Until == c.Until && !r.Paused
}

func apply(r *Row, c Change) {
	if r.Last != c.NewLast {
		r.Attempts, r.RetryAt, r.StuckID, r.StuckSince = 0, 0, 0, 0
	}
	r.Holder, r.Until, r.Last = c.Me, c.NewTerm, c.NewLast
}

func (w *world) step(s modelState, i int, now int64) {
	p := &s.P[i]
	p.ids = slices.Clone(p.ids)
	step := p.Next(now, s.DB.Published > p.through+1)
	switch step.Kind {
	case Read:
		row := s.DB.Row
		if row.Now = now; w.mutant == inMemory && p.seen {
			row.Last = p.row.Last
		}
		p.Seen(row, s.DB.Exists)
		if p.Saw = p.Saw || s.DB.Exists; w.mutant == beginsAnew {
			p.seen = false
		}
	case Removed:
		p.Ended = true
	case Insert:
		if s.Removed {
			w.violation = fmt.Sprintf("a process inserted the row that an operator had removed: %+v", s)
		}
		s.DB.Exists = true
		p.Forget()
	case Stand, Wait:
		return // another time comes by itself
	case Fetch:
		w.fetch(s, i, step)
		return
	case Handle:
		if p.Phase, p.Step, p.Snap = begun, step, s.DB.Total; w.mutant == snapshotFirst {
			p.Old = s.DB
		}
	default:
		w.write(s, i, step)
		return
	}
	w.add(s)
}

// write does a change in a statement of its own.
func (w *world) write(s modelState, i int, step Step) {
	p := &s.P[i]
	if s.lockedBy() >= 0 {
		if step.Change.Holder != p.Me { // a take-over does not wait
			p.Wrote(step, false)
			w.add(s)
		}
		return
	}
	if s.Faults < w.faults {
		unknown := s
		unknown.P[i].Forget()
		unknown.Faults++
		if w.matches(step.Change, s.DB) {
			unknown.DB = written(s.DB, step)
			w.add(unknown)
		}
		unknown.DB = s.DB
		w.add(unknown)
	}
	changed := w.matches(step.Change, s.DB)
	if changed {
		s.DB = written(s.DB, step)
	}
	p.Wrote(step, changed)
	w.add(s)
}

func written(d modelDB, step Step) modelDB {
	if step.Kind == Move { // a skip
		d.Exempt |= bit(step.Change.NewLast)
	}
	apply(&d.Row, step.Change)
	if step.Kind == Fail {
		d.Row.Attempts, d.Row.RetryAt, d.Row.StuckID = step.Failed.Attempts, step.Failed.RetryAt, step.Failed.StuckID
	}
	return d
}

// fetch changes the row and fetches rows, in one transaction.
func (w *world) fetch(s modelState, i int, step Step) {
	p := &s.P[i]
	if s.lockedBy() >= 0 {
		return // it waits
	}
	changed := w.matches(step.Change, s.DB)
	var ids []int64
	for id := step.After + 1; id < s.DB.Published; id++ {
		if s.DB.Rows&bit(id) != 0 {
			ids = append(ids, id)
		}
	}
	if s.Faults < w.faults {
		unknown := s
		unknown.P[i].Forget()
		unknown.Faults++
		if changed {
			unknown.DB = written(s.DB, step)
		}
		w.add(unknown)
	}
	switch {
	case w.mutant == noProof:
		p.ids, p.through = append(p.ids, ids...), s.DB.Published-1
	case changed:
		s.DB = written(s.DB, step)
		fallthrough
	default:
		p.Fetched(step, changed, ids, s.DB.Published-1)
	}
	w.add(s)
}

// begun sends the change, the first statement of the transaction.
func (w *world) begun(s modelState, i int) {
	p := &s.P[i]
	switch {
	case p.Gone:
		p.end(Again)
	case w.mutant == cursorAfter:
		if p.Phase, p.Tx = locked, s.DB; s.lockedBy() != i {
			return
		}
	case s.lockedBy() >= 0:
		return // it waits
	case w.matches(p.Step.Change, s.DB), w.mutant == snapshotFirst && w.matches(p.Step.Change, p.Old):
		if s.DB.Row.Paused {
			w.violation = fmt.Sprintf("a paused consumer handles rows: %+v", s)
			return
		}
		p.Phase, p.Tx = locked, s.DB
		apply(&p.Tx.Row, p.Step.Change)
		p.Snap = s.DB.Total
	case w.mutant == loserCommits:
		p.Phase, p.Tx, p.Snap = locked, s.DB, s.DB.Total
	default:
		p.end(Lost)
	}
	w.add(s)
}

// handle handles a row, or fails.
func (w *world) handle(s modelState, i int) {
	p := &s.P[i]
	id := p.ids[p.Done]
	if w.skips && id == 2 {
		if p.Step.Rows == 1 && p.Skipped&bit(id) != 0 && w.faults == 0 && w.processes == 1 {
			w.violation = fmt.Sprintf("the row was skipped twice: %+v", s)
			return
		}
		if p.Step.Rows == 1 {
			p.Skipped |= bit(id)
		}
		if p.end(Skipped); w.mutant == skipStays && p.pending == Move {
			p.Forget()
		}
		w.add(s)
		return
	}
	if s.Faults < w.faults { // the handler fails
		failed := s
		failed.Faults++
		failed.P[i].ids = slices.Clone(p.ids)
		failed.P[i].end(Failed)
		w.add(failed)
	}
	switch {
	case p.Gone && !p.Swallow: // the handler returns the error, or swallows it
		back := s
		back.P[i].ids = slices.Clone(p.ids)
		back.P[i].end(Again)
		w.add(back)
		p.Swallow = true
		w.add(s)
		return
	case p.Gone && w.mutant == swallowed: // the server commits each statement
		s.DB.Effects[s.DB.N] = id
		s.DB.N++
		s.DB.Total++
	case p.Gone: // the guard refuses the statement
	default:
		p.Tx.Effects[p.Tx.N] = id
		p.Tx.N++
		p.Snap++
		p.Tx.Total = p.Snap
	}
	if p.Done++; p.Done == p.Step.Rows {
		p.Phase = ready
	}
	w.add(s)
}

// commit compares and commits.
func (w *world) commit(s modelState, i int) {
	p := &s.P[i]
	switch {
	case p.Gone && w.mutant == swallowed: // COMMIT succeeds
		p.end(Committed)
		w.add(s)
		return
	case p.Gone:
		p.end(Again)
		w.add(s)
		return
	}
	if s.Faults < w.faults {
		w.unknown(s, i)
	}
	p.commitTo(&s.DB)
	if w.mutant == cursorAfter {
		p.Phase = settle
	} else {
		p.end(Committed)
	}
	w.add(s)
}

// commitTo makes the transaction's changes visible. Nobody else changes the row or the effects while it is locked, but
// rows may come.
func (p *modelProcess) commitTo(d *modelDB) {
	d.Row, d.Effects, d.N, d.Total = p.Tx.Row, p.Tx.Effects, p.Tx.N, p.Tx.Total
}

// worlds are small enough to explore completely, and each has what some mutant needs.
func worlds(m mutant) []*world {
	all := []world{
		{processes: 1, size: 1, skips: true},
		{processes: 2, size: 1, operates: true},
		{processes: 2, size: 2, faults: 1},
		{processes: 2, size: 1, faults: 1},
		{processes: 1, size: 1, faults: 2},
		{processes: 1, size: 2, faults: 2, skips: true},
		{processes: 1, size: 1, faults: 1, operates: true},
		{processes: 1, size: 1, loses: true, inserts: 2},
		{processes: 1, size: 2, loses: true, inserts: 2},
		{processes: 1, size: 1, loses: true, inserts: 2, faults: 1},
		{processes: 2, size: 1, loses: true},
	}
	var some []*world
	for _, w := range all {
		w.mutant = m
		some = append(some, &w)
	}
	return some
}

func (w *world) String() string {
	return fmt.Sprintf("%d processes, size %d, %d faults, loses: %t, operates: %t, skips: %t: %d states",
		w.processes, w.size, w.faults, w.loses, w.operates, w.skips, len(w.seen))
}

func TestModel_EachRowHasItsEffectOnceAndInOrder(t *testing.T) {
	t.Parallel()
	testkit.SkipWithRace(t) // one goroutine
	for i, w := range worlds("") {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			w.explore()
			if w.violation != "" {
				t.Error(w.violation)
			}
			if w.finished == 0 {
				t.Error("no row was ever handled")
			}
			t.Log(w)
		})
	}
}

func TestModel_FindsEveryMutant(t *testing.T) {
	t.Parallel()
	testkit.SkipWithRace(t) // one goroutine
	for _, m := range []mutant{cursorAfter, comparesNoLast, loserCommits, skipStays, swallowed, snapshotFirst, inMemory, noProof,
		beginsAnew, ignoresPause, holderOnly} {
		t.Run(string(m), func(t *testing.T) {
			t.Parallel()
			for _, w := range worlds(m) {
				if w.explore(); w.violation != "" {
					t.Logf("%v: %s", w, w.violation)
					return
				}
			}
			t.Error("not found")
		})
	}
}

package consumer

import (
	"encoding/binary"
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
		for _, now := range []int64{p.row.Now, p.row.Now + Interval - 1, s.DB.Row.Until - Validity, latest + 1} {
			w.step(s, i, max(now, p.row.Now))
		}
	case begun:
		w.begun(s, i)
	case locked:
		w.handle(s, i)
	case ready:
		w.commit(s, i)
	case settle: // mutant
		if p.change(0, 0); p.Step.Change.Matches(s.DB.Row) {
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
	return d.Exists && c.Matches(r)
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

// unknown is a COMMIT without an answer: the server has done it, will never do it, or does it later.
func (w *world) unknown(s modelState, i int) {
	s.Faults++
	tx := s.P[i].Tx
	ids := slices.Clone(s.P[i].ids)
	done, never, later := s, s, s
	done.P[i].commitTo(&done.DB)
	later.Late, later.IsLate = tx, true
	for _, next := range []modelState{done, never, later} {
		for _, outcome := range []Outcome{Again, Failed} { // Failed after several
			state := next
			state.P[i].ids = slices.Clone(ids)
			state.P[i].end(outcome)
			w.add(state)
		}
	}
}

func (w *world) late(s modelState) {
	if !s.IsLate {
		return
	}
	p := modelProcess{Tx: s.Late}
	s.Late, s.IsLate = modelDB{}, false
	w.add(s)
	p.commitTo(&s.DB)
	w.add(s)
}

// harm kills a process, or its connection, or lets the server choose its transaction as the victim of a deadlock.
func (w *world) harm(s modelState, i int) {
	if s.Faults >= w.faults {
		return
	}
	s.Faults++
	if p := &s.P[i]; p.Phase != idle && p.Phase != settle && !p.Gone {
		gone := s
		gone.P[i].Gone, gone.P[i].Tx = true, modelDB{}
		w.add(gone)
	}
	s.newProcess(i, w.size, s.P[i].Born+1)
	w.add(s)
}

// insert adds rows. After a loss they come below those that are lost.
func (w *world) insert(s modelState) {
	if s.Inserted >= w.inserts {
		return
	}
	next := s.DB.Published + 1
	if s.Lost { // below the rows that are lost
		next--
	}
	s.Inserted++
	s.DB.Rows |= bit(next)
	s.DB.Published = next + 1
	w.add(s)
}

// operate resets the cursor with the effects above it, pauses, resumes, or removes the row.
func (w *world) operate(s modelState) {
	if s.DB.Exists && s.DB.Row.Paused && s.lockedBy() < 0 {
		resumed := s
		resumed.DB.Row.Paused = false
		w.add(resumed)
	}
	if !w.operates || s.Operated || !s.DB.Exists || s.lockedBy() >= 0 {
		return
	}
	s.Operated = true
	back := s
	back.DB.Row.Last, back.DB.N, back.DB.Total, back.DB.Effects = 0, 0, 0, [8]int64{}
	w.add(back)
	forward := s
	for id := range int64(6) {
		if forward.DB.Rows&bit(id) != 0 && id > forward.DB.Row.Last {
			forward.DB.Exempt |= bit(id)
		}
	}
	forward.DB.Row.Last = max(5, s.DB.Row.Last)
	w.add(forward)
	paused := s
	paused.DB.Row.Paused = true
	w.add(paused)
	if w.faults == 0 { // otherwise a process that begins later may insert it
		s.DB.Exists, s.DB.Row, s.Removed = false, Row{}, true
		for i := range s.P {
			if !s.P[i].Saw {
				s.P[i].Ended = true
			}
		}
		w.add(s)
	}
}

// lose lets the database fall back to an earlier state once.
func (w *world) lose(s modelState) {
	switch {
	case !w.loses || s.Lost:
	case !s.IsSaved:
		s.Saved, s.IsSaved = s.DB, true
		w.add(s)
	default:
		s.DB, s.Lost, s.IsLate, s.Late = s.Saved, true, false, modelDB{}
		s.Saved = modelDB{}
		for i := range s.P {
			if p := &s.P[i]; p.Phase != idle && p.Phase != settle {
				p.Gone, p.Tx = true, modelDB{}
			}
		}
		w.add(s)
	}
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
		f(&p.Step.Change.Until)
		f(&p.Step.Change.NewTerm)
	}
}

func (s *modelState) latest() (latest int64) {
	s.times(func(t *int64) { latest = max(latest, *t) })
	return latest
}

// key tells states apart. Only the order of times matters, and whether a term is about to end.
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
	text := func(t string) { b = append(append(b, t...), 0) }
	row := func(r Row) {
		b = append(b, byte(r.Last), rank(r.Until), rank(r.RetryAt), byte(r.Attempts))
		flag(r.Paused, r.Until-r.Now <= Validity-Interval, r.Until <= r.Now, r.RetryAt <= r.Now)
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
			byte(p.Step.Change.Last), byte(p.Step.Change.NewLast), rank(p.Step.Change.Until), rank(p.Step.Change.NewTerm))
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

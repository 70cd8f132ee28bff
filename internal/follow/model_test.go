package follow

import (
	"fmt"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"

	"github.com/uidplugin/uidplugin/internal/testkit"
)

// The model explores every order of the steps of two writers, two closers and one follower, with crashes and a database
// that loses commits. It drives decide, Round and Cursor. Ids are 2*tick + writer; a mark is 2*tick.

// A modelWriter is in a transaction from begin on. Each step of its INSERT is one of the model's.
type modelWriter struct {
	Phase writerPhase
	ID    int8   // stamped
	Rows  int8   // number of rows so far in the transaction
	Gates int8   // bits of the gates whose locks it holds
	Mark  int8   // when the id was stamped, for a mutant
	Snap  int8   // when the transaction began, for a mutant
	Gate  int8   // the choice of the trigger, for a mutant
	Open  uint16 // bits of the rows
}

type writerPhase int8

const (
	idle   writerPhase = iota
	begun              // and the id is stamped
	chosen             // the trigger has evaluated the choice of its gate once, for a mutant
	gated              // the trigger has its gate
)

// A modelCloser is a connection that closes.
type modelCloser struct {
	Busy bool
	Round
}

// A modelState is comparable, so that each is explored once.
type modelState struct {
	Now             int8
	Mark, Published int8
	Writers         [2]modelWriter
	Closers         [2]modelCloser
	Committed       uint16 // bits of ids
	Delivered       uint16
	Exempt          uint16 // inserted below the cursor after commits were lost
	Fetched         int8   // the published mark that the follower has read; -1 if none
	Cursor          Cursor
	Stamps          int8
	Lost            bool
	Recovered       int8 // the published mark after the loss
	Rewound         bool // the follower has gone back to it

	// The state that survives the loss of later commits.
	SavedMark, SavedPublished int8
	SavedCommitted            uint16
	Saved                     bool
}

// A mutant leaves a rule out.
type mutant string

const (
	oneGate        mutant = "waits at one gate only"
	versionedMark  mutant = "the trigger sees the mark of its snapshot"
	publishFirst   mutant = "publishes before it waits"
	markBeforeGate mutant = "the trigger reads the mark before it has its gate"
	keepsFetched   mutant = "a follower keeps the published mark over a loss"
	roundSurvives  mutant = "a round goes on after its connection broke"
	cursorToMark   mutant = "the cursor moves to the mark"
	lowersMark     mutant = "the mark can be lowered"
	keepsCursor    mutant = "a follower that rewinds goes on from its cursor"
	choosesTwice   mutant = "the choice of the gate is evaluated twice"
)

type world struct {
	ticks, rows int8
	loses       bool
	rewinds     bool // the follower goes back after a loss
	mutant      mutant
	layout      generator.Layout
	seen        map[modelState]bool
	queue       []modelState
	violation   string
}

func newWorld(ticks, rows int8, loses bool, m mutant) *world {
	layout := generator.DefaultLayout()
	layout.Tick = time.Second
	return &world{ticks: 1 + ticks, rows: rows, loses: loses, mutant: m, layout: layout, seen: map[modelState]bool{}}
}

// id returns the layout's id for one of the model.
func (w *world) id(of int8) int64 {
	id, err := w.layout.Compose(generator.Parts{Time: w.layout.TimeOf(int64(of / 2)), WorkerID: int64(of % 2)})
	if err != nil {
		panic(err)
	}
	return id
}

// of is the inverse of id.
func (w *world) of(id int64) int8 {
	p, err := w.layout.Decompose(id)
	if err != nil {
		panic(err)
	}
	return int8(w.layout.TickAt(p.Time))*2 + int8(p.WorkerID)
}

func (w *world) add(s modelState) {
	if w.violation != "" {
		return
	}
	// A row up to the cursor that was not delivered will never be.
	exempt := s.Exempt
	switch {
	case w.rewinds && s.Rewound:
		exempt = 0
	case w.rewinds && s.Lost:
		exempt = ^uint16(0)
	}
	for id := range int8(16) {
		bit := uint16(1) << id
		if s.Committed&bit != 0 && s.Delivered&bit == 0 && exempt&bit == 0 && w.id(id) <= s.Cursor.Last {
			w.violation = fmt.Sprintf("the row %d was missed: %+v", id, s)
			return
		}
	}
	if a, b := s.Closers[0], s.Closers[1]; a.Mark > b.Mark || a.Mark == b.Mark && a.Step > b.Step {
		s.Closers = [2]modelCloser{b, a}
	}
	if !w.seen[s] {
		w.seen[s] = true
		w.queue = append(w.queue, s)
	}
}

func (w *world) explore() {
	w.add(modelState{Now: 1, Fetched: -1})
	for len(w.queue) > 0 && w.violation == "" {
		s := w.queue[len(w.queue)-1]
		w.queue = w.queue[:len(w.queue)-1]
		w.time(s)
		for i := range s.Writers {
			w.write(s, i)
		}
		for i := range s.Closers {
			w.close(s, i)
		}
		w.follow(s)
		w.lose(s)
	}
}

func (w *world) time(s modelState) {
	if s.Now < w.ticks {
		s.Now++
		w.add(s)
	}
}

func (w *world) write(s modelState, i int) {
	t := s.Writers[i]
	step := func(t modelWriter) {
		next := s
		next.Writers[i] = t
		w.add(next)
	}
	refuse := func(t modelWriter) { // and roll back
		if t.ID >= s.Mark {
			w.violation = fmt.Sprintf("the row %d was refused, but the mark is %d: %+v", t.ID, s.Mark, s)
		}
		step(modelWriter{})
	}
	insert := func(t modelWriter, mark int8) {
		if t.ID < mark {
			refuse(t)
			return
		}
		next := s
		t.Open |= 1 << t.ID
		if s.Lost && w.id(t.ID) <= s.Cursor.Last {
			next.Exempt |= 1 << t.ID
		}
		t.Rows, t.Phase, t.ID, t.Mark = t.Rows+1, idle, 0, 0
		next.Writers[i] = t
		w.add(next)
	}
	switch t.Phase {
	case idle:
		for tick := s.Now - 1; tick <= s.Now && s.Stamps < w.rows; tick++ { // an id may be a tick old
			id := tick*2 + int8(i)
			if tick < 1 || (s.Committed|t.Open|s.Delivered)&(1<<id) != 0 {
				continue
			}
			next := s
			next.Stamps++
			began := modelWriter{Phase: begun, ID: id, Rows: t.Rows, Gates: t.Gates, Snap: t.Snap, Open: t.Open}
			if w.mutant == versionedMark && t.Rows == 0 {
				began.Snap = s.Mark
			}
			if w.mutant == markBeforeGate {
				began.Mark = s.Mark
			}
			next.Writers[i] = began
			w.add(next)
		}
		if t.Rows > 0 { // the transaction ends
			next := s
			next.Committed |= t.Open
			next.Writers[i] = modelWriter{}
			w.add(next)
			step(modelWriter{})
		}
	case begun:
		if w.mutant == choosesTwice {
			t.Phase, t.Gate = chosen, s.freeGate()
			step(t)
			return
		}
		for gate := range int8(2) {
			g := t
			g.Gates |= 1 << gate
			g.Phase = gated
			step(g)
		}
	case chosen:
		if t.Gate != s.freeGate() {
			refuse(t) // it finds no gate, so it has no mark
			return
		}
		t.Gates |= 1 << t.Gate
		t.Phase, t.Gate = gated, 0
		step(t)
	case gated:
		switch w.mutant {
		case versionedMark:
			insert(t, t.Snap)
		case markBeforeGate:
			insert(t, t.Mark)
		default:
			insert(t, s.Mark)
		}
	}
}

// freeGate is the gate that no closer passes, for new transactions.
func (s modelState) freeGate() int8 {
	for _, c := range s.Closers {
		if c.Busy && c.Step == PassUsed {
			return 1
		}
	}
	return 0
}

func (w *world) close(s modelState, i int) {
	c := s.Closers[i]
	if !c.Busy {
		at := w.layout.TimeOf(int64(s.Now))
		published := w.id(s.Published)
		// A row waits, or the application asks for the mark, so a round may begin at any time.
		plan, err := decide(State{Published: published, Next: max(published, 1), Trigger: "t", Found: "t", Now: at}, w.layout, "me", at, at)
		if err != nil {
			panic(err)
		}
		if plan.Mark > 0 {
			s.Closers[i] = modelCloser{true, Round{Mark: plan.Mark}}
			w.add(s)
		}
		return
	}
	if c.Step > Raise {
		crashed := s
		crashed.Closers[i] = modelCloser{}
		w.add(crashed)
	}
	step := c.Step
	if w.mutant == publishFirst {
		step = [...]Step{Raise, Publish, PassIdle, PassUsed, Done}[step]
	}
	holds := func(gate int8) bool { return (s.Writers[0].Gates|s.Writers[1].Gates)&(1<<gate) != 0 }
	mark := w.of(c.Mark)
	switch step {
	case Raise:
		if s.Mark < mark || w.mutant == lowersMark {
			s.Mark = mark
		}
	case PassIdle:
		if holds(1) && w.mutant != oneGate {
			return
		}
	case PassUsed:
		if holds(0) {
			return
		}
	case Publish:
		s.Published = max(s.Published, mark)
	}
	c.Passed()
	if c.Step == Done {
		c = modelCloser{}
	}
	s.Closers[i] = c
	w.add(s)
}

func (w *world) follow(s modelState) {
	if s.Fetched < 0 {
		s.Fetched = s.Published
		w.add(s)
		return
	}
	published := w.id(s.Fetched)
	if w.rewinds && s.Lost && !s.Rewound {
		if s.Rewound = true; w.mutant != keepsCursor {
			s.Cursor.Last = min(s.Cursor.Last, w.id(s.Recovered)-1)
		}
		s.Recovered = 0
	}
	above, below, any := s.Cursor.Bounds(published)
	if any {
		last, rows := int64(0), 0
		for id := range int8(16) {
			if at := w.id(id); s.Committed&(1<<id) != 0 && at > above && at < below {
				last, rows = at, rows+1
				s.Delivered |= 1 << id
			}
		}
		s.Cursor.Read(last, rows, rows+1, published)
		if w.mutant == cursorToMark {
			s.Cursor.Last = max(s.Cursor.Last, published)
		}
	}
	if w.mutant != keepsFetched || !s.Lost {
		s.Fetched = -1
	}
	w.add(s)
}

// lose lets the database remember its state at any moment, and fall back to it once.
func (w *world) lose(s modelState) {
	if !w.loses || s.Lost {
		return
	}
	if !s.Saved {
		s.Saved, s.SavedMark, s.SavedPublished, s.SavedCommitted = true, s.Mark, s.Published, s.Committed
		w.add(s)
		return
	}
	s.Lost = true
	if w.rewinds {
		s.Recovered = s.SavedPublished
	}
	s.Mark, s.Published, s.Committed = s.SavedMark, s.SavedPublished, s.SavedCommitted
	s.SavedMark, s.SavedPublished, s.SavedCommitted = 0, 0, 0
	s.Writers = [2]modelWriter{}
	if w.mutant != roundSurvives {
		s.Closers = [2]modelCloser{}
	}
	if w.mutant != keepsFetched {
		s.Fetched = -1
	}
	w.add(s)
}

func TestModel_NoRowIsMissed(t *testing.T) {
	t.Parallel()
	testkit.SkipWithRace(t) // one goroutine
	rewinds := newWorld(1, 1, true, "")
	rewinds.rewinds = true
	for _, w := range []*world{newWorld(1, 3, false, ""), newWorld(1, 2, true, ""), rewinds} {
		w.explore()
		if w.violation != "" {
			t.Error(w.violation)
		}
		t.Logf("%d ticks, %d rows, loses commits: %t: %d states", w.ticks, w.rows, w.loses, len(w.seen))
	}
}

func TestModel_FindsEveryMutant(t *testing.T) {
	t.Parallel()
	testkit.SkipWithRace(t) // one goroutine
	for _, m := range []mutant{oneGate, versionedMark, publishFirst, markBeforeGate, keepsFetched, roundSurvives, cursorToMark, lowersMark, keepsCursor, choosesTwice} {
		t.Run(string(m), func(t *testing.T) {
			t.Parallel()
			rewinds := newWorld(1, 1, true, m)
			rewinds.rewinds = m == keepsCursor
			for _, w := range []*world{newWorld(1, 2, false, m), rewinds, newWorld(2, 2, false, m)} {
				w.explore()
				if w.violation != "" {
					t.Logf("%d states: %s", len(w.seen), w.violation)
					return
				}
			}
			t.Error("not found")
		})
	}
}

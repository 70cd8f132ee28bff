package workernode

import (
	"fmt"
	"hash/maphash"
)

// A modelOf is a world in which one thing happens at a time. S is all that can be
// said about it at a moment, E is what can happen.
type modelOf[S comparable, E fmt.Stringer] interface {
	first() S
	// steps visits all that can happen next, each with the state after it.
	steps(s S, visit func(E, S))
	// canonical turns a state into the one that stands for all that differ from it
	// only by names.
	canonical(s *S)
	// broken says what is so in s and must never be; nothing if all is well.
	broken(s *S) string
}

// exploreModel goes breadth first through all states of a model, until one is
// broken: it returns what is, and the shortest story that leads there. States are
// told apart exactly, not by hashes. It calls happens for each event, and progress
// now and then.
func exploreModel[S comparable, E fmt.Stringer](m modelOf[S, E], happens func(E), progress func(states, depth int)) (states, depth int, broken string, story []string) {
	seen := newSeenStates[S]()
	s := m.first()
	m.canonical(&s)
	seen.add(&s, 0)
	at, level := 0, 1 // states from level on are one deeper
	visit := func(e E, to S) {
		if broken != "" {
			return
		}
		happens(e)
		s = to // is in memory already: one more for each event would be much
		if broken = m.broken(&s); broken == "" {
			m.canonical(&s)
			seen.add(&s, at)
		}
	}
	for ; at < seen.len(); at++ {
		if at == level {
			depth, level = depth+1, seen.len()
		}
		if at%1_000_000 == 999_999 {
			progress(seen.len(), depth)
		}
		m.steps(*seen.at(at), visit)
		if broken != "" {
			return seen.len(), depth + 1, broken, retell(m, seen, at)
		}
	}
	return seen.len(), depth, "", nil
}

// lostThread ends a story that cannot be retold: a state and its canonical one do
// not behave the same.
const lostThread = "and so on: mend canonical, what it changes is of consequence"

// retell goes once more to the state numbered last, and on to what is broken next,
// without any exchange of names on the way.
func retell[S comparable, E fmt.Stringer](m modelOf[S, E], seen *seenStates[S], last int) (story []string) {
	var path []int
	for i := last; i != 0; i = seen.before(i) {
		path = append(path, i)
	}
	s := m.first()
	for i := len(path); i >= 0; i-- {
		var next *S
		m.steps(s, func(e E, to S) {
			if next != nil {
				return
			}
			as := to
			if m.canonical(&as); i > 0 && as == *seen.at(path[i-1]) || i == 0 && m.broken(&to) != "" {
				next, story = &to, append(story, e.String())
			}
		})
		if next == nil {
			return append(story, lostThread)
		}
		s = *next
	}
	return story
}

// seenStates is a set of states, numbered in the order in which they were found.
type seenStates[S comparable] struct {
	chunks [][]S
	from   []uint32 // the number of the state that each was found from
	table  []uint64 // hash table with open addressing: 32 bits of the hash, and the number + 1
	seed   maphash.Seed
}

const seenChunk = 1 << 14

func newSeenStates[S comparable]() *seenStates[S] {
	return &seenStates[S]{table: make([]uint64, 1<<12), seed: maphash.MakeSeed()}
}

func (x *seenStates[S]) len() int         { return len(x.from) }
func (x *seenStates[S]) at(i int) *S      { return &x.chunks[i/seenChunk][i%seenChunk] }
func (x *seenStates[S]) before(i int) int { return int(x.from[i]) }

func (x *seenStates[S]) add(s *S, from int) {
	hash := maphash.Comparable(x.seed, *s) >> 32
	slot := x.first(hash)
	for ; x.table[slot] != 0; slot = x.next(slot) {
		if e := x.table[slot]; e>>32 == hash && *x.at(int(uint32(e) - 1)) == *s {
			return
		}
	}
	if x.len()%seenChunk == 0 {
		x.chunks = append(x.chunks, make([]S, 0, seenChunk))
	}
	last := &x.chunks[len(x.chunks)-1]
	*last = append(*last, *s)
	x.from = append(x.from, uint32(from))
	x.table[slot] = hash<<32 | uint64(x.len())
	if x.len() > len(x.table)/3*2 {
		x.grow()
	}
}

func (x *seenStates[S]) first(hash uint64) int { return int(hash & uint64(len(x.table)-1)) }
func (x *seenStates[S]) next(slot int) int     { return (slot + 1) & (len(x.table) - 1) }

func (x *seenStates[S]) grow() {
	old := x.table
	x.table = make([]uint64, 2*len(old))
	for _, e := range old {
		if e == 0 {
			continue
		}
		slot := x.first(e >> 32)
		for x.table[slot] != 0 {
			slot = x.next(slot)
		}
		x.table[slot] = e
	}
}

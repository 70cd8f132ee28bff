package follow

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"gorm.io/gorm"
)

// ErrTooLate reports that a followed table has refused a row, because the row's id is older than the slack allows.
var ErrTooLate = errors.New("uidplugin: too late")

// A Followed is what a database handle keeps about its followed tables. It may be used concurrently. The zero
// Followed is empty.
type Followed struct {
	marks     sync.Map // *Mark by Table
	consumers sync.Map // keys are the *consumerState of running consumers

	mu      sync.Mutex
	refused map[string]int64 // creates that were too late, by table
}

// Mark returns the mark of a table. The first call makes it by create, and later calls return the same mark.
func (h *Followed) Mark(t Table, create func() *Mark) *Mark {
	mark, ok := h.marks.Load(t)
	if !ok {
		mark, _ = h.marks.LoadOrStore(t, create())
	}
	return mark.(*Mark)
}

// OnInsertError returns a function that makes the errors of rows that were too late wrap ErrTooLate, and counts
// them. It also calls reach, which moves the next ids up to the database's clock. Otherwise, if the clock of this
// process is behind, the table would refuse these ids, too.
func (h *Followed) OnInsertError(reach func(to time.Time)) func(stmt *gorm.Statement, err error) (error, bool) {
	return func(stmt *gorm.Statement, err error) (error, bool) {
		at, ok := TooLate(err)
		if !ok || errors.Is(err, ErrTooLate) {
			return err, errors.Is(err, ErrTooLate)
		}
		table := cmp.Or(stmt.Table, "the table") // Exec does not know the table
		if stmt.Schema != nil && strings.HasSuffix(stmt.Schema.Table, "."+stmt.Table) {
			table = stmt.Schema.Table // GORM leaves out the schema in the name, but followers use it
		}
		if stmt.Table != "" {
			h.count(table)
		}
		reach(at)
		return fmt.Errorf("%w: %s is followed, and the id of a row is older than its slack allows; create the rows again, in a new transaction,"+
			" with new ids (NextID) where the program has set them (docs/following.md): %w", ErrTooLate, table, err), true
	}
}

func (h *Followed) count(table string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.refused == nil {
		h.refused = map[string]int64{}
	}
	h.refused[table]++
}

// A TableState is the state of a followed table in this process.
type TableState struct {
	Table     string
	TooLate   int64 // creates that were refused
	Followers int
	Settled   int64 // below this id the table is complete; 0 without followers, or if unknown
	Err       error // why Settled does not advance
}

// Tables returns the tables that are followed here, or that have refused rows, sorted by name.
func (h *Followed) Tables() []TableState {
	tables := map[string]TableState{}
	h.mu.Lock()
	for table, n := range h.refused {
		tables[table] = TableState{Table: table, TooLate: n}
	}
	h.mu.Unlock()
	for _, c := range h.Consumers() {
		if _, ok := tables[c.Table]; !ok {
			tables[c.Table] = TableState{Table: c.Table}
		}
	}
	for key, value := range h.marks.Range {
		if followers, settled, err := value.(*Mark).State(); followers > 0 {
			name := key.(Table).Name
			tables[name] = TableState{name, tables[name].TooLate, followers, settled, err}
		}
	}
	return slices.SortedFunc(maps.Values(tables), func(a, b TableState) int { return strings.Compare(a.Table, b.Table) })
}

// Consumers returns the consumers that run here, sorted by table and name.
func (h *Followed) Consumers() (list []ConsumerState) {
	for key := range h.consumers.Range {
		list = append(list, key.(*consumerState).get())
	}
	slices.SortFunc(list, func(a, b ConsumerState) int {
		return cmp.Or(strings.Compare(a.Table, b.Table), strings.Compare(a.Consumer, b.Consumer))
	})
	return list
}

// A ConsumerState is the state of a consumer in this process.
type ConsumerState struct {
	ConsumerKey
	Holds   bool  // this process handles the rows
	Paused  bool  // by an operator
	Last    int64 // the cursor, as far as it is known
	Passed  int64 // nothing up to this id is left to handle; Last follows within seconds
	Handled int64 // rows that this process has handled
	Failed  int64 // failures of the handler
	Skipped int64
	StuckID int64 // the row that fails; 0 if none does
	Err     error // the last error; nil if the consumer works
}

// A consumerState guards the state of a consumer that runs.
type consumerState struct {
	mu    sync.Mutex
	state ConsumerState
}

func (s *consumerState) set(f func(*ConsumerState)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.state)
}

func (s *consumerState) get() (state ConsumerState) {
	s.set(func(s *ConsumerState) { state = *s })
	return state
}

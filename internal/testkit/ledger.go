package testkit

import (
	"maps"
	"sync"
	"testing"
)

// maxReports limits the errors of one Ledger, so that a log stays readable when very many ids come twice.
const maxReports = 10

// A Ledger records which table each id is of, and finds ids that come twice, in one table or in two. It is safe for
// concurrent use. The zero value only counts; [NewLedger] returns one that also fails a test.
type Ledger struct {
	tb    testing.TB
	mu    sync.Mutex
	table map[int64]string
	twice int
}

// NewLedger returns an empty ledger. With tb it reports an error for each of the first ten ids that come twice; use it
// until the test ends.
func NewLedger(tb testing.TB) *Ledger { return &Ledger{tb: tb} }

// Add records ids of a table. An id that the ledger has stays with its first table, and counts for [Ledger.Twice].
func (l *Ledger) Add(table string, ids ...int64) {
	if l.tb != nil {
		l.tb.Helper()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.table == nil {
		l.table = map[int64]string{}
	}
	for _, id := range ids {
		first, known := l.table[id]
		if !known {
			l.table[id] = table
			continue
		}
		l.twice++
		if l.tb != nil && l.twice <= maxReports {
			l.tb.Errorf("the id %d came twice: first for the table %q, then for %q", id, first, table)
		}
	}
}

// Len returns how many different ids were added.
func (l *Ledger) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.table)
}

// Twice returns how many of the ids that were added were known already.
func (l *Ledger) Twice() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.twice
}

// Tables returns the table of each id, as a copy.
func (l *Ledger) Tables() map[int64]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.table)
}

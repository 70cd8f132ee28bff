package testkit

import (
	"maps"
	"sync"
	"testing"
)

// maxReports limits the errors of a Ledger, because many duplicates would make the log unreadable.
const maxReports = 10

// A Ledger records the table of each id and finds duplicates, in one table or in two. It may be used concurrently.
// The zero value counts duplicates, but reports no errors.
type Ledger struct {
	tb    testing.TB
	mu    sync.Mutex
	table map[int64]string
	twice int
}

// NewLedger returns an empty ledger. If tb is not nil, duplicates fail tb, so do not use it after the test.
func NewLedger(tb testing.TB) *Ledger { return &Ledger{tb: tb} }

// Add records ids of a table. A duplicate keeps its first table and counts for [Ledger.Twice].
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

// Len returns the number of different ids.
func (l *Ledger) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.table)
}

// Twice returns the number of duplicates.
func (l *Ledger) Twice() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.twice
}

// Tables returns a new map with the name of each id's table.
func (l *Ledger) Tables() map[int64]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.table)
}

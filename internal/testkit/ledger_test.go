package testkit_test

import (
	"testing"

	"github.com/uidplugin/uidplugin/internal/testkit"
)

// Without the ledger's own test a ledger that counts nothing would pass every test of uniqueness.
func TestLedgerAdd_FindsIDsThatCameTwice(t *testing.T) {
	t.Parallel()

	seen := &errorCounter{TB: t}
	l := testkit.NewLedger(seen)
	l.Add("orders", 1, 2, 3)
	l.Add("items", 4)
	if l.Len() != 4 || l.Twice() != 0 || seen.n != 0 {
		t.Fatalf("4 ids: %d, %d twice, %d errors", l.Len(), l.Twice(), seen.n)
	}
	l.Add("items", 3) // of another table
	l.Add("orders", 5, 5)
	if l.Len() != 5 || l.Twice() != 2 || seen.n != 2 {
		t.Errorf("5 ids, 2 of them twice: %d, %d twice, %d errors", l.Len(), l.Twice(), seen.n)
	}
	if table := l.Tables()[3]; table != "orders" {
		t.Errorf("3 is of %q", table)
	}
	l.Add("orders", make([]int64, 1000)...)
	if seen.n != 10 {
		t.Errorf("%d errors, want 10 at most", seen.n)
	}
}

type errorCounter struct {
	testing.TB
	n int
}

func (c *errorCounter) Helper()               {}
func (c *errorCounter) Errorf(string, ...any) { c.n++ }

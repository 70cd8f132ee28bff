package generator

import "testing"

// Each line is an input for which a wrong action hands out an id too early, or makes a caller wait in vain.
func TestDecide_SaysWhatACallerGets(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		name string
		in   input
		want action
		free uint64
	}{
		{"all is free", input{want: 3, next: 100, at: 100, limit: 200, end: 300}, handOut, 100},
		{"some is free", input{want: 3, next: 198, at: 150, limit: 200, end: 300}, handOut, 2},
		{"some is free, and a Fill is refused as a whole", input{want: 3, next: 198, at: 150, limit: 200, end: 300, noWait: true}, refuseBorrowing, 2},
		{"the borrowing limit", input{want: 1, next: 200, at: 150, limit: 200, end: 300, mayWait: true}, waitForClock, 0},
		{"the borrowing limit has gone back", input{want: 1, next: 250, at: 150, limit: 200, end: 300}, waitForClock, 0},
		{"the borrowing limit, without waiting", input{want: 1, next: 200, at: 150, limit: 200, end: 300, noWait: true}, refuseBorrowing, 0},
		{"the end of the lease", input{want: 1, next: 300, at: 150, limit: 300, end: 300, mayWait: true}, waitForLease, 0},
		{"the end of the lease, and none comes", input{want: 1, next: 300, at: 150, limit: 300, end: 300}, refuseLease, 0},
		{"the end of the lease, without waiting", input{want: 1, next: 300, at: 150, limit: 300, end: 300, noWait: true}, refuseLease, 0},
		{"a Fill beyond the lease, without waiting", input{want: 5, next: 298, at: 150, limit: 300, end: 300, noWait: true}, refuseLease, 2},
		{"the lease has passed, and the rest of it is free", input{want: 1, next: 290, at: 310, limit: 300, end: 300}, handOut, 10},
		{"the lease has passed, and a newer one is worth a wait", input{want: 1, next: 290, at: 310, limit: 300, end: 300, mayWait: true, leaseWaitLeft: true}, waitForNewer, 10},
		{"the lease has passed, and the wait for a newer one is over", input{want: 1, next: 290, at: 310, limit: 300, end: 300, mayWait: true}, handOut, 10},
	} {
		if got := decide(tt.in); got != tt.want || tt.in.free() != tt.free {
			t.Errorf("%s: action %d, %d free; want %d, %d", tt.name, got, tt.in.free(), tt.want, tt.free)
		}
	}
}

// For every input: nothing is handed out beyond the limit, a generator that does not wait never waits, and nobody waits
// for a lease that cannot come.
func TestDecide_HoldsForEveryInput(t *testing.T) {
	t.Parallel()

	n := 0
	for want := uint64(1); want <= 3; want++ {
		for next := range uint64(6) {
			for at := range uint64(6) {
				for end := range uint64(6) {
					for limit := range end + 1 { // the lease bounds the limit
						for flags := range 8 {
							in := input{want: want, next: next, at: at, limit: limit, end: end, noWait: flags&1 != 0, mayWait: flags&2 != 0, leaseWaitLeft: flags&4 != 0}
							if in.noWait && in.mayWait {
								continue // renewable excludes it
							}
							n++
							switch got := decide(in); {
							case got == handOut && (in.free() == 0 || in.next+min(in.want, in.free()) > in.limit),
								got == handOut && in.noWait && in.free() < in.want,
								got == waitForClock && (in.noWait || in.next >= in.end),
								(got == waitForLease || got == waitForNewer) && !in.mayWait,
								got == refuseLease && in.mayWait,
								got == refuseBorrowing && (!in.noWait || in.free() >= in.want):
								t.Fatalf("action %d for %+v", got, in)
							}
						}
					}
				}
			}
		}
	}
	if n < 10_000 {
		t.Errorf("%d inputs", n)
	}
}

package generator

import "testing"

// Each line is a moment in which a wrong move hands out an id too early, or makes a caller wait in vain.
func TestMomentDecide_SaysWhatACallerGets(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		name string
		m    moment
		want move
		free uint64
	}{
		{"all is free", moment{want: 3, next: 100, at: 100, limit: 200, end: 300}, handOut, 100},
		{"some is free", moment{want: 3, next: 198, at: 150, limit: 200, end: 300}, handOut, 2},
		{"some is free, and a Fill is refused as a whole", moment{want: 3, next: 198, at: 150, limit: 200, end: 300, noWait: true}, refuseBorrowing, 2},
		{"the borrowing limit", moment{want: 1, next: 200, at: 150, limit: 200, end: 300, patient: true}, waitForClock, 0},
		{"the borrowing limit has gone back", moment{want: 1, next: 250, at: 150, limit: 200, end: 300}, waitForClock, 0},
		{"the borrowing limit, without waiting", moment{want: 1, next: 200, at: 150, limit: 200, end: 300, noWait: true}, refuseBorrowing, 0},
		{"the end of the lease", moment{want: 1, next: 300, at: 150, limit: 300, end: 300, patient: true}, waitForLease, 0},
		{"the end of the lease, and none comes", moment{want: 1, next: 300, at: 150, limit: 300, end: 300}, refuseLease, 0},
		{"the end of the lease, without waiting", moment{want: 1, next: 300, at: 150, limit: 300, end: 300, noWait: true}, refuseLease, 0},
		{"a Fill beyond the lease, without waiting", moment{want: 5, next: 298, at: 150, limit: 300, end: 300, noWait: true}, refuseLease, 2},
		{"the lease has passed, and the rest of it is free", moment{want: 1, next: 290, at: 310, limit: 300, end: 300}, handOut, 10},
		{"the lease has passed, and a newer one is worth a wait", moment{want: 1, next: 290, at: 310, limit: 300, end: 300, patient: true, prefersLease: true}, waitForNewer, 10},
		{"the lease has passed, and the wait for a newer one is over", moment{want: 1, next: 290, at: 310, limit: 300, end: 300, patient: true}, handOut, 10},
	} {
		if got := tt.m.decide(); got != tt.want || tt.m.free() != tt.free {
			t.Errorf("%s: move %d, %d free; want %d, %d", tt.name, got, tt.m.free(), tt.want, tt.free)
		}
	}
}

// In every moment: nothing is handed out beyond the limit, a generator that does not wait never waits, and nobody waits
// for a lease that cannot come.
func TestMomentDecide_HoldsInEveryMoment(t *testing.T) {
	t.Parallel()

	n := 0
	for want := uint64(1); want <= 3; want++ {
		for next := range uint64(6) {
			for at := range uint64(6) {
				for end := range uint64(6) {
					for limit := range end + 1 { // the lease bounds the limit
						for flags := range 8 {
							m := moment{want: want, next: next, at: at, limit: limit, end: end, noWait: flags&1 != 0, patient: flags&2 != 0, prefersLease: flags&4 != 0}
							if m.noWait && m.patient {
								continue // renewable excludes it
							}
							n++
							switch move := m.decide(); {
							case move == handOut && (m.free() == 0 || m.next+min(m.want, m.free()) > m.limit),
								move == handOut && m.noWait && m.free() < m.want,
								move == waitForClock && (m.noWait || m.next >= m.end),
								(move == waitForLease || move == waitForNewer) && !m.patient,
								move == refuseLease && m.patient,
								move == refuseBorrowing && (!m.noWait || m.free() >= m.want):
								t.Fatalf("move %d in %+v", move, m)
							}
						}
					}
				}
			}
		}
	}
	if n < 10_000 {
		t.Errorf("%d moments", n)
	}
}

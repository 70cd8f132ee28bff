package lease

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// leaseTestParams are numbers that are easy to reckon with: the clock of these tests is about 10,000.
var leaseTestParams = Params{Lead: 100, Settle: 20, Grace: 600, Quiet: 700, Last: 20_000}

// leaseTestHeld is a lease that was granted 9,901 to 10,100.
func leaseTestHeld() Slot {
	return Slot{Held: true, ID: 7, Version: 3, Fence: 10_100, AckedVersion: 3, Start: 9_900, Granted: 10_100, Used: 3}
}

// The lease manager does what next returns. A wrong step either stops it, or grants ticks that it does not have.
func TestSlotLeaseNext_DecidesTheStep(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		name   string
		Change func(*Slot)
		now    int64
		want   Step
	}{
		{"no slot", func(l *Slot) { *l = Slot{Used: 9} }, 10_000, StepAcquire},
		{"held", func(*Slot) {}, 10_000, StepReady},
		{"at the last tick", func(*Slot) {}, 10_100, StepReady},
		{"one tick later: the next grant still continues", func(*Slot) {}, 10_101, StepReady},
		{"two ticks later: a tick was passed", func(*Slot) {}, 10_102, StepBegin},
		{"outcome unknown", func(l *Slot) { l.Doubt() }, 10_000, StepRead},
		{"outcome unknown and long ago", func(l *Slot) { l.Doubt() }, 15_000, StepRead},
		{"an older row was read", func(l *Slot) { l.Regressed = true }, 10_000, StepCheckCommits},
		{"the fence was moved by a statement of an unknown outcome", func(l *Slot) { l.Fence = 10_101 }, 10_050, StepBegin},
		{"the fence is behind", func(l *Slot) { l.Fence = 10_000 }, 10_050, StepBegin},
		{"a floor ahead", func(l *Slot) { l.Floor = 10_101 }, 10_001, StepBegin},
		{"a floor that was granted", func(l *Slot) { l.Floor = 10_100 }, 10_000, StepReady},
		{"the fence is just below the lead", func(l *Slot) { l.Fence = 10_149 }, 10_050, StepBegin},
		{"the fence is at the lead: nothing can be granted in this tick", func(l *Slot) { l.Fence = 10_150 }, 10_050, StepWait},
		{"the fence is ahead of the lead", func(l *Slot) { l.Fence = 10_151 }, 10_050, StepAbandon},
		{"the end of the layout, long before", func(l *Slot) { l.Fence = 20_000 }, 10_050, StepAbandon},
		{"the end of the layout, not granted", func(l *Slot) { l.Fence = 20_000 }, 19_950, stepExhausted},
		{"a fence beyond the layout", func(l *Slot) { l.Fence = 20_001 }, 19_950, StepAbandon},
		{"the end of the layout, granted", func(l *Slot) { l.Fence, l.Granted = 20_000, 20_000 }, 19_999, StepReady},
		{"beyond the end of the layout", func(l *Slot) { l.Fence, l.Granted = 20_000, 20_000 }, 20_002, stepExhausted},
	} {
		l := leaseTestHeld()
		tt.Change(&l)
		if got := l.Next(leaseTestParams, tt.now); got != tt.want {
			t.Errorf("%s: step %d, want %d", tt.name, got, tt.want)
		}
	}
}

// A slot that is reclaimed too early makes its holder lose it, and shortens the time in which lost commits are
// harmless.
func TestLeaseParamsReclaimable_WaitsForSettleOrGrace(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		holder      string
		fence, seen int64
		want        bool
	}{
		{"", 9_979, 0, true},
		{"", 9_980, 0, false},
		{"", 9_979, 10_000, true}, // SEEN_TICK is of the process that has released it
		{"", 10_100, 0, false},
		{"other", 9_399, 0, true},
		{"other", 9_400, 0, false},
		{"other", 9_399, 9_299, true},
		{"other", 9_399, 9_300, false}, // it is idle, and keeps its slot alive
		{"other", 9_400, 9_000, false},
	} {
		if got := leaseTestParams.Reclaimable(Row{Holder: tt.holder, Fence: tt.fence, Seen: tt.seen}, 10_000); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}

// Statements compare VERSION and FENCE, so a row at the end of either has no successor that a new holder could claim.
func TestLeaseParamsUsable_RefusesRowsThatCannotChange(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		name   string
		change func(*Row)
		want   bool
	}{
		{"a free slot", func(*Row) {}, true},
		{"in use", func(r *Row) { r.Holder, r.Seen = "other", 10_000 }, false},
		{"of another region", func(r *Row) { r.Region = 1 }, false},
		{"no number", func(r *Row) { r.ID = 0 }, false},
		{"a negative version", func(r *Row) { r.Version = -1 }, false},
		{"the first version", func(r *Row) { r.Version = 0 }, true},
		{"the last version", func(r *Row) { r.Version = maxVersion }, false},
		{"the last version but one", func(r *Row) { r.Version = maxVersion - 1 }, true},
		{"at the end of the layout", func(r *Row) { r.Fence = 20_000 }, true},
		{"beyond the end of the layout", func(r *Row) { r.Fence = 20_001 }, false},
	} {
		row := Row{ID: 7, Version: 3, Fence: 9_000}
		tt.change(&row)
		if got := leaseTestParams.Usable(row, max(10_000, row.Fence+21)); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
}

// Processes that start at once must not all try the same slot.
func TestInOrder_NearSlotsFirstAndTheOthersShuffled(t *testing.T) {
	t.Parallel()

	rows := []Row{{ID: 1}, {ID: 2, Near: 1}, {ID: 3, Near: 2}, {ID: 4}, {ID: 5, Near: 2}, {ID: 6}, {ID: 7}, {ID: 8}, {ID: 9}}
	reverse := func(n int, swap func(i, j int)) {
		for i := range n / 2 {
			swap(i, n-1-i)
		}
	}
	var got []int64
	for _, r := range InOrder(rows, reverse) {
		got = append(got, r.ID)
	}
	if want := []int64{5, 3, 2, 9, 8, 7, 6, 4}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestLooksAgain_OnlyIfOthersWereFaster(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		tried, refused, looks int
		want                  bool
	}{{0, 0, 1, false}, {3, 3, 1, true}, {3, 3, MaxRefused, true}, {3, 3, MaxRefused + 1, false}, {3, 2, 1, false}} {
		if got := LooksAgain(tt.tried, tt.refused, tt.looks); got != tt.want {
			t.Errorf("%+v: %t", tt, got)
		}
	}
}

// Ids of new worker ids begin a tick ago at the earliest, and not below the floor of a restored registry.
func TestStartOf_IsNotBelowTheFloor(t *testing.T) {
	t.Parallel()

	if a, b := StartOf(10_000, 0), StartOf(10_000, 10_500); a != 9_999 || b != 10_500 {
		t.Error(a, b)
	}
}

// A statement of somebody else has set FENCE back. What was granted stays granted, and the log names it.
func TestSlotAltered_IfTheFenceIsBelowTheGrant(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		name   string
		change func(*Slot)
		want   bool
	}{
		{"as granted", func(*Slot) {}, false},
		{"below", func(l *Slot) { l.Fence-- }, true},
		{"not held", func(l *Slot) { l.Fence--; l.Held = false }, false},
		{"in doubt", func(l *Slot) { l.Fence--; l.InDoubt = true }, false},
		{"an older row", func(l *Slot) { l.Fence--; l.Regressed = true }, false},
	} {
		l := leaseTestHeld()
		tt.change(&l)
		if got := l.Altered(); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
}

// A version that one holder used twice would let a statement that was delayed change a row that it does not know.
func TestSlotLeaseSend_NeverUsesAVersionTwice(t *testing.T) {
	t.Parallel()

	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var l Slot
		used := map[int64]bool{}
		for range 50 {
			var c Change
			now := 10_000 + random.Int64N(300)
			switch random.IntN(9) {
			case 0:
				c = l.ReclaimChange(leaseTestParams, Row{ID: random.Int64N(3), Version: random.Int64N(30), Fence: now - 50}, now, "me")
			case 1:
				c = l.AllocateChange(leaseTestParams, random.Int64N(3), now, "me")
			case 2:
				c = l.BeginChange(leaseTestParams, now, "me")
			case 3:
				c = l.RenewChange(leaseTestParams, now, "me")
			case 4:
				c = l.KeepAliveChange("me")
			case 5:
				c = l.ReleaseChange("me")
			case 6:
				l.Lose()
				continue
			case 7:
				l.NoteRow(Row{Holder: "me", Version: random.Int64N(30), Fence: now}, true, "me")
				continue
			case 8:
				l.NoteRow(Row{}, false, "me")
				continue
			}
			if used[c.NewVersion] || c.NewVersion <= c.Version {
				t.Fatalf("%+v after %v", c, used)
			}
			used[c.NewVersion] = true
			if random.IntN(2) == 0 {
				c.SetFirst(now, 0)
				l.NoteSession(c, 0)
			}
		}
	}
}

// A session whose first tick is too early repeats ticks of an earlier one, or of an attempt that was carried out.
func TestChangeSetFirst_IsAboveAllThatMayHaveBeenStamped(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		name       string
		c          Change
		now, floor int64
		first      int64
		ok         bool
	}{
		{"the clock", Change{Least: 9_000, NewFence: 10_100}, 10_000, 0, 10_000, true},
		{"the fence that was compared", Change{Least: 10_050, NewFence: 10_100}, 10_000, 0, 10_050, true},
		{"the floor", Change{Least: 9_000, NewFence: 10_100}, 10_000, 10_060, 10_061, true},
		{"the first tick of the layout", Change{NewFence: 100}, 0, 0, 1, true},
		{"exactly the last tick", Change{Least: 9_000, NewFence: 10_100}, 10_100, 0, 10_100, true},
		{"the transaction waited for too long", Change{Least: 9_000, NewFence: 10_100}, 10_101, 0, 10_101, false},
		{"the floor is too far ahead", Change{Least: 9_000, NewFence: 10_100}, 10_000, 10_100, 10_101, false},
		{"the floor is the largest number", Change{Least: 9_000, NewFence: 10_100}, 10_000, math.MaxInt64, 10_101, false},
	} {
		if ok := tt.c.SetFirst(tt.now, tt.floor); ok != tt.ok || tt.c.First != tt.first {
			t.Errorf("%s: first %d, %v", tt.name, tt.c.First, ok)
		}
	}
}

// A renewal may be acknowledged when the clock has passed its ticks, and when another session has begun. Then nothing
// of it may be used.
func TestSlotLeaseNoteRenewal_GrantsOnlyWhatContinues(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		name      string
		Change    func(*Slot)
		sent, now int64
		granted   int64
		grew      bool
		next      Step
	}{
		{"in time", nil, 10_050, 10_060, 10_150, true, StepReady},
		{"just in time", nil, 10_050, 10_101, 10_150, true, StepReady},
		{"late", nil, 10_050, 10_102, 10_100, false, StepBegin},
		{"nothing new", nil, 10_000, 10_000, 10_100, false, StepReady},
		{"after an unknown outcome", func(l *Slot) { l.Fence = 10_140 }, 10_050, 10_060, 10_100, false, StepBegin},
		{"with a floor ahead", func(l *Slot) { l.Floor = 10_120 }, 10_050, 10_060, 10_100, false, StepBegin},
	} {
		l := leaseTestHeld()
		if tt.Change != nil {
			tt.Change(&l)
		}
		c := l.RenewChange(leaseTestParams, tt.sent, "me")
		if grew := l.NoteRenewal(c, tt.now); grew != tt.grew || l.Granted != tt.granted {
			t.Errorf("%s: granted until %d, %v", tt.name, l.Granted, grew)
		}
		if l.AckedVersion != c.NewVersion || l.Version != c.NewVersion || l.Fence != c.NewFence {
			t.Errorf("%s: the next statement compares %+v, after %+v", tt.name, l, c)
		}
		if step := l.Next(leaseTestParams, tt.now); step != tt.next {
			t.Errorf("%s: then step %d, want %d", tt.name, step, tt.next)
		}
	}
}

// A keep-alive that moved the fence would grant ticks without a session, and one that granted any could repeat some.
func TestSlotLeaseKeepAliveChange_GrantsNothing(t *testing.T) {
	t.Parallel()

	for _, kind := range []string{"keep-alive", "release"} {
		l := leaseTestHeld()
		c := l.KeepAliveChange("me")
		if kind == "release" {
			c = l.ReleaseChange("me")
		}
		if c.NewFence != c.Fence || c.Version != 3 || c.Fence != 10_100 || c.Holder != "me" || (c.NewHolder == "") != (kind == "release") {
			t.Errorf("%s: %+v", kind, c)
		}
		l.NoteAck(c)
		if l.Granted != 10_100 || l.Start != 9_900 || l.AckedVersion != c.NewVersion {
			t.Errorf("%s: %+v", kind, l)
		}
	}
}

// The row that is read after an unknown outcome decides whether the slot is lost. It never grants anything.
func TestSlotLeaseNoteRow_NeverGrants(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		name  string
		row   Row
		found bool
		held  bool
		next  Step
	}{
		{"as it was", Row{Holder: "me", Version: 3, Fence: 10_100}, true, true, StepReady},
		{"the statement was executed", Row{Holder: "me", Version: 4, Fence: 10_149}, true, true, StepBegin},
		{"an older row", Row{Holder: "me", Version: 2, Fence: 10_000}, true, true, StepCheckCommits},
		{"somebody else's", Row{Holder: "other", Version: 9, Fence: 10_150}, true, false, StepAcquire},
		{"free", Row{Holder: "", Version: 4, Fence: 10_100}, true, false, StepAcquire},
		{"no row", Row{}, false, false, StepAcquire},
	} {
		l := leaseTestHeld()
		l.Doubt()
		held := l.NoteRow(tt.row, tt.found, "me")
		if held != tt.held || held && (l.Granted != 10_100 || l.Start != 9_900 || l.Fence != tt.row.Fence || l.Version != tt.row.Version) {
			t.Errorf("%s: %+v", tt.name, l)
		}
		if step := l.Next(leaseTestParams, 10_050); step != tt.next || l.Used != 3 {
			t.Errorf("%s: step %d, %+v", tt.name, step, l)
		}
	}
}

// A session begins after the ticks that were granted and after FENCE, whichever is later. Somebody may have lowered
// FENCE.
func TestSlotLease_ASessionBeginsAfterAllThatWasGranted(t *testing.T) {
	t.Parallel()
	for _, l := range []Slot{{Fence: 100, Granted: 200}, {Fence: 200, Granted: 100}} {
		c := l.BeginChange(leaseTestParams, 50, "me")
		if c.Least != 201 || c.Before != l.Granted {
			t.Errorf("fence %d, granted %d: the session begins at %d, after %d", l.Fence, l.Granted, c.Least, c.Before)
		}
	}
}

package workernode

import (
	"math"
	"math/rand/v2"
	"testing"
)

// leaseTestParams are numbers that are easy to reckon with: the clock of these tests is about 10,000.
var leaseTestParams = leaseParams{lead: 100, settle: 20, grace: 600, quiet: 700, last: 20_000}

// leaseTestHeld is a lease that was granted 9,901 to 10,100.
func leaseTestHeld() slotLease {
	return slotLease{held: true, id: 7, version: 3, fence: 10_100, ackedVersion: 3, start: 9_900, granted: 10_100, used: 3}
}

// The lease manager does what next returns. A wrong step either stops it, or grants ticks that it does not have.
func TestSlotLeaseNext_DecidesTheStep(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		name   string
		change func(*slotLease)
		now    int64
		want   step
	}{
		{"no slot", func(l *slotLease) { *l = slotLease{used: 9} }, 10_000, stepAcquire},
		{"held", func(*slotLease) {}, 10_000, stepReady},
		{"at the last tick", func(*slotLease) {}, 10_100, stepReady},
		{"one tick later: the next grant still continues", func(*slotLease) {}, 10_101, stepReady},
		{"two ticks later: a tick was passed", func(*slotLease) {}, 10_102, stepBegin},
		{"outcome unknown", func(l *slotLease) { l.doubt() }, 10_000, stepRead},
		{"outcome unknown and long ago", func(l *slotLease) { l.doubt() }, 15_000, stepRead},
		{"an older row was read", func(l *slotLease) { l.regressed = true }, 10_000, stepCheckCommits},
		{"the fence was moved by a statement of an unknown outcome", func(l *slotLease) { l.fence = 10_101 }, 10_050, stepBegin},
		{"the fence is behind", func(l *slotLease) { l.fence = 10_000 }, 10_050, stepBegin},
		{"a floor ahead", func(l *slotLease) { l.floor = 10_101 }, 10_001, stepBegin},
		{"a floor that was granted", func(l *slotLease) { l.floor = 10_100 }, 10_000, stepReady},
		{"the fence is just below the lead", func(l *slotLease) { l.fence = 10_149 }, 10_050, stepBegin},
		{"the fence is at the lead: nothing can be granted in this tick", func(l *slotLease) { l.fence = 10_150 }, 10_050, stepWait},
		{"the fence is ahead of the lead", func(l *slotLease) { l.fence = 10_151 }, 10_050, stepAbandon},
		{"the end of the layout, long before", func(l *slotLease) { l.fence = 20_000 }, 10_050, stepAbandon},
		{"the end of the layout, not granted", func(l *slotLease) { l.fence = 20_000 }, 19_950, stepExhausted},
		{"a fence beyond the layout", func(l *slotLease) { l.fence = 20_001 }, 19_950, stepAbandon},
		{"the end of the layout, granted", func(l *slotLease) { l.fence, l.granted = 20_000, 20_000 }, 19_999, stepReady},
		{"beyond the end of the layout", func(l *slotLease) { l.fence, l.granted = 20_000, 20_000 }, 20_002, stepExhausted},
	} {
		l := leaseTestHeld()
		tt.change(&l)
		if got := l.next(leaseTestParams, tt.now); got != tt.want {
			t.Errorf("%s: step %d, want %d", tt.name, got, tt.want)
		}
	}
}

// A fence that was lowered would let another process stamp ticks that were stamped.
func TestLeaseParamsFenceAt_NeverLowers(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct{ now, compared, want int64 }{
		{10_000, 0, 10_100},
		{10_000, 10_099, 10_100},
		{10_000, 10_101, 10_101}, // the clock was set back
		{19_950, 0, 20_000},      // the end of the layout
		{30_000, 0, 20_000},
		{30_000, 25_000, 25_000}, // set manually, beyond the layout
		{-5, -200, 95},
	} {
		if got := leaseTestParams.fenceAt(tt.now, tt.compared); got != tt.want {
			t.Errorf("fenceAt(%d, %d) = %d, want %d", tt.now, tt.compared, got, tt.want)
		}
	}
	for _, c := range changesOf(leaseTestHeld()) {
		if !c.insert && c.newFence < c.fence {
			t.Errorf("%+v lowers the fence", c)
		}
	}
}

// changesOf returns every change that a lease can send at different times.
func changesOf(l slotLease) (all []change) {
	for _, now := range []int64{0, 9_000, 10_100, 19_999, 30_000} {
		l := l
		r := slotRow{id: 8, holder: "other", version: 40, fence: 10_777, seen: 10_000}
		all = append(all, l.reclaimChange(leaseTestParams, r, now, "me"), l.allocateChange(leaseTestParams, 9, now, "me"), l.beginChange(leaseTestParams, now, "me"),
			l.renewChange(leaseTestParams, now, "me"), l.keepAliveChange("me"), l.releaseChange("me"))
	}
	return all
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
		if got := leaseTestParams.reclaimable(slotRow{holder: tt.holder, fence: tt.fence, seen: tt.seen}, 10_000); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}

// A version that one holder used twice would let a statement that was delayed change a row that it does not know.
func TestSlotLeaseSend_NeverUsesAVersionTwice(t *testing.T) {
	t.Parallel()

	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var l slotLease
		used := map[int64]bool{}
		for range 50 {
			var c change
			now := 10_000 + random.Int64N(300)
			switch random.IntN(9) {
			case 0:
				c = l.reclaimChange(leaseTestParams, slotRow{id: random.Int64N(3), version: random.Int64N(30), fence: now - 50}, now, "me")
			case 1:
				c = l.allocateChange(leaseTestParams, random.Int64N(3), now, "me")
			case 2:
				c = l.beginChange(leaseTestParams, now, "me")
			case 3:
				c = l.renewChange(leaseTestParams, now, "me")
			case 4:
				c = l.keepAliveChange("me")
			case 5:
				c = l.releaseChange("me")
			case 6:
				l.lose()
				continue
			case 7:
				l.noteRow(slotRow{holder: "me", version: random.Int64N(30), fence: now}, true, "me")
				continue
			case 8:
				l.noteRow(slotRow{}, false, "me")
				continue
			}
			if used[c.newVersion] || c.newVersion <= c.version {
				t.Fatalf("%+v after %v", c, used)
			}
			used[c.newVersion] = true
			if random.IntN(2) == 0 {
				c.setFirst(now, 0)
				l.noteSession(c, 0)
			}
		}
	}
}

// A session whose first tick is too early repeats ticks of an earlier one, or of an attempt that was carried out.
func TestChangeSetFirst_IsAboveAllThatMayHaveBeenStamped(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		name       string
		c          change
		now, floor int64
		first      int64
		ok         bool
	}{
		{"the clock", change{least: 9_000, newFence: 10_100}, 10_000, 0, 10_000, true},
		{"the fence that was compared", change{least: 10_050, newFence: 10_100}, 10_000, 0, 10_050, true},
		{"the floor", change{least: 9_000, newFence: 10_100}, 10_000, 10_060, 10_061, true},
		{"the first tick of the layout", change{newFence: 100}, 0, 0, 1, true},
		{"exactly the last tick", change{least: 9_000, newFence: 10_100}, 10_100, 0, 10_100, true},
		{"the transaction waited for too long", change{least: 9_000, newFence: 10_100}, 10_101, 0, 10_101, false},
		{"the floor is too far ahead", change{least: 9_000, newFence: 10_100}, 10_000, 10_100, 10_101, false},
		{"the floor is the largest number", change{least: 9_000, newFence: 10_100}, 10_000, math.MaxInt64, 10_101, false},
	} {
		if ok := tt.c.setFirst(tt.now, tt.floor); ok != tt.ok || tt.c.first != tt.first {
			t.Errorf("%s: first %d, %v", tt.name, tt.c.first, ok)
		}
	}
}

// reclaim compares the values that were read, and its session begins after the fence that it compared.
func TestSlotLeaseReclaimChange_BeginsAfterTheFence(t *testing.T) {
	t.Parallel()

	l := slotLease{used: 5}
	c := l.reclaimChange(leaseTestParams, slotRow{id: 4, holder: "old", version: 40, fence: 9_000, seen: 1}, 10_000, "me")
	want := change{slot: 4, holder: "old", version: 40, fence: 9_000, newHolder: "me", newVersion: 41, newFence: 10_100, before: 9_000, least: 9_001}
	if c != want {
		t.Errorf("%+v, want %+v", c, want)
	}
	c.setFirst(10_003, 0)
	l.noteSession(c, 17)
	if l.start != 10_002 || l.granted != 10_100 || l.ackedVersion != 41 || l.used != 41 || l.floor != 17 || !l.held || l.id != 4 || l.fence != 10_100 {
		t.Errorf("%+v", l)
	}
}

// A renewal that is acknowledged late granted ticks that the clock has passed, and perhaps another session begins in
// between: nothing of it may be used.
func TestSlotLeaseNoteRenewal_GrantsOnlyWhatContinues(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		name      string
		change    func(*slotLease)
		sent, now int64
		granted   int64
		grew      bool
		next      step
	}{
		{"in time", nil, 10_050, 10_060, 10_150, true, stepReady},
		{"just in time", nil, 10_050, 10_101, 10_150, true, stepReady},
		{"late", nil, 10_050, 10_102, 10_100, false, stepBegin},
		{"nothing new", nil, 10_000, 10_000, 10_100, false, stepReady},
		{"after an unknown outcome", func(l *slotLease) { l.fence = 10_140 }, 10_050, 10_060, 10_100, false, stepBegin},
		{"with a floor ahead", func(l *slotLease) { l.floor = 10_120 }, 10_050, 10_060, 10_100, false, stepBegin},
	} {
		l := leaseTestHeld()
		if tt.change != nil {
			tt.change(&l)
		}
		c := l.renewChange(leaseTestParams, tt.sent, "me")
		if grew := l.noteRenewal(c, tt.now); grew != tt.grew || l.granted != tt.granted {
			t.Errorf("%s: granted until %d, %v", tt.name, l.granted, grew)
		}
		if l.ackedVersion != c.newVersion || l.version != c.newVersion || l.fence != c.newFence {
			t.Errorf("%s: the next statement compares %+v, after %+v", tt.name, l, c)
		}
		if step := l.next(leaseTestParams, tt.now); step != tt.next {
			t.Errorf("%s: then step %d, want %d", tt.name, step, tt.next)
		}
	}
}

// A keep-alive that moved the fence would grant ticks without a session, and one that granted any could repeat some.
func TestSlotLeaseKeepAliveChange_GrantsNothing(t *testing.T) {
	t.Parallel()

	for _, kind := range []string{"keep-alive", "release"} {
		l := leaseTestHeld()
		c := l.keepAliveChange("me")
		if kind == "release" {
			c = l.releaseChange("me")
		}
		if c.newFence != c.fence || c.version != 3 || c.fence != 10_100 || c.holder != "me" || (c.newHolder == "") != (kind == "release") {
			t.Errorf("%s: %+v", kind, c)
		}
		l.noteAck(c)
		if l.granted != 10_100 || l.start != 9_900 || l.ackedVersion != c.newVersion {
			t.Errorf("%s: %+v", kind, l)
		}
	}
}

// The row that is read after an unknown outcome decides whether the slot is lost. It never grants anything.
func TestSlotLeaseNoteRow_NeverGrants(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		name  string
		row   slotRow
		found bool
		held  bool
		next  step
	}{
		{"as it was", slotRow{holder: "me", version: 3, fence: 10_100}, true, true, stepReady},
		{"the statement was executed", slotRow{holder: "me", version: 4, fence: 10_149}, true, true, stepBegin},
		{"an older row", slotRow{holder: "me", version: 2, fence: 10_000}, true, true, stepCheckCommits},
		{"somebody else's", slotRow{holder: "other", version: 9, fence: 10_150}, true, false, stepAcquire},
		{"free", slotRow{holder: "", version: 4, fence: 10_100}, true, false, stepAcquire},
		{"no row", slotRow{}, false, false, stepAcquire},
	} {
		l := leaseTestHeld()
		l.doubt()
		held := l.noteRow(tt.row, tt.found, "me")
		if held != tt.held || held && (l.granted != 10_100 || l.start != 9_900 || l.fence != tt.row.fence || l.version != tt.row.version) {
			t.Errorf("%s: %+v", tt.name, l)
		}
		if step := l.next(leaseTestParams, 10_050); step != tt.next || l.used != 3 {
			t.Errorf("%s: step %d, %+v", tt.name, step, l)
		}
	}
}

// A session begins after the ticks that were granted and after FENCE, whichever is later. Somebody may have lowered
// FENCE.
func TestSlotLease_ASessionBeginsAfterAllThatWasGranted(t *testing.T) {
	t.Parallel()
	for _, l := range []slotLease{{fence: 100, granted: 200}, {fence: 200, granted: 100}} {
		c := l.beginChange(leaseTestParams, 50, "me")
		if c.least != 201 || c.before != l.granted {
			t.Errorf("fence %d, granted %d: the session begins at %d, after %d", l.fence, l.granted, c.least, c.before)
		}
	}
}

package consumer

import (
	"math"
	"testing"
)

// seen returns a process that has read the row.
func seen(row Row) *Process {
	p := &Process{Me: "me", Size: 10}
	p.Seen(row, true)
	return p
}

// A process that stands by sends a statement a second, which reads the cursor, and fetches nothing.
func TestProcess_StandsByWithAStatementASecond(t *testing.T) {
	t.Parallel()
	row := Row{Holder: "other", Until: 5000, Now: 3000}
	p := seen(row)
	for range 3 {
		step := p.Next(row.Now, true)
		if step.Kind != Stand || step.At != row.Now+Interval {
			t.Fatalf("%+v", step)
		}
		row.Now, row.Until = step.At, row.Until+Interval
		if step := p.Next(row.Now, true); step.Kind != Read {
			t.Fatalf("%+v", step)
		}
		p.Seen(row, true)
	}
}

// With 3 s of validity and a look each second, another process takes over within 5 s.
func TestProcess_TakesOverAfterTheTerm(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		row  Row
		take bool
	}{
		{Row{Holder: "other", Until: 3001, Now: 3000}, false},
		{Row{Holder: "other", Until: 3000, Now: 3000}, true},
		{Row{Holder: "", Until: 9000, Now: 3000}, true},                       // it was given up
		{Row{Holder: "other", Until: 3000 + 2*validity + 1, Now: 3000}, true}, // the clock was set back
		{Row{Holder: "other", Until: math.MaxInt64, Now: 3000, Paused: true}, false},
	} {
		step := seen(c.row).Next(c.row.Now, true)
		if (step.Kind == Take) != c.take || c.take && !applies(step.Change, c.row) {
			t.Errorf("%+v: %+v", c.row, step)
		}
		later := step.Change.NewTerm > c.row.Until || step.Change.Me != "me"
		if c.take && (!later || step.Change.NewTerm < c.row.Now+validity || step.Change.NewLast != c.row.Last) {
			t.Errorf("%+v: %+v", c.row, step.Change)
		}
	}
}

// The pause doubles from a second to a minute.
func TestProcess_PausesLongerAfterEachFailure(t *testing.T) {
	t.Parallel()
	row := Row{Holder: "me", Until: validity}
	for _, pause := range []int64{1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000} {
		p := seen(row)
		p.Fetched(p.Next(row.Now, true), true, []int64{7, 8}, 8)
		handle := p.Next(row.Now, true)
		if handle.Kind != Handle || handle.Rows != map[bool]int{true: 2, false: 1}[row.Attempts == 0] {
			t.Fatalf("%+v", handle)
		}
		if handle.Rows == 2 { // the rows of a batch come again one by one
			p.Ended(handle, Failed)
			p.Seen(row, true)
			p.Fetched(p.Next(row.Now, true), true, []int64{7, 8}, 8)
			handle = p.Next(row.Now, true)
		}
		if handle.Rows != 1 {
			t.Fatalf("%+v", handle)
		}
		p.Ended(handle, Failed)
		fail := p.Next(row.Now, true)
		if fail.Kind != Fail || fail.Failed.RetryAt != row.Now+pause || fail.Failed.StuckID != 7 || fail.Failed.StuckSince != 0 {
			t.Fatalf("pause %d: %+v", pause, fail)
		}
		p.Wrote(fail, true)
		row = Row{Holder: "me", Attempts: fail.Failed.Attempts, RetryAt: fail.Failed.RetryAt, StuckID: 7, Now: fail.Failed.RetryAt - 1,
			Until: fail.Failed.RetryAt + validity}
		p.Seen(row, true)
		p.Fetched(p.Next(row.Now, true), true, []int64{7, 8}, 8)
		if step := p.Next(row.Now, true); step.Kind != Wait || step.At != row.RetryAt {
			t.Fatalf("%+v", step)
		}
		row.Now = row.RetryAt
	}
}

// The clock is an estimate. Formerly, if it was a millisecond earlier when the pause of a minute began, the row came again
// at once.
func TestProcess_PausesAlsoIfTheClockGoesBackALittle(t *testing.T) {
	t.Parallel()
	p := seen(Row{Holder: "me", Until: validity, Attempts: 8, RetryAt: longest + 20})
	p.Fetched(p.Next(0, true), true, []int64{7}, 7)
	if step := p.Next(0, true); step.Kind != Wait {
		t.Errorf("%+v", step)
	}
}

// A process that begins to work may have a handler that does not fail any more, so it tries at once.
func TestProcess_TriesAFailedRowAtOnceWhenItBeginsToWork(t *testing.T) {
	t.Parallel()
	p := seen(Row{Holder: "another", Until: -1, Attempts: 8, RetryAt: longest})
	take := p.Next(0, true)
	p.Wrote(take, true)
	p.Fetched(p.Next(0, true), true, []int64{7}, 7)
	handle := p.Next(0, true)
	if take.Kind != Take || handle.Kind != Handle {
		t.Fatalf("%+v, %+v", take, handle)
	}
	p.Ended(handle, Failed)
	fail := p.Next(1, true)
	p.Wrote(fail, true)
	row := p.Row()
	row.Attempts, row.RetryAt, row.Now = fail.Failed.Attempts, fail.Failed.RetryAt, 2
	p.Seen(row, true)
	p.Fetched(p.Next(2, true), true, []int64{7}, 7)
	if step := p.Next(2, true); fail.Kind != Fail || step.Kind != Wait {
		t.Errorf("%+v, %+v", fail, step)
	}
}

// A step that fails by no fault of the row is repeated at once, but not for ever.
func TestProcess_RepeatsConflictsAtOnce(t *testing.T) {
	t.Parallel()
	p := seen(Row{Holder: "me", Until: validity})
	for try := 1; ; try++ {
		p.Fetched(p.Next(0, true), true, []int64{7}, 7)
		handle := p.Next(0, true)
		if got := p.Ended(handle, Again); got == Failed && try == tries {
			break
		} else if got != Again {
			t.Fatalf("try %d: %v", try, got)
		}
		p.Seen(p.Row(), true)
	}
	if step := p.Next(0, true); step.Kind != Fail || step.Failed.Attempts != 1 {
		t.Errorf("%+v", step)
	}
}

// Formerly a number of failures that somebody has written by hand led to a panic, or to a next number too large for the
// column.
func TestProcess_CountsAttemptsFromAnyNumber(t *testing.T) {
	t.Parallel()
	for attempts, want := range map[int]Row{
		-1:          {Attempts: 1, RetryAt: 1000},
		math.MinInt: {Attempts: 1, RetryAt: 1000},
		1 << 30:     {Attempts: 1<<30 + 1, RetryAt: longest},
		math.MaxInt: {Attempts: 1<<30 + 1, RetryAt: longest},
	} {
		p := seen(Row{Holder: "me", Until: validity, Attempts: attempts})
		p.Fetched(p.Next(0, true), true, []int64{7}, 7)
		p.Ended(p.Next(0, true), Failed)
		want.StuckID = 7
		if step := p.Next(0, true); step.Kind != Fail || step.Failed != want {
			t.Errorf("after %d: %+v", attempts, step)
		}
	}
}

// The database's clock was set back by an hour. Formerly the processes took the cursor from each other for this hour,
// and some of them did not get to fetch in between.
func TestProcess_AClockThatWasSetBackMovesTheCursorOnce(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"me", "other", ""} {
		row := Row{Holder: first, Until: 3_600_000}
		processes := []*Process{{Me: "me", Size: 10}, {Me: "other", Size: 10}}
		taken := 0
		names := map[string]bool{first: true}
		for row.Now = range int64(20_000) {
			for _, p := range processes {
				step := p.Next(row.Now, false)
				if step.Kind == Read {
					p.Seen(row, true)
					step = p.Next(row.Now, false)
				}
				if step.Kind != Take || !applies(step.Change, row) {
					continue
				}
				if step.Change.Holder != step.Change.Me {
					if taken++; names[step.Change.Me] {
						t.Errorf("the terms of %q begin anew", step.Change.Me)
					}
					names[step.Change.Me] = true
				}
				row.Holder, row.Until = step.Change.Me, step.Change.NewTerm
				p.Wrote(step, true)
			}
		}
		if taken != 1 || row.Until > row.Now+validity {
			t.Errorf("from %q the cursor was taken %d times, and the term ends at %d", first, taken, row.Until)
		}
	}
}

// Terms of more than a thousand transactions a second end later and later, as after the clock was set back. A process
// that decides to begin a new term, but first ends what it is doing, is still the holder. Formerly it waited for its
// own term to end.
func TestProcess_KeepsItsNameUntilItHasTakenTheCursor(t *testing.T) {
	t.Parallel()
	p := seen(Row{Holder: "me", Until: 2*validity + 1})
	if step := p.Next(0, false); step.Kind != Take || step.Change.Me == "me" {
		t.Fatalf("%+v", step)
	}
	p.Fetched(p.Next(5, true), true, []int64{7}, 7)
	if step := p.Next(5, false); step.Kind != Handle || step.Change.Me != "me" {
		t.Errorf("%+v", step)
	}
}

// The answer to the statement with which a process takes the cursor by a new name is lost. Formerly it waited for its
// own term to end.
func TestProcess_KnowsItsNewNameAfterALostAnswer(t *testing.T) {
	t.Parallel()
	p := seen(Row{Holder: "me", Until: math.MaxInt64})
	take := p.Next(0, false)
	p.Wrote(take, false)
	p.Seen(Row{Holder: take.Change.Me, Until: take.Change.NewTerm}, true)
	if step := p.Next(0, true); !p.Holds() || step.Kind != Fetch || step.Change.Me != take.Change.Me {
		t.Errorf("%+v", step)
	}
}

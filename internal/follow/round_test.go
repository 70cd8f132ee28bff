package follow

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/workernode"
)

// A process that saw a mark finds out that the database has lost it, even if others have published higher marks since.
func TestStateLost_FindsTheRecoveredMark(t *testing.T) {
	t.Parallel()
	// state returns a state after these marks were published.
	state := func(marks ...int64) (s State) {
		for _, mark := range marks {
			if s.Published > 0 {
				s.Recent = remember(mark-s.Published, s.Recent)
			}
			s.Published = mark
		}
		return s
	}
	const tick, begin = 1 << 22, 1e18
	var many []int64
	for i := range int64(recentLength) {
		many = append(many, begin+i*50*tick)
	}
	for name, tt := range map[string]struct {
		state State
		seen  int64
		want  int64 // 0 if nothing was lost
	}{
		"first look":                 {state(50, 60, 70), 0, 0},
		"nothing new":                {state(50, 60, 70), 70, 0},
		"one round later":            {state(50, 60, 70, 80), 70, 0},
		"rounds later":               {state(60, 70, 80, 90, 100), 70, 0},
		"lost":                       {state(50, 60), 70, 60},
		"lost, and a higher round":   {state(50, 60, 80), 70, 60},
		"lost, and higher rounds":    {state(50, 60, 80, 90), 70, 60},
		"a new installation":         {State{Published: 0}, 70, 0},
		"after a new installation":   {State{Published: 80, Recent: remember(80, "")}, 70, 0},
		"too long ago":               {state(80, 85, 90), 70, 0},
		"many rounds later":          {state(many...), many[len(many)-300], 0},
		"lost, and many rounds":      {state(many...), many[len(many)-300] + 1, many[len(many)-300]},
		"too many rounds":            {state(many...), many[1], 0},
		"a mark after a reset":       {state(begin+1, begin+3, begin+50*tick, begin+60*tick), begin + 4, begin + 3},
		"a mark after a long time":   {state(10, 1<<62, 1<<62+1), 1 << 61, 10},
		"somebody's text":            {State{Published: 90, Recent: "80 70 "}, 80, 0},
		"somebody's text with signs": {State{Published: 90, Recent: "-Z!A"}, 80, 0},
	} {
		got, lost := tt.state.lost(tt.seen)
		if lost != (tt.want > 0) || lost && got != tt.want {
			t.Errorf("%s: %d, %t, want %d", name, got, lost, tt.want)
		}
	}
}

// Rounds cost statements, so they take place when a row waits for one, or some seconds after the last.
func TestDecide_WhenARoundIsDue(t *testing.T) {
	t.Parallel()
	layout := generator.DefaultLayout()
	now := layout.Epoch.Add(1000 * time.Hour)
	at := func(ago time.Duration) int64 {
		id, err := MarkAt(layout, now.Add(-ago))
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	const slack = time.Second
	for name, tt := range map[string]struct {
		change func(*State)
		closes bool
		takes  bool
	}{
		"no row":                       {func(s *State) {}, false, false},
		"a row that is too young":      {func(s *State) { s.Next = at(slack / 2) }, false, false},
		"a row that is due":            {func(s *State) { s.Next = at(slack + time.Millisecond) }, true, false},
		"an old mark":                  {func(s *State) { s.Published = at(slack + 2*idleRound) }, true, false},
		"another closer":               {func(s *State) { s.Next, s.Closer = at(2*slack), "other" }, false, false},
		"another closer, too long":     {func(s *State) { s.Next, s.Closer, s.Until = at(2*slack), "other", now }, true, true},
		"a turn that nearly ends":      {func(s *State) { s.Next, s.Until = at(2*slack), now.Add(time.Second) }, true, true},
		"a mark near the end of slack": {func(s *State) { s.Published, s.Next = at(-slack), at(-2*slack) }, false, false},
		"a turn of a clock that ran ahead": {func(s *State) {
			s.Next, s.Closer, s.Until = at(2*slack), "other", now.Add(turn+time.Millisecond)
		}, true, true},
	} {
		s := State{Published: at(slack + time.Second), Slack: slack, Trigger: "t", Found: "t", Closer: "me", Until: now.Add(turn), Now: now}
		tt.change(&s)
		plan, err := decide(s, layout, "me", now, now)
		if err != nil || (plan.Mark != 0) != tt.closes || plan.Take != tt.takes {
			t.Errorf("%s: %+v, %v", name, plan, err)
		}
		if plan.Mark > at(slack) {
			t.Errorf("%s: the mark is %v later than the slack allows", name, plan.Mark-at(slack))
		}
	}
	for _, apart := range []time.Duration{-time.Hour, -1100 * time.Millisecond, 1100 * time.Millisecond, time.Hour} {
		s := State{Slack: slack, Trigger: "t", Found: "t", Now: now}
		if plan, err := decide(s, layout, "me", now.Add(apart), now.Add(apart)); err == nil || plan.Mark != 0 {
			t.Errorf("clocks that differ by %v: %+v, %v", apart, plan, err)
		}
	}
}

// If the database's clock was set back, or somebody has written a wrong mark, followers would wait without an error, or
// take every row for complete.
func TestDecide_ReportsAMarkInTheFuture(t *testing.T) {
	t.Parallel()
	layout := generator.DefaultLayout()
	now := layout.Epoch.Add(1000 * time.Hour)
	hour, err := MarkAt(layout, now.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	for _, published := range []int64{hour, math.MaxInt64} {
		s := State{Published: published, Slack: time.Second, Trigger: "t", Found: "t", Closer: "other", Until: now.Add(turn), Now: now}
		// A clock that was set back looks the same, but the table then takes rows. So the text must not say that it
		// refuses all.
		plan, err := decide(s, layout, "me", now, now)
		if !errors.Is(err, workernode.ErrClock) || plan.Mark != 0 || !strings.Contains(err.Error(), "refuses ids below it") {
			t.Errorf("%d: %+v, %v", published, plan, err)
		}
	}
}

// A row is seen soon after it is due, and idle tables cost little.
func TestStatePause_WaitsForTheNextRow(t *testing.T) {
	t.Parallel()
	layout := generator.DefaultLayout()
	now := layout.Epoch.Add(1000 * time.Hour)
	for name, tt := range map[string]struct {
		slack, age time.Duration // of the next row; 0 for none
		busy       bool
		want       time.Duration
	}{
		"idle":               {time.Second, 0, false, time.Second},
		"no row":             {time.Second, 0, true, 50 * time.Millisecond},
		"no row, 200 ms":     {200 * time.Millisecond, 0, true, 20 * time.Millisecond},
		"no row, small":      {50 * time.Millisecond, 0, true, 10 * time.Millisecond},
		"a young row":        {time.Second, 10 * time.Millisecond, true, 50 * time.Millisecond},
		"a row due in 40 ms": {time.Second, 961 * time.Millisecond, true, 40 * time.Millisecond},
		"a row that is due":  {time.Second, 2 * time.Second, true, 50 * time.Millisecond},
	} {
		s := State{Slack: tt.slack, Now: now}
		if tt.age > 0 {
			s.Next, _ = MarkAt(layout, now.Add(-tt.age))
		}
		if got := s.Pause(layout, tt.busy); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

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

// A process that saw a mark finds out that the database has lost it, even if others have published higher ones since.
func TestStateLost_FindsTheRecoveredMark(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("1000000000000000000 ", 50)
	for name, tt := range map[string]struct {
		state State
		seen  int64
		want  int64 // 0 if nothing was lost
	}{
		"first look":                  {State{Published: 70, Recent: "60 50"}, 0, 0},
		"nothing new":                 {State{Published: 70, Recent: "60 50"}, 70, 0},
		"one round later":             {State{Published: 80, Recent: "70 60 50"}, 70, 0},
		"rounds later":                {State{Published: 100, Recent: "90 80 70 60"}, 70, 0},
		"lost":                        {State{Published: 60, Recent: "50"}, 70, 60},
		"lost, and a higher round":    {State{Published: 80, Recent: "60 50"}, 70, 60},
		"lost, and higher rounds":     {State{Published: 90, Recent: "80 60 50"}, 70, 60},
		"a new installation":          {State{Published: 0}, 70, 0},
		"after a new installation":    {State{Published: 80, Recent: "0"}, 70, 0},
		"too long ago":                {State{Published: 90, Recent: "85 80"}, 70, 0},
		"the last mark is cut off":    {State{Published: 2e18, Recent: long[:recentLength-2] + "10"}, 15e17, 1e18},
		"only the cut one is lower":   {State{Published: 2e18, Recent: strings.Repeat("1900000000000000000 ", 49) + "1500000000000000000 "}, 16e17, 0},
		"a text that is not a number": {State{Published: 90, Recent: "x 80"}, 80, 0},
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
		plan, err := Decide(s, layout, "me", now, now)
		if err != nil || (plan.Mark != 0) != tt.closes || plan.Take != tt.takes {
			t.Errorf("%s: %+v, %v", name, plan, err)
		}
		if plan.Mark > at(slack) {
			t.Errorf("%s: the mark is %v later than the slack allows", name, plan.Mark-at(slack))
		}
	}
	for _, apart := range []time.Duration{-time.Hour, -1100 * time.Millisecond, 1100 * time.Millisecond, time.Hour} {
		s := State{Slack: slack, Trigger: "t", Found: "t", Now: now}
		if plan, err := Decide(s, layout, "me", now.Add(apart), now.Add(apart)); err == nil || plan.Mark != 0 {
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
		plan, err := Decide(s, layout, "me", now, now)
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

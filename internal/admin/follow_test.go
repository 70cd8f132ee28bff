// wing: follow

package admin

import (
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/internal/follow"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// A finding tells why a mark stands still: no process closes, or an old transaction is open.
func TestFollowed_FindsWhoStopsTheMark(t *testing.T) {
	t.Parallel()
	mark := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	now := mark.Add(2 * time.Minute)
	late := Followed{
		Table: "events", Slack: 1000, Mark: 1, MarkTime: mark, Behind: 120_000, Closer: "c", Until: now.Add(-time.Hour),
		Trigger: follow.TriggerInstalled,
	}
	with := func(change func(*Followed)) Followed {
		f := late
		change(&f)
		return f
	}
	closing := func(h ...follow.Holder) Followed {
		return with(func(f *Followed) { f.Closing, f.Holders = true, h })
	}
	old := follow.Holder{Session: 7, User: "shop", Client: "10.0.0.1", State: "Sleep", Since: now.Add(-90 * time.Second)}
	for name, tt := range map[string]struct {
		table Followed
		code  string
		words []string
	}{
		"nobody closes": {late, CodeFollowStopped, []string{"events is 2m0s behind", "no process has raised it since 2026-11-22 11:02:00.000"}},
		"the turn was given back": {with(func(f *Followed) { f.Until = time.Time{} }), CodeFollowStopped,
			[]string{"events is 2m0s behind", "no process follows it now", "Start a follower", "uid follow consumers resume"}},
		"an old transaction": {closing(old), CodeFollowStopped,
			[]string{"waits for session 7 of shop at 10.0.0.1, Sleep, a transaction since 2026-11-22 12:00:30.000", "should be short"}},
		"several":              {closing(old, old, old), CodeFollowStopped, []string{"12:00:30.000 and 2 more"}},
		"of an unknown age":    {closing(follow.Holder{Prepared: "p"}), CodeFollowStopped, []string{`waits for the prepared transaction "p", a transaction of an unknown age`}},
		"a young transaction":  {closing(follow.Holder{Session: 7, Since: now.Add(-time.Second)}), "", nil},
		"the closer has begun": {closing(), "", nil},
		"not late":             {with(func(f *Followed) { f.Behind = 60_900 }), "", nil},
		"a long slack":         {with(func(f *Followed) { f.Slack = 100_000 }), "", nil},
		"no round yet":         {Followed{Table: "events", Trigger: follow.TriggerInstalled}, "", nil},
		"replaced": {with(func(f *Followed) { f.Behind, f.Trigger = 1000, follow.TriggerReplaced }), CodeFollowTrigger,
			[]string{"not the one that was installed"}},
		"refused": {with(func(f *Followed) { f.Behind, f.Refused = 1000, "the server is a node of Galera" }), CodeFollowRefused,
			[]string{"events is followed, but the server is a node"}},
		"broken": {with(func(f *Followed) { f.Behind, f.Broken = 1000, "its trigger cannot run" }), CodeFollowBroken,
			[]string{"refuses all new rows: its trigger cannot run", "uid follow enable"}},
		"gone":          {with(func(f *Followed) { f.Behind, f.Trigger = 1000, follow.TriggerGone }), CodeFollowTrigger, []string{"is gone"}},
		"in the future": {with(func(f *Followed) { f.Behind, f.Ahead = -60_000, 60_000 }), CodeFollowAhead, []string{"1m0s ahead"}},
	} {
		found := tt.table.findings()
		if tt.code == "" {
			if len(found) > 0 {
				t.Errorf("%s: %+v", name, found)
			}
			continue
		}
		if len(found) != 1 || found[0].Code != tt.code || found[0].Advice == "" {
			t.Errorf("%s: %+v", name, found)
			continue
		}
		testkit.SaysAll(t, found[0].Text+found[0].Advice, tt.words...)
	}
}

// In a region followers leave out the rows that replication inserts. All else is still a finding.
func TestFollowed_ReplicationIsNoFaultInARegion(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		regional bool
		refused  error
		want     bool
	}{
		{false, follow.ErrReplicated, true}, {true, follow.ErrReplicated, false}, {true, follow.ErrRefused, true}, {false, nil, false},
	} {
		f := followedOf("", tt.regional, follow.Status{Table: "events", Trigger: follow.TriggerInstalled, Refused: tt.refused})[0]
		if got := len(f.Findings) == 1; got != tt.want || got != (f.Refused != "") {
			t.Errorf("%+v: %+v", tt, f)
		}
	}
}

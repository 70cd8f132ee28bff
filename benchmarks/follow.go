// wing: follow

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// Followed are the figures of a followed table on one engine.
type Followed struct {
	Engine string
	Disk   bool `json:",omitempty"` // the data is on a disk instead of in memory, and only the costs were measured
	Delays []Delay
	Costs  []Cost
	Waits  []Wait
	Idle   float64 // statements that a follower sends in a second while no rows come
}

// The goals for followed tables.
const (
	goalDelay  = 100 // ms from a commit until the follower has the row, beyond a slack of at least 200 ms
	goalInsert = 50  // ms of an INSERT while a follower waits for another transaction
	goalIdle   = 6   // statements a second
)

// measureFollow measures all engines and SQLite with the data in memory, and then only the costs on a disk.
func measureFollow(ctx context.Context, l *Lab) (all []Followed, err error) {
	options := func(string) []string { return nil }
	with := *l
	if !slices.Contains(l.Engines, "sqlite") {
		with.Engines = append(slices.Clone(l.Engines), "sqlite")
	}
	err = with.eachServer(ctx, "follow", "", options, func(s *Server) error {
		f := Followed{Engine: s.Title}
		err := f.measure(ctx, l, s)
		all = append(all, f)
		return err
	})
	if err != nil || l.Running {
		return all, err
	}
	return all, l.eachServer(ctx, "follow", os.TempDir(), options, func(s *Server) error {
		f := Followed{Engine: s.Title, Disk: true}
		err := s.with(func(_ *testkit.Database, db *gorm.DB) error { return f.measureCosts(ctx, l, db) })
		all = append(all, f)
		return err
	})
}

// measure measures everything. Meanwhile a follower in another database gets no rows, so it is idle at the end.
func (f *Followed) measure(ctx context.Context, l *Lab, s *Server) error {
	return s.with(func(quiet *testkit.Database, _ *gorm.DB) error {
		idle, err := newIdler(ctx, quiet)
		if err != nil {
			return err
		}
		defer idle.stop()
		for _, writers := range l.Writing {
			l.Say("follow: %s, delays, %s", s.Title, countWriters(writers))
			err = errors.Join(err, s.with(func(_ *testkit.Database, db *gorm.DB) error {
				return f.measureDelays(ctx, l, db, writers)
			}))
		}
		l.Say("follow: %s, costs", s.Title)
		err = errors.Join(err, s.with(func(_ *testkit.Database, db *gorm.DB) error { return f.measureCosts(ctx, l, db) }))
		if s.Name != "sqlite" { // SQLite's writers always wait for each other
			l.Say("follow: %s, waiting", s.Title)
			err = errors.Join(err, s.with(func(_ *testkit.Database, db *gorm.DB) error { return f.measureWaits(ctx, l, s, db) }))
		}
		if err != nil {
			return err
		}
		l.Say("follow: %s, idle", s.Title)
		f.Idle, err = idle.rate(ctx, l.Idle)
		return err
	})
}

func followTables(all []Followed) string {
	var parts []string
	for _, t := range []table{delayTable(all), costTable(all), waitTable(all)} {
		parts = append(parts, t.String())
	}
	return strings.Join(parts, "\n")
}

func delayTable(all []Followed) table {
	t := table{{"from commit to seen, ms: median / 99 %"}}
	for _, f := range all {
		for _, readers := range groups(f.Delays, func(d Delay) int { return d.Writers }) {
			row := []string{fmt.Sprintf("%s, %s", f.Engine, countWriters(readers[0].Writers))}
			for _, d := range readers {
				if len(t) == 1 {
					t[0] = append(t[0], d.Kind)
				}
				row = append(row, d.String())
			}
			t.add(row...)
		}
	}
	return t
}

func countWriters(n int) string {
	if n == 1 {
		return "1 writer"
	}
	return fmt.Sprint(n, " writers")
}

func costTable(all []Followed) table {
	t := table{{"times as long with the trigger"}, {"goal"}}
	for _, c := range costs {
		t[0] = append(t[0], c.name)
		goal := "–"
		if c.goal > 0 {
			goal = number(c.goal)
		}
		t[1] = append(t[1], goal)
	}
	for _, f := range all {
		name := f.Engine
		if f.Disk {
			name += ", on a disk"
		}
		t.add(name)
		for _, c := range f.Costs {
			t[len(t)-1] = append(t[len(t)-1], c.Ratio.String())
		}
	}
	return t
}

func waitTable(all []Followed) table {
	t := table{{"longest INSERT of others, ms (rows seen after, ms)"}, {"goal"}}
	for _, w := range waits {
		t[0], t[1] = append(t[0], w.name), append(t[1], number(goalInsert))
	}
	t[0], t[1] = append(t[0], "statements/s when idle"), append(t[1], number(goalIdle))
	for _, f := range all {
		if f.Disk {
			continue
		}
		row := []string{f.Engine}
		for i := range waits {
			cell := "–"
			if i < len(f.Waits) {
				cell = fmt.Sprintf("%s (%s)", number(f.Waits[i].Longest), number(f.Waits[i].Seen))
			}
			row = append(row, cell)
		}
		t.add(append(row, number(f.Idle))...)
	}
	return t
}

func drawNothing[T any]([]T, string) error { return nil }

// An idler follows a table without rows.
type idler struct {
	wire  *testkit.Wire
	begun time.Time
	stop  func()
}

func newIdler(ctx context.Context, d *testkit.Database) (*idler, error) {
	i := &idler{wire: &testkit.Wire{}}
	db, err := i.wire.Connect(d.Engine, d.DSN())
	if err != nil {
		return nil, err
	}
	s := newFollowedStream[slack200]()
	p, err := followedIn(ctx, db, s)
	if err != nil {
		return nil, errors.Join(err, testkit.Close(db))
	}
	end := s.start(ctx, db)
	i.begun = time.Now()
	i.stop = func() {
		_ = end()
		_ = closePlugin(p)
		_ = testkit.Close(db)
	}
	return i, nil
}

// rate returns how many statements the follower sends in a second, once no row has come for the time quiet.
func (i *idler) rate(ctx context.Context, quiet time.Duration) (float64, error) {
	if err := sleep(ctx, time.Until(i.begun.Add(quiet))); err != nil {
		return 0, err
	}
	i.wire.Take()
	begun := time.Now()
	err := sleep(ctx, min(quiet/6+time.Second/5, 10*time.Second)) // an idle follower raises the mark every 5 s
	return float64(len(i.wire.Take())) / time.Since(begun).Seconds(), err
}

// wing: follow

package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/uidplugin/uidplugin/follow"
	"github.com/uidplugin/uidplugin/generator"
	"golang.org/x/sync/errgroup"
	"gorm.io/gorm"
)

// Wait is how long INSERTs of other transactions take while one transaction holds up a follower.
type Wait struct {
	While   string  // what holds up the follower; see waits
	Inserts int     // number of these INSERTs
	Longest float64 // ms; the longest INSERT
	Over    int     // INSERTs that took longer than goalInsert
	Seen    float64 // ms; the longest time from a commit until the follower had the row
}

// waits has the transactions that hold up a follower. The first entry has none, for comparison.
var waits = []struct {
	name string
	hold func(ctx context.Context, s *Server, db *gorm.DB, stream *stream, length time.Duration) error
}{
	{"nothing else", func(ctx context.Context, _ *Server, _ *gorm.DB, _ *stream, length time.Duration) error {
		return sleep(ctx, length)
	}},
	{"an open transaction", holdOpen},
	{"a long INSERT ... SELECT", holdBusy},
}

// holdOpen inserts a row in a transaction that stays open.
func holdOpen(ctx context.Context, _ *Server, db *gorm.DB, stream *stream, length time.Duration) error {
	return db.Transaction(func(tx *gorm.DB) error {
		if _, err := stream.create(tx); err != nil {
			return err
		}
		return sleep(ctx, length)
	})
}

// holdBusy inserts rows by one long statement. Its ids are in the future, because the trigger refuses old ids.
func holdBusy(_ context.Context, s *Server, db *gorm.DB, stream *stream, length time.Duration) error {
	layout := generator.DefaultLayout()
	future := generator.Parts{Time: time.Now().Add(length + 10*time.Second), WorkerID: layout.MaxWorkerID() / 2}
	id, err := layout.Compose(future)
	if err != nil {
		return err
	}
	pause := "SLEEP(?)"
	if s.Name == "postgres" {
		pause = "pg_sleep(?)::text"
	}
	return db.Exec("INSERT INTO followed_slack200 (id, text)"+
		" SELECT ? + n, CONCAT('', "+pause+") FROM numbers WHERE n <= ?", id, length.Seconds()/waitRows, waitRows).Error
}

// waitRows is the number of rows of a long INSERT ... SELECT.
const waitRows = 1000

// measureWaits inserts rows while each entry of waits holds up the follower of the table.
func (f *Followed) measureWaits(ctx context.Context, l *Lab, s *Server, db *gorm.DB) (err error) {
	if err := fillNumbers(db, waitRows); err != nil {
		return err
	}
	stream := newFollowedStream[slack200]()
	p, err := followedIn(ctx, db, stream)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closePlugin(p)) }()
	end := stream.start(ctx, db)
	defer func() { err = errors.Join(err, end()) }()
	for _, w := range waits {
		wait := Wait{While: w.name}
		stream.forget()
		hold := func() error { return w.hold(ctx, s, db, stream, l.FollowHeld) }
		if err := errors.Join(wait.measure(ctx, db, stream, hold), stream.drain(ctx)); err != nil {
			return err
		}
		wait.Seen = stream.delay(0).Greatest
		f.Waits = append(f.Waits, wait)
	}
	return nil
}

// measure inserts rows until hold returns.
func (w *Wait) measure(ctx context.Context, db *gorm.DB, s *stream, hold func() error) error {
	group, ctx := errgroup.WithContext(ctx)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex
	auto := db.Session(&gorm.Session{SkipDefaultTransaction: true})
	for range 4 {
		group.Go(func() error {
			for ctx.Err() == nil {
				begun := time.Now()
				key, err := s.create(auto)
				now := time.Now()
				took := float64(now.Sub(begun).Microseconds()) / 1000
				switch {
				case err == nil:
					s.mu.Lock()
					s.committed[key] = now
					s.mu.Unlock()
				case !errors.Is(err, follow.ErrTooLate):
					return err
				}
				mu.Lock()
				w.Inserts++
				w.Longest = max(w.Longest, took)
				if took > goalInsert {
					w.Over++
				}
				mu.Unlock()
				_ = sleep(ctx, rand.N(10*time.Millisecond))
			}
			return nil
		})
	}
	group.Go(func() error { defer cancel(); return hold() })
	return group.Wait()
}

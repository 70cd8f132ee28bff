// wing: follow

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/follow"
	"golang.org/x/sync/errgroup"
	"gorm.io/gorm"
)

// Delay is the time from a commit until a reader has the row.
type Delay struct {
	Kind     string // slack, or how the reader polls
	Writers  int
	Rows     int
	Missed   int
	Refused  int           // transactions that came too late, and were repeated
	Slack    time.Duration `json:",omitempty"`
	Median   float64       // ms
	Ninety9  float64       // ms; 99 % of the delays are shorter
	Greatest float64       // ms
}

// String returns a cell of the table.
func (d Delay) String() string {
	text := fmt.Sprintf("%s / %s", number(d.Median), number(d.Ninety9))
	if d.Slack >= 200*time.Millisecond && d.Median > float64(d.Slack.Milliseconds()+goalDelay) {
		text += ", goal missed"
	}
	if d.Missed > 0 {
		text += ", misses " + percent(d.Missed, d.Rows)
	}
	if d.Refused > 0 {
		text += fmt.Sprintf(", %d refused", d.Refused)
	}
	return text
}

// A followedRow is a row of the table that A names. K is the type of its key.
type followedRow[K, A any] struct {
	ID   K `gorm:"primaryKey"`
	Text string
}

// TableName implements GORM's Tabler.
func (followedRow[K, A]) TableName() string { return "followed_" + reflect.TypeFor[A]().Name() }

type (
	slack50  struct{}
	slack200 struct{}
	slack1s  struct{}
	polled   struct{}
)

var slacks = map[string]time.Duration{
	"slack50": 50 * time.Millisecond, "slack200": 200 * time.Millisecond, "slack1s": time.Second,
}

// A stream is a table with its reader. It notes when rows were committed and seen.
type stream struct {
	kind   string
	slack  time.Duration
	model  any
	create func(tx *gorm.DB) (key string, err error)
	read   func(ctx context.Context, db *gorm.DB, note func(key string)) error

	mu              sync.Mutex
	committed, seen map[string]time.Time
	refused         int
}

// newFollowedStream returns a stream whose reader is follow.Rows.
func newFollowedStream[A any]() *stream {
	type row = followedRow[uidplugin.ID, A]
	slack := slacks[reflect.TypeFor[A]().Name()]
	s := &stream{kind: fmt.Sprintf("slack %v", slack), slack: slack, model: &row{}}
	s.create = func(tx *gorm.DB) (string, error) {
		r := row{Text: "follow"}
		err := tx.Create(&r).Error
		return r.ID.String(), err
	}
	s.read = func(ctx context.Context, db *gorm.DB, note func(string)) error {
		for r, err := range follow.Rows[row](ctx, db, 0) {
			if ctx.Err() != nil {
				break
			}
			if err != nil {
				return err
			}
			note(r.ID.String())
		}
		return nil
	}
	return s
}

const pollPause = 10 * time.Millisecond

// newPolledStream returns a stream whose reader polls for keys above the last one.
func newPolledStream() *stream {
	type row = followedRow[textKey, polled]
	s := &stream{kind: "UUIDv7, `id > last`", model: &row{}}
	s.create = func(tx *gorm.DB) (string, error) {
		r := row{ID: textKey(uuid.Must(uuid.NewV7()).String()), Text: "follow"}
		return string(r.ID), tx.Create(&r).Error
	}
	s.read = func(ctx context.Context, db *gorm.DB, note func(string)) error {
		for last := textKey(""); ctx.Err() == nil; _ = sleep(ctx, pollPause) {
			var rows []row
			if err := db.Where("id > ?", last).Order("id").Find(&rows).Error; err != nil {
				return err
			}
			for _, r := range rows {
				last = r.ID
				note(string(r.ID))
			}
		}
		return nil
	}
	return s
}

func (s *stream) start(ctx context.Context, db *gorm.DB) (end func() error) {
	ctx, cancel := context.WithCancel(ctx)
	s.forget()
	var reader errgroup.Group
	reader.Go(func() error {
		return s.read(ctx, db, func(key string) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.seen[key] = time.Now()
		})
	})
	return func() error { cancel(); return reader.Wait() }
}

func (s *stream) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.committed, s.seen, s.refused = map[string]time.Time{}, map[string]time.Time{}, 0
}

// transact creates rows in a transaction, and repeats the transaction if it comes too late.
func (s *stream) transact(db *gorm.DB, rows int) error {
	for {
		var keys []string
		err := db.Transaction(func(tx *gorm.DB) error {
			for range rows {
				key, err := s.create(tx)
				if err != nil {
					return err
				}
				keys = append(keys, key)
			}
			return nil
		})
		now := time.Now()
		s.mu.Lock()
		if errors.Is(err, follow.ErrTooLate) {
			s.refused++
		} else if err == nil {
			for _, key := range keys {
				s.committed[key] = now
			}
		}
		s.mu.Unlock()
		if !errors.Is(err, follow.ErrTooLate) {
			return err
		}
	}
}

// drain waits until the reader has all rows. It does not wait for a poller, because a poller misses rows.
func (s *stream) drain(ctx context.Context) error {
	for end := time.Now().Add(s.slack + 10*time.Second); ; {
		if s.delay(0).Missed == 0 || time.Now().After(end) || s.slack == 0 {
			return ctx.Err()
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

func (s *stream) delay(writers int) Delay {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := Delay{Kind: s.kind, Writers: writers, Rows: len(s.committed), Refused: s.refused, Slack: s.slack}
	var delays []float64
	for key, at := range s.committed {
		if seen, ok := s.seen[key]; ok {
			delays = append(delays, float64(seen.Sub(at).Microseconds())/1000)
		} else {
			d.Missed++
		}
	}
	d.Median, d.Ninety9, d.Greatest = quantile(delays, 0.5), quantile(delays, 0.99), quantile(delays, 1)
	return d
}

// followedIn creates the tables of streams, and calls follow.Enable for those with a slack.
func followedIn(ctx context.Context, db *gorm.DB, streams ...*stream) (*uidplugin.Plugin, error) {
	var models []any
	for _, s := range streams {
		if err := db.AutoMigrate(s.model); err != nil {
			return nil, err
		}
		if s.slack > 0 {
			models = append(models, s.model)
		}
	}
	p, err := use(db, uidplugin.WithModels(models...))
	for _, s := range streams {
		if s.slack > 0 && err == nil {
			err = follow.Enable(ctx, db, s.model, follow.WithSlack(s.slack))
		}
	}
	return p, err
}

// measureDelays lets each writer insert into all tables, so that the machine is equally busy for all readers.
func (f *Followed) measureDelays(ctx context.Context, l *Lab, db *gorm.DB, writers int) (err error) {
	streams := []*stream{
		newFollowedStream[slack50](), newFollowedStream[slack200](), newFollowedStream[slack1s](), newPolledStream(),
	}
	p, err := followedIn(ctx, db, streams...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closePlugin(p)) }()
	for _, s := range streams {
		end := s.start(ctx, db)
		defer func() { err = errors.Join(err, end()) }()
	}
	group, writing := errgroup.WithContext(ctx)
	until := time.Now().Add(l.FollowFor)
	for range writers {
		group.Go(func() error {
			for time.Now().Before(until) && writing.Err() == nil {
				for _, s := range streams {
					if err := s.transact(db, 2); err != nil {
						return fmt.Errorf("%s: %w", s.kind, err)
					}
				}
				_ = sleep(writing, rand.N(20*time.Millisecond))
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for _, s := range streams {
		if err := s.drain(ctx); err != nil {
			return err
		}
		f.Delays = append(f.Delays, s.delay(writers))
	}
	return nil
}

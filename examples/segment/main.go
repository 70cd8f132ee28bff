// Segment shows ids that are fetched from the database a range at a time, as Meituan's
// Leaf does: which ranges two processes get, what is missing after a restart, and how
// ranges grow. It needs nothing but Go, as the database is an SQLite file:
//
//	go run ./examples/segment
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/glebarez/sqlite"
	"github.com/uidplugin/uidplugin/segment"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

func main() {
	slog.SetLogLoggerLevel(slog.LevelWarn) // not that a tag was inserted: it is shown below
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "segment:", err)
		os.Exit(1)
	}
}

// run returns instead of exiting, so that what is open gets closed.
func run(ctx context.Context, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "uidplugin-segment")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	db, err := gorm.Open(sqlite.Open(filepath.Join(dir, "segment.db")+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)"),
		&gorm.Config{Logger: logger.Discard}) // errors are returned as well
	if err != nil {
		return err
	}
	pool, err := db.DB()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pool.Close()) }()
	s := show{ctx: ctx, out: out, db: db}
	for _, part := range []func() error{s.start, s.processes, s.restart, s.growth} {
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}

// A show shows one thing after the other.
type show struct {
	ctx context.Context
	out io.Writer
	db  *gorm.DB
}

func (s *show) printf(format string, args ...any) { fmt.Fprintf(s.out, format, args...) }

// ids takes n ids and returns the first and the last.
func (s *show) ids(g *segment.Generator, n int) (first, last int64, err error) {
	ids := make([]int64, n)
	err = g.Fill(s.ctx, ids)
	return ids[0], ids[n-1], err
}

// fetched waits until a generator has fetched a number of ranges. The generator fetches in the background, so only this
// example has to wait.
func (s *show) fetched(g *segment.Generator, ranges int64) (segment.State, error) {
	for g.State().Ranges < ranges {
		select {
		case <-s.ctx.Done():
			return segment.State{}, s.ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
	return g.State(), nil
}

func (s *show) row() error {
	var maxID, step int64
	err := s.db.Raw("SELECT max_id, step FROM leaf_alloc WHERE biz_tag = 'orders'").Row().Scan(&maxID, &step)
	s.printf("  leaf_alloc says: max_id %d, step %d\n", maxID, step)
	return err
}

func (s *show) start() error {
	s.printf("1. A table that has rows up to id 70000 already\n\n")
	g, err := segment.Open(s.ctx, s.db, "orders", segment.Config{Start: 70_001, Step: 100})
	if err != nil {
		return err
	}
	defer g.Close()
	for _, n := range []int{1, 3, 250} { // the last of them is larger than a range
		first, last, err := s.ids(g, n)
		if err != nil {
			return err
		}
		s.printf("  %3d ids: %d to %d\n", n, first, last)
	}
	return s.row()
}

func (s *show) processes() error {
	s.printf("\n2. Two processes have ranges of their own, so ids of each ascend, and those of both do not\n\n")
	var both [2]*segment.Generator
	for i := range both {
		g, err := segment.Open(s.ctx, s.db, "orders", segment.Config{MaxStep: 100})
		if err != nil {
			return err
		}
		defer g.Close()
		both[i] = g
	}
	for range 3 {
		for i, g := range both {
			first, last, err := s.ids(g, 50)
			if err != nil {
				return err
			}
			s.printf("  process %d: %d to %d\n", i+1, first, last)
		}
	}
	return s.row()
}

func (s *show) restart() error {
	s.printf("\n3. A process that ends leaves a hole: what it had fetched and not used\n\n")
	var before int64
	for range 4 {
		g, err := segment.Open(s.ctx, s.db, "orders", segment.Config{})
		if err != nil {
			return err
		}
		first, last, err := s.ids(g, 20)
		g.Close()
		if err != nil {
			return err
		}
		s.printf("  %d to %d", first, last)
		if before > 0 {
			s.printf(", after a hole of %d", first-before-1)
		}
		s.printf("\n")
		before = last
	}
	return nil
}

func (s *show) growth() error {
	s.printf("\n4. Ranges double while one lasts less than 15 minutes, and halve when one lasts 30\n\n")
	var now atomic.Int64 // a clock that goes as fast as we like
	g, err := segment.Open(s.ctx, s.db, "orders", segment.Config{Now: func() time.Time { return time.Unix(now.Load(), 0) }})
	if err != nil {
		return err
	}
	defer g.Close()
	state, err := s.fetched(g, 1)
	if err != nil {
		return err
	}
	for i, minutes := range []int64{1, 1, 5, 5, 5, 20, 20, 45, 45} {
		if i == 7 {
			if err := s.db.Exec("UPDATE leaf_alloc SET step = 300 WHERE biz_tag = 'orders'").Error; err != nil {
				return err
			}
			s.printf("  an operator sets step to 300\n")
		}
		now.Add(60 * minutes)
		// Up to the id at which the next range is fetched: a tenth of the present one.
		for {
			id, err := g.Next(s.ctx)
			if err != nil {
				return err
			}
			if id >= state.First+(state.Last-state.First+1)/10 {
				break
			}
		}
		if state, err = s.fetched(g, state.Ranges+1); err != nil {
			return err
		}
		s.printf("  after %2d minutes the next range: %4d ids, from %d to %d\n", minutes, state.Last-state.First+1, state.First, state.Last)
	}
	return s.row()
}

package supply

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"gorm.io/gorm"
)

// Openers (Spec.Open) make the generators of counters and of WithSource, whose ids are usually not of the layout.
//
// A source that got no generator retries in the background, so that a process without creates becomes ready by
// itself. A create that needs the generator tries at once.

const (
	firstRetry = time.Second // each pause is random, from half of this to all of it
	lastRetry  = 5 * time.Second

	// lateAnswer is the time for an opener to return its error after its context has ended.
	lateAnswer = 100 * time.Millisecond
)

// OpenCounters opens the counters among sources. It does not return temporary errors, because Start tries again.
func (s *Supply) OpenCounters(sources []*Source) error {
	var counters []*Source
	for _, src := range sources {
		if s.Specs[src.Generator].Counter && !slices.Contains(counters, src) {
			counters = append(counters, src)
		}
	}
	if err := s.makeNow(counters); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, src := range counters {
		if err := src.outage.err; err != nil && !mayPass(err) {
			errs = append(errs, src.notOpen(err))
		}
	}
	return errors.Join(errs...)
}

// Start makes the generators that sources lack, and enables background retries. Register all callbacks first,
// because openers of the application may create rows.
func (s *Supply) Start(sources []*Source) {
	s.mu.Lock()
	s.started = true
	s.mu.Unlock()
	_ = s.makeNow(sources)
	s.mu.Lock()
	for _, src := range s.sources {
		if src.outage.err != nil {
			s.tryAgain(src)
		}
	}
	s.mu.Unlock()
	s.openGate()
}

// makeNow tries once to make the generators of sources. It returns only ErrClosed; sources keep other errors.
func (s *Supply) makeNow(sources []*Source) error {
	calls, err := s.startCall(sources)
	for _, call := range calls {
		<-call.done
	}
	return err
}

// openAll calls the openers of sources concurrently. A generator that arrives after the end of ctx is still used.
func (s *Supply) openAll(ctx context.Context, sources []*Source) error {
	errs := make(chan error, len(sources))
	for _, src := range sources {
		s.background.Go(func() {
			g, err := s.open(ctx, src)
			errs <- s.opened(src, g, err)
		})
	}
	var all []error
	var late <-chan time.Time
	for ended := ctx.Done(); len(all) < len(sources); {
		select {
		case err := <-errs:
			all = append(all, err)
		case <-ended:
			ended, late = nil, time.After(lateAnswer)
		case <-late:
			all = append(all, s.late(sources, ctx.Err()))
			for len(errs) > 0 { // openers that returned meanwhile
				all = append(all, <-errs)
			}
			return errors.Join(all...)
		}
	}
	return errors.Join(all...)
}

func (s *Supply) open(ctx context.Context, src *Source) (g generator.Generator, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("its opener panicked: %v", p)
		}
	}()
	s.mu.Lock()
	columns := slices.Clone(src.columns)
	s.mu.Unlock()
	g, err = s.Specs[src.Generator].Open(ctx, Opening{
		DB:    s.DB.Session(&gorm.Session{NewDB: true, Context: context.WithoutCancel(ctx)}),
		Table: src.Table, Column: strings.TrimPrefix(strings.TrimPrefix(src.tag, src.Table), "."), Columns: columns,
	})
	if err == nil && isNil(g) {
		err = errors.New("its opener returned nil")
	}
	return g, err
}

// opened records the result of an opener, and returns the error for callers.
func (s *Supply) opened(src *Source, g generator.Generator, err error) error {
	s.mu.Lock()
	src.pending = nil
	if err != nil {
		s.mu.Unlock()
		return s.failed(src, err)
	}
	if s.closed {
		s.mu.Unlock()
		g.Close() // unlocked, because application code may call the plugin
		return fmt.Errorf("%w: no generator %s for table %s", ErrClosed, src.Generator, src.Table)
	}
	was := src.outage
	src.outage.note(nil, time.Time{})
	src.made.Store(&made{Generator: g})
	s.mu.Unlock()
	if was.retrying {
		s.log.Info("uidplugin: a generator that could not be opened is open now",
			"generator", src.Generator, "table", src.Table, "since", was.since)
	}
	return nil
}

// late returns errors for the openers that have not returned in time.
func (s *Supply) late(sources []*Source, cause error) error {
	var errs []error
	for _, src := range sources {
		s.mu.Lock()
		waits := src.pending != nil && !src.Ready()
		s.mu.Unlock()
		if waits {
			waitErr := fmt.Errorf("its opener did not return within %v, the limit that WithTimeout sets: %w", s.Timeout, cause)
			errs = append(errs, s.failed(src, waitErr))
		}
	}
	return errors.Join(errs...)
}

// failed records why a source cannot be opened, and starts its retry. It returns the error for callers.
func (s *Supply) failed(src *Source, err error) error {
	if s.ctx.Err() != nil {
		return fmt.Errorf("%w: no generator %s for table %s", ErrClosed, src.Generator, src.Table)
	}
	now := s.Now()
	s.mu.Lock()
	src.outage.note(err, now)
	s.tryAgain(src)
	s.mu.Unlock()
	return src.notOpen(err)
}

func (src *Source) notOpen(err error) error {
	return fmt.Errorf("uidplugin: the generator %s of table %s cannot be opened: %w", src.Generator, src.Table, err)
}

// tryAgain starts the background retry of a source, if Start was called. The caller must hold s.mu.
func (s *Supply) tryAgain(src *Source) {
	if src.outage.retrying || src.Ready() || s.closed || !s.started {
		return
	}
	src.outage.retrying = true
	if src.Opened {
		s.log.Warn("uidplugin: a generator cannot be opened; trying again until it can",
			"generator", src.Generator, "table", src.Table, "error", src.outage.err)
	}
	s.background.Go(func() { s.retry(src) })
}

func (s *Supply) retry(src *Source) {
	for pause := firstRetry; ; pause = min(2*pause, lastRetry) {
		select {
		case <-time.After(pause/2 + rand.N(pause/2)):
		case <-s.ctx.Done():
			return
		}
		if err := s.makeNow([]*Source{src}); err != nil || src.Ready() {
			return
		}
	}
}

package supply

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"gorm.io/gorm"
)

// Openers make the generators whose ids are not of the layout: segments, and those of WithSource.
//
// A source that got no generator, because its opener failed or it got no worker id, tries again in the background: first
// after about a second, then after up to 5 s. That ends when it has a generator or the Supply is closed. So a process
// that is not ready, and gets no creates, becomes ready by itself. A create that needs the generator tries at once.

const (
	firstRetry = time.Second // each pause is random, from half of this on
	lastRetry  = 5 * time.Second

	// lateAnswer is how long an opener whose context has ended may take to say why it failed.
	lateAnswer = 100 * time.Millisecond
)

// OpenSegments opens the segments among sources, and waits for their first ranges. It returns the errors that stay
// until the configuration or the database changes. An error that may pass by itself is only logged, and the segment is
// opened again.
func (s *Supply) OpenSegments(sources []*Source) error {
	var segments []*Source
	for _, src := range sources {
		if s.Specs[src.Generator].segment && !slices.Contains(segments, src) {
			segments = append(segments, src)
		}
	}
	if err := s.makeNow(segments); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, src := range segments {
		if err := src.outage.err; err != nil && !mayPass(err) {
			errs = append(errs, src.notOpen(err))
		}
	}
	return errors.Join(errs...)
}

// Start opens the generators of sources that are not open yet. From now on sources that got no generator try again:
// openers of the application may create rows, so this needs all callbacks.
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

// makeNow tries to make the generators of sources. It waits until that has ended, or for the limit that WithTimeout
// sets. The sources hold the results; the error is ErrClosed.
func (s *Supply) makeNow(sources []*Source) error {
	calls, err := s.startCall(sources)
	for _, call := range calls {
		<-call.done
	}
	return err
}

// openAll calls the openers of sources, all at once. It returns when they have returned, or when ctx ends: a generator
// that comes later is used from then on.
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
			for len(errs) > 0 { // they have returned meanwhile
				all = append(all, <-errs)
			}
			return errors.Join(all...)
		}
	}
	return errors.Join(all...)
}

// open calls the opener of a source.
func (s *Supply) open(ctx context.Context, src *Source) (g generator.Generator, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("its opener panicked: %v", p)
		}
	}()
	if spec := s.Specs[src.Generator]; spec.segment {
		g, err = s.openSegment(ctx, src)
	} else {
		g, err = spec.Open(ctx, s.DB.Session(&gorm.Session{NewDB: true, Context: context.WithoutCancel(ctx)}), src.Table)
	}
	if err == nil && isNil(g) {
		err = errors.New("its opener returned nil")
	}
	return g, err
}

// opened notes what an opener has returned, and returns the error for callers.
func (s *Supply) opened(src *Source, g generator.Generator, err error) error {
	s.mu.Lock()
	src.pending = nil
	if err != nil {
		s.mu.Unlock()
		return s.failed(src, err)
	}
	if s.closed {
		s.mu.Unlock()
		g.Close() // without the mutex: it may be code of the application, which asks the plugin
		return fmt.Errorf("%w: no generator %s for table %s", ErrClosed, src.Generator, src.Table)
	}
	was := src.outage
	src.outage.note(nil, time.Time{})
	src.made.Store(&made{Generator: g})
	s.mu.Unlock()
	if was.err != nil {
		s.log.Info("uidplugin: a generator that could not be opened is open now",
			"generator", src.Generator, "table", src.Table, "since", was.since)
	}
	return nil
}

// late returns errors for the openers that have not returned in time, for the reason why.
func (s *Supply) late(sources []*Source, why error) error {
	var errs []error
	for _, src := range sources {
		s.mu.Lock()
		waits := src.pending != nil && !src.Ready()
		s.mu.Unlock()
		if waits {
			why := fmt.Errorf("its opener did not return within %v, the limit that WithTimeout sets: %w", s.Timeout, why)
			errs = append(errs, s.failed(src, why))
		}
	}
	return errors.Join(errs...)
}

// failed notes that a source cannot be opened, and has it try again. It returns the error for callers.
func (s *Supply) failed(src *Source, err error) error {
	if s.ctx.Err() != nil {
		return fmt.Errorf("%w: no generator %s for table %s", ErrClosed, src.Generator, src.Table)
	}
	now := s.Now()
	s.mu.Lock()
	first := src.outage.err == nil
	src.outage.note(err, now)
	s.tryAgain(src)
	s.mu.Unlock()
	if first {
		s.log.Warn("uidplugin: a generator cannot be opened; trying again until it can",
			"generator", src.Generator, "table", src.Table, "error", err)
	}
	return src.notOpen(err)
}

// notOpen says what cannot be opened, and why.
func (src *Source) notOpen(err error) error {
	return fmt.Errorf("uidplugin: the generator %s of table %s cannot be opened: %w", src.Generator, src.Table, err)
}

// tryAgain has a source try again in the background to get a generator, once Start was called. The caller holds s.mu.
func (s *Supply) tryAgain(src *Source) {
	if src.outage.retrying || src.Ready() || s.closed || !s.started {
		return
	}
	src.outage.retrying = true
	s.background.Go(func() { s.retry(src) })
}

// retry tries until a source has a generator, or the Supply is closed.
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

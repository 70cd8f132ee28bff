package uidplugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"slices"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/sqldb"
)

// Openers make the generators whose ids are not of the layout: segments, and those of WithSource. One that fails is
// called again in the background, first after about a second and then after growing pauses, until it succeeds or the
// plugin is closed. A create that needs the generator calls it at once.

const (
	firstRetry = time.Second // each pause is random, from half of this on
	lastRetry  = time.Minute

	// lateAnswer is how long an opener whose context has ended may take to say why it failed.
	lateAnswer = 100 * time.Millisecond
)

// An outage says why a source has no generator: it got no worker id, or its opener fails. It
// is zero while nothing has failed.
type outage struct {
	err      error     // of the last attempt
	since    time.Time // when the first attempt failed
	retrying bool      // a goroutine calls the opener again
}

// note notes what became of an attempt; now is when.
func (o *outage) note(err error, now time.Time) {
	switch {
	case err == nil:
		o.since = time.Time{}
	case o.err == nil:
		o.since = now
	}
	o.err = err
}

// openSegments opens the segments of the models of WithModels, and waits for their first ranges. It runs before the
// callbacks are registered, so that db.Use can still fail. It returns the errors that stay until somebody changes the
// configuration or the database. An error that may pass by itself is only logged, and the segment is opened again.
func (c *core) openSegments() error {
	var segments []*source
	c.later = slices.DeleteFunc(c.later, func(s *source) bool {
		if s.kind == Segment && !slices.Contains(segments, s) {
			segments = append(segments, s)
		}
		return s.kind == Segment
	})
	if err := c.openNow(segments); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, s := range segments {
		if err := s.outage.err; err != nil && !passes(err) {
			errs = append(errs, s.notOpen(err))
		}
	}
	return errors.Join(errs...)
}

// passes reports whether err may pass by itself: the database, or a connection to it, could not be had.
func passes(err error) bool { return sqldb.IsUnreachable(err) || sqldb.IsTransient(err) }

// openLater opens the generators that openSegments has left. It runs after the callbacks are registered, because an
// opener of the application may create rows, and GORM's registration must not meet that. What fails is opened again.
func (c *core) openLater() {
	_ = c.openNow(c.later)
	c.later = nil
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.sources {
		if s.outage.err != nil {
			c.openAgain(s)
		}
	}
}

// openNow calls openers and waits until they have returned, or for the limit that WithTimeout sets. What came of it
// is in the sources; the error is ErrClosed.
func (c *core) openNow(sources []*source) error {
	calls, err := c.begin(sources)
	for _, call := range calls {
		<-call.done
	}
	return err
}

// openAll calls the openers of sources, all at once. It returns when they have returned, or when ctx ends: a
// generator that comes later is used from then on.
func (c *core) openAll(ctx context.Context, sources []*source) error {
	errs := make(chan error, len(sources))
	for _, s := range sources {
		c.background.Go(func() {
			g, err := c.open1(ctx, s)
			errs <- c.opened(s, g, err)
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
			all = append(all, c.late(sources, ctx.Err()))
			for len(errs) > 0 { // they have returned meanwhile
				all = append(all, <-errs)
			}
			return errors.Join(all...)
		}
	}
	return errors.Join(all...)
}

// open1 calls the opener of s.
func (c *core) open1(ctx context.Context, s *source) (g generator.Generator, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("its opener panicked: %v", p)
		}
	}()
	g, err = c.kinds[s.kind].open(ctx, c, s)
	if v := reflect.ValueOf(g); err == nil && (g == nil || v.Kind() == reflect.Pointer && v.IsNil()) {
		err = errors.New("its opener returns none")
	}
	return g, err
}

// opened notes what an opener has returned, and returns the error for callers.
func (c *core) opened(s *source, g generator.Generator, err error) error {
	c.mu.Lock()
	s.pending = nil
	if err != nil {
		c.mu.Unlock()
		return c.failed(s, err)
	}
	was, stale := s.outage, !c.has(s)
	if !stale {
		s.outage.note(nil, time.Time{})
		c.store(s, &made{Generator: g})
	}
	c.mu.Unlock()
	switch {
	case stale: // of a db.Use that has failed
		g.Close()
	case was.err != nil:
		c.aloof().Info("uidplugin: a generator that could not be opened is open now",
			"generator", s.kind, "table", s.table, "since", was.since)
	}
	return nil
}

// late returns errors for the openers that have not returned in time, for the reason why.
func (c *core) late(sources []*source, why error) error {
	var errs []error
	for _, s := range sources {
		c.mu.Lock()
		waits := s.pending != nil && s.made.Load() == nil
		c.mu.Unlock()
		if waits {
			why := fmt.Errorf("its opener did not return within %v, the limit that WithTimeout sets: %w", c.timeout, why)
			errs = append(errs, c.failed(s, why))
		}
	}
	return errors.Join(errs...)
}

// failed notes that s cannot be opened, and has it opened again. It returns the error for callers.
func (c *core) failed(s *source, err error) error {
	if c.ctx.Err() != nil {
		return fmt.Errorf("%w: no generator %s for table %s", ErrClosed, s.kind, s.table)
	}
	now := c.now()
	c.mu.Lock()
	first := s.outage.err == nil
	s.outage.note(err, now)
	c.openAgain(s)
	c.mu.Unlock()
	if first {
		c.aloof().Warn("uidplugin: a generator cannot be opened; trying again until it can",
			"generator", s.kind, "table", s.table, "error", err)
	}
	return s.notOpen(err)
}

// notOpen says what cannot be opened, and why.
func (s *source) notOpen(err error) error {
	return fmt.Errorf("uidplugin: the generator %s of table %s cannot be opened: %w", s.kind, s.table, err)
}

// has reports whether s is a source of the plugin, and not one of a db.Use that has failed. The caller holds c.mu.
func (c *core) has(s *source) bool { return c.sources[sourceKey{s.tag, s.kind}] == s }

// openAgain has s opened again in the background. The caller holds c.mu.
func (c *core) openAgain(s *source) {
	if s.outage.retrying || s.made.Load() != nil || c.closed || !c.registered.Load() || !c.has(s) {
		return
	}
	s.outage.retrying = true
	c.background.Go(func() { c.retry(s) })
}

// retry opens s until that succeeds, or the plugin is closed.
func (c *core) retry(s *source) {
	for pause := firstRetry; ; pause = min(2*pause, lastRetry) {
		select {
		case <-time.After(pause/2 + rand.N(pause/2)):
		case <-c.ctx.Done():
			return
		}
		if err := c.openNow([]*source{s}); err != nil || s.made.Load() != nil {
			return
		}
	}
}

// sourcesHealth returns the errors of sources, in the order of their tables: those that have no generator although one was
// needed, and those whose method Health returns one.
func (c *core) sourcesHealth() error {
	type state struct {
		source *source
		outage
	}
	c.mu.Lock()
	var states []state
	for _, s := range c.sources {
		if s.open || s.outage.err != nil {
			states = append(states, state{s, s.outage})
		}
	}
	c.mu.Unlock()
	slices.SortFunc(states, func(a, b state) int {
		return cmp.Or(cmp.Compare(a.source.tag, b.source.tag), cmp.Compare(a.source.kind, b.source.kind))
	})
	var errs []error
	for _, s := range states {
		if m := s.source.made.Load(); m != nil {
			errs = append(errs, s.source.health(m.Generator))
		} else if s.err != nil && s.source.open {
			errs = append(errs, fmt.Errorf("uidplugin: the generator %s of table %s could not be opened since %s: %w",
				s.source.kind, s.source.table, format(s.since), s.err))
		} else if s.err != nil {
			errs = append(errs, fmt.Errorf("uidplugin: the table %s has no worker id since %s: %w", s.source.table, format(s.since), s.err))
		}
	}
	return errors.Join(errs...)
}

// health asks a generator how it is, if it has the method.
func (s *source) health(g generator.Generator) (err error) {
	h, ok := g.(interface{ Health() error })
	if !ok {
		return nil
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panicked: %v", p)
		}
		if err != nil {
			err = fmt.Errorf("uidplugin: the generator %s of table %s: %w", s.kind, s.table, err)
		}
	}()
	return h.Health()
}

// lacking names what sources still lack, for messages.
func lacking(sources []*source) string {
	var tables, generators []string
	for _, s := range sources {
		switch {
		case s.made.Load() != nil:
		case s.open:
			generators = append(generators, fmt.Sprintf("the generator %s of table %s", s.kind, s.table))
		default:
			tables = append(tables, s.table)
		}
	}
	if len(tables) > 0 {
		generators = append([]string{"a worker id for " + list(tables)}, generators...)
	}
	return list(generators)
}

// remedy says what to do about a first insert inside a transaction, which lacks something.
func remedy(what string) string {
	return "getting " + what + " needs another connection than the transaction's" +
		" (hooks and CreateInBatches are inside one, too):" +
		" give the models to WithModels, so that db.Use does it, or insert a row before the transaction," +
		" or let the pool have more connections (SQLite cannot write from a second one meanwhile)"
}

// aloof returns the log for what happens in the background.
func (c *core) aloof() *slog.Logger { return slog.New(aloof{c.log.Handler(), c}) }

package supply

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// Ensure returns when all sources have a generator, or an error says why not. pool is that of the statement which needs
// the ids: it shows whether that is in a transaction.
func (s *Supply) Ensure(ctx context.Context, pool gorm.ConnPool, sources []*Source) error {
	if s.LookupOnly {
		return fmt.Errorf("%w: WithLookupOnly: this plugin makes no ids; use a handle whose plugin is without the option", ErrOption)
	}
	wait := time.Duration(math.MaxInt64) // the call has its own limit
	transaction := sqldb.HoldsConnection(pool)
	needsAnother := transaction && slices.ContainsFunc(sources, s.needsPool)
	if needsAnother {
		wait = s.transactionWait()
	}
	if transaction && s.Manager != nil {
		if err := s.useSpares(sources); err != nil {
			return err
		}
	}
	what := lacking(sources)
	calls, err := s.startCall(sources)
	if err != nil {
		return err
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for _, call := range calls {
		select {
		case <-call.done:
			if !slices.ContainsFunc(sources, func(src *Source) bool { return !src.Ready() }) {
				return nil // what the call could not make is for others
			}
			if call.err != nil && needsAnother && mayPass(call.err) {
				return fmt.Errorf("%w: %s: %w", ErrInTransaction, remedy(what), call.err)
			}
			if call.err != nil {
				return call.err
			}
		case <-ctx.Done():
			return fmt.Errorf("uidplugin: waiting for %s: %w", what, ctx.Err())
		case <-timer.C:
			return fmt.Errorf("%w: %s", ErrInTransaction, remedy(what))
		}
	}
	return nil
}

// needsPool reports whether a source may need a connection of the pool that creates use, to get its generator.
func (s *Supply) needsPool(src *Source) bool {
	if src.Opened {
		return !s.Specs[src.Generator].Local
	}
	return s.Fixed == nil && s.Registry == s.DB
}

// table returns the table of a source, as the registry names it.
func (s *Supply) table(src *Source) workernode.Table {
	if src.Table == AllTables {
		return workernode.Table{Name: AllTables} // of all databases too
	}
	return workernode.Table{Database: s.Database, Name: src.Table}
}

// mayPass reports whether err may pass by itself, because the database or a connection to it was not available.
func mayPass(err error) bool { return sqldb.IsUnreachable(err) || sqldb.IsTransient(err) }

// transactionWait is how long a create inside a transaction waits for a worker id. It does not wait if the transaction
// has the only connection. It waits briefly if no other is free, because all of them may wait like this one. It also
// waits briefly on SQLite, where no other connection can write while the transaction writes.
func (s *Supply) transactionWait() time.Duration {
	var stats sql.DBStats
	if pool, err := s.DB.DB(); err == nil && pool != nil {
		stats = pool.Stats()
	}
	switch full := stats.MaxOpenConnections > 0 && stats.InUse >= stats.MaxOpenConnections; {
	case stats.MaxOpenConnections == 1:
		return 0
	case full, s.DB.Dialector.Name() == "sqlite":
		return min(time.Second, s.Timeout)
	}
	return s.Timeout
}

// TakeSpares takes the worker ids in reserve, unless those of tables came with them.
func (s *Supply) TakeSpares() error {
	ctx, cancel := context.WithTimeout(s.ctx, s.Timeout)
	defer cancel()
	if err := s.Manager.Start(ctx); err != nil {
		return s.noWorkerID(err, "the tables to come")
	}
	return nil
}

// useSpares gives spares to the sources that have no worker ids, as far as there are any. It sends no statement:
// inside a transaction there may be no other connection.
func (s *Supply) useSpares(sources []*Source) error {
	for _, src := range sources {
		if src.Opened || src.Ready() || s.Closed() {
			continue
		}
		if enough, err := s.useSpare(src); err != nil || !enough {
			return err
		}
	}
	return nil
}

// useSpare is useSpares for one source. It reports false if there are too few.
func (s *Supply) useSpare(src *Source) (enough bool, err error) {
	src.makeMu.Lock()
	defer src.makeMu.Unlock()
	if src.Ready() {
		return true, nil
	}
	lease, ok := s.Manager.Spare(s.table(src), s.Specs[src.Generator].Lanes)
	if !ok {
		return false, nil
	}
	return true, s.makeLeased(src, lease)
}

// assignLeases gets worker ids for sources, and makes their generators of them.
func (s *Supply) assignLeases(ctx context.Context, sources []*Source) (err error) {
	if len(sources) == 0 {
		return nil
	}
	tables, lanes, names := make([]workernode.Table, len(sources)), make([]int, len(sources)), make([]string, len(sources))
	for i, src := range sources {
		tables[i], lanes[i], names[i] = s.table(src), s.Specs[src.Generator].Lanes, src.Table
	}
	var leases []*workernode.TableLease
	if s.Manager != nil {
		leases, err = s.Manager.Assign(ctx, tables, lanes)
	} else {
		err = s.Fixed.wait(ctx)
	}
	if err != nil {
		return s.noteAttempt(sources, s.noWorkerID(err, list(names)))
	}
	workers, err := s.makeAll(sources, leases)
	if err == nil && s.Manager != nil {
		s.log.Info("uidplugin: worker ids assigned", "tables", len(names), "worker_id", list(workers))
	}
	return err
}

// noteAttempt notes that making the generators of sources has ended, with err or nil. After an error they try again. It
// returns err.
func (s *Supply) noteAttempt(sources []*Source, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, src := range sources {
		src.pending = nil
		src.outage.note(err, s.Now())
		if err != nil {
			s.tryAgain(src)
		}
	}
	return err
}

// makeAll makes the generators of sources, each of its lease; leases is nil with a fixed worker id. It returns the
// worker ids for the log, and the errors of those that could not be made.
func (s *Supply) makeAll(sources []*Source, leases []*workernode.TableLease) (workers []string, _ error) {
	var errs []error
	for i, src := range sources {
		var lease *workernode.TableLease
		if leases != nil {
			lease = leases[i]
		}
		err := s.makeOne(src, lease)
		if m := src.made.Load(); err == nil && m.lease != nil {
			workers = append(workers, fmt.Sprintf("%s=%d", src.Table, m.lease.Leases()[0].WorkerID))
		}
		errs = append(errs, s.noteAttempt([]*Source{src}, err))
	}
	return workers, errors.Join(errs...)
}

// makeOne makes the generator of a source, unless a spare made it meanwhile; lease is nil with a fixed worker id.
func (s *Supply) makeOne(src *Source, lease *workernode.TableLease) error {
	src.makeMu.Lock()
	defer src.makeMu.Unlock()
	switch {
	case lease == nil:
		return s.makeFixed(src)
	case src.Ready():
		lease.Release() // a transaction could not wait and took a spare one
		return nil
	}
	return s.makeLeased(src, lease)
}

// makeLeased makes the generator of a source with a lease of the database. The caller holds src.makeMu.
func (s *Supply) makeLeased(src *Source, lease *workernode.TableLease) error {
	g, err := s.generator(src, lease.Leases(), s.Manager.RequestRenewal)
	if err != nil {
		lease.Release()
		return err
	}
	lease.Attach(g)
	s.store(src, &made{Generator: g, lease: lease})
	return nil
}

// makeFixed makes the generator of all tables with a fixed worker id. The caller holds src.makeMu.
func (s *Supply) makeFixed(src *Source) error {
	leases := s.Fixed.leases(s.Specs[src.Generator].Lanes)
	g, err := s.generator(src, leases, nil)
	if err == nil {
		s.store(src, &made{Generator: g, fixed: leases})
	}
	return err
}

// generator calls the function that makes the generator of a source.
func (s *Supply) generator(src *Source, leases []generator.Lease, onLow func()) (generator.Renewable, error) {
	g, err := s.Specs.Generator(src.Generator, GeneratorConfig{
		Table: src.Table, Layout: s.Layout, Leases: leases, OnLow: onLow, MaxBorrow: s.MaxBorrow, Clock: s.Clock, Now: s.Time,
	})
	if err != nil {
		return nil, fmt.Errorf("uidplugin: the generator %s of table %s cannot be made: %w", src.Generator, src.Table, err)
	}
	return g, nil
}

// noWorkerID says what has no worker id, and why.
func (s *Supply) noWorkerID(err error, what string) error {
	switch {
	case s.ctx.Err() != nil:
		return fmt.Errorf("%w: no worker id for %s", ErrClosed, what)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("uidplugin: no worker id for %s after %v, the limit that WithTimeout sets: %w", what, s.Timeout, err)
	}
	return fmt.Errorf("uidplugin: no worker id for %s: %w", what, err)
}

// lacking names what sources still lack, for messages.
func lacking(sources []*Source) string {
	var tables, generators []string
	for _, src := range sources {
		switch {
		case src.Ready():
		case src.Opened:
			generators = append(generators, fmt.Sprintf("the generator %s of table %s", src.Generator, src.Table))
		default:
			tables = append(tables, src.Table)
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

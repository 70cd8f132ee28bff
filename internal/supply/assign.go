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

// Ensure waits until all sources have a generator. The statement's pool shows whether it runs in a transaction.
func (s *Supply) Ensure(ctx context.Context, pool gorm.ConnPool, sources []*Source) error {
	if s.LookupOnly {
		return fmt.Errorf("%w: WithLookupOnly: this plugin makes no ids; create rows on a handle whose plugin does not have the option", ErrOption)
	}
	wait := time.Duration(math.MaxInt64) // the calls end by themselves after s.Timeout
	transaction := sqldb.HoldsConnection(pool)
	needsAnother := transaction && slices.ContainsFunc(sources, s.needsPool)
	if needsAnother {
		wait = s.transactionWait()
	}
	missing := lacking(sources)
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
				return nil // then an error of the call concerns other sources
			}
			if call.err != nil && needsAnother && mayPass(call.err) {
				return fmt.Errorf("%w: %s: %w", ErrInTransaction, remedy(missing), call.err)
			}
			if call.err != nil {
				return call.err
			}
		case <-ctx.Done():
			return fmt.Errorf("uidplugin: waiting for %s: %w", missing, ctx.Err())
		case <-timer.C:
			return fmt.Errorf("%w: %s", ErrInTransaction, remedy(missing))
		}
	}
	return nil
}

// needsPool reports whether making the source's generator may take a connection of the application's pool.
func (s *Supply) needsPool(src *Source) bool {
	if src.Opened {
		return !s.Specs[src.Generator].Local
	}
	return s.Fixed == nil && s.Registry == s.DB
}

// table returns the source's table as the registry names it.
func (s *Supply) table(src *Source) workernode.Table {
	if src.Table == AllTables {
		return workernode.Table{Name: AllTables} // belongs to no single database
	}
	return workernode.Table{Database: s.Database, Name: src.Table}
}

// mayPass reports whether a retry may succeed, because the database or a connection was unavailable.
func mayPass(err error) bool { return sqldb.IsUnreachable(err) || sqldb.IsTransient(err) }

// transactionWait limits the wait of a create in a transaction. It is short if all connections are in use, because
// their holders may be waiting, too, and on SQLite, because no other connection can write meanwhile.
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

// assignLeases gets worker ids for sources and makes their generators.
func (s *Supply) assignLeases(ctx context.Context, sources []*Source) (err error) {
	if len(sources) == 0 {
		return nil
	}
	tables, lanes, names := make([]workernode.Table, len(sources)), make([]int, len(sources)), make([]string, len(sources))
	for i, src := range sources {
		tables[i], lanes[i], names[i] = s.table(src), s.Specs[src.Generator].Lanes, src.served()
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

// noteAttempt records the end of an attempt for sources, and returns err. After an error it starts the retries.
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

// makeAll makes the generators of sources. leases is nil with a fixed worker id. The result workers is for the log.
func (s *Supply) makeAll(sources []*Source, leases []*workernode.TableLease) (workers []string, _ error) {
	var errs []error
	for i, src := range sources {
		var err error
		if leases != nil {
			err = s.makeLeased(src, leases[i])
		} else {
			err = s.makeFixed(src)
		}
		if m := src.made.Load(); err == nil && m.lease != nil {
			workers = append(workers, fmt.Sprintf("%s=%d", src.Table, m.lease.Leases()[0].WorkerID))
		}
		errs = append(errs, s.noteAttempt([]*Source{src}, err))
	}
	return workers, errors.Join(errs...)
}

func (s *Supply) makeLeased(src *Source, lease *workernode.TableLease) error {
	g, err := s.generator(src, lease.Leases(), s.Manager.RequestRenewal)
	if err != nil {
		lease.Release()
		return err
	}
	lease.Attach(g)
	s.store(src, &made{Generator: g, lease: lease})
	src.spareLanes()
	return nil
}

// makeFixed makes or shares the generator of the fixed worker id, which serves all tables.
func (s *Supply) makeFixed(src *Source) error {
	g, leases, err := s.Fixed.open(s.Specs[src.Generator].Lanes, func(leases []generator.Lease) (generator.Renewable, error) {
		return s.generator(src, leases, nil)
	})
	if err != nil {
		return err
	}
	m := &made{Generator: g, fixed: leases, note: s.noteFar(leases[0].From)}
	if s.Fixed.share != nil {
		m.Generator = &sharedGenerator{Generator: g, share: s.Fixed.share}
	}
	s.store(src, m)
	return nil
}

func (s *Supply) generator(src *Source, leases []generator.Lease, onLow func()) (generator.Renewable, error) {
	g, err := s.Specs.Generator(src.Generator, generator.Config{
		Table: src.Table, Layout: s.Layout, Leases: leases, OnLow: onLow, MaxBorrow: s.MaxBorrow, Clock: s.Clock, Now: s.Time,
	})
	if err != nil {
		return nil, fmt.Errorf("uidplugin: the generator %s of %s cannot be made: %w", src.Generator, src.named(), err)
	}
	return g, nil
}

func (s *Supply) noWorkerID(err error, tables string) error {
	switch {
	case s.ctx.Err() != nil:
		return fmt.Errorf("%w: no worker id for %s", ErrClosed, tables)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("uidplugin: no worker id for %s after %v, the limit that WithTimeout sets: %w", tables, s.Timeout, err)
	case sqldb.IsReadOnly(err):
		return fmt.Errorf("uidplugin: no worker id for %s: the database is read-only for this connection; connect to the primary,"+
			" or set WithLookupOnly if this process creates no rows: %w", tables, err)
	}
	return fmt.Errorf("uidplugin: no worker id for %s: %w", tables, err)
}

// lacking lists the missing worker ids and generators for messages.
func lacking(sources []*Source) string {
	var tables, generators []string
	for _, src := range sources {
		switch {
		case src.Ready():
		case src.Opened:
			generators = append(generators, fmt.Sprintf("the generator %s of table %s", src.Generator, src.Table))
		default:
			tables = append(tables, src.served())
		}
	}
	if len(tables) > 0 {
		generators = append([]string{"a worker id for " + list(tables)}, generators...)
	}
	return list(generators)
}

// remedy suggests fixes for a first insert inside a transaction.
func remedy(missing string) string {
	return "getting " + missing + " needs a second connection: list the models in WithModels," +
		" or insert a row before the transaction, or allow more connections (not on SQLite)"
}

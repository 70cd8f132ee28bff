package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/workernode"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// A database is an open database with an id space.
type database struct {
	db      *gorm.DB
	pool    *sql.DB
	nodes   *workernode.DB
	dialect dialect
	timeout time.Duration // per statement

	registry workernode.Registry
	layout   generator.Layout

	others map[string]*database // other open databases, by their names in WORKER_NODE
}

// open opens the database of --dsn or UID_DSN, and reads its registry. The caller should close it.
func (a *app) open(ctx context.Context, use usage) (*database, error) {
	d, err := a.connect(ctx, a.source(), use)
	if err != nil {
		return nil, err
	}
	if err := d.readRegistry(ctx); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

// connect is open for a data source name, without reading the registry.
func (a *app) connect(ctx context.Context, dsn string, use usage) (*database, error) {
	a.sources = append(a.sources, dsn)
	s, err := parseSource(dsn)
	if err != nil {
		return nil, err
	}
	dialector, err := s.dialector(ctx, use, a.timeout)
	if err != nil {
		return nil, err
	}
	db, err := gorm.Open(dialector, &gorm.Config{Logger: logger.Discard})
	if err != nil {
		return nil, fmt.Errorf("the database cannot be opened: %w", err)
	}
	d := &database{db: db.WithContext(ctx), dialect: s.dialect, timeout: a.timeout}
	if d.pool, err = db.DB(); err != nil {
		return nil, err
	}
	if d.nodes, err = workernode.Open(db, a.timeout); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

// noTable matches errors about missing tables.
var noTable = regexp.MustCompile(`Error 1146 |SQLSTATE 42P01|no such table`)

// maxConnect limits the time of a connect, unless --timeout or the data source name sets a shorter one.
const maxConnect = 10 * time.Second

// reach returns an error if connecting takes too long. GORM would connect without a context.
func reach(ctx context.Context, pool *sql.DB, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	begin := time.Now()
	err := pool.PingContext(ctx)
	if err == nil {
		return nil
	}
	if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
		if ctx.Err() == nil { // the driver's own limit was shorter
			limit = time.Since(begin).Round(time.Second / 10)
		}
		err = fmt.Errorf("no answer within %v: %w", limit, err)
	}
	return errors.Join(fmt.Errorf("the database cannot be opened: %w", err), pool.Close())
}

func (d *database) readRegistry(ctx context.Context) (err error) {
	if d.registry, err = d.nodes.Registry(ctx); err != nil {
		if noTable.MatchString(err.Error()) {
			err = fmt.Errorf("this database has no id space; with WithRegistry, give the data source name of the registry: %w", err)
		}
		return err
	}
	d.layout, err = generator.ParseLayout(d.registry.Layout)
	return err
}

// plugin registers a plugin for lookups only.
func (d *database) plugin(a *app) (*uidplugin.Plugin, error) {
	p := uidplugin.New(
		uidplugin.WithLookupOnly(), uidplugin.WithLayout(d.layout), uidplugin.WithLogger(nil),
		uidplugin.WithTimeout(a.timeout),
	)
	if err := d.db.Use(p); err != nil {
		return nil, err
	}
	return uidplugin.From(d.db), nil
}

func (d *database) close() error {
	err := d.pool.Close()
	for _, other := range d.others {
		err = errors.Join(err, other.close())
	}
	return err
}

// now returns the time of the database, or of this machine if the database does not have a clock.
func (d *database) now(ctx context.Context, a *app) (time.Time, error) {
	now, ok, err := d.nodes.Clock(ctx)
	if err != nil || !ok {
		return a.now(), err
	}
	return now, nil
}

// timeOf returns the start of a tick, limited to times that JSON can express.
func (d *database) timeOf(tick int64) time.Time {
	return workernode.TimeOf(d.layout, tick)
}

// query runs a statement with ? for values, and calls scan for each row. The timeout applies.
func (d *database) query(ctx context.Context, scan func(*sql.Rows) error, query string, args ...any) (err error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	defer func() {
		if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = fmt.Errorf("no answer within %v (--timeout); a lock may be held, or the database is busy: %w", d.timeout, err)
		}
	}()
	rows, err := d.db.WithContext(ctx).Raw(query, args...).Rows()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// list is query for a statement with names in double quotes.
func (d *database) list(ctx context.Context, scan func(*sql.Rows) error, query string, args ...any) error {
	if d.dialect == mysqlDialect {
		query = strings.ReplaceAll(query, `"`, "`")
	}
	return d.query(ctx, scan, query, args...)
}

// quote quotes a name. A dot separates a schema or a database from a table.
func (d *database) quote(name string) string { return d.db.Statement.Quote(name) }

// errURL reports an unreadable URL. It hides the parser's reason, which may contain a part of the password.
var errURL = errors.New("the URL of the database cannot be read: write special characters of the password as %40 " +
	"and the like")

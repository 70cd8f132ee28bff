package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// A database is an open database with the tables of an id space.
type database struct {
	db      *gorm.DB
	pool    *sql.DB
	nodes   *workernode.DB
	dialect dialect
	timeout time.Duration // of a statement

	registry workernode.Registry
	layout   generator.Layout // of the registry

	others map[string]*database // databases other than the registry's that were opened, by their names in WORKER_NODE
}

// open opens the database of --dsn or UID_DSN, and reads its registry. The caller closes it.
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

// connect is open for a data source name, without the registry.
func (a *app) connect(ctx context.Context, dsn string, use usage) (*database, error) {
	a.sources = append(a.sources, dsn)
	s, err := parseSource(dsn)
	if err != nil {
		return nil, err
	}
	dialector, err := s.dialector(use, a.timeout)
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

// readRegistry reads the registry and its layout.
func (d *database) readRegistry(ctx context.Context) (err error) {
	if d.registry, err = d.nodes.Registry(ctx); err != nil {
		return fmt.Errorf("this database has no id space that can be read; with WithRegistry, give the data source "+
			"name of the registry: %w", err)
	}
	d.layout, err = generator.ParseLayout(d.registry.Layout)
	return err
}

// plugin registers a plugin that only looks ids up.
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

// close closes the connections.
func (d *database) close() error {
	err := d.pool.Close()
	for _, other := range d.others {
		err = errors.Join(err, other.close())
	}
	return err
}

// now returns the time of the database's clock, or of this machine's if the database has none.
func (d *database) now(ctx context.Context, a *app) (time.Time, error) {
	now, ok, err := d.nodes.Clock(ctx)
	if err != nil || !ok {
		return a.now(), err
	}
	return now, nil
}

// timeOf returns the start of a tick that was read from a table, as far as JSON can say it.
func (d *database) timeOf(tick int64) time.Time {
	return workernode.TimeOf(d.layout, tick)
}

// query runs a statement with ? for values, and calls scan for each row. It gets as long as every other statement.
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

// list is query for a statement that has names in double quotes.
func (d *database) list(ctx context.Context, scan func(*sql.Rows) error, query string, args ...any) error {
	if d.dialect == mysqlDialect {
		query = strings.ReplaceAll(query, `"`, "`")
	}
	return d.query(ctx, scan, query, args...)
}

// quote returns a name in the quotes of the dialect. A dot separates a schema or a database from a table.
func (d *database) quote(name string) string { return d.db.Statement.Quote(name) }

// errURL is about a URL that cannot be read. The reason would have a part of the password.
var errURL = errors.New("the URL of the database cannot be read: write special characters of the password as %40 " +
	"and the like")

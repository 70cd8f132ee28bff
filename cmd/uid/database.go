package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/admin"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

type database struct {
	*admin.DB
	gorm   *gorm.DB
	pool   *sql.DB
	others []*database // of --database and --region
}

// with opens the database of --dsn or UID_DSN, calls f, and closes the database.
func (a *app) with(ctx context.Context, use usage, f func(d *database) error) error {
	d, err := a.open(ctx, use)
	if err != nil {
		return err
	}
	defer d.close()
	return f(d)
}

// open opens the database of --dsn or UID_DSN, and reads its registry.
func (a *app) open(ctx context.Context, use usage) (*database, error) {
	d, err := a.connect(ctx, a.source(), use)
	if err != nil {
		return nil, err
	}
	err = d.ReadRegistry(ctx)
	if use >= prepares && admin.HasNoSpace(err) {
		if use == prepares {
			a.complain(errors.New("warning: no process has begun an id space in this database, so ids are read with the default layout"))
		}
		d.Layout, err = generator.DefaultLayout(), nil
	}
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

// connect is like open, but takes a data source name and does not read the registry.
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
	d := &database{gorm: db.WithContext(ctx)}
	if d.pool, err = db.DB(); err != nil {
		return nil, err
	}
	if d.DB, err = admin.Connect(db, a.timeout, a.now); err != nil {
		return nil, errors.Join(err, d.close())
	}
	d.Schema = a.schema
	return d, nil
}

// maxConnect is the longest wait for a connection to a host, unless --timeout is shorter or the DSN sets a limit.
const maxConnect = 10 * time.Second

// reach connects within limit. Otherwise gorm.Open would connect first, and it takes no context.
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

func (d *database) close() error {
	err := d.pool.Close()
	for _, other := range d.others {
		err = errors.Join(err, other.close())
	}
	return err
}

// databaseFlag adds the flag --database to a command for tables that may be in other databases than the registry.
func databaseFlag(c *cobra.Command, pairs *[]string) {
	c.Flags().StringArrayVar(pairs, "database", nil, "NAME=DSN of another database that has tables; "+
		`"uid tables --json" lists the names; repeatable`)
}

// openOthers opens the databases of --database. Each element of pairs is a text NAME=DSN.
func (a *app) openOthers(ctx context.Context, d *database, pairs []string, use usage) error {
	if len(pairs) == 0 {
		return nil
	}
	for _, text := range pairs {
		name, dsn, ok := strings.Cut(text, "=")
		if !ok || name == "" || dsn == "" {
			return errors.New("--database takes NAME=DSN, such as shard-1=mysql://user:password@host/shop")
		}
		other, err := a.connect(ctx, dsn, use)
		if err != nil {
			return fmt.Errorf("--database %s: %w", name, err)
		}
		d.others = append(d.others, other)
		d.AddOther(name, other.DB)
	}
	if d.Registry.Space == "" {
		return nil // there is no registry, so the names cannot be checked
	}
	known, err := d.TableNames(ctx)
	for name := range d.Others {
		isHere := func(t workernode.Table) bool { return t.Database == name }
		if err == nil && !slices.ContainsFunc(known, isHere) {
			err = fmt.Errorf("--database %s: WORKER_NODE has no table of a database %q; \"uid tables --json\" lists the "+
				"names", name, name)
		}
	}
	return err
}

// errURL reports an unreadable URL. It hides the parser's reason, which may contain a part of the password.
var errURL = errors.New("the URL of the database cannot be parsed; write special characters of the password as " +
	"%40 (for @) and so on, or use the form user:password@tcp(host:3306)/database without mysql://")

// tableSubcommand adds what the commands about tables share: the flag --database, and opening the databases.
func (a *app) tableSubcommand(
	use usage, c *cobra.Command, f func(ctx context.Context, d *database, args []string) error,
) *cobra.Command {
	var others []string
	databaseFlag(c, &others)
	c.RunE = func(c *cobra.Command, args []string) error {
		return a.with(c.Context(), use, func(d *database) error {
			if err := a.openOthers(c.Context(), d, others, use); err != nil {
				return err
			}
			return f(c.Context(), d, args)
		})
	}
	return c
}

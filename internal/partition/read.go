package partition

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/sqldb"
)

type table struct {
	schema, name string // schema is empty for the present database of MySQL
	id           int64  // oid on PostgreSQL
	version      int    // of PostgreSQL
	now          time.Time

	by      string // how the table is partitioned, as the database writes it; empty if it is not
	key     []column
	parts   []part // in the order of their bounds
	largest sql.NullInt64
}

// A column is a column of the primary key.
type column struct{ name, kind string }

// A server knows the statements of a kind of database.
type server interface {
	find(ctx context.Context, schema, name string) (*table, error) // nil if there is no such table
	read(ctx context.Context, t *table) error                      // its key and partitions
	isBy(t *table) bool                                            // whether it is partitioned by ranges of its key
	quote(t *table) string

	convert(ctx context.Context, t *table, s *Step) error
	create(t *table, s *Step)
	drop(t *table, p part, s *Step)
}

// Steps returns the changes that a table needs. It only reads.
func Steps(ctx context.Context, db *sqldb.DB, layout generator.Layout, r Request) ([]Step, error) {
	list, err := steps(ctx, db, layout, r)
	if err != nil {
		return nil, fmt.Errorf("partitions of %s: %w", r.Table, err)
	}
	return list, nil
}

func steps(ctx context.Context, db *sqldb.DB, layout generator.Layout, r Request) ([]Step, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	var s server
	switch dialect := db.Dialect(); dialect {
	case "postgres":
		s = &postgres{db}
	case "mysql":
		s = &mysql{db}
	default:
		return nil, fmt.Errorf("tables cannot be partitioned on the dialect %q; MySQL, MariaDB and PostgreSQL can: %w",
			dialect, errors.ErrUnsupported)
	}
	t, err := find(ctx, s, r.Table)
	if err != nil {
		return nil, err
	}
	if r.Now.IsZero() {
		r.Now = t.now
	}
	if err := layout.ValidAt(r.Now); err != nil {
		return nil, err
	}
	if err := s.read(ctx, t); err != nil {
		return nil, err
	}
	slices.SortFunc(t.parts, func(a, b part) int { return cmp.Compare(a.below, b.below) })
	if err := t.check(s, layout, r.Now); err != nil {
		return nil, err
	}
	return t.steps(ctx, s, layout, r)
}

func (t *table) steps(ctx context.Context, s server, layout generator.Layout, r Request) ([]Step, error) {
	parts := slices.Clone(t.parts)
	_, postgres := s.(*postgres)
	if postgres { // there a partition is a table, so its name begins with the partitioned table's name to be unique
		for i := range parts {
			parts[i].name = strings.TrimPrefix(parts[i].name, t.name+"_")
		}
	}
	list, err := r.changes(layout, t.by != "", parts)
	if err != nil {
		return nil, err
	}
	for i := range list {
		step := &list[i]
		j := slices.IndexFunc(parts, func(p part) bool { return p.name == step.Partition })
		if postgres && (j < 0 || t.parts[j].name != parts[j].name) {
			step.Partition = t.name + "_" + step.Partition
		}
		switch step.Action {
		case Convert:
			if t.largest.Valid && t.largest.Int64 >= step.Below {
				return nil, fmt.Errorf("its largest %s, %d, has a time after the end of the first partition, %s",
					t.key[0].name, t.largest.Int64, step.End.Format(time.DateTime))
			}
			err = s.convert(ctx, t, step)
		case Create:
			s.create(t, step)
		case Drop:
			s.drop(t, t.parts[j], step)
		}
		if err == nil && postgres && len(step.Partition) > mostName {
			err = fmt.Errorf("the name %s is longer than %d bytes; PostgreSQL would cut it off", step.Partition, mostName)
		}
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

// find returns the table with a name. A dot separates a schema, or is a part of the name.
func find(ctx context.Context, s server, name string) (*table, error) {
	t, err := s.find(ctx, "", name)
	for i := range name {
		if t != nil || err != nil {
			break
		}
		if name[i] == '.' && i > 0 {
			t, err = s.find(ctx, name[:i], name[i+1:])
		}
	}
	if err == nil && t == nil {
		err = errors.New("the table does not exist in this database, or this user may not see it")
	}
	return t, err
}

// check returns an error if the table cannot be partitioned by its key.
func (t *table) check(s server, layout generator.Layout, now time.Time) error {
	const other = "it can only be partitioned by ranges of a primary key that is a single column with ids"
	switch {
	case len(t.key) == 0:
		return errors.New("it has no primary key; " + other)
	case len(t.key) > 1 && t.by == "":
		names := make([]string, len(t.key))
		for i, c := range t.key {
			names[i] = c.name
		}
		return fmt.Errorf("its primary key has %d columns (%s); %s", len(t.key), strings.Join(names, ", "), other)
	case t.by != "" && !s.isBy(t):
		return fmt.Errorf("it is partitioned by %s; %s", t.by, other)
	case !strings.HasPrefix(strings.ToLower(t.key[0].kind), "bigint"):
		return fmt.Errorf("its key %s is %s, but ids are bigint; %s", t.key[0].name, t.key[0].kind, other)
	case !t.largest.Valid:
		return nil
	}
	largest := timeOf(layout, t.largest.Int64)
	// Numbers of a sequence are so small that, read as ids, they have a time soon after the epoch.
	if largest.IsZero() || largest.Sub(layout.Epoch) < now.Sub(layout.Epoch)/1000 {
		return fmt.Errorf("its largest %s is %d, which is not an id of the layout %s, so its keys have no time",
			t.key[0].name, t.largest.Int64, layout)
	}
	return nil
}

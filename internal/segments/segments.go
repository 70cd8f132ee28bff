// wing: segment

// Package segments opens a segment for each column whose tag names the generator "segment".
package segments

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"regexp"
	"sync"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/supply"
	"github.com/uidplugin/uidplugin/segment"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// Name is the name of the generator in tags.
const Name = "segment"

// Spec returns the Spec of the generator with the configuration c, which the named option has set.
func Spec(option string, c segment.Config) supply.Spec {
	return supply.Spec{Counter: true, Option: option, Check: c.Validate, Bind: func(s *supply.Supply, spec *supply.Spec) {
		o := &opener{Supply: s, config: c, tables: map[string]*tableSegment{}}
		spec.Open, spec.Within = o.open, o.within
	}}
}

// An opener opens the segments of one plugin.
type opener struct {
	*supply.Supply
	config segment.Config

	mu     sync.Mutex
	tables map[string]*tableSegment // by canonical column name
}

// A tableSegment is the segment of one column. All models of the table share it.
type tableSegment struct {
	mu  sync.Mutex         // held while opening
	g   *segment.Generator // nil until open
	tag string             // of g
}

// open returns the generator for the column of an opening.
func (o *opener) open(ctx context.Context, opening supply.Opening) (generator.Generator, error) {
	if o.Manager != nil && o.Manager.Registry().Region != workernode.Whole {
		return nil, fmt.Errorf("%w: the generator %s numbers the rows of this database from 1, and so does each other region: use another generator,"+
			" or, if only one region inserts into the table, WithSource and segment.Open", supply.ErrOption, Name)
	}
	name, err := o.ColumnName(ctx, opening.Table, opening.Column)
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	shared := o.tables[name]
	if shared == nil {
		shared = &tableSegment{}
		o.tables[name] = shared
	}
	o.mu.Unlock()

	tag := cmp.Or(opening.Columns[0].Tag, name)
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.g != nil {
		if shared.tag != tag {
			return nil, supply.TwoTags(shared.tag, tag)
		}
		return limitedSegment{shared.g}, nil
	}
	config, err := o.configOf(ctx, opening.Table, opening.Columns)
	if err != nil {
		return nil, err
	}
	g, err := segment.Open(ctx, o.Registry, tag, config)
	if err != nil {
		return nil, err
	}
	shared.g, shared.tag = g, tag
	return limitedSegment{g}, nil
}

// errNoFetch ends the wait of a create whose transaction keeps the next range from being fetched.
var errNoFetch = fmt.Errorf("%w: the ranges in memory are used up, and this transaction keeps the next one from being fetched:"+
	" set segment.Config.Step to twice the rows of a transaction, or create the rows outside of one", generator.ErrSource)

type fetchWaitKey struct{}

// within returns the context for ids of a statement on pool. It limits the wait for the next range if the
// statement's transaction keeps the range from being fetched.
func (o *opener) within(ctx context.Context, pool gorm.ConnPool) context.Context {
	if o.Registry != o.DB || !sqldb.HoldsConnection(pool) {
		return ctx
	}
	if o.DB.Dialector.Name() != "sqlite" {
		if root, err := o.DB.DB(); err != nil || root == nil || root.Stats().MaxOpenConnections != 1 {
			return ctx
		}
	}
	// A wait of a moment may help, because a fetch may be running already. On SQLite a fetch can also begin, if the
	// transaction has only read so far.
	return context.WithValue(ctx, fetchWaitKey{}, min(time.Second, o.Timeout))
}

// A limitedSegment waits for a range no longer than opener.within allows.
type limitedSegment struct{ *segment.Generator }

func (g limitedSegment) Next(ctx context.Context) (int64, error) {
	wait, ok := ctx.Value(fetchWaitKey{}).(time.Duration)
	if !ok {
		return g.Generator.Next(ctx)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, wait, errNoFetch)
	defer cancel()
	id, err := g.Generator.Next(ctx)
	return id, reason(ctx, err)
}

func (g limitedSegment) Fill(ctx context.Context, ids []int64) error {
	wait, ok := ctx.Value(fetchWaitKey{}).(time.Duration)
	if !ok {
		return g.Generator.Fill(ctx, ids)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, wait, errNoFetch)
	defer cancel()
	return reason(ctx, g.Generator.Fill(ctx, ids))
}

// reason returns errNoFetch if it has ended ctx, and otherwise err.
func reason(ctx context.Context, err error) error {
	if errors.Is(err, context.DeadlineExceeded) && context.Cause(ctx) == errNoFetch {
		return errNoFetch
	}
	return err
}

// configOf returns the segment configuration for columns of a table.
func (o *opener) configOf(ctx context.Context, table string, columns []supply.Column) (segment.Config, error) {
	config := o.config
	if config.Now == nil {
		config.Now = o.Now
	}
	config.Log = o.Logger(config.Log)
	config.MaxWait = cmp.Or(config.MaxWait, o.Timeout)
	config.Timeout = cmp.Or(config.Timeout, o.Timeout)
	config.Schema = cmp.Or(config.Schema, o.Schema)
	config.Description = cmp.Or(config.Description, "keys of the table, by uidplugin")
	config.Lift = columns[0].Tag == "" // then the counter is named after the table or column, and only uidplugin uses it
	for _, c := range columns {
		largest, err := o.largestKey(ctx, table, c)
		if err != nil {
			return config, err
		}
		if largest == math.MaxInt64 {
			return config, fmt.Errorf("%w: the largest value of %s.%s is %d, so no ids are left", segment.ErrExhausted, table, c.Name, largest)
		}
		config.Used = max(config.Used, largest)
	}
	return config, nil
}

// largestKey returns the largest value of a column, or 0 if the column is empty or does not exist yet.
func (o *opener) largestKey(ctx context.Context, table string, c supply.Column) (int64, error) {
	value := sqldb.Quoted(o.DB.Dialector, c.Name)
	if c.Text {
		value = numberInText(value, o.DB.Dialector.Name())
	}
	largest, err := numberOf(ctx, o.DB.ConnPool, "SELECT MAX("+value+") FROM "+sqldb.Quoted(o.DB.Dialector, table))
	if err == nil || noSuchColumn(err) {
		return max(largest.Int64, 0), nil
	}
	return 0, fmt.Errorf("uidplugin: look for the largest %s of %s, above which its ids begin: %w", c.Name, table, err)
}

// numberOf returns the number that a query selects. It avoids QueryRowContext, because the Row of GORM's
// PrepareStmt panics if the statement could not be prepared, for example because the table does not exist yet.
func numberOf(ctx context.Context, pool gorm.ConnPool, query string) (n sql.NullInt64, err error) {
	rows, err := pool.QueryContext(ctx, query)
	if err != nil {
		return n, err
	}
	defer func() { _ = rows.Close() }()
	if rows.Next() {
		err = rows.Scan(&n)
	}
	return n, errors.Join(err, rows.Err())
}

// numberInText returns an SQL expression that parses ids in a text column. It is NULL for other texts.
func numberInText(column, dialect string) string {
	const largest = "'9223372036854775807'"
	switch dialect {
	case "mysql":
		return "CASE WHEN " + column + " REGEXP '^[0-9]{1,19}$' AND (CHAR_LENGTH(" + column + ") < 19 OR " + column + " <= " + largest + ")" +
			" THEN CAST(" + column + " AS UNSIGNED) END"
	case "postgres":
		text := "CAST(" + column + " AS TEXT)"
		return "CASE WHEN " + text + " ~ '^[0-9]{1,19}$' AND (LENGTH(" + text + ") < 19 OR " + text + ` COLLATE "C" <= ` + largest + ")" +
			" THEN CAST(" + text + " AS BIGINT) END"
	}
	return "CASE WHEN " + column + " NOT GLOB '*[^0-9]*' AND (LENGTH(" + column + ") BETWEEN 1 AND 18 OR LENGTH(" + column + ") = 19 AND " +
		column + " <= " + largest + ") THEN CAST(" + column + " AS INTEGER) END"
}

// noSuchColumn reports whether err means a missing table or column, which AutoMigrate creates later.
func noSuchColumn(err error) bool {
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		return state.SQLState() == "42P01" || state.SQLState() == "42703"
	}
	return missing.MatchString(err.Error())
}

var missing = regexp.MustCompile(`^Error (1146|1054)\b|no such (table|column)`)

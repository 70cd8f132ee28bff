package uidplugin

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"math"
	"strings"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/migrations"
	"github.com/uidplugin/uidplugin/segment"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
	"gorm.io/gorm/schema"
)

// WithSegments configures the generator [Segment]: its table, the sizes of ranges and so
// on; see [segment.Config]. What it says of the clock and the log counts if it is set. The
// tag of a row, its biz_tag, is the name of the table whose keys come from it, with the
// column behind a dot if that is no key, and ids begin above the largest that the column
// has, or at Start if that is more. If that is an id of the layout they look like such ids,
// and Locate leads astray.
func WithSegments(s segment.Config) Option { return func(c *config) { c.segments = s } }

// openSegment returns the generator of a table whose ids come from ranges.
func openSegment(ctx context.Context, c *core, s *source) (generator.Generator, error) {
	wdb := c.wdb
	if wdb == nil { // with a fixed worker id
		var err error
		if wdb, err = workernode.Open(c.db, c.timeout); err != nil {
			return nil, err
		}
	}
	config := c.segments
	if config.Now == nil {
		config.Now = c.now
	}
	if config.Log == nil {
		config.Log = c.log
	}
	config.Log = slog.New(aloof{config.Log.Handler()})
	if config.Description == "" {
		config.Description = "keys of the table, by uidplugin"
	}
	c.mu.Lock()
	fields := s.fields
	c.mu.Unlock()
	for _, f := range fields {
		largest, err := c.largestKey(ctx, s.table, f)
		if err != nil {
			return nil, err
		}
		if largest == math.MaxInt64 {
			return nil, fmt.Errorf("%w: %s.%s has the largest id that there is, %d", segment.ErrExhausted, s.table, f.DBName, largest)
		}
		config.Start = max(config.Start, largest+1)
	}
	return segment.Open(ctx, wdb, s.tag, config)
}

// largestKey returns the largest value of a column; 0 if there is none, or no such table
// yet.
func (c *core) largestKey(ctx context.Context, table string, f *schema.Field) (int64, error) {
	var name, query strings.Builder
	c.db.Dialector.QuoteTo(&name, f.DBName)
	value := name.String()
	if t := strings.ToLower(string(f.DataType)); f.GORMDataType == schema.String || strings.Contains(t, "char") || strings.Contains(t, "text") {
		// Text has another order than numbers.
		switch c.db.Dialector.Name() {
		case "mysql":
			value = "CAST(" + value + " AS UNSIGNED)"
		case "postgres":
			value = "CASE WHEN CAST(" + value + " AS TEXT) ~ '^[0-9]{1,18}$' THEN CAST(CAST(" + value + " AS TEXT) AS BIGINT) END"
		default:
			value = "CAST(" + value + " AS INTEGER)"
		}
	}
	c.db.Dialector.QuoteTo(&query, table)
	var largest sql.NullInt64
	err := c.db.ConnPool.QueryRowContext(ctx, "SELECT MAX("+value+") FROM "+query.String()).Scan(&largest)
	if err == nil {
		return max(largest.Int64, 0), nil
	}
	if !migrations.Unreachable(err) && ctx.Err() == nil && !c.db.Session(&gorm.Session{NewDB: true, Context: ctx}).Migrator().HasTable(table) {
		return 0, nil
	}
	return 0, fmt.Errorf("uidplugin: look for the largest %s of %s, above which its ids shall begin: %w", f.DBName, table, err)
}

// aloof is a log handler that does not make anybody wait: a handler of the application may
// be code that creates rows, and wait for what logs.
type aloof struct{ slog.Handler }

func (h aloof) Handle(ctx context.Context, r slog.Record) error {
	go func() { _ = h.Handler.Handle(context.WithoutCancel(ctx), r) }()
	return nil
}

func (h aloof) WithAttrs(attrs []slog.Attr) slog.Handler { return aloof{h.Handler.WithAttrs(attrs)} }
func (h aloof) WithGroup(name string) slog.Handler       { return aloof{h.Handler.WithGroup(name)} }

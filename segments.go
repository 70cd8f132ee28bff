package uidplugin

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"regexp"
	"strings"
	"sync"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/segment"
	"gorm.io/gorm/schema"
)

// WithSegments configures the generator [Segment]: its table, the sizes of ranges and so
// on; see [segment.Config]. Now and Log default to the plugin's, MaxWait and Timeout to WithTimeout.
//
// The tag of a row, its biz_tag, is the name of the table whose keys come from it. It has
// no quotes, and no schema or database if that is the current one of the connection. It is
// in lower case where the server ignores case: on SQLite, and on MySQL if its
// lower_case_table_names is not 0. So all spellings of a table's name share one row. If the
// column is no primary key, its name follows behind a dot. Processes that insert into one
// table must therefore connect to the same schema or database.
//
// Ids begin above the largest that the column has, above the max_id of rows with another
// spelling of the tag, or at Start if that is more. If Start is an id of the layout they
// look like such ids, and Locate returns a wrong place for them.
func WithSegments(s segment.Config) Option { return func(c *config) { c.segments = s } }

// A tableSegment is the segment of one tag, which all models of the table share.
type tableSegment struct {
	mu sync.Mutex         // held while it is opened
	g  *segment.Generator // nil until it is open
}

// openSegment returns the generator of a table whose ids come from ranges.
func openSegment(ctx context.Context, c *core, s *source) (generator.Generator, error) {
	d, err := sqldb.Open(c.db, c.timeout)
	if err != nil {
		return nil, err
	}
	names, err := newNaming(ctx, d, c.db.Dialector)
	if err != nil {
		return nil, err
	}
	table, column := names.table(s.table), names.column(strings.TrimPrefix(s.tag, s.table))
	tag := table + column
	c.mu.Lock()
	shared := c.segmentOf[tag]
	if shared == nil {
		shared = &tableSegment{}
		c.segmentOf[tag] = shared
	}
	fields := s.fields
	c.mu.Unlock()

	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.g != nil {
		return shared.g, nil
	}
	config, err := c.segmentConfig(ctx, s.table, fields)
	if err != nil {
		return nil, err
	}
	config.Alias = names.alias(table, column)
	g, err := segment.Open(ctx, c.db, tag, config)
	if err != nil {
		return nil, err
	}
	shared.g = g
	return g, nil
}

// segmentConfig returns the configuration of a segment for fields of a table.
func (c *core) segmentConfig(ctx context.Context, table string, fields []*schema.Field) (segment.Config, error) {
	config := c.segments
	if config.Now == nil {
		config.Now = c.now
	}
	if config.Log == nil {
		config.Log = c.log
	}
	config.Log = slog.New(aloof{config.Log.Handler(), c})
	config.MaxWait = cmp.Or(config.MaxWait, c.timeout)
	config.Timeout = cmp.Or(config.Timeout, c.timeout)
	config.Description = cmp.Or(config.Description, "keys of the table, by uidplugin")
	for _, f := range fields {
		largest, err := c.largestKey(ctx, table, f)
		if err != nil {
			return config, err
		}
		if largest == math.MaxInt64 {
			return config, fmt.Errorf("%w: %s.%s has the largest id that there is, %d", segment.ErrExhausted, table, f.DBName, largest)
		}
		config.Start = max(config.Start, largest+1)
	}
	return config, nil
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
	if noSuchTable(err) {
		return 0, nil
	}
	return 0, fmt.Errorf("uidplugin: look for the largest %s of %s, above which its ids shall begin: %w", f.DBName, table, err)
}

// noSuchTable reports whether err, of MySQL, PostgreSQL or SQLite, says that a table does
// not exist.
func noSuchTable(err error) bool {
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		return state.SQLState() == "42P01"
	}
	return missingTable.MatchString(err.Error())
}

var missingTable = regexp.MustCompile(`^Error 1146\b|no such table`)

// aloof is a log handler that does not make anybody wait: a handler of the application may
// be code that creates rows, and wait for what logs. What is logged during db.Use comes
// after it, because GORM's registration of callbacks must not meet the creation of a row.
type aloof struct {
	slog.Handler
	core *core
}

func (h aloof) Handle(ctx context.Context, r slog.Record) error {
	go func() {
		<-h.core.initialized()
		_ = h.Handler.Handle(context.WithoutCancel(ctx), r)
	}()
	return nil
}

func (h aloof) WithAttrs(attrs []slog.Attr) slog.Handler {
	return aloof{h.Handler.WithAttrs(attrs), h.core}
}

func (h aloof) WithGroup(name string) slog.Handler { return aloof{h.Handler.WithGroup(name), h.core} }

// initialized returns a channel that is closed when the last Initialize has returned.
func (c *core) initialized() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used
}

package uidplugin

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"strings"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/segment"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"
)

// WithSegments configures the generator [Segment]: its table, the sizes of ranges and so
// on; see [segment.Config]. What it says of the clock and the log counts if it is set. The
// tag of a row, its biz_tag, is the name of the table whose keys come from it, and ids begin
// above the largest key that the table has, or at Start if that is more.
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
	return segment.Open(ctx, wdb, s.table, config)
}

// largestKey returns the largest value of a column of numbers; 0 if there is none, or no
// such table yet.
func (c *core) largestKey(ctx context.Context, table string, f *schema.Field) (int64, error) {
	if f.GORMDataType == schema.String {
		return 0, nil // text has another order
	}
	db := c.db.Session(&gorm.Session{NewDB: true, Context: ctx})
	if !db.Migrator().HasTable(table) {
		return 0, nil
	}
	var largest sql.NullInt64
	stmt := &gorm.Statement{DB: db}
	var query strings.Builder
	query.WriteString("SELECT MAX(")
	c.db.Dialector.QuoteTo(&query, f.DBName)
	query.WriteString(") FROM ")
	query.WriteString(stmt.Quote(clause.Table{Name: table}))
	if err := c.db.ConnPool.QueryRowContext(ctx, query.String()).Scan(&largest); err != nil {
		return 0, fmt.Errorf("uidplugin: look for the largest %s of %s, above which its ids shall begin: %w", f.DBName, table, err)
	}
	return max(largest.Int64, 0), nil
}

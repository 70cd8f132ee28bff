package uidplugin

import (
	"errors"
	"fmt"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"
)

// Range returns the smallest and largest id of the layout with a time at or after from and before to. Queries can use
// it to find rows by creation time with the index of their key. Both times are rounded down to the start of their tick,
// because ids contain only ticks, so a row created right after from is found. Adjacent spans do not overlap. The error
// is the same as for [generator.Layout.Range], also for a span within one tick, because no id has a time in it.
//
// An id's tick is usually its creation time to within milliseconds. It can be up to Lead later, 10 s by default, so if
// to is the present, new rows may have ids above last. The tick is earlier only if a lease ran out with ids left, as
// after an outage, or if the clocks of processes differ.
func (p *Plugin) Range(from, to time.Time) (first, last ID, err error) {
	if p == nil || p.shared == nil {
		return 0, 0, fmt.Errorf("%w: a Plugin is made by New", ErrNotRegistered)
	}
	return p.shared.locator.Load().idsBetween(from, to)
}

func (loc *locator) idsBetween(from, to time.Time) (first, last ID, err error) {
	l := loc.Layout
	tick := l.TickAt(from)
	if tick >= 0 && tick == l.TickAt(to) && tick <= l.MaxTick() && to.Round(0).After(from.Round(0)) {
		return 0, 0, fmt.Errorf("%w: no id carries a time from %s until %s: both are in one tick of %v",
			generator.ErrLayout, from.UTC().Format(time.RFC3339Nano), to.UTC().Format(time.RFC3339Nano), l.Tick)
	}
	low, high, err := l.Range(tickStart(l, from), tickStart(l, to))
	return ID(low), ID(high), err
}

// tickStart returns the start of t's tick, or t itself if it is outside the layout.
func tickStart(l generator.Layout, t time.Time) time.Time {
	if tick := l.TickAt(t); tick >= 0 && tick <= l.MaxTick() {
		return l.TimeOf(tick)
	}
	return t
}

// CreatedBetween returns a scope for queries that selects rows whose key has a time at or after from and before to.
// Both are rounded down to the start of their tick, as for Range. If the key is not a uid field, the first uid field is
// used. A span within one tick selects nothing.
//
//	db.Scopes(uidplugin.From(db).CreatedBetween(from, to)).Find(&orders)
//
// If to is the present or later when the query runs, the scope does not have an upper bound. The reason is Lead: ids
// may be stamped that far ahead, 10 s by default. So CreatedBetween(hourAgo, now) finds a row created a millisecond
// ago, and the next span may find the row again. The present includes the last second of the generators' clock, or the
// last tick if that is longer.
//
// A span that ends in the past misses rows that were created in it and stamped after it. If that matters, end the span
// Lead later, and compare a column of the row.
//
// The query's error wraps [ErrNoField], [ErrNotDecodable] for ids that do not have the layout, or [ErrField] for text
// keys. Otherwise it is the error of Range.
func (p *Plugin) CreatedBetween(from, to time.Time) func(*gorm.DB) *gorm.DB {
	return func(db *gorm.DB) *gorm.DB {
		if err := p.between(db, from, to); err != nil {
			_ = db.AddError(err)
		}
		return db
	}
}

func (p *Plugin) between(db *gorm.DB, from, to time.Time) error {
	s, err := p.initialized()
	if err != nil {
		return err
	}
	loc := s.locator.Load()
	model := db.Statement.Model
	if model == nil {
		model = db.Statement.Dest
	}
	plan, f, err := s.catalog.KeyOf(p.db, model)
	if errors.Is(err, schema.ErrUnsupportedDataType) { // because GORM's error shows the address of model
		return fmt.Errorf("uidplugin: CreatedBetween needs the model of the query: add Model(&T{}): %w: %T",
			schema.ErrUnsupportedDataType, model)
	}
	if err != nil {
		return err
	}
	switch {
	case f.Source.Foreign:
		maker := "the generator " + f.Source.Generator
		if loc.Test != nil && loc.Test.Table == nil {
			maker = loc.Test.Name
		}
		return fmt.Errorf("%w: CreatedBetween needs a time in the ids, and those of %s have none because they come from %s",
			ErrNotDecodable, plan.Schema.Table, maker)
	case f.Text || f.GORMDataType == "string":
		return fmt.Errorf("%w %s.%s is text, which has another order than ids", ErrField, plan.Schema.Name, f.Name)
	}
	if tick := loc.Layout.TickAt(from); tick >= 0 && tick <= loc.Layout.MaxTick() && tick == loc.Layout.TickAt(to) && !to.Round(0).Before(from.Round(0)) {
		db.Where("1 = 0") // no id carries a time in the span
		return nil
	}
	past := loc.isPast(to)
	if !past && to.Round(0).After(from.Round(0)) {
		to = loc.Layout.Expires()
	}
	first, last, err := loc.idsBetween(from, to)
	if err != nil {
		return err
	}
	column := clause.Column{Table: clause.CurrentTable, Name: f.DBName}
	conditions := []clause.Expression{clause.Gte{Column: column, Value: first}}
	if past {
		conditions = append(conditions, clause.Lte{Column: column, Value: last})
	}
	db.Where(clause.And(conditions...))
	return nil
}

// isPast reports whether t is before the present. The present spans a second, or a tick if that is longer, because
// callers take the time before their query runs. We use the earlier of the generators' clock and the process's, which
// may have been set back.
func (loc *locator) isPast(t time.Time) bool {
	now := loc.time()
	if wall := loc.Now(); wall.Before(now) {
		now = wall
	}
	return t.Before(now.Add(-max(loc.Layout.Tick, time.Second)))
}

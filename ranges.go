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

// Range returns the smallest and the largest id of the layout that carries a time from from on and before to. With it a
// query finds rows by the time of their creation, using the index of their key. Both times are rounded down to the
// start of their tick, because an id carries the start of its tick. So a row that is created right after from is found.
// Adjacent spans do not overlap. The error is that of [generator.Layout.Range]; a span within one tick is empty.
//
// An id carries the tick that it was stamped with. That is the time when it was made, to some milliseconds, or later:
// an id may be stamped up to Lead ahead, 10 s by default. So the ids of new rows can be above last if to is the
// present. The tick is earlier in two cases only. A lease may have run out with ids left, as after an outage, or the
// clocks of processes differ.
func (p *Plugin) Range(from, to time.Time) (first, last ID, err error) {
	if p == nil || p.shared == nil {
		return 0, 0, fmt.Errorf("%w: a Plugin is made by New", ErrNotRegistered)
	}
	return p.shared.locator.Load().idsBetween(from, to)
}

// idsBetween is Range.
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

// tickStart returns the start of the tick of t, or t if it is outside of the layout.
func tickStart(l generator.Layout, t time.Time) time.Time {
	if tick := l.TickAt(t); tick >= 0 && tick <= l.MaxTick() {
		return l.TimeOf(tick)
	}
	return t
}

// CreatedBetween returns a scope for queries. It selects rows whose key carries a time from from on and before to, both
// rounded down to the start of their tick, as Range says. If the key is no uid field, the first uid field counts.
//
//	db.Scopes(uidplugin.From(db).CreatedBetween(from, to)).Find(&orders)
//
// If to is the present or later when the query runs, the scope has no upper bound. The reason is that an id may be
// stamped up to Lead ahead, 10 s by default. So CreatedBetween(hourAgo, now) finds a row that was created a millisecond
// ago. The present begins a second before the clock of the generators, or a tick if that is longer. A span that follows
// finds a row again that is stamped ahead. A span within one tick has no rows.
//
// A span that ends in the past misses rows that were created in it and stamped after it. Where that matters, let it end
// Lead later, and compare a column of the row.
//
// The error of the query wraps [ErrNoField], [ErrNotDecodable] for ids that are not of the layout, or [ErrField] for a
// key that is text. Otherwise it is that of Range.
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
	plan, f, err := s.catalog.keyOf(p.db, model)
	if errors.Is(err, schema.ErrUnsupportedDataType) { // GORM's error has the address of model
		return fmt.Errorf("uidplugin: CreatedBetween needs the model of the query: add Model(&T{}): %w: %T",
			schema.ErrUnsupportedDataType, model)
	}
	if err != nil {
		return err
	}
	switch {
	case f.source.Foreign:
		maker := "the generator " + f.source.Generator
		if loc.Test != nil && loc.Test.Table == nil {
			maker = loc.Test.Name
		}
		return fmt.Errorf("%w: CreatedBetween needs a time in the ids, and those of %s have none because they come from %s",
			ErrNotDecodable, plan.Schema.Table, maker)
	case f.Text || f.GORMDataType == "string":
		return fmt.Errorf("%w %s.%s is text, which has another order than ids", ErrField, plan.Schema.Name, f.Name)
	}
	if tick := loc.Layout.TickAt(from); tick >= 0 && tick <= loc.Layout.MaxTick() && tick == loc.Layout.TickAt(to) && !to.Round(0).Before(from.Round(0)) {
		db.Where("1 = 0") // no id has a time of the span
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

// isPast reports whether t is before the present, which lasts a second, or a tick: a caller
// takes the time before its query runs. Of the clock of the generators and that of the
// process, which may have been set back, the earlier one counts.
func (loc *locator) isPast(t time.Time) bool {
	now := loc.time()
	if wall := loc.Now(); wall.Before(now) {
		now = wall
	}
	return t.Before(now.Add(-max(loc.Layout.Tick, time.Second)))
}

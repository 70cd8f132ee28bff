package lookup

import (
	"errors"
	"fmt"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/model"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"
)

// Range returns the smallest and the largest id with a time in [from, to). It rounds from and to down to ticks.
func (loc *Locator) Range(from, to time.Time) (first, last int64, err error) {
	l := loc.Layout
	tick := l.TickAt(from)
	if tick >= 0 && tick == l.TickAt(to) && tick <= l.MaxTick() && to.Round(0).After(from.Round(0)) {
		return 0, 0, fmt.Errorf("%w: no id carries a time from %s until %s: both are in one tick of %v",
			generator.ErrLayout, from.UTC().Format(time.RFC3339Nano), to.UTC().Format(time.RFC3339Nano), l.Tick)
	}
	return l.Range(tickStart(l, from), tickStart(l, to))
}

// tickStart returns the start of t's tick, or t itself if it is outside the layout.
func tickStart(l generator.Layout, t time.Time) time.Time {
	if tick := l.TickAt(t); tick >= 0 && tick <= l.MaxTick() {
		return l.TimeOf(tick)
	}
	return t
}

// Between restricts the query db to rows whose key has a time in [from, to), rounded as for Range. If to is not
// past, there is no upper bound. handle is the plugin's own handle, which parses the model of the query.
func (loc *Locator) Between(handle, db *gorm.DB, from, to time.Time) error {
	dest := db.Statement.Model
	if dest == nil {
		dest = db.Statement.Dest
	}
	plan, f, err := loc.Catalog.KeyOf(handle, dest)
	if errors.Is(err, schema.ErrUnsupportedDataType) { // not GORM's error, which shows the address of the model
		return fmt.Errorf("uidplugin: CreatedBetween needs the model of the query: add Model(&T{}): %w: %T",
			schema.ErrUnsupportedDataType, dest)
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
		return fmt.Errorf("%w: CreatedBetween needs a time in the ids, and the ids of %s have none because they come from %s",
			ErrNotDecodable, plan.Schema.Table, maker)
	case f.Text || f.GORMDataType == "string":
		return fmt.Errorf("%w %s.%s is text, which has another order than ids", model.ErrField, plan.Schema.Name, f.Name)
	}
	if tick := loc.Layout.TickAt(from); tick >= 0 && tick <= loc.Layout.MaxTick() && tick == loc.Layout.TickAt(to) && !to.Round(0).Before(from.Round(0)) {
		db.Where("1 = 0") // no id carries a time in the span
		return nil
	}
	past := loc.isPast(to)
	if !past && to.Round(0).After(from.Round(0)) {
		to = loc.Layout.Expires()
	}
	first, last, err := loc.Range(from, to)
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

// isPast reports whether t was more than a second ago, or more than a tick if that is longer, because callers read
// the clock before their query runs. It takes the earlier of the generators' clock and the clock of this process,
// because callers read the clock of the process, which may have been set back.
func (loc *Locator) isPast(t time.Time) bool {
	now := loc.Clock()
	if wall := loc.Now(); wall.Before(now) {
		now = wall
	}
	return t.Before(now.Add(-max(loc.Layout.Tick, time.Second)))
}

package uidplugin

import (
	"fmt"
	"time"

	"gorm.io/gorm"
)

// Range returns the smallest and largest id of the layout whose time t has from <= t < to. With them queries can find
// rows by creation time, using the index of the key. Both times are rounded down to the start of a tick, because
// ids contain only ticks. So a row created just after the span begins is found. Adjacent spans do not overlap. The
// error is that of [generator.Layout.Range]. A span within one tick is an error, because rounding makes it empty.
//
// An id's tick is usually its creation time to within milliseconds. It can be up to Lead later, 10 s by default. So if
// the span ends at the present, the newest rows may have ids above its last id. The tick is earlier only if a lease
// ran out before all its ids were used, as after an outage, or if the clocks of processes differ.
func (p *Plugin) Range(from, to time.Time) (first, last ID, err error) {
	if p == nil || p.shared == nil {
		return 0, 0, fmt.Errorf("%w: a Plugin is made by New", ErrNotRegistered)
	}
	low, high, err := p.shared.locator.Load().Range(from, to)
	return ID(low), ID(high), err
}

// CreatedBetween returns a scope for queries that selects rows whose key has a time t with from <= t < to. Both times
// are rounded down to the start of their tick, as for Range. If the key is not a uid field, the first uid field is
// used. A span within one tick selects nothing.
//
//	db.Scopes(uidplugin.From(db).CreatedBetween(from, to)).Find(&orders)
//
// If the span ends at the present or later when the query runs, the scope does not have an upper bound. The reason is
// Lead: ids may be stamped that far ahead, 10 s by default. So CreatedBetween(hourAgo, now) finds a row created a
// millisecond ago, and the next span may find the row again. The last second counts as the present, or the last
// tick if a tick is longer.
//
// A span that ends in the past misses rows that were created in it and stamped after it. If that matters, end the span
// Lead later, and add a condition on a column with the creation time.
//
// The query's error wraps [ErrNoField], [ErrNotDecodable] for ids that do not have the layout, or [ErrField] for
// text keys. Otherwise it is the error of Range, or GORM's for a query without a model.
func (p *Plugin) CreatedBetween(from, to time.Time) func(*gorm.DB) *gorm.DB {
	return func(db *gorm.DB) *gorm.DB {
		if err := p.between(db, from, to); err != nil {
			_ = db.AddError(err)
		}
		return db
	}
}

func (p *Plugin) between(db *gorm.DB, from, to time.Time) error {
	loc, err := p.located()
	if err != nil {
		return err
	}
	return loc.Between(p.db, db, from, to)
}

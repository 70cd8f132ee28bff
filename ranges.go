package uidplugin

import (
	"fmt"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// Range returns the smallest and the largest id of the layout that bears a time from
// from on and before to: rows can be found by when they were made, with the index of
// their key. The error is that of [generator.Layout.Range].
//
// What an id bears is the tick that it was stamped with. That is when it was made, to some
// milliseconds, or later: a process that has just started stamps ids up to 10 s ahead, one
// that makes them faster than its worker ids count them up to 20 s, or as far as
// WithMaxBorrow in the durable mode; so a span that ends now may miss the latest rows. It
// is earlier only where a lease ran out and had ids left, as after an outage, or by what the
// clocks of processes differ.
func (p *Plugin) Range(from, to time.Time) (first, last int64, err error) {
	if p == nil || p.core == nil {
		return 0, 0, fmt.Errorf("%w: a Plugin is made by New", ErrNotRegistered)
	}
	return p.core.layout.Range(from, to)
}

// CreatedBetween returns a scope for queries: rows of the model whose key, if that is a uid
// field, else first uid field, bears a time from from on and before to, as Range says:
//
//	db.Scopes(uidplugin.From(db).CreatedBetween(from, to)).Find(&orders)
//
// The error of the query wraps [ErrNoField], [ErrNotDecodable] for ids that are not of the
// layout, [ErrField] for a key that is text, or is that of Range.
func (p *Plugin) CreatedBetween(from, to time.Time) func(*gorm.DB) *gorm.DB {
	return func(db *gorm.DB) *gorm.DB {
		if err := p.between(db, from, to); err != nil {
			_ = db.AddError(err)
		}
		return db
	}
}

func (p *Plugin) between(db *gorm.DB, from, to time.Time) error {
	c, err := p.ready()
	if err != nil {
		return err
	}
	model := db.Statement.Model
	if model == nil {
		model = db.Statement.Dest
	}
	s, err := parse(p.db, model)
	if err != nil {
		return err
	}
	plan := c.plan(s)
	if plan.err != nil {
		return plan.err
	}
	f, err := plan.key(model)
	if err != nil {
		return err
	}
	switch {
	case f.source.open:
		return fmt.Errorf("%w: those of %s come from the generator %s, and bear no time", ErrNotDecodable, s.Table, f.source.kind)
	case f.text || f.GORMDataType == "string":
		return fmt.Errorf("%w %s.%s is text, which has another order than ids", ErrField, s.Name, f.Name)
	}
	first, last, err := c.layout.Range(from, to)
	if err != nil {
		return err
	}
	column := clause.Column{Table: clause.CurrentTable, Name: f.DBName}
	db.Where(clause.And(clause.Gte{Column: column, Value: first}, clause.Lte{Column: column, Value: last}))
	return nil
}

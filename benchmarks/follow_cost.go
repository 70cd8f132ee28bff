// wing: follow

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/follow"
	"github.com/uidplugin/uidplugin/generator"
	"gorm.io/gorm"
)

// Cost compares inserts into a followed table, which has a trigger, with inserts into a table that has none.
type Cost struct {
	Kind    string
	Ratio   Figure // of the time with the trigger to the time without it: median, least and greatest of all runs
	Without Figure // ms of a statement
}

// costs are the kinds of inserts, with their goals.
var costs = []struct {
	name   string
	calls  int // inserts in each round; 0 means a single round, with one insert into an empty table
	goal   float64
	insert func(c *costly) error
}{
	{"INSERT, autocommit", 40, 1.15, (*costly).autocommit},
	{"Create in its own transaction", 20, 1.4, (*costly).create},
	{"Create of 1,000 rows", 1, 1.5, (*costly).batch},
	{"INSERT ... SELECT", 0, 0, (*costly).bulk},
}

// A costly is a table into which rows are inserted.
type costly struct {
	db, auto  *gorm.DB // auto is db without GORM's transactions
	table     string
	one, many func(db *gorm.DB) error
}

type (
	without struct{}
	with    struct{}
)

func newCostly[A any](db *gorm.DB, rows int) *costly {
	type row = followedRow[uidplugin.ID, A]
	auto := db.Session(&gorm.Session{SkipDefaultTransaction: true})
	c := &costly{db: db, auto: auto, table: row{}.TableName()}
	c.one = func(db *gorm.DB) error { return db.Create(&row{Text: "a text of some length"}).Error }
	many := min(1000, rows)
	c.many = func(db *gorm.DB) error {
		all := make([]row, many)
		for i := range all {
			all[i].Text = "a text of some length"
		}
		return db.Create(&all).Error
	}
	return c
}

func (c *costly) autocommit() error { return c.one(c.auto) }
func (c *costly) create() error     { return c.one(c.db) }
func (c *costly) batch() error      { return c.many(c.db) }

// bulk inserts rows whose ids have worker ids that no process has.
func (c *costly) bulk() error {
	layout := generator.DefaultLayout()
	id, err := layout.Compose(generator.Parts{Time: time.Now(), WorkerID: layout.MaxWorkerID() / 2})
	if err != nil {
		return err
	}
	return c.db.Exec("INSERT INTO "+c.table+" (id, text) SELECT ? + n, 'a text of some length' FROM numbers", id).Error
}

// empty empties the table, so that each bulk insert finds it in the same state.
func (c *costly) empty() error {
	statement := "TRUNCATE TABLE "
	if c.db.Name() == "sqlite" {
		statement = "DELETE FROM "
	}
	return c.db.Exec(statement + c.table).Error
}

// A sourceNumber is a row of the table "numbers", from which INSERT ... SELECT makes its rows.
type sourceNumber struct {
	N int64 `gorm:"primaryKey;autoIncrement:false"`
}

// TableName implements GORM's Tabler.
func (sourceNumber) TableName() string { return "numbers" }

func fillNumbers(db *gorm.DB, n int) error {
	if err := db.AutoMigrate(&sourceNumber{}); err != nil {
		return err
	}
	all := make([]sourceNumber, n)
	for i := range all {
		all[i].N = int64(i + 1)
	}
	return db.CreateInBatches(all, 1000).Error
}

// measureCosts compares inserts into a table with the trigger and into one without it.
func (f *Followed) measureCosts(ctx context.Context, l *Lab, db *gorm.DB) (err error) {
	if err := fillNumbers(db, l.FollowBulk); err != nil {
		return err
	}
	models := []any{&followedRow[uidplugin.ID, without]{}, &followedRow[uidplugin.ID, with]{}}
	if err := db.AutoMigrate(models...); err != nil {
		return err
	}
	p, err := use(db, uidplugin.WithModels(models...))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closePlugin(p)) }()
	if err := follow.Enable(ctx, db, models[1], follow.WithSlack(time.Minute)); err != nil {
		return err
	}
	pair := []*costly{newCostly[without](db, l.FollowBulk), newCostly[with](db, l.FollowBulk)}
	ratios, base := make([][]float64, len(costs)), make([][]float64, len(costs))
	for range l.FollowRuns {
		for i, kind := range costs {
			var contestants []contestant
			for _, c := range pair {
				contestants = append(contestants, timed(max(1, kind.calls), func() error { return kind.insert(c) }))
			}
			rounds := l.FollowRounds
			if kind.calls == 0 {
				rounds = 1
				if err := errors.Join(pair[0].empty(), pair[1].empty()); err != nil {
					return err
				}
			}
			figures, err := interleave(ctx, rounds, contestants, func(int) {})
			if err != nil {
				return fmt.Errorf("%s: %w", kind.name, err)
			}
			ratios[i] = append(ratios[i], figures[1].Median/figures[0].Median)
			base[i] = append(base[i], figures[0].Median/1000)
		}
	}
	for i, kind := range costs {
		ratio := Figure{Median: quantile(ratios[i], 0.5), Low: quantile(ratios[i], 0), High: quantile(ratios[i], 1)}
		f.Costs = append(f.Costs, Cost{kind.name, ratio, figureOf(base[i])})
	}
	return nil
}

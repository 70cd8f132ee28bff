// wing: follow

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/follow"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"golang.org/x/sync/errgroup"
	"gorm.io/gorm"
)

// Consumed are the figures of consumers on one engine.
type Consumed struct {
	Engine  string
	Rates   []Figure  // rows a second, of each contestant
	Delay   Delay     // until the handler has the row
	Holder  float64   // statements a second of the process that works, while no rows come
	Standby []float64 // the same for each process that stands by
	Reads   int       // statements on the followed table, of all processes that stand by
}

// The goals: how many times as fast as single rows batches are, and the statements of a standby in a second.
const goalBatch, goalStandby = 10, 1

type consumedRow = followedRow[uidplugin.ID, slack200]

// A consumedEffect is what a handler writes for a row.
type consumedEffect struct {
	N     int64 `gorm:"primaryKey;autoIncrement"`
	RowID uidplugin.ID
}

// A handCursor is the cursor of consumeByHand.
type handCursor struct {
	Name   string `gorm:"primaryKey;size:100"`
	LastID uidplugin.ID
}

// consumers are the contestants. In each transaction, run passes the rows that it handles to the function handled.
var consumers = []struct {
	title string
	run   func(ctx context.Context, db *gorm.DB, name string, handled func(...*consumedRow)) error
}{
	{"Consume", func(ctx context.Context, db *gorm.DB, name string, handled func(...*consumedRow)) error {
		return follow.Consume(ctx, db, name, func(tx *gorm.DB, row *consumedRow) error {
			handled(row)
			return tx.Create(&consumedEffect{RowID: row.ID}).Error
		})
	}},
	{"ConsumeBatch(100)", func(ctx context.Context, db *gorm.DB, name string, handled func(...*consumedRow)) error {
		return follow.ConsumeBatch(ctx, db, name, 100, func(tx *gorm.DB, rows []*consumedRow) error {
			handled(rows...)
			effects := make([]consumedEffect, len(rows))
			for i, row := range rows {
				effects[i].RowID = row.ID
			}
			return tx.Create(&effects).Error
		})
	}},
	{"a loop by hand", consumeByHand},
}

var errOtherProcess = errors.New("another process was faster")

// consumeByHand handles each row in a transaction that also moves the cursor.
func consumeByHand(ctx context.Context, db *gorm.DB, name string, handled func(...*consumedRow)) error {
	cursor := handCursor{Name: name}
	if err := db.FirstOrCreate(&cursor, cursor).Error; err != nil {
		return err
	}
	for row, err := range follow.Rows[consumedRow](ctx, db, cursor.LastID) {
		if err != nil {
			return err
		}
		err = db.WithContext(context.WithoutCancel(ctx)).Transaction(func(tx *gorm.DB) error {
			set := tx.Model(&cursor).Where("last_id = ?", cursor.LastID).Update("last_id", row.ID)
			if set.Error != nil || set.RowsAffected == 0 {
				return cmp.Or(set.Error, errOtherProcess)
			}
			handled(row)
			return tx.Create(&consumedEffect{RowID: row.ID}).Error
		})
		if err != nil {
			return err
		}
		cursor.LastID = row.ID
	}
	return ctx.Err()
}

// measureConsume measures all engines and SQLite.
func measureConsume(ctx context.Context, l *Lab) (all []Consumed, err error) {
	with := *l
	if !slices.Contains(l.Engines, "sqlite") {
		with.Engines = append(slices.Clone(l.Engines), "sqlite")
	}
	err = with.eachServer(ctx, "consume", "", func(string) []string { return nil }, func(s *Server) error {
		c := Consumed{Engine: s.Title}
		err := s.with(func(quiet *testkit.Database, db *gorm.DB) error {
			return c.measure(ctx, l, s, quiet, db)
		})
		all = append(all, c)
		return err
	})
	return all, err
}

// measure measures rates and delay. Meanwhile consumers of the database quiet become idle, and are measured last.
func (c *Consumed) measure(ctx context.Context, l *Lab, s *Server, quiet *testkit.Database, db *gorm.DB) (err error) {
	idle, stop := context.WithCancel(ctx)
	var group errgroup.Group
	defer func() { stop(); err = errors.Join(err, group.Wait()) }()
	p, err := consumedIn(ctx, db)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closePlugin(p)) }()
	var wires []*testkit.Wire
	for range 9 {
		wire := &testkit.Wire{}
		db, err := wire.Connect(quiet.Engine, quiet.DSN())
		if err != nil {
			return err
		}
		p, err := use(db) // without models, so that the plugin renews no worker ids
		if err != nil {
			return errors.Join(err, testkit.Close(db))
		}
		group.Go(func() error {
			err := consumers[0].run(idle, db, "idle", func(...*consumedRow) {})
			if idle.Err() != nil {
				err = nil
			}
			return errors.Join(err, closePlugin(p), testkit.Close(db))
		})
		wires = append(wires, wire)
	}
	begun := time.Now()
	l.Say("consume: %s, rates and delay", s.Title)
	for _, measure := range []func(context.Context, *Lab, *gorm.DB) error{c.measureRates, c.measureDelay} {
		if err := s.with(func(_ *testkit.Database, db *gorm.DB) error { return measure(ctx, l, db) }); err != nil {
			return err
		}
	}
	l.Say("consume: %s, idle", s.Title)
	if err := sleep(ctx, time.Until(begun.Add(l.Idle))); err != nil {
		return err
	}
	return c.measureIdle(ctx, l, wires)
}

// consumedIn creates the tables, and calls follow.Enable.
func consumedIn(ctx context.Context, db *gorm.DB) (*uidplugin.Plugin, error) {
	if err := db.AutoMigrate(&consumedRow{}, &consumedEffect{}, &handCursor{}); err != nil {
		return nil, err
	}
	p, err := use(db, uidplugin.WithModels(&consumedRow{}))
	if err == nil {
		err = follow.Enable(ctx, db, &consumedRow{}, follow.WithSlack(slacks["slack200"]))
	}
	return p, err
}

// measureRates lets the contestants handle the rows of a table in turn, each as a new consumer.
func (c *Consumed) measureRates(ctx context.Context, l *Lab, db *gorm.DB) (err error) {
	if err := fillNumbers(db, l.FollowBulk); err != nil {
		return err
	}
	p, err := consumedIn(ctx, db)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closePlugin(p)) }()
	if err := (&costly{db: db, table: consumedRow{}.TableName()}).bulk(); err != nil {
		return err
	}
	rates := make([][]float64, len(consumers))
	for round := range 3 {
		for i, contestant := range consumers {
			rate, err := rateOf(ctx, l, func(ctx context.Context, handled func(...*consumedRow)) error {
				return contestant.run(ctx, db, fmt.Sprintf("%s, %d", contestant.title, round), handled)
			})
			if err != nil {
				return fmt.Errorf("%s: %w", contestant.title, err)
			}
			rates[i] = append(rates[i], rate)
		}
	}
	for _, r := range rates {
		c.Rates = append(c.Rates, Figure{Median: quantile(r, 0.5), Low: quantile(r, 0), High: quantile(r, 1)})
	}
	return nil
}

// rateOf returns how many rows a consumer handles in a second, from its first row on.
func rateOf(ctx context.Context, l *Lab, run func(context.Context, func(...*consumedRow)) error) (float64, error) {
	part, stop := context.WithCancel(ctx)
	defer stop()
	var begun, last time.Time
	rows, first := 0, 0
	err := run(part, func(more ...*consumedRow) {
		if last = time.Now(); rows == 0 {
			begun, first = last, len(more)
		}
		if rows += len(more); rows >= l.FollowBulk || last.Sub(begun) > l.ConsumeFor {
			stop()
		}
	})
	if ctx.Err() != nil || part.Err() == nil {
		return 0, cmp.Or(err, errors.New("the consumer has ended early"))
	}
	return float64(rows-first) / max(last.Sub(begun), time.Microsecond).Seconds(), nil
}

// measureDelay measures the delay while a writer inserts rows in short transactions.
func (c *Consumed) measureDelay(ctx context.Context, l *Lab, db *gorm.DB) (err error) {
	s := newFollowedStream[slack200]()
	s.read = func(ctx context.Context, db *gorm.DB, note func(string)) error {
		err := consumers[0].run(ctx, db, "delay", func(rows ...*consumedRow) { note(rows[0].ID.String()) })
		if ctx.Err() != nil {
			err = nil
		}
		return err
	}
	p, err := consumedIn(ctx, db)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closePlugin(p)) }()
	end := s.start(ctx, db)
	defer func() { err = errors.Join(err, end()) }()
	for until := time.Now().Add(l.FollowFor); time.Now().Before(until); {
		if err := errors.Join(s.transact(db, 2), sleep(ctx, 20*time.Millisecond)); err != nil {
			return err
		}
	}
	err = s.drain(ctx)
	c.Delay = s.delay(1)
	return err
}

// measureIdle counts the statements of each process. The process with the most statements is the one that works.
func (c *Consumed) measureIdle(ctx context.Context, l *Lab, wires []*testkit.Wire) error {
	for _, w := range wires {
		w.Take()
	}
	begun := time.Now()
	if err := sleep(ctx, min(l.Idle/3+time.Second/5, 20*time.Second)); err != nil {
		return err
	}
	var sent [][]string
	for _, w := range wires {
		sent = append(sent, w.Take())
	}
	took := time.Since(begun).Seconds()
	slices.SortFunc(sent, func(a, b []string) int { return len(b) - len(a) })
	c.Holder = float64(len(sent[0])) / took
	for _, list := range sent[1:] {
		c.Standby = append(c.Standby, float64(len(list))/took)
		for _, statement := range list {
			if strings.Contains(statement, consumedRow{}.TableName()) {
				c.Reads++
			}
		}
	}
	return nil
}

func consumeTable(all []Consumed) string {
	rates, idle := table{{"rows a second"}}, table{{"delay in ms, and statements a second without rows", "commit to handler, median / 99 %",
		"the process that works", "with 1 standing by", "with 8 standing by", "the busiest standby"},
		{"goal", "–", "–", "–", "–", number(goalStandby)}}
	for _, contestant := range consumers {
		rates[0] = append(rates[0], contestant.title)
	}
	rates[0] = append(rates[0], "batches to one by one")
	rates.add("goal", "–", "–", "–", number(goalBatch))
	for _, c := range all {
		row := []string{c.Engine}
		for _, r := range c.Rates {
			row = append(row, r.String())
		}
		rates.add(append(row, number(c.Rates[1].Median/c.Rates[0].Median))...)
		total := c.Holder
		for _, s := range c.Standby {
			total += s
		}
		busiest := number(slices.Max(c.Standby))
		if c.Reads > 0 {
			busiest += fmt.Sprintf(", reads rows %d times", c.Reads)
		}
		idle.add(c.Engine, c.Delay.String(), number(c.Holder), number(c.Holder+slices.Max(c.Standby)), number(total), busiest)
	}
	return rates.String() + "\n" + idle.String()
}

// Customgenerator gives rows ids of two generators of its own: keys that carry the shard
// of their customer, and numbers for people, with a check digit. It needs nothing but Go,
// as the database is an SQLite file:
//
//	go run ./examples/customgenerator
//
// sharded.go makes ids of the layout, for WithGenerator: they resolve to their rows.
// number.go makes others, for WithSource. main.go shows both.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"

	"github.com/glebarez/sqlite"
	"github.com/uidplugin/uidplugin"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// Customer has an id of the plugin's own generator.
type Customer struct {
	uidplugin.Model
	Name string
}

// Order has an id of each of the two generators. The tag names them.
type Order struct {
	ID         int64 `gorm:"primaryKey;autoIncrement:false;uid:sharded"`
	Number     int64 `gorm:"uniqueIndex;uid:number"`
	CustomerID uidplugin.ID
}

var models = []any{&Customer{}, &Order{}}

func main() {
	slog.SetLogLoggerLevel(slog.LevelWarn) // not that worker ids were assigned: it is shown below
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "customgenerator:", err)
		os.Exit(1)
	}
}

// run returns instead of exiting, so that what is open gets closed.
func run(ctx context.Context, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "uidplugin-customgenerator")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	db, ids, err := open(ctx, filepath.Join(dir, "orders.db"))
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, ids.Close(context.WithoutCancel(ctx)))
		if pool, e := db.DB(); e == nil {
			err = errors.Join(err, pool.Close())
		}
	}()
	s := show{ctx: ctx, out: out, db: db, ids: ids}
	for _, part := range []func() error{s.create, s.back, s.many, s.none, s.stats} {
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}

func open(ctx context.Context, file string) (*gorm.DB, *uidplugin.Plugin, error) {
	db, err := gorm.Open(sqlite.Open(file+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)"),
		&gorm.Config{Logger: logger.Discard}) // errors are returned as well
	if err != nil {
		return nil, nil, err
	}
	db = db.WithContext(ctx)
	ids := uidplugin.New(
		uidplugin.WithLayout(layout()),
		uidplugin.WithGenerator("sharded", newSharded),
		uidplugin.WithSource("number", openNumbers),
		uidplugin.WithModels(models...),
	)
	if err = db.Use(ids); err == nil {
		err = db.AutoMigrate(models...)
	}
	if pool, e := db.DB(); e == nil && err != nil {
		err = errors.Join(err, pool.Close())
	}
	return db, ids, err
}

// A show shows one thing after the other.
type show struct {
	ctx context.Context
	out io.Writer
	db  *gorm.DB
	ids *uidplugin.Plugin

	order Order // the last one
}

func (s *show) printf(format string, args ...any) { fmt.Fprintf(s.out, format, args...) }

// of returns a handle to create rows of a customer with.
func (s *show) of(c uidplugin.ID) *gorm.DB {
	return s.db.WithContext(withShard(s.ctx, shardOf(c.Int64())))
}

func (s *show) create() error {
	s.printf("1. An order's key has the shard of its customer, so that either leads to the shard\n\n")
	for _, name := range []string{"Ada", "Grace", "Mary"} {
		c := Customer{Name: name}
		if err := s.db.Create(&c).Error; err != nil {
			return err
		}
		for range 2 {
			s.order = Order{CustomerID: c.ID}
			if err := s.of(c.ID).Create(&s.order).Error; err != nil {
				return err
			}
			s.printf("  %-5s  shard %2d   order %d, shard %2d, number %d\n",
				name, shardOf(c.ID.Int64()), s.order.ID, shardOf(s.order.ID), s.order.Number)
		}
	}
	return nil
}

func (s *show) back() error {
	s.printf("\n2. The key is of the layout and can be located, the number is not\n\n")
	l, err := s.ids.Locate(s.ctx, uidplugin.ID(s.order.ID))
	if err != nil {
		return err
	}
	row, err := s.ids.Find(s.ctx, uidplugin.ID(s.order.ID))
	if err != nil {
		return err
	}
	s.printf("  Locate(%d): table %s, worker id %d, sequence %d\n", s.order.ID, l.Table, l.WorkerID, l.Sequence)
	s.printf("  Find(%d): number %d\n", s.order.ID, row.(*Order).Number)
	_, err = s.ids.Locate(s.ctx, uidplugin.ID(s.order.Number))
	if !errors.Is(err, uidplugin.ErrNotDecodable) {
		return fmt.Errorf("Locate(%d) returned the error %v", s.order.Number, err)
	}
	s.printf("  Locate(%d): ErrNotDecodable\n    %v\n", s.order.Number, err)
	return nil
}

func (s *show) many() error {
	orders := make([]Order, 5000)
	for i := range orders {
		orders[i].CustomerID = s.order.CustomerID
	}
	// Not CreateInBatches, which is one transaction. On SQLite no other connection can write meanwhile, so openNumbers
	// could not fetch more numbers.
	for chunk := range slices.Chunk(orders, 1000) {
		if err := s.of(s.order.CustomerID).Create(&chunk).Error; err != nil {
			return err
		}
	}
	first, last := orders[0], orders[len(orders)-1]
	a, err := s.ids.Decode(uidplugin.ID(first.ID))
	if err != nil {
		return err
	}
	b, err := s.ids.Decode(uidplugin.ID(last.ID))
	if err != nil {
		return err
	}
	s.printf("\n3. %d at once: a millisecond has room for %d, and then they borrow later ones\n\n", len(orders), perTick(s.ids.Layout()))
	s.printf("  orders %d to %d, stamped over %v\n  numbers %d to %d\n", first.ID, last.ID, b.Time.Sub(a.Time), first.Number, last.Number)
	return nil
}

func (s *show) none() error {
	err := s.db.Create(&Order{}).Error
	if !errors.Is(err, errNoShard) {
		return fmt.Errorf("without a shard the error is %v", err)
	}
	s.printf("\n4. Without a shard in the context there is no id, and no row\n\n  %v\n", err)
	return nil
}

func (s *show) stats() error {
	s.printf("\n5. Who makes ids\n\n")
	for _, t := range s.ids.Stats().Tables {
		s.printf("  %-9s  %-7s  worker ids %v\n", t.Table, t.Generator, t.WorkerIDs)
	}
	return nil
}

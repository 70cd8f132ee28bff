package consume_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/follow"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

type order struct {
	ID    uidplugin.ID `gorm:"primaryKey;uid"`
	Town  string
	Price int
}

// An effect is what a handler writes for an order. The database numbers the effects in their order, because one
// transaction at a time writes those of a consumer.
type effect struct {
	N        int64  `gorm:"primaryKey;autoIncrement"`
	Consumer string `gorm:"size:50;index"`
	OrderID  int64
	Note     string
}

// A total is read and written by a handler, so it is wrong if two transactions do so at the same time.
type total struct {
	Consumer string `gorm:"primaryKey;size:50"`
	N        int64
}

const slack = 20 * time.Millisecond

// shop returns a handle of a process, with its own pool. The first creates the tables.
func shop(t *testing.T, d *testkit.Database, config *gorm.Config, options ...uidplugin.Option) *gorm.DB {
	t.Helper()
	db := d.Open(t, config)
	testkit.Must(t, db.Use(uidplugin.New(append([]uidplugin.Option{uidplugin.WithLogger(slog.New(slog.DiscardHandler)), uidplugin.WithTimeout(time.Minute)}, options...)...)))
	t.Cleanup(func() { _ = uidplugin.From(db).Close(context.Background()) })
	testkit.Must(t, uidplugin.From(db).AutoMigrate(&order{}, &effect{}, &total{}))
	testkit.Must(t, follow.Enable(t.Context(), db, &order{}, follow.WithSlack(slack)))
	return db
}

// place creates orders, again if the machine was so busy that they came too late.
func place(t *testing.T, db *gorm.DB, n int, town string) []order {
	t.Helper()
	orders := make([]order, n)
	for i := range orders {
		orders[i] = order{Town: town, Price: i}
		for {
			err := db.Create(&orders[i]).Error
			if err == nil {
				break
			}
			if !errors.Is(err, follow.ErrTooLate) {
				t.Fatal(err)
			}
		}
	}
	return orders
}

// write is a handler that writes an effect and counts it.
func write(consumer string) func(tx *gorm.DB, o *order) error {
	return func(tx *gorm.DB, o *order) error {
		sum := total{Consumer: consumer}
		if err := tx.FirstOrInit(&sum, sum).Error; err != nil {
			return err
		}
		sum.N++
		if err := tx.Save(&sum).Error; err != nil {
			return err
		}
		return tx.Create(&effect{Consumer: consumer, OrderID: int64(o.ID), Note: o.Town}).Error
	}
}

func writeAll(consumer string) func(tx *gorm.DB, orders []*order) error {
	return func(tx *gorm.DB, orders []*order) error {
		for _, o := range orders {
			if err := write(consumer)(tx, o); err != nil {
				return err
			}
		}
		return nil
	}
}

// A running consumer.
type running struct {
	cancel context.CancelFunc
	ended  chan error
}

func start(t *testing.T, consume func(ctx context.Context) error) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{cancel, make(chan error, 1)}
	go func() { r.ended <- consume(ctx) }()
	t.Cleanup(cancel)
	return r
}

// stop ends the consumer.
func (r *running) stop(t *testing.T) {
	t.Helper()
	r.cancel()
	if err := <-r.ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the consumer has ended with: %v", err)
	}
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	testkit.Eventually(t, what, time.Minute, holds)
}

func effects(t *testing.T, db *gorm.DB, consumer string) (ids []int64) {
	t.Helper()
	testkit.Must(t, db.Model(&effect{}).Where("consumer = ?", consumer).Order("n").Pluck("order_id", &ids).Error)
	return ids
}

// effectsElsewhere returns a database for the effects of consumers of another one.
func effectsElsewhere(t *testing.T) *gorm.DB {
	t.Helper()
	db := testkit.SQLite{}.Open(t)
	testkit.Must(t, db.AutoMigrate(&effect{}, &total{}))
	return db
}

// effectsCome waits until a consumer has had n effects.
func effectsCome(t *testing.T, db *gorm.DB, consumer string, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d effects of %s came", n, consumer), func() bool { return len(effects(t, db, consumer)) == n })
}

// finished waits until all orders have effects, and compares them.
func finished(t *testing.T, db *gorm.DB, consumer string, where ...any) {
	t.Helper()
	var want []int64
	query := db.Model(&order{}).Order("id")
	if len(where) > 0 {
		query = query.Where(where[0], where[1:]...)
	}
	testkit.Must(t, query.Pluck("id", &want).Error)
	eventually(t, fmt.Sprintf("%d orders had effects of %s", len(want), consumer), func() bool { return len(effects(t, db, consumer)) >= len(want) })
	time.Sleep(100 * time.Millisecond) // for effects that should not come
	if got := effects(t, db, consumer); !slices.Equal(got, want) {
		t.Errorf("%s: the effects are\n%v, and the orders\n%v", consumer, got, want)
	}
	var sum total
	testkit.Must(t, db.Limit(1).Find(&sum, "consumer = ?", consumer).Error)
	if sum.N != int64(len(want)) {
		t.Errorf("%s: %d orders were counted as %d", consumer, len(want), sum.N)
	}
}

// Three processes of each of two consumers run at the same time, while others come and go, and deadlocks, failures and
// lost connections happen.
func TestConsume_EachRowTakesEffectOnceAndInOrder(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := shop(t, d, nil)
		var calls atomic.Int64
		troubled := func(consumer string) func(tx *gorm.DB, o *order) error {
			return func(tx *gorm.DB, o *order) error {
				n := calls.Add(1)
				if err := write(consumer)(tx, o); err != nil {
					return err
				}
				switch {
				case n%17 == 0:
					return errors.New("it failed")
				case n%11 == 0 && d.Name != "sqlite":
					kill(t, db, tx)
					_ = tx.Exec("UPDATE totals SET n = n") // the handler does not look
				}
				return nil
			}
		}
		var all []*running
		for i := range 3 {
			process := shop(t, d, &gorm.Config{PrepareStmt: i == 0})
			all = append(all,
				start(t, func(ctx context.Context) error { return follow.Consume(ctx, process, "mails", troubled("mails")) }),
				start(t, func(ctx context.Context) error {
					return follow.ConsumeBatch(ctx, process, "sums", 7, writeAll("sums"))
				}))
		}
		place(t, db, 20, "Ulm")
		eventually(t, "an effect came", func() bool { return len(effects(t, db, "mails")) > 0 })
		all[0].stop(t)
		all[1].stop(t)
		place(t, db, 20, "Bonn")
		finished(t, db, "sums")
		finished(t, db, "mails")
		for _, r := range all[2:] {
			r.stop(t)
		}
	})
}

// kill ends the connection of a transaction.
func kill(t *testing.T, db, tx *gorm.DB) {
	t.Helper()
	own, end := "SELECT CONNECTION_ID()", "KILL %d"
	if db.Name() == "postgres" {
		own, end = "SELECT pg_backend_pid()", "SELECT pg_terminate_backend(%d)"
	}
	var id int64
	if err := tx.Raw(own).Scan(&id).Error; err == nil {
		_ = db.Exec(fmt.Sprintf(end, id)).Error
	}
}

package follow_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/follow"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/uidtest"
	"gorm.io/gorm"
)

// A database in memory ends with its connection, and a test of an application would then find no table.
func TestConsume_AnUnreadableRowKeepsADatabaseInMemory(t *testing.T) {
	t.Parallel()
	db := testkit.SQLite{Path: ":memory:", Pool: 1}.Open(t)
	testkit.Must(t, db.Use(uidtest.Sequential()))
	testkit.Must(t, db.AutoMigrate(&ticket{}, &effect{}))
	testkit.Must(t, follow.Enable(t.Context(), db, &ticket{}))
	testkit.Must(t, db.Create(&[]ticket{{Seat: "1A"}, {Seat: "broken"}, {Seat: "1C"}}).Error)
	until(t, db, 3, func(ctx context.Context) error {
		go func() {
			for { // until the rows before the broken one have come, and it failed
				if consumerOf(db).LastError != nil {
					break
				}
				time.Sleep(5 * time.Millisecond)
			}
			db.Model(&ticket{}).Where("id = 2").Update("seat", "1B")
		}()
		return follow.Consume(ctx, db, "mails", func(tx *gorm.DB, row *fragile) error { return write("mails")(tx, (*ticket)(row)) })
	})
	checkEffects(t, db)
}

// A row that fails at COMMIT closes no connection, because a database in memory ends with it.
func TestConsume_AFailedCommitKeepsADatabaseInMemory(t *testing.T) {
	t.Parallel()
	db := testkit.SQLite{Path: ":memory:", Pool: 1, Params: []string{"_pragma=foreign_keys(1)"}}.Open(t)
	testkit.Must(t, db.Use(uidtest.Sequential()))
	withSeats(t, db)
	testkit.Must(t, follow.Enable(t.Context(), db, &ticket{}))
	testkit.Must(t, db.Create(&[]ticket{{Seat: "1A"}}).Error)
	var calls atomic.Int64
	until(t, db, 1, func(ctx context.Context) error {
		return follow.Consume(ctx, db, "mails", func(tx *gorm.DB, row *ticket) error {
			if calls.Add(1) > 1 {
				if err := tx.Exec("INSERT INTO seats VALUES (?)", row.Seat).Error; err != nil {
					return err
				}
			}
			return seat(tx, row)
		})
	})
	checkEffects(t, db)
}

// The statement that moves the cursor fails, or the handler panics. The transaction is rolled back, and the connection
// stays open.
func TestConsume_AnyFailureOfAHandlersTransactionKeepsADatabaseInMemory(t *testing.T) {
	t.Parallel()
	for _, fault := range []string{"UPDATE", "panic"} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			var wire testkit.Wire
			db := wire.Open(t, testkit.SQLite{Path: ":memory:", Pool: 1})
			testkit.Must(t, db.Use(uidtest.Sequential()))
			prepare(t, db, 2)
			var failed atomic.Bool
			wire.Set(func(c *testkit.Crossing) error {
				if fault == "UPDATE" && c.Is(fault+" UID_CURSOR") && c.Args[0].Value == int64(1) && !failed.Swap(true) {
					return errors.New("disk I/O error")
				}
				return c.Run()
			})
			consume := func(ctx context.Context) (err error) {
				defer func() {
					if v := recover(); v != nil && v != fault {
						t.Error(v)
					}
				}()
				return follow.Consume(ctx, db, "mails", func(tx *gorm.DB, row *ticket) error {
					if !failed.Swap(true) {
						testkit.Must(t, write("mails")(tx, row))
						panic(fault)
					}
					return write("mails")(tx, row)
				})
			}
			until(t, db, 2, func(ctx context.Context) error {
				if err := consume(ctx); err != nil {
					return err
				}
				return consume(ctx) // after the panic
			})
			if !failed.Load() {
				t.Error("nothing has failed")
			}
			checkEffects(t, db)
		})
	}
}

// A statement of a handler ends the transaction. The connection stays open, because a database in memory ends with it.
func TestConsume_AnEndedTransactionKeepsADatabaseInMemory(t *testing.T) {
	t.Parallel()
	db := testkit.SQLite{Path: ":memory:", Pool: 1}.Open(t)
	testkit.Must(t, db.Use(uidtest.Sequential()))
	testkit.Must(t, db.AutoMigrate(&ticket{}, &effect{}))
	testkit.Must(t, follow.Enable(t.Context(), db, &ticket{}))
	issue(t, db, 2)
	failed := false
	until(t, db, 2, func(ctx context.Context) error {
		return follow.Consume(ctx, db, "mails", func(tx *gorm.DB, row *ticket) error {
			if !failed {
				failed = true
				return tx.Exec("INSERT OR ROLLBACK INTO tickets (id) VALUES (?)", row.ID).Error
			}
			return write("mails")(tx, row)
		})
	})
	checkEffects(t, db)
}

// A consumer that ends interrupts the statement that looks at the mark. Its connection stays open, because a database
// in memory ends with it.
func TestConsume_ItsEndKeepsADatabaseInMemory(t *testing.T) {
	t.Parallel()
	var wire testkit.Wire
	db := wire.Open(t, testkit.SQLite{Path: ":memory:", Pool: 1})
	plugintest.Use(t, db, uidplugin.WithWorkerID(1))
	prepare(t, db, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var handled atomic.Bool
	wire.Set(func(c *testkit.Crossing) error {
		if handled.Load() && c.Is("SELECT PUBLISHED, SLACK") {
			cancel()
			<-c.Context.Done()
			return c.Context.Err()
		}
		return c.Run()
	})
	err := follow.Consume(ctx, db, "mails", func(tx *gorm.DB, row *ticket) error {
		handled.Store(true)
		return write("mails")(tx, row)
	})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	wire.Set(nil)
	checkEffects(t, db)
}

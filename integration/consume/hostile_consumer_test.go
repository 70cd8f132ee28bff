package consume_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/follow"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// A hostileTask is a child process that runs all consumers. The connection of some is bad.
type hostileTask struct {
	Database testkit.Database
	Address  string // of a proxy; empty connects directly
	Flaky    bool   // loses statements and answers
}

// A hostileEffect is what a handler writes, or a mark of the operator. The database numbers them in the order of the
// transactions of a consumer, because each of these locks the cursor first.
type hostileEffect struct {
	N        int64  `gorm:"primaryKey;autoIncrement"`
	Consumer string `gorm:"size:50;index"`
	Kind     string `gorm:"size:20"` // handled, reset, paused or resumed
	EventID  int64  // the row, or to which the cursor was reset
	PID      int
}

// Handlers that update shared rows in any order run into deadlocks.
type hostileShared struct {
	ID int64 `gorm:"primaryKey;autoIncrement:false"`
	N  int64
}

const sharedRows = 3

// The consumers. The second has a condition, and the third fails and skips.
var hostileConsumers = []string{"rows", "batches", "failing"}

// wants reports whether a consumer must have an effect of a row.
func (e hostileEvent) wanted(consumer string) bool {
	switch consumer {
	case "batches":
		return e.Kind != 0
	case "failing":
		return !e.skipped()
	}
	return true
}

func (e hostileEvent) skipped() bool { return int64(e.ID)/7%40 == 0 }

// idleFor is the idle limit of the transactions of the children, in seconds, if the application has set one.
const idleFor = 4

func (t hostileTask) connect() (*gorm.DB, error) {
	var params []string
	switch {
	case t.Database.IsMySQL():
		params = []string{fmt.Sprintf("wait_timeout=%d", idleFor)}
	case t.Database.Name == "postgres":
		params = []string{fmt.Sprintf("idle_in_transaction_session_timeout=%d", idleFor*1000)}
	}
	switch {
	case t.Flaky:
		wire := &testkit.Wire{}
		wire.Set(hostileFlaky)
		return wire.Connect(t.Database.Engine, t.Database.DSN(params...))
	case t.Address != "":
		return t.Database.ConnectTo(t.Address, nil, params...)
	}
	return t.Database.Connect(nil, params...)
}

// use returns a handle with a plugin.
func (t hostileTask) use() (*gorm.DB, error) {
	db, err := t.connect()
	if err != nil {
		return nil, err
	}
	if err = db.Use(uidplugin.New(uidplugin.WithLogger(slog.New(slog.DiscardHandler)))); err != nil {
		_ = testkit.Close(db)
	}
	return db, err
}

// hostileFlaky loses statements and answers, mostly of COMMIT, and delays them.
func hostileFlaky(c *testkit.Crossing) error {
	n := rand.IntN(1000)
	if c.SQL == "COMMIT" {
		n /= 5
	}
	switch {
	case n < 2:
		return testkit.ErrLost
	case n < 5: // the answer is lost
		_ = c.Run()
		return testkit.ErrLost
	case n < 6 && !c.Inside:
		c.Later(rand.N(200 * time.Millisecond))
		return testkit.ErrLost
	case n < 25:
		if err := c.Sleep(rand.N(20 * time.Millisecond)); err != nil {
			return err
		}
	}
	return c.Run()
}

var hostileRoles = testkit.Roles{
	"hostile consumers": testkit.Role(func(t hostileTask) error {
		ctx, db, err := harness.Child(t.use)
		if err != nil {
			return err
		}
		var group sync.WaitGroup
		for _, consumer := range hostileConsumers {
			c := hostileConsumer{name: consumer, sqlite: t.Database.Name == "sqlite"}
			group.Go(func() {
				for ctx.Err() == nil {
					c.note(c.consume(ctx, db))
					time.Sleep(50 * time.Millisecond)
				}
			})
		}
		group.Wait()
		return nil
	}),
}

// A hostileConsumer is one in a child process. It prints what happens.
type hostileConsumer struct {
	name   string
	sqlite bool
}

func (c hostileConsumer) say(what string) { fmt.Println(strings.ReplaceAll(what, "\n", " ")) }

var errHostile = errors.New("the handler fails")

// note prints how a call of Consume has ended.
func (c hostileConsumer) note(err error) {
	switch {
	case errors.Is(err, context.Canceled):
	case errors.Is(err, follow.ErrNotEnabled):
		c.say("not enabled")
	case errors.Is(err, follow.ErrRemoved):
		c.say("removed")
	case errors.Is(err, errHostile):
		c.say("panic")
	case sqldb.IsTransient(err), harness.Unreachable.MatchString(err.Error()):
		c.say("unreachable at the beginning")
	default:
		c.say(fmt.Sprintf("error: consumer %s: %v", c.name, err))
	}
}

func (c hostileConsumer) consume(ctx context.Context, db *gorm.DB) (err error) {
	defer func() {
		if p := recover(); p == errHostile {
			err = errHostile
		} else if p != nil {
			panic(p)
		}
	}()
	switch c.name {
	case "batches":
		return follow.ConsumeBatch(ctx, db.Where("kind <> ?", 0), c.name, 20, c.handle)
	case "failing":
		return follow.ConsumeBatch(ctx, db, c.name, 3, c.handle)
	}
	return follow.Consume(ctx, db, c.name, func(tx *gorm.DB, e *hostileEvent) error {
		return c.handle(tx, []*hostileEvent{e})
	})
}

// handle writes the effects of rows, and does what handlers do: it tries something in a nested transaction, meets
// deadlocks, and does not look at errors.
func (c hostileConsumer) handle(tx *gorm.DB, events []*hostileEvent) error {
	var err error
	if rand.IntN(4) == 0 {
		c.cross(tx)
	}
	for _, e := range events {
		if err = errors.Join(err, c.write(tx, e)); c.name == "failing" && e.skipped() {
			return fmt.Errorf("%w: %d", follow.Skip, e.ID)
		}
	}
	if rand.IntN(8) == 0 {
		c.try(tx, events[0])
	}
	if rand.IntN(4) == 0 {
		c.cross(tx)
	}
	if c.name == "failing" {
		switch rand.IntN(200) {
		case 0:
			return errHostile
		case 1:
			panic(errHostile)
		}
	}
	if err != nil && rand.IntN(2) == 0 {
		c.say("errors swallowed")
		return nil
	}
	return err
}

func (c hostileConsumer) write(tx *gorm.DB, e *hostileEvent) error {
	sum := total{Consumer: c.name}
	if err := tx.FirstOrInit(&sum, sum).Error; err != nil {
		return err
	}
	sum.N++
	return errors.Join(tx.Save(&sum).Error,
		tx.Create(&hostileEffect{Consumer: c.name, Kind: "handled", EventID: int64(e.ID), PID: os.Getpid()}).Error)
}

// try writes an effect in a nested transaction that it rolls back.
func (c hostileConsumer) try(tx *gorm.DB, e *hostileEvent) {
	_ = tx.Transaction(func(tx *gorm.DB) error {
		return errors.Join(c.write(tx, e), tx.Create(&hostileShared{ID: 1}).Error, errHostile)
	})
}

// cross updates rows in any order, sometimes in a nested transaction, and drops errors.
func (c hostileConsumer) cross(tx *gorm.DB) {
	if c.sqlite { // it has one writer at a time
		return
	}
	err := cross(tx, 0)
	if rand.IntN(2) == 0 {
		err = errors.Join(err, tx.Transaction(func(tx *gorm.DB) error { return cross(tx, 0) }))
	}
	if err != nil && sqldb.IsTransient(err) {
		c.say("deadlocks swallowed")
	}
}

func cross(tx *gorm.DB, pause time.Duration) (err error) {
	for _, n := range rand.Perm(sharedRows) {
		err = errors.Join(err, tx.Exec("UPDATE hostile_shareds SET n = n + 1 WHERE id = ?", n+1).Error)
		time.Sleep(pause)
	}
	return err
}

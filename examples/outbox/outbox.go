package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/follow"
	"gorm.io/gorm"
)

// Order is a row of the shop.
type Order struct {
	ID       uidplugin.ID
	Customer string
	Total    int
}

// Event tells consumers about an order. It is created in the transaction of the order, so both exist or neither does.
type Event struct {
	ID       uidplugin.ID
	OrderID  uidplugin.ID
	Customer string
	Total    int
}

// Cursor is the last event that a consumer has handled.
type Cursor struct {
	Consumer string `gorm:"primaryKey;size:40"`
	EventID  uidplugin.ID
}

// migrate creates the tables. follow.Enable changes nothing if events can be followed already.
func migrate(ctx context.Context, db *gorm.DB) error {
	err := db.WithContext(ctx).AutoMigrate(&Order{}, &Event{}, &Cursor{}, &Invoice{}, &Sale{})
	if err != nil {
		return err
	}
	return follow.Enable(ctx, db, &Event{})
}

// place creates an order with its event. It repeats the transaction if the event comes too late, because consumers have
// passed its id already. That happens after a pause between making the id and its INSERT.
func place(ctx context.Context, db *gorm.DB, customer string, total int) error {
	for try := 1; ; try++ {
		err := db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			order := Order{Customer: customer, Total: total}
			if err := tx.Create(&order).Error; err != nil {
				return err
			}
			return tx.Create(&Event{OrderID: order.ID, Customer: customer, Total: total}).Error
		})
		if !errors.Is(err, follow.ErrTooLate) || try == 3 {
			return err
		}
	}
}

// A consumer handles each event once, in the order of their ids. Several processes may run a consumer of one name. They
// take turns, and if one dies, the others go on.
type consumer struct {
	name   string
	handle func(tx *gorm.DB, e *Event) error // changes the database only, so that a rollback undoes it
}

// run handles events until the context ends.
func (c consumer) run(ctx context.Context, db *gorm.DB) {
	db = db.WithContext(ctx)
	for {
		// A new begin reads the cursor again, so it does not matter whether a transaction with an error was committed.
		err := c.follow(ctx, db)
		if ctx.Err() != nil {
			return
		}
		if !errors.Is(err, errMoved) {
			slog.Warn("consumer begins again", "consumer", c.name, "error", err)
		}
		time.Sleep(time.Second)
	}
}

var errMoved = errors.New("another process has moved the cursor")

// follow handles events from the stored cursor on, until an error.
func (c consumer) follow(ctx context.Context, db *gorm.DB) error {
	var cursor Cursor
	if err := db.FirstOrCreate(&cursor, Cursor{Consumer: c.name}).Error; err != nil {
		return err
	}
	for event, err := range follow.Rows[Event](ctx, db, cursor.EventID) {
		if err != nil {
			return err
		}
		if err := db.Transaction(func(tx *gorm.DB) error { return c.step(tx, cursor, event) }); err != nil {
			return fmt.Errorf("event %d: %w", event.ID, err)
		}
		cursor.EventID = event.ID
	}
	return nil
}

// step moves the cursor to an event and handles it, in one transaction. The UPDATE comes first, because it makes other
// processes wait, and changes no row if one of them was faster.
func (c consumer) step(tx *gorm.DB, cursor Cursor, event *Event) error {
	moved := tx.Model(&Cursor{}).Where(&cursor, "Consumer", "EventID").Update("event_id", event.ID)
	switch {
	case moved.Error != nil:
		return moved.Error
	case moved.RowsAffected == 0:
		return errMoved
	}
	return c.handle(tx, event)
}

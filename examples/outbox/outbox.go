package main

import (
	"context"
	"sync"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/follow"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
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

// Invoice has a number. The numbers have no gaps, because the consumer misses no event and handles none twice.
type Invoice struct {
	Number   int `gorm:"primaryKey;autoIncrement:false"`
	EventID  uidplugin.ID
	Customer string
	Total    int
}

// Sale adds up the orders of a customer.
type Sale struct {
	Customer string `gorm:"primaryKey;size:40"`
	Orders   int
	Total    int
}

// migrate creates the tables. follow.Enable changes nothing if events can be followed already.
func migrate(ctx context.Context, db *gorm.DB) error {
	if err := db.WithContext(ctx).AutoMigrate(&Order{}, &Event{}, &Invoice{}, &Sale{}); err != nil {
		return err
	}
	return follow.Enable(ctx, db, &Event{})
}

// place creates an order with its event. If the process pauses between making the event's id and the INSERT, the
// event comes too late for the consumers. Then follow.Transaction repeats the transaction with new ids.
func place(ctx context.Context, db *gorm.DB, customer string, total int) error {
	return follow.Transaction(ctx, db, func(tx *gorm.DB) error {
		order := Order{Customer: customer, Total: total}
		if err := tx.Create(&order).Error; err != nil {
			return err
		}
		return tx.Create(&Event{OrderID: order.ID, Customer: customer, Total: total}).Error
	})
}

// consume runs the two consumers until the context ends. Any number of processes may call it: for each consumer one
// process works, and if it dies, another goes on within seconds.
func consume(ctx context.Context, db *gorm.DB) error {
	ctx, stop := context.WithCancelCause(ctx) // if one cannot go on, the other ends, too
	var group sync.WaitGroup
	group.Go(func() { stop(follow.Consume(ctx, db, "invoices", invoice)) })
	group.Go(func() { stop(follow.ConsumeBatch(ctx, db, "sales", 100, addUp)) })
	group.Wait()
	return context.Cause(ctx)
}

// invoice handles an event: it creates the next invoice.
func invoice(tx *gorm.DB, e *Event) error {
	var last int
	if err := tx.Model(&Invoice{}).Select("COALESCE(MAX(number), 0)").Scan(&last).Error; err != nil {
		return err
	}
	return tx.Create(&Invoice{Number: last + 1, EventID: e.ID, Customer: e.Customer, Total: e.Total}).Error
}

// addUp handles a batch of events in one transaction, which is faster than one transaction for each event.
func addUp(tx *gorm.DB, events []*Event) error {
	sales := map[string]*Sale{}
	for _, e := range events {
		if sales[e.Customer] == nil {
			sales[e.Customer] = &Sale{Customer: e.Customer}
		}
		sales[e.Customer].Orders++
		sales[e.Customer].Total += e.Total
	}
	for _, s := range sales {
		add := clause.Assignments(map[string]any{
			"orders": gorm.Expr("sales.orders + ?", s.Orders),
			"total":  gorm.Expr("sales.total + ?", s.Total),
		})
		customer := clause.OnConflict{Columns: []clause.Column{{Name: "customer"}}, DoUpdates: add}
		if err := tx.Clauses(customer).Create(s).Error; err != nil {
			return err
		}
	}
	return nil
}

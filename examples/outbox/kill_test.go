package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/follow"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// A task is that of a child process.
type task struct {
	testkit.Database
	DieAt int // the create of an event or effect after which the process kills itself, before the commit; 0 means never
}

// connect opens the database, and lets the process die between effect and commit.
func (t task) connect() (*gorm.DB, error) {
	db, err := open(t.Dialector(t.DSN()))
	if err != nil {
		return nil, err
	}
	var n atomic.Int64
	err = db.Callback().Create().After("gorm:create").Register("die", func(tx *gorm.DB) {
		if tx.Error != nil || !slices.Contains([]string{"events", "invoices", "sales"}, tx.Statement.Table) {
			return
		}
		if n.Add(1) == int64(t.DieAt) {
			fmt.Println("dies before its commit")
			self, _ := os.FindProcess(os.Getpid())
			_ = self.Kill()
			select {}
		}
		if tx.Statement.Table == "events" { // so that events do not become visible in the order of their ids
			pause := 50 * time.Millisecond
			if t.Name == "sqlite" { // which has one writer at a time
				pause = time.Millisecond
			}
			time.Sleep(rand.N(pause))
		}
	})
	fmt.Println("ready")
	return db, err
}

func writer(t task) error {
	db, err := t.connect()
	if err != nil {
		return err
	}
	for {
		if err := place(context.Background(), db, string(rune('A'+rand.IntN(5))), rand.IntN(1000)); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		time.Sleep(rand.N(20 * time.Millisecond))
	}
}

func worker(t task) error {
	db, err := t.connect()
	if err != nil {
		return err
	}
	return consume(context.Background(), db)
}

// Writers and workers are killed, half of them at random moments and half between their last statement and the commit,
// and others take their places. Each worker runs both consumers. Each event still has one effect of each consumer, in
// order.
func TestConsumer_HandlesEachEventOnceIfProcessesAreKilled(t *testing.T) {
	testkit.SkipIfShort(t, "it starts 50 processes")
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db, err := open(d.Dialector(d.DSN()))
		testkit.Must(t, err)
		defer func() { testkit.Must(t, closeAll(db)) }()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		testkit.Must(t, migrate(ctx, db))
		testkit.Must(t, follow.Enable(ctx, db, &Event{}, follow.WithSlack(200*time.Millisecond)))

		// This process advances the mark. If one that is killed did so, all would wait for up to 5 s.
		followed := make(chan []uidplugin.ID)
		go func() { followed <- allEvents(ctx, db) }()
		testkit.Must(t, place(ctx, db, "first", 1))

		killProcesses(ctx, t, d, db)
		testkit.Must(t, place(ctx, db, "last", 1))
		ids := <-followed
		testkit.Start(t, "worker", task{Database: *d}, nil)
		testkit.Eventually(t, "the consumers handle the last event", 3*time.Minute, func() bool {
			handled, err := follow.Handled(ctx, db, &Event{})
			return err == nil && len(ids) > 0 && handled >= ids[len(ids)-1]
		})
		compare(t, db, ids)
	})
}

// killProcesses runs two writers and three workers until 50 have died. It writes, too, because those that kill
// themselves need events. Fewer workers die than writers, because another worker takes over only after seconds.
func killProcesses(ctx context.Context, t *testing.T, d *testkit.Database, db *gorm.DB) {
	var between atomic.Int64
	var group sync.WaitGroup
	for role, kills := range map[string][]int{"writer": {18, 18}, "worker": {4, 4, 6}} {
		for _, n := range kills {
			group.Go(func() {
				for i := range n {
					task := task{Database: *d}
					if i%2 == 0 {
						task.DieAt = 1 + rand.IntN(5)
					}
					if err := killProcess(role, task, &between); err != nil {
						t.Errorf("%s: %v", role, err)
					}
				}
			})
		}
	}
	done := make(chan struct{})
	go func() { group.Wait(); close(done) }()
	for running := true; running; {
		testkit.Must(t, place(ctx, db, "Z", 1))
		select {
		case <-done:
			running = false
		case <-time.After(100 * time.Millisecond):
		}
	}
	if between.Load() != 25 {
		t.Errorf("%d processes died between effect and commit, want 25", between.Load())
	}
}

// killProcess starts a process, and kills it at a random moment unless it kills itself.
func killProcess(role string, task task, between *atomic.Int64) error {
	ready := make(chan struct{})
	p, err := testkit.Launch(role, task, func(line string) {
		switch line {
		case "ready":
			close(ready)
		case "dies before its commit":
			between.Add(1)
		}
	})
	if err != nil {
		return err
	}
	if task.DieAt == 0 {
		select {
		case <-ready:
			time.Sleep(rand.N(time.Second))
		case <-p.Done():
		}
		p.Kill()
	}
	if err := p.Wait(); err == nil || strings.Contains(p.Stderr(), "role "+role) {
		return fmt.Errorf("it has ended by itself: %w", err)
	}
	return nil
}

// allEvents returns the events up to the last one, in the order in which they come.
func allEvents(ctx context.Context, db *gorm.DB) (ids []uidplugin.ID) {
	for e, err := range follow.Rows[Event](ctx, db, 0) {
		if err != nil {
			continue
		}
		if ids = append(ids, e.ID); e.Customer == "last" {
			break
		}
	}
	return ids
}

// compare compares the events with their effects.
func compare(t *testing.T, db *gorm.DB, followed []uidplugin.ID) {
	var orders []Order
	var events []Event
	var invoices []Invoice
	var sales []Sale
	testkit.Must(t, db.Order("id").Find(&orders).Error)
	testkit.Must(t, db.Order("order_id").Find(&events).Error)
	testkit.Must(t, db.Order("number").Find(&invoices).Error)
	testkit.Must(t, db.Find(&sales).Error)
	t.Logf("%d orders, %d events, %d invoices", len(orders), len(events), len(invoices))

	if !slices.EqualFunc(orders, events, func(o Order, e Event) bool { return o.ID == e.OrderID }) {
		t.Errorf("%d orders have %d events", len(orders), len(events))
	}
	slices.SortFunc(events, func(a, b Event) int { return int(a.ID - b.ID) })
	if !slices.EqualFunc(events, followed, func(e Event, id uidplugin.ID) bool { return e.ID == id }) {
		t.Errorf("of %d events the test has seen %d, or in another order", len(events), len(followed))
	}
	sums := map[string]Sale{}
	for i, e := range events {
		if i >= len(invoices) || invoices[i] != (Invoice{Number: i + 1, EventID: e.ID, Customer: e.Customer, Total: e.Total}) {
			t.Fatalf("the invoices differ from the %d events from number %d on; there are %d", len(events), i+1, len(invoices))
		}
		s := sums[e.Customer]
		sums[e.Customer] = Sale{e.Customer, s.Orders + 1, s.Total + e.Total}
	}
	if len(invoices) != len(events) || len(sales) != len(sums) || len(events) < 20 {
		t.Errorf("%d events have %d invoices; %d customers have %d sums", len(events), len(invoices), len(sums), len(sales))
	}
	for _, s := range sales {
		if s != sums[s.Customer] {
			t.Errorf("the sum %+v should be %+v", s, sums[s.Customer])
		}
	}
}

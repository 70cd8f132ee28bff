package follow_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/follow"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/uidtest"
	"gorm.io/gorm"
)

// An effect is what a handler writes for a ticket.
type effect struct {
	N        int64 `gorm:"primaryKey;autoIncrement"`
	Consumer string
	Ticket   int64
}

// tickets returns a handle with followed tickets, whose plugin is that of an application or of its tests.
func tickets(t *testing.T, plugin gorm.Plugin, n int) *gorm.DB {
	t.Helper()
	db := testkit.SQLite{}.Open(t)
	if plugin != nil {
		testkit.Must(t, db.Use(plugin))
	} else {
		plugintest.Use(t, db, uidplugin.WithWorkerID(1))
	}
	testkit.Must(t, db.AutoMigrate(&ticket{}, &effect{}))
	testkit.Must(t, follow.Enable(t.Context(), db, &ticket{}, follow.WithSlack(20*time.Millisecond)))
	issue(t, db, n)
	return db
}

func issue(t *testing.T, db *gorm.DB, n int) {
	t.Helper()
	for range n {
		testkit.Must(t, db.Create(&ticket{Seat: "1A"}).Error)
	}
}

// write is a handler that writes an effect.
func write(consumer string) func(tx *gorm.DB, row *ticket) error {
	return func(tx *gorm.DB, row *ticket) error {
		return tx.Create(&effect{Consumer: consumer, Ticket: int64(row.ID)}).Error
	}
}

// until ends the context when there are n effects, and returns the result of a consumer.
func until(t *testing.T, db *gorm.DB, n int64, consume func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- consume(ctx) }()
	for {
		var found int64
		testkit.Must(t, db.Model(&effect{}).Count(&found).Error)
		if found >= n {
			break
		}
		select {
		case err := <-ended:
			t.Fatalf("the consumer has ended after %d effects: %v", found, err)
		case <-time.After(5 * time.Millisecond):
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the consumer has ended with %v", err)
	}
}

// checkEffects compares the effects of a consumer with the tickets.
func checkEffects(t *testing.T, db *gorm.DB, consumer string) {
	t.Helper()
	var want, got []int64
	testkit.Must(t, db.Model(&ticket{}).Order("id").Pluck("id", &want).Error)
	testkit.Must(t, db.Model(&effect{}).Where("consumer = ?", consumer).Order("n").Pluck("ticket", &got).Error)
	if len(want) != len(got) {
		t.Fatalf("%d tickets have %d effects", len(want), len(got))
	}
	for i := range want {
		if want[i] != got[i] {
			t.Fatalf("effect %d is of the ticket %d, not %d", i, got[i], want[i])
		}
	}
}

func TestConsume_EachRowTakesEffectOnceAndInOrder(t *testing.T) {
	t.Parallel()
	for name, plugin := range map[string]gorm.Plugin{"production": nil, "uidtest": uidtest.Sequential()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := tickets(t, plugin, 3)
			until(t, db, 3, func(ctx context.Context) error { return follow.Consume(ctx, db, "mails", write("mails")) })
			issue(t, db, 2) // the next one goes on from the cursor
			until(t, db, 5, func(ctx context.Context) error { return follow.Consume(ctx, db, "mails", write("mails")) })
			checkEffects(t, db, "mails")
		})
	}
}

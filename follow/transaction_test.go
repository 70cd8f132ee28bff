package follow_test

import (
	"context"
	"errors"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/follow"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/uidtest"
	"gorm.io/gorm"
)

// A pass belongs to a ticket, and is saved with it.
type pass struct {
	ID     uidplugin.ID `gorm:"primaryKey;uid"`
	SeatID uidplugin.ID
	Seat   *ticket
}

func TestTransaction_RepeatsWithNewIDs(t *testing.T) {
	t.Parallel()
	t.Run("structs made outside", func(t *testing.T) {
		t.Parallel()
		db := testkit.SQLite{}.Open(t)
		testkit.Must(t, db.Use(uidtest.Sequential()))
		testkit.Must(t, db.AutoMigrate(&ticket{}, &pass{}))
		passes, seat := []pass{{Seat: &ticket{Seat: "1A"}}, {}}, ticket{Seat: "2B"}
		passes[1].ID = 77 // of the application
		tries := 0
		var first uidplugin.ID
		testkit.Must(t, follow.Transaction(t.Context(), db, func(tx *gorm.DB) error {
			if err := tx.Create(&passes).Error; err != nil {
				return err
			}
			if err := tx.Create(&seat).Error; err != nil {
				return err
			}
			if tries++; tries == 1 {
				first = passes[0].ID
				return follow.ErrTooLate
			}
			return nil
		}))
		if passes[0].ID == first || passes[1].ID != 77 || passes[0].SeatID != passes[0].Seat.ID || tries != 2 {
			t.Errorf("%d tries; the first had the id %d; %+v", tries, first, passes)
		}
		if n := plugintest.Count(t, db, "tickets"); n != 2 {
			t.Errorf("%d tickets", n)
		}
	})
	t.Run("structs made inside", func(t *testing.T) {
		t.Parallel()
		db := testkit.SQLite{}.Open(t)
		testkit.Must(t, db.Use(uidtest.Sequential()))
		testkit.Must(t, db.AutoMigrate(&ticket{}))
		tries := 0
		testkit.Must(t, follow.Transaction(t.Context(), db, func(tx *gorm.DB) error {
			if err := tx.Create(&ticket{Seat: "1A"}).Error; err != nil {
				return err
			}
			if tries++; tries < 3 {
				return errors.New("Error 1213 (40001): Deadlock found")
			}
			return nil
		}))
		if n := plugintest.Count(t, db, "tickets"); n != 1 || tries != 3 {
			t.Errorf("%d tickets, %d tries", n, tries)
		}
	})
}

func TestTransaction_GivesUp(t *testing.T) {
	t.Parallel()
	db := testkit.SQLite{}.Open(t)
	testkit.Must(t, db.Use(uidtest.Sequential()))
	testkit.Must(t, db.AutoMigrate(&ticket{}))
	row, tries, other := ticket{}, 0, errors.New("another error")
	run := func(ctx context.Context, err error) error {
		return follow.Transaction(ctx, db, func(tx *gorm.DB) error {
			tries++
			return errors.Join(tx.Create(&row).Error, err)
		})
	}
	if err := run(t.Context(), other); !errors.Is(err, other) || tries != 1 || row.ID != 0 {
		t.Errorf("%v after %d tries; the id is %d", err, tries, row.ID)
	}
	tries = 0
	if err := run(t.Context(), follow.ErrTooLate); !errors.Is(err, follow.ErrTooLate) || tries != 5 {
		t.Errorf("%v after %d tries", err, tries)
	}
	testkit.Must(t, db.Transaction(func(tx *gorm.DB) error {
		if err := follow.Transaction(t.Context(), tx, func(*gorm.DB) error { return nil }); !errors.Is(err, uidplugin.ErrOption) {
			t.Errorf("in a transaction: %v", err)
		}
		return nil
	}))
	if err := follow.Transaction(t.Context(), testkit.SQLite{}.Open(t), nil); !errors.Is(err, uidplugin.ErrNotRegistered) {
		t.Errorf("without the plugin: %v", err)
	}
}

package follow_test

import (
	"errors"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/follow"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/uidtest"
	"gorm.io/gorm"
)

type ticket struct {
	ID   uidplugin.ID `gorm:"primaryKey;uid"`
	Seat string
}

// A test of an application does not wait for the slack, and needs no trigger. The ids of uidtest are old, or have no
// time at all.
func TestRows_InTestsOfApplicationsComeAtOnce(t *testing.T) {
	t.Parallel()

	noon := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	for name, plugin := range map[string]gorm.Plugin{"Fixed": uidtest.Fixed(noon), "Sequential": uidtest.Sequential()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			db, ctx := testkit.SQLite{}.Open(t), t.Context()
			testkit.Must(t, db.Use(plugin))
			testkit.Must(t, db.AutoMigrate(&ticket{}))
			testkit.Must(t, follow.Enable(ctx, db, &ticket{}))
			seats := []string{"1A", "2B", "3C"}
			var last uidplugin.ID
			for _, seat := range seats {
				row := ticket{Seat: seat}
				testkit.Must(t, db.Create(&row).Error)
				last = row.ID
			}
			if settled, err := follow.Settled(ctx, db, &ticket{}); err != nil || settled <= last {
				t.Errorf("Settled is %d, %v; the last row is %d", settled, err, last)
			}
			n := 0
			for row, err := range follow.Rows[ticket](ctx, db, 0) {
				testkit.Must(t, err)
				if row.Seat != seats[n] {
					t.Errorf("row %d has the seat %s", n, row.Seat)
				}
				if n++; n == len(seats) {
					break
				}
			}
			testkit.Must(t, follow.Disable(ctx, db, &ticket{}))
		})
	}
}

// GORM takes pointers to and slices of structs for the model, too, but the rows would not be those that T has.
func TestRows_RefusesTypesThatAreNotStructs(t *testing.T) {
	t.Parallel()

	for name, plugin := range map[string]gorm.Plugin{"uidtest": uidtest.Sequential(), "a real plugin": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			db, ctx := tickets(t, plugin, 1), t.Context()
			for name, err := range map[string]error{
				"Rows of a pointer": firstError(follow.Rows[*ticket](ctx, db, 0)),
				"Rows of a slice":   firstError(follow.Rows[[]ticket](ctx, db, 0)),
				"Rows of any":       firstError(follow.Rows[any](ctx, db, 0)),
				"Consume of a pointer": follow.Consume(ctx, db, "mails",
					func(*gorm.DB, **ticket) error { return nil }),
				"ConsumeBatch of a slice": follow.ConsumeBatch(ctx, db, "mails", 10,
					func(*gorm.DB, []*[]ticket) error { return nil }),
			} {
				if !errors.Is(err, uidplugin.ErrNoField) || !strings.Contains(err.Error(), "must be the struct of a model") {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
}

func firstError[T any](rows iter.Seq2[*T, error]) error {
	for _, err := range rows {
		return err
	}
	return nil
}

// wing: follow

package uidprom_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/follow"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

func TestCollectorCollect_ShowsFollowedTables(t *testing.T) {
	t.Parallel()

	p, db, _ := open(t, uidplugin.WithModels(&order{}, &article{}))
	testkit.Must(t, p.AutoMigrate(&order{}, &article{}))
	testkit.Must(t, follow.Enable(t.Context(), db, &order{}, follow.WithSlack(20*time.Millisecond)))
	r, old := registered(t, db), order{ID: 1 << 40}
	late := create(t, db)
	for _, err := range follow.Rows[order](t.Context(), db, 0) {
		testkit.Must(t, err)
		testkit.IsError(t, db.Create(&old).Error, follow.ErrTooLate)
		s := gather(t, r)
		s.is(t, scrape{"followers orders": 1, "too_late_total orders": 1 + late})
		if delay, ok := s["follow_delay_seconds orders"]; !ok || delay < 0.02 || delay > 60 {
			t.Errorf("a delay of %v s (%t)", delay, ok)
		}
		break
	}
	s := gather(t, r)
	s.is(t, scrape{"too_late_total orders": 1 + late})
	if _, ok := s["follow_delay_seconds orders"]; ok {
		t.Error("there is a delay without a follower")
	}
}

// create creates an order, again if it came too late on a busy machine. It returns how often it did.
func create(t *testing.T, db *gorm.DB) (late float64) {
	t.Helper()
	err := db.Create(&order{}).Error
	for ; errors.Is(err, follow.ErrTooLate); late++ {
		err = db.Create(&order{}).Error
	}
	testkit.Must(t, err)
	return late
}

func TestCollectorCollect_ShowsTheConsumersThatWorkHere(t *testing.T) {
	t.Parallel()

	p, db, _ := open(t, uidplugin.WithModels(&order{}, &article{}))
	testkit.Must(t, p.AutoMigrate(&order{}, &article{}))
	testkit.Must(t, follow.Enable(t.Context(), db, &order{}, follow.WithSlack(20*time.Millisecond)))
	r := registered(t, db)
	for range 2 {
		create(t, db)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	tries := 0
	err := follow.Consume(ctx, db, "mails", func(*gorm.DB, *order) error {
		tries++
		s := gather(t, r)
		switch tries {
		case 1:
			s.is(t, scrape{"consumer_stuck mails orders": 0, "consumer_handled_total mails orders": 0})
			return errors.New("no route")
		case 2:
			s.is(t, scrape{"consumer_stuck mails orders": 1, "consumer_handled_total mails orders": 0})
		case 3:
			s.is(t, scrape{"consumer_stuck mails orders": 0, "consumer_handled_total mails orders": 1})
			if delay, ok := s["consumer_delay_seconds mails orders"]; !ok || delay < 0.02 || delay > 60 {
				t.Errorf("a delay of %v s (%t)", delay, ok)
			}
			cancel()
		}
		return nil
	})
	if _, ok := gather(t, r)["consumer_stuck mails orders"]; ok || !errors.Is(err, context.Canceled) {
		t.Errorf("after %d tries: %v, still shown %t", tries, err, ok)
	}
}

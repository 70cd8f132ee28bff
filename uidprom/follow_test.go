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
	testkit.Must(t, db.Create(&order{}).Error)
	for _, err := range follow.Rows[order](t.Context(), db, 0) {
		testkit.Must(t, err)
		if err := db.Create(&old).Error; !errors.Is(err, follow.ErrTooLate) {
			t.Error(err)
		}
		s := gather(t, r)
		s.is(t, scrape{"followers orders": 1, "too_late_total orders": 1})
		if delay, ok := s["follow_delay_seconds orders"]; !ok || delay < 0.02 || delay > 60 {
			t.Errorf("a delay of %v s (%t)", delay, ok)
		}
		break
	}
	s := gather(t, r)
	s.is(t, scrape{"too_late_total orders": 1})
	if _, ok := s["follow_delay_seconds orders"]; ok {
		t.Error("there is a delay without a follower")
	}
}

func TestCollectorCollect_ShowsTheConsumersThatWorkHere(t *testing.T) {
	t.Parallel()

	p, db, _ := open(t, uidplugin.WithModels(&order{}, &article{}))
	testkit.Must(t, p.AutoMigrate(&order{}, &article{}))
	testkit.Must(t, follow.Enable(t.Context(), db, &order{}, follow.WithSlack(20*time.Millisecond)))
	r := registered(t, db)
	for range 2 {
		testkit.Must(t, db.Create(&order{}).Error)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
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

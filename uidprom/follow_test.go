// wing: follow

package uidprom_test

import (
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/follow"
	"github.com/uidplugin/uidplugin/internal/testkit"
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
		testkit.IsError(t, db.Create(&old).Error, follow.ErrTooLate)
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

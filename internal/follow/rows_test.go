package follow_test

import (
	"context"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/internal/follow"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// followAll returns the sequence of the ids of events.
func (e followed) followAll(ctx context.Context) func(func(int64, error) bool) {
	read := func(ctx context.Context, cursor follow.Cursor, limit int) (ids []int64, published int64, err error) {
		if published, err = e.mark.Published(ctx, e.db.ConnPool); err != nil {
			return nil, 0, err
		}
		err = e.db.WithContext(ctx).Raw("SELECT id FROM events WHERE id > ? AND id < ? ORDER BY id LIMIT ?", cursor.Last, published, limit).Scan(&ids).Error
		return ids, published, err
	}
	return follow.Rows(ctx, e.mark, follow.Cursor{}, follow.Options[int64]{Limit: 100, ID: func(id int64) int64 { return id }}, read)
}

// After a repair neither the follower that knows the error nor a new one gets it again. Formerly they got the error
// that the process had found up to a second before.
func TestRows_ReportsNoErrorThatWasRepaired(t *testing.T) {
	t.Parallel()
	e := enable(t, testkit.Engines()[0].New(t))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	row := e.id(t, time.Hour)
	testkit.Must(t, e.db.Exec("DROP TRIGGER uid_follow_events_862417").Error)
	repaired := false
	for got, err := range e.followAll(ctx) {
		if !repaired {
			testkit.IsError(t, err, follow.ErrNotEnabled)
			testkit.Must(t, follow.Enable(ctx, e.conn, e.table))
			testkit.Must(t, e.db.Create(&event{ID: row}).Error)
			repaired = true
			for got, err := range e.followAll(ctx) {
				if err != nil || got != row {
					t.Errorf("a new follower: %d, %v", got, err)
				}
				break
			}
			continue
		}
		if err != nil || got != row {
			t.Errorf("the follower that knows the error: %d, %v", got, err)
		}
		break
	}
}

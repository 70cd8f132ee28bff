package follow_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/follow"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

type regional struct {
	ID     uidplugin.ID
	Region int
}

// Two regions with a registry each write into one database, as when a shard was moved. A consumer leaves the rows of the
// other region out, because it cannot tell them from replicated ones, so at least the log must say it.
func TestConsume_TheLogTellsOfRowsOfOtherRegions(t *testing.T) {
	t.Parallel()
	shard, log := testkit.SQLite{Path: testkit.SQLitePath(t)}, &testkit.Log{}
	handles := make([]*gorm.DB, 2)
	for n := range handles {
		handles[n] = shard.Open(t)
		testkit.Must(t, handles[n].Use(uidplugin.New(uidplugin.WithRegistry(testkit.SQLite{}.Open(t)), uidplugin.WithRegion(n, 2),
			uidplugin.WithModels(&regional{}), uidplugin.WithLogger(log.Logger()))))
		t.Cleanup(func() { _ = uidplugin.From(handles[n]).Close(context.Background()) })
		testkit.Must(t, handles[n].AutoMigrate(&regional{}))
		testkit.Must(t, follow.Enable(t.Context(), handles[n], &regional{}, follow.WithSlack(time.Second)))
	}
	for _, n := range []int{1, 1, 0} {
		testkit.Must(t, handles[n].Create(&regional{Region: n}).Error)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var got []int
	_ = follow.Consume(ctx, handles[0], "sums", func(_ *gorm.DB, row *regional) error {
		got = append(got, row.Region)
		cancel()
		return nil
	})
	if !slices.Equal(got, []int{0}) {
		t.Errorf("rows of the regions %v", got)
	}
	log.SaysOnce(t, "followers leave out the rows of other regions")
}

package plugins_test

import (
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// fences returns the fences of the slots of a database.
func fences(t *testing.T, d *testkit.Database) map[int64]int64 {
	t.Helper()
	var slots []struct {
		ID    int64 `gorm:"column:ID"`
		Fence int64 `gorm:"column:FENCE"`
	}
	must(t, d.Open(t, nil).Raw("SELECT ID, FENCE FROM WORKER_SLOT").Scan(&slots).Error)
	byID := map[int64]int64{}
	for _, s := range slots {
		byID[s.ID] = s.Fence
	}
	return byID
}

// Slots are renewed on the source, and read there when the outcome of a statement is unknown. A replica that lags
// would return the past.
func TestResolver_SlotsAreRenewedOnTheSource(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, e testkit.Engine) {
		configured(t, func(t *testing.T, config *gorm.Config) {
			source, replica := migrated(t, e, shop...), migrated(t, e, shop...)
			options := []uidplugin.Option{uidplugin.WithModels(shop...), uidplugin.WithLead(3 * time.Second)}
			// The replica has the rows of a moment long past.
			former := plugin(t, options...)
			must(t, former.Initialize(replica.Open(t, nil)))
			testkit.MustClose(t, former)
			past := fences(t, replica)

			db := source.Open(t, config)
			must(t, db.Use(resolver(t, nil, []*testkit.Database{replica})))
			p := plugin(t, options...)
			must(t, db.Use(p))
			renewed := func(n int64) {
				t.Helper()
				goal := p.Stats().Slot.Renewals + n
				testkit.Eventually(t, "renewals", time.Minute, func() bool {
					_, err := p.NextID(t.Context(), &Customer{})
					return err == nil && p.Stats().Slot.Renewals >= goal
				})
			}
			first := fences(t, source)
			renewed(2)
			for id, fence := range fences(t, source) {
				if fence <= first[id] {
					t.Errorf("the fence of slot %d on the source is %d, it was %d", id, fence, first[id])
				}
			}
			// As if an answer had not arrived: the next renewal is refused, and the row read.
			must(t, source.Open(t, nil).Exec("UPDATE WORKER_SLOT SET FENCE = FENCE + 1, VERSION = VERSION + 1").Error)
			renewed(2)
			testkit.Eventually(t, "no error", time.Minute, func() bool { return p.Stats().Slot.LastError == nil })
			if s := p.Stats().Slot; s.LostCommits != 0 || s.Lost != 0 {
				t.Errorf("%+v", s)
			}
			for id, fence := range fences(t, replica) {
				if fence != past[id] {
					t.Errorf("the fence of slot %d on the replica was moved", id)
				}
			}
		})
	})
}

package plugins_test

import (
	"context"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"gorm.io/gorm"
)

// fences returns the fences of the worker ids of a database.
func fences(t *testing.T, d *database) map[int64]int64 {
	t.Helper()
	var nodes []struct {
		ID    int64 `gorm:"column:ID"`
		Fence int64 `gorm:"column:FENCE"`
	}
	must(t, d.open(t, nil).Raw("SELECT ID, FENCE FROM WORKER_NODE").Scan(&nodes).Error)
	byID := map[int64]int64{}
	for _, n := range nodes {
		byID[n.ID] = n.Fence
	}
	return byID
}

// Worker ids are renewed on the source, and read there when it is not known what has
// become of them: a replica that lags would tell of the past.
func TestResolverAndRenewals(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, e engine) {
		configured(t, func(t *testing.T, config *gorm.Config) {
			source, replica := migrated(t, e, shop...), migrated(t, e, shop...)
			base, factor := time.Now(), time.Duration(10)
			if e.name == "sqlite" {
				factor = 600 // its leases are of minutes
			}
			layout := generator.DefaultLayout()
			layout.SequenceBits = 5
			options := []uidplugin.Option{uidplugin.WithLayout(layout), uidplugin.WithModels(shop...), uidplugin.WithMaxLanes(1), uidplugin.WithSpares(0),
				uidplugin.WithClock(func() time.Time { return base.Add(time.Since(base) * factor) })}
			// The replica has the rows of a moment long past.
			must(t, plugin(t, options...).Initialize(replica.open(t, nil)))
			past := fences(t, replica)

			db := source.open(t, config)
			must(t, db.Use(resolver(t, nil, []*database{replica})))
			p := plugin(t, options...)
			must(t, db.Use(p))
			renewed := func(n int64) {
				t.Helper()
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				for goal := p.Stats().Leases.Renewed + n; p.Stats().Leases.Renewed < goal; {
					if _, err := p.NextID(ctx, &Customer{}); err != nil {
						t.Fatal(err)
					}
				}
			}
			first := fences(t, source)
			renewed(2)
			for id, fence := range fences(t, source) {
				if fence <= first[id] {
					t.Errorf("the fence of worker id %d on the source is %d, it was %d", id, fence, first[id])
				}
			}
			// As if an answer had not arrived: the next renewal is refused, and the row read.
			must(t, source.open(t, nil).Exec("UPDATE WORKER_NODE SET FENCE = FENCE + 1").Error)
			renewed(2)
			if s := p.Stats().Leases; s.Regressed != 0 || s.Lost != 0 || s.LastError != nil {
				t.Errorf("%+v", s)
			}
			for id, fence := range fences(t, replica) {
				if fence != past[id] {
					t.Errorf("the fence of worker id %d on the replica was moved", id)
				}
			}
		})
	})
}

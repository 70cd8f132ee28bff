package lookup

import (
	"context"
	"sync"

	"github.com/uidplugin/uidplugin/internal/workernode"
	"gorm.io/gorm"
)

// A regionFilter tells ids of this region from those of others, whose rows come by replication: each region follows its
// own, because a replicated row may come after the mark has passed its id.
type regionFilter struct {
	loc    *Locator
	region workernode.Region

	mu  sync.Mutex
	own map[int64]bool // by worker id
}

func (loc *Locator) newRegionFilter() *regionFilter {
	f := &regionFilter{loc: loc, region: workernode.Whole, own: map[int64]bool{}}
	if loc.Manager != nil {
		f.region = loc.Manager.Registry().Region
	}
	return f
}

// learn reads the regions of the worker ids of ids. Call it before isOwn.
func (f *regionFilter) learn(ctx context.Context, db *gorm.DB, ids []int64) error {
	if f.region == workernode.Whole {
		return nil
	}
	var unknown []int64
	f.mu.Lock()
	for _, id := range ids {
		if worker, ok := f.worker(id); ok {
			if _, known := f.own[worker]; !known {
				unknown = append(unknown, worker)
			}
		}
	}
	f.mu.Unlock()
	if len(unknown) == 0 {
		return nil
	}
	regions, err := f.loc.workersFor(db).Regions(ctx, unknown...)
	f.mu.Lock()
	defer f.mu.Unlock()
	for worker, region := range regions {
		f.own[worker] = region == f.region.N
	}
	return err
}

// isOwn reports whether an id may be of this region. Small numbers, such as earlier keys, are. A worker id that is not
// in the tables yet, because its row comes later, is of the region that gives out such numbers.
func (f *regionFilter) isOwn(id int64) bool {
	worker, ok := f.worker(id)
	if f.region == workernode.Whole || !ok {
		return true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if own, known := f.own[worker]; known {
		return own
	}
	return worker%f.region.Of == f.region.N
}

func (f *regionFilter) worker(id int64) (int64, bool) {
	parts, err := f.loc.Decode(id)
	return parts.WorkerID, err == nil
}

package lookup

import (
	"context"
	"sync"

	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// A regionFilter finds the ids of this region. A follower yields only their rows, because a row of another region may be
// replicated after the mark has passed its id.
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

// learn looks up the regions of the worker ids in ids, once for each worker id. Call it before isOwn.
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
	regions, err := f.loc.WorkersFor(db).Regions(ctx, unknown...)
	f.mu.Lock()
	defer f.mu.Unlock()
	for worker, region := range regions {
		f.own[worker] = region == f.region.N
	}
	return err
}

// isOwn reports whether an id is of this region. A key without a worker id, such as a small one from before the plugin,
// counts as its own. If the row of a worker id is not replicated yet, its remainder decides.
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

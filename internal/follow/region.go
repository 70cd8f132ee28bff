package follow

import (
	"context"
	"sync"

	"github.com/uidplugin/uidplugin/workernode"
)

// A Regions tells which ids are of this region. A follower yields only rows with such ids, because a row of another
// region may be replicated after the mark has passed its id.
type Regions struct {
	region   workernode.Region
	workerOf func(id int64) (workerID int64, ok bool)

	mu  sync.Mutex
	own map[int64]bool // by worker id
}

// NewRegions returns a filter for the ids of a region. workerOf returns the worker id in an id.
func NewRegions(region workernode.Region, workerOf func(id int64) (workerID int64, ok bool)) *Regions {
	return &Regions{region: region, workerOf: workerOf, own: map[int64]bool{}}
}

// IsRegional reports whether rows of other regions may be replicated to the tables of a region.
func IsRegional(region workernode.Region) bool { return region != workernode.Whole }

// Learn looks up the regions of those worker ids in ids that r does not know yet. Call it before IsOwn.
func (r *Regions) Learn(ctx context.Context, workers *workernode.DB, ids []int64) error {
	if !IsRegional(r.region) {
		return nil
	}
	var unknown []int64
	r.mu.Lock()
	for _, id := range ids {
		if worker, ok := r.workerOf(id); ok {
			if _, known := r.own[worker]; !known {
				unknown = append(unknown, worker)
			}
		}
	}
	r.mu.Unlock()
	if len(unknown) == 0 {
		return nil
	}
	regions, err := workers.Regions(ctx, unknown...)
	r.mu.Lock()
	defer r.mu.Unlock()
	for worker, region := range regions {
		r.own[worker] = region == r.region.N
	}
	return err
}

// IsOwn reports whether an id is of this region. It reports true for a key without a worker id, such as a small key
// from before the plugin. If the region of a worker id is not known, the worker id modulo r.region.Of decides.
func (r *Regions) IsOwn(id int64) bool {
	worker, ok := r.workerOf(id)
	if !IsRegional(r.region) || !ok {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if own, known := r.own[worker]; known {
		return own
	}
	return worker%r.region.Of == r.region.N
}

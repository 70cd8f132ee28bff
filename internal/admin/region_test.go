package admin

import (
	"errors"
	"testing"

	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
)

func TestDivide_Refuses(t *testing.T) {
	t.Parallel()
	d := begun(t, "", 1, 2)
	for _, of := range []int64{-2, 0, 1, 3, 1 << 40} {
		if r, err := d.divide(t.Context(), workernode.Region{N: 1, Of: 2}, of); !errors.Is(err, workernode.ErrRegion) {
			t.Error(of, r, err)
		}
	}
	if _, err := d.divide(t.Context(), workernode.Whole, 4); !errors.Is(err, workernode.ErrRegion) {
		t.Errorf("somebody else has divided it: %v", err)
	}
	if r, err := d.Nodes.Registry(t.Context()); err != nil || r.Region != (workernode.Region{N: 1, Of: 2}) {
		t.Error(r, err)
	}
}

// The statement that creates another region's registry begins where this one's counters are, in the other region.
func TestInsertOf_CreatesTheRegistryOfAnotherRegion(t *testing.T) {
	t.Parallel()
	d, other := begun(t, "", 0, 1), begun(t, "", 0, 1)
	r, err := d.divide(t.Context(), workernode.Whole, 2)
	testkit.Must(t, err)
	_, err = other.SQL.Exec(t.Context(), `DELETE FROM "WORKER_REGISTRY"`)
	testkit.Must(t, err)
	want := r.Other(1)
	_, err = other.SQL.Exec(t.Context(), insertOf(want))
	testkit.Must(t, err)
	if got, err := other.Nodes.Registry(t.Context()); err != nil || got != want || got.NextID%2 != 1 {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
}

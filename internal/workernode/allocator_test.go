package workernode

import (
	"testing"
	"time"
)

// A failed attempt to add worker ids can wait if all generators have some. It is an error for a generator without any.
func TestAllocatorPostpone_RefusesIfAGeneratorHasNoWorkerID(t *testing.T) {
	t.Parallel()
	orders, items := Table{Name: "orders"}, Table{Name: "items"}
	again := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	grows := &TableLease{table: orders, lanes: []*worker{{id: 1}}, want: 4}
	lacks := &TableLease{table: items, want: 1}
	a := &allocator{leases: []*TableLease{grows, lacks}}
	if a.postpone([]Table{items}, again) || grows.want != 4 {
		t.Errorf("postponed, although items has no worker id; orders wants %d", grows.want)
	}
	if !a.postpone([]Table{orders}, again) || grows.want != 1 || grows.again != again || lacks.want != 1 {
		t.Errorf("not postponed: orders wants %d, items %d", grows.want, lacks.want)
	}
}

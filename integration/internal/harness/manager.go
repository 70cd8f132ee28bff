package harness

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/migrations"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// SmallLayout returns a layout with ticks of a second.
func SmallLayout(sequenceBits uint8) generator.Layout {
	return generator.Layout{TimeBits: 32, WorkerBits: 18, SequenceBits: sequenceBits, Tick: time.Second,
		Epoch: generator.DefaultLayout().Epoch}
}

var hosts atomic.Int64

// NewManager returns a lease manager without a plugin, like a new process on a machine of its own.
func NewManager(t *testing.T, db *gorm.DB, c *testkit.Clock, change func(*workernode.Config)) *workernode.Manager {
	t.Helper()
	d, err := workernode.Open(db, time.Minute) // long, because the machine may be busy
	testkit.Must(t, err)
	testkit.Must(t, migrations.Up(t.Context(), db))
	config := workernode.Config{Now: c.Now, Lead: workernode.DefaultLead}
	if change != nil {
		change(&config)
	}
	host := workernode.Host{Name: fmt.Sprint("h", hosts.Add(1)), Port: "1", Kind: workernode.Actual, Application: "tests"}
	m, err := workernode.NewManager(t.Context(), d, SmallLayout(4), host, config)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = m.Close(context.Background()) })
	return m
}

// A Tenant makes ids of a table. Without a lease, Next fails instead of waiting.
type Tenant struct {
	*generator.Cached
	Lease *workernode.TableLease
}

// NewTenant leases a worker id for a table.
func NewTenant(t *testing.T, m *workernode.Manager, table string) *Tenant {
	t.Helper()
	leases, err := m.Assign(t.Context(), []workernode.Table{{Name: table}}, nil)
	testkit.Must(t, err)
	return Attach(t, m, leases[0])
}

// Attach returns a tenant with a new generator, which uses the lease.
func Attach(t *testing.T, m *workernode.Manager, l *workernode.TableLease) *Tenant {
	t.Helper()
	g, err := generator.NewCached(generator.CachedConfig{Layout: SmallLayout(4), Lease: l.Leases()[0], NoWait: true,
		Clock:     generator.NewClock(m.Now),
		MaxBorrow: time.Hour, OnLow: func() {}})
	testkit.Must(t, err)
	l.Attach(g)
	return &Tenant{g, l}
}

// Drain takes all available ids of a tenant.
func (g *Tenant) Drain(t *testing.T) (ids []int64) {
	t.Helper()
	for {
		id, err := g.Next(t.Context())
		if err == nil {
			ids = append(ids, id)
			continue
		}
		if !errors.Is(err, generator.ErrLeaseExpired) {
			t.Fatal(err)
		}
		return ids
	}
}

// Renewed waits until a tenant has ids again. It advances the clock, because a statement with an unknown outcome
// may have used up the present ticks.
func (g *Tenant) Renewed(t *testing.T, m *workernode.Manager, c *testkit.Clock) {
	t.Helper()
	begin := time.Now()
	testkit.Eventually(t, "renewal", time.Minute, func() bool {
		m.RequestRenewal()
		if time.Since(begin) > 500*time.Millisecond { // a busy manager has sent its due statements by then
			begin = time.Now()
			c.Add(time.Second)
		}
		return g.Usage().Left > 0
	})
}

// FewWorkers returns the default layout with another number of bits for worker ids.
func FewWorkers(workerBits uint8) generator.Layout {
	l := generator.DefaultLayout()
	l.WorkerBits = workerBits
	return l
}

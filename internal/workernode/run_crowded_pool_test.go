package workernode_test

import (
	"context"
	"database/sql/driver"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/internal/workernode"
)

// A pool whose connections are always taken, each for some seconds: a renewal waits for one, and is then sent. It gave
// up after two seconds, and had to read the slot's row before the next attempt. With a hundred callers on four
// connections a process was without a lease for half a minute.
func TestManager_RenewsThroughACrowdedPool(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.start(func(c *workernode.Config, _ *workernode.Host) { c.Lead = 10 * time.Second })
		p.assign(table("a"))
		pool, err := p.db.DB()
		must(t, err)
		pool.SetMaxOpenConns(1)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range 60 {
				conn, err := pool.Conn(t.Context())
				must(t, err)
				time.Sleep(2500*time.Millisecond + rand.N(2300*time.Millisecond))
				must(t, conn.Close())
			}
		}()
		for range 200 {
			p.make(table("a"), 100)
			if s := p.Stats(); s.LastError != nil || s.Until < w.tick() {
				t.Fatalf("%+v, now is %d", s, w.tick())
			}
			time.Sleep(time.Second)
		}
		<-done
		w.check()
	})
}

// A free slot was avoided for a minute, and a new one inserted, because the pool had no connection for a moment.
func TestManager_ReclaimsAFreeSlotThatItHadNoConnectionFor(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		long := func(c *workernode.Config, _ *workernode.Host) { c.Lead = 10 * time.Second }
		a := w.start(long)
		a.assign(table("a"))
		a.generators[table("a")].Close()
		must(t, a.Close(t.Context()))
		time.Sleep(2 * time.Minute)

		b := w.start(long)
		pool, err := b.db.DB()
		must(t, err)
		pool.SetMaxOpenConns(1)
		cut := false
		b.wire.Set(func(c *testkit.Crossing) error {
			if c.Is("BEGIN") && !cut { // the lease manager has read which slots are free
				cut = true
				go func() {
					conn, err := pool.Conn(context.Background())
					must(t, err)
					time.Sleep(6 * time.Second)
					must(t, conn.Close())
				}()
				time.Sleep(time.Millisecond)
				return driver.ErrBadConn
			}
			return c.Run()
		})
		b.assign(table("a"))
		if s := b.Stats(); s.Reclaimed != 1 || s.Allocated != 0 || !cut {
			t.Errorf("slot 1 is free: %+v", s)
		}
		time.Sleep(10 * time.Second)
	})
}

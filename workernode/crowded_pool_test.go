package workernode_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/workernode"
)

// A pool whose connections are always taken, each for some seconds: a renewal waits for one, and is then sent. It gave up
// after two seconds, and had to read the slot's row before the next attempt. With a hundred callers on four connections a
// process was without a lease for half a minute.
func TestManager_WithACrowdedPool(t *testing.T) {
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

//go:build linux

package chaos_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// A promotionProcess is a plugin with its own pool and its own connections to the server. It creates rows of some
// tables, most of them without an INSERT.
type promotionProcess struct {
	name  string
	route *testkit.Relay
	maker *pluginMaker
	quit  chan struct{}
	group sync.WaitGroup
	back  atomic.Int64 // when it was led to the replica, in Unix nanoseconds

	mu              sync.Mutex
	ids             []int64
	faults          int
	leases          workernode.SlotStats // in the end
	stall, recovery time.Duration        // the longest time without ids over back, and its end from back on
}

// start starts a process, whose clock is off, and returns when it has worker ids.
func (p *promotion) start(t *testing.T, name, address string, off time.Duration, tables ...int) *promotionProcess {
	t.Helper()
	c := &promotionProcess{name: name, route: testkit.NewRelay(t, address), quit: make(chan struct{})}
	p.processes = append(p.processes, c)
	t.Cleanup(func() { c.end(t) })
	db, err := gorm.Open(mysql.Open(harness.MariaDBDSN(c.route.Address(), p.schema)), &gorm.Config{Logger: logger.Discard})
	if err == nil {
		c.maker, err = p.register(db, off)
	}
	if err != nil {
		t.Errorf("%s: %s: %v", p.name, name, err)
		return c
	}
	for _, table := range tables {
		c.group.Go(func() { c.create(table) })
	}
	return c
}

func (p *promotion) register(db *gorm.DB, off time.Duration) (*pluginMaker, error) {
	pool, err := db.DB()
	if err != nil {
		return nil, err
	}
	pool.SetMaxOpenConns(3)
	insert := db.Callback().Create().Get("gorm:create")
	err = db.Callback().Create().Replace("gorm:create", func(db *gorm.DB) {
		if _, only := db.Get(onlyIDs); !only {
			insert(db)
		}
	})
	if err != nil {
		return nil, err
	}
	now := func() time.Time { return time.Now().Add(off) }
	options := []uidplugin.Option{harness.Quiet, uidplugin.WithLayout(harness.SmallLayout(promotedSequenceBits)), uidplugin.WithClock(now),
		uidplugin.WithTimeout(time.Minute)}
	plugin := uidplugin.New(options...)
	if err := db.Use(plugin); err != nil {
		return nil, err
	}
	for _, table := range chaosTables {
		if err := db.AutoMigrate(table.model); err != nil {
			return nil, err
		}
	}
	return &pluginMaker{db, plugin}, nil
}

// create makes ids of a table faster than one worker id allows for long, so that all granted ids are used up.
func (c *promotionProcess) create(table int) {
	const batch, rate = 64, 1500
	ids := make([]int64, batch)
	last, due := time.Now(), time.Now()
	for i := 1; ; i++ {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		var err error
		got := ids
		switch {
		case i%16 == 0:
			got = ids[:1]
			got[0], err = c.maker.next(ctx, table)
		case i%40 == 0: // an INSERT that failed may have been executed
			got, err = c.maker.insert(ctx, table, 2)
			if err != nil && strings.Contains(err.Error(), "Error 1062") {
				c.fault()
			}
			if got[0] > 0 {
				err = nil
			}
		default:
			err = c.maker.fill(ctx, table, ids)
		}
		cancel()
		if err == nil {
			c.record(got, last)
			last = time.Now()
			due = due.Add(time.Second * batch / rate)
		} else if errors.Is(err, uidplugin.ErrClosed) {
			return
		}
		if err != nil {
			due = time.Now().Add(10 * time.Millisecond)
		}
		due = laterOf(due, time.Now().Add(-time.Second))
		select {
		case <-c.quit:
			return
		case <-time.After(time.Until(due)):
		}
	}
}

func laterOf(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

func (c *promotionProcess) fault() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults++
}

// record notes ids; last is the time of the ids before.
func (c *promotionProcess) record(ids []int64, last time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ids = append(c.ids, ids...)
	now, back := time.Now(), c.back.Load()
	if last.UnixNano() < back && back < now.UnixNano() && now.Sub(last) > c.stall {
		c.stall, c.recovery = now.Sub(last), time.Duration(now.UnixNano()-back)
	}
}

func (c *promotionProcess) made() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.ids)
}

// end ends the process, if it has not ended.
func (c *promotionProcess) end(t *testing.T) {
	if c.maker == nil {
		return
	}
	close(c.quit)
	c.group.Wait()
	c.leases = c.maker.stats()
	harness.Close(t, c.maker.plugin)
	if pool, err := c.maker.db.DB(); err == nil {
		_ = pool.Close()
	}
	c.maker = nil
}

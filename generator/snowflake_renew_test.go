package generator_test

import (
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

func TestSnowflakeRenew_RefusesLanes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := ticks(time.Second, 4)
		now := lease(l, 10)
		g := defaults(t, generator.SnowflakeConfig{Layout: l, Lease: now})
		testkit.IsError(t, g.Renew(leases(now.From, now.Until, 9, 10)...), generator.ErrConfig)
		ascending(t, l, -1, fill(t, g, 16)...)
	})
}

// A lease that begins ahead of the clock is used at once. Ids stay as far ahead as the lease began, or less, tick by
// tick as the clock moves, and no longer than necessary.
func TestSnowflakeRenew_ALeaseAheadIsStampedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, renewed := range []bool{false, true} {
			l := ticks(time.Second, 4)
			time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(1300 * time.Millisecond)))
			now := l.TickAt(time.Now())
			begin := time.Now()
			ahead := generator.Lease{WorkerID: 9, From: now + 10, Until: now + 1000}
			c := generator.SnowflakeConfig{Layout: l, Lease: ahead}
			if renewed {
				c.Lease = generator.Lease{WorkerID: 20, From: now, Until: now + 5}
			}
			g := defaults(t, c)
			if renewed {
				next(t, g)
				renew(t, g, ahead)
			}
			// Five ticks of ids: the first at once, the others with the clock's.
			after := int64(-1)
			for i := range int64(5) {
				ids := fill(t, g, 16)
				after = ascending(t, l, after, ids...)
				if tickOf(l, ids[0]) != now+10+i || tickOf(l, ids[15]) != now+10+i {
					t.Errorf("ids %d to %d are of tick %d", 16*i, 16*i+15, tickOf(l, ids[0])-now)
				}
				if want := begin.Add(-300 * time.Millisecond).Add(time.Duration(i) * time.Second); i > 0 && !time.Now().Equal(want) {
					t.Errorf("tick %d was begun at %v, want %v", i, time.Now(), want)
				}
			}
			// Ids are taken more slowly now, so the clock, which is at 4, comes up to 15.
			for range 16 {
				after = ascending(t, l, after, next(t, g))
				if got := tickOf(l, after) - now; got != 15 {
					t.Errorf("with the clock at %d an id is of tick %d", l.TickAt(time.Now())-now, got)
				}
				time.Sleep(700 * time.Millisecond)
			}
			for range 10 {
				after = ascending(t, l, after, next(t, g))
				if got := tickOf(l, after); got != l.TickAt(time.Now()) {
					t.Errorf("with the clock at %d an id is of tick %d", l.TickAt(time.Now())-now, got-now)
				}
				time.Sleep(700 * time.Millisecond)
			}
			// It is not ahead any more, and will not be again.
			fill(t, g, 16)
			start := time.Now()
			if id := next(t, g); tickOf(l, id) != l.TickAt(time.Now()) || time.Now().Equal(start) {
				t.Errorf("with the clock at %v an id is of %v", time.Now(), decompose(t, l, id).Time)
			}
		}
	})
}

// Also with a lease ahead of the clock, only the time by which the clock was set back counts as going back.
func TestSnowflakeRenew_ALeaseAheadNoticesAClockSetBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var c wall
		l := ticks(time.Second, 4)
		time.Sleep(250 * time.Millisecond)
		now := l.TickAt(time.Now())
		lease := generator.Lease{WorkerID: 9, From: now + 100, Until: now + 1000}
		g := defaults(t, generator.SnowflakeConfig{Layout: l, Lease: lease, MaxClockBackwards: 5 * time.Second, Now: c.now})
		after := ascending(t, l, -1, fill(t, g, 40)...) // up to the third tick, at 2 s
		c.step(-5 * time.Second)
		start := time.Now()
		after = ascending(t, l, after, next(t, g))
		if got := time.Since(start); got != 5*time.Second || tickOf(l, after) != now+102 {
			t.Errorf("set back 5 s, an id of tick %d came after %v", tickOf(l, after)-now, got)
		}
		c.step(-6 * time.Second)
		fails(t, g, generator.ErrClockBackwards)
		lease.Until++
		renew(t, g, lease) // the same beginning is no reason to be further ahead
		fails(t, g, generator.ErrClockBackwards)
		lease.From += 50
		renew(t, g, lease) // but another is
		ascending(t, l, after, next(t, g))
	})
}

// After a clock was set forward by mistake and back again, Snowflake refuses, but a new lease above its ids is usable.
func TestSnowflakeRenew_ALeaseAboveAWrongStepIsUsable(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var c wall
		l := ticks(time.Second, 4)
		now := lease(l, 100)
		g := defaults(t, generator.SnowflakeConfig{Layout: l, Lease: now, OnLow: nobody, MaxClockBackwards: time.Second, Now: c.now})
		c.step(50 * time.Second)
		after := next(t, g)
		c.step(-50 * time.Second)
		fails(t, g, generator.ErrClockBackwards)
		now.From += 51
		renew(t, g, now)
		after = ascending(t, l, after, fill(t, g, 16)...)
		// Ids do not follow the clock beyond the lease, so the ids that are left are of the past.
		c.step(time.Hour)
		after = ascending(t, l, after, fill(t, g, 16)...)
		c.step(-time.Hour)
		after = ascending(t, l, after, next(t, g))
		if got := tickOf(l, after); got > now.From+3 {
			t.Errorf("an id is of tick %d of the lease", got-now.From)
		}
	})
}

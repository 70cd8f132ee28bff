package workernode

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/uidplugin/uidplugin/generator"
)

// DefaultMaxSkew is the default limit for the difference between the clocks of a process and its database. Drift
// seldom causes a larger difference, and daylight saving time causes none, because we compare both clocks in UTC.
const DefaultMaxSkew = 10 * time.Minute

// noticedSkew is the smallest difference that is logged, because the database's clock is read in whole seconds.
const noticedSkew = 2 * time.Second

// Clock returns the database's clock, to a second. ok is false for databases without a clock of their own, such as
// SQLite, and for unknown dialects.
func (d *DB) Clock(ctx context.Context) (now time.Time, ok bool, err error) {
	query := map[string]string{
		"mysql":    `SELECT UNIX_TIMESTAMP()`,
		"postgres": `SELECT CAST(EXTRACT(EPOCH FROM CURRENT_TIMESTAMP) AS BIGINT)`,
	}[d.sql.Dialect()]
	if query == "" {
		return now, false, nil
	}
	var seconds int64
	if err := d.sql.Query(ctx, func(rows *sql.Rows) error { return rows.Scan(&seconds) }, query); err != nil {
		return now, false, fmt.Errorf("workernode: read the database's clock: %w", err)
	}
	return time.Unix(seconds, 0), true, nil
}

// CheckClock returns an error that wraps [ErrClock] if the clock of now() differs from the database's by more than
// skew. It returns nil if the database has no clock, or if skew is 0.
func (d *DB) CheckClock(ctx context.Context, now func() time.Time, skew time.Duration) error {
	_, err := d.behind(ctx, now, skew)
	return err
}

// behind returns the smallest possible lag of now() behind the database's clock, negative if now() is ahead.
func (d *DB) behind(ctx context.Context, now func() time.Time, skew time.Duration) (lag time.Duration, err error) {
	if skew <= 0 {
		return 0, nil
	}
	before := now()
	theirs, ok, err := d.Clock(ctx)
	if err != nil || !ok {
		return 0, err
	}
	after := now()
	if after.Before(before) {
		before, after = after, before
	}
	lag = max(theirs.Sub(after), 0) + min(theirs.Sub(before), 0)
	if lag > skew || lag < -skew {
		err = fmt.Errorf("%w: it is %s here and %s on the database's machine, so ids would have a wrong time: correct the wrong clock",
			ErrClock, after.UTC().Format(time.DateTime), theirs.UTC().Format(time.DateTime))
	}
	return lag, err
}

// A clock is the protocol's time. It never goes back, and follows the wall clock as [clockCheck.follow] decides.
type clock struct {
	read   func() time.Time
	layout generator.Layout
	base   time.Time // the first reading

	gained atomic.Int64 // how far this clock was set ahead since base, in nanoseconds
	latest atomic.Int64 // latest reading since base, in nanoseconds; used only without monotonic readings
}

func newClock(now func() time.Time, layout generator.Layout) *clock {
	return &clock{read: now, layout: layout, base: now()}
}

// now returns the time. It may be called concurrently.
func (c *clock) now() time.Time { return c.steady(c.read()) }

func (c *clock) tick() int64 { return max(c.layout.TickAt(c.now()), 0) }

func (c *clock) steady(reading time.Time) time.Time {
	passed := int64(reading.Sub(c.base)) + c.gained.Load()
	if c.base == c.base.Round(0) { // no monotonic reading: a test's clock
		for latest := c.latest.Load(); ; latest = c.latest.Load() {
			if passed <= latest {
				passed = latest
				break
			}
			if c.latest.CompareAndSwap(latest, passed) {
				break
			}
		}
	}
	return c.base.Round(0).Add(time.Duration(passed))
}

// reach sets the clock ahead to target, and returns by how much. It returns 0 if target has passed or is more than
// limit ahead. It may be called concurrently.
func (c *clock) reach(target time.Time, limit time.Duration) time.Duration {
	for {
		gained := c.gained.Load()
		ahead := target.Sub(c.now())
		if ahead <= 0 || ahead > limit {
			return 0
		}
		if c.gained.CompareAndSwap(gained, gained+int64(ahead)) {
			return ahead
		}
	}
}

// A clockCheck compares the clock with the database's. Only the goroutine of the lease manager uses it.
type clockCheck struct {
	store   *statements
	clock   *clock
	maxSkew time.Duration // 0 disables the comparison
	log     *slog.Logger

	at, shown time.Time     // when check last succeeded, and what the clock showed then
	refused   time.Duration // how far ahead the wall clock was when follow last refused to follow it
	asked     time.Time     // when follow last refused to follow the wall clock
}

// check compares the clocks at the first use, and whenever the clock has run more than maxSkew ahead of elapsed time.
func (c *clockCheck) check(ctx context.Context) error {
	at, shown := time.Now(), c.clock.now()
	if c.at.IsZero() || shown.Sub(c.shown) > at.Sub(c.at)+c.maxSkew {
		behind, err := c.store.db.behind(ctx, c.clock.now, c.maxSkew)
		if err != nil {
			return err
		}
		if behind.Abs() >= noticedSkew {
			c.log.Warn("uidplugin: the clock of this process differs from the database's: set the one that is wrong; if this process is a minute behind, other processes take its slot",
				"behind", behind)
		}
	}
	if err := c.follow(ctx); err != nil {
		return err
	}
	c.at, c.shown = at, c.clock.now()
	return nil
}

// follow adjusts the clock if the wall clock has run ahead of the monotonic one, because an operator set it or the
// machine slept. The database's clock, if there is one, must agree, because our clock cannot go back after a wrong
// wall clock is corrected. Otherwise follow asks again later, because the database's clock may be set last after
// both machines slept.
func (c *clockCheck) follow(ctx context.Context) error {
	reading := c.clock.read()
	ahead := reading.Round(0).Sub(c.clock.steady(reading))
	known := ahead > c.refused-time.Second && ahead < c.refused+time.Second
	if ahead < time.Second || known && time.Since(c.asked) < grace/2 {
		return nil
	}
	theirs, ok, err := c.store.db.Clock(ctx)
	if err != nil {
		return err
	}
	if !ok || theirs.Sub(c.clock.now()) > ahead/2 {
		c.clock.gained.Add(int64(ahead))
		c.refused = 0
		c.log.Info("uidplugin: the wall clock has run ahead; ids follow it", "by", ahead, "database_agrees", ok)
		return nil
	}
	c.refused, c.asked = ahead, time.Now()
	if !known {
		c.log.Warn("uidplugin: the wall clock has run ahead, and the database's has not; ids do not follow it", "by", ahead)
	}
	return nil
}

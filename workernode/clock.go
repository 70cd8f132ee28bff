package workernode

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"
	"time"
)

// DefaultMaxSkew is the default of the largest difference between the clocks of a process and its database. Neither
// daylight saving time nor drift explains more.
const DefaultMaxSkew = 10 * time.Minute

// Clock returns the database's clock, to a second. ok is false if the database has no clock of its own, such as SQLite,
// or its dialect is not known.
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

// CheckClock returns an error that wraps [ErrClock] if now is further than skew from
// the database's clock. A database without one agrees with everything; so does a skew
// of 0.
func (d *DB) CheckClock(ctx context.Context, now func() time.Time, skew time.Duration) error {
	if skew <= 0 {
		return nil
	}
	before := now()
	theirs, ok, err := d.Clock(ctx)
	if err != nil || !ok {
		return err
	}
	after := now()
	if theirs.Sub(before) >= -skew && theirs.Sub(after) <= skew || theirs.Sub(after) >= -skew && theirs.Sub(before) <= skew {
		return nil
	}
	return fmt.Errorf("%w: it is %s here and %s on the database's machine, and ids would have a wrong time: set the clock that is wrong",
		ErrClock, after.UTC().Format(time.DateTime), theirs.UTC().Format(time.DateTime))
}

// A clock is the time as the protocol sees it. It never goes back. It does not see the wall
// clock being set, unless that runs ahead and the database's clock agrees; see follow.
type clock struct {
	read func() time.Time
	base time.Time // the first reading

	gained atomic.Int64 // by how much the wall clock has run ahead since base, as far as it is followed, in nanoseconds
	latest atomic.Int64 // latest reading since base, in nanoseconds; only if read has no monotonic reading
}

func newClock(read func() time.Time) *clock { return &clock{read: read, base: read()} }

// now returns the time. It may be called concurrently.
func (c *clock) now() time.Time { return c.steady(c.read()) }

func (c *clock) steady(reading time.Time) time.Time {
	passed := int64(reading.Sub(c.base)) + c.gained.Load()
	if c.base == c.base.Round(0) { // no monotonic reading: the clock of a test
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

// A clockCheck decides when the clock is compared with the database's. Only the lease manager uses it.
type clockCheck struct {
	at, shown time.Time     // when the clock was last found right, and what it showed
	refused   time.Duration // what the wall clock was ahead when it was last not followed
}

// checkClock compares the clock with the database's at its first use, and when it has run ahead of the time that has
// passed.
func (m *Manager) checkClock(ctx context.Context) error {
	at, shown := time.Now(), m.clock.now()
	c := &m.clockCheck
	if c.at.IsZero() || shown.Sub(c.shown) > at.Sub(c.at)+m.config.MaxSkew {
		if err := m.store.db.CheckClock(ctx, m.clock.now, m.config.MaxSkew); err != nil {
			return err
		}
	}
	if err := m.follow(ctx); err != nil {
		return err
	}
	c.at, c.shown = at, m.clock.now()
	return nil
}

// follow adjusts the clock to the wall clock if that has run ahead of the monotonic one: an operator has set it, or the
// machine has slept. The database's clock tells which is right. A fence set by a wrong clock would stand in the way
// when the clock is set right.
func (m *Manager) follow(ctx context.Context) error {
	reading := m.clock.read()
	ahead := reading.Round(0).Sub(m.clock.steady(reading))
	c := &m.clockCheck
	known := ahead > c.refused-time.Second && ahead < c.refused+time.Second
	if ahead < time.Second || known {
		return nil
	}
	theirs, ok, err := m.store.db.Clock(ctx)
	if err != nil {
		return err
	}
	if !ok || theirs.Sub(m.clock.now()) > ahead/2 {
		m.clock.gained.Add(int64(ahead))
		c.refused = 0
		m.log.Info("uidplugin: the wall clock has run ahead; ids follow it", "by", ahead, "database_agrees", ok)
		return nil
	}
	c.refused = ahead
	m.log.Warn("uidplugin: the wall clock has run ahead, and the database's has not; ids do not follow it", "by", ahead)
	return nil
}

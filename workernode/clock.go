package workernode

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"time"
)

// DefaultMaxSkew is how far the clocks of a process and its database may be apart,
// unless told otherwise: what no daylight and no drift explains.
const DefaultMaxSkew = 10 * time.Minute

// Clock returns the database's clock, to a second. ok is false if it has none of its
// own, as SQLite, or is not known here.
func (d *DB) Clock(ctx context.Context) (now time.Time, ok bool, err error) {
	query := map[string]string{
		"mysql":    `SELECT UNIX_TIMESTAMP()`,
		"postgres": `SELECT CAST(EXTRACT(EPOCH FROM CURRENT_TIMESTAMP) AS BIGINT)`,
	}[d.Dialect()]
	if query == "" {
		return now, false, nil
	}
	var seconds int64
	if err := d.Query(ctx, func(rows *sql.Rows) error { return rows.Scan(&seconds) }, query); err != nil {
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
	return fmt.Errorf("%w: it is %s here and %s on the database's machine, and ids would bear a wrong time: set the clock that is wrong",
		ErrClock, after.UTC().Format(time.DateTime), theirs.UTC().Format(time.DateTime))
}

// checkClock checks the clock when it is looked at for the first time, and when it
// has run ahead: of the time that has passed, or the wall clock of the monotonic one.
func (k *Leased) checkClock(ctx context.Context) error {
	real, now := time.Now(), k.clock()
	k.mu.Lock()
	passed, gained := real.Sub(k.lookedReal), now.Sub(k.looked)
	first := k.lookedReal.IsZero()
	k.mu.Unlock()
	if first || gained > passed+k.config.MaxSkew {
		if err := k.db.CheckClock(ctx, k.clock, k.config.MaxSkew); err != nil {
			return err
		}
	}
	if err := k.follow(ctx); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lookedReal, k.looked = real, k.clock()
	return nil
}

// follow has the clock follow the wall clock if that has run ahead of the monotonic
// one: somebody has set it, or the machine has slept. The database's clock tells
// whether it is right; a fence that a wrong one has set would stand in the way when
// it is set right.
func (k *Leased) follow(ctx context.Context) error {
	wall := k.config.Now()
	ahead := wall.Round(0).Sub(k.steady(wall))
	k.mu.Lock()
	known := ahead > k.refused-time.Second && ahead < k.refused+time.Second
	k.mu.Unlock()
	if ahead < time.Second || known {
		return nil
	}
	theirs, ok, err := k.db.Clock(ctx)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.unlock()
	if now := k.clock(); !ok || theirs.Sub(now) > ahead/2 {
		k.gained.Add(int64(ahead))
		k.refused = 0
		k.say(slog.LevelInfo, "uidplugin: the wall clock has run ahead, and is followed", "by", ahead)
	} else {
		k.refused = ahead
		k.say(slog.LevelWarn, "uidplugin: the wall clock has run ahead, and the database's has not: it is not followed", "by", ahead)
	}
	return nil
}

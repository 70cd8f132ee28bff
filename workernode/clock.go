package workernode

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// DefaultMaxSkew is how far the clocks of a process and its database may be apart,
// unless told otherwise: what no daylight and no drift explains.
const DefaultMaxSkew = 10 * time.Minute

// CheckClock returns an error that wraps [ErrClock] if now is further than skew from
// what the database says, to a second. A database that has no clock of its own, as
// SQLite, agrees with everything; so does a skew of 0.
func (d *DB) CheckClock(ctx context.Context, now func() time.Time, skew time.Duration) error {
	query := map[string]string{
		"mysql":    `SELECT UNIX_TIMESTAMP()`,
		"postgres": `SELECT CAST(EXTRACT(EPOCH FROM CURRENT_TIMESTAMP) AS BIGINT)`,
	}[d.Dialect()]
	if query == "" || skew <= 0 {
		return nil
	}
	var seconds int64
	before := now()
	if err := d.Query(ctx, func(rows *sql.Rows) error { return rows.Scan(&seconds) }, query); err != nil {
		return fmt.Errorf("workernode: read the database's clock: %w", err)
	}
	after, theirs := now(), time.Unix(seconds, 0)
	if theirs.Sub(before) >= -skew && theirs.Sub(after) <= skew || theirs.Sub(after) >= -skew && theirs.Sub(before) <= skew {
		return nil
	}
	return fmt.Errorf("%w: it is %s here and %s on the database's machine, and ids would bear a wrong time: set the clock that is wrong",
		ErrClock, after.UTC().Format(time.DateTime), theirs.UTC().Format(time.DateTime))
}

// checkClock checks the clock if it has run ahead of the time that has passed since
// the last look: only then can it have got wrong.
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
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lookedReal, k.looked = real, now
	return nil
}

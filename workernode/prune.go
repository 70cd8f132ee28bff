package workernode

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/uidplugin/uidplugin/internal/sqldb"
)

// A Pruning says what [DB.PruneSessions] removes, or has removed.
type Pruning struct {
	Slots    int64 // with sessions to remove
	Sessions int64 // whose process will no longer be known
}

// A span is what is pruned of one slot: the sessions from first on and before keep, both START_TICKs of sessions. The
// row of first stays, without a process, for all of them.
type span struct{ slot, first, keep, sessions int64 }

// prunedLaunch is LAUNCHED in the row of a pruned session, which cannot be NULL.
var prunedLaunch = time.Unix(0, 0).UTC().Format(timestampFormat)

// The sessions that can be pruned of each slot. Of those that began before a tick, the latest one may have made ids
// after it. It stays, and so does one more row, in which a process is no longer named.
const (
	spans = `SELECT "SLOT", MIN("START_TICK") AS "FIRST_TICK", MAX("START_TICK") AS "LAST_TICK", ` +
		named + ` - 1 AS "SESSIONS"` +
		` FROM "WORKER_SESSION" WHERE "START_TICK" < ? AND "SLOT" > ? GROUP BY "SLOT" HAVING ` + named + ` > 1`
	named = `SUM(CASE WHEN "HOLDER" = '' THEN 0 ELSE 1 END)`
)

// Prunable returns what PruneSessions would remove. It changes nothing.
func (d *DB) Prunable(ctx context.Context, before int64) (p Pruning, err error) {
	err = d.sql.Query(ctx, func(rows *sql.Rows) error { return rows.Scan(&p.Slots, &p.Sessions) },
		`SELECT COUNT(*), COALESCE(SUM("S"."SESSIONS"), 0) FROM (`+spans+`) "S"`, before, 0)
	if err != nil {
		return p, fmt.Errorf("workernode: count sessions to prune: %w", err)
	}
	return p, nil
}

// PruneSessions removes the processes of old sessions. Ids that were stamped before then resolve to their table and
// time, and no longer to their process. Whether a process held the slot at such a time is no longer known either, so a
// number that nobody made may resolve as well.
//
// Of the sessions of a slot that began before a tick, the latest one stays, because it may have made ids after the
// tick. So does one row without a process, for all the others: [Session.Pruned] reports it. So the ids of a pruned
// session never resolve to another process, also in versions of this package that do not know of pruning.
//
// Each slot is pruned in a transaction of its own. Processes may run meanwhile, and it may be repeated, interrupted,
// and run several times at once. It needs the right DELETE. With an error it returns what was removed before.
func (d *DB) PruneSessions(ctx context.Context, before int64) (p Pruning, err error) {
	for after := int64(0); ; {
		page, err := d.spans(ctx, before, after)
		if err != nil || len(page) == 0 {
			return p, err
		}
		for _, s := range page {
			if err := d.pruneUndisturbed(ctx, s); err != nil {
				return p, fmt.Errorf("workernode: prune the sessions of slot %d: %w", s.slot, err)
			}
			p.Slots, p.Sessions, after = p.Slots+1, p.Sessions+s.sessions, s.slot
		}
	}
}

// spans returns what can be pruned of up to a thousand slots after one.
func (d *DB) spans(ctx context.Context, before, after int64) (list []span, err error) {
	err = d.sql.Query(ctx, func(rows *sql.Rows) error {
		var s span
		err := sqldb.Scan(rows, SessionTable, 1, &s.slot, &s.first, &s.keep, &s.sessions)
		list = append(list, s)
		return err
	}, spans+` ORDER BY "SLOT" LIMIT 1000`, before, after)
	if err != nil {
		return nil, fmt.Errorf("workernode: look for sessions to prune: %w", err)
	}
	return list, nil
}

// pruneUndisturbed is prune, tried again while other transactions are in the way.
func (d *DB) pruneUndisturbed(ctx context.Context, s span) error {
	for try := 0; ; try++ {
		err := d.prune(ctx, s)
		if !sqldb.IsTransient(err) || try >= maxTries {
			return err
		}
		if err := pause(ctx, try); err != nil {
			return err
		}
	}
}

// prune removes the process from the first session of a span, and then the rows of the others. In this order, and only
// if the first one has no process, none of their ids ever resolves to a wrong one.
func (d *DB) prune(ctx context.Context, s span) error {
	return d.transact(ctx, func(ctx context.Context, tx *DB) error {
		_, err := tx.sql.Exec(ctx, `UPDATE "WORKER_SESSION" SET "APPLICATION" = '', "HOST_NAME" = '', "PORT" = '',`+
			` "TYPE" = 0, "LAUNCHED" = ?, "HOLDER" = '' WHERE "SLOT" = ? AND "START_TICK" = ?`, prunedLaunch, s.slot, s.first)
		if err != nil {
			return err
		}
		pruned := false
		err = tx.sql.Query(ctx, func(rows *sql.Rows) error { pruned = true; return nil },
			`SELECT 1 FROM "WORKER_SESSION" WHERE "SLOT" = ? AND "START_TICK" = ? AND "HOLDER" = ''`, s.slot, s.first)
		if err != nil {
			return err
		}
		if !pruned {
			return fmt.Errorf("the database did not change the session with START_TICK %d, and reports no error", s.first)
		}
		_, err = tx.sql.Exec(ctx, `DELETE FROM "WORKER_SESSION" WHERE "SLOT" = ? AND "START_TICK" > ? AND "START_TICK" < ?`,
			s.slot, s.first, s.keep)
		return err
	})
}

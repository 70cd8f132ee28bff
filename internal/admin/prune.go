package admin

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/workernode"
)

// A Pruning counts the sessions that [DB.Prune] removes, or has removed.
type Pruning struct {
	Slots    int64 // slots with sessions to remove
	Sessions int64 // sessions whose process will be unknown
}

// A span has the sessions to prune in one slot: those with first <= START_TICK < keep. The first of them stays in
// place of all, but without its process.
type span struct{ slot, first, keep, sessions int64 }

// prunedLaunch is the value of LAUNCHED in a pruned session, because the column cannot be NULL.
const prunedLaunch = "1970-01-01 00:00:00.000"

// spans finds the spans of all slots of this region. Other regions prune their own.
const (
	spans = `SELECT "SLOT", MIN("START_TICK") AS "FIRST_TICK", MAX("START_TICK") AS "LAST_TICK", ` +
		sessionsWithHolder + ` - 1 AS "SESSIONS"` +
		` FROM "WORKER_SESSION" WHERE "START_TICK" < ? AND "SLOT" > ?` +
		` AND NOT EXISTS (SELECT 1 FROM "WORKER_SLOT" "S", "WORKER_REGISTRY" "R" WHERE "S"."ID" = "SLOT" AND "S"."REGION" <> "R"."REMAINDER") GROUP BY "SLOT" HAVING ` + sessionsWithHolder + ` > 1`
	sessionsWithHolder = `SUM(CASE WHEN "HOLDER" = '' THEN 0 ELSE 1 END)`
)

// Prunable returns the counts of Prune, and changes nothing.
func (d *DB) Prunable(ctx context.Context, before time.Time) (p Pruning, err error) {
	err = d.SQL.Query(ctx, func(rows *sql.Rows) error { return rows.Scan(&p.Slots, &p.Sessions) },
		`SELECT COUNT(*), COALESCE(SUM("S"."SESSIONS"), 0) FROM (`+spans+`) "S"`, d.tickFrom(before), 0)
	if err != nil {
		return p, fmt.Errorf("count sessions to prune: %w", err)
	}
	return p, nil
}

// Prune forgets which processes had old sessions. Ids of these sessions then resolve to a table and a time only. A
// number that nobody made may resolve as well, because WORKER_SESSION no longer shows whether a process held the
// slot at the time in the number.
//
// Prune looks at the sessions that began before a time. The latest of each slot stays, because it may have made ids
// after that time. One row without a process replaces the others. So ids of a pruned session never resolve to
// another process, even in versions that do not know of pruning.
//
// Each slot is pruned in its own transaction. Processes may run meanwhile. Prune may be repeated, interrupted,
// and run several times at once. It needs the DELETE privilege. With an error it returns the counts up to then.
func (d *DB) Prune(ctx context.Context, before time.Time) (p Pruning, err error) {
	for last := int64(0); ; {
		page, err := d.spans(ctx, d.tickFrom(before), last)
		if err != nil || len(page) == 0 {
			return p, err
		}
		for _, s := range page {
			if err := d.pruneUndisturbed(ctx, s); err != nil {
				return p, fmt.Errorf("prune the sessions of slot %d: %w", s.slot, err)
			}
			p.Slots, p.Sessions, last = p.Slots+1, p.Sessions+s.sessions, s.slot
		}
	}
}

// spans returns the spans of up to a thousand slots whose numbers are above last.
func (d *DB) spans(ctx context.Context, before, last int64) (list []span, err error) {
	err = d.SQL.Query(ctx, func(rows *sql.Rows) error {
		var s span
		err := sqldb.Scan(rows, workernode.SessionTable, 1, &s.slot, &s.first, &s.keep, &s.sessions)
		list = append(list, s)
		return err
	}, spans+` ORDER BY "SLOT" LIMIT 1000`, before, last)
	if err != nil {
		return nil, fmt.Errorf("look for sessions to prune: %w", err)
	}
	return list, nil
}

// pruneUndisturbed repeats prune, up to 20 times, while other transactions interfere.
func (d *DB) pruneUndisturbed(ctx context.Context, s span) error {
	for try := 0; ; try++ {
		err := d.prune(ctx, s)
		if !sqldb.IsTransient(err) || try >= 20 {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(rand.N(4 * time.Millisecond << min(try, 6))):
		}
	}
}

// prune removes the process from the first session of a span, and deletes the others. Between these two statements
// it checks that the first session has no process, so that no id ever resolves to a wrong process.
func (d *DB) prune(ctx context.Context, s span) error {
	return d.SQL.Transact(ctx, func(ctx context.Context, tx *sqldb.DB) error {
		_, err := tx.Exec(ctx, `UPDATE "WORKER_SESSION" SET "APPLICATION" = '', "HOST_NAME" = '', "PORT" = '',`+
			` "TYPE" = 0, "LAUNCHED" = ?, "HOLDER" = '' WHERE "SLOT" = ? AND "START_TICK" = ?`, prunedLaunch, s.slot, s.first)
		if err != nil {
			return err
		}
		pruned := false
		err = tx.Query(ctx, func(rows *sql.Rows) error { pruned = true; return nil },
			`SELECT 1 FROM "WORKER_SESSION" WHERE "SLOT" = ? AND "START_TICK" = ? AND "HOLDER" = ''`, s.slot, s.first)
		if err != nil {
			return err
		}
		if !pruned {
			return fmt.Errorf("the database did not change the session with START_TICK %d, and reports no error", s.first)
		}
		_, err = tx.Exec(ctx, `DELETE FROM "WORKER_SESSION" WHERE "SLOT" = ? AND "START_TICK" > ? AND "START_TICK" < ?`,
			s.slot, s.first, s.keep)
		return err
	})
}

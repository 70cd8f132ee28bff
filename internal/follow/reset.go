package follow

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/workernode"
)

// Reset lowers the mark of the trigger to "now minus slack", by the database's clock, and the published mark to
// less than that. The argument now is the clock of this process, which must agree with the database's.
//
// It is for a mark in the future, with which the table refuses all new rows. A follower that has read rows above
// the new mark misses rows that come later with lower ids, unless it goes back.
//
// A round (see doc.go) that began before Reset must not publish, because the trigger now accepts lower ids. So
// publish compares the published mark, which Reset always changes. Comparing the closer's turn is not enough,
// because a closer may renew its turn during a round.
func Reset(ctx context.Context, db *sqldb.DB, table string, layout generator.Layout, now func() time.Time) error {
	s, ok, err := StatusOf(ctx, db, layout, table)
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("uidplugin: follow %s: %w: UID_FOLLOW has no row for it", table, ErrNotEnabled)
	}
	if apart := s.Now.Sub(now()).Abs(); apart > max(s.Slack, minApart) {
		return fmt.Errorf("uidplugin: follow %s: %w: they differ by %v, and the slack is %v; synchronize them",
			table, workernode.ErrClock, apart.Round(time.Millisecond), s.Slack)
	}
	f, err := FlavorOf(ctx, db)
	t := Table{Name: table}
	if err == nil {
		t, _, err = f.located(ctx, db, t)
	}
	if err == nil {
		err = retry(ctx, func() error { return newStatements(f, t).reset(ctx, db, &s) })
	}
	if err != nil {
		return fmt.Errorf("uidplugin: follow %s: %w", table, err)
	}
	return nil
}

// reset lowers the published mark before the trigger's, so that followers never see a published mark above the
// trigger's. It lowers the published mark again in the transaction, because a round may have published meanwhile.
func (s *statements) reset(ctx context.Context, db *sqldb.DB, old *Status) error {
	low, err := MarkAt(old.layout, old.Now.Add(-old.Slack))
	if err == nil {
		err = s.withdraw(ctx, db, low, old.Raised)
	}
	if err != nil {
		return err
	}
	return db.Transact(ctx, func(ctx context.Context, tx *sqldb.DB) error {
		if err := s.withdraw(ctx, tx, low, math.MaxInt64); err != nil { // locks the row until the end
			return err
		}
		var now int64 // read under the lock, so that it is after all rounds that have published
		if err := tx.Query(ctx, func(r *sql.Rows) error { return r.Scan(&now) }, "SELECT "+s.now()); err != nil {
			return err
		}
		mark, err := MarkAt(old.layout, time.UnixMilli(now).Add(-old.Slack))
		if err != nil {
			return err
		}
		return s.lower(ctx, db, tx, mark)
	})
}

// withdraw sets the published mark to min(published mark, mark) - 1. A published mark above the argument raised is
// from no round, so it becomes -1: no mark is known. RECENT is relative to the published mark, and becomes empty.
func (s *statements) withdraw(ctx context.Context, db *sqldb.DB, mark, raised int64) error {
	return s.update(ctx, db, fmt.Sprintf("UPDATE %s SET %[6]s = '', %[2]s = CASE WHEN %[2]s > %[3]d THEN 0 "+
		"WHEN %[2]s < %[4]d THEN %[2]s ELSE %[4]d END - 1%[5]s",
		s.marks(), s.flavor.quote("PUBLISHED"), raised, mark, s.row(), s.flavor.quote("RECENT")))
}

// lower sets the trigger's mark to mark if it is above mark. On tx the caller has locked the row in UID_FOLLOW.
func (s *statements) lower(ctx context.Context, db, tx *sqldb.DB, mark int64) error {
	value := strconv.FormatInt(mark, 10)
	switch s.flavor {
	case Postgres:
		sequence := s.flavor.text(s.flavor.in(s.table, s.names.mark)) + "::regclass"
		return s.one(ctx, tx, "WITH lock AS MATERIALIZED (SELECT pg_advisory_xact_lock("+s.advisory(raiseLock)+"))"+
			" SELECT setval("+sequence+", least("+value+", pg_sequence_last_value("+sequence+"))) FROM lock")
	case MariaDB:
		// Not on tx, because ALTER would commit it. ALTER waits for open writers, and new writers wait for ALTER.
		raised, err := s.raised(ctx, db)
		if err != nil || raised <= mark {
			return err
		}
		return db.ExecRaw(ctx, "SET STATEMENT lock_wait_timeout = 2 FOR ALTER SEQUENCE "+
			s.flavor.in(s.table, s.names.mark)+" RESTART "+value)
	case SQLite:
		return s.update(ctx, tx, "UPDATE "+s.gates()+` SET "MARK" = min("MARK", `+value+")"+s.row())
	}
	restore := s.limit(ctx, tx)
	for _, gate := range []int{idleGate, usedGate} {
		if err := s.setGate(ctx, tx, gate, "LEAST(MARK, "+value+")"); err != nil {
			return errors.Join(err, restore())
		}
	}
	return restore()
}

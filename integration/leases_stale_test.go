package integration_test

import (
	"context"
	"database/sql"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// stalePool reads what WORKER_NODE was some time ago, as a replica that lags does, or a
// cluster's node that has just come back.
type stalePool struct {
	*valve
	stale atomic.Bool
}

// QueryContext implements [gorm.ConnPool].
func (s *stalePool) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if s.stale.Load() {
		query = strings.ReplaceAll(query, "WORKER_NODE", "COPY_NODE")
	}
	return s.valve.QueryContext(ctx, query, args...)
}

// A stale read is no lost commit, and nothing rests on it.
func TestStaleReads(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		db, v := valved(t, d)
		s := &stalePool{valve: v}
		db.Config.ConnPool, db.Statement.ConnPool = s, s
		c := newMovedClock(0)
		k := lessor(t, db, c, nil)
		g := tenant(t, k, c, "t1")
		var all used
		take := func() {
			for _, id := range drain(t, g) {
				all.add(t, id, "the process")
			}
		}
		take()
		execute(t, open(t, d), `CREATE TABLE "COPY_NODE" AS SELECT * FROM "WORKER_NODE"`)
		c.move(5 * time.Second)
		k.Need()
		eventually(t, 5*time.Second, "a renewal", func() bool { return k.Stats().Renewed > 0 })
		take()

		v.shut.Store(true) // so that the outcome of a renewal is not known
		c.move(5 * time.Second)
		k.Need()
		eventually(t, 5*time.Second, "a renewal that fails", func() bool { return k.Stats().LastError != nil })
		s.stale.Store(true)
		v.shut.Store(false)
		time.Sleep(2 * time.Second)
		if k.Stats().Regressed != 0 {
			t.Errorf("a stale read is taken for a lost commit: %+v", k.Stats())
		}
		s.stale.Store(false)
		renewed := k.Stats().Renewed
		eventually(t, 5*time.Second, "a renewal after it", func() bool { return k.Stats().Renewed > renewed })
		take()
		if s := k.Stats(); s.Regressed != 0 || s.Lost != 0 {
			t.Errorf("%+v", s)
		}
	}, "sqlite", "mariadb", "postgres")
}

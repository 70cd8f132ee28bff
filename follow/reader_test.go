package follow_test

import (
	"context"
	"database/sql"
	"sync/atomic"
	"testing"

	"github.com/glebarez/sqlite"
	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/follow"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// A wrapped pool hands out no connections, like those of other plugins. It counts the isolation levels.
type wrapped struct {
	gorm.ConnPool
	pool   *sql.DB
	levels *[8]atomic.Int64 // how many transactions began with each isolation level
}

func (w wrapped) GetDBConn() (*sql.DB, error) { return w.pool, nil }

func (w wrapped) BeginTx(ctx context.Context, opts *sql.TxOptions) (gorm.ConnPool, error) {
	if opts != nil {
		w.levels[opts.Isolation].Add(1)
	}
	return w.pool.BeginTx(ctx, nil)
}

func TestConsume_OnAPoolThatHandsOutNoConnections(t *testing.T) {
	t.Parallel()
	plain := tickets(t, nil, 3)
	pool, err := plain.DB()
	testkit.Must(t, err)
	w := wrapped{pool, pool, new([8]atomic.Int64)}
	db, err := gorm.Open(sqlite.Dialector{Conn: w}, &gorm.Config{DisableNestedTransaction: true, Logger: plain.Logger})
	testkit.Must(t, err)
	plugintest.Use(t, db, uidplugin.WithWorkerID(2))
	until(t, db, 3, func(ctx context.Context) error {
		return follow.Consume(ctx, db, "mails", write("mails"), follow.WithRowLocks())
	})
	checkEffects(t, db)
	if w.levels[sql.LevelReadCommitted].Load() == 0 {
		t.Error("no transaction began with the isolation level of WithRowLocks")
	}
}

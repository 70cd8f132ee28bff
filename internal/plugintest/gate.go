package plugintest

import (
	"context"
	"sync/atomic"
	"testing"

	"gorm.io/gorm"
)

// A Gate stops transactions of the lease manager until Opened is closed, so no table gets a worker id before that.
type Gate struct {
	Deaf    bool // BEGIN does not notice that its context ends
	Arrived chan struct{}
	Opened  chan struct{}
	Err     atomic.Pointer[error] // not nil: each BEGIN fails with it at once
}

// Gated puts a gate before the pool that a plugin of db uses.
func Gated(db *gorm.DB) *Gate {
	g := &Gate{Arrived: make(chan struct{}, 1000), Opened: make(chan struct{})}
	Tapped(db, g.before)
	return g
}

// Parts returns a handle whose plugin is behind a gate. The database has the table of Part.
func Parts(t *testing.T) (*gorm.DB, *Gate) {
	t.Helper()
	db := Bare(t)
	g := Gated(db)
	Use(t, db)
	Migrate(t, db, &Part{})
	return db, g
}

func (g *Gate) before(ctx context.Context, query string) error {
	if query != "BEGIN" {
		return nil
	}
	if err := g.Err.Load(); err != nil {
		return *err
	}
	g.Arrived <- struct{}{}
	if g.Deaf {
		ctx = context.WithoutCancel(ctx)
	}
	select {
	case <-g.Opened:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Package lookup resolves ids to their origin and their rows. It also turns times into ranges of ids. The root
// package documents the behaviour, and converts the results to its types.
package lookup

import (
	"fmt"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/catalog"
	"github.com/uidplugin/uidplugin/internal/config"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/supply"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// A Locator resolves ids to their origin. It is safe for concurrent use.
type Locator struct {
	*config.Config
	SQL     *sqldb.DB           // nil with a fixed worker id
	Workers *workernode.DB      // nil with a fixed worker id
	Manager *workernode.Manager // nil with a fixed worker id
	Supply  *supply.Supply      // nil before db.Use
	Catalog *catalog.Catalog    // nil before db.Use
	Clock   func() time.Time    // the clock of the generators

	Apart          bool   // the registry's pool is not the tables' pool
	TablesDatabase string // the database of the tables, as WORKER_NODE names it

	// Before returns the plugin's id that a number follows which the database gave to a row of another program. If
	// Before is nil, such rows are not looked up.
	Before func(l generator.Layout, number int64) (id int64, ok bool)

	IDError func(id int64, err error) error // makes the errors about one id
}

// Decode splits an id by the layout.
func (loc *Locator) Decode(id int64) (generator.Parts, error) {
	if id < 0 {
		return generator.Parts{}, fmt.Errorf("%w: %d", ErrNegativeID, id)
	}
	if loc.Test != nil && loc.Test.Table == nil {
		return generator.Parts{}, fmt.Errorf("%w: %d comes from %s, so it has no time, worker id or sequence",
			ErrNotDecodable, id, loc.Test.Name)
	}
	// Leased worker ids make no ids in the first tick, because their ticks begin after START_TICK.
	noFirstTick := loc.Supply != nil && (!loc.Fixed || loc.Test != nil || loc.Supply.AnyForeign())
	if noFirstTick && id>>(loc.Layout.WorkerBits+loc.Layout.SequenceBits) == 0 {
		return generator.Parts{}, fmt.Errorf("%w: %d is too small for the layout: it may be a key from before the plugin, such as a number of AUTO_INCREMENT, or come from a segment or another source",
			ErrNotDecodable, id)
	}
	return loc.Layout.Decompose(id)
}

// WorkersFor returns the database from which to read WORKER_NODE. Only if no connection is free, it uses the
// handle's transaction, which may be older than a worker id or, with dbresolver, on another database.
func (loc *Locator) WorkersFor(db *gorm.DB) *workernode.DB {
	pool := db.Statement.ConnPool
	if loc.Workers == nil || loc.Apart || !sqldb.HoldsConnection(pool) || loc.free() {
		return loc.Workers
	}
	return loc.Workers.On(pool)
}

func (loc *Locator) free() bool {
	stats, _ := loc.SQL.Stats()
	return stats.MaxOpenConnections == 0 || stats.InUse < stats.MaxOpenConnections
}

// TimeOf returns the start of a tick that was read from a table, limited to times that JSON can represent.
func (loc *Locator) TimeOf(tick int64) time.Time {
	return workernode.TimeOf(loc.Layout, tick)
}

package workernode

import (
	"context"
	"fmt"
	"time"

	"github.com/uidplugin/uidplugin/internal/sqldb"
	"gorm.io/gorm"
)

// DB reads and changes the four tables, on the connection pool of a GORM handle and past GORM's callbacks. The
// application's plugins, such as one that adds a tenant column or picks a replica, do not see these statements. They do
// appear in GORM's log. It may be used concurrently.
type DB struct{ sql *sqldb.DB }

// Open returns a DB on the pool of db. Each statement gets at most timeout. It
// fails if db is a transaction.
func Open(db *gorm.DB, timeout time.Duration) (*DB, error) {
	d, err := sqldb.Open(db, timeout)
	if err != nil {
		return nil, fmt.Errorf("workernode: %w", err)
	}
	return &DB{d}, nil
}

// On returns a DB that runs its statements on another pool of the same database,
// such as a transaction. It is for reading.
func (d *DB) On(pool gorm.ConnPool) *DB { return &DB{d.sql.On(pool)} }

// OneDatabase returns an error that wraps [ErrTable] if each connection of the pool has a database of its own, as with
// ":memory:" on SQLite. Then a row would be in one of them, and its worker id in another. The tables must exist.
func (d *DB) OneDatabase(ctx context.Context) error {
	if err := d.sql.OneDatabase(ctx, NodeTable); err != nil {
		return fmt.Errorf("%w: %w", ErrTable, err)
	}
	return nil
}

// transact is [sqldb.DB.Transact].
func (d *DB) transact(ctx context.Context, f func(ctx context.Context, tx *DB) error) error {
	return d.sql.Transact(ctx, func(ctx context.Context, tx *sqldb.DB) error { return f(ctx, &DB{tx}) })
}

// errRefused is returned from a transaction that is rolled back because a statement did not
// change the row that it should have.
var errRefused = sqldb.ErrRollback

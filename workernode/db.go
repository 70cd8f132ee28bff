package workernode

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/uidplugin/uidplugin/internal/sqldb"
	"gorm.io/gorm"
)

// DB reads and changes the four tables through the connection pool of a GORM handle. It bypasses GORM's callbacks, so
// plugins of the application, such as those for tenants or replicas, do not see its statements. GORM's log does show
// them. A DB may be used concurrently.
type DB struct{ sql *sqldb.DB }

// Open returns a DB on the pool of db. Each statement gets at most timeout. Open fails if db is a transaction.
func Open(db *gorm.DB, timeout time.Duration) (*DB, error) {
	d, err := sqldb.Open(db, timeout)
	if err != nil {
		return nil, fmt.Errorf("workernode: %w", err)
	}
	return &DB{d}, nil
}

// New returns a DB that sends its statements through d.
func New(d *sqldb.DB) *DB { return &DB{d} }

// Locate returns d with the schema of the tables that p describes; see [sqldb.DB.At]. The error wraps [ErrTable] if
// it is not certain which tables are meant.
func Locate(ctx context.Context, d *sqldb.DB, p sqldb.Place) (*sqldb.DB, error) {
	located, err := d.At(ctx, p)
	if errors.Is(err, sqldb.ErrElsewhere) {
		err = fmt.Errorf("%w: %w", ErrTable, err)
	}
	return located, err
}

// On returns a DB on another pool of the same database, such as a transaction. Use it only to read.
func (d *DB) On(pool gorm.ConnPool) *DB { return &DB{d.sql.On(pool)} }

func (d *DB) transact(ctx context.Context, f func(ctx context.Context, tx *DB) error) error {
	return d.sql.Transact(ctx, func(ctx context.Context, tx *sqldb.DB) error { return f(ctx, &DB{tx}) })
}

// errRefused rolls a transaction back although no statement failed, for example because a row was not as expected.
var errRefused = sqldb.ErrRollback

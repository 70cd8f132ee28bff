package plugintest

import (
	"context"
	"database/sql"

	"gorm.io/gorm"
)

// A tap is a connection pool that passes each Exec, query, BEGIN and COMMIT, but no ROLLBACK, to tap.before, and
// then sends it. If tap.before returns an error, the statement is not sent and fails with this error.
type tap struct {
	gorm.ConnPool
	before func(ctx context.Context, query string) error
}

// Tapped puts a tap on the pool that a plugin of db uses. GORM's own statements do not pass the tap.
func Tapped(db *gorm.DB, hook func(ctx context.Context, query string) error) {
	db.Config.ConnPool = &tap{db.Config.ConnPool, hook}
}

func (p *tap) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if err := p.before(ctx, query); err != nil {
		return nil, err
	}
	return p.ConnPool.ExecContext(ctx, query, args...)
}

func (p *tap) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if err := p.before(ctx, query); err != nil {
		return nil, err
	}
	return p.ConnPool.QueryContext(ctx, query, args...)
}

// BeginTx implements [gorm.ConnPoolBeginner].
func (p *tap) BeginTx(ctx context.Context, options *sql.TxOptions) (gorm.ConnPool, error) {
	if err := p.before(ctx, "BEGIN"); err != nil {
		return nil, err
	}
	tx, err := p.ConnPool.(gorm.TxBeginner).BeginTx(ctx, options)
	if err != nil {
		return nil, err
	}
	return &tappedTx{tap{tx, p.before}, ctx, tx}, nil
}

// A tappedTx is a transaction of a tap.
type tappedTx struct {
	tap
	ctx context.Context
	tx  *sql.Tx
}

func (t *tappedTx) Commit() error {
	if err := t.before(t.ctx, "COMMIT"); err != nil {
		_ = t.tx.Rollback()
		return err
	}
	return t.tx.Commit()
}

func (t *tappedTx) Rollback() error { return t.tx.Rollback() }

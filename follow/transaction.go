package follow

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/core"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"gorm.io/gorm"
)

// Transaction runs fn in a transaction. If the transaction fails with [ErrTooLate] or a conflict such as
// a deadlock, Transaction runs fn again, up to five times in total. So an application rarely sees ErrTooLate.
//
//	err := follow.Transaction(ctx, db, func(tx *gorm.DB) error {
//		return tx.Create(&event).Error
//	})
//
// fn must return the errors of its statements, and may do only what a rollback undoes. After a rollback the keys
// that the plugin has set in creates on tx are zero again, so the structs may be made in fn or outside of it. Other
// fields keep their values, and so do keys that were set in a create on a new session of tx (NewDB).
func Transaction(ctx context.Context, db *gorm.DB, fn func(tx *gorm.DB) error) error {
	c, err := core.Of(db)
	if err != nil {
		return err
	}
	if _, inside := db.Statement.ConnPool.(gorm.TxCommitter); inside {
		return fmt.Errorf("%w: follow.Transaction got a handle that is a transaction, which cannot be repeated; use the handle that gorm.Open returned",
			uidplugin.ErrOption)
	}
	for try := range attempts {
		var failed error // the error of fn, but not of COMMIT, which may have worked in spite of its error
		clear := func() {}
		err = db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			tx, clear = c.Collect(tx)
			failed = fn(tx)
			return failed
		})
		repeat := err != nil && (errors.Is(err, ErrTooLate) || sqldb.IsTransient(err))
		if failed != nil || repeat {
			clear()
		}
		if !repeat || try == attempts-1 {
			return err
		}
		select {
		case <-time.After(rand.N(10 * time.Millisecond << try)):
		case <-ctx.Done():
			return err
		}
	}
	return err
}

const attempts = 5

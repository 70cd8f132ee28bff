package uidplugin

import (
	"errors"

	"github.com/uidplugin/uidplugin/internal/adopt"
	"github.com/uidplugin/uidplugin/internal/core"   // wing: follow
	"github.com/uidplugin/uidplugin/internal/follow" // wing: follow
	"github.com/uidplugin/uidplugin/internal/lookup"
	"gorm.io/gorm"
)

// registerCallbacks tells GORM which code runs when. The position of each callback has a reason:
//
//   - fill is first, so hooks and foreign keys see the id, and a generator waits before GORM opens its transaction.
//     The position is "*", because SkipDefaultTransaction removes gorm:begin_transaction.
//   - refill follows the hooks, because they may have zeroed the key.
//   - beforeInsert and afterInsert surround the INSERT. After both, GORM saves the associations that need the key.
//   - prepare gets worker ids before GORM opens the transaction of an UPDATE, which may create associated rows.
//   - beforeUpdate and afterUpdate surround the UPDATE: by then all values are set, and the connection is known.
//   - settle is last. After a refusal it also clears the keys of associated rows, which GORM has saved by then. Updates
//     have it because they may save associated rows, too.
//   - disown is first in Delete and Raw, because a hook may run them on a copy of the statement of a create.
//   - afterExec follows each Exec, because the application's own INSERTs and migrations use Exec.
//
// Nothing is registered on Query and Row: reads are as fast as without the plugin, and cannot fail because of it.
func (s *shared) registerCallbacks(db *gorm.DB) error {
	create, update := db.Callback().Create(), db.Callback().Update()
	return errors.Join(
		create.Before("*").Register("uidplugin:fill", s.fill),
		create.Before("gorm:save_before_associations").Register("uidplugin:refill", s.refill),
		create.Before("gorm:create").Register("uidplugin:before_insert", s.beforeInsert),
		create.Before("gorm:save_after_associations").Register("uidplugin:after_insert", s.afterInsert),
		create.After("*").Register("uidplugin:settle", s.settle),
		update.Before("*").Register("uidplugin:prepare", s.prepare),
		update.Before("gorm:update").Register("uidplugin:before_update", s.beforeUpdate),
		update.Before("gorm:save_after_associations").Register("uidplugin:after_update", s.afterUpdate),
		update.After("*").Register("uidplugin:settle", s.settle),
		db.Callback().Delete().Before("*").Register("uidplugin:disown", s.disown),
		db.Callback().Raw().Before("*").Register("uidplugin:disown", s.disown),
		db.Callback().Raw().After("gorm:raw").Register("uidplugin:after_exec", s.afterExec),
	)
}

// wireWings connects features that are not needed to make ids. db.Use calls it before registerCallbacks.
func (s *shared) wireWings(loc *lookup.Locator) {
	loc.Before = adopt.Before                                                                     // AUTO_INCREMENT
	s.core.OnInsertError = core.Value[follow.Followed](s.core).OnInsertError(s.supply.ReachClock) // wing: follow
	s.core.Collect = s.filler.Collect                                                             // wing: follow
}

func (s *shared) fill(db *gorm.DB) { s.filler.Fill(db) }

func (s *shared) refill(db *gorm.DB) { s.filler.Refill(db) }

// beforeInsert adds functions by model.BeforeBuild, which run in reverse order. So s.narrow is called first, to
// compare ids with their columns after s.filler has added those that Select has left out.
func (s *shared) beforeInsert(db *gorm.DB) {
	s.narrow.BeforeInsert(db) // narrow columns
	s.filler.BeforeInsert(db)
}

// afterInsert takes back the changes of beforeInsert, and corrects the keys after a conflict.
func (s *shared) afterInsert(db *gorm.DB) { s.filler.AfterInsert(db) }

// settle clears the keys of a refused create or update.
func (s *shared) settle(db *gorm.DB) {
	s.filler.Settle(db, s.isRefused(db))
}

func (s *shared) prepare(db *gorm.DB) { s.filler.Prepare(db) }

// beforeUpdate leaves zero uid fields out of an UPDATE of all fields, because the application may not have read them.
func (s *shared) beforeUpdate(db *gorm.DB) {
	s.narrow.BeforeUpdate(db) // narrow columns
	s.filler.BeforeUpdate(db)
}

// afterUpdate takes back the changes of beforeUpdate.
func (s *shared) afterUpdate(db *gorm.DB) { s.filler.AfterUpdate(db) }

// disown removes the notes of a create or an update from a copy of its statement.
func (s *shared) disown(db *gorm.DB) { s.filler.Disown(db) }

// afterExec explains the error of a statement, and forgets the columns that the statement may have changed.
func (s *shared) afterExec(db *gorm.DB) {
	s.isRefused(db)
	s.narrow.AfterExec(db) // narrow columns
}

// isRefused reports whether the database has refused the id of a row, and explains the error.
func (s *shared) isRefused(db *gorm.DB) (refused bool) {
	if db.Error != nil && s.core.OnInsertError != nil {
		db.Error, refused = s.core.OnInsertError(db.Statement, db.Error)
	}
	return refused
}

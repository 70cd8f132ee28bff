package uidplugin

import (
	"errors"

	"github.com/uidplugin/uidplugin/internal/model"
	"github.com/uidplugin/uidplugin/internal/supply"
)

// What a caller can act on. Errors of ids and layouts come from package
// generator, those of worker ids and their tables from package workernode;
// [errors.Is] finds all of them behind what db.Use, db.Create and the methods of
// [Plugin] return.
var (
	// ErrOption reports an option that makes no sense, or two that exclude each
	// other.
	ErrOption = supply.ErrOption

	// ErrNotRegistered reports a database handle without this plugin, or a plugin
	// that db.Use has not initialized.
	ErrNotRegistered = errors.New("uidplugin: not registered")

	// ErrField reports a field with the uid tag that cannot hold an id, or whose
	// tag names an unknown generator, or a foreign key that cannot hold the ids of
	// the uid field that it refers to.
	ErrField = model.ErrField

	// ErrNoField reports a model that has no field with the uid tag.
	ErrNoField = errors.New("uidplugin: model has no uid field")

	// ErrInTransaction reports the first create of a table that came inside a
	// transaction, where no connection was left to get a worker id, or to open another
	// generator of its ids.
	ErrInTransaction = supply.ErrInTransaction

	// ErrClosed reports the use of a plugin after its Close.
	ErrClosed = supply.ErrClosed

	// ErrNegativeID reports a negative number, which no id is.
	ErrNegativeID = errors.New("uidplugin: negative id")

	// ErrFutureID reports a number whose time is later than any id can have.
	ErrFutureID = errors.New("uidplugin: id of the future")

	// ErrUnknownID reports a number that nobody can have made: there is no such
	// worker id, or it was not in use at that time.
	ErrUnknownID = errors.New("uidplugin: unknown id")

	// ErrOtherLayout reports a number whose worker id makes ids of another layout,
	// so that its parts are not what they seem.
	ErrOtherLayout = errors.New("uidplugin: id of another layout")

	// ErrNotDecodable reports a number that is too small for the layout, as the ids of
	// segments are, which carry neither a time nor a worker id.
	ErrNotDecodable = errors.New("uidplugin: id that cannot be decoded")

	// ErrNoModel reports an id whose table is known, but not the model of the
	// table.
	ErrNoModel = errors.New("uidplugin: no model for the table")

	// ErrNotKey reports an id that does not name one row of its table: the primary
	// key has no uid field, or several rows share the id as a part of their key.
	ErrNotKey = errors.New("uidplugin: id that is no key")

	// ErrClause reports a database handle with a clause that Find and FindAll
	// cannot use.
	ErrClause = errors.New("uidplugin: clause that Find cannot use")
)

package uidplugin

import (
	"errors"

	"github.com/uidplugin/uidplugin/internal/model"
	"github.com/uidplugin/uidplugin/internal/supply"
)

// Errors that a caller can act on. Errors about ids and layouts come from package generator, those about worker ids and
// their tables from package workernode. [errors.Is] finds them in what db.Use, db.Create and the methods of [Plugin]
// return.
var (
	// ErrOption reports an option that makes no sense, or two that exclude each
	// other. db.Use returns it, Find for a [FindOption], and everything about [Public] without the right keys.
	ErrOption = supply.ErrOption

	// ErrNotRegistered reports a database handle without this plugin, or a plugin
	// that db.Use has not initialized. All methods of [Plugin] that have an error return it, except Close.
	ErrNotRegistered = errors.New("uidplugin: not registered")

	// ErrField reports a field with the uid tag that cannot hold an id, or whose tag names an unknown generator. It
	// also reports a foreign key that cannot hold the ids of its uid field, and an id that does not fit into its column.
	// db.Use, Register, AutoMigrate, creates and updates return it.
	ErrField = model.ErrField

	// ErrZeroKey reports a create that would insert a primary key of type [ID] or [Public] as 0, because the field is
	// not tagged, or the handle has no plugin. Creates return it.
	ErrZeroKey = model.ErrZeroKey

	// ErrNoField reports a model that has no field with the uid tag. NextID, FindAs, OnlyModels and
	// queries with CreatedBetween return it.
	ErrNoField = errors.New("uidplugin: model has no uid field")

	// ErrInTransaction reports the first create of a table inside a transaction when the pool had no other connection.
	// The plugin needs one to get a worker id, or to open another generator. Creates and NextID return it.
	ErrInTransaction = supply.ErrInTransaction

	// ErrClosed reports the use of a plugin after its Close. Creates, NextID and Health return it.
	ErrClosed = supply.ErrClosed

	// ErrNoSuchID is wrapped by every error that means: nothing for you at this id. That is ErrNegativeID, ErrFutureID,
	// ErrUnknownID, ErrOtherLayout, ErrNotDecodable, ErrOtherDatabase, ErrNoModel, ErrNotKey, [generator.ErrLayout] of
	// an id, and [gorm.ErrRecordNotFound] of Find. Errors of the database do not wrap it. Decode, Locate, Find and
	// FindAll return it; see [IDError].
	ErrNoSuchID = errors.New("uidplugin: no such id")

	// ErrNegativeID reports a negative number, which is never an id. Decode, Locate and Find return it.
	ErrNegativeID = errors.New("uidplugin: negative id")

	// ErrFutureID reports a number whose time is later than any id can have. Locate and Find
	// return it.
	ErrFutureID = errors.New("uidplugin: id of the future")

	// ErrUnknownID reports a number that no process can have made: its worker id does not exist, or was not in use at
	// that time. Locate and Find return it.
	ErrUnknownID = errors.New("uidplugin: unknown id")

	// ErrOtherLayout reports a number whose worker id makes ids of another layout. Its parts then mean something else.
	// Locate and Find return it.
	ErrOtherLayout = errors.New("uidplugin: id of another layout")

	// ErrNotDecodable reports a number that is too small for the layout. Keys from before the plugin and the ids of
	// segments are such numbers: they carry neither a time nor a worker id. Decode, Locate, Find and queries with
	// CreatedBetween return it.
	ErrNotDecodable = errors.New("uidplugin: id that cannot be decoded")

	// ErrOtherDatabase reports an id of another database of the id space; see [WithRegistry]. Find returns it: ask the
	// plugin of that database.
	ErrOtherDatabase = errors.New("uidplugin: id of another database")

	// ErrNoModel reports an id whose table is known, but not the model of the
	// table. Find returns it.
	ErrNoModel = errors.New("uidplugin: no model for the table")

	// ErrNotKey reports an id that does not identify one row of its table. Either the primary key has no uid field, or
	// several rows share the id as a part of their key. Find and FindAs return it.
	ErrNotKey = errors.New("uidplugin: id that is no key")

	// ErrClause reports a database handle with a clause that Find cannot use. Find, FindAll and FindAs return it.
	ErrClause = errors.New("uidplugin: clause that Find cannot use")
)

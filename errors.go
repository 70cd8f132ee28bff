package uidplugin

import (
	"github.com/uidplugin/uidplugin/internal/core"
	"github.com/uidplugin/uidplugin/internal/lookup"
	"github.com/uidplugin/uidplugin/internal/model"
	"github.com/uidplugin/uidplugin/internal/supply"
	"github.com/uidplugin/uidplugin/workernode"
)

// Use [errors.Is] to compare these errors with an error of db.Use, db.Create or a method of [Plugin]. Package generator
// has the errors about layouts.
var (
	// ErrOption reports an invalid option, or options that exclude each other. db.Use, creates, Find and FindAll
	// return it, and so do packages follow and inspector.
	ErrOption = supply.ErrOption

	// ErrNotRegistered reports a handle without the plugin, or a plugin that db.Use has not initialized. Each
	// method of [Plugin] that returns an error, except Close, returns it.
	ErrNotRegistered = core.ErrNotRegistered

	// ErrField reports a field with the uid tag that cannot hold an id, or whose tag names an unknown generator. It
	// also reports a foreign key that cannot hold its ids, and an id that does not fit into its column. db.Use,
	// Register, AutoMigrate, creates and updates return it.
	ErrField = model.ErrField

	// ErrZeroKey reports a create that would insert 0 as a primary key of type [ID]. Either the field is not
	// tagged, or the handle does not have the plugin. Creates return it.
	ErrZeroKey = model.ErrZeroKey

	// ErrNoField reports a model without a field tagged uid. NextID, FindAs, queries with
	// CreatedBetween, and Find and FindAll with OnlyModels return it.
	ErrNoField = model.ErrNoField

	// ErrInTransaction reports that the first create of a table was inside a transaction and the pool was out of
	// connections. The plugin needs a connection to get a worker id or open another generator, so list the model in
	// [WithModels]. Hooks and CreateInBatches run in a transaction, too. Creates and NextID return it.
	ErrInTransaction = supply.ErrInTransaction

	// ErrClosed reports the use of a plugin after Close. Creates, NextID and Health return it.
	ErrClosed = supply.ErrClosed

	// ErrTable reports a table of the plugin that is missing, lacks columns, has too narrow columns, or has a trigger
	// that changes values. db.Use, creates, Health and packages segment and migrations return it.
	ErrTable = workernode.ErrTable

	// ErrLayoutMismatch reports that the first process pinned another layout in the database. db.Use returns it.
	ErrLayoutMismatch = workernode.ErrLayoutMismatch

	// ErrRegion reports a registry whose region is not that of [WithRegion], or that cannot be one of several regions.
	// db.Use returns it. Creates and Health return it after a backup from before "uid region split" was restored.
	ErrRegion = workernode.ErrRegion

	// ErrExhausted reports that all worker ids of the layout are given out. db.Use, creates and Health return it.
	ErrExhausted = workernode.ErrExhausted

	// ErrClock reports that the process's clock differs too much from the database's, or stands still. db.Use, creates
	// and Health return it.
	ErrClock = workernode.ErrClock

	// ErrNoSuchID is wrapped by every error for an id that does not lead to a row for the caller:
	//
	// ErrNegativeID, ErrFutureID, ErrUnknownID, ErrOtherLayout, ErrNotDecodable, ErrOtherDatabase, ErrNoModel,
	// ErrNotKey, [generator.ErrLayout] for too many bits, and [gorm.ErrRecordNotFound] of Find. Errors of the database
	// do not wrap it. Decode, Locate, Find, FindAll and FindAs return it; see [IDError].
	ErrNoSuchID = lookup.ErrNoSuchID

	// ErrNegativeID reports a negative number, which is never an id. Decode, Locate and Find return it.
	ErrNegativeID = lookup.ErrNegativeID

	// ErrFutureID reports a number whose time is later than any process may stamp now. Locate and Find return it.
	ErrFutureID = lookup.ErrFutureID

	// ErrUnknownID reports a number that no process can have made, because its worker id does not exist or was not in
	// use at that time. Locate and Find return it.
	ErrUnknownID = lookup.ErrUnknownID

	// ErrOtherLayout reports a number whose worker id belongs to another layout, so its parts have another meaning.
	// Locate and Find return it.
	ErrOtherLayout = lookup.ErrOtherLayout

	// ErrNotDecodable reports a number that is too small for the layout. Examples are keys from before the plugin and
	// ids of segments, which contain neither a time nor a worker id. Decode, Locate, Find and queries with
	// CreatedBetween return it.
	ErrNotDecodable = lookup.ErrNotDecodable

	// ErrOtherDatabase reports an id of another database in the id space; see [WithRegistry]. Find returns it. Use the
	// plugin of that database instead.
	ErrOtherDatabase = lookup.ErrOtherDatabase

	// ErrNoModel reports an id of a known table whose model is not listed. Find returns it.
	ErrNoModel = lookup.ErrNoModel

	// ErrNotKey reports an id that does not identify one row of its table. Either the primary key does not have a uid
	// field, or several rows share the id as part of their key. Find and FindAs return it.
	ErrNotKey = lookup.ErrNotKey

	// ErrClause reports a handle with a clause that a query by key does not allow. Find, FindAll and FindAs return it,
	// as does Rows of package follow.
	ErrClause = lookup.ErrClause
)

package uidplugin

import (
	"github.com/uidplugin/uidplugin/internal/lookup"
	"gorm.io/gorm"
)

// A FindOption restricts the rows that Find and FindAll return; see [OnlyModels] and [Scoped]. It is safe for
// concurrent use.
type FindOption = lookup.FindOption

// OnlyModels restricts Find and FindAll to rows of these models. Endpoints for ids that users send should use it. An id
// of another table fails with an error that wraps [ErrNoModel] and [ErrNoSuchID]. Models are pointers to structs and
// need not be listed by [WithModels]. Without models, no row is returned.
//
// Find returns [ErrNoField] for a model without a uid field, and [ErrField] if the field cannot hold ids. It returns
// [ErrOption] for two models of one table, and GORM's error for values that are not models.
func OnlyModels(models ...any) FindOption {
	return func(f *lookup.Finder) error { return f.OnlyModels(models) }
}

// Scoped restricts Find and FindAll to rows that meet the conditions of a scope, such as the rows of a tenant or user.
// Both functions call scope for each query, with a handle and a pointer to a zero struct of the model:
//
//	func(db *gorm.DB, model any) *gorm.DB {
//		if _, ok := model.(*Order); ok {
//			return db.Where("customer_id = ?", user)
//		}
//		return db.Where("tenant_id = ?", tenant)
//	}
//
// A row must meet both the conditions of the scope and those of the handle given to [From], even if they contain an
// Or. Other rows are treated as missing. The scope does not apply to rows loaded by Preload.
//
// The scope must add at least one condition or inner join to its handle and return the handle. Otherwise Find fails
// with [ErrClause]. GORM ignores zero fields of a struct, so write Where("tenant_id = ?", tenant) instead of
// Where(&Order{Tenant: tenant}). Where("1 = 1") allows all rows. The scope cannot join an association that the
// handle of From already joins. To find deleted rows, call Unscoped on the handle of From.
func Scoped(scope func(db *gorm.DB, model any) *gorm.DB) FindOption {
	return func(f *lookup.Finder) error { return f.Scoped(scope) }
}

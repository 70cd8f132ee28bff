package uidplugin

import (
	"fmt"
	"maps"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// A FindOption says which rows Find and FindAll may return. [OnlyModels] and [Scoped] return one. Any number of calls
// may use one at once.
type FindOption func(*finder) error

// A finder loads rows by their keys.
type finder struct {
	db     *gorm.DB
	shared *shared
	only   map[string]*plan // by table; nil: the models that were listed
	scope  func(db *gorm.DB, model any) *gorm.DB

	inOrder bool   // the rows come in the order of the ids
	prefix  string // of the public id that is looked up; empty for a number
}

// finder returns what Find and FindAll load rows with.
func (p *Plugin) finder(options []FindOption) (*finder, error) {
	f := &finder{db: p.db, shared: p.shared}
	for _, option := range options {
		if option == nil {
			continue
		}
		if err := option(f); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// plan returns the model to load the rows of a table into; nil if there is none.
func (f *finder) plan(table string) *plan {
	if f.only != nil {
		return f.only[table]
	}
	return f.shared.catalog.listedFor(table)
}

// OnlyModels lets Find and FindAll return rows of these models only, as an endpoint for ids that users send needs it.
// An id of another table gets an error that wraps [ErrNoModel] and [ErrNoSuchID]. Models are pointers to structs; they
// need not be listed by [WithModels]. Without models, no row is returned.
//
// Find returns [ErrNoField] for a model without a uid field, [ErrField] for one that cannot hold ids, GORM's error for
// what is no model, and [ErrOption] for two models of one table.
func OnlyModels(models ...any) FindOption {
	return func(f *finder) error {
		if f.only == nil {
			f.only = map[string]*plan{}
		}
		for _, m := range models {
			p, _, err := f.shared.catalog.keyOf(f.db, m)
			if err != nil {
				return fmt.Errorf("%w; it is given to OnlyModels", err)
			}
			table := p.Schema.Table
			if other := f.only[table]; other != nil && other != p {
				return fmt.Errorf("%w: OnlyModels: %s and %s are models of one table, %s; leave one out",
					ErrOption, other.Schema.ModelType, p.Schema.ModelType, table)
			}
			f.only[table] = p
		}
		return nil
	}
}

// Scoped lets Find and FindAll return only rows that meet the conditions of a scope, such as those of a tenant or of
// what a user may see. They call scope for each query, with a handle and with a pointer to a zero struct of the model:
//
//	func(db *gorm.DB, model any) *gorm.DB {
//		if _, ok := model.(*Order); ok {
//			return db.Where("customer_id = ?", user)
//		}
//		return db.Where("tenant_id = ?", tenant)
//	}
//
// The conditions hold in addition to those of the handle given to [From], and an Or in one does not widen the other. A
// row that does not meet them is treated like one that does not exist. The scope does not hold for rows that Preload
// loads.
//
// The scope must return the handle that it was given, with at least one condition or join added, or Find fails with
// [ErrClause]. GORM adds none for a struct whose fields are zero, so write Where("tenant_id = ?", tenant) and not
// Where(&Order{Tenant: tenant}). Where("1 = 1") allows all rows. Unscoped has to be on the handle given to From.
func Scoped(scope func(db *gorm.DB, model any) *gorm.DB) FindOption {
	return func(f *finder) error {
		switch {
		case scope == nil:
			return fmt.Errorf("%w: Scoped: the scope is nil; leave the option out", ErrOption)
		case f.scope != nil:
			return fmt.Errorf("%w: Scoped is given twice; combine the scopes in one function", ErrOption)
		}
		f.scope = scope
		return nil
	}
}

// scopes returns scopes that read the conditions of the caller's scope, apart from those that a statement has.
func (f *finder) scopes(p *plan, into *clause.Expression) []func(*gorm.DB) *gorm.DB {
	if f.scope == nil {
		return nil
	}
	var handle gorm.Statement // as it is before the scope
	return []func(*gorm.DB) *gorm.DB{
		func(db *gorm.DB) *gorm.DB {
			stmt := db.Statement
			_ = db.AddError(p.refuse(stmt))
			handle.Unscoped, handle.Joins, handle.Clauses = stmt.Unscoped, stmt.Joins, maps.Clone(stmt.Clauses)
			delete(stmt.Clauses, "WHERE")
			return db
		},
		func(db *gorm.DB) *gorm.DB {
			dest := db.Statement.Dest
			scoped := f.scope(db, p.newRow())
			if scoped == nil || scoped.Statement.Dest != dest {
				_ = db.AddError(fmt.Errorf("%w: the scope of Scoped returned another handle for %s; return the one that it was given, with conditions added",
					ErrClause, p.Schema.Table))
				return db
			}
			return scoped
		},
		func(db *gorm.DB) *gorm.DB {
			stmt := db.Statement
			where := stmt.Clauses["WHERE"].Expression
			switch err := p.refuse(stmt); {
			case db.Error != nil: // of the scope
			case err != nil:
				_ = db.AddError(err)
			case stmt.Unscoped && !handle.Unscoped:
				_ = db.AddError(refused("Unscoped", "a scope of Scoped cannot show deleted rows; give it to the handle"))
			case where == nil && len(stmt.Joins) == len(handle.Joins):
				_ = db.AddError(fmt.Errorf("%w: the scope of Scoped added no condition for %s, as Where with a struct whose fields are zero does:"+
					` write Where("tenant = ?", tenant), or Where("1 = 1") if all rows are meant`, ErrClause, p.Schema.Table))
			}
			*into, stmt.Clauses["WHERE"] = where, handle.Clauses["WHERE"]
			return db
		},
	}
}

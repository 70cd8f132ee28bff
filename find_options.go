package uidplugin

import (
	"fmt"
	"maps"
	"regexp"
	"strings"

	"github.com/uidplugin/uidplugin/internal/catalog"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// A FindOption restricts the rows that Find and FindAll return; see [OnlyModels] and [Scoped]. It is safe for
// concurrent use.
type FindOption func(*finder) error

type finder struct {
	db     *gorm.DB
	shared *shared
	only   map[string]*catalog.Plan // by table; nil allows all listed models
	scope  func(db *gorm.DB, model any) *gorm.DB

	inOrder bool   // rows are returned in the order of ids
	prefix  string // of the public id; empty for a number
}

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

func (f *finder) plan(table string) *catalog.Plan {
	if f.only != nil {
		return f.only[table]
	}
	return f.shared.catalog.ListedFor(table)
}

// OnlyModels restricts Find and FindAll to rows of these models. Endpoints for ids that users send should use it. An id
// of another table fails with an error that wraps [ErrNoModel] and [ErrNoSuchID]. Models are pointers to structs and
// need not be listed by [WithModels]. Without models, no row is returned.
//
// Find returns [ErrNoField] for a model without a uid field, and [ErrField] if the field cannot hold ids. It returns
// [ErrOption] for two models of one table, and GORM's error for values that are not models.
func OnlyModels(models ...any) FindOption {
	return func(f *finder) error {
		if f.only == nil {
			f.only = map[string]*catalog.Plan{}
		}
		for _, m := range models {
			p, _, err := f.shared.catalog.KeyOf(f.db, m)
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

// Scoped restricts Find and FindAll to rows that meet the conditions of a scope, such as the rows of a tenant or user.
// They call scope for each query, with a handle and a pointer to a zero struct of the model:
//
//	func(db *gorm.DB, model any) *gorm.DB {
//		if _, ok := model.(*Order); ok {
//			return db.Where("customer_id = ?", user)
//		}
//		return db.Where("tenant_id = ?", tenant)
//	}
//
// A row must meet these conditions and those of the handle given to [From]; an Or in one does not widen the other.
// Other rows are treated as missing. The scope does not apply to rows loaded by Preload.
//
// The scope must add at least one condition or inner join to its handle and return it. Otherwise Find fails with
// [ErrClause]. GORM ignores zero fields of a struct, so write Where("tenant_id = ?", tenant) instead of
// Where(&Order{Tenant: tenant}). Where("1 = 1") allows all rows. The scope cannot join an association that the handle
// already joins. Unscoped must be set on the handle.
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

// scopes returns scopes that run the caller's scope and store its conditions in into, apart from those of the
// statement.
func (f *finder) scopes(p *catalog.Plan, into *clause.Expression) []func(*gorm.DB) *gorm.DB {
	if f.scope == nil {
		return nil
	}
	var handle gorm.Statement // the clauses before the scope runs
	return []func(*gorm.DB) *gorm.DB{
		func(db *gorm.DB) *gorm.DB {
			stmt := db.Statement
			_ = db.AddError(refuse(p, stmt))
			handle.Unscoped, handle.Joins, handle.Clauses = stmt.Unscoped, stmt.Joins, maps.Clone(stmt.Clauses)
			delete(stmt.Clauses, "WHERE")
			return db
		},
		func(db *gorm.DB) *gorm.DB {
			dest := db.Statement.Dest
			scoped := f.scope(db, p.NewRow())
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
			inner, again := joinsFrom(stmt, len(handle.Joins))
			switch err := refuse(p, stmt); {
			case db.Error != nil: // set by the scope
			case err != nil:
				_ = db.AddError(err)
			case stmt.Unscoped && !handle.Unscoped:
				_ = db.AddError(refused("Unscoped", "a scope of Scoped cannot show deleted rows; give it to the handle"))
			case again != "":
				_ = db.AddError(fmt.Errorf("%w: the scope of Scoped joins %s for %s again, and GORM leaves out the second join: leave it out of the handle, or add the condition by Where",
					ErrClause, again, p.Schema.Table))
			case where == nil && !inner:
				_ = db.AddError(fmt.Errorf("%w: the scope of Scoped added no condition for %s, as a LEFT JOIN or Where with a struct whose fields are zero:"+
					` write Where("tenant = ?", tenant), or Where("1 = 1") if all rows are meant`, ErrClause, p.Schema.Table))
			}
			*into, stmt.Clauses["WHERE"] = where, handle.Clauses["WHERE"]
			return db
		},
	}
}

// innerJoin matches SQL that begins with an inner join.
var innerJoin = regexp.MustCompile(`(?i)^\s*(INNER\s+)?JOIN\s`)

// joinsFrom reports whether an inner join is among the joins of a statement from first on, because other joins keep all
// rows. It also returns the name of a join whose association was joined before, or "". A join of A.B also joins A.
func joinsFrom(stmt *gorm.Statement, first int) (inner bool, again string) {
	for i := first; i < len(stmt.Joins); i++ {
		name := stmt.Joins[i].Name
		inner = inner || stmt.Joins[i].JoinType == clause.InnerJoin || innerJoin.MatchString(name)
		for _, j := range stmt.Joins[:i] {
			if strings.HasPrefix(j.Name+".", name+".") {
				again = name
			}
		}
	}
	return inner, again
}

package lookup

import (
	"fmt"
	"maps"
	"regexp"
	"strings"

	"github.com/uidplugin/uidplugin/internal/catalog"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// scopes returns scopes that run the caller's scope, f.scope. They move the conditions that f.scope adds from the
// statement to *into.
func (f *Finder) scopes(p *catalog.Plan, into *clause.Expression) []func(*gorm.DB) *gorm.DB {
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
			inner, repeated := joinsFrom(stmt, len(handle.Joins))
			switch err := refuse(p, stmt); {
			case db.Error != nil: // set by the scope
			case err != nil:
				_ = db.AddError(err)
			case stmt.Unscoped && !handle.Unscoped:
				_ = db.AddError(refused("Unscoped", "a scope of Scoped cannot show deleted rows; give it to the handle"))
			case repeated != "":
				_ = db.AddError(fmt.Errorf("%w: the scope of Scoped joins %s for %s again, and GORM leaves out the second join: leave it out of the handle, or add the condition by Where",
					ErrClause, repeated, p.Schema.Table))
			case where == nil && !inner:
				_ = db.AddError(fmt.Errorf("%w: the scope of Scoped added no condition for %s (a LEFT JOIN, or Where with a struct of zero fields, adds none):"+
					` write Where("tenant = ?", tenant), or Where("1 = 1") if all rows are meant`, ErrClause, p.Schema.Table))
			}
			*into, stmt.Clauses["WHERE"] = where, handle.Clauses["WHERE"]
			return db
		},
	}
}

// innerJoin matches SQL that begins with an inner join.
var innerJoin = regexp.MustCompile(`(?i)^\s*(INNER\s+)?JOIN\s`)

// joinsFrom looks at stmt.Joins[first:], the joins that a scope has added. Only inner joins leave out rows.
// repeated is an added join whose association was joined before, or "". A join of A.B also joins A.
func joinsFrom(stmt *gorm.Statement, first int) (inner bool, repeated string) {
	for i := first; i < len(stmt.Joins); i++ {
		name := stmt.Joins[i].Name
		inner = inner || stmt.Joins[i].JoinType == clause.InnerJoin || innerJoin.MatchString(name)
		for _, j := range stmt.Joins[:i] {
			if strings.HasPrefix(j.Name+".", name+".") {
				repeated = name
			}
		}
	}
	return inner, repeated
}

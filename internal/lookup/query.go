package lookup

import (
	"context"
	"fmt"
	"reflect"

	"github.com/uidplugin/uidplugin/internal/catalog"
	"github.com/uidplugin/uidplugin/internal/model"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

func (f *Finder) query(ctx context.Context, p *catalog.Plan, ids []int64) *gorm.DB {
	key := p.RowKey()
	values := make([]any, len(ids))
	for i, id := range ids {
		values[i] = key.Value(id)
	}
	return f.where(ctx, p, clause.IN{Column: columnOf(key), Values: values})
}

func columnOf(key *catalog.Field) clause.Column {
	return clause.Column{Table: clause.CurrentTable, Name: key.DBName}
}

// where returns the handle with the scope and a condition. It checks the clauses of the handle before it adds more.
func (f *Finder) where(ctx context.Context, p *catalog.Plan, condition clause.Expression, more ...clause.Interface) *gorm.DB {
	var scope clause.Expression
	restrict := func(db *gorm.DB) *gorm.DB {
		if db.Error == nil {
			_ = db.AddError(f.restrict(p, db.Statement, condition, scope))
		}
		for _, c := range more {
			db.Statement.AddClause(c)
		}
		return db
	}
	// Call Clauses first to begin a new statement. Session alone would bring back conditions that the caller has
	// dropped by a session with NewDB.
	db := f.db.Clauses().Session(&gorm.Session{Context: ctx})
	if !scopesKnown {
		_ = db.AddError(fmt.Errorf("%w: this version of GORM keeps scopes where they cannot be seen, so conditions of the handle could be lost;"+
			" use a version of uidplugin that knows it", ErrClause))
		return db
	}
	return db.Scopes(inTurn(append(f.scopes(p, &scope), restrict)...))
}

// Where returns db restricted to rows of a model that meet a condition, in the order of their ids. Like [FindAs] it
// checks the clauses of db before it adds more.
func (loc *Locator) Where(ctx context.Context, db *gorm.DB, p *catalog.Plan, condition clause.Expression, more ...clause.Interface) *gorm.DB {
	f := &Finder{loc: loc, db: db, inOrder: true}
	return f.where(ctx, p, condition, more...)
}

// inTurn returns a scope that runs the given scopes one after the other. If one of them adds scopes, GORM runs
// these only after the scope of inTurn. So inTurn puts the rest of its scopes behind them.
func inTurn(scopes ...func(*gorm.DB) *gorm.DB) func(*gorm.DB) *gorm.DB {
	return func(db *gorm.DB) *gorm.DB {
		for i, scope := range scopes {
			if hasScopes(db.Statement) {
				return db.Scopes(inTurn(scopes[i:]...))
			}
			db = scope(db)
		}
		return db
	}
}

// scopesField is the field of pending scopes. It is read by reflection, because GORM does not export it.
var scopesField, scopesKnown = reflect.TypeFor[gorm.Statement]().FieldByName("scopes")

func hasScopes(stmt *gorm.Statement) bool {
	return reflect.ValueOf(stmt).Elem().FieldByIndex(scopesField.Index).Len() > 0
}

// restrict limits a statement to rows that meet the conditions key and scope, whatever other conditions it has. It
// refuses clauses that would prevent this.
func (f *Finder) restrict(p *catalog.Plan, stmt *gorm.Statement, key, scope clause.Expression) error {
	if err := refuse(p, stmt); err != nil {
		return err
	}
	if order, _ := stmt.Clauses["ORDER BY"].Expression.(clause.OrderBy); f.inOrder && (len(order.Columns) > 0 || order.Expression != nil) {
		return refused("Order", "the rows come in the order of the ids; leave it out")
	}
	stmt.Model = nil // use the model of the rows instead
	where := stmt.Clauses["WHERE"]
	where.Name, where.Builder = "WHERE", restricted(key, scope)
	stmt.Clauses["WHERE"] = where
	return nil
}

// restricted returns a builder that adds the conditions for key and scope to a WHERE clause. scope may be nil. GORM
// calls the builder last, after other plugins and types such as [gorm.DeletedAt] have added conditions. So the
// builder puts all conditions that the statement has into one pair of parentheses.
func restricted(key, scope clause.Expression) clause.ClauseBuilder {
	return func(where clause.Clause, b clause.Builder) {
		all := []clause.Expression{where.Expression, scope, key}
		if stmt, ok := b.(*gorm.Statement); ok && scope != nil {
			all[1] = withQueryClauses(stmt, scope)
		}
		where.Builder, where.Expression = nil, model.AllOf(all)
		where.Build(b)
	}
}

// withQueryClauses adds the query clauses of the model's field types to conditions, before these are joined with
// others. In joined conditions, a soft delete would not find the Or that it puts into parentheses.
func withQueryClauses(stmt *gorm.Statement, conditions clause.Expression) clause.Expression {
	clauses := stmt.Clauses
	defer func() { stmt.Clauses = clauses }()
	stmt.Clauses = map[string]clause.Clause{"WHERE": {Name: "WHERE", Expression: conditions}}
	for _, c := range stmt.Schema.QueryClauses {
		stmt.AddClause(c)
	}
	return stmt.Clauses["WHERE"].Expression
}

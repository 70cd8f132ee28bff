package model

import (
	"slices"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// BeforeBuild calls f when GORM begins to write the statement, because its values and assignments are known only
// then. names are the first clauses of the statement. GORM calls the builder of a clause only if the dialect does
// not write the clause, so BeforeBuild uses the first such clause of names. It calls f only once, because the
// handle may be used again, and never for copies of the statement. The function added last runs first.
func BeforeBuild(stmt *gorm.Statement, f func(), names ...string) {
	i := slices.IndexFunc(names, func(name string) bool { return stmt.DB.ClauseBuilders[name] == nil })
	if i < 0 {
		return
	}
	name := names[i]
	c := stmt.Clauses[name]
	before := c.Builder
	c.Builder = func(c clause.Clause, b clause.Builder) {
		c.Builder = before
		if b == clause.Builder(stmt) {
			stmt.Clauses[name] = c
			f()
			c = stmt.Clauses[name]
		}
		c.Build(b)
	}
	stmt.Clauses[name] = c
}

package upsert_test

import (
	"testing"

	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// ownClause is GORM's conflict clause under another name.
type ownClause struct{ clause.OnConflict }

func (ownClause) Name() string { return "OWN" }

func (c ownClause) MergeClause(to *clause.Clause) {
	to.Name, to.Expression = "ON CONFLICT", c.OnConflict
}

// ownText is an expression of a type that only its owner knows.
type ownText string

func (s ownText) Build(b clause.Builder) { _, _ = b.WriteString(string(s)) }

// behind adds an expression to a clause of GORM.
type behind struct {
	name  string
	place func(*clause.Clause, clause.Expression)
	text  clause.Expression
}

func (m behind) ModifyStatement(stmt *gorm.Statement) {
	c := stmt.Clauses[m.name]
	m.place(&c, m.text)
	stmt.Clauses[m.name] = c
}

// Build implements [clause.Expression].
func (behind) Build(clause.Builder) {}

type nothingAtName struct{}

func (nothingAtName) Name() string         { return "OWN" }
func (nothingAtName) Build(clause.Builder) {}
func (nothingAtName) MergeClause(to *clause.Clause) {
	to.Name, to.Expression = "ON CONFLICT (name) DO NOTHING", ownText("")
}

// A struct has no id that no row has, and no child refers to one, however the application writes its conflict clause.
func TestUpsert_ByAClauseOfTheApplication(t *testing.T) {
	t.Parallel()
	after := func(c *clause.Clause, e clause.Expression) { c.AfterExpression = e }
	name := []clause.Column{{Name: "name"}}
	update := clause.OnConflict{Columns: name, DoUpdates: clause.AssignmentColumns([]string{"value"})}
	clauses := map[string]clause.Expression{
		"nothing under another name": ownClause{clause.OnConflict{Columns: name, DoNothing: true}},
		"update under another name":  ownClause{update},
		"text as a name":             nothingAtName{},
		"text behind VALUES":         behind{"VALUES", after, clause.Expr{SQL: "ON CONFLICT DO NOTHING"}},
		"lower case":                 behind{"VALUES", after, clause.Expr{SQL: "on\nconflict (name) do update set value = excluded.value"}},
		"an expression of a type":    behind{"VALUES", after, ownText("ON CONFLICT (name) DO NOTHING")},
		"conflict behind VALUES": behind{"VALUES", func(c *clause.Clause, e clause.Expression) { c.AfterExpression = e },
			clause.AndConditions{Exprs: []clause.Expression{ownText("ON CONFLICT (name) DO NOTHING")}}},
	}
	eachVariant(t, func(t *testing.T, d *testkit.Database, variant string, db *gorm.DB) {
		inserts := db.Callback().Create()
		inserts.Clauses = append([]string{"INSERT", "VALUES", "ON CONFLICT", "OWN"}, inserts.Clauses[3:]...)
		migrateSent(t, db)
		testkit.Must(t, db.AutoMigrate(&UniqueA{}, &MetPart{}))
		for what, own := range clauses {
			for _, table := range []string{"sent_parents", "sent_manies", "unique_as"} {
				testkit.Must(t, db.Exec("DELETE FROM "+table).Error)
			}
			created(t, db, SentParent{Name: "a"})
			one, batch := SentParent{Name: "a", Value: 1}, []SentParent{{Name: "n1"}, {Name: "a", Value: 2}, {Name: "n2"}}
			create(t, db.Clauses(own), &one, &batch)
			for _, r := range append(batch, one) {
				if got := queried[int64](t, db, "SELECT id FROM sent_parents WHERE name = ?", r.Name); r.ID != got && (r.ID != 0 || r.Name != "a") {
					t.Errorf("%s: the row %s has %d, the struct %d", what, r.Name, got, r.ID)
				}
			}
			_ = db.Clauses(own).Create(&[]SentParent{{Name: "a", Many: []SentMany{{}}}, {Name: "n3", Many: []SentMany{{}}}}).Error
			if n := queried[int](t, db, "SELECT COUNT(*) FROM sent_manies WHERE parent_id NOT IN (SELECT id FROM sent_parents)"); n > 0 {
				t.Errorf("%s: %d children have no parent", what, n)
			}
			created(t, db, UniqueA{Name: "a"})
			again := created(t, db.Clauses(own), []UniqueA{{Name: "a"}, {Name: "n1"}, {Name: "n2"}})
			for _, r := range again {
				if got := queried[int64](t, db, "SELECT id FROM unique_as WHERE name = ?", r.Name); r.ID != got && (r.ID != 0 || r.Name != "a") {
					t.Errorf("%s: the numbered row %s has %d, the struct %d", what, r.Name, got, r.ID)
				}
			}
		}
	}, "sqlite", "postgres")
}

package paths_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/logger"
	"gorm.io/gorm/schema"
)

// A grove has leaves.
type grove struct {
	ID   uidplugin.ID
	Size int
}

// LeafFields are the columns of the conditions. They have few values, so many rows meet several conditions.
type LeafFields struct {
	ID      uidplugin.ID
	Tenant  int
	Kind    int
	Name    string `gorm:"size:10"`
	GroveID uidplugin.ID
	Grove   *grove
}

func (f LeafFields) key() uidplugin.ID { return f.ID }

// Models that differ in how their rows are deleted.
type (
	leaf struct{ LeafFields } // for good

	softLeaf struct {
		LeafFields
		DeletedAt gorm.DeletedAt
	}

	flagLeaf struct {
		LeafFields
		Gone gone
	}

	// bareLeaf is another model of the table of softLeaf, without soft delete.
	bareLeaf struct{ LeafFields }
)

func (bareLeaf) TableName() string { return "soft_leafs" }

// gone is the flag of gorm.io/plugin/soft_delete.
type gone int

// QueryClauses implements [schema.QueryClausesInterface].
func (gone) QueryClauses(f *schema.Field) []clause.Interface {
	return []clause.Interface{goneClause{f}}
}

type goneClause struct{ *schema.Field }

func (goneClause) Name() string               { return "" }
func (goneClause) Build(clause.Builder)       {}
func (goneClause) MergeClause(*clause.Clause) {}
func (c goneClause) ModifyStatement(stmt *gorm.Statement) {
	if _, ok := stmt.Clauses["soft_delete_enabled"]; ok || stmt.Unscoped {
		return
	}
	w := stmt.Clauses["WHERE"]
	where, _ := w.Expression.(clause.Where)
	if slices.ContainsFunc(where.Exprs, func(e clause.Expression) bool { or, ok := e.(clause.OrConditions); return ok && len(or.Exprs) == 1 }) {
		w.Expression = clause.Where{Exprs: []clause.Expression{clause.And(where.Exprs...)}}
		stmt.Clauses["WHERE"] = w
	}
	stmt.AddClause(clause.Where{Exprs: []clause.Expression{clause.Eq{Column: clause.Column{Table: clause.CurrentTable, Name: c.DBName}, Value: 0}}})
	stmt.Clauses["soft_delete_enabled"] = clause.Clause{}
}

// A change adds something to a handle. It does the same each time.
type change struct {
	text  string
	apply func(*gorm.DB) *gorm.DB
}

// changes are the ways in which an application may change a handle.
type changes []change

func (c changes) String() string {
	var b strings.Builder
	for _, one := range c {
		b.WriteString("." + one.text)
	}
	return b.String()
}

func (c changes) on(db *gorm.DB) *gorm.DB {
	for _, one := range c {
		db = one.apply(db)
	}
	return db
}

// A gardener makes random handles on a database.
type gardener struct {
	*rand.Rand
	db    *gorm.DB
	table string
	ids   []uidplugin.ID
	of    func(tenant, kind int) any // a struct of the model
}

// argument returns arguments of Where, Or and Not, and their text. depth is how deep groups may be.
func (g *gardener) argument(depth int) (text string, args func() []any) {
	column := g.table + "." + []string{"tenant", "kind"}[g.IntN(2)]
	m, n := g.IntN(4), g.IntN(4)
	raw := func(sql string, values ...any) (string, func() []any) {
		return fmt.Sprintf("(%q, %v)", sql, values), func() []any { return append([]any{sql}, values...) }
	}
	switch g.IntN(14) {
	case 0, 1, 2:
		return raw(column+" = ?", n)
	case 3:
		return raw(column + " <> 2")
	case 4:
		return raw(fmt.Sprintf("%s.tenant = %d OR %s.kind = %d", g.table, m, g.table, n))
	case 5:
		return raw(fmt.Sprintf("%s.tenant = %d\nor %s.kind = %d", g.table, m, g.table, n)) // GORM does not see the or
	case 6:
		return raw(fmt.Sprintf("%s.tenant = ? AND %s.kind IN ?", g.table, g.table), m, []int{n, 3})
	case 7:
		return raw(column+" = @n OR "+g.table+".name = @name", map[string]any{"n": n, "name": "a"})
	case 8:
		return fmt.Sprintf("(map tenant %d, kind %d)", m, n), func() []any { return []any{map[string]any{"tenant": m, "kind": []int{n, 1, 2}}} }
	case 9:
		return fmt.Sprintf("(struct tenant %d, kind %d)", m+1, n), func() []any { return []any{g.of(m+1, n)} }
	case 10:
		ids := slices.Clone(g.ids[:1+g.IntN(len(g.ids))])
		return fmt.Sprintf("(%d keys)", len(ids)), func() []any { return []any{g.table + ".id IN ?", ids} }
	case 11:
		or := clause.Or(clause.Eq{Column: column, Value: m}, clause.Eq{Column: column, Value: n})
		return fmt.Sprintf("(clause.Or %d %d)", m, n), func() []any { return []any{or} }
	}
	if depth == 0 {
		return raw(column+" > ?", n)
	}
	group := g.conditions(1+g.IntN(3), depth-1)
	return "(db" + group.String() + ")", func() []any { return []any{group.on(g.db.Session(&gorm.Session{NewDB: true}))} }
}

// conditions returns up to n conditions.
func (g *gardener) conditions(n, depth int) (all changes) {
	for range n {
		text, args := g.argument(depth)
		switch n := g.IntN(7); {
		case n < 3, n == 6 && depth == 0:
			all = append(all, change{"Where" + text, func(db *gorm.DB) *gorm.DB { a := args(); return db.Where(a[0], a[1:]...) }})
		case n < 5:
			all = append(all, change{"Or" + text, func(db *gorm.DB) *gorm.DB { a := args(); return db.Or(a[0], a[1:]...) }})
		case n == 5:
			all = append(all, change{"Not" + text, func(db *gorm.DB) *gorm.DB { a := args(); return db.Not(a[0], a[1:]...) }})
		default:
			inner := g.conditions(1+g.IntN(2), depth-1)
			all = append(all, change{"Scopes(" + inner.String() + ")", func(db *gorm.DB) *gorm.DB { return db.Scopes(inner.on) }})
		}
	}
	return all
}

// handle returns what an application may do to a handle.
func (g *gardener) handle() changes {
	all, size := g.conditions(g.IntN(5), 2), clause.Column{Table: "Grove", Name: "size"}
	for _, c := range []change{
		{"Unscoped()", func(db *gorm.DB) *gorm.DB { return db.Unscoped() }},
		{`Joins("Grove")`, func(db *gorm.DB) *gorm.DB {
			return db.Joins("Grove").Where("? > 2", size)
		}},
		{`InnerJoins("Grove")`, func(db *gorm.DB) *gorm.DB { return db.InnerJoins("Grove", g.db.Or("? = 3", size).Where("? > 1", size)) }},
		{`Joins("JOIN ...")`, func(db *gorm.DB) *gorm.DB {
			return db.Joins("JOIN groves g ON g.id = "+g.table+".grove_id AND g.size < ?", 3).Or("g.size = 2")
		}},
		{"Session()", func(db *gorm.DB) *gorm.DB { return db.Session(&gorm.Session{}) }},
		{"Model()", func(db *gorm.DB) *gorm.DB { return db.Model(g.of(1, 1)) }},
	} {
		if g.IntN(8) == 0 {
			all = slices.Insert(all, g.IntN(len(all)+1), c)
		}
	}
	return all
}

// keysOf returns the keys of the existing rows, in ascending order.
func keysOf[T interface{ key() uidplugin.ID }](rows []*T) (ids []uidplugin.ID) {
	for _, r := range rows {
		if r != nil {
			ids = append(ids, (*r).key())
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids) // a join may return a row twice
}

// findsWhatTheHandleFinds compares rows: those that random handles find, and those that the plugin finds with them.
func findsWhatTheHandleFinds[T interface{ key() uidplugin.ID }](t *testing.T, g *gardener, handles int) {
	for range handles {
		h, scope := g.handle(), g.conditions(1+g.IntN(3), 2)
		query := func(c changes) ([]uidplugin.ID, error) {
			var rows []*T
			err := c.on(g.db).Find(&rows).Error
			return keysOf(rows), err
		}
		want, err := query(h)
		if err != nil {
			t.Fatalf("%T: db%s: %v", *new(T), h, err)
		}
		check := func(by string, want, got []uidplugin.ID, err error) {
			t.Helper()
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%s of %T with db%s: %d rows, %v; the handle itself finds %d", by, *new(T), h, len(got), err, len(want))
			}
		}
		only := uidplugin.OnlyModels(new(T))
		found, err := uidplugin.From(h.on(g.db)).FindAll(t.Context(), g.ids, only)
		check("FindAll", want, slices.Sorted(maps.Keys(found)), err)

		rows, err := uidplugin.FindAs[T](t.Context(), h.on(g.db), g.ids...)
		if len(rows) == len(g.ids) {
			err = nil // for those that are missing
		}
		check("FindAs", want, keysOf(rows), err)

		id := g.ids[g.IntN(len(g.ids))]
		row, err := uidplugin.From(h.on(g.db)).Find(t.Context(), id, only)
		if is := slices.Contains(want, id); is != (err == nil) || is != (row != nil) {
			t.Errorf("Find of %T with db%s: %v, %v; found by the handle itself: %t", *new(T), h, row, err, is)
		}

		in, err := query(append(scope, slices.DeleteFunc(slices.Clone(h), func(c change) bool { return c.text != "Unscoped()" })...))
		if err != nil {
			t.Fatalf("%T: db%s: %v", *new(T), scope, err)
		}
		both := slices.DeleteFunc(slices.Clone(want), func(id uidplugin.ID) bool { return !slices.Contains(in, id) })
		found, err = uidplugin.From(h.on(g.db)).FindAll(t.Context(), g.ids, only,
			uidplugin.Scoped(func(db *gorm.DB, _ any) *gorm.DB { return scope.on(db) }))
		check("FindAll, scoped by db"+scope.String()+",", both, slices.Sorted(maps.Keys(found)), err)
	}
}

// plant creates leaves of a model, and deletes some. It returns the ids of all.
func plant[T interface{ key() uidplugin.ID }](t *testing.T, db *gorm.DB, groves []grove, of func(LeafFields) *T) (ids []uidplugin.ID) {
	t.Helper()
	var rows []*T
	for i := range 40 {
		rows = append(rows, of(LeafFields{Tenant: i % 4, Kind: i / 4 % 4, Name: string(rune('a' + i%3)), GroveID: groves[i%len(groves)].ID}))
	}
	testkit.Must(t, db.Create(&rows).Error)
	for i, r := range rows {
		ids = append(ids, (*r).key())
		if i%3 == 0 {
			testkit.Must(t, db.Delete(r).Error)
		}
	}
	return ids
}

// Whatever conditions a handle has, the plugin finds the rows that the handle's own query finds. Formerly it combined
// conditions with soft delete in another way than GORM does, so rows of other tenants were found.
func TestFind_FindsTheRowsOfTheHandlesOwnQuery(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, &gorm.Config{PrepareStmt: true, Logger: logger.Discard})
		harness.Use(t, db, uidplugin.WithModels(&grove{}, &leaf{}, &softLeaf{}, &flagLeaf{}))
		testkit.Must(t, db.AutoMigrate(&grove{}, &leaf{}, &softLeaf{}, &flagLeaf{}))
		groves := []grove{{Size: 1}, {Size: 2}, {Size: 3}}
		testkit.Must(t, db.Create(&groves).Error)

		seed := uint64(time.Now().UnixNano())
		g := &gardener{Rand: rand.New(rand.NewPCG(seed, 1)), db: db}
		handles := 60
		defer func() {
			if t.Failed() {
				t.Logf("the seed is %d", seed)
			}
		}()
		fields := func(tenant, kind int) LeafFields { return LeafFields{Tenant: tenant, Kind: kind} }

		g.table, g.of = "leafs", func(tenant, kind int) any { return &leaf{fields(tenant, kind)} }
		g.ids = plant(t, db, groves, func(f LeafFields) *leaf { return &leaf{f} })
		findsWhatTheHandleFinds[leaf](t, g, handles)

		g.table, g.of = "soft_leafs", func(tenant, kind int) any { return &softLeaf{LeafFields: fields(tenant, kind)} }
		g.ids = plant(t, db, groves, func(f LeafFields) *softLeaf { return &softLeaf{LeafFields: f} })
		findsWhatTheHandleFinds[softLeaf](t, g, handles)

		g.of = func(tenant, kind int) any { return &bareLeaf{fields(tenant, kind)} }
		findsWhatTheHandleFinds[bareLeaf](t, g, handles)

		g.table, g.of = "flag_leafs", func(tenant, kind int) any { return &flagLeaf{LeafFields: fields(tenant, kind)} }
		g.ids = plant(t, db, groves, func(f LeafFields) *flagLeaf { return &flagLeaf{LeafFields: f, Gone: gone(f.Tenant % 2)} })
		findsWhatTheHandleFinds[flagLeaf](t, g, handles)
	})
}

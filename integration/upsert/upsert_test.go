package upsert_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/logger"
)

// These models have a unique name, and keys of all kinds. With GORM's AutoMigrate, the keys of those ending in A are
// AUTO_INCREMENT.
type (
	UniqueA struct {
		ID    int64  `gorm:"uid"`
		Name  string `gorm:"size:50;uniqueIndex"`
		Value int
	}
	UniqueB struct {
		ID    int64  `gorm:"primaryKey;autoIncrement:false;uid"`
		Name  string `gorm:"size:50;uniqueIndex"`
		Value int
	}
	UniqueC struct {
		ID    string `gorm:"primaryKey;size:20;uid"`
		Name  string `gorm:"size:50;uniqueIndex"`
		Value int
	}
	UniqueD struct {
		ID    uidplugin.ID `gorm:"primaryKey;uid"`
		Extra int64        `gorm:"uid"`
		Name  string       `gorm:"size:50;uniqueIndex"`
		Value int
	}
	UniqueE struct {
		ID    *int64 `gorm:"primaryKey;uid"`
		Name  string `gorm:"size:50;uniqueIndex"`
		Value int
	}
)

// upserts are the statements that conflict with existing rows.
var upserts = map[string]clause.OnConflict{
	"nothing":    {DoNothing: true},
	"nothing at": {Columns: []clause.Column{{Name: "name"}}, DoNothing: true},
	"update":     {Columns: []clause.Column{{Name: "name"}}, DoUpdates: clause.AssignmentColumns([]string{"value"})},
	"all":        {Columns: []clause.Column{{Name: "name"}}, UpdateAll: true},
	"where": {Columns: []clause.Column{{Name: "name"}}, DoUpdates: clause.AssignmentColumns([]string{"value"}),
		Where: clause.Where{Exprs: []clause.Expression{clause.Expr{SQL: "1 = 0"}}}},
}

// eachVariant runs a test with a plugin on all engines and their variants, or on those engines named. Variants of an
// engine share a database.
func eachVariant(t *testing.T, test func(t *testing.T, d *testkit.Database, variant string, db *gorm.DB), only ...string) {
	t.Helper()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		for variant, db := range variants(t, d) {
			harness.Use(t, db)
			test(t, d, variant, db)
		}
	}, only...)
}

// variants of MySQL's drivers that answer differently.
func variants(t *testing.T, d *testkit.Database) map[string]*gorm.DB {
	all := map[string]*gorm.DB{"": d.Open(t, nil)}
	if d.IsMySQL() {
		all["/found rows"] = d.Open(t, nil, "clientFoundRows=true")
	}
	if d.Name == "mariadb" {
		db, err := gorm.Open(mysql.New(mysql.Config{DSN: d.DSN(), DisableWithReturning: true}), &gorm.Config{Logger: logger.Discard})
		testkit.Must(t, err)
		t.Cleanup(func() {
			pool, _ := db.DB()
			_ = pool.Close()
		})
		all["/no returning"] = db
	}
	return all
}

// create creates rows, each with a statement of its own.
func create(t *testing.T, db *gorm.DB, rows ...any) {
	t.Helper()
	for _, row := range rows {
		testkit.Must(t, db.Session(&gorm.Session{}).Create(row).Error)
	}
}

// created creates a row, or several with one statement, and returns what the plugin has made of them.
func created[T any](t *testing.T, db *gorm.DB, rows T) T {
	t.Helper()
	testkit.Must(t, db.Create(&rows).Error)
	return rows
}

// empty makes the tables of models, and deletes their rows.
func empty(t *testing.T, db *gorm.DB, models ...any) {
	t.Helper()
	testkit.Must(t, db.AutoMigrate(models...))
	for _, model := range models {
		testkit.Must(t, db.Where("1 = 1").Delete(model).Error)
	}
}

// After an upsert a struct has the id of the existing row or zero, and never an id that no row has.
func TestUpserts(t *testing.T) {
	t.Parallel()
	eachVariant(t, func(t *testing.T, d *testkit.Database, variant string, db *gorm.DB) {
		for name, conflict := range upserts {
			upsertAll(t, db, name+variant, conflict, len(conflict.Columns) > 0) // these columns find the existing row
		}
		switch {
		case d.Name == "sqlite":
			upsertAll(t, db, "or ignore", clause.Insert{Modifier: "or ignore"}, false)
		case d.IsMySQL():
			upsertAll(t, db, "ignore"+variant, clause.Insert{Modifier: "IGNORE"}, false)
			both := clause.OnConflict{Columns: upserts["update"].Columns, DoNothing: true, DoUpdates: upserts["update"].DoUpdates}
			upsertAll(t, db, "nothing and update"+variant, both, true) // MySQL ignores DoNothing
		}
	})
}

// upsertAll runs upsert with keys of all kinds.
func upsertAll(t *testing.T, db *gorm.DB, label string, conflict clause.Expression, known bool) {
	t.Helper()
	upsert(t, db, label, conflict, known, func(n string) UniqueA { return UniqueA{Name: n, Value: 7} }, func(r UniqueA) (string, any) { return r.Name, r.ID })
	upsert(t, db, label, conflict, known, func(n string) UniqueB { return UniqueB{Name: n, Value: 7} }, func(r UniqueB) (string, any) { return r.Name, r.ID })
	upsert(t, db, label, conflict, known, func(n string) UniqueC { return UniqueC{Name: n, Value: 7} }, func(r UniqueC) (string, any) { return r.Name, zeroIfEmpty(r.ID) })
	upsert(t, db, label, conflict, known, func(n string) UniqueD { return UniqueD{Name: n, Value: 7} }, func(r UniqueD) (string, any) { return r.Name, r.ID })
	upsert(t, db, label, conflict, known, func(n string) UniqueE { return UniqueE{Name: n, Value: 7} }, func(r UniqueE) (string, any) {
		if r.ID == nil {
			return r.Name, 0
		}
		return r.Name, *r.ID
	})
	upsert(t, db, label, conflict, known, func(n string) MetHidden { return MetHidden{Name: n, Value: 7} }, func(r MetHidden) (string, any) { return r.Name, r.ID })
	if c, ok := conflict.(clause.OnConflict); ok && c.DoNothing { // GORM cannot read such a key with PostgreSQL
		upsert(t, db, label, conflict, known, func(n string) MetDecimal { return MetDecimal{Name: n, Value: 7} }, func(r MetDecimal) (string, any) { return r.Name, r.ID })
	}
}

func zeroIfEmpty(s string) string {
	if s == "" {
		return "0"
	}
	return s
}

// upsert creates one row that exists, one that does not, and batches of both, as structs, pointers and maps. With known
// the struct of a row that exists has its id.
func upsert[T any](t *testing.T, db *gorm.DB, label string, conflict clause.Expression, known bool, model func(name string) T, read func(T) (name string, id any)) {
	t.Helper()
	label += fmt.Sprintf(" %T", *new(T))
	_ = db.Migrator().DropTable(new(T))
	testkit.Must(t, db.AutoMigrate(new(T)))
	statement := gorm.Statement{DB: db}
	testkit.Must(t, statement.Parse(new(T)))
	table := statement.Table
	idOf := func(name any) string { // MetHidden is not read by a struct, and the text of a DECIMAL has decimal places
		t.Helper()
		return strings.TrimSuffix(queried[string](t, db, "SELECT id FROM "+table+" WHERE name = ?", name), ".00")
	}
	// check compares what the structs have with the rows.
	check := func(what string, known bool, rows ...T) {
		t.Helper()
		for _, r := range rows {
			name, id := read(r)
			if got, want := fmt.Sprint(id), idOf(name); got != want && (got != "0" || known) {
				t.Errorf("%s, %s: %s has the id %s in the struct and %s in the row", label, what, name, got, want)
			}
		}
	}
	for _, n := range []string{"old1", "old2", "same"} {
		created(t, db, model(n))
	}
	check("new", true, created(t, db.Clauses(conflict), model("fresh")))
	check("single", known, created(t, db.Clauses(conflict), model("old1")))
	batch := created(t, db.Clauses(conflict), []T{model("n1"), model("old1"), model("n2"), model("old2")})
	check("batch of old", known, batch[1], batch[3])
	check("batch of new", true, batch[0], batch[2])
	p1, p2, p3 := model("p1"), model("p2"), model("p3")
	create(t, db.Clauses(conflict), &[]*T{&p1, &p2, &p3})
	check("pointers, new", true, p1, p2, p3)

	// If the application asks for a result, it is the same as without the plugin. GORM has none of a statement with
	// RETURNING.
	for name, known := range map[string]bool{"old1": known, "with a result": true} {
		result := gorm.WithResult()
		check("with a result", known, created(t, db.Clauses(conflict, result), model(name)))
		if result.Result == nil && len(statement.Schema.FieldsWithDefaultDBValue) == 0 {
			t.Errorf("%s: %s has no result", label, name)
		}
	}

	// Maps: a key of ours is in the row, or not in the map.
	maps := []map[string]any{{"name": "m1", "value": 1}, {"name": "old1", "value": 2}, {"name": "m2", "value": 3}}
	single := map[string]any{"name": "old2", "value": 4}
	create(t, db.Model(new(T)).Clauses(conflict), &maps, &single)
	if rows := queried[int](t, db, "SELECT COUNT(*) FROM "+table); len(maps) != 3 || rows != 12 {
		t.Errorf("%s: %d maps, %d rows", label, len(maps), rows)
	}
	for _, m := range append(maps, single) {
		want := idOf(m["name"])
		if got, ok := m["id"]; ok && fmt.Sprint(got) != want || !ok && (known || m["name"].(string)[0] == 'm') {
			t.Errorf("%s: the map %v, in the row %s", label, m, want)
		}
	}
}

// GORM's own association saves are upserts, too.
func TestUpsert_AssociationsThatAreThereAlready(t *testing.T) {
	t.Parallel()
	type (
		Company struct {
			ID   int64  `gorm:"primaryKey;autoIncrement:false;uid"`
			Name string `gorm:"size:50;uniqueIndex"`
		}
		Phone struct {
			ID     int64 `gorm:"primaryKey;autoIncrement:false;uid"`
			UserID int64
			Number string `gorm:"size:50;uniqueIndex"`
		}
		User struct {
			ID        int64 `gorm:"primaryKey;autoIncrement:false;uid"`
			CompanyID int64
			Company   Company `gorm:"constraint:-"`
			Phones    []Phone `gorm:"constraint:-"`
		}
	)
	eachVariant(t, func(t *testing.T, d *testkit.Database, variant string, db *gorm.DB) {
		_ = db.Migrator().DropTable(&User{}, &Phone{}, &Company{})
		testkit.Must(t, db.AutoMigrate(&Company{}, &User{}, &Phone{}))
		old := created(t, db, Company{Name: "there"})
		u := created(t, db, User{Company: Company{Name: "there"}})
		if u.Company.ID != 0 && u.Company.ID != old.ID || u.CompanyID != u.Company.ID {
			t.Errorf("%s: the company is %d, the struct has %d and %d", variant, old.ID, u.Company.ID, u.CompanyID)
		}
		var back User
		if err := db.Take(&back, u.ID).Error; err != nil || back.CompanyID != u.CompanyID {
			t.Errorf("%s: the row has %d, the struct %d: %v", variant, back.CompanyID, u.CompanyID, err)
		}
		if !d.IsMySQL() {
			return // a has many with an existing row fails because of its unique key
		}
		created(t, db, User{Phones: []Phone{{Number: "1"}, {Number: "2"}}})
		second := created(t, db, User{Phones: []Phone{{Number: "3"}, {Number: "1"}}})
		for _, p := range second.Phones {
			var there Phone
			testkit.Must(t, db.Take(&there, "number = ?", p.Number).Error)
			if p.ID != 0 && p.ID != there.ID || there.UserID != second.ID {
				t.Errorf("%s: phone %+v, in the row %+v", variant, p, there)
			}
		}
	})
}

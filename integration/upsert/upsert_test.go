package upsert_test

import (
	"fmt"
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

// After an upsert a struct has the id of the existing row or zero, and never an id that no row has.
func TestUpserts(t *testing.T) {
	t.Parallel()
	eachVariant(t, func(t *testing.T, d *testkit.Database, variant string, db *gorm.DB) {
		for name, conflict := range upserts {
			label := name + variant
			upsert(t, db, label, conflict, func(n string) UniqueA { return UniqueA{Name: n, Value: 7} }, func(r UniqueA) (string, string) { return r.Name, fmt.Sprint(r.ID) })
			upsert(t, db, label, conflict, func(n string) UniqueB { return UniqueB{Name: n, Value: 7} }, func(r UniqueB) (string, string) { return r.Name, fmt.Sprint(r.ID) })
			upsert(t, db, label, conflict, func(n string) UniqueC { return UniqueC{Name: n, Value: 7} }, func(r UniqueC) (string, string) { return r.Name, zeroIfEmpty(r.ID) })
			upsert(t, db, label, conflict, func(n string) UniqueD { return UniqueD{Name: n, Value: 7} }, func(r UniqueD) (string, string) { return r.Name, fmt.Sprint(r.ID) })
			upsert(t, db, label, conflict, func(n string) UniqueE { return UniqueE{Name: n, Value: 7} }, func(r UniqueE) (string, string) {
				if r.ID == nil {
					return r.Name, "0"
				}
				return r.Name, fmt.Sprint(*r.ID)
			})
		}
	})
}

func zeroIfEmpty(s string) string {
	if s == "" {
		return "0"
	}
	return s
}

// upsert creates one row that exists, one that does not, and batches of both, as structs, pointers and maps.
func upsert[T any](t *testing.T, db *gorm.DB, label string, conflict clause.OnConflict, model func(name string) T, read func(T) (name, id string)) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s %T: %v", label, *new(T), err)
		}
	}
	_ = db.Migrator().DropTable(new(T))
	must(db.AutoMigrate(new(T)))
	for _, n := range []string{"old1", "old2", "same"} {
		row := model(n)
		must(db.Create(&row).Error)
	}
	// check compares what the structs have with the rows.
	check := func(what string, known bool, rows ...T) {
		t.Helper()
		for _, r := range rows {
			name, id := read(r)
			var there T
			err := db.Where("name = ?", name).Take(&there).Error
			must(err)
			_, want := read(there)
			if id != want && (id != "0" || known) {
				t.Errorf("%s %T %s: %s has the id %s in the struct and %s in the row", label, r, what, name, id, want)
			}
		}
	}
	named := len(conflict.Columns) > 0 // these columns find the existing row

	fresh := model("fresh")
	must(db.Clauses(conflict).Create(&fresh).Error)
	check("new", true, fresh)
	old := model("old1")
	must(db.Clauses(conflict).Create(&old).Error)
	check("single", named, old)
	batch := []T{model("n1"), model("old1"), model("n2"), model("old2")}
	must(db.Clauses(conflict).Create(&batch).Error)
	check("batch of old", named, batch[1], batch[3])
	check("batch of new", true, batch[0], batch[2])
	all := []*T{}
	for _, n := range []string{"p1", "p2", "p3"} {
		m := model(n)
		all = append(all, &m)
	}
	must(db.Clauses(conflict).Create(&all).Error)
	check("pointers, new", true, *all[0], *all[1], *all[2])

	// Maps: a key of ours is in the row, or not in the map.
	maps := []map[string]any{{"name": "m1", "value": 1}, {"name": "old1", "value": 2}, {"name": "m2", "value": 3}}
	must(db.Model(new(T)).Clauses(conflict).Create(&maps).Error)
	single := map[string]any{"name": "old2", "value": 4}
	must(db.Model(new(T)).Clauses(conflict).Create(&single).Error)
	if len(maps) != 3 {
		t.Errorf("%s %T: %d maps", label, *new(T), len(maps))
	}
	for _, m := range append(maps, single) {
		var there T
		must(db.Where("name = ?", m["name"]).Take(&there).Error)
		_, want := read(there)
		if got, ok := m["id"]; ok && fmt.Sprint(got) != want || !ok && (named || m["name"].(string)[0] == 'm') {
			t.Errorf("%s %T: the map %v, in the row %s", label, *new(T), m, want)
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
		old := Company{Name: "there"}
		testkit.Must(t, db.Create(&old).Error)
		u := User{Company: Company{Name: "there"}}
		testkit.Must(t, db.Create(&u).Error)
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
		first := User{Phones: []Phone{{Number: "1"}, {Number: "2"}}}
		testkit.Must(t, db.Create(&first).Error)
		second := User{Phones: []Phone{{Number: "3"}, {Number: "1"}}}
		testkit.Must(t, db.Create(&second).Error)
		for _, p := range second.Phones {
			var there Phone
			testkit.Must(t, db.Take(&there, "number = ?", p.Number).Error)
			if p.ID != 0 && p.ID != there.ID || there.UserID != second.ID {
				t.Errorf("%s: phone %+v, in the row %+v", variant, p, there)
			}
		}
	})
}

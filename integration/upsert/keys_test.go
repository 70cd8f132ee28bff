package upsert_test

import (
	"testing"

	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// These models belong to UniqueB and UniqueC. One has a uid next to a key that the database numbers, and the hook of
// the other turns every create into an upsert.
type (
	UniqueP struct {
		ID     int64  // AUTO_INCREMENT, the database's
		Public int64  `gorm:"uid"`
		Name   string `gorm:"size:50;uniqueIndex"`
		Value  int
	}
	UniqueH struct {
		ID   int64  `gorm:"primaryKey;autoIncrement:false;uid"`
		Name string `gorm:"size:50;uniqueIndex"`
	}
)

// BeforeCreate is the idiom of GORM's documentation.
func (*UniqueH) BeforeCreate(tx *gorm.DB) error {
	tx.Statement.AddClause(clause.OnConflict{DoNothing: true})
	return nil
}

// An upsert never changes the key of the existing row. The struct gets this key, or none.
func TestUpsert_OfRowsWithOddKeys(t *testing.T) {
	t.Parallel()
	eachVariant(t, func(t *testing.T, d *testkit.Database, variant string, db *gorm.DB) {
		if err := db.AutoMigrate(&UniqueB{}, &UniqueC{}); err != nil {
			t.Fatal(err)
		}
		update := clause.OnConflict{Columns: []clause.Column{{Name: "name"}}, DoUpdates: clause.AssignmentColumns([]string{"value"})}
		for _, conflict := range []clause.OnConflict{{DoNothing: true}, update} {
			for _, key := range []int64{-5, 0, 1, 2, 1<<63 - 1} {
				testkit.Must(t, db.Exec("DELETE FROM unique_bs").Error)
				testkit.Must(t, db.Exec("INSERT INTO unique_bs (id, name, value) VALUES (?, 'a', 1)", key).Error)
				row, batch := UniqueB{Name: "a"}, []UniqueB{{Name: "a"}, {Name: "b"}}
				testkit.Must(t, db.Clauses(conflict).Create(&row).Error)
				testkit.Must(t, db.Clauses(conflict).Create(&batch).Error)
				var there int64
				testkit.Must(t, db.Raw("SELECT id FROM unique_bs WHERE name = 'a'").Scan(&there).Error)
				if there != key || row.ID != 0 && row.ID != key || batch[0].ID != 0 && batch[0].ID != key {
					t.Errorf("%s: the key %d is %d afterwards; in the structs %d and %d", variant, key, there, row.ID, batch[0].ID)
				}
			}
			for _, key := range []string{"abc", "0", "007", "", "9999999999999999999", "-1", "12"} {
				testkit.Must(t, db.Exec("DELETE FROM unique_cs").Error)
				testkit.Must(t, db.Exec("INSERT INTO unique_cs (id, name, value) VALUES (?, 'a', 1)", key).Error)
				row := UniqueC{Name: "a"}
				testkit.Must(t, db.Clauses(conflict).Create(&row).Error)
				var there string
				testkit.Must(t, db.Raw("SELECT id FROM unique_cs WHERE name = 'a'").Scan(&there).Error)
				if there != key || row.ID != "" && row.ID != key {
					t.Errorf("%s: the key %q is %q afterwards; in the struct %q", variant, key, there, row.ID)
				}
			}
		}
	})
}

// A uid next to a key of the database is never that of another row, and the key is never invented.
func TestUpsert_OfAUidNextToTheDatabasesKey(t *testing.T) {
	t.Parallel()
	eachVariant(t, func(t *testing.T, d *testkit.Database, variant string, db *gorm.DB) {
		_ = db.Migrator().DropTable(&UniqueP{})
		testkit.Must(t, db.AutoMigrate(&UniqueP{}))
		for name, conflict := range upserts {
			testkit.Must(t, db.Exec("DELETE FROM unique_ps").Error)
			first := []UniqueP{{Name: "first"}, {Name: "old1"}, {Name: "old2"}}
			testkit.Must(t, db.Create(&first).Error)
			one := UniqueP{Name: "old2"}
			testkit.Must(t, db.Clauses(conflict).Create(&one).Error)
			batch := []UniqueP{{Name: "old1"}, {Name: "n1"}, {Name: "n2"}}
			testkit.Must(t, db.Clauses(conflict).Create(&batch).Error)
			var kept []int64
			testkit.Must(t, db.Model(&UniqueP{}).Where("name LIKE 'old%'").Order("name").Pluck("public", &kept).Error)
			if len(kept) != 2 || kept[0] != first[1].Public || kept[1] != first[2].Public {
				t.Errorf("%s%s: rows that were there had the uids %d and %d, now %v", name, variant, first[1].Public, first[2].Public, kept)
			}
			for _, r := range append(batch, one) {
				var there UniqueP
				testkit.Must(t, db.Take(&there, "name = ?", r.Name).Error)
				if r.Public != there.Public && (r.Public != 0 || len(conflict.Columns) > 0) {
					t.Errorf("%s%s: %s has the uid %d in the struct and %d in the row", name, variant, r.Name, r.Public, there.Public)
				}
			}
			if d.IsMySQL() && variant != "" && one.ID != 0 && one.ID == first[0].ID {
				t.Errorf("%s%s: the key is another row's, %d", name, variant, one.ID)
			}
		}
	})
}

func TestUpsert_ThatAHookMakes(t *testing.T) {
	t.Parallel()
	eachVariant(t, func(t *testing.T, d *testkit.Database, variant string, db *gorm.DB) {
		testkit.Must(t, db.AutoMigrate(&UniqueH{}))
		testkit.Must(t, db.Exec("DELETE FROM unique_hs").Error)
		a, b := UniqueH{Name: "same"}, UniqueH{Name: "same"}
		testkit.Must(t, db.Create(&a).Error)
		testkit.Must(t, db.Create(&b).Error)
		if a.ID == 0 || b.ID != 0 && b.ID != a.ID {
			t.Errorf("%s: the row has %d, the second struct %d", variant, a.ID, b.ID)
		}
	})
}

// A RETURNING of the application's own keeps its columns.
func TestUpsert_WithAReturningOfOnesOwn(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		harness.Use(t, db)
		testkit.Must(t, db.AutoMigrate(&UniqueB{}))
		update := clause.OnConflict{Columns: []clause.Column{{Name: "name"}}, DoUpdates: clause.AssignmentColumns([]string{"value"})}
		row := UniqueB{Name: "a", Value: 1}
		testkit.Must(t, db.Create(&row).Error)
		again := UniqueB{Name: "a", Value: 5}
		own := clause.Returning{Columns: []clause.Column{{Name: "id"}, {Name: "value+1 AS value", Raw: true}}}
		testkit.Must(t, db.Clauses(update, own).Create(&again).Error)
		if again.ID != row.ID || again.Value != 6 {
			t.Errorf("got %+v", again)
		}
	}, "sqlite", "mariadb", "postgres")
}

// UniqueTwo has two unique indexes besides its key, one of which may be NULL in a column.
type UniqueTwo struct {
	ID     int64  `gorm:"primaryKey;autoIncrement:false;uid"`
	Sku    string `gorm:"size:50;uniqueIndex"`
	Tenant string `gorm:"size:50;uniqueIndex:both"`
	No     *int   `gorm:"uniqueIndex:both"`
	Value  int
}

// bySku are upserts that name the column of one of two unique indexes.
var bySku = map[string]clause.OnConflict{
	"nothing": {Columns: []clause.Column{{Name: "sku"}}, DoNothing: true},
	"all":     {Columns: []clause.Column{{Name: "sku"}}, UpdateAll: true},
	"update":  {Columns: []clause.Column{{Name: "sku"}}, DoUpdates: clause.AssignmentColumns([]string{"value"})},
	"sku too": {Columns: []clause.Column{{Name: "sku"}}, DoUpdates: clause.AssignmentColumns([]string{"sku", "value"})},
}

// A second unique index leaves no doubt about the row that was met, if it does not lead to another one.
func TestUpsert_OfAModelWithTwoUniqueIndexes(t *testing.T) {
	t.Parallel()
	const mysql, unless, zero = 1, 2, 4 // only on MySQL and MariaDB; not if all columns are written; the id is unknown there
	cases := []struct {
		name string
		row  UniqueTwo
		met  string // the sku of the row that exists
		mode map[string]int
	}{
		{"the same row by both", UniqueTwo{Sku: "a", Tenant: "t", No: ptr(1)}, "a", nil},
		{"no row by the other", UniqueTwo{Sku: "a", Tenant: "t", No: ptr(7)}, "a", map[string]int{"sku too": zero}},
		{"NULL in the other", UniqueTwo{Sku: "a", Tenant: "t"}, "a", nil},
		{"NULL in the other of both rows", UniqueTwo{Sku: "c", Tenant: "t"}, "c", nil},
		{"other letters", UniqueTwo{Sku: "A", Tenant: "T", No: ptr(1)}, "a", map[string]int{"": mysql}},
		{"only by the other", UniqueTwo{Sku: "new", Tenant: "t", No: ptr(2)}, "b", map[string]int{"": mysql}},
		{"another row by the other", UniqueTwo{Sku: "a", Tenant: "t", No: ptr(2)}, "", map[string]int{"": mysql, "all": unless}},
	}
	eachVariant(t, func(t *testing.T, d *testkit.Database, variant string, db *gorm.DB) {
		testkit.Must(t, db.AutoMigrate(&UniqueTwo{}))
		for name, conflict := range bySku {
			for _, tt := range cases {
				mode := tt.mode[""] | tt.mode[name]
				if mode&mysql != 0 && !d.IsMySQL() || mode&unless != 0 {
					continue
				}
				testkit.Must(t, db.Exec("DELETE FROM unique_twos").Error)
				old := []UniqueTwo{{Sku: "a", Tenant: "t", No: ptr(1)}, {Sku: "b", Tenant: "t", No: ptr(2)}, {Sku: "c", Tenant: "t"}}
				testkit.Must(t, db.Create(&old).Error)
				want := map[string]int64{"a": old[0].ID, "b": old[1].ID, "c": old[2].ID}[tt.met]
				if mode&zero != 0 && d.IsMySQL() {
					want = 0
				}
				rows := []UniqueTwo{{Sku: "x", Tenant: "u", No: ptr(1)}, tt.row, {Sku: "y", Tenant: "u", No: ptr(2)}}
				testkit.Must(t, db.Clauses(conflict).Create(&rows).Error)
				if got := rows[1].ID; got != want {
					t.Errorf("%s%s, %s: got %d, want %d of %v", name, variant, tt.name, got, want, old)
				}
				for _, r := range []UniqueTwo{rows[0], rows[2]} {
					if got := queried[int64](t, db, "SELECT id FROM unique_twos WHERE sku = ?", r.Sku); r.ID != got || got == 0 {
						t.Errorf("%s%s, %s: the new row has %d, the struct %d", name, variant, tt.name, got, r.ID)
					}
				}
			}
		}
	})
}

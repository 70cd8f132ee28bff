package upsert_test

import (
	"slices"
	"strings"
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
		testkit.Must(t, db.AutoMigrate(&UniqueB{}, &UniqueC{}))
		for _, conflict := range []clause.OnConflict{{DoNothing: true}, byName["update"]} {
			for _, key := range []int64{-5, 0, 1, 2, 1<<63 - 1} {
				testkit.Must(t, db.Exec("DELETE FROM unique_bs").Error)
				testkit.Must(t, db.Exec("INSERT INTO unique_bs (id, name, value) VALUES (?, 'a', 1)", key).Error)
				row, batch := UniqueB{Name: "a"}, []UniqueB{{Name: "a"}, {Name: "b"}}
				create(t, db.Clauses(conflict), &row, &batch)
				there := queried[int64](t, db, "SELECT id FROM unique_bs WHERE name = 'a'")
				if there != key || row.ID != 0 && row.ID != key || batch[0].ID != 0 && batch[0].ID != key {
					t.Errorf("%s: the key %d is %d afterwards; in the structs %d and %d", variant, key, there, row.ID, batch[0].ID)
				}
			}
			for _, key := range []string{"abc", "0", "007", "", "9999999999999999999", "-1", "12"} {
				testkit.Must(t, db.Exec("DELETE FROM unique_cs").Error)
				testkit.Must(t, db.Exec("INSERT INTO unique_cs (id, name, value) VALUES (?, 'a', 1)", key).Error)
				row := created(t, db.Clauses(conflict), UniqueC{Name: "a"})
				there := queried[string](t, db, "SELECT id FROM unique_cs WHERE name = 'a'")
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
			first := created(t, db, []UniqueP{{Name: "first"}, {Name: "old1"}, {Name: "old2"}})
			one := created(t, db.Clauses(conflict), UniqueP{Name: "old2"})
			batch := created(t, db.Clauses(conflict), []UniqueP{{Name: "old1"}, {Name: "n1"}, {Name: "n2"}})
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
		empty(t, db, &UniqueH{})
		a, b := UniqueH{Name: "same"}, UniqueH{Name: "same"}
		create(t, db, &a, &b)
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
		row := created(t, db, UniqueB{Name: "a", Value: 1})
		again := UniqueB{Name: "a", Value: 5}
		own := clause.Returning{Columns: []clause.Column{{Name: "id"}, {Name: "value+1 AS value", Raw: true}}}
		testkit.Must(t, db.Clauses(byName["update"], own).Create(&again).Error)
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

// A row that an earlier row of the batch has met may lose its unique values to others. Then its id is unknown.
func TestUpsert_ThatMovesUniqueValuesWithinABatch(t *testing.T) {
	t.Parallel()
	eachVariant(t, func(t *testing.T, d *testkit.Database, variant string, db *gorm.DB) {
		testkit.Must(t, db.AutoMigrate(&UniqueTwo{}))
		for _, columns := range [][]string{{"sku"}, {"sku", "tenant", "no"}} {
			testkit.Must(t, db.Exec("DELETE FROM unique_twos").Error)
			old := created(t, db, UniqueTwo{Sku: "a", Tenant: "t", No: ptr(1)})
			conflict := clause.OnConflict{Columns: []clause.Column{{Name: "sku"}}, DoUpdates: clause.AssignmentColumns(columns)}
			rows := []UniqueTwo{
				{Sku: "a", Tenant: "t", No: ptr(7)}, // meets the old row
				{Sku: "b", Tenant: "t", No: ptr(1)}, // meets it with {"sku"}, so that it is b
				{Sku: "b", Tenant: "t", No: ptr(8)},
				{Sku: "a", Tenant: "t", No: ptr(9)}, // is new with {"sku"}
			}
			testkit.Must(t, db.Clauses(conflict).Create(&rows).Error)
			there := queried[int64](t, db, "SELECT id FROM unique_twos WHERE sku = 'a'")
			if len(columns) == 1 && (there == old.ID || rows[3].ID != there) {
				t.Fatalf("%s%v: a has %d, the last struct %d", variant, columns, there, rows[3].ID)
			}
			if id := rows[0].ID; id != 0 && id != old.ID {
				t.Errorf("%s%v: met %d, the struct has %d, %v", variant, columns, old.ID, id, rows)
			}
		}
	}, "mariadb", "mysql")
}

// An index of MySQL may have only the start of a text, and a column may keep less than was sent.
func TestUpsert_OfAModelWithAnIndexOfAPrefix(t *testing.T) {
	t.Parallel()
	eachVariant(t, func(t *testing.T, d *testkit.Database, variant string, db *gorm.DB) {
		testkit.Must(t, db.Exec("DROP TABLE IF EXISTS unique_twos").Error)
		testkit.Must(t, db.Exec("CREATE TABLE unique_twos (id BIGINT PRIMARY KEY, sku VARCHAR(50), tenant VARCHAR(50), no INT,"+
			" value INT, UNIQUE two (tenant(3), no), UNIQUE one (sku))").Error)
		for _, name := range []string{"nothing", "update"} {
			testkit.Must(t, db.Exec("DELETE FROM unique_twos").Error)
			old := []UniqueTwo{{Sku: "a", Tenant: "abc 1", No: ptr(1)}, {Sku: "b", Tenant: "abc 2", No: ptr(2)}}
			testkit.Must(t, db.Create(&old).Error)
			rows := []UniqueTwo{
				{Sku: "a", Tenant: "abc 3", No: ptr(1)},   // the same row by both
				{Sku: "a", Tenant: "abc 3", No: ptr(2)},   // another row by the start of the tenant
				{Sku: "new", Tenant: "abc 3", No: ptr(2)}, // only by the start of the tenant
				{Sku: "b", Tenant: "abc", No: ptr(9)},     // only by the sku
			}
			testkit.Must(t, db.Clauses(bySku[name]).Create(&rows).Error)
			got, want := []int64{rows[0].ID, rows[1].ID, rows[2].ID, rows[3].ID}, []int64{old[0].ID, 0, old[1].ID, old[1].ID}
			if !slices.Equal(got, want) {
				t.Errorf("%s%s: got %d, want %d", name, variant, got, want)
			}
		}
	}, "mariadb", "mysql")
}

// A value that the update part computes is not the one that was sent.
func TestUpsert_ThatChangesAnotherUniqueColumn(t *testing.T) {
	t.Parallel()
	eachVariant(t, func(t *testing.T, d *testkit.Database, variant string, db *gorm.DB) {
		empty(t, db, &UniqueTwo{})
		old := created(t, db, []UniqueTwo{{Sku: "a", Tenant: "t", No: ptr(1)}, {Sku: "b", Tenant: "t", No: ptr(20)}})
		conflict := clause.OnConflict{Columns: []clause.Column{{Name: "sku"}}, DoUpdates: clause.Set{set("no", "no + 1")}}
		rows := []UniqueTwo{{Sku: "b", Tenant: "t", No: ptr(1)}, {Sku: "c", Tenant: "t", No: ptr(1)}, {Sku: "a", Tenant: "u"}}
		testkit.Must(t, db.Clauses(conflict).Create(&rows).Error)
		if got := rows[0].ID; got != 0 && got != old[0].ID && got != old[1].ID || rows[2].ID != old[0].ID {
			t.Errorf("%s: %v, the rows that were there %v", variant, rows, old)
		}
	}, "mariadb", "mysql")
}

// A batch may have keys of the application next to keys that the database numbers.
func TestUpsert_OfAUidNextToAGivenKey(t *testing.T) {
	t.Parallel()
	eachVariant(t, func(t *testing.T, d *testkit.Database, variant string, db *gorm.DB) {
		testkit.Must(t, db.AutoMigrate(&UniqueP{}))
		for _, name := range []string{"nothing", "update"} {
			testkit.Must(t, db.Exec("DELETE FROM unique_ps").Error)
			old := created(t, db, []UniqueP{{Name: "a"}, {Name: "b"}})
			batch := []UniqueP{{ID: old[0].ID, Name: "b"}, {Name: "a"}, {Name: "new"}}
			testkit.Must(t, db.Clauses(byName[name]).Create(&batch).Error)
			if got := batch[0].Public; got != 0 && got != old[0].Public {
				t.Errorf("%s%s: met the row %d by its key, the struct has the uid %d of %v", name, variant, old[0].ID, got, old)
			}
			if got := batch[1].Public; got != old[0].Public {
				t.Errorf("%s%s: the struct has the uid %d, the row %d", name, variant, got, old[0].Public)
			}
		}
	}, "mariadb", "mysql")
}

// Associations of a row that two unique indexes leave in doubt would get the foreign key 0.
func TestUpsert_OfARowInDoubtWithChildren(t *testing.T) {
	t.Parallel()
	eachVariant(t, func(t *testing.T, d *testkit.Database, variant string, db *gorm.DB) {
		migrateSent(t, db)
		empty(t, db, &UniqueKind{})
		old := created(t, db, []UniqueKind{{Name: "a", Kind: "k"}, {Name: "b", Kind: "l"}})
		known := []UniqueKind{{Name: "a", Kind: "k", Many: []SentMany{{}}}, {Name: "n", Kind: "n"}}
		testkit.Must(t, db.Clauses(byName["nothing"]).Create(&known).Error)
		if known[0].ID != old[0].ID || known[0].Many[0].ParentID != old[0].ID {
			t.Errorf("%s: %+v, the row has %d", variant, known[0], old[0].ID)
		}
		doubt := []UniqueKind{{Name: "a", Kind: "l", Many: []SentMany{{}}}, {Name: "o", Kind: "o"}}
		err := db.Clauses(byName["nothing"]).Create(&doubt).Error
		if err == nil || !strings.Contains(err.Error(), "cannot refer to it") {
			t.Errorf("%s: %v", variant, err)
		}
	}, "mariadb", "mysql")
}

// UniqueKind has two unique indexes, and rows that refer to it.
type UniqueKind struct {
	ID    int64  `gorm:"primaryKey;autoIncrement:false;uid"`
	Name  string `gorm:"size:50;uniqueIndex"`
	Kind  string `gorm:"size:50;uniqueIndex"`
	Value int
	Many  []SentMany `gorm:"foreignKey:ParentID;constraint:-"`
}

// Where two unique indexes leave rows in doubt, MySQL reports the row for a single one, and MariaDB for a batch too.
func TestUpsert_OfARowInDoubtThatTheDatabaseReports(t *testing.T) {
	t.Parallel()
	eachVariant(t, func(t *testing.T, d *testkit.Database, variant string, db *gorm.DB) {
		empty(t, db, &UniqueTwo{})
		created(t, db, []UniqueTwo{{Sku: "a", Tenant: "t", No: ptr(1)}, {Sku: "b", Tenant: "t", No: ptr(2)}})
		doubt := func(value int) UniqueTwo { return UniqueTwo{Sku: "a", Tenant: "t", No: ptr(2), Value: value} }
		one, batch := doubt(5), []UniqueTwo{doubt(6), {Sku: "c", Tenant: "t", No: ptr(3)}}
		testkit.Must(t, db.Clauses(bySku["update"]).Create(&one).Error)
		if met := queried[int64](t, db, "SELECT id FROM unique_twos WHERE value = 5"); one.ID != met {
			t.Errorf("%s: one row met %d, the struct has %d", variant, met, one.ID)
		}
		if d.Name != "mariadb" || variant == "/no returning" {
			return
		}
		testkit.Must(t, db.Clauses(bySku["update"], clause.Returning{}).Create(&batch).Error)
		if met := queried[int64](t, db, "SELECT id FROM unique_twos WHERE value = 6"); batch[0].ID != met {
			t.Errorf("%s: a batch met %d, the struct has %d", variant, met, batch[0].ID)
		}
	}, "mariadb", "mysql")
}

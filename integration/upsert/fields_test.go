package upsert_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// These models are for upserts with conflicts. This file tests what an UpdateAll writes; rows_test.go tests which id
// a struct gets.
type (
	// MetPart has a uid next to a natural key.
	MetPart struct {
		Code      string `gorm:"primaryKey;size:20"`
		Ref       int64  `gorm:"uid"`
		UnitPrice int
	}
	// MetText is MetPart with a uid that is text.
	MetText struct {
		Code      string `gorm:"primaryKey;size:20"`
		Ref       string `gorm:"uid;size:20"`
		UnitPrice int
	}
	// MetNumbered has an AUTO_INCREMENT key, by GORM's AutoMigrate.
	MetNumbered struct {
		ID        int64  `gorm:"uid"`
		Name      string `gorm:"size:50;uniqueIndex"`
		UnitPrice int
	}
	// MetLabelled has no uid, but a type that makes upserts.
	MetLabelled struct {
		ID        int64 `gorm:"primaryKey;autoIncrement:false"`
		Name      Label `gorm:"type:varchar(50);uniqueIndex"`
		UnitPrice int
	}
	// MetHooked has a hook that sets the uid.
	MetHooked struct {
		Code string       `gorm:"primaryKey;size:20"`
		Ref  int64        `gorm:"uid"`
		Hook func() int64 `gorm:"-"`
	}
	MetOwner struct {
		Code string   `gorm:"primaryKey;size:20"`
		Ref  int64    `gorm:"uid"`
		Pets []MetPet `gorm:"foreignKey:OwnerCode;references:Code;constraint:-"`
	}
	MetPet struct {
		ID        int64  `gorm:"primaryKey;autoIncrement:false;uid"`
		Ref       int64  `gorm:"uid"`
		Name      string `gorm:"size:50"`
		OwnerCode string `gorm:"size:20"`
	}
)

// BeforeCreate sets the uid.
func (m *MetHooked) BeforeCreate(*gorm.DB) error {
	if m.Hook != nil {
		m.Ref = m.Hook()
	}
	return nil
}

var updateAll = clause.OnConflict{UpdateAll: true}

// queried returns what a SELECT finds.
func queried[T any](t *testing.T, db *gorm.DB, sql string, vars ...any) (found T) {
	t.Helper()
	testkit.Must(t, db.Raw(sql, vars...).Scan(&found).Error)
	return found
}

// A Select, an Omit and a map may name columns as the naming strategy understands them. The same columns are written
// as without the plugin.
func TestUpsert_OfColumnsUnderOtherNames(t *testing.T) {
	t.Parallel()
	type table struct {
		name, key string
		model     any
		columns   []string // what is selected next to unitPrice
		conflict  []clause.Expression
		insert    string // of an existing row
	}
	parts := &table{"met_parts", "code", &MetPart{}, []string{"code", "Ref"}, []clause.Expression{updateAll},
		"INSERT INTO met_parts (code, ref, unit_price) VALUES ('old', 1000, 1)"}
	numbered := &table{"met_numbereds", "name", &MetNumbered{}, []string{"name"},
		[]clause.Expression{clause.OnConflict{Columns: []clause.Column{{Name: "name"}}, UpdateAll: true}},
		"INSERT INTO met_numbereds (id, name, unit_price) VALUES (1000, 'old', 1)"}
	labelled := &table{"met_labelleds", "name", &MetLabelled{}, []string{"ID", "Name"}, nil,
		"INSERT INTO met_labelleds (id, name, unit_price) VALUES (1000, 'old', 1)"}
	creates := []struct {
		what string
		*table
		dest func(key string, id int64) any
	}{
		{"struct", parts, func(key string, _ int64) any { return &MetPart{Code: key, UnitPrice: 7} }},
		{"slice", parts, func(key string, _ int64) any {
			return &[]MetPart{{Code: key, UnitPrice: 7}, {Code: "another", UnitPrice: 7}}
		}},
		{"map", parts, func(key string, _ int64) any { return map[string]any{"code": key, "unitPrice": 7} }},
		{"maps", parts, func(key string, _ int64) any { return &[]map[string]any{{"Code": key, "unit_price": 7}} }},
		{"numbered", numbered, func(key string, _ int64) any { return &MetNumbered{Name: key, UnitPrice: 7} }},
		{"numbered map", numbered, func(key string, _ int64) any { return map[string]any{"name": key, "unit_price": 7} }},
		{"labelled", labelled, func(key string, id int64) any { return &MetLabelled{ID: id, Name: Label(key), UnitPrice: 7} }},
		{"labelled slice", labelled, func(key string, id int64) any { return &[]MetLabelled{{ID: id, Name: Label(key), UnitPrice: 7}} }},
	}
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		plain, db := d.Open(t, nil), d.Open(t, nil)
		harness.Use(t, db)
		testkit.Must(t, db.AutoMigrate(&MetPart{}, &MetNumbered{}, &MetLabelled{}))
		for with, h := range map[bool]*gorm.DB{false: plain, true: db} {
			for _, c := range creates {
				for _, selected := range []bool{true, false} {
					testkit.Must(t, h.Exec("DELETE FROM "+c.name).Error)
					testkit.Must(t, h.Exec(c.insert).Error)
					for i, key := range []string{"old", "new"} {
						tx := h.Model(c.model).Clauses(c.conflict...)
						if selected {
							tx = tx.Select(append(slices.Clip(c.columns), "unitPrice"))
						} else {
							tx = tx.Omit("unitPrice")
						}
						if err := tx.Create(c.dest(key, int64(2000+i))).Error; err != nil {
							t.Errorf("plugin %v, %s, selected %v, %s: %v", with, c.what, selected, key, err)
						}
					}
					want := map[string]int{"old": 1, "new": -1}
					if selected {
						want["new"] = 7
						if len(c.conflict) > 0 { // a label leaves the row unchanged
							want["old"] = 7
						}
					}
					for key, price := range want {
						if got := queried[int](t, h, "SELECT COALESCE(unit_price, -1) FROM "+c.name+" WHERE "+c.key+" = ?", key); got != price {
							t.Errorf("plugin %v, %s, selected %v: the %s row has %d, not %d", with, c.what, selected, key, got, price)
						}
					}
				}
			}
		}
	})
}

func TestUpsert_AsOtherCallbacksSeeThem(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		for _, late := range []bool{true, false} {
			db := d.Open(t, nil)
			calls, what := 0, ""
			look := func(tx *gorm.DB) {
				calls++
				s := tx.Statement.Schema
				if s.Relationships.Relations["Pets"] == nil || len(s.Relationships.HasMany) != 1 || s.Name != "MetOwner" {
					t.Errorf("late %v, %s: %s has the relations %v", late, what, s.Name, s.Relationships.Relations)
				}
			}
			register := func() {
				testkit.Must(t, db.Callback().Create().Before("gorm:create").Register("before", look))
				testkit.Must(t, db.Callback().Create().After("gorm:create").Register("after", look))
			}
			if !late {
				register()
			}
			harness.Use(t, db)
			if late {
				register()
			}
			testkit.Must(t, db.AutoMigrate(&MetOwner{}, &MetPet{}))
			what = "struct"
			testkit.Must(t, db.Omit("Pets").Clauses(updateAll).Create(&MetOwner{Code: "a"}).Error)
			what = "slice"
			testkit.Must(t, db.Omit("Pets").Clauses(updateAll).Create(&[]MetOwner{{Code: "a"}, {Code: "b"}}).Error)
			what = "map"
			testkit.Must(t, db.Model(&MetOwner{}).Clauses(updateAll).Create(map[string]any{"code": "a"}).Error)
			if calls != 6 {
				t.Errorf("late %v: %d calls", late, calls)
			}
		}
	})
}

func TestUpsert_OfAUidThatAHookSets(t *testing.T) {
	t.Parallel()
	to := func(id int64) func() int64 { return func() int64 { return id } }
	eachVariant(t, func(t *testing.T, d *testkit.Database, variant string, db *gorm.DB) {
		empty(t, db, &MetHooked{})
		old := created(t, db, []MetHooked{{Code: "a"}, {Code: "b"}})
		one := created(t, db.Clauses(updateAll), MetHooked{Code: "a", Hook: to(55)})
		haveRefs(t, db, variant, []MetHooked{one}, 55)
		batch := []MetHooked{{Code: "a", Hook: to(66)}, {Code: "b"}, {Code: "c", Hook: to(77)}}
		testkit.Must(t, db.Clauses(updateAll).Create(&batch).Error)
		haveRefs(t, db, variant, batch, 66, old[1].Ref, 77)
	})
}

// The uid that a hook has set is kept, too, although ids of the statement are made before and after it.
func TestUpsert_OfAUidThatAHookDraws(t *testing.T) {
	t.Parallel()
	eachVariant(t, func(t *testing.T, d *testkit.Database, variant string, db *gorm.DB) {
		empty(t, db, &MetHooked{})
		old := created(t, db, []MetHooked{{Code: "a"}, {Code: "b"}, {Code: "c"}})
		var drawn int64
		draw := func() int64 {
			id, err := uidplugin.From(db).NextID(t.Context(), &MetHooked{})
			testkit.Must(t, err)
			drawn = int64(id)
			return drawn
		}
		zero := func() int64 { return 0 } // so that another is made
		batch := []MetHooked{{Code: "a", Hook: zero}, {Code: "b", Hook: draw}, {Code: "c"}}
		testkit.Must(t, db.Clauses(updateAll).Create(&batch).Error)
		haveRefs(t, db, variant, batch, old[0].Ref, drawn, old[2].Ref)
	})
}

// haveRefs compares the uids of structs, and of their rows, with those that they are to have.
func haveRefs(t *testing.T, db *gorm.DB, variant string, rows []MetHooked, want ...int64) {
	t.Helper()
	for i, r := range rows {
		if got := queried[int64](t, db, "SELECT ref FROM met_hookeds WHERE code = ?", r.Code); got != want[i] || r.Ref != want[i] {
			t.Errorf("%s: %s is to have %d, the row has %d, the struct %d", variant, r.Code, want[i], got, r.Ref)
		}
	}
}

// Some rows of one statement have uids that the application has set. An UpdateAll writes these uids, and leaves the
// others unchanged.
func TestUpsert_OfUidsThatAreSetAndOthers(t *testing.T) {
	t.Parallel()
	eachVariant(t, func(t *testing.T, d *testkit.Database, variant string, db *gorm.DB) {
		testkit.Must(t, db.AutoMigrate(&MetPart{}, &MetText{}))
		setAndOthers(t, d, db, variant, func(code string, ref, price int) MetPart {
			return MetPart{Code: code, Ref: int64(ref), UnitPrice: price}
		}, func(r MetPart) (string, string, int) { return r.Code, fmt.Sprint(r.Ref), r.UnitPrice })
		setAndOthers(t, d, db, variant, func(code string, ref, price int) MetText {
			if ref == 0 {
				return MetText{Code: code, UnitPrice: price}
			}
			return MetText{Code: code, Ref: fmt.Sprint(ref), UnitPrice: price}
		}, func(r MetText) (string, string, int) { return r.Code, zeroIfEmpty(r.Ref), r.UnitPrice })
	})
}

// setAndOthers tests one model; model makes a row of it without a uid if ref is 0.
func setAndOthers[T any](t *testing.T, d *testkit.Database, db *gorm.DB, variant string, model func(code string, ref, price int) T, read func(T) (code, ref string, price int)) {
	t.Helper()
	refs := map[string]string{} // what the rows are to have; "" if that is any
	check := func(what string, rows ...T) {
		t.Helper()
		for _, r := range rows {
			var there T
			code, ref, price := read(r)
			testkit.Must(t, db.Take(&there, "code = ?", code).Error)
			_, got, written := read(there)
			if want := refs[code]; got != ref || want != "" && got != want || got == "0" || written != price {
				t.Errorf("%s, %s: %T %s has the uid %s in the struct and %s in the row, the row before %q; the price is %d, not %d",
					variant, what, r, code, ref, got, want, written, price)
			}
		}
	}
	start := func() (old []T) {
		testkit.Must(t, db.Where("1 = 1").Delete(new(T)).Error)
		old = []T{model("a", 0, 1), model("b", 0, 1)}
		testkit.Must(t, db.Create(&old).Error)
		clear(refs)
		for _, r := range old {
			code, ref, _ := read(r)
			refs[code] = ref
		}
		return old
	}

	start()
	refs["b"], refs["d"] = "77", "78"
	batch := []T{model("a", 0, 2), model("b", 77, 2), model("c", 0, 2), model("d", 78, 2)}
	testkit.Must(t, db.Clauses(updateAll).Create(&batch).Error)
	check("batch", batch...)

	start()
	refs["a"] = "76"
	pointers := []*T{}
	for _, r := range []T{model("n", 0, 3), model("b", 0, 3), model("a", 76, 3)} {
		pointers = append(pointers, &r)
	}
	testkit.Must(t, db.Clauses(updateAll).Create(&pointers).Error)
	check("pointers", *pointers[0], *pointers[1], *pointers[2])

	old := start()
	saved := []T{old[0], model("b", 0, 4)} // of which one was loaded
	testkit.Must(t, db.Save(&saved).Error)
	check("Save", saved...)

	if d.Name != "postgres" { // which refuses a row twice
		start()
		twice := model("a", 0, 5)
		testkit.Must(t, db.Clauses(updateAll).Create([]*T{&twice, &twice}).Error)
		check("one pointer twice", twice)
		other := model("b", 79, 5)
		refs["b"] = "79"
		testkit.Must(t, db.Clauses(updateAll).Create([]*T{&twice, &other, &twice}).Error)
		check("one pointer twice, and one that is set", twice, other)
	}
}

func TestUpsert_WithAHandleThatIsUsedAgain(t *testing.T) {
	t.Parallel()
	eachVariant(t, func(t *testing.T, d *testkit.Database, variant string, db *gorm.DB) {
		empty(t, db, &MetHooked{})
		handle := db.Model(&MetHooked{})
		created := make([]MetHooked, 300)
		for i := range created {
			created[i].Code = fmt.Sprint("c", i)
			testkit.Must(t, handle.Create(&created[i]).Error)
		}
		rows := []MetHooked{{Code: "c0"}, {Code: "c1", Ref: 77}, {Code: "c2", Ref: created[299].Ref}}
		testkit.Must(t, handle.Clauses(updateAll).Create(&rows).Error)
		haveRefs(t, db, variant, rows, created[0].Ref, 77, created[299].Ref)
	})
}

// A Select without the uid leaves alone what the row has, if the struct has one.
func TestUpsert_ThatDoNotSelectAUidThatIsSet(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		plain, db := d.Open(t, nil), d.Open(t, nil)
		harness.Use(t, db)
		testkit.Must(t, db.AutoMigrate(&MetPart{}))
		for what, h := range map[string]*gorm.DB{"without": plain, "with": db} {
			testkit.Must(t, h.Exec("DELETE FROM met_parts").Error)
			testkit.Must(t, h.Exec("INSERT INTO met_parts (code, ref, unit_price) VALUES ('a', 5, 1), ('b', 6, 1)").Error)
			one := MetPart{Code: "a", Ref: 77, UnitPrice: 2}
			testkit.Must(t, h.Select("Code", "UnitPrice").Clauses(updateAll).Create(&one).Error)
			batch := []MetPart{{Code: "b", Ref: 78, UnitPrice: 2}, {Code: "c", Ref: 79, UnitPrice: 2}}
			testkit.Must(t, h.Select("Code", "UnitPrice").Clauses(updateAll).Create(&batch).Error)
			got := queried[[]int64](t, h, "SELECT COALESCE(ref, 0) FROM met_parts WHERE unit_price = 2 ORDER BY code")
			if fmt.Sprint(got) != "[5 6 0]" || one.Ref != 77 || batch[0].Ref != 78 || batch[1].Ref != 79 {
				t.Errorf("%s the plugin the rows have %v, the structs %d and %v", what, got, one.Ref, batch)
			}
		}
	})
}

// Nor does it write one that is set because another row of the batch needs an id.
func TestUpsert_ThatDoNotSelectUidsOfWhichSomeAreSet(t *testing.T) {
	t.Parallel()
	eachVariant(t, func(t *testing.T, d *testkit.Database, variant string, db *gorm.DB) {
		empty(t, db, &MetPart{})
		testkit.Must(t, db.Exec("INSERT INTO met_parts (code, ref, unit_price) VALUES ('a', 5, 1), ('b', 6, 1)").Error)
		batch := []MetPart{{Code: "a", Ref: 77, UnitPrice: 2}, {Code: "b", UnitPrice: 2}, {Code: "c", UnitPrice: 2}}
		testkit.Must(t, db.Select("Code", "UnitPrice").Clauses(updateAll).Create(&batch).Error)
		got := queried[[]int64](t, db, "SELECT ref FROM met_parts WHERE unit_price = 2 ORDER BY code")
		if len(got) != 3 || got[0] != 5 || got[1] != 6 || got[2] != batch[2].Ref || got[2] == 0 || batch[1].Ref != 6 {
			t.Errorf("%s: rows had the uids 5 and 6, now %v; the structs %v", variant, got, batch)
		}
	})
}

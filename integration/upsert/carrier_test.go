package upsert_test

import (
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

type (
	// CarrierMany has columns of the kinds that MySQL converts.
	CarrierMany struct {
		ID    int64      `gorm:"primaryKey;autoIncrement:false;uid"`
		Name  string     `gorm:"size:50;uniqueIndex"`
		Kind  string     `gorm:"type:enum('a','b')"`
		Both  string     `gorm:"type:set('a','b')"`
		Bits  int        `gorm:"type:bit(8)"`
		JSON  string     `gorm:"type:json"`
		Price float64    `gorm:"type:decimal(20,4)"`
		Ratio float32    `gorm:"type:float"`
		Big   uint64     `gorm:"type:bigint unsigned"`
		Bytes []byte     `gorm:"type:varbinary(20)"`
		Seen  *time.Time `gorm:"type:timestamp(3) null"`
	}
	// CarrierLast has its key behind another uid.
	CarrierLast struct {
		Extra int64  `gorm:"uid"`
		ID    int64  `gorm:"primaryKey;autoIncrement:false;uid"`
		Name  string `gorm:"size:50;uniqueIndex"`
		Value int
	}
)

// The column that carries MySQL's LAST_INSERT_ID keeps its value, whatever its type, and rows with equal values are
// found, too.
func TestUpsert_ByAColumnOfAnyType(t *testing.T) {
	t.Parallel()
	eachVariant(t, func(t *testing.T, d *testkit.Database, variant string, db *gorm.DB) {
		_ = db.Migrator().DropTable(&CarrierMany{})
		testkit.Must(t, db.AutoMigrate(&CarrierMany{}))
		seen := time.Date(2026, 10, 25, 1, 30, 0, 123e6, time.UTC)
		row := func(name string) CarrierMany {
			return CarrierMany{Name: name, Kind: "b", Both: "a,b", Bits: 255, JSON: `{"a": 1}`, Price: 1234567890.1234, Ratio: 0.1,
				Big: 1<<64 - 1, Bytes: []byte{0, 255}, Seen: &seen}
		}
		old := row("old")
		testkit.Must(t, db.Create(&old).Error)
		text := func(name string) string {
			return queried[string](t, db, "SELECT CONCAT_WS('|', kind, both_, bits + 0, json_, price, ratio, big, HEX(bytes), UNIX_TIMESTAMP(seen)) FROM ("+
				"SELECT kind, `both` both_, bits, `json` json_, price, ratio, big, bytes, seen FROM carrier_manies WHERE name = ?) r", name)
		}
		before := text("old")
		for _, column := range []string{"kind", "both", "bits", "json", "price", "ratio", "big", "bytes", "seen"} {
			for i, conflict := range []clause.OnConflict{
				{DoUpdates: clause.AssignmentColumns([]string{column})},
				{DoUpdates: clause.Set{{Column: clause.Column{Name: column}, Value: clause.Column{Name: column}}}},
				{UpdateAll: true},
				{DoNothing: true, UpdateAll: true},
				{DoNothing: true},
			} {
				one := row("old")
				testkit.Must(t, db.Clauses(conflict).Create(&one).Error)
				if one.ID != old.ID || text("old") != before {
					t.Errorf("%s, %s %d: the id %d is %d in the struct; the row was %s, is %s", variant, column, i, old.ID, one.ID, before, text("old"))
				}
			}
		}
	}, "mariadb", "mysql")
}

// A struct gets the key of its row, not another id of it.
func TestUpsert_OfAKeyBehindAnotherUid(t *testing.T) {
	t.Parallel()
	eachVariant(t, func(t *testing.T, d *testkit.Database, variant string, db *gorm.DB) {
		testkit.Must(t, db.AutoMigrate(&CarrierLast{}))
		for name, conflict := range upserts {
			testkit.Must(t, db.Exec("DELETE FROM carrier_lasts").Error)
			old := CarrierLast{Name: "a"}
			testkit.Must(t, db.Create(&old).Error)
			one, batch := CarrierLast{Name: "a", Value: 1}, []CarrierLast{{Name: "b"}, {Name: "a", Value: 2}}
			testkit.Must(t, db.Clauses(conflict).Create(&one).Error)
			testkit.Must(t, db.Clauses(conflict).Create(&batch).Error)
			for _, r := range []CarrierLast{one, batch[1]} {
				if known := len(conflict.Columns) > 0; (r.ID != old.ID || r.Extra != old.Extra) && (known || r.ID != 0 || r.Extra != 0) {
					t.Errorf("%s%s: the row is %+v, the struct %+v", name, variant, old, r)
				}
			}
		}
	})
}

// MySQL ignores DoNothing if there is something to update.
func TestUpsert_OfNothingAndAll(t *testing.T) {
	t.Parallel()
	eachVariant(t, func(t *testing.T, d *testkit.Database, variant string, db *gorm.DB) {
		testkit.Must(t, db.AutoMigrate(&UniqueA{}, &UniqueB{}))
		conflict := clause.OnConflict{DoNothing: true, DoUpdates: clause.AssignmentColumns([]string{"value"})}
		nothingAndAll(t, db, variant, conflict, func(n string, v int) UniqueA { return UniqueA{Name: n, Value: v} }, func(r UniqueA) int64 { return r.ID })
		nothingAndAll(t, db, variant, conflict, func(n string, v int) UniqueB { return UniqueB{Name: n, Value: v} }, func(r UniqueB) int64 { return r.ID })
	}, "mariadb", "mysql")
}

func nothingAndAll[T any](t *testing.T, db *gorm.DB, variant string, conflict clause.OnConflict, model func(string, int) T, id func(T) int64) {
	t.Helper()
	testkit.Must(t, db.Where("1 = 1").Delete(new(T)).Error)
	old := model("a", 1)
	testkit.Must(t, db.Create(&old).Error)
	conflict.Columns = []clause.Column{{Name: "name"}}
	rows := []T{model("b", 2), model("a", 2)}
	testkit.Must(t, db.Clauses(conflict).Create(&rows).Error)
	var there []int
	testkit.Must(t, db.Model(new(T)).Order("name").Pluck("value", &there).Error)
	if len(there) != 2 || there[0] != 2 || id(rows[1]) != id(old) || id(rows[0]) == 0 {
		t.Errorf("%s, %T: the values are %v, the ids %d and %d, of the old row %d", variant, old, there, id(rows[0]), id(rows[1]), id(old))
	}
}

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
		Text  string
		Blob  []byte
		Count int
	}
	// CarrierLast has its key behind another uid.
	CarrierLast struct {
		Extra int64  `gorm:"uid"`
		ID    int64  `gorm:"primaryKey;autoIncrement:false;uid"`
		Name  string `gorm:"size:50;uniqueIndex"`
		Value int
	}
)

// The statement that carries MySQL's LAST_INSERT_ID writes what GORM alone writes, and finds rows with equal values, too.
func TestUpsert_WritesWhatGORMAloneWrites(t *testing.T) {
	t.Parallel()
	columns := []string{"kind", "both", "bits", "json", "price", "ratio", "big", "bytes", "seen", "text", "blob", "count"}
	conflicts := []clause.OnConflict{
		{UpdateAll: true}, {DoNothing: true}, {DoNothing: true, UpdateAll: true}, {},
		{DoNothing: true, DoUpdates: clause.AssignmentColumns([]string{"text"})}, // MySQL ignores DoNothing then
		{DoUpdates: clause.AssignmentColumns([]string{"id"})},
		{DoUpdates: clause.AssignmentColumns([]string{"id", "text"})},
		{DoUpdates: clause.AssignmentColumns([]string{"count", "text", "name"})},
		{DoUpdates: clause.Set{set("count", "count * 2"), set("price", "count + price"), set("text", "CONCAT(text, count)")}},
		{DoUpdates: clause.Set{set("price", "count + VALUES(count)"), set("count", "VALUES(count)")}},
		{DoUpdates: append(clause.Set{set("price", "count + VALUES(count)")}, clause.AssignmentColumns([]string{"count", "text"})...)},
		{DoUpdates: clause.Set{set("text", "CONCAT(text, VALUES(text), text)")}},
		{DoUpdates: clause.Set{set("blob", "CONCAT(`blob`, 'x')")}, UpdateAll: true},
		{DoUpdates: clause.Set{set("count", "bits")}, UpdateAll: true},
	}
	for _, column := range columns {
		conflicts = append(conflicts,
			clause.OnConflict{DoUpdates: clause.AssignmentColumns([]string{column})},
			clause.OnConflict{DoUpdates: clause.Set{set(column, "`"+column+"`")}},
			clause.OnConflict{DoUpdates: clause.Set{{Column: clause.Column{Name: column}, Value: nil}}})
	}
	eachVariant(t, func(t *testing.T, d *testkit.Database, variant string, db *gorm.DB) {
		plain := d.Open(t, nil)
		_ = db.Migrator().DropTable(&CarrierMany{})
		testkit.Must(t, db.AutoMigrate(&CarrierMany{}))
		seen, later := time.Date(2026, 10, 25, 1, 30, 0, 123e6, time.UTC), time.Date(2026, 11, 25, 1, 30, 0, 123e6, time.UTC)
		old := CarrierMany{ID: 1000, Name: "old", Kind: "b", Both: "a,b", Bits: 255, JSON: `{"a": 1}`, Price: 1234567890.1234, Ratio: 0.1,
			Big: 1<<64 - 1, Bytes: []byte{0, 255}, Seen: &seen, Text: "old", Blob: []byte{1, 2}, Count: 7}
		other := CarrierMany{ID: 2000, Name: "old", Kind: "a", Both: "b", Bits: 1, JSON: `{}`, Price: 1, Ratio: 0.2,
			Big: 1 << 63, Bytes: []byte{3}, Seen: &later, Text: "new", Blob: []byte{255}, Count: 8}
		// write returns the row after an upsert of new, and the struct's key.
		write := func(db *gorm.DB, conflict clause.OnConflict, row CarrierMany, others ...CarrierMany) (string, int64) {
			testkit.Must(t, plain.Exec("DELETE FROM carrier_manies").Error)
			testkit.Must(t, plain.Create(&old).Error)
			rows := append([]CarrierMany{row}, others...)
			if len(others) > 0 {
				testkit.Must(t, db.Clauses(conflict).Create(&rows).Error)
			} else {
				testkit.Must(t, db.Clauses(conflict).Create(&rows[0]).Error)
			}
			return queried[string](t, plain, "SELECT CONCAT_WS('|', kind, both_, bits + 0, json_, price, ratio, big, HEX(bytes), UNIX_TIMESTAMP(seen), text, HEX(`blob`), n) FROM ("+
				"SELECT kind, `both` both_, bits, `json` json_, price, ratio, big, bytes, seen, text, `blob`, `count` n FROM carrier_manies WHERE name = 'old') r"), rows[0].ID
		}
		for i, conflict := range conflicts {
			for _, row := range []CarrierMany{old, other} {
				want, _ := write(plain, conflict, row)
				fresh, another := row, row
				fresh.ID, another.ID, another.Name = 0, 0, "another"
				got, id := write(db, conflict, fresh)
				there := queried[int64](t, plain, "SELECT id FROM carrier_manies WHERE name = 'old'")
				batch, _ := write(db, conflict, fresh, another)
				if got != want || batch != want || id != there {
					t.Errorf("%s%d: the row is %q, of a batch %q, with GORM alone %q; its id is %d, in the struct %d", variant, i, got, batch, want, there, id)
				}
			}
		}
	}, "mariadb", "mysql")
}

// set assigns an expression to a column.
func set(column, sql string) clause.Assignment {
	return clause.Assignment{Column: clause.Column{Name: column}, Value: gorm.Expr(sql)}
}

// A struct gets the key of its row, not another id of it.
func TestUpsert_OfAKeyBehindAnotherUid(t *testing.T) {
	t.Parallel()
	eachVariant(t, func(t *testing.T, d *testkit.Database, variant string, db *gorm.DB) {
		testkit.Must(t, db.AutoMigrate(&CarrierLast{}))
		for name, conflict := range upserts {
			testkit.Must(t, db.Exec("DELETE FROM carrier_lasts").Error)
			old := created(t, db, CarrierLast{Name: "a"})
			one, batch := CarrierLast{Name: "a", Value: 1}, []CarrierLast{{Name: "b"}, {Name: "a", Value: 2}}
			create(t, db.Clauses(conflict), &one, &batch)
			for _, r := range []CarrierLast{one, batch[1]} {
				if known := len(conflict.Columns) > 0; (r.ID != old.ID || r.Extra != old.Extra) && (known || r.ID != 0 || r.Extra != 0) {
					t.Errorf("%s%s: the row is %+v, the struct %+v", name, variant, old, r)
				}
			}
		}
	})
}

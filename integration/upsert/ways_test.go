package upsert_test

import (
	"database/sql/driver"
	"fmt"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"
)

// Label is a type that makes an upsert of every create of its models.
type Label string

// CreateClauses implements [schema.CreateClausesInterface].
func (Label) CreateClauses(f *schema.Field) []clause.Interface {
	return []clause.Interface{clause.OnConflict{Columns: []clause.Column{{Name: f.DBName}}, DoNothing: true}}
}

func (t Label) Value() (driver.Value, error) { return string(t), nil }

func (t *Label) Scan(v any) error {
	switch v := v.(type) {
	case string:
		*t = Label(v)
	case []byte:
		*t = Label(v)
	default:
		return fmt.Errorf("a label of %T", v)
	}
	return nil
}

type (
	UniqueTag struct {
		ID   int64 `gorm:"primaryKey;autoIncrement:false;uid"`
		Name Label `gorm:"type:varchar(50);uniqueIndex"`
	}
	// UniquePair has a uid next to a natural key of two parts.
	UniquePair struct {
		Shop  string    `gorm:"primaryKey;size:20"`
		Day   time.Time `gorm:"primaryKey;precision:0"`
		Ref   int64     `gorm:"uid"`
		Value int
	}
	// UniqueRole and UniqueMember have AUTO_INCREMENT keys, by GORM's AutoMigrate.
	UniqueRole struct {
		ID   int64  `gorm:"primaryKey;uid"`
		Name string `gorm:"size:50;uniqueIndex"`
	}
	UniqueMember struct {
		ID    int64        `gorm:"primaryKey;uid"`
		Roles []UniqueRole `gorm:"many2many:unique_member_roles"`
	}
	// UniqueBare has nothing that an UpdateAll could update.
	UniqueBare struct {
		Code string `gorm:"primaryKey;size:20"`
		Ref  int64  `gorm:"uid"`
	}
)

// A type's own ON CONFLICT, which GORM adds in the middle of the INSERT.
func TestUpsert_ThatATypeMakes(t *testing.T) {
	t.Parallel()
	eachVariant(t, func(t *testing.T, d *testkit.Database, variant string, db *gorm.DB) {
		empty(t, db, &UniqueTag{})
		one := created(t, db, UniqueTag{Name: "one"})
		again := created(t, db, UniqueTag{Name: "one"})
		batch := created(t, db, []UniqueTag{{Name: "two"}, {Name: "one"}, {Name: "three"}, {Name: "two"}})
		if one.ID == 0 || again.ID != one.ID || batch[1].ID != one.ID || batch[3].ID != batch[0].ID || batch[0].ID == 0 || batch[2].ID == 0 {
			t.Errorf("%s: %v, again %v, batch %v", variant, one, again, batch)
		}
		failing := UniqueTag{Name: "one"}
		if err := db.Unscoped().Create(&failing).Error; err == nil {
			t.Errorf("%s: a duplicate without the clause: %v", variant, failing)
		}
	})
}

// An UpdateAll with a conflict in another key leaves the uid unchanged, unless the application has set another one.
func TestUpsert_OfAUidNextToANaturalKey(t *testing.T) {
	t.Parallel()
	eachVariant(t, func(t *testing.T, d *testkit.Database, variant string, db *gorm.DB) {
		empty(t, db, &UniquePair{})
		day := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
		old := created(t, db, []UniquePair{{Shop: "a", Day: day, Value: 1}, {Shop: "b", Day: day, Value: 1}})
		for i, conflict := range []clause.OnConflict{
			{UpdateAll: true},
			{DoNothing: true},
			{Columns: []clause.Column{{Name: "shop"}, {Name: "day"}}, UpdateAll: true},
			{Columns: []clause.Column{{Name: "shop"}, {Name: "day"}}, DoUpdates: clause.AssignmentColumns([]string{"value"})},
		} {
			later := day.AddDate(0, 0, i+1)
			one := created(t, db.Clauses(conflict), UniquePair{Shop: "a", Day: day, Value: 2})
			batch := []*UniquePair{{Shop: "a", Day: later, Value: 3}, {Shop: "b", Day: day, Value: 3}, {Shop: "b", Day: later, Value: 3}}
			testkit.Must(t, db.Clauses(conflict).Create(&batch).Error)
			for _, r := range append(batch, &one) {
				var there UniquePair
				testkit.Must(t, db.Take(&there, "shop = ? AND day = ?", r.Shop, r.Day).Error)
				if r.Ref != there.Ref || r.Ref == 0 {
					t.Errorf("%s %d: %s of %v has the uid %d in the struct and %d in the row", variant, i, r.Shop, r.Day, r.Ref, there.Ref)
				}
				if !conflict.DoNothing && there.Value != r.Value {
					t.Errorf("%s %d: %s of %v was not updated", variant, i, r.Shop, r.Day)
				}
			}
			if one.Ref != old[0].Ref || batch[1].Ref != old[1].Ref {
				t.Errorf("%s %d: rows that were there had the uids %d and %d, now %d and %d", variant, i, old[0].Ref, old[1].Ref, one.Ref, batch[1].Ref)
			}
		}
		own := created(t, db.Clauses(clause.OnConflict{UpdateAll: true}), UniquePair{Shop: "a", Day: day, Ref: 77})
		var there UniquePair
		testkit.Must(t, db.Take(&there, "shop = 'a' AND day = ?", day).Error)
		if there.Ref != 77 || own.Ref != 77 {
			t.Errorf("%s: the application's own uid 77 is %d in the row and %d in the struct", variant, there.Ref, own.Ref)
		}
	})
}

// An UpdateAll without columns to update changes no row.
func TestUpsert_ThatUpdateNothing(t *testing.T) {
	t.Parallel()
	eachVariant(t, func(t *testing.T, d *testkit.Database, variant string, db *gorm.DB) {
		empty(t, db, &UniqueBare{})
		old := created(t, db, UniqueBare{Code: "old"})
		batch := []UniqueBare{{Code: "n1"}, {Code: "old"}, {Code: "n2"}}
		testkit.Must(t, db.Clauses(clause.OnConflict{UpdateAll: true}).Create(&batch).Error)
		for _, r := range batch {
			var there UniqueBare
			testkit.Must(t, db.Take(&there, "code = ?", r.Code).Error)
			if r.Ref != there.Ref || r.Code == "old" && r.Ref != old.Ref {
				t.Errorf("%s: %s has %d in the struct and %d in the row, the old one had %d", variant, r.Code, r.Ref, there.Ref, old.Ref)
			}
		}
	})
}

// A Save of a struct that does not know the uid of its row leaves it as it is.
func TestUpsert_SaveOfARowWithoutItsUid(t *testing.T) {
	t.Parallel()
	eachVariant(t, func(t *testing.T, d *testkit.Database, variant string, db *gorm.DB) {
		empty(t, db, &UniquePair{})
		day := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
		old := UniquePair{Shop: "a", Day: day, Value: 1}
		testkit.Must(t, db.Save(&old).Error)
		testkit.Must(t, db.Save(&UniquePair{Shop: "a", Day: day, Value: 2}).Error)
		many := []UniquePair{{Shop: "a", Day: day, Value: 3}, {Shop: "b", Day: day, Value: 3}}
		testkit.Must(t, db.Save(&many).Error)
		testkit.Must(t, db.Session(&gorm.Session{FullSaveAssociations: true}).Save(&UniquePair{Shop: "b", Day: day, Value: 4}).Error)
		var there []UniquePair
		testkit.Must(t, db.Order("shop").Find(&there).Error)
		if len(there) != 2 || there[0].Ref != old.Ref || old.Ref == 0 || many[0].Ref != old.Ref || there[1].Ref != many[1].Ref || there[1].Ref == 0 ||
			there[0].Value != 3 || there[1].Value != 4 {
			t.Errorf("%s: first %d, rows %v, batch %v", variant, old.Ref, there, many)
		}
		testkit.Must(t, db.Model(&there[1]).Updates(map[string]any{"ref": 5}).Error) // as the application says
		testkit.Must(t, db.Save(&UniquePair{Shop: "b", Day: day, Ref: 6}).Error)
		testkit.Must(t, db.Take(&there[1]).Error)
		if there[1].Ref != 6 {
			t.Errorf("%s: a uid of the application's own, 6, is %d", variant, there[1].Ref)
		}
	})
}

// The associations exist already, under other keys. The result is that of GORM alone, or better where GORM invents
// keys.
func TestUpsert_ManyToManyOfRowsThatAreThere(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		harness.Use(t, db)
		testkit.Must(t, db.AutoMigrate(&UniqueRole{}, &UniqueMember{}))
		admin := created(t, db, UniqueRole{Name: "admin"})
		member := created(t, db, UniqueMember{Roles: []UniqueRole{{Name: "new"}, {Name: "admin"}}})
		if member.Roles[1].ID != admin.ID || member.Roles[0].ID == 0 {
			t.Errorf("%v, admin %v", member, admin)
		}
		var n int64
		testkit.Must(t, db.Table("unique_member_roles").Where("unique_role_id = ?", admin.ID).Count(&n).Error)
		if n != 1 {
			t.Errorf("%d rows lead to admin", n)
		}
	}, "mariadb") // the others do not tell which row it is, with or without the plugin
}

package upsert_test

import (
	"strings"
	"testing"

	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

type (
	SentParent struct {
		ID    int64  `gorm:"primaryKey;autoIncrement:false;uid"`
		Name  string `gorm:"size:50;uniqueIndex"`
		Kind  string `gorm:"size:50"`
		Value int
		One   *SentOne   `gorm:"foreignKey:ParentID;constraint:-"`
		Many  []SentMany `gorm:"foreignKey:ParentID;constraint:-"`
		Tags  []SentTag  `gorm:"many2many:sent_parent_tags;constraint:-"`
	}
	SentOne struct {
		ID       int64 `gorm:"primaryKey;autoIncrement:false;uid"`
		ParentID int64
	}
	SentMany struct {
		ID       int64 `gorm:"primaryKey;autoIncrement:false;uid"`
		ParentID int64
	}
	SentTag struct {
		ID int64 `gorm:"primaryKey;autoIncrement:false;uid"`
	}
)

func migrateSent(t *testing.T, db *gorm.DB) {
	t.Helper()
	testkit.Must(t, db.AutoMigrate(&SentParent{}, &SentOne{}, &SentMany{}, &SentTag{}))
	for _, table := range []string{"sent_parents", "sent_ones", "sent_manies", "sent_parent_tags"} {
		testkit.Must(t, db.Exec("DELETE FROM "+table).Error)
	}
}

// GORM would save the associations of a row whose id is unknown with the foreign key 0.
func TestUpsert_OfAnUnknownRowWithChildren(t *testing.T) {
	t.Parallel()
	parents := map[string]func() SentParent{
		"has one":      func() SentParent { return SentParent{Name: "a", One: &SentOne{}} },
		"has many":     func() SentParent { return SentParent{Name: "a", Many: []SentMany{{}}} },
		"many to many": func() SentParent { return SentParent{Name: "a", Tags: []SentTag{{}}} },
	}
	eachVariant(t, func(t *testing.T, d *testkit.Database, variant string, db *gorm.DB) {
		migrateSent(t, db)
		old := created(t, db, SentParent{Name: "a"})
		for name, parent := range parents {
			one, batch := parent(), []SentParent{parent(), {Name: "new of " + name}}
			errs := map[string]error{
				"one":   db.Clauses(clause.OnConflict{DoNothing: true}).Create(&one).Error,
				"batch": db.Clauses(clause.OnConflict{DoNothing: true}).Create(&batch).Error,
			}
			for what, err := range errs {
				if err == nil && (what == "batch" || one.ID != old.ID) || err != nil && !strings.Contains(err.Error(), "cannot refer to it") {
					t.Errorf("%s%s, %s: %v; the structs have %d and %d, the row %d", name, variant, what, err, one.ID, batch[0].ID, old.ID)
				}
			}
			testkit.Must(t, db.Omit(clause.Associations).Clauses(clause.OnConflict{DoNothing: true}).Create(&[]SentParent{parent(), parent()}).Error)
		}
		for _, query := range []string{"sent_ones WHERE parent_id = 0", "sent_manies WHERE parent_id = 0", "sent_parent_tags WHERE sent_parent_id = 0",
			"sent_parents WHERE name <> 'a'"} {
			if n := queried[int](t, db, "SELECT COUNT(*) FROM "+query); n != 0 {
				t.Errorf("%s: %d %s", variant, n, query)
			}
		}
	})
}

// A struct may have a value that was not sent. It does not tell the row.
func TestUpsert_OfAConflictColumnThatIsNotSent(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		harness.Use(t, db)
		migrateSent(t, db)
		testkit.Must(t, db.Migrator().DropTable("sent_parents"))
		testkit.Must(t, db.Exec("CREATE TABLE sent_parents (id BIGINT PRIMARY KEY, name VARCHAR(50), kind VARCHAR(50) DEFAULT 'usual' UNIQUE, value INT)").Error)
		usual, other := SentParent{Name: "a", Kind: "usual"}, SentParent{Name: "b", Kind: "other"}
		create(t, db, &usual, &other)
		conflict := clause.OnConflict{Columns: []clause.Column{{Name: "kind"}}, DoNothing: true}
		batch := []SentParent{{Name: "c", Kind: "other"}, {Name: "d", Kind: "other"}}
		testkit.Must(t, db.Omit("Kind").Clauses(conflict).Create(&batch).Error)
		computed := []map[string]any{{"name": "e", "kind": gorm.Expr("LOWER('OTHER')")}, {"name": "f", "kind": gorm.Expr("DEFAULT")}}
		if d.Name == "sqlite" { // which has no DEFAULT
			computed = computed[:1]
		}
		testkit.Must(t, db.Model(&SentParent{}).Clauses(conflict).Create(&computed).Error)
		for _, r := range batch {
			if r.ID != 0 && r.ID != usual.ID {
				t.Errorf("%s: met the row %d, the struct has %d, the row %d has the value in the struct", r.Name, usual.ID, r.ID, other.ID)
			}
		}
	})
}

// An update part may change the column of the conflict.
func TestUpsert_ThatChangesItsConflictColumn(t *testing.T) {
	t.Parallel()
	eachVariant(t, func(t *testing.T, d *testkit.Database, variant string, db *gorm.DB) {
		migrateSent(t, db)
		old := created(t, db, []SentParent{{Name: "a"}, {Name: "b"}})
		conflict := clause.OnConflict{Columns: []clause.Column{{Name: "name"}}, DoUpdates: clause.Assignments(map[string]any{"name": gorm.Expr("?", "changed")})}
		batch := created(t, db.Clauses(conflict), []SentParent{{Name: "a"}, {Name: "c"}})
		if batch[0].ID != 0 && batch[0].ID != old[0].ID || queried[int64](t, db, "SELECT id FROM sent_parents WHERE name = 'c'") != batch[1].ID {
			t.Errorf("%s: %+v, the rows that were there %+v", variant, batch, old)
		}
	})
}

// An update part may assign ids. Then a row that comes twice loses the id by which it was inserted.
func TestUpsert_OfARowTwiceThatAssignsIDs(t *testing.T) {
	t.Parallel()
	eachVariant(t, func(t *testing.T, d *testkit.Database, variant string, db *gorm.DB) {
		conflict := clause.OnConflict{Columns: []clause.Column{{Name: "name"}}, DoUpdates: clause.AssignmentColumns([]string{"value", "id"})}
		empty(t, db, &UniqueA{}, &UniqueB{}, &UniqueD{})
		for _, r := range created(t, db.Clauses(conflict), []UniqueA{{Name: "a"}, {Name: "b"}, {Name: "a", Value: 1}}) {
			if id := queried[int64](t, db, "SELECT id FROM unique_as WHERE name = ?", r.Name); r.ID != id {
				t.Errorf("%s: %s has the id %d in the struct and %d in the row", variant, r.Name, r.ID, id)
			}
		}
		for _, r := range created(t, db.Clauses(conflict), []UniqueB{{Name: "a"}, {Name: "b"}, {Name: "a", Value: 1}}) {
			if id := queried[int64](t, db, "SELECT id FROM unique_bs WHERE name = ?", r.Name); r.ID != id {
				t.Errorf("%s: %s has the id %d in the struct and %d in the row", variant, r.Name, r.ID, id)
			}
		}
		conflict.DoUpdates = clause.AssignmentColumns([]string{"value", "extra"})
		for _, r := range created(t, db.Clauses(conflict), []UniqueD{{Name: "a"}, {Name: "b"}, {Name: "a", Value: 1}}) {
			if extra := queried[int64](t, db, "SELECT extra FROM unique_ds WHERE name = ?", r.Name); r.Extra != extra {
				t.Errorf("%s: %s has the uid %d in the struct and %d in the row", variant, r.Name, r.Extra, extra)
			}
		}
	}, "sqlite", "mariadb", "mysql") // PostgreSQL refuses such a row
}

// If a trigger of MySQL changes the value, the row is unknown, and nothing is written.
func TestUpsert_OfAValueThatATriggerChanges(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		harness.Use(t, db)
		migrateSent(t, db)
		testkit.Must(t, db.Exec("CREATE TRIGGER b BEFORE INSERT ON sent_parents FOR EACH ROW SET NEW.name = CONCAT(NEW.name, '!')").Error)
		old := created(t, db, SentParent{Name: "a"})
		conflict := clause.OnConflict{Columns: []clause.Column{{Name: "name"}}, DoUpdates: clause.AssignmentColumns([]string{"value"})}
		one, batch := SentParent{Name: "a", Value: 1}, []SentParent{{Name: "a", Value: 2}, {Name: "c"}}
		testkit.Must(t, db.Clauses(conflict).Create(&one).Error)
		err := db.Clauses(conflict).Create(&batch).Error
		if err == nil || !strings.Contains(err.Error(), `its name, "a"`) || one.ID != old.ID {
			t.Errorf("%v; the row has %d, the struct %d, %+v", err, old.ID, one.ID, batch)
		}
		if n := queried[int](t, db, "SELECT COUNT(*) FROM sent_parents"); n != 1 {
			t.Errorf("%d rows", n)
		}
	}, "mariadb", "mysql")
}

// Without strict mode MySQL cuts off what does not fit.
func TestUpsert_OfAValueThatIsCutOff(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil, "sql_mode=%27%27")
		harness.Use(t, db)
		migrateSent(t, db)
		long := strings.Repeat("é", 60)
		old := created(t, db, SentParent{Name: long})
		for name, conflict := range byName {
			batch := []SentParent{{Name: long + "more", Many: []SentMany{{}}}, {Name: name}}
			testkit.Must(t, db.Clauses(conflict).Create(&batch).Error)
			if batch[0].ID != old.ID || queried[int](t, db, "SELECT COUNT(*) FROM sent_manies WHERE parent_id <> ?", old.ID) != 0 {
				t.Errorf("%s: the row has %d, the struct %d", name, old.ID, batch[0].ID)
			}
		}
	}, "mariadb", "mysql")
}

package paths_test

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// The models of a shop. Sale refers to Buyer in all ways in which GORM knows that a column is a foreign key.
type (
	Buyer struct {
		ID    int64 `gorm:"primaryKey;uid"`
		Name  string
		Sales []Sale
		Notes []Remark `gorm:"polymorphic:Owner"`
		Clubs []Club   `gorm:"many2many:memberships"`
	}
	Sale struct {
		ID      int64 `gorm:"primaryKey;uid"`
		BuyerID *int64
		Total   int
	}
	Remark struct {
		ID        int64 `gorm:"primaryKey;uid"`
		OwnerID   int64
		OwnerType string
	}
	Club struct {
		ID int64 `gorm:"primaryKey;uid"`
	}
)

// strictness are the modes of MySQL in which tests of columns run. Without a strict one it stores the largest number
// that fits, and reports no error.
func strictness(d *testkit.Database) []string {
	if d.IsMySQL() {
		return []string{"sql_mode=%27STRICT_ALL_TABLES%27", "sql_mode=%27ANSI_QUOTES%27"}
	}
	return []string{""}
}

// inEachMode runs a test on each server, in a strict mode and in one that is not.
func inEachMode(t *testing.T, test func(t *testing.T, d *testkit.Database, db *gorm.DB)) {
	t.Helper()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		for i, mode := range strictness(d) {
			t.Run(fmt.Sprint("mode ", i), func(t *testing.T) {
				d := d.New(t)
				var params []string
				if mode != "" {
					params = append(params, mode)
				}
				test(t, d, d.Open(t, &gorm.Config{TranslateError: false}, params...))
			})
		}
	}, "mariadb", "mysql", "postgres")
}

// Formerly a value that does not fit its column was stored as another number: keys were no longer unique, and foreign
// keys referred to nothing.
func TestColumns_IDsThatDoNotFitAreRefused(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, d *testkit.Database, db *gorm.DB) {
		testkit.Must(t, db.Exec("CREATE TABLE buyers (id INT PRIMARY KEY, name VARCHAR(20))").Error)
		testkit.Must(t, db.Exec("CREATE TABLE sales (id BIGINT PRIMARY KEY, buyer_id INT NULL, total INT)").Error)
		testkit.Must(t, db.Exec("CREATE TABLE remarks (id BIGINT PRIMARY KEY, owner_id INT, owner_type VARCHAR(20))").Error)
		testkit.Must(t, db.Exec("CREATE TABLE clubs (id BIGINT PRIMARY KEY)").Error)
		testkit.Must(t, db.Exec("CREATE TABLE memberships (buyer_id INT, club_id INT, PRIMARY KEY (buyer_id, club_id))").Error)
		harness.Use(t, db, uidplugin.WithModels(&Buyer{}))
		old := Buyer{ID: 5, Name: "old"}
		testkit.Must(t, db.Create(&old).Error)
		five, big := int64(5), int64(1)<<60
		sale := Sale{BuyerID: &five}
		testkit.Must(t, db.Create(&sale).Error)
		again := func() *Sale { s := sale; s.BuyerID = &big; return &s }
		fits := clause.OnConflict{Columns: []clause.Column{{Name: "id"}}, DoUpdates: clause.Assignments(map[string]any{"buyer_id": big})}
		for name, run := range map[string]func(db *gorm.DB) error{
			"a key":           func(db *gorm.DB) error { return db.Create(&Buyer{}).Error },
			"a batch of keys": func(db *gorm.DB) error { return db.Create(&[]Buyer{{ID: 6}, {}}).Error },
			"a map":           func(db *gorm.DB) error { return db.Model(&Buyer{}).Create(map[string]any{"name": "a"}).Error },
			"maps": func(db *gorm.DB) error {
				return db.Model(&Sale{}).Create([]map[string]any{{"buyer_id": 1}, {"BuyerID": big}}).Error
			},
			"a foreign key":   func(db *gorm.DB) error { return db.Create(&Sale{BuyerID: &big}).Error },
			"in batches":      func(db *gorm.DB) error { return db.CreateInBatches([]*Sale{{}, {BuyerID: &big}}, 1).Error },
			"Save":            func(db *gorm.DB) error { return db.Save(again()).Error },
			"Updates, struct": func(db *gorm.DB) error { return db.Model(&sale).Updates(Sale{BuyerID: &big}).Error },
			"Updates, map": func(db *gorm.DB) error {
				return db.Model(&Sale{}).Where("id = ?", sale.ID).Updates(map[string]any{"buyer_id": big}).Error
			},
			"Update, text": func(db *gorm.DB) error { return db.Model(&sale).Update("buyer_id", fmt.Sprint(big)).Error },
			"UpdateColumn": func(db *gorm.DB) error { return db.Model(&sale).UpdateColumn("BuyerID", uidplugin.ID(big)).Error },
			"a float":      func(db *gorm.DB) error { return db.Model(&sale).Update("buyer_id", float64(big)).Error },
			"an alias": func(db *gorm.DB) error {
				return db.Table("sales AS s").Where("s.id = ?", sale.ID).Updates(map[string]any{"buyer_id": big}).Error
			},
			"another struct": func(db *gorm.DB) error {
				return db.Table("sales").Where("id = ?", sale.ID).Updates(struct{ BuyerID int64 }{big}).Error
			},
			"no model": func(db *gorm.DB) error {
				return db.Table("sales").Where("id = ?", sale.ID).Updates(map[string]any{"buyer_id": big}).Error
			},
			"no model, create": func(db *gorm.DB) error {
				return db.Table("sales").Create(map[string]any{"id": 7, "buyer_id": big}).Error
			},
			"an upsert": func(db *gorm.DB) error { return db.Clauses(clause.OnConflict{UpdateAll: true}).Create(again()).Error },
			"DO UPDATE": func(db *gorm.DB) error { return db.Clauses(fits).Create(&Sale{ID: sale.ID, BuyerID: &five}).Error },
			"has many":  func(db *gorm.DB) error { return db.Create(&Buyer{ID: big, Sales: []Sale{{}}}).Error },
			"Append":    func(db *gorm.DB) error { return db.Model(&Buyer{ID: big}).Association("Sales").Append(&Sale{}) },
			"Replace": func(db *gorm.DB) error {
				return db.Model(&Buyer{ID: big}).Association("Sales").Replace(&Sale{ID: sale.ID})
			},
			"polymorphic":  func(db *gorm.DB) error { return db.Model(&Buyer{ID: big}).Association("Notes").Append(&Remark{}) },
			"a join table": func(db *gorm.DB) error { return db.Model(&old).Association("Clubs").Append(&Club{}) },
			"FirstOrCreate": func(db *gorm.DB) error {
				return db.Where("total = 9").Attrs(Sale{BuyerID: &big}).FirstOrCreate(&Sale{}).Error
			},
			"a transaction": func(db *gorm.DB) error {
				return db.Transaction(func(tx *gorm.DB) error { return tx.Save(again()).Error })
			},
		} {
			err := run(db.Session(&gorm.Session{}))
			if !errors.Is(err, uidplugin.ErrField) || !strings.Contains(err.Error(), "ALTER TABLE ") {
				t.Errorf("%s: the error is %v", name, err)
			}
		}
		for table, want := range map[string]string{"buyers": "id <> 5", "sales": "buyer_id <> 5", "remarks": "owner_id <> 0", "memberships": "1 = 1"} {
			var n int64
			if testkit.Must(t, db.Table(table).Where(want).Count(&n).Error); n != 0 {
				t.Errorf("%d rows of %s that nobody wrote", n, table)
			}
		}
	})
}

// Without strict mode the server cuts off values that it computes. In strict mode, and on PostgreSQL, it refuses values
// that do not fit, and the plugin must let through those that do.
func TestColumns_ComputedValuesAreRefusedWhereTheServerCutsThemOff(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, d *testkit.Database, db *gorm.DB) {
		testkit.Must(t, db.Exec("CREATE TABLE sales (id BIGINT PRIMARY KEY, buyer_id INT NULL, total INT)").Error)
		testkit.Must(t, db.Exec("CREATE TABLE buyers (id BIGINT PRIMARY KEY, name VARCHAR(20))").Error)
		testkit.Must(t, db.Exec("INSERT INTO buyers (id) VALUES (3)").Error)
		harness.Use(t, db, uidplugin.WithModels(&Buyer{}))
		five, lenient := int64(5), strings.Contains(t.Name(), "mode_1")
		sale := Sale{BuyerID: &five}
		testkit.Must(t, db.Create(&sale).Error)
		for _, value := range []any{"id", "1099511627776", "buyer_id * 1000000000"} {
			err := db.Model(&sale).Update("buyer_id", gorm.Expr(value.(string))).Error
			if err == nil || errors.Is(err, uidplugin.ErrField) != lenient {
				t.Errorf("%v: %v", value, err)
			}
		}
		for _, value := range []any{gorm.Expr("CASE WHEN total > 3 THEN NULL ELSE buyer_id END"), db.Model(&Buyer{}).Select("MIN(id)")} {
			if err := db.Model(&sale).Update("buyer_id", value).Error; !lenient {
				testkit.Must(t, err)
			} else if !errors.Is(err, uidplugin.ErrField) {
				t.Errorf("%v: %v", value, err)
			}
		}
	})
}

// The application may write a number that fits, even if the column cannot hold all ids.
func TestColumns_ValuesThatFitAreWritten(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, d *testkit.Database, db *gorm.DB) {
		testkit.Must(t, db.Exec("CREATE TABLE sales (id BIGINT PRIMARY KEY, buyer_id INT NULL, total INT)").Error)
		harness.Use(t, db, uidplugin.WithModels(&Buyer{}))
		five := int64(5)
		sale := Sale{BuyerID: &five}
		testkit.Must(t, db.Create(&sale).Error)
		for _, value := range []any{6, "7", uidplugin.ID(8), nil, gorm.Expr("buyer_id"), gorm.Expr("NULL"), gorm.Expr("COALESCE(buyer_id, ?)", 3)} {
			if err := db.Model(&sale).Update("buyer_id", value).Error; err != nil {
				t.Errorf("%v: %v", value, err)
			}
		}
	})
}

// A guestID is a key of a type of the application.
type guestID uint64

func (guestID) String() string { return "a guest" }

// Most foreign keys of many teams are plain fields without an association. Formerly MySQL without strict mode stored
// the largest number of their columns instead of the id.
func TestColumns_IntegersWithoutAnAssociationAreCompared(t *testing.T) {
	t.Parallel()
	type Visit struct {
		ID      uint // without the tag: the database numbers it
		GuestID guestID
		HostID  *int64
		RoomID  sql.NullInt64
		Count   int
		Weight  int64
		Score   uint `gorm:"->"`
	}
	inEachMode(t, func(t *testing.T, d *testkit.Database, db *gorm.DB) {
		testkit.Must(t, db.Exec("CREATE TABLE visits (id INT PRIMARY KEY, guest_id INT, host_id INT, room_id INT, count SMALLINT, weight REAL)").Error)
		log := &testkit.Log{}
		harness.Use(t, db, uidplugin.WithModels(&Visit{}), uidplugin.WithLogger(log.Logger()))
		big := int64(1) << 60
		visit := Visit{ID: 1, GuestID: 1<<31 - 1, Count: -7, Weight: 1<<24 + 2}
		testkit.Must(t, db.Create(&visit).Error)
		for name, run := range map[string]func(db *gorm.DB) error{
			"a key":     func(db *gorm.DB) error { return db.Create(&Visit{ID: uint(big)}).Error },
			"a field":   func(db *gorm.DB) error { return db.Create([]*Visit{{ID: 2}, {ID: 3, GuestID: 1 << 31}}).Error },
			"a pointer": func(db *gorm.DB) error { return db.Create(&Visit{ID: 4, HostID: &big}).Error },
			"sql.NullInt64": func(db *gorm.DB) error {
				return db.Create(&Visit{ID: 5, RoomID: sql.NullInt64{Int64: big, Valid: true}}).Error
			},
			"above 2^63": func(db *gorm.DB) error { return db.Create(&Visit{ID: 6, GuestID: 1<<64 - 1}).Error },
			"a map": func(db *gorm.DB) error {
				return db.Model(&Visit{}).Create(map[string]any{"id": 7, "GuestID": big}).Error
			},
			"an update":      func(db *gorm.DB) error { return db.Model(&visit).Update("guest_id", big).Error },
			"Updates":        func(db *gorm.DB) error { return db.Model(&visit).Updates(Visit{HostID: &big}).Error },
			"an upsert":      func(db *gorm.DB) error { return db.Save(&Visit{ID: 1, GuestID: guestID(big)}).Error },
			"another number": func(db *gorm.DB) error { return db.Model(&visit).Update("count", 1<<15).Error },
		} {
			err := run(db)
			if !errors.Is(err, uidplugin.ErrField) || !strings.Contains(err.Error(), "ALTER TABLE ") {
				t.Errorf("%s: the error is %v", name, err)
			}
		}
		for _, value := range []any{6, nil, gorm.Expr("host_id"), gorm.Expr("COALESCE(host_id, id)")} {
			if err := db.Model(&visit).Update("guest_id", value).Error; err != nil {
				t.Errorf("%v: %v", value, err)
			}
		}
		var n int64
		if testkit.Must(t, db.Table("visits").Count(&n).Error); n != 1 || log.Lines("too narrow") != nil {
			t.Errorf("%d rows; logged %q", n, log.Lines("too narrow"))
		}
	})
}

// fix returns the statement that an error names.
func fix(err error) string {
	_, text, _ := strings.Cut(err.Error(), "widen it by ")
	text, _, _ = strings.Cut(text, ";")
	return text
}

// The error has the statement that helps, and a second after it the application goes on without a restart. The statement keeps
// what else the definition of the column says.
func TestColumns_TheStatementOfTheErrorHelpsWithoutARestart(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, d *testkit.Database, db *gorm.DB) {
		type Ticket struct {
			ID    int64 `gorm:"primaryKey;uid"`
			Buyer uidplugin.ID
			Code  string `gorm:"uid"`
		}
		key, comment := "INT PRIMARY KEY", ""
		if d.IsMySQL() {
			key, comment = "INT UNSIGNED AUTO_INCREMENT PRIMARY KEY", " COMMENT 'who \\'pays\\''"
		}
		testkit.Must(t, db.Exec("CREATE TABLE tickets (id "+key+", buyer SMALLINT NOT NULL DEFAULT 7"+comment+", code VARCHAR(10))").Error)
		harness.Use(t, db, uidplugin.WithModels(&Ticket{}))
		other := d.Open(t, nil) // of an operator
		for range 3 {
			err := db.Create(&Ticket{Buyer: 1 << 50}).Error
			testkit.IsError(t, err, uidplugin.ErrField)
			testkit.Must(t, other.Exec(fix(err)).Error)
			time.Sleep(time.Second) // because refusals make the plugin read the columns again once a second
		}
		row := Ticket{Buyer: 1 << 50}
		testkit.Must(t, db.Create(&row).Error)
		var got Ticket
		if testkit.Must(t, db.Take(&got, row.ID).Error); got != row {
			t.Errorf("read %+v, created %+v", got, row)
		}
		var create string
		if d.IsMySQL() {
			testkit.Must(t, db.Raw("SHOW CREATE TABLE tickets").Row().Scan(new(string), &create))
			testkit.SaysAll(t, strings.ReplaceAll(create, "'7'", "7"), "AUTO_INCREMENT", "NOT NULL DEFAULT 7 COMMENT 'who ''pays''", "DEFAULT NULL")
		}
	})
}

// Ids do not fit into a column whose type changes them. Values that the column keeps are written.
func TestColumns_OfEachTypeAreCompared(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, d *testkit.Database, db *gorm.DB) {
		types := map[string]int64{"SMALLINT": 1<<15 - 1, "VARCHAR(10)": 9_999_999_999, "CHAR(5)": 99_999, "DECIMAL(9,1)": 99_999_999, "DOUBLE PRECISION": 1 << 53, "REAL": 1 << 24}
		if d.IsMySQL() {
			types["MEDIUMINT UNSIGNED"], types["BIT(20)"], types["REAL"] = 1<<24-1, 1<<20-1, 1<<53
		}
		harness.Use(t, db)
		i := 0
		for kind, largest := range types {
			i++
			name := fmt.Sprint("sales", i)
			testkit.Must(t, db.Exec("CREATE TABLE "+name+" (id BIGINT PRIMARY KEY, buyer_id "+kind+", total INT)").Error)
			sales := db.Table(name).Session(&gorm.Session{})
			type Sale struct {
				ID      int64 `gorm:"primaryKey;uid"`
				BuyerID uidplugin.ID
				Total   int
			}
			if kind != "BIT(20)" && !strings.Contains(kind, "CHAR") { // whose drivers take no number
				testkit.Must(t, sales.Create(&Sale{BuyerID: uidplugin.ID(largest)}).Error)
			}
			if err := sales.Create(&Sale{BuyerID: uidplugin.ID(largest + 1)}).Error; !errors.Is(err, uidplugin.ErrField) {
				t.Errorf("%s: the error is %v", kind, err)
			}
		}
	})
}

// A process with a fixed worker id has no tables of the plugin, but the same columns.
func TestColumns_WithAFixedWorkerID(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, d *testkit.Database, db *gorm.DB) {
		testkit.Must(t, db.Exec("CREATE TABLE clubs (id INT PRIMARY KEY)").Error)
		harness.Use(t, db, uidplugin.WithWorkerID(3), uidplugin.WithModels(&Club{}))
		testkit.IsError(t, db.Create(&Club{}).Error, uidplugin.ErrField)
		testkit.Must(t, db.Create(&Club{ID: 5}).Error)
	})
}

// A segment counts from 1: its ids fit into a narrow column, until they no longer do.
func TestColumns_IDsOfSegmentsFitAsLongAsTheyAreSmall(t *testing.T) {
	t.Parallel()
	type Member struct {
		ID     int64 `gorm:"primaryKey;uid:segment"`
		HeadID *int64
		Head   *Member
	}
	inEachMode(t, func(t *testing.T, d *testkit.Database, db *gorm.DB) {
		testkit.Must(t, db.Exec("CREATE TABLE members (id SMALLINT PRIMARY KEY, head_id SMALLINT)").Error)
		harness.Use(t, db, uidplugin.WithModels(&Member{}))
		row := Member{Head: &Member{}}
		testkit.Must(t, db.Create(&row).Error)
		testkit.Must(t, db.Model(&row).Update("head_id", db.Model(&Member{}).Select("MIN(id)")).Error)
		testkit.Must(t, db.Exec("UPDATE leaf_alloc SET max_id = 32760, step = 4").Error)
		var err error
		for n := 0; err == nil && n < 5000; n++ {
			err = db.Create(&Member{}).Error
		}
		if !errors.Is(err, uidplugin.ErrField) || !strings.Contains(err.Error(), "32768") {
			t.Errorf("the error is %v", err)
		}
	})
}

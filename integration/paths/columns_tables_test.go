package paths_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// If a read of the columns fails, because the context of its statement ends, later values are still compared. Formerly
// the check was off for ten seconds.
func TestColumns_AReadThatFailedHidesNoLimits(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, d *testkit.Database, db *gorm.DB) {
		testkit.Must(t, db.Exec("CREATE TABLE sales (id BIGINT PRIMARY KEY, buyer_id INT NULL, total INT)").Error)
		harness.Use(t, db)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		big := int64(1) << 60
		_ = db.Transaction(func(tx *gorm.DB) error {
			return tx.WithContext(ctx).Model(&Sale{ID: 1}).Update("total", 2).Error
		})
		testkit.IsError(t, db.Create(&Sale{BuyerID: &big}).Error, uidplugin.ErrField)
	})
}

// A Shipment goes to a table of its year.
type Shipment struct {
	ID   int64 `gorm:"primaryKey;uid"`
	Year int
}

func (s *Shipment) BeforeCreate(tx *gorm.DB) error {
	if s.Year != 0 {
		tx.Statement.Table = fmt.Sprint("shipments_", s.Year)
	}
	return nil
}

// A hook or a clause may name another table than the model's. Formerly the columns of the model's own table were
// compared.
func TestColumns_OfTablesThatHooksAndClausesNameAreRead(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, d *testkit.Database, db *gorm.DB) {
		testkit.Must(t, db.Exec("CREATE TABLE shipments (id BIGINT PRIMARY KEY, year INT)").Error)
		testkit.Must(t, db.Exec("CREATE TABLE shipments_2020 (id INT PRIMARY KEY, year INT)").Error)
		harness.Use(t, db, uidplugin.WithModels(&Shipment{}))
		testkit.Must(t, db.Create(&Shipment{}).Error)
		for name, err := range map[string]error{
			"a hook":   db.Create(&Shipment{Year: 2020}).Error,
			"a clause": db.Clauses(clause.Insert{Table: clause.Table{Name: "shipments_2020"}}).Create(&Shipment{}).Error,
		} {
			if !errors.Is(err, uidplugin.ErrField) {
				t.Errorf("%s: the error is %v", name, err)
			}
		}
	})
}

// The catalog of MySQL lacks TEMPORARY tables, so formerly their columns were taken for wide ones.
func TestColumns_OfATemporaryTableAreCompared(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, d *testkit.Database, db *gorm.DB) {
		harness.Use(t, db)
		testkit.Must(t, db.Connection(func(tx *gorm.DB) error {
			testkit.Must(t, tx.Exec("CREATE TEMPORARY TABLE clubs (id INT PRIMARY KEY)").Error)
			testkit.IsError(t, tx.Create(&Club{}).Error, uidplugin.ErrField)
			return nil
		}))
	})
}

// MySQL takes the snapshot of a transaction when its catalog is read. Formerly a transaction whose first statement
// waits for a lock then did not see the changes of the lock's holder.
func TestColumns_ReadingThemTakesNoSnapshot(t *testing.T) {
	t.Parallel()
	type Seat struct {
		ID    int64 `gorm:"primaryKey;uid"`
		Taken int
		RowID uint64
	}
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		testkit.Must(t, db.Exec("CREATE TABLE seats (id BIGINT PRIMARY KEY, taken TINYINT, row_id INT UNSIGNED NOT NULL)").Error)
		harness.Use(t, db)
		testkit.Must(t, db.Transaction(func(tx *gorm.DB) error {
			testkit.Must(t, tx.Create(&Seat{}).Error)
			testkit.Must(t, d.Open(t, nil).Exec("INSERT INTO seats VALUES (1, 1, 1)").Error)
			var n int64
			if testkit.Must(t, tx.Model(&Seat{}).Count(&n).Error); n != 2 {
				t.Errorf("the transaction sees %d rows", n)
			}
			return nil
		}))
		testkit.IsError(t, db.Create(&Seat{RowID: 1 << 40}).Error, uidplugin.ErrField, "MODIFY `row_id` BIGINT UNSIGNED NOT NULL")
	}, "mariadb", "mysql")
}

// A table that is locked for longer than WithTimeout, as by a long ALTER TABLE: the statement waits for the lock, as it
// would without the plugin. Formerly reading the columns failed, and the connection with it.
func TestColumns_ReadingThemWaitsForALockedTable(t *testing.T) {
	t.Parallel()
	testkit.SkipIfShort(t, "it takes three seconds")
	type Gate struct {
		ID    int64 `gorm:"primaryKey;uid"`
		RowID uint64
	}
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		testkit.Must(t, db.Exec("CREATE TABLE gates (id BIGINT PRIMARY KEY, row_id BIGINT UNSIGNED NOT NULL)").Error)
		testkit.Eventually(t, "an id", time.Minute, func() bool { // not in time on a busy machine
			p := uidplugin.New(harness.Quiet, uidplugin.WithTimeout(2*time.Second))
			err := db.Use(p)
			if err == nil {
				t.Cleanup(func() { _ = p.Close(context.Background()) })
			} else if p = uidplugin.From(db); p == nil {
				return false
			}
			_, err = p.NextID(t.Context(), &Gate{})
			return err == nil
		})
		testkit.Must(t, d.Open(t, nil).Connection(func(other *gorm.DB) error {
			testkit.Must(t, other.Exec("LOCK TABLES gates WRITE").Error)
			done := make(chan error, 1)
			go func() { done <- db.Create(&Gate{RowID: 1}).Error }()
			time.Sleep(3 * time.Second)
			testkit.Must(t, other.Exec("UNLOCK TABLES").Error)
			return <-done
		}))
	}, "mariadb", "mysql")
}

// A migration may narrow a column when the plugin has looked at it already, and an old process that migrates makes
// foreign keys INT again.
func TestColumns_ThatAMigrationNarrowsAreNoticed(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, d *testkit.Database, db *gorm.DB) {
		testkit.Must(t, db.Exec("CREATE TABLE sales (id BIGINT PRIMARY KEY, buyer_id BIGINT NULL, total INT)").Error)
		harness.Use(t, db, uidplugin.WithModels(&Buyer{}))
		big := int64(1) << 60
		testkit.Must(t, db.Create(&Sale{BuyerID: &big}).Error)
		testkit.Must(t, db.Exec("DELETE FROM sales").Error)
		type OldSale struct {
			BuyerID *int32
		}
		testkit.Must(t, db.Table("sales").Migrator().AlterColumn(&OldSale{}, "BuyerID"))
		err := db.Create(&Sale{BuyerID: &big}).Error
		testkit.IsError(t, err, uidplugin.ErrField)
		testkit.Must(t, db.Exec(fix(err)).Error)
		testkit.Must(t, db.Create(&Sale{BuyerID: &big}).Error)
	})
}

// A model or a statement may name a table of another database, and a table under another name may have other columns
// than the model's own.
func TestColumns_OfTablesThatStatementsNameAreRead(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, d *testkit.Database, db *gorm.DB) {
		testkit.Must(t, db.Exec("CREATE TABLE clubs (id BIGINT PRIMARY KEY)").Error)
		testkit.Must(t, db.Exec("CREATE TABLE old_clubs (id INT PRIMARY KEY)").Error)
		elsewhere := d.Beside(t) + ".clubs"
		testkit.Must(t, db.Exec("CREATE TABLE "+elsewhere+" (id INT PRIMARY KEY)").Error)
		harness.Use(t, db, uidplugin.WithModels(&Club{}))
		for _, name := range []string{elsewhere, "old_clubs"} {
			for range 2 {
				if err := db.Table(name).Create(&Club{}).Error; !errors.Is(err, uidplugin.ErrField) {
					t.Errorf("%s: the error is %v", name, err)
				}
			}
			testkit.Must(t, db.Table(name).Create(&Club{ID: 5}).Error)
			testkit.Must(t, db.Create(&Club{}).Error)
		}
	})
}

// The columns of a table are read when its model is listed or at its first create, and not again. A failed read would
// otherwise cost every create a statement.
func TestColumns_AreReadOnce(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db, wire := testkit.OpenWire(t, d)
		testkit.Must(t, db.Exec("CREATE TABLE clubs (id BIGINT PRIMARY KEY)").Error)
		testkit.Must(t, db.Exec("CREATE TABLE sales (id BIGINT PRIMARY KEY, buyer_id BIGINT, total INT)").Error)
		harness.Use(t, db, uidplugin.WithModels(&Club{}))
		var reads atomic.Int64
		wire.Set(func(c *testkit.Crossing) error {
			switch {
			case strings.Contains(c.SQL, "WORKER_"): // of the lease manager
			case strings.Contains(c.SQL, "information_schema.columns"), strings.Contains(c.SQL, "pg_attribute"), strings.Contains(c.SQL, "s` WHERE 1 = 0"):
				reads.Add(1)
			}
			return c.Run()
		})
		create := func(row any, want int64) {
			t.Helper()
			testkit.Must(t, db.Transaction(func(tx *gorm.DB) error { return tx.Create(row).Error }))
			if n := reads.Swap(0); n != want {
				t.Errorf("%d statements that read columns for %T, want %d", n, row, want)
			}
		}
		create(&Club{}, 0)
		create(&Sale{}, 1)
		for range 3 {
			create(&Sale{}, 0)
			create(&Club{}, 0)
		}
		testkit.Must(t, db.Model(&Sale{}).Where("total > 1").Update("total", 2).Error)
		if n := reads.Load(); n != 0 {
			t.Errorf("%d statements that read columns for an update", n)
		}
	}, "mariadb", "mysql", "postgres")
}

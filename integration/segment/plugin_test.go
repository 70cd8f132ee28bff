package segment_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/segment"
	"gorm.io/gorm"
)

type Voucher struct {
	ID int64 `gorm:"primaryKey;autoIncrement:false;uid:segment"`
}

// Receipt has a table whose name a prefix of the naming strategy may qualify.
type Receipt struct {
	ID int64 `gorm:"primaryKey;autoIncrement:false;uid:segment"`
}

// With the plugin, the first create in a transaction on a pool of one needs no further connection. After an outage
// the segment is opened or continued without a create that asks for it, and Health reports the outage and its end.
func TestSegment_ThroughThePluginOnAPoolOfOne(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		admin := d.Open(t, nil)
		testkit.Must(t, admin.AutoMigrate(&Voucher{}, &Receipt{}))
		db, away, back := testkit.OpenBreakable(t, d)
		pool, err := db.DB()
		testkit.Must(t, err)
		pool.SetMaxOpenConns(1)
		p := harness.Use(t, db, uidplugin.WithWorkerID(1), uidplugin.WithTimeout(2*time.Second),
			uidplugin.WithSegments(segment.Config{Step: 20, MaxStep: 1}), uidplugin.WithModels(&Voucher{}))
		// On a busy machine the timeout, which is short for what follows, ends before db.Use has opened the segment.
		testkit.Eventually(t, "the segment is not opened", time.Minute, func() bool { return p.Health() == nil })
		testkit.Must(t, db.Transaction(func(tx *gorm.DB) error { return tx.Create(&Voucher{}).Error }))

		away()
		if err := db.Create(&Receipt{}).Error; err == nil {
			t.Fatal("a row while the server is unreachable")
		}
		failed := p.Health()
		if failed == nil || !strings.Contains(failed.Error(), "the generator segment of table receipts could not be opened since") {
			t.Errorf("Health of a segment that cannot be opened: %v", failed)
		}
		testkit.Eventually(t, "error when the ranges in memory are used up", time.Minute, func() bool {
			_, err = p.NextID(context.Background(), &Voucher{})
			return errors.Is(err, generator.ErrSource)
		})
		if failed := p.Health(); failed == nil || !strings.Contains(failed.Error(), `ids of the tag "vouchers" could not be fetched`) {
			t.Errorf("Health of a segment that cannot fetch: %v", failed)
		}
		back()
		testkit.Eventually(t, "recovery", time.Minute, func() bool { return p.Health() == nil })
		testkit.Must(t, db.Transaction(func(tx *gorm.DB) error {
			return errors.Join(tx.Create(&Receipt{}).Error, tx.Create(&Voucher{}).Error)
		}))
	}, "mariadb", "mysql", "postgres")
}

type Coupon struct {
	Code string `gorm:"primaryKey;size:40;uid:segment"`
}

// Ids of a text column begin above the largest id in it. Formerly a text that is no id made the segment unusable: on
// MySQL a negative number, on SQLite one that is too large. On PostgreSQL ids of 19 digits did not count.
func TestSegment_BeginsAboveTheLargestIDInATextColumn(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		testkit.Must(t, db.AutoMigrate(&Coupon{}))
		for _, code := range []string{"-1", "", "9", "abc", "12a", "1.5", "1234567890123456789", "9223372036854775808", "99999999999999999999999"} {
			testkit.Must(t, db.Exec("INSERT INTO coupons (code) VALUES (?)", code).Error)
		}
		err := db.Use(uidplugin.New(harness.Quiet, uidplugin.WithWorkerID(1), uidplugin.WithModels(&Coupon{})))
		testkit.IsError(t, err, segment.ErrRow, "numbers up to 1234567890123456789")
		harness.Use(t, db, uidplugin.WithWorkerID(1), uidplugin.WithModels(&Coupon{}),
			uidplugin.WithSegments(segment.Config{Start: 1234567890123456790}))
		var c Coupon
		testkit.Must(t, db.Create(&c).Error)
		if c.Code != "1234567890123456790" {
			t.Errorf("the first id is %s", c.Code)
		}
	})
}

// A Draft gets a column of a segment in a later version.
type (
	Draft struct {
		ID int64 `gorm:"primaryKey;autoIncrement:false;uid"`
	}
	NumberedDraft struct {
		ID     int64 `gorm:"primaryKey;autoIncrement:false;uid"`
		Number int64 `gorm:"uid:segment"`
	}
)

func (NumberedDraft) TableName() string { return "drafts" }

// Formerly db.Use failed because AutoMigrate, which comes later, had not added the column yet.
func TestSegment_OfAColumnThatAutoMigrateAdds(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		testkit.Must(t, db.AutoMigrate(&Draft{}))
		testkit.Must(t, db.Create(&Draft{ID: 70}).Error)
		harness.Use(t, db, uidplugin.WithModels(&NumberedDraft{}))
		testkit.Must(t, db.AutoMigrate(&NumberedDraft{}))
		var row NumberedDraft
		testkit.Must(t, db.Create(&row).Error)
		if row.Number != 1 {
			t.Errorf("the row is %+v", row)
		}
	})
}

// Formerly, with PrepareStmt, db.Use failed with a panic of database/sql if the table or the column did not exist yet.
func TestSegment_BeforeAutoMigrateOnPreparedStatements(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		testkit.Must(t, d.Open(t, nil).AutoMigrate(&Draft{}))
		db := d.Open(t, &gorm.Config{PrepareStmt: true})
		harness.Use(t, db, uidplugin.WithModels(&Voucher{}, &NumberedDraft{}))
		testkit.Must(t, db.AutoMigrate(&Voucher{}, &NumberedDraft{}))
		var voucher Voucher
		var draft NumberedDraft
		testkit.Must(t, errors.Join(db.Create(&voucher).Error, db.Create(&draft).Error))
		if voucher.ID != 1 || draft.Number != 1 {
			t.Errorf("the rows are %+v, %+v", voucher, draft)
		}
	})
}

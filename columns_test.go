package uidplugin_test

import (
	"errors"
	"testing"

	"github.com/uidplugin/uidplugin"
	"gorm.io/gorm"
)

// SQLite keeps 64 bits in all columns but those of a REAL type, which lose digits without an error.
func TestColumns_OfTypeRealOnSQLite(t *testing.T) {
	t.Parallel()

	type sample struct {
		ID   int64 `gorm:"primaryKey;uid"`
		Next *uidplugin.ID
		Text string
	}
	db, j := bare(t), &journal{}
	must(t, db.Exec("CREATE TABLE samples (id INT PRIMARY KEY, next REAL, text VARCHAR(3))").Error)
	use(t, db, j.option(), uidplugin.WithModels(&sample{}))
	if lines := j.Lines("too narrow"); len(lines) != 1 {
		t.Errorf("logged %q", lines)
	}
	row, big := sample{Text: "longer than three"}, uidplugin.ID(1<<60+1)
	must(t, db.Create(&row).Error)
	for name, err := range map[string]error{
		"create": db.Create(&sample{Next: &big}).Error,
		"update": db.Model(&row).Update("next", big).Error,
		"map":    db.Model(&sample{}).Create([]map[string]any{{}, {"next": big}}).Error,
	} {
		if !errors.Is(err, uidplugin.ErrField) {
			t.Errorf("%s: %v", name, err)
		} else {
			saysAll(t, err.Error(), "sample.Next", "1152921504606846977", "samples", "REAL", "again")
		}
	}
	must(t, db.Transaction(func(tx *gorm.DB) error { return tx.Model(&row).Update("next", int64(1)<<53).Error }))
	if n := count(t, db, "samples"); n != 1 {
		t.Errorf("%d rows", n)
	}
}

// A statement that is only built must be built, and nothing may be read for it.
func TestColumns_OfADryRunAreNotRead(t *testing.T) {
	t.Parallel()

	db := open(t, uidplugin.WithWorkerID(1))
	sql := db.ToSQL(func(tx *gorm.DB) *gorm.DB { return tx.Create(&part{}) })
	saysAll(t, sql, "INSERT INTO `parts`")
}

package model_test

import (
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

var must = testkit.Must

// chit has a key whose type says enough.
type chit struct {
	ID     uidplugin.ID
	Buyer  uidplugin.ID // an optional foreign key, which may stay 0
	Number int
}

// receipt shares the key of its chit.
type receipt struct {
	CouponID uidplugin.ID `gorm:"primaryKey"`
	Coupon   *chit
}

// gridCell has a key of two columns.
type gridCell struct {
	Sheet uidplugin.ID `gorm:"primaryKey"`
	Place uidplugin.ID `gorm:"primaryKey"`
}

// manual has a key that the application sets.
type manual struct {
	ID uidplugin.ID `gorm:"primaryKey;uid:-"`
}

// stocked has a key of two columns, of which GORM sets one to its default.
type stocked struct {
	Store uidplugin.ID `gorm:"primaryKey;default:7"`
	Name  string       `gorm:"primaryKey"`
}

// counted has a key that the database sets.
type counted struct {
	ID uidplugin.ID `gorm:"primaryKey;autoIncrement"`
}

func TestID_NeedsNoTagAsTheSoleKey(t *testing.T) {
	t.Parallel()

	db := plugintest.Open(t, uidplugin.WithModels(&chit{}))
	plugintest.Migrate(t, db, &chit{}, &receipt{}, &counted{})
	rows := []chit{{Number: 1}, {Number: 2}}
	must(t, db.Create(&rows).Error)
	for _, row := range rows {
		plugintest.IsOurs(t, db, "chits", int64(row.ID))
	}
	r := receipt{Coupon: &chit{}}
	must(t, db.Create(&r).Error)
	if r.CouponID == 0 || r.CouponID != r.Coupon.ID {
		t.Errorf("a shared key: %+v of %+v", r, r.Coupon)
	}
	var c counted
	must(t, db.Create(&c).Error)
	if c.ID != 1 {
		t.Errorf("an explicit autoIncrement got the key %d", c.ID)
	}
	// A foreign key is no uid field.
	testkit.IsError(t, plugintest.Second(uidplugin.From(db).NextID(t.Context(), &receipt{})), uidplugin.ErrNoField)
}

// Without this error, the first row of a model whose tag was forgotten would get the key 0, because such an insert
// succeeds.
func TestID_IsNeverInsertedAsZero(t *testing.T) {
	t.Parallel()

	plain, with := plugintest.Bare(t), plugintest.Open(t)
	for _, db := range []*gorm.DB{plain, with} {
		plugintest.Migrate(t, db, &chit{}, &receipt{}, &gridCell{}, &manual{}, &counted{}, &stocked{})
	}
	for name, c := range map[string]struct {
		create func(db *gorm.DB) error
		db     *gorm.DB
		says   string
	}{
		"a struct":        {func(db *gorm.DB) error { return db.Create(&chit{}).Error }, plain, "chit.ID of row 0 is 0: this database handle has no plugin"},
		"rows":            {func(db *gorm.DB) error { return db.Create(&[]*chit{{ID: 7}, {}}).Error }, plain, "row 1"},
		"batches":         {func(db *gorm.DB) error { return db.CreateInBatches(&[]chit{{ID: 8}, {}}, 1).Error }, plain, "no plugin"},
		"Save":            {func(db *gorm.DB) error { return db.Save(&chit{}).Error }, plain, "no plugin"},
		"an upsert":       {func(db *gorm.DB) error { return db.Clauses(clause.OnConflict{UpdateAll: true}).Create(&chit{}).Error }, plain, "no plugin"},
		"FirstOrCreate":   {func(db *gorm.DB) error { return db.FirstOrCreate(&chit{}, "number = 3").Error }, plain, "no plugin"},
		"an association":  {func(db *gorm.DB) error { return db.Create(&receipt{CouponID: 1, Coupon: &chit{}}).Error }, plain, "chit.ID"},
		"a map":           {func(db *gorm.DB) error { return db.Model(&chit{}).Create(map[string]any{"id": 0}).Error }, plain, "no plugin"},
		"a forgotten tag": {func(db *gorm.DB) error { return db.Create(&gridCell{Sheet: 1}).Error }, with, `gridCell.Place of row 0 is 0: the field has no tag uid`},
		"a foreign key":   {func(db *gorm.DB) error { return db.Create(&receipt{}).Error }, with, "receipt.CouponID"},
		"uid:-":           {func(db *gorm.DB) error { return db.Create(&manual{}).Error }, with, "manual.ID of row 0 is 0: its tag leaves the key to the application"},
		"Unscoped":        {func(db *gorm.DB) error { return db.Unscoped().Create(&manual{}).Error }, with, "manual.ID"},
	} {
		t.Run(name, func(t *testing.T) { testkit.IsError(t, c.create(c.db), uidplugin.ErrZeroKey, c.says) })
	}
	for _, table := range []string{"chits", "receipts", "grid_cells", "manuals"} {
		for _, db := range []*gorm.DB{plain, with} {
			if n := plugintest.Count(t, db, table, "1 = 1"); n > 1 { // the batch before the one that failed
				t.Errorf("%d rows in %s", n, table)
			}
		}
	}
	for name, err := range map[string]error{
		"a key that is set":         plain.Create(&chit{ID: 9}).Error,
		"a key of a map":            plain.Model(&chit{}).Create(map[string]any{"id": 10}).Error,
		"a column that is left out": plain.Omit("ID").Create(&chit{Number: 4}).Error,
		"columns without the key":   plain.Select("Number").Create(&chit{Number: 5}).Error,
		"a key of the database":     plain.Create(&counted{}).Error,
		"a query":                   plain.Find(&[]chit{}, "id = ?", uidplugin.ID(0)).Error,
		"an update":                 plain.Model(&chit{ID: 9}).Update("buyer", uidplugin.ID(0)).Error,
		"both keys":                 with.Create(&gridCell{Sheet: 1, Place: 2}).Error,
		"a default of the model":    with.Create(&[]stocked{{Name: "a"}, {Name: "b"}}).Error,
	} {
		t.Run(name, func(t *testing.T) { must(t, err) })
	}
}

// A struct without a name has no table of its own. Formerly it was refused even if it had a key.
func TestID_InAStructWithoutAName(t *testing.T) {
	t.Parallel()

	db := plugintest.Open(t)
	plugintest.Migrate(t, db, &chit{})
	type row = struct {
		ID     uidplugin.ID
		Number int
	}
	must(t, db.Table("chits").Create(&row{ID: 9, Number: 1}).Error)
	testkit.IsError(t, db.Table("chits").Create(&row{Number: 2}).Error, uidplugin.ErrZeroKey)
	plugintest.Rows(t, 1, db, "chits")
}

// folder has labels, which it shares with others.
type folder struct {
	ID     uidplugin.ID
	Labels []sticker `gorm:"many2many:folder_stickers"`
}

type sticker struct {
	ID   uidplugin.ID
	Text string `gorm:"unique"`
}

// After a conflict GORM leaves an associated row without its key. Formerly the join table then got a row with the key
// 0.
func TestID_IsNotZeroInJoinTables(t *testing.T) {
	t.Parallel()

	db := plugintest.Open(t)
	plugintest.Migrate(t, db, &folder{}, &sticker{})
	must(t, db.Create(&sticker{Text: "red"}).Error)
	testkit.IsError(t, db.Create(&folder{Labels: []sticker{{Text: "red"}, {Text: "blue"}}}).Error,
		uidplugin.ErrZeroKey, "StickerID of row 0 is 0: a row of the association has no key")
	plugintest.Rows(t, 0, db, "folders")
	plugintest.Rows(t, 0, db, "folder_stickers")
	var red sticker
	must(t, db.First(&red, "text = ?", "red").Error)
	must(t, db.Create(&folder{Labels: []sticker{red, {Text: "blue"}}}).Error)
	plugintest.Rows(t, 2, db, "folder_stickers")
}

// wing: segment

package segments_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/segment"
	"gorm.io/gorm"
)

// fetched makes the table leaf_alloc, with tags that somebody has fetched one number from.
func fetched(t *testing.T, db *gorm.DB, tags ...string) {
	t.Helper()
	must(t, db.Exec("CREATE TABLE leaf_alloc (biz_tag TEXT PRIMARY KEY, max_id INT, step INT, description TEXT, update_time TIMESTAMP)").Error)
	for _, tag := range tags {
		must(t, db.Exec("INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES (?, 2, 10)", tag).Error)
	}
}

type badge struct {
	ID   int64 `gorm:"primaryKey;autoIncrement:false;uid:segment"`
	Ref  int64
	Text string
}

// The connection breaks when the segment asks for the numbers of its column. Formerly the table was then taken for
// missing, and ids began at 1.
func TestSegment_GoesOnAboveRowsIfItsQuestionFails(t *testing.T) {
	t.Parallel()

	db := plugintest.Bare(t)
	must(t, db.AutoMigrate(&badge{}))
	fetched(t, db, "badges")
	for i := range 5 {
		must(t, db.Exec("INSERT INTO badges (id, ref) VALUES (?, ?)", 100+i, 200+i).Error)
		must(t, db.Exec("INSERT INTO badges (id, ref) VALUES (?, ?)", 1+i, 1+i).Error)
	}
	var broken atomic.Bool
	plugintest.Tapped(db, func(_ context.Context, query string) error {
		if broken.Load() && strings.Contains(query, "badges") {
			return plugintest.ErrBroken
		}
		return nil
	})
	plugintest.Use(t, db)
	broken.Store(true)
	testkit.IsError(t, db.Create(&badge{}).Error, plugintest.ErrBroken)
	broken.Store(false)
	row := badge{}
	must(t, db.Create(&row).Error)
	if row.ID < 105 {
		t.Errorf("%+v; the largest key is 104", row)
	}
}

type upperCased struct {
	ID int64 `gorm:"primaryKey;autoIncrement:false;uid:segment"`
}

func (upperCased) TableName() string { return "ORDERS" }

// The model spells the table in capitals, and the database does not. Formerly its rows were overlooked.
func TestSegment_GoesOnAboveRowsOfATableInAnotherCase(t *testing.T) {
	t.Parallel()

	db := plugintest.Open(t)
	must(t, db.Exec("CREATE TABLE orders (id BIGINT PRIMARY KEY)").Error)
	must(t, db.Exec("INSERT INTO orders VALUES (1), (2), (7)").Error)
	fetched(t, db, "orders")
	must(t, db.Create(&upperCased{}).Error)
}

type oneColumn struct {
	ID int64 `gorm:"primaryKey;autoIncrement:false;uid:segment"`
}
type twoColumns struct {
	ID  int64 `gorm:"primaryKey;autoIncrement:false;uid:segment"`
	Ref int64 `gorm:"uid:segment"`
}

func (oneColumn) TableName() string  { return "both" }
func (twoColumns) TableName() string { return "both" }

// A second model of a table has one more field with a segment, which begins above the column's values, too.
func TestSegment_OfASecondModelGoesOnAboveRows(t *testing.T) {
	t.Parallel()

	db := plugintest.Open(t)
	must(t, db.Exec("CREATE TABLE both (id BIGINT PRIMARY KEY, ref BIGINT UNIQUE)").Error)
	must(t, db.Exec("INSERT INTO both VALUES (1, 5), (2, 6), (3, 7)").Error)
	fetched(t, db, "both", "both.ref")
	must(t, db.Create(&oneColumn{}).Error)
	for range 4 {
		must(t, db.Create(&twoColumns{}).Error)
	}
}

// Models of one table, whose names differ in spelling.
type (
	spelt struct {
		ID  int64 `gorm:"primaryKey;autoIncrement:false;uid:segment"`
		Ref int64 `gorm:"uid:segment"`
	}
	speltQualified struct {
		ID  int64 `gorm:"primaryKey;autoIncrement:false;uid:segment"`
		Ref int64 `gorm:"column:REF;uid:segment"`
	}
	speltQuoted struct {
		ID  int64 `gorm:"primaryKey;autoIncrement:false;uid:segment"`
		Ref int64 `gorm:"uid:segment"`
	}
	speltUpper struct {
		ID  int64 `gorm:"primaryKey;autoIncrement:false;uid:segment"`
		Ref int64 `gorm:"column:Ref;uid:segment"`
	}
)

func (spelt) TableName() string          { return "slips" }
func (speltQualified) TableName() string { return "main.slips" }
func (speltQuoted) TableName() string    { return "`main`.`Slips`" }
func (speltUpper) TableName() string     { return "SLIPS" }

// Formerly each spelling of a table's name had a row of its own, and its processes handed out the same ids.
func TestSegment_SpellingsOfOneTableShareIt(t *testing.T) {
	t.Parallel()

	first := plugintest.Bare(t)
	must(t, first.Exec("CREATE TABLE slips (id BIGINT, ref BIGINT)").Error)
	ids, refs := testkit.NewLedger(t), testkit.NewLedger(t)
	ids.Add("none", 0)
	refs.Add("none", 0)
	path := plugintest.FileOf(t, first)
	for range 2 {
		for _, models := range [][]any{{&spelt{}, &speltQuoted{}}, {&speltQualified{}}, nil} {
			db := plugintest.File(t, path, &gorm.Config{})
			plugintest.Use(t, db, uidplugin.WithSegments(segment.Config{Step: 10}), uidplugin.WithModels(models...))
			for range 3 {
				a, b, c, d := spelt{}, speltQualified{}, speltQuoted{}, speltUpper{}
				for _, row := range []any{&a, &b, &c, &d} {
					must(t, db.Create(row).Error)
				}
				ids.Add("slips", a.ID, b.ID, c.ID, d.ID)
				refs.Add("slips", a.Ref, b.Ref, c.Ref, d.Ref)
			}
		}
	}
	var tags []string
	must(t, first.Raw("SELECT biz_tag FROM leaf_alloc ORDER BY biz_tag").Scan(&tags).Error)
	if len(tags) != 2 || tags[0] != "slips" || tags[1] != "slips.ref" {
		t.Errorf("the tags are %q", tags)
	}
	plugintest.Rows(t, int64(ids.Len()-1), first, "slips")
}

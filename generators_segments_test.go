package uidplugin_test

import (
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/segment"
	"gorm.io/gorm"
)

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

// spellings creates a row through each spelling, several times, and reports an id that came twice.
func spellings(t *testing.T, seen map[int64]bool, db *gorm.DB) {
	t.Helper()
	for range 3 {
		a, b, c, d := spelt{}, speltQualified{}, speltQuoted{}, speltUpper{}
		for _, row := range []any{&a, &b, &c, &d} {
			must(t, db.Create(row).Error)
		}
		for _, id := range []int64{a.ID, b.ID, c.ID, d.ID, -a.Ref, -b.Ref, -c.Ref, -d.Ref} {
			if id == 0 || seen[id] {
				t.Errorf("the id %d is zero, or came twice", id)
			}
			seen[id] = true
		}
	}
}

// Each spelling of a table's name had a row of its own, and its processes handed out the same ids.
func TestSegment_SpellingsOfOneTableShareIt(t *testing.T) {
	t.Parallel()

	first := bare(t)
	must(t, first.Exec("CREATE TABLE slips (id BIGINT, ref BIGINT)").Error)
	seen := map[int64]bool{}
	path := fileOf(t, first)
	for range 2 {
		for _, models := range [][]any{{&spelt{}, &speltQuoted{}}, {&speltQualified{}}, nil} {
			db := file(t, path, &gorm.Config{})
			use(t, db, uidplugin.WithSegments(segment.Config{Step: 10}), uidplugin.WithModels(models...))
			spellings(t, seen, db)
		}
	}
	var tags []string
	must(t, first.Raw("SELECT biz_tag FROM leaf_alloc ORDER BY biz_tag").Scan(&tags).Error)
	if len(tags) != 2 || tags[0] != "slips" || tags[1] != "slips.ref" {
		t.Errorf("the tags are %q", tags)
	}
	if n := count(t, first, "slips"); n != int64(len(seen)/2) {
		t.Errorf("%d rows", n)
	}
}

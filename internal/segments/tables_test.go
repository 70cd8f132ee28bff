// wing: segment

package segments_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/segment"
	"gorm.io/gorm"
)

type brokenQuestions struct {
	*sql.DB
	fail atomic.Bool
}

func (p *brokenQuestions) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if strings.Contains(query, "sqlite_master") && p.fail.Load() {
		gone, cancel := context.WithCancel(ctx)
		cancel()
		return p.DB.QueryRowContext(gone, query, args...) // the connection breaks
	}
	return p.DB.QueryRowContext(ctx, query, args...)
}

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

// The connection breaks when the segment asks whether its table exists. It was then taken for missing, and ids began at 1.
func TestSegment_GoesOnAboveRowsIfItsQuestionFails(t *testing.T) {
	t.Parallel()

	db := plugintest.Bare(t)
	must(t, db.AutoMigrate(&badge{}))
	fetched(t, db, "badges")
	for i := range 5 {
		must(t, db.Exec("INSERT INTO badges (id, ref) VALUES (?, ?)", 100+i, 200+i).Error)
		must(t, db.Exec("INSERT INTO badges (id, ref) VALUES (?, ?)", 1+i, 1+i).Error)
	}
	p := &brokenQuestions{DB: db.Config.ConnPool.(*sql.DB)}
	db.Config.ConnPool = p
	db.Statement.ConnPool = p
	plugintest.Use(t, db)
	p.fail.Store(true)
	row := badge{}
	err := db.Create(&row).Error
	if err != nil || row.ID < 105 {
		t.Errorf("%+v, %v; the largest key is 104", row, err)
	}
}

type upperCased struct {
	ID int64 `gorm:"primaryKey;autoIncrement:false;uid:segment"`
}

func (upperCased) TableName() string { return "ORDERS" }

// The model spells the table in capitals, and the database does not. Its rows were overlooked.
func TestSegment_GoesOnAboveRowsOfATableInAnotherCase(t *testing.T) {
	t.Parallel()

	db := plugintest.Open(t)
	must(t, db.Exec("CREATE TABLE orders (id BIGINT PRIMARY KEY)").Error)
	must(t, db.Exec("INSERT INTO orders VALUES (1), (2), (7)").Error)
	fetched(t, db, "orders")
	if err := db.Create(&upperCased{}).Error; err != nil {
		t.Error(err)
	}
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
	var err error
	for range 4 {
		err = errors.Join(err, db.Create(&twoColumns{}).Error)
	}
	if err != nil {
		t.Error(err)
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

	first := plugintest.Bare(t)
	must(t, first.Exec("CREATE TABLE slips (id BIGINT, ref BIGINT)").Error)
	seen := map[int64]bool{}
	path := plugintest.FileOf(t, first)
	for range 2 {
		for _, models := range [][]any{{&spelt{}, &speltQuoted{}}, {&speltQualified{}}, nil} {
			db := plugintest.File(t, path, &gorm.Config{})
			plugintest.Use(t, db, uidplugin.WithSegments(segment.Config{Step: 10}), uidplugin.WithModels(models...))
			spellings(t, seen, db)
		}
	}
	var tags []string
	must(t, first.Raw("SELECT biz_tag FROM leaf_alloc ORDER BY biz_tag").Scan(&tags).Error)
	if len(tags) != 2 || tags[0] != "slips" || tags[1] != "slips.ref" {
		t.Errorf("the tags are %q", tags)
	}
	if n := plugintest.Count(t, first, "slips"); n != int64(len(seen)/2) {
		t.Errorf("%d rows", n)
	}
}

//go:build linux

package segment_test

import (
	"slices"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/segment"
	"gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
	"gorm.io/gorm/schema"
)

// Upper has the table of Receipt where the server ignores case.
type Upper struct {
	ID int64 `gorm:"primaryKey;autoIncrement:false;uid:segment"`
}

func (Upper) TableName() string { return "RECEIPTS" }

func segmentTags(t *testing.T, db *gorm.DB) (tags []string) {
	t.Helper()
	testkit.Must(t, db.Raw("SELECT biz_tag FROM leaf_alloc").Scan(&tags).Error)
	slices.Sort(tags)
	return tags
}

// Formerly, processes that spelled a table's name in different ways each had a segment, and handed out the same ids.
func TestSegment_QualifiedNamesShareTheRow(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		plain := d.Open(t, nil)
		testkit.Must(t, plain.AutoMigrate(&Receipt{}))
		current := d.Current()
		quote := "`"
		if d.Name == "postgres" {
			quote = `"`
		}
		all := testkit.NewLedger(t)
		for round := range 2 {
			for _, prefix := range []string{"", current + ".", quote + current + quote + "."} {
				db, err := d.Connect(&gorm.Config{NamingStrategy: schema.NamingStrategy{TablePrefix: prefix}})
				testkit.Must(t, err)
				t.Cleanup(func() { _ = testkit.Close(db) })
				harness.Use(t, db, uidplugin.WithSegments(segment.Config{Step: 10}), uidplugin.WithModels(&Receipt{}))
				for range 15 {
					row := Receipt{}
					if err := db.Create(&row).Error; err != nil {
						t.Fatalf("round %d, %q: %v", round, prefix, err)
					}
					all.Add(prefix, row.ID)
				}
			}
		}
		if tags := segmentTags(t, plain); !slices.Equal(tags, []string{"receipts"}) {
			t.Errorf("the tags are %q", tags)
		}

		// Names of other case are other tables, unless the server says that they are not.
		if d.Name != "sqlite" {
			testkit.Must(t, plain.AutoMigrate(&Upper{}))
		}
		testkit.Must(t, plain.Use(uidplugin.New(harness.Quiet, uidplugin.WithModels(&Upper{}))))
		testkit.Must(t, plain.Create(&Upper{}).Error)
		want := []string{"RECEIPTS", "receipts"}
		if d.Name == "sqlite" {
			want = want[1:]
		}
		if tags := segmentTags(t, plain); !slices.Equal(tags, want) {
			t.Errorf("with names of another case the tags are %q, want %q", tags, want)
		}
		harness.Close(t, uidplugin.From(plain))
	})
}

// Formerly, on a server that ignores case, names of another case had segments of their own.
func TestSegment_CaseOfNamesWhereTheServerIgnoresIt(t *testing.T) {
	t.Parallel()
	harness.NeedMariaDB(t)
	m := harness.NewMariaDB(t, harness.MariaDBFolder(t, "case"), "case", "--lower-case-table-names=1")
	m.Install(t)
	testkit.Must(t, m.Start())
	testkit.Must(t, m.Wait(time.Minute, "SELECT 1", "1"))
	testkit.Must(t, m.Exec("CREATE DATABASE shop"))
	all := testkit.NewLedger(t)
	for _, prefix := range []string{"", "shop.", "SHOP.", "`Shop`."} {
		db, err := gorm.Open(mysql.Open(harness.MariaDBDSN(m.Address(), "Shop")), &gorm.Config{
			Logger: logger.Discard, NamingStrategy: schema.NamingStrategy{TablePrefix: prefix}})
		testkit.Must(t, err)
		testkit.Must(t, db.AutoMigrate(&Receipt{}))
		p := uidplugin.New(harness.Quiet, uidplugin.WithModels(&Receipt{}, &Upper{}))
		testkit.Must(t, db.Use(p))
		for range 5 {
			lower, upper := Receipt{}, Upper{}
			testkit.Must(t, db.Create(&lower).Error)
			testkit.Must(t, db.Create(&upper).Error)
			all.Add(prefix, lower.ID)
			all.Add(prefix+"upper", upper.ID)
		}
		if tags := segmentTags(t, db); !slices.Equal(tags, []string{"receipts"}) {
			t.Errorf("after %q the tags are %q", prefix, tags)
		}
		harness.Close(t, p)
		testkit.Must(t, testkit.Close(db))
	}
}

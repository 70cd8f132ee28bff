//go:build linux

package integration_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
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

// segmentTags returns the tags of leaf_alloc.
func segmentTags(t *testing.T, db *gorm.DB) (tags []string) {
	t.Helper()
	must(t, db.Raw("SELECT biz_tag FROM leaf_alloc").Scan(&tags).Error)
	slices.Sort(tags)
	return tags
}

// Processes that spell a table's name in different ways had a segment each, and handed
// out the same ids.
func TestSegment_QualifiedNamesShareTheRow(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		plain := open(t, d)
		must(t, plain.AutoMigrate(&Receipt{}))
		current := d.schema
		if d.name == "sqlite" {
			current = "main"
		}
		quote := "`"
		if d.name == "postgres" {
			quote = `"`
		}
		var all used
		for round := range 2 {
			for _, prefix := range []string{"", current + ".", quote + current + quote + "."} {
				db, err := d.connect(&gorm.Config{NamingStrategy: schema.NamingStrategy{TablePrefix: prefix}})
				must(t, err)
				t.Cleanup(func() { _ = closed(db) })
				p := uidplugin.New(quiet, uidplugin.WithSegments(segment.Config{Step: 10}), uidplugin.WithModels(&Receipt{}))
				must(t, db.Use(p))
				t.Cleanup(func() { _ = p.Close(context.Background()) })
				for range 15 {
					row := Receipt{}
					if err := db.Create(&row).Error; err != nil {
						t.Fatalf("round %d, %q: %v", round, prefix, err)
					}
					all.add(t, row.ID, prefix)
				}
			}
		}
		if tags := segmentTags(t, plain); !slices.Equal(tags, []string{"receipts"}) {
			t.Errorf("the tags are %q", tags)
		}

		// Names of other case are other tables, unless the server says that they are not.
		if d.name != "sqlite" {
			must(t, plain.AutoMigrate(&Upper{}))
		}
		must(t, plain.Use(uidplugin.New(quiet, uidplugin.WithModels(&Upper{}))))
		must(t, plain.Create(&Upper{}).Error)
		want := []string{"RECEIPTS", "receipts"}
		if d.name == "sqlite" {
			want = want[1:]
		}
		if tags := segmentTags(t, plain); !slices.Equal(tags, want) {
			t.Errorf("with names of another case the tags are %q, want %q", tags, want)
		}
		must(t, uidplugin.From(plain).Close(t.Context()))
	})
}

// On a server that ignores case, names of another case had segments of their own.
func TestSegment_CaseOfNamesWhereTheServerIgnoresIt(t *testing.T) {
	t.Parallel()
	needMariaDB(t)
	m := newMariaDB(t, mariadbFolder(t, "case"), "case", "--lower-case-table-names=1")
	m.install(t)
	must(t, m.start())
	must(t, m.wait(30*time.Second, "SELECT 1", "1"))
	must(t, m.execute("CREATE DATABASE shop"))
	var all used
	for _, prefix := range []string{"", "shop.", "SHOP.", "`Shop`."} {
		db, err := gorm.Open(mysql.Open(mariadbDSN(m.address(), "Shop")), &gorm.Config{
			Logger: logger.Discard, NamingStrategy: schema.NamingStrategy{TablePrefix: prefix}})
		must(t, err)
		must(t, db.AutoMigrate(&Receipt{}))
		p := uidplugin.New(quiet, uidplugin.WithModels(&Receipt{}, &Upper{}))
		must(t, db.Use(p))
		for range 5 {
			lower, upper := Receipt{}, Upper{}
			must(t, db.Create(&lower).Error)
			must(t, db.Create(&upper).Error)
			all.add(t, lower.ID, prefix)
			all.add(t, upper.ID, prefix+"upper")
		}
		if tags := segmentTags(t, db); !slices.Equal(tags, []string{"receipts"}) {
			t.Errorf("after %q the tags are %q", prefix, tags)
		}
		must(t, p.Close(t.Context()))
		must(t, closed(db))
	}
}

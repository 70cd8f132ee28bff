package registry_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/segment"
	"gorm.io/gorm"
)

// Ticket has a key of a segment.
type Ticket struct {
	ID int64 `gorm:"primaryKey;autoIncrement:false;uid:segment"`
}

// shard opens a plugin on a database. The files of SQLite all have one name, so it is set.
func shard(t *testing.T, d *testkit.Database, registry *gorm.DB, options ...uidplugin.Option) (*gorm.DB, *uidplugin.Plugin) {
	t.Helper()
	db := d.Open(t, nil)
	options = append(options, uidplugin.WithRegistry(registry))
	if d.Name == "sqlite" {
		options = append(options, uidplugin.WithDatabaseName(d.Schema))
	}
	return db, harness.Use(t, db, options...)
}

// fills creates rows in some databases at once, and returns the database of each id. No id may come twice.
func fills(t *testing.T, databases map[string]*gorm.DB, rows int) map[int64]string {
	t.Helper()
	ledger := testkit.NewLedger(t)
	var group sync.WaitGroup
	for name, db := range databases {
		group.Go(func() {
			for range rows {
				var a harness.T1
				var b harness.T2
				if err := errors.Join(db.Create(&a).Error, db.Create(&b).Error); err != nil {
					t.Error(name, err)
					return
				}
				ledger.Add(name, int64(a.ID), b.ID)
			}
		})
	}
	group.Wait()
	return ledger.Tables()
}

// Two databases of one server, and two processes, of which the second has a slot of its own. Without WithRegistry the
// rows of the two databases have the same ids.
func TestWithRegistry_TwoDatabasesOfAServer(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		one, two := d.New(t), d.New(t)
		registries := []*gorm.DB{d.Open(t, nil), d.Open(t, nil)} // a pool for each process
		databases, names := map[string]*gorm.DB{}, map[string]string{}
		var plugins []*uidplugin.Plugin
		for i, registry := range registries {
			for key, data := range map[string]*testkit.Database{"one": one, "two": two} {
				db, p := shard(t, data, registry)
				testkit.Must(t, db.AutoMigrate(&harness.T1{}, &harness.T2{}))
				name := key + " of process " + string(rune('1'+i))
				databases[name], names[name] = db, data.Schema
				plugins = append(plugins, p)
			}
		}
		rows := 100
		if d.Name == "sqlite" {
			rows = 20 // one writes at a time
		}
		checked := 0
		for id, name := range fills(t, databases, rows) {
			if checked++; checked%10 != 0 {
				continue // each takes a round trip
			}
			l, err := plugins[checked/10%len(plugins)].Locate(t.Context(), uidplugin.ID(id))
			if err != nil || l.Database != names[name] {
				t.Fatalf("Locate(%d) = %+v, %v; want the database %s", id, l, err, names[name])
			}
		}
		if n := len(harness.Slots(t, registries[0])); n != 2 {
			t.Errorf("%d slots, want one for each process", n)
		}
		if a, b := plugins[0].Stats().Space, plugins[3].Stats().Space; a == "" || a != b {
			t.Errorf("the id spaces %q and %q", a, b)
		}
	})
}

// The worker ids are in MySQL, and the rows in PostgreSQL and SQLite.
func TestWithRegistry_OfAnotherEngine(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		registry := d.Open(t, nil)
		databases, names := map[string]*gorm.DB{}, map[string]string{}
		var p *uidplugin.Plugin
		for _, e := range testkit.Engines() {
			if !e.Available() {
				continue
			}
			data := e.New(t)
			var db *gorm.DB
			db, p = shard(t, data, registry)
			testkit.Must(t, db.AutoMigrate(&harness.T1{}, &harness.T2{}))
			databases[e.Name], names[e.Name] = db, data.Schema
		}
		for id, name := range fills(t, databases, 20) {
			if l, err := p.Locate(t.Context(), uidplugin.ID(id)); err != nil || l.Database != names[name] {
				t.Fatalf("Locate(%d) = %+v, %v; want the database %s", id, l, err, names[name])
			}
		}
	}, "mariadb", "mysql", "postgres")
}

// Tables of one name in two databases share a segment, which is in the registry: their ids differ, and begin above the
// keys of both.
func TestWithRegistry_TablesOfOneNameShareASegment(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		registry := d.Open(t, nil)
		ledger := testkit.NewLedger(t)
		for i := range 2 {
			db, _ := shard(t, d.New(t), registry, uidplugin.WithSegments(segment.Config{Step: 20, Start: 1001}))
			testkit.Must(t, db.AutoMigrate(&Ticket{}))
			testkit.Must(t, db.Exec("INSERT INTO tickets (id) VALUES (?)", 1000*(i+1)).Error)
			for range 50 {
				var row Ticket
				testkit.Must(t, db.Create(&row).Error)
				ledger.Add(d.Schema, row.ID)
				if row.ID <= int64(1000*(i+1)) {
					t.Fatalf("the id %d is not above the keys of the table", row.ID)
				}
			}
			if db.Migrator().HasTable("leaf_alloc") {
				t.Error("the segments are in the database of the rows")
			}
		}
	})
}

// The registry is unreachable: each database goes on until what was granted is used up, then says why, and recovers.
func TestWithRegistry_IsUnreachable(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		registry, cut, restore := testkit.OpenBreakable(t, d)
		options := []uidplugin.Option{uidplugin.WithLead(2 * time.Second), uidplugin.WithModels(&harness.T1{})}
		one, p := shard(t, d.New(t), registry, options...)
		two, _ := shard(t, d.New(t), registry, options...)
		create := func(db *gorm.DB) error { return db.Create(&harness.T1{}).Error }
		for _, db := range []*gorm.DB{one, two} {
			testkit.Must(t, db.AutoMigrate(&harness.T1{}))
			testkit.Eventually(t, "a row", time.Minute, func() bool { return create(db) == nil })
		}
		cut()
		testkit.Must(t, errors.Join(create(one), create(two)))
		for _, db := range []*gorm.DB{one, two} {
			var err error
			for begin := time.Now(); err == nil && time.Since(begin) < time.Minute; {
				_, err = harness.NextID(uidplugin.From(db))
			}
			testkit.IsError(t, err, generator.ErrLeaseExpired)
		}
		if err := p.Health(); err == nil || !strings.Contains(err.Error(), "renewed") {
			t.Errorf("Health: %v", err)
		}
		restore()
		for _, db := range []*gorm.DB{one, two} {
			testkit.Eventually(t, "ids after the return", time.Minute, func() bool { return create(db) == nil })
		}
	})
}

package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// The command accepts each spelling of the name of the application's table.
func TestNext_KnowsATableByAllItsNames(t *testing.T) {
	t.Parallel()
	eachShop(t, func(t *testing.T, d *testkit.Database, db *gorm.DB, r runner) {
		spellings := []string{d.Current() + ".orders", "orders"}
		if d.Name == "sqlite" {
			spellings = []string{"ORDERS", "main.orders", "orders"}
		}
		for _, table := range spellings {
			made := r.run("next", table).want(t, exitOK)
			r.run("where", "--json", strings.TrimSpace(made.out)).want(t, exitOK, `"table":"orders"`)
		}
	})
}

// For a table of another database the command must know that database, so that the application finds the row.
func TestNext_MakesIDsForADatabaseElsewhere(t *testing.T) {
	t.Parallel()

	registry, shard := testkit.Engine{Name: "sqlite"}.New(t), testkit.Engine{Name: "sqlite"}.New(t)
	db := shard.Open(t, nil)
	p := plugintest.Use(t, db, uidplugin.WithRegistry(registry.Open(t, nil)), uidplugin.WithDatabaseName("shard-1"),
		uidplugin.WithModels(&order{}))
	must(t, p.AutoMigrate(&order{}))
	must(t, db.Create(&order{Text: "first"}).Error)
	r := runner{t: t, dsn: dsn(registry)}
	r.run("next", "orders").want(t, exitFailed, `in the database "shard-1"`, "pass --database")
	r.run("next", "orders", "--database", "shard-2").want(t, exitFailed, `"shard-2"`, "uid tables --json")
	must(t, registry.Open(t, nil).AutoMigrate(&order{})) // a table of the same name
	r.run("next", "orders").want(t, exitFailed, `in the database "shard-1"`, "pass --database")
	r.run("next", "*", "--force").want(t, exitFailed, `"*" is not a table`)
	r.run("next", "nosuch", "--database", "shard-1="+dsn(shard)).want(t, exitFailed,
		`the table "shard-1.nosuch" does not exist`)
	for _, args := range [][]string{{"next", "shard-1.orders"}, {"next", "orders", "--database", "shard-1=" + dsn(shard)}} {
		made := r.run(args...).want(t, exitOK)
		r.run("where", strings.TrimSpace(made.out)).want(t, exitOK, "table      orders\n", "shard-1")
	}
	made := r.run("next", "orders", "--database", "shard-1", "--json").want(t, exitOK)
	var id struct{ ID uidplugin.ID }
	must(t, json.Unmarshal([]byte(made.out), &id))
	must(t, db.Exec("INSERT INTO orders (id, text) VALUES (?, 'raw')", id.ID).Error)
	found, err := p.Find(t.Context(), id.ID)
	if must(t, err); found.(*order).Text != "raw" {
		t.Errorf("%+v", found)
	}
}

// A name as "uid tables" prints it means the registered table of the other database, even if this server has a database
// of that name.
func TestNext_OfADatabaseOfTheSameServer(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		s := newShards(t, d, d.Elsewhere(t), "")
		r := runner{t: t, dsn: dsn(d)}
		made := r.run("next", s.name+".orders").want(t, exitOK)
		r.run("where", "--json", strings.TrimSpace(made.out)).want(t, exitOK, `"database":"`+s.name+`","table":"orders"`)
		if got := r.run("tables"); strings.Count(got.out, "orders") != 1 {
			t.Errorf("a table that does not exist was registered:\n%s", got.out)
		}
	}, "mariadb", "mysql", "postgres")
}

type job struct {
	ID int64 `gorm:"primaryKey;autoIncrement:false;uid:segment"`
}

// An id among keys of a segment would be the largest key, so the segment could not continue above it.
func TestNext_RefusesTablesWithKeysOfASegment(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		p := plugintest.Use(t, db)
		must(t, p.AutoMigrate(&job{}))
		must(t, db.Create(&job{}).Error)
		testkit.MustClose(t, p)
		exec("CREATE TABLE old (id BIGINT PRIMARY KEY)", "CREATE TABLE fresh (id BIGINT PRIMARY KEY)",
			"INSERT INTO old VALUES (41)")(t, db)
		r := runner{t: t, dsn: dsn(d)}
		r.run("next", "jobs").want(t, exitFailed, `leaf_alloc has the tag "jobs`, "--force")
		r.run("next", "old").want(t, exitFailed, "its largest key is 41", "--force")
		r.run("next", "fresh").want(t, exitOK)
		must(t, db.Exec("DELETE FROM leaf_alloc").Error)
		r.run("next", "jobs").want(t, exitFailed, "its largest key is 1", "--force")
		r.run("next", "jobs", "--force").want(t, exitOK)
	})
}

package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// However a table is spelled, its ids are of the table that the application has.
func TestNext_KnowsATableByAllItsNames(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		shop(t, d.Open(t, nil), "web-1", "first")
		r := runner{t: t, dsn: dsn(d)}
		spellings := []string{d.Schema + ".orders", "orders"}
		if d.Name == "sqlite" {
			spellings = []string{"ORDERS", "main.orders", "orders"}
		}
		for _, table := range spellings {
			made := r.run("next", table)
			made.want(t, exitOK)
			r.run("where", "--json", strings.TrimSpace(made.out)).want(t, exitOK, `"table":"orders"`)
		}
	})
}

// A table of another database than the registry's takes its name. Then the application finds the row.
func TestNext_MakesIDsForADatabaseElsewhere(t *testing.T) {
	t.Parallel()

	registry, shard := testkit.Engine{Name: "sqlite"}.New(t), testkit.Engine{Name: "sqlite"}.New(t)
	db := shard.Open(t, nil)
	p := uidplugin.New(uidplugin.WithRegistry(registry.Open(t, nil)), uidplugin.WithDatabaseName("shard-1"),
		uidplugin.WithModels(&order{}), uidplugin.WithLogger(nil))
	must(t, db.Use(p))
	must(t, p.AutoMigrate(&order{}))
	must(t, db.Create(&order{Text: "first"}).Error)
	r := runner{t: t, dsn: dsn(registry)}
	r.run("next", "orders").want(t, exitFailed, `in the database "shard-1": give --database`)
	r.run("next", "orders", "--database", "shard-2").want(t, exitFailed, `"shard-2"`, "uid tables --json")
	made := r.run("next", "orders", "--database", "shard-1", "--json")
	made.want(t, exitOK)
	var id struct{ ID uidplugin.ID }
	must(t, json.Unmarshal([]byte(made.out), &id))
	must(t, db.Exec("INSERT INTO orders (id, text) VALUES (?, 'raw')", id.ID).Error)
	found, err := p.Find(t.Context(), id.ID)
	if must(t, err); found.(*order).Text != "raw" {
		t.Errorf("%+v", found)
	}
	must(t, p.Close(context.Background()))
}

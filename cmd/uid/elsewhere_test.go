package main

import (
	"context"
	"strings"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/admin"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// shards are a registry, and an application whose orders are in another database.
type shards struct {
	registry, other *testkit.Database
	db              *gorm.DB // of the application
	name            string   // of the other database in WORKER_NODE
	id              uidplugin.ID
}

// newShards returns a registry with an order in another database. Its name is the database's own, if it is empty.
func newShards(t *testing.T, registry, other *testkit.Database, name string) shards {
	t.Helper()
	s := shards{registry: registry, other: other, db: other.Open(t, nil), name: name}
	options := []uidplugin.Option{uidplugin.WithRegistry(registry.Open(t, nil)), uidplugin.WithLogger(nil)}
	if name != "" {
		options = append(options, uidplugin.WithDatabaseName(name))
	} else if s.name = other.Schema; other.Name == "postgres" {
		s.name = "test." + other.Schema
	}
	p := uidplugin.New(options...)
	must(t, s.db.Use(p))
	must(t, p.AutoMigrate(&order{}))
	o := order{Text: "elsewhere"}
	must(t, s.db.Create(&o).Error)
	must(t, p.Close(context.Background()))
	s.id = o.ID
	return s
}

// Tables of a database that uid is not connected to are not said to be healthy, and rows of it are read where they are.
func TestCommands_NameADatabaseThatIsElsewhere(t *testing.T) {
	t.Parallel()
	sqlite := testkit.Engine{Name: "sqlite"}
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		s := newShards(t, sqlite.New(t), d, "shard-1")
		r := runner{t: t, dsn: dsn(s.registry)}
		r.run("doctor").want(t, exitFailed, `not checked: keys: databases of the registry that are not on this connection: `+
			`"shard-1" (1 table)`, "--database NAME=DSN", "0 findings, 1 not done")
		r.run("where", "--row", s.id.String()).want(t, exitWrong, "orders", "--database shard-1=DSN")

		there := "shard-1=" + dsn(d)
		r.run("doctor", "--database", there).want(t, exitOK, "0 findings, 0 not done")
		r.run("where", "--row", "--database", there, s.id.String()).want(t, exitOK, "elsewhere")
		r.run("doctor", "--database", "shard-2="+dsn(d)).want(t, exitFailed, `no table of a database "shard-2"`)
		r.run("doctor", "--database", "shard-1").want(t, exitFailed, "NAME=DSN")

		must(t, s.db.Exec("INSERT INTO orders (id, text) VALUES (1600000000000000000, 'of Discord')").Error)
		r.run("doctor", "--database", there).want(t, exitWrong, "the largest key of shard-1.orders is 1600000000000000000")
		r.run("where", "--json", "--database", "shard-1=mysql://u:12/s3cr3t@h/x", s.id.String()).want(t, exitFailed, "shard-1")
	})
}

// Another database of the same server is read without a data source name.
func TestCommands_ReadADatabaseOfTheSameServer(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		s := newShards(t, d, d.New(t), "")
		r := runner{t: t, dsn: dsn(d)}
		ignore := strings.Join(ofServers, ",")
		r.run("doctor", "--ignore", ignore).want(t, exitOK, "0 findings, 0 not done")
		// Another server may have a database of this name, and the row was looked for in the wrong one without a word.
		r.run("where", "--row", s.id.String()).want(t, exitOK, "row, of the database "+s.name+" on this server", "elsewhere")
		must(t, s.db.Exec("DELETE FROM orders").Error)
		r.run("where", "--row", s.id.String()).want(t, exitWrong, "if "+s.name+" is on another server, give --database "+s.name+"=DSN")
		must(t, s.db.Exec("INSERT INTO orders (id, text) VALUES (1600000000000000000, 'of Discord')").Error)
		r.run("doctor", "--ignore", ignore).want(t, exitWrong, admin.CodeKeyAhead, "largest key of "+s.name+".orders")
	}, "mariadb", "mysql", "postgres")
}

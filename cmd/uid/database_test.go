package main

import (
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/admin"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// A server that accepts connections and never answers counts as unreachable. Formerly a command took longer than
// --timeout, and said "invalid connection".
func TestConnect_EndsWhenTheServerIsSilent(t *testing.T) {
	t.Parallel()

	silent, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer func() { _ = silent.Close() }()
	for _, dsn := range []string{"mysql://u:s3cret@%/shop", "postgres://u:s3cret@%/shop?connect_timeout=60"} {
		dsn = strings.Replace(dsn, "%", silent.Addr().String(), 1)
		begin := time.Now()
		got := runner{t: t, dsn: dsn}.run("doctor", "--timeout", "100ms")
		got.want(t, exitFailed, "the database cannot be opened: no answer within 100ms")
		if took := time.Since(begin); took > 30*time.Second {
			t.Errorf("it took %v", took)
		}
		if strings.Contains(got.err, "s3cret") || strings.Count(got.err, "\n") != 1 {
			t.Errorf("%s", got.err)
		}
	}
}

// Formerly every error of the first read, such as a full disk, led to advice about WithRegistry.
func TestReadRegistry_NamesWithRegistryOnlyWithoutTheTable(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		r := runner{t: t, dsn: dsn(d)}
		r.run("status").want(t, exitFailed, "no id space", "WithRegistry")
		shop(t, db, "web-1")
		exec(`ALTER TABLE "WORKER_REGISTRY" RENAME COLUMN "LAYOUT" TO "L"`)(t, db)
		if got := r.run("status").want(t, exitFailed, "LAYOUT"); strings.Contains(got.err, "WithRegistry") {
			t.Errorf("%s", got.err)
		}
	})
}

// --timeout limits every statement, so a locked table costs the doctor one check, and not its report.
func TestQuery_EndsWhenATableIsLocked(t *testing.T) {
	t.Parallel()
	eachShop(t, func(t *testing.T, d *testkit.Database, db *gorm.DB, r runner) {
		pool, err := db.DB()
		must(t, err)
		conn, err := pool.Conn(t.Context())
		must(t, err)
		defer func() { _ = conn.Close() }()
		lock, unlock := "LOCK TABLES orders WRITE", "UNLOCK TABLES"
		if d.Name == "postgres" {
			lock, unlock = "BEGIN; LOCK TABLE orders IN ACCESS EXCLUSIVE MODE", "ROLLBACK"
		}
		_, err = conn.ExecContext(t.Context(), lock)
		must(t, err)
		free := time.AfterFunc(2*time.Minute, func() { _ = conn.Close() }) // so that a failure ends
		defer free.Stop()
		var got result
		testkit.Eventually(t, "one check that is not done", time.Minute, func() bool { // on a busy machine others take too long
			got = r.doctor("--timeout", "1s")
			return strings.Contains(got.out+got.err, "12 checks, 0 findings, 1 not done")
		})
		got.want(t, exitFailed, "not checked: keys", "orders", "no answer within 1s")
		_, err = conn.ExecContext(t.Context(), unlock)
		must(t, err)
	}, "mariadb", "mysql", "postgres")
}

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
	options := []uidplugin.Option{uidplugin.WithRegistry(registry.Open(t, nil))}
	if name != "" {
		options = append(options, uidplugin.WithDatabaseName(name))
	} else if s.name = other.Schema; other.Path != "" {
		s.name += "." + other.Path
	}
	s.id = shopWith(t, s.db, options, "elsewhere")[0]
	return s
}

// Tables of a database without a connection are not reported as healthy. Its rows are read with --database.
func TestCommands_NameADatabaseThatIsElsewhere(t *testing.T) {
	t.Parallel()
	sqlite := testkit.Engine{Name: "sqlite"}
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		s := newShards(t, sqlite.New(t), d, "shard-1")
		r := runner{t: t, dsn: dsn(s.registry)}
		r.run("doctor").want(t, exitFailed, `not checked: keys: databases of the registry are not on this connection: `+
			`"shard-1" (1 table)`, "--database NAME=DSN", "0 findings, 1 not done")
		r.run("where", "--row", s.id.String()).want(t, exitWrong, "orders", "--database shard-1=DSN")

		there := "shard-1=" + dsn(d)
		r.run("doctor", "--database", there).want(t, exitOK, "0 findings, 0 not done")
		r.run("where", "--row", "--database", there, s.id.String()).want(t, exitOK, "elsewhere")
		r.run("doctor", "--database", "shard-2="+dsn(d)).want(t, exitFailed, `no table of a database "shard-2"`)
		r.run("doctor", "--database", "shard-1").want(t, exitFailed, "NAME=DSN")

		if d.IsMySQL() { // formerly the doctor looked for WORKER_NODE in this database, which has none
			exec("ALTER TABLE orders MODIFY id BIGINT NOT NULL AUTO_INCREMENT",
				"INSERT INTO orders (text) VALUES ('old')"+strings.Repeat(", ('old')", 19))(t, s.db)
			r.run("doctor", "--database", there).want(t, exitWrong, "the database numbers shard-1.orders.id",
				" rows with the largest keys", "1 finding, 0 not done")
		}
		must(t, s.db.Exec("INSERT INTO orders (id, text) VALUES (1600000000000000000, 'of Discord')").Error)
		r.run("doctor", "--database", there).want(t, exitWrong, "the largest key of shard-1.orders is 1600000000000000000")
		r.run("where", "--json", "--database", "shard-1=mysql://u:12/s3cr3t@h/x", s.id.String()).want(t, exitFailed, "shard-1")
	})
}

// Another database of the same server is read without a data source name.
func TestCommands_ReadADatabaseOfTheSameServer(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		s := newShards(t, d, d.Elsewhere(t), "")
		r := runner{t: t, dsn: dsn(d)}
		r.doctor().want(t, exitOK, "0 findings, 0 not done")
		// Another server may have a database of this name. Formerly the row was looked for there without a warning.
		r.run("where", "--row", s.id.String()).want(t, exitOK, "row, of the database "+s.name+" on this server", "elsewhere")
		must(t, s.db.Exec("DELETE FROM orders").Error)
		r.run("where", "--row", s.id.String()).want(t, exitWrong, "if "+s.name+" is on another server, pass --database "+s.name+"=DSN")
		must(t, s.db.Exec("INSERT INTO orders (id, text) VALUES (1600000000000000000, 'of Discord')").Error)
		r.doctor().want(t, exitWrong, admin.CodeKeyAhead, "largest key of "+s.name+".orders")

		// Formerly the command panicked when a view had the table's former name.
		exec("ALTER TABLE orders RENAME TO purchases", "CREATE VIEW orders AS SELECT * FROM purchases")(t, s.db)
		r.run("doctor").want(t, exitFailed, "are not on this connection: "+strconv.Quote(s.name)+" (1 table)")
	}, "mariadb", "mysql", "postgres")
}

// A database with registries in several schemas needs --schema.
func TestCommands_NameTheSchema(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		here, there := d, d.Elsewhere(t)
		ids := map[string]uidplugin.ID{}
		for _, of := range []*testkit.Database{here, there} {
			name := of.Current()
			ids[name] = shopWith(t, of.Open(t, nil), []uidplugin.Option{uidplugin.WithSchema(name)}, name)[0]
		}
		r := runner{t: t, dsn: dsn(d)}
		r.run("status").want(t, exitFailed, "--schema", here.Current(), there.Current())
		for schema, id := range ids {
			r.run("where", id.String(), "--schema", schema).want(t, exitOK, "orders")
			r.run("sql", "--schema", schema).want(t, exitOK, `"`+schema+`"."WORKER_NODE"`, `"`+schema+`".uid_time`)
		}
		r.run("status", "--schema", "missing").want(t, exitFailed, `"missing"`)
	}, "postgres")
	r := runner{t: t, dsn: "sqlite:" + (testkit.Engine{Name: "sqlite"}).New(t).Schema}
	r.run("status", "--schema", "shop").want(t, exitFailed, "--schema", "PostgreSQL")
}

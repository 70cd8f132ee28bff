package consume_test

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/follow"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	engine "github.com/uidplugin/uidplugin/internal/follow"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	gormschema "gorm.io/gorm/schema"
)

// The consumer has a table in each of two schemas, and its cursors are in one database.
func TestConsume_FollowsTablesOfTwoSchemasIntoAnotherDatabase(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db, into, schema := shop(t, d, nil), effectsElsewhere(t), d.Beside(t)
		place(t, db, 2, "Ulm")
		consumer := consumeMails(t, db, follow.Into(into))
		effectsCome(t, into, "mails", 2)
		consumer.stop(t)
		there := d.Open(t, &gorm.Config{NamingStrategy: &gormschema.NamingStrategy{TablePrefix: schema + "."}})
		harness.Use(t, there)
		like := map[bool]string{true: " LIKE orders", false: " (LIKE orders INCLUDING ALL)"}[d.IsMySQL()]
		testkit.Must(t, db.Exec("CREATE TABLE "+schema+".orders"+like).Error)
		testkit.Must(t, follow.Enable(t.Context(), there, &order{}, follow.WithSlack(slack)))
		place(t, there, 1, "Bonn")
		consumer = consumeMails(t, there, follow.Into(into))
		effectsCome(t, into, "mails", 3)
		consumer.stop(t)
	}, servers...)
}

// Two tenants have tables of one name, in schemas that the models do not name, and consumers of one name that write into
// one database. With one cursor for both, each would pass over the rows of the other.
func TestConsume_SchemasOfTenantsHaveTheirOwnCursorsInAnotherDatabase(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		into := effectsElsewhere(t)
		tenants, shared := []*gorm.DB{shop(t, d, nil)}, uidplugin.WithSchema("public")
		tenants = append(tenants, shop(t, d.Elsewhere(t), nil, shared), shop(t, d.Elsewhere(t), nil, shared))
		for _, db := range tenants {
			place(t, db, 2, "Ulm")
		}
		slices.Reverse(tenants) // ids of the others are below those of the first
		for i, db := range tenants {
			consumer := consumeMails(t, db, follow.Into(into))
			effectsCome(t, into, "mails", 2*(i+1))
			consumer.stop(t)
		}
	}, "postgres")
}

// The cursor is in another database. While the consumer is stopped, its table gets another name or schema, or the model
// begins or ceases to name the schema. With a second cursor all rows would be handled again.
func TestConsume_ATableOfASchemaGetsNoSecondCursorInAnotherDatabase(t *testing.T) {
	t.Parallel()
	const inSchema, named, inPublic = "", "tenant.", "public"
	for name, c := range map[string]struct {
		before, after string // how the model and the handle find the table
		change        string
		want          string // the error, and the cursor with which the consumer goes on
		space, table  string
	}{
		"the model names the schema now": {inSchema, named, "SELECT 1",
			"let TableName return orders; or end all its processes, and set SPACE", "", "tenant.orders"},
		"the model does not name the schema any more": {named, inSchema, "SELECT 1",
			"let TableName return tenant.orders; or end all its processes, and set SPACE", ".tenant", "orders"},
		"the table has left public": {inPublic, inSchema, "ALTER TABLE public.orders SET SCHEMA tenant",
			".orders, which is not a table any more", ".tenant", "orders"},
		"public has another table of the old name": {inSchema, inSchema,
			"ALTER TABLE tenant.orders RENAME TO purchases; CREATE TABLE public.orders (id bigint)",
			"set TABLE_NAME of this row of UID_CURSOR to purchases", ".tenant", "purchases"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testkit.Each(t, func(t *testing.T, d *testkit.Database) {
				into, admin := effectsElsewhere(t), d.Open(t, nil)
				testkit.Must(t, admin.Exec("CREATE SCHEMA tenant").Error)
				open := func(how string) *gorm.DB {
					process, config := *d, &gorm.Config{}
					switch how {
					case inSchema:
						process.Path = "tenant,public"
					case named:
						config.NamingStrategy = &gormschema.NamingStrategy{TablePrefix: named}
					}
					return shop(t, &process, config, uidplugin.WithSchema("public"))
				}
				db := open(c.before)
				place(t, db, 2, "Ulm")
				consumer := consumeMails(t, db, follow.Into(into))
				effectsCome(t, into, "mails", 2)
				consumer.stop(t)
				testkit.Must(t, follow.Disable(t.Context(), db, &order{}))
				for _, statement := range strings.Split(c.change, "; ") {
					testkit.Must(t, admin.Exec(statement).Error)
				}
				if c.table == "purchases" {
					testkit.Must(t, follow.Enable(t.Context(), db, &purchase{}, follow.WithSlack(slack)))
					consumer = consumePurchases(t, db, follow.Into(into))
				} else {
					db = open(c.after)
					consumer = consumeMails(t, db, follow.Into(into))
				}
				failsWith(t, db, c.want)
				testkit.Must(t, into.Exec("UPDATE UID_CURSOR SET SPACE = ?, TABLE_NAME = ?", d.Schema+c.space, c.table).Error)
				if c.table == "purchases" {
					buy(t, db)
				} else {
					place(t, db, 1, "Bonn")
				}
				effectsCome(t, into, "mails", 3)
				consumer.stop(t)
			}, "postgres")
		})
	}
}

// Both tables of a consumer move from public to a schema, and their cursors are in another database. The error about one
// table must not name the cursor of the other: people would remove it, so that all effects of that table happen again.
func TestConsume_TablesThatHaveLeftPublicAreToldApart(t *testing.T) {
	t.Parallel()
	for name, had := range map[string]bool{"both have cursors": true, "one is new to the consumer": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testkit.Each(t, func(t *testing.T, d *testkit.Database) { leavePublic(t, d, had) }, "postgres")
		})
	}
}

func leavePublic(t *testing.T, d *testkit.Database, had bool) {
	into, there := effectsElsewhere(t), d.Elsewhere(t)
	all := 0
	come := func(n int) {
		t.Helper()
		all += n
		eventually(t, "the effects came", func() bool { return len(effects(t, into, "mails")) >= all })
	}
	db := shop(t, d, nil)
	testkit.Must(t, uidplugin.From(db).AutoMigrate(&purchase{}))
	testkit.Must(t, follow.Enable(t.Context(), db, &purchase{}, follow.WithSlack(slack)))
	place(t, db, 2, "Ulm")
	buy(t, db)
	consumer := consumeMails(t, db, follow.Into(into))
	come(2)
	consumer.stop(t)
	if had {
		consumer = consumePurchases(t, db, follow.Into(into))
		come(1)
		consumer.stop(t)
	}
	for _, model := range []any{&order{}, &purchase{}} {
		testkit.Must(t, follow.Disable(t.Context(), db, model))
	}
	for _, table := range []string{"orders", "purchases"} {
		testkit.Must(t, db.Exec("ALTER TABLE "+table+" SET SCHEMA "+there.Path).Error)
	}

	space := d.Schema + "." + there.Path
	correct := func(table string) {
		t.Helper()
		failsWith(t, db, "it has a cursor for "+d.Schema+"."+table+", which is not a table any more: if it was renamed to "+space+"."+table+
			", set SPACE and TABLE_NAME of this row of UID_CURSOR to "+space+" and "+table)
		testkit.Must(t, into.Exec("UPDATE UID_CURSOR SET SPACE = ? WHERE TABLE_NAME = ?", space, table).Error)
	}
	db = shop(t, there, nil, uidplugin.WithSchema("public"))
	testkit.Must(t, follow.Enable(t.Context(), db, &purchase{}, follow.WithSlack(slack)))
	consumer = consumePurchases(t, db, follow.Into(into))
	if had {
		correct("purchases")
		buy(t, db)
	}
	come(1)
	consumer.stop(t)
	consumer = consumeMails(t, db, follow.Into(into))
	correct("orders")
	place(t, db, 1, "Bonn")
	come(1)
	consumer.stop(t)
	if got := effects(t, into, "mails"); len(got) != all {
		t.Errorf("%d effects, want %d", len(got), all)
	}
}

// A consumer looks for its table, which does not exist. The table appears, and another follower of the process finds it
// before the consumer goes on. Its cursor must have the schema where the table is, because a later start looks there.
func TestConsume_ATableThatAnotherFollowerHasFoundHasOneCursorInAnotherDatabase(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		into, schema, here := effectsElsewhere(t), d.Beside(t), shop(t, d, nil)
		place(t, here, 2, "Ulm")
		db, wire := testkit.OpenWire(t, d, "search_path="+schema+",public")
		harness.Use(t, db)
		testkit.Must(t, db.Exec("CREATE TABLE purchases (LIKE orders INCLUDING ALL)").Error)
		testkit.Must(t, follow.Enable(t.Context(), db, &purchase{}))
		testkit.Must(t, db.Exec("ALTER TABLE orders RENAME TO hidden").Error)
		var once atomic.Bool
		appeared := make(chan error, 1)
		wire.Set(func(c *testkit.Crossing) error {
			err := c.Run()
			if c.Is("SELECT COALESCE(nspname") && once.CompareAndSwap(false, true) {
				failed := here.Exec("ALTER TABLE hidden RENAME TO orders").Error
				if failed == nil {
					_, failed = follow.Settled(t.Context(), db, &order{})
				}
				appeared <- failed
			}
			return err
		})
		consumer := consumeMails(t, db, follow.Into(into))
		testkit.Must(t, <-appeared)
		effectsCome(t, into, "mails", 2)
		consumer.stop(t)
		var spaces []string
		testkit.Must(t, into.Table("UID_CURSOR").Pluck("SPACE", &spaces).Error)
		if !slices.Equal(spaces, []string{d.Schema}) {
			t.Errorf("SPACE is %v, not %s", spaces, d.Schema)
		}
	}, "postgres")
}

// Applications with a database for each tenant leave the last tenant's on the connections of their pool. If SPACE named
// it, all effects would happen again, or the consumer would share the cursor of that tenant's table.
func TestConsume_AConnectionThatWasLeftInAnotherDatabaseLeadsToNoOtherCursor(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		elsewhere, writer, db, into := d.Beside(t), shop(t, d, nil), shop(t, d, nil), effectsElsewhere(t)
		place(t, writer, 2, "Ulm")
		consumer := consumeMails(t, db, follow.Into(into))
		effectsCome(t, into, "mails", 2)
		consumer.stop(t)
		pool, err := db.DB()
		testkit.Must(t, err)
		pool.SetMaxOpenConns(4)
		pool.SetMaxIdleConns(4)
		set := map[bool]string{true: "USE ", false: "SET search_path TO "}[d.IsMySQL()] + elsewhere
		conns := make([]*sql.Conn, 4)
		for i := range conns {
			conns[i], err = pool.Conn(t.Context())
			testkit.Must(t, err)
			_, err = conns[i].ExecContext(t.Context(), set)
			testkit.Must(t, err)
		}
		for _, conn := range conns {
			testkit.Must(t, conn.Close())
		}
		place(t, writer, 1, "Bonn")
		consumer = consumeMails(t, db, follow.Into(into))
		eventually(t, "the effect came", func() bool {
			got := effects(t, into, "mails")
			return len(got) > 2 && got[len(got)-1] == lastOrder(t, writer)
		})
		consumer.stop(t)
		if got := effects(t, into, "mails"); len(got) != 3 {
			t.Errorf("%d effects instead of 3", len(got))
		}
	}, servers...)
}

func lastOrder(t *testing.T, db *gorm.DB) (id int64) {
	t.Helper()
	testkit.Must(t, db.Model(&order{}).Select("MAX(id)").Scan(&id).Error)
	return id
}

// The database of the effects has two schemas in its search path. UID_CURSOR with the cursor is in the second one, and
// then a table of the first one is followed, so it gets a UID_CURSOR, too.
func TestConsume_ANewUidCursorEarlierInTheSearchPathHidesNoCursor(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		first, db := d.Elsewhere(t), testkit.SQLite{}.Open(t)
		shop(t, d, nil) // public has the tables of effects, and UID_CURSOR
		into := d.Open(t, nil, "search_path="+first.Path+",public")
		harness.Use(t, db, uidplugin.WithWorkerID(1))
		testkit.Must(t, db.AutoMigrate(&order{}))
		testkit.Must(t, follow.Enable(t.Context(), db, &order{}, follow.WithSlack(slack)))
		place(t, db, 2, "Ulm")
		consumer := consumeMails(t, db, follow.Into(into))
		effectsCome(t, into, "mails", 2)
		consumer.stop(t)

		testkit.Must(t, first.Open(t, nil).Exec("CREATE TABLE letters (id bigint PRIMARY KEY)").Error)
		testkit.Must(t, engine.Enable(t.Context(), connect(t, first.Open(t, nil)), engine.Table{Name: "letters", Key: "id", Slack: time.Second}))
		consumer = consumeMails(t, db, follow.Into(into))
		failsWith(t, db, "its cursor is in the schema public, but now the search path leads to UID_CURSOR of "+first.Path)
		testkit.Must(t, into.Exec(`WITH moved AS (DELETE FROM public."UID_CURSOR" RETURNING *) INSERT INTO "UID_CURSOR" SELECT * FROM moved`).Error)
		place(t, db, 1, "Bonn")
		effectsCome(t, into, "mails", 3)
		consumer.stop(t)
	}, "postgres")
}

// The models name the schemas of tenants, and each tenant has a user. A new consumer looks whether the other tables of
// its name exist, for which its user needs no privilege.
func TestConsume_AUserNeedsNoPrivilegeInTheSchemaOfAnotherTenant(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db, into, schema := shop(t, d, nil), effectsElsewhere(t), d.Beside(t)
		place(t, db, 1, "Ulm")
		consumer := consumeMails(t, db, follow.Into(into))
		effectsCome(t, into, "mails", 1)
		consumer.stop(t)
		testkit.Must(t, into.Exec("UPDATE UID_CURSOR SET TABLE_NAME = ?", schema+".orders").Error)
		testkit.Must(t, db.Exec("CREATE TABLE "+schema+".orders (LIKE orders)").Error)
		user := harness.NewUser(t, d)
		user.Grant("ALL")
		testkit.Must(t, db.Exec("GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO PUBLIC").Error)
		plain := user.Open()
		harness.Use(t, plain)
		consumer = consumeMails(t, plain, follow.Into(into))
		effectsCome(t, into, "mails", 2)
		consumer.stop(t)
	}, "postgres")
}

// Two consumers look for their table at the same time, and a table of an earlier schema appears meanwhile. They follow
// one table, because otherwise the cursor of one would get the rows of the other.
func TestConsume_ALateLookupDoesNotChangeTheTableOfOtherConsumers(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		first, into := d.Elsewhere(t), effectsElsewhere(t)
		shop(t, d, nil) // public has another table of the name
		there := shop(t, first, nil, uidplugin.WithSchema("public"))
		place(t, there, 1, "Ulm")
		hidden := func(from, to string) error {
			return there.Exec("ALTER TABLE " + first.Path + "." + from + " RENAME TO " + to).Error
		}
		testkit.Must(t, hidden("orders", "hidden"))
		db, wire := testkit.OpenWire(t, d, "search_path="+first.Path+",public")
		harness.Use(t, db)
		var once atomic.Bool
		other := make(chan *running, 1)
		wire.Set(func(c *testkit.Crossing) error {
			err := c.Run()
			if c.Is("SELECT COALESCE(nspname") && once.CompareAndSwap(false, true) { // it has found the table in public
				testkit.Must(t, hidden("hidden", "orders"))
				other <- start(t, func(ctx context.Context) error {
					return follow.Consume(ctx, db, "bills", write("bills"), follow.Into(into))
				})
				effectsCome(t, into, "bills", 1)
			}
			return err
		})
		late := consumeMails(t, db, follow.Into(into))
		bills := <-other
		effectsCome(t, into, "mails", 1)
		place(t, there, 1, "Bonn")
		effectsCome(t, into, "mails", 2)
		effectsCome(t, into, "bills", 2)
		bills.stop(t)
		late.stop(t)
	}, "postgres")
}

// The table appears while the consumer starts, and the search path leads to another UID_CURSOR before. With a cursor
// there, the rows would be handled again: at the next start, or at once if the table has left an old cursor there.
func TestConsume_ACursorIsInTheSchemaOfATableThatHasJustAppeared(t *testing.T) {
	t.Parallel()
	for name, left := range map[string]bool{"new": false, "with an old cursor in another schema": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testkit.Each(t, func(t *testing.T, d *testkit.Database) { appears(t, d, left) }, "postgres")
		})
	}
}

func appears(t *testing.T, d *testkit.Database, left bool) {
	schema, here := d.Beside(t), shop(t, d, nil)
	place(t, here, 2, "Ulm")
	db, wire := testkit.OpenWire(t, d, "search_path="+schema+",public")
	harness.Use(t, db)
	testkit.Must(t, db.Exec("CREATE TABLE purchases (LIKE orders INCLUDING ALL)").Error)
	testkit.Must(t, follow.Enable(t.Context(), db, &purchase{}))
	if left {
		consumer := consumeMails(t, here)
		finished(t, here, "mails")
		consumer.stop(t)
		testkit.Must(t, db.Exec(`INSERT INTO "UID_CURSOR" ("CONSUMER", "SPACE", "TABLE_NAME", "LAST_ID") VALUES ('mails', '', 'orders', 0)`).Error)
	}
	testkit.Must(t, db.Exec("ALTER TABLE orders RENAME TO hidden").Error)
	appear := sync.OnceValue(func() error { return db.Exec("ALTER TABLE hidden RENAME TO orders").Error })
	appeared := make(chan error, 1)
	wire.Set(func(c *testkit.Crossing) error {
		err := c.Run()
		if c.Is("SELECT LAST_ID") {
			select {
			case appeared <- appear():
			default:
			}
		}
		return err
	})
	consumer := consumeMails(t, db)
	testkit.Must(t, <-appeared)
	place(t, here, 1, "Bonn")
	finished(t, here, "mails")
	consumer.stop(t)
	var n int
	if err := db.Raw(`SELECT COUNT(*) FROM public."UID_CURSOR"`).Scan(&n).Error; err != nil || n != 1 {
		t.Errorf("%d cursors in the schema of the table, %v", n, err)
	}
}

// A consumer may start before its table exists, or while another table takes its name.
func TestConsume_WaitsForATableThatDoesNotExistYet(t *testing.T) {
	t.Parallel()
	for name, withInto := range map[string]bool{"without Into": false, "with Into": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testkit.Each(t, func(t *testing.T, d *testkit.Database) {
				db, into, options := shop(t, d, nil), effectsElsewhere(t), []follow.ConsumeOption(nil)
				if place(t, db, 2, "Ulm"); withInto {
					options = append(options, follow.Into(into))
				} else {
					into = db
				}
				testkit.Must(t, db.Migrator().RenameTable("orders", "hidden"))
				consumer := consumeMails(t, db, options...)
				failsWith(t, db, "orders")
				testkit.Must(t, db.Migrator().RenameTable("hidden", "orders"))
				effectsCome(t, into, "mails", 2)
				consumer.stop(t)
			})
		})
	}
}

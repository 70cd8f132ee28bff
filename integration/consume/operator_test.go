package consume_test

import (
	"context"
	"errors"
	"log/slog"
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
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	gormschema "gorm.io/gorm/schema"
)

func connect(t *testing.T, db *gorm.DB) *sqldb.DB {
	t.Helper()
	conn, err := sqldb.Open(db, time.Minute)
	testkit.Must(t, err)
	return conn
}

var mails = engine.ConsumerKey{Consumer: "mails", Table: "orders"}

// consumeMails runs a process of the consumer on a handle of its own.
func consumeMails(t *testing.T, db *gorm.DB, options ...follow.ConsumeOption) *running {
	t.Helper()
	return start(t, func(ctx context.Context) error { return follow.Consume(ctx, db, "mails", write("mails"), options...) })
}

// works waits until one of several processes works.
func works(t *testing.T, all ...*gorm.DB) (i int) {
	t.Helper()
	eventually(t, "a process works", func() bool {
		i = slices.IndexFunc(all, func(db *gorm.DB) bool {
			s := follow.Stats(db)
			return len(s) > 0 && len(s[0].Consumers) > 0 && s[0].Consumers[0].Works
		})
		return i >= 0
	})
	return i
}

func TestConsume_AnOperatorActsWhileItRuns(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := shop(t, d, nil)
		place(t, db, 3, "Ulm")
		processes := []*gorm.DB{shop(t, d, nil), shop(t, d, nil)}
		all := []*running{consumeMails(t, processes[0]), consumeMails(t, processes[1])}
		finished(t, db, "mails")

		before := effects(t, db, "mails")
		testkit.Must(t, engine.ResetConsumer(t.Context(), connect(t, db), mails, before[0]))
		eventually(t, "the rows came again", func() bool { return len(effects(t, db, "mails")) == 5 })
		if got := effects(t, db, "mails")[3:]; !slices.Equal(got, before[1:]) {
			t.Errorf("after the reset the effects are %v, not %v", got, before[1:])
		}

		testkit.Must(t, engine.PauseConsumer(t.Context(), connect(t, db), mails, true))
		place(t, db, 2, "Bonn")
		eventually(t, "the processes noticed the pause", func() bool {
			return !slices.ContainsFunc(processes, func(db *gorm.DB) bool { return !follow.Stats(db)[0].Consumers[0].Paused })
		})
		if n := len(effects(t, db, "mails")); n != 5 {
			t.Errorf("a paused consumer has made effects: %d", n)
		}
		testkit.Must(t, engine.PauseConsumer(t.Context(), connect(t, db), mails, false))
		eventually(t, "the consumer went on", func() bool { return len(effects(t, db, "mails")) == 7 })

		testkit.Must(t, engine.RemoveConsumer(t.Context(), connect(t, db), mails))
		for _, r := range all {
			if err := <-r.ended; !errors.Is(err, follow.ErrRemoved) {
				t.Errorf("after the removal: %v", err)
			}
		}
		if keys, err := engine.ConsumersOf(t.Context(), connect(t, db), "orders"); err != nil || len(keys) > 0 {
			t.Errorf("%v, %v", keys, err)
		}
	})
}

// The pool of the process that works is closed, as if it was killed: it cannot give up the cursor.
func TestConsume_AnotherProcessTakesOver(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := shop(t, d, nil)
		processes := []*gorm.DB{shop(t, d, nil), shop(t, d, nil)}
		all := []*running{consumeMails(t, processes[0]), consumeMails(t, processes[1])}
		place(t, db, 3, "Ulm")
		i := works(t, processes...)
		testkit.Must(t, testkit.Close(processes[i]))
		place(t, db, 3, "Bonn")
		finished(t, db, "mails")
		all[i].cancel()
		all[1-i].stop(t)
	})
}

// While a handler takes longer than the term, other processes must not wait for its lock: one of them would become the
// holder before the skip is stored, so the row would come again for ever. A batch that fails comes again row by row.
func TestConsume_SkipsARowThatTakesLongerThanTheTerm(t *testing.T) {
	t.Parallel()
	testkit.SkipIfShort(t, "it takes a dozen seconds")
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := shop(t, d, nil)
		orders := place(t, db, 4, "Ulm")
		handle := func(tx *gorm.DB, orders []*order) error {
			for _, o := range orders {
				if err := write("mails")(tx, o); err != nil {
					return err
				}
				if o.Price == 1 { // the second
					time.Sleep(3500 * time.Millisecond)
					return follow.Skip
				}
			}
			return nil
		}
		var all []*running
		for i := range 6 {
			process, size := shop(t, d, nil), 3-i%2*2
			all = append(all, start(t, func(ctx context.Context) error { return follow.ConsumeBatch(ctx, process, "mails", size, handle) }))
		}
		eventually(t, "the rows after the slow one were handled", func() bool { return len(effects(t, db, "mails")) >= 3 })
		want := []int64{int64(orders[0].ID), int64(orders[2].ID), int64(orders[3].ID)}
		if got := effects(t, db, "mails"); !slices.Equal(got, want) {
			t.Errorf("the effects are %v, not %v", got, want)
		}
		for _, r := range all {
			r.stop(t)
		}
	})
}

// A process cannot extend its term while its handler is running.
func TestListConsumers_AHandlerThatTakesLongerThanTheTermWorks(t *testing.T) {
	t.Parallel()
	testkit.SkipIfShort(t, "it waits for the end of a term")
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := shop(t, d, nil)
		place(t, db, 1, "Ulm")
		begun, end := make(chan struct{}), make(chan struct{})
		r := start(t, func(ctx context.Context) error {
			return follow.Consume(ctx, db, "mails", func(*gorm.DB, *order) error {
				close(begun)
				<-end
				return nil
			})
		})
		<-begun
		var cursor engine.CursorStatus
		eventually(t, "the term has ended", func() bool {
			list, err := engine.ListConsumers(t.Context(), connect(t, db))
			testkit.Must(t, err)
			cursor = list[0]
			return cursor.Now.After(cursor.Until)
		})
		if !cursor.Held() {
			t.Error("while the handler is running, no process works")
		}
		close(end)
		r.stop(t)
		list, err := engine.ListConsumers(t.Context(), connect(t, db))
		if testkit.Must(t, err); list[0].Held() {
			t.Errorf("after its end %s works", list[0].Holder)
		}
	}, servers...)
}

// A process that stands still in its handler would hold the lock of the cursor for hours. The test sets the limit lower
// than Consume does; it keeps lower limits.
func TestConsume_AProcessThatStandsStillIsCutOff(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := shop(t, d, nil)
		limit := "wait_timeout=2"
		if d.Name == "postgres" {
			limit = "idle_in_transaction_session_timeout=2000"
		}
		still := d.Open(t, nil, limit)
		testkit.Must(t, still.Use(uidplugin.New(uidplugin.WithWorkerID(900), uidplugin.WithLogger(nil))))
		place(t, db, 3, "Ulm")
		var once sync.Once
		standing, goOn := make(chan bool), make(chan bool)
		var late atomic.Value
		r := start(t, func(ctx context.Context) error {
			return follow.Consume(ctx, still, "mails", func(tx *gorm.DB, o *order) (err error) {
				err = write("mails")(tx, o)
				once.Do(func() {
					close(standing)
					<-goOn
					late.Store(tx.Create(&effect{Consumer: "mails", OrderID: 1}).Error != nil)
					err = nil // not even then
				})
				return err
			})
		})
		<-standing
		other := consumeMails(t, shop(t, d, nil))
		finished(t, db, "mails")
		close(goOn)
		eventually(t, "the first process went on", func() bool { return late.Load() != nil })
		if late.Load() != true {
			t.Error("a transaction that has lost its lock could write")
		}
		place(t, db, 3, "Bonn")
		finished(t, db, "mails")
		r.stop(t)
		other.stop(t)
	}, servers...)
}

// A process that stands by does not follow the table. One that ends gives up the cursor, so another need not wait.
func TestConsume_StandingByIsCheap(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		processes := []*gorm.DB{shop(t, d, nil), shop(t, d, nil)}
		first := consumeMails(t, processes[0])
		works(t, processes[0])
		second := consumeMails(t, processes[1])
		eventually(t, "the second has read the cursor", func() bool {
			s := follow.Stats(processes[1])
			return len(s) > 0 && len(s[0].Consumers) > 0
		})
		if s := follow.Stats(processes[1])[0]; s.Followers != 0 || s.Consumers[0].Works {
			t.Errorf("a process that stands by follows: %+v", s)
		}
		first.stop(t) // it gives up the cursor
		works(t, processes[1])
		second.stop(t)
	})
}

// Effects in another database of another kind, whose events' database loses commits.
func TestConsume_IntoAnotherDatabase(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db, into := shop(t, d, nil), testkit.SQLite{}.Open(t)
		testkit.Must(t, into.AutoMigrate(&effect{}, &total{}))
		place(t, db, 3, "Ulm")
		var want []int64
		testkit.Must(t, db.Model(&order{}).Order("id").Pluck("id", &want).Error)
		r := consumeMails(t, db, follow.Into(into))
		eventually(t, "the effects came", func() bool { return len(effects(t, into, "mails")) == 3 })
		r.stop(t)
		if got := effects(t, into, "mails"); !slices.Equal(got, want) {
			t.Errorf("the effects are %v, not %v", got, want)
		}

		// The mark falls back below the cursor, which another process has moved with a mark that is lost.
		future := want[2] + 1<<42 // minutes, which the mark does not reach during the test
		testkit.Must(t, into.Exec(`UPDATE UID_CURSOR SET LAST_ID = ?`, future).Error)
		if err := follow.Consume(t.Context(), db, "mails", write("mails"), follow.Into(into)); err == nil {
			t.Error("no error")
		} else if !strings.Contains(err.Error(), "has lost commits") {
			t.Error(err)
		}
		r = consumeMails(t, db, follow.Into(into), follow.WithRewind())
		eventually(t, "the cursor went back", func() bool {
			last := future
			testkit.Must(t, into.Table("UID_CURSOR").Pluck("LAST_ID", &last).Error)
			return last < future
		})
		place(t, db, 1, "Bonn")
		eventually(t, "the new row came", func() bool { return len(effects(t, into, "mails")) == 4 })
		r.stop(t)
	})
}

// A purchase is an order after the table was renamed.
type purchase order

// Whatever else has the old name does not hide the rename, such as a view for processes with the old model.
func TestConsume_ARenamedTableGetsNoSecondCursor(t *testing.T) {
	t.Parallel()
	engines := map[string][]string{"materialized view": {"postgres"}, "broken view": {"sqlite", "mariadb", "mysql"}} // nil means all
	for name, statements := range map[string][]string{
		"name is free":      nil,
		"view":              {"CREATE VIEW orders AS SELECT * FROM purchases"},
		"materialized view": {"CREATE MATERIALIZED VIEW orders AS SELECT * FROM purchases"},
		"broken view":       {"CREATE TABLE gone (n int)", "CREATE VIEW orders AS SELECT * FROM gone", "DROP TABLE gone"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testkit.Each(t, func(t *testing.T, d *testkit.Database) {
				db := renamed(t, d)
				for _, s := range statements {
					testkit.Must(t, db.Exec(s).Error)
				}
				goesOnAfterTheRename(t, db)
			}, engines[name]...)
		})
	}
}

// renamed returns a handle of a database whose orders are purchases after a consumer has handled two of them.
func renamed(t *testing.T, d *testkit.Database) *gorm.DB {
	t.Helper()
	db := shop(t, d, nil)
	place(t, db, 2, "Ulm")
	consumer := consumeMails(t, db)
	finished(t, db, "mails")
	consumer.stop(t)
	testkit.Must(t, db.Migrator().RenameTable("orders", "purchases"))
	return db
}

// On MySQL and MariaDB a user cannot tell a table that it may not see from one that does not exist. PostgreSQL shows
// that the name is a view.
func TestConsume_AUserWithoutPrivilegesOnTheOldNameGetsNoSecondCursor(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := renamed(t, d)
		testkit.Must(t, follow.Enable(t.Context(), db, &purchase{}, follow.WithSlack(slack)))
		user, want := harness.NewUser(t, d), "this user is not allowed to see the table"
		tables, err := db.Migrator().GetTables()
		testkit.Must(t, err)
		for _, name := range tables {
			user.Grant("SELECT, INSERT, UPDATE, DELETE, TRIGGER", name)
		}
		if d.Name == "postgres" {
			want = "uid tables rename orders purchases"
			testkit.Must(t, db.Exec("GRANT SELECT, UPDATE ON ALL SEQUENCES IN SCHEMA public TO PUBLIC").Error)
		}
		testkit.Must(t, db.Exec("CREATE VIEW orders AS SELECT * FROM purchases").Error)
		plain := user.Open()
		testkit.Must(t, plain.Use(uidplugin.New(uidplugin.WithLogger(slog.New(slog.DiscardHandler)))))
		t.Cleanup(func() { _ = uidplugin.From(plain).Close(context.Background()) })
		consumer := consumePurchases(t, plain)
		failsWith(t, plain, want)
		consumer.stop(t)
		if got := effects(t, db, "mails"); len(got) != 2 {
			t.Errorf("%d effects instead of 2", len(got))
		}
	}, servers...)
}

// The cursor is in another database than the table that was renamed.
func TestConsume_ARenamedTableGetsNoSecondCursorInAnotherDatabase(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db, into := shop(t, d, nil), testkit.SQLite{}.Open(t)
		testkit.Must(t, into.AutoMigrate(&effect{}, &total{}))
		place(t, db, 2, "Ulm")
		consumer := consumeMails(t, db, follow.Into(into))
		eventually(t, "the effects came", func() bool { return len(effects(t, into, "mails")) == 2 })
		consumer.stop(t)
		testkit.Must(t, db.Migrator().RenameTable("orders", "purchases"))
		testkit.Must(t, follow.Enable(t.Context(), db, &purchase{}, follow.WithSlack(slack)))
		consumer = consumePurchases(t, db, follow.Into(into))
		failsWith(t, db, "set TABLE_NAME of this row of UID_CURSOR to purchases")
		testkit.Must(t, into.Exec("UPDATE UID_CURSOR SET TABLE_NAME = 'purchases'").Error)
		buy(t, db)
		eventually(t, "the consumer goes on", func() bool { return len(effects(t, into, "mails")) == 3 })
		consumer.stop(t)
	})
}

// The consumer has a table in each of two schemas, and its cursors are in one database.
func TestConsume_FollowsTablesOfTwoSchemasIntoAnotherDatabase(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db, into, schema := shop(t, d, nil), testkit.SQLite{}.Open(t), d.Beside(t)
		testkit.Must(t, into.AutoMigrate(&effect{}, &total{}))
		place(t, db, 2, "Ulm")
		consumer := consumeMails(t, db, follow.Into(into))
		eventually(t, "the effects came", func() bool { return len(effects(t, into, "mails")) == 2 })
		consumer.stop(t)
		there := d.Open(t, &gorm.Config{NamingStrategy: &gormschema.NamingStrategy{TablePrefix: schema + "."}})
		testkit.Must(t, there.Use(uidplugin.New(uidplugin.WithLogger(slog.New(slog.DiscardHandler)))))
		t.Cleanup(func() { _ = uidplugin.From(there).Close(context.Background()) })
		like := map[bool]string{true: " LIKE orders", false: " (LIKE orders INCLUDING ALL)"}[d.IsMySQL()]
		testkit.Must(t, db.Exec("CREATE TABLE "+schema+".orders"+like).Error)
		testkit.Must(t, follow.Enable(t.Context(), there, &order{}, follow.WithSlack(slack)))
		place(t, there, 1, "Bonn")
		consumer = consumeMails(t, there, follow.Into(into))
		eventually(t, "the effect came", func() bool { return len(effects(t, into, "mails")) == 3 })
		consumer.stop(t)
	}, servers...)
}

// Two tenants have tables of one name, in schemas that the models do not name, and consumers of one name that write into
// one database. With one cursor for both, each would pass over the rows of the other.
func TestConsume_SchemasOfTenantsHaveTheirOwnCursorsInAnotherDatabase(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		into := testkit.SQLite{}.Open(t)
		testkit.Must(t, into.AutoMigrate(&effect{}, &total{}))
		tenants, shared := []*gorm.DB{shop(t, d, nil)}, uidplugin.WithSchema("public")
		tenants = append(tenants, shop(t, d.Elsewhere(t), nil, shared), shop(t, d.Elsewhere(t), nil, shared))
		for _, db := range tenants {
			place(t, db, 2, "Ulm")
		}
		slices.Reverse(tenants) // ids of the others are below those of the first
		for i, db := range tenants {
			consumer := consumeMails(t, db, follow.Into(into))
			eventually(t, "the effects came", func() bool { return len(effects(t, into, "mails")) == 2*(i+1) })
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
				into, admin := testkit.SQLite{}.Open(t), d.Open(t, nil)
				testkit.Must(t, into.AutoMigrate(&effect{}, &total{}))
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
				eventually(t, "the effects came", func() bool { return len(effects(t, into, "mails")) == 2 })
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
				eventually(t, "the consumer goes on", func() bool { return len(effects(t, into, "mails")) == 3 })
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
	into, there := testkit.SQLite{}.Open(t), d.Elsewhere(t)
	testkit.Must(t, into.AutoMigrate(&effect{}, &total{}))
	come := func(n int) {
		t.Helper()
		eventually(t, "the effects came", func() bool { return len(effects(t, into, "mails")) >= n })
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
		come(3)
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
	come(map[bool]int{true: 4, false: 3}[had])
	consumer.stop(t)
	consumer = consumeMails(t, db, follow.Into(into))
	correct("orders")
	place(t, db, 1, "Bonn")
	come(map[bool]int{true: 5, false: 4}[had])
	consumer.stop(t)
	if got := effects(t, into, "mails"); len(got) != map[bool]int{true: 5, false: 4}[had] {
		t.Errorf("%d effects", len(got))
	}
}

// A consumer looks for its table, which does not exist. The table appears, and another follower of the process finds it
// before the consumer goes on. Its cursor must have the schema where the table is, because a later start looks there.
func TestConsume_ATableThatAnotherFollowerHasFoundHasOneCursorInAnotherDatabase(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		into, schema, here := testkit.SQLite{}.Open(t), d.Beside(t), shop(t, d, nil)
		testkit.Must(t, into.AutoMigrate(&effect{}, &total{}))
		place(t, here, 2, "Ulm")
		db, wire := testkit.OpenWire(t, d, "search_path="+schema+",public")
		testkit.Must(t, db.Use(uidplugin.New(uidplugin.WithLogger(slog.New(slog.DiscardHandler)))))
		t.Cleanup(func() { _ = uidplugin.From(db).Close(context.Background()) })
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
		eventually(t, "the effects came", func() bool { return len(effects(t, into, "mails")) == 2 })
		consumer.stop(t)
		var spaces []string
		testkit.Must(t, into.Table("UID_CURSOR").Pluck("SPACE", &spaces).Error)
		if !slices.Equal(spaces, []string{d.Schema}) {
			t.Errorf("SPACE is %v, not %s", spaces, d.Schema)
		}
	}, "postgres")
}

// The model names the schema of its table. A model of another program names a table there without the schema, because
// the program is connected to that schema.
func TestConsume_LooksForOtherTablesOfAConsumerInTheSchemaOfItsTable(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		schema := d.Beside(t)
		db := d.Open(t, &gorm.Config{NamingStrategy: &gormschema.NamingStrategy{TablePrefix: schema + "."}})
		testkit.Must(t, db.Use(uidplugin.New(uidplugin.WithLogger(slog.New(slog.DiscardHandler)))))
		t.Cleanup(func() { _ = uidplugin.From(db).Close(context.Background()) })
		testkit.Must(t, uidplugin.From(db).AutoMigrate(&order{}, &effect{}, &total{}))
		testkit.Must(t, follow.Enable(t.Context(), db, &order{}, follow.WithSlack(slack)))
		testkit.Must(t, db.Exec("CREATE TABLE "+schema+".invoices (n int)").Error)
		insert := "INSERT INTO " + schema + `."UID_CURSOR" ("CONSUMER", "SPACE", "TABLE_NAME", "LAST_ID") VALUES ('mails', '', 'invoices', 1)`
		if d.IsMySQL() {
			insert = strings.ReplaceAll(insert, `"`, "`")
		}
		testkit.Must(t, db.Exec(insert).Error)
		place(t, db, 2, "Ulm")
		consumer := consumeMails(t, db)
		finished(t, db, "mails")
		consumer.stop(t)
	}, servers...)
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
	testkit.Must(t, db.Use(uidplugin.New(uidplugin.WithLogger(slog.New(slog.DiscardHandler)))))
	t.Cleanup(func() { _ = uidplugin.From(db).Close(context.Background()) })
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
	for name, withInto := range map[string]bool{"cursor beside the table": false, "Into": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testkit.Each(t, func(t *testing.T, d *testkit.Database) {
				db, into, options := shop(t, d, nil), testkit.SQLite{}.Open(t), []follow.ConsumeOption(nil)
				testkit.Must(t, into.AutoMigrate(&effect{}, &total{}))
				if place(t, db, 2, "Ulm"); withInto {
					options = append(options, follow.Into(into))
				} else {
					into = db
				}
				testkit.Must(t, db.Migrator().RenameTable("orders", "hidden"))
				consumer := consumeMails(t, db, options...)
				failsWith(t, db, "orders")
				testkit.Must(t, db.Migrator().RenameTable("hidden", "orders"))
				eventually(t, "the effects came", func() bool { return len(effects(t, into, "mails")) == 2 })
				consumer.stop(t)
			})
		})
	}
}

func consumePurchases(t *testing.T, db *gorm.DB, options ...follow.ConsumeOption) *running {
	t.Helper()
	return start(t, func(ctx context.Context) error {
		return follow.Consume(ctx, db, "mails", func(tx *gorm.DB, p *purchase) error { return write("mails")(tx, (*order)(p)) }, options...)
	})
}

// buy creates a purchase, again if the machine was so busy that it came too late.
func buy(t *testing.T, db *gorm.DB) {
	t.Helper()
	for {
		err := db.Create(&purchase{Town: "Ulm"}).Error
		if err == nil {
			return
		}
		if !errors.Is(err, follow.ErrTooLate) {
			t.Fatal(err)
		}
	}
}

// failsWith waits until the consumer of a handle has an error.
func failsWith(t *testing.T, db *gorm.DB, text string) {
	t.Helper()
	eventually(t, "the consumer has an error: "+text, func() bool {
		return slices.ContainsFunc(follow.Stats(db), func(s follow.TableStats) bool {
			return len(s.Consumers) > 0 && s.Consumers[0].LastError != nil && strings.Contains(s.Consumers[0].LastError.Error(), text)
		})
	})
}

func goesOnAfterTheRename(t *testing.T, db *gorm.DB) {
	t.Helper()
	testkit.Must(t, follow.Enable(t.Context(), db, &purchase{}, follow.WithSlack(slack)))
	consumer := consumePurchases(t, db)
	failsWith(t, db, "uid tables rename orders purchases")
	if got := effects(t, db, "mails"); len(got) != 2 {
		t.Errorf("%d effects instead of 2", len(got))
	}
	_, left, err := engine.RenameConsumers(t.Context(), connect(t, db), "orders", "purchases")
	if err != nil || len(left) > 0 {
		t.Fatal(left, err)
	}
	buy(t, db)
	eventually(t, "the consumer goes on", func() bool { return len(effects(t, db, "mails")) == 3 })
	consumer.stop(t)
}

// The cursor is on a server, and the database of the events loses commits while no process of the consumer works.
func TestConsume_TheCursorOfAnotherDatabaseHasTheMark(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db, into := testkit.SQLite{}.Open(t), d.Open(t, nil)
		testkit.Must(t, db.Use(uidplugin.New(uidplugin.WithWorkerID(1), uidplugin.WithLogger(nil))))
		t.Cleanup(func() { _ = uidplugin.From(db).Close(context.Background()) })
		testkit.Must(t, db.AutoMigrate(&order{}))
		testkit.Must(t, into.AutoMigrate(&effect{}, &total{}))
		testkit.Must(t, follow.Enable(t.Context(), db, &order{}, follow.WithSlack(slack)))
		orders := place(t, db, 3, "Ulm")
		r := consumeMails(t, db, follow.Into(into))
		eventually(t, "the effects came", func() bool { return len(effects(t, into, "mails")) == 3 })
		r.stop(t)
		testkit.Must(t, db.Exec("UPDATE UID_FOLLOW SET PUBLISHED = ?, RECENT = ''", orders[1].ID).Error)
		_, err := follow.Settled(t.Context(), db, &order{})
		testkit.Must(t, err)
		if err := follow.Consume(t.Context(), db, "mails", write("mails"), follow.Into(into)); err == nil || !strings.Contains(err.Error(), "has lost commits") {
			t.Fatal(err)
		}
		r = consumeMails(t, db, follow.Into(into), follow.WithRewind())
		eventually(t, "two effects came again", func() bool { return len(effects(t, into, "mails")) == 5 })
		r.stop(t)
	})
}

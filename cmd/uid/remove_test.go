package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/follow"
	"github.com/uidplugin/uidplugin/internal/admin"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/migrations"
	"github.com/uidplugin/uidplugin/publicid"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// The models of an application that uses everything. Those without the plugin have the same tables.
type (
	usedOrder struct {
		ID    uidplugin.ID `gorm:"comment:of the shop's orders"`
		Items []usedItem   `gorm:"foreignKey:OrderID"`
	}
	usedItem struct {
		uidplugin.Model
		OrderID uidplugin.ID
	}
	customer struct {
		ID   publicid.ID[customer]
		Text string
	}
	event struct {
		ID   int64 `gorm:"primaryKey;uid"`
		Text string
	}
	log struct {
		ID   uint64 `gorm:"primaryKey;uid"`
		Text string
	}
	invoice struct {
		ID   int64 `gorm:"primaryKey;uid:segment"`
		Text string
	}
	note struct {
		ID   string `gorm:"primaryKey;uid;size:20"`
		Text string
	}
	empty struct {
		ID   uidplugin.ID
		Text string
	}

	plainOrder struct {
		ID    int64       `gorm:"comment:of the shop's orders"`
		Items []plainItem `gorm:"foreignKey:OrderID"`
	}
	plainItem struct {
		ID                   int64
		CreatedAt, UpdatedAt time.Time
		DeletedAt            gorm.DeletedAt `gorm:"index"`
		OrderID              int64
	}
	plain struct { // of each other table
		ID   int64
		Text string
	}
)

func (usedOrder) TableName() string   { return "orders" }
func (usedItem) TableName() string    { return "items" }
func (plainOrder) TableName() string  { return "orders" }
func (plainItem) TableName() string   { return "items" }
func (customer) PublicPrefix() string { return "cus" }

// plainTables are tables whose keys the database numbers after the removal, as it does those of orders and items.
var plainTables = []string{"customers", "events", "logs", "invoices", "empties"}

// useEverything is an application that uses all parts of the plugin.
func useEverything(t *testing.T, d *testkit.Database) {
	t.Helper()
	db := d.Open(t, nil)
	p := plugintest.Use(t, db)
	must(t, p.AutoMigrate(&usedOrder{}, &usedItem{}, &customer{}, &event{}, &log{}, &invoice{}, &note{}, &empty{}))
	must(t, follow.Enable(t.Context(), db, &event{}))
	must(t, migrations.CreateFunctions(t.Context(), db))
	for range 3 {
		must(t, db.Create(&usedOrder{Items: []usedItem{{}, {}}}).Error)
		for _, row := range []any{&customer{}, &event{}, &log{}, &invoice{}, &note{}} {
			must(t, db.Create(row).Error)
		}
	}
	testkit.MustClose(t, p)
	if d.Name == "sqlite" {
		return
	}
	statements, err := migrations.PartitionStatements(t.Context(), db, p.Layout(), "logs", "month", 1, 0)
	must(t, err)
	for _, s := range statements {
		must(t, db.Exec(s).Error)
	}
}

// steps returns the steps that a command prints as JSON.
func stepsOf(t *testing.T, got result) (steps []admin.RemovalStep) {
	t.Helper()
	got.want(t, exitOK)
	for line := range strings.Lines(got.out) {
		var s admin.RemovalStep
		must(t, json.Unmarshal([]byte(line), &s))
		steps = append(steps, s)
	}
	return steps
}

func largestKeys(t *testing.T, db *gorm.DB) map[string]int64 {
	t.Helper()
	keys := map[string]int64{}
	for _, table := range append(plainTables, "orders", "items") {
		keys[table] = number(t, db, "SELECT COALESCE(MAX(id), 0) FROM "+table)
	}
	return keys
}

// createPlain creates a row in each table without the plugin, and checks the keys.
func createPlain(t *testing.T, db *gorm.DB) {
	t.Helper()
	before := largestKeys(t, db)
	must(t, db.Create(&plainOrder{Items: []plainItem{{}, {}}}).Error)
	for _, table := range plainTables {
		must(t, db.Table(table).Create(&plain{}).Error)
	}
	for table, n := range largestKeys(t, db) {
		if n <= before[table] {
			t.Errorf("%s: the new key is %d, and the largest old one %d", table, n, before[table])
		}
	}
}

// goesOn checks that nothing of the plugin is left, and that the application can go on without it.
func goesOn(t *testing.T, d *testkit.Database) {
	t.Helper()
	db := d.Open(t, nil)
	for _, table := range []string{"WORKER_NODE", "WORKER_SLOT", "WORKER_SESSION", "WORKER_REGISTRY", "UID_FOLLOW", "UID_FOLLOW_GATE", "UID_CURSOR", "uid_origin"} {
		if db.Migrator().HasTable(table) {
			t.Errorf("%s is still there", table)
		}
	}
	createPlain(t, db)
	createPlain(t, db)
	must(t, db.AutoMigrate(&plainOrder{}, &plainItem{}))
	for _, table := range plainTables {
		if table != "logs" { // which has partitions
			must(t, db.Table(table).AutoMigrate(&plain{}))
		}
	}
	createPlain(t, db)
	var comment string
	if d.IsMySQL() {
		must(t, db.Raw("SELECT column_comment FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'orders' AND column_name = 'id'").Scan(&comment).Error)
		if comment != "of the shop's orders" {
			t.Errorf("the comment of the key is %q", comment)
		}
	}
	got := runner{t: t, dsn: dsn(d)}.run("remove")
	if got.want(t, exitOK, "without WORKER_REGISTRY the tables with ids are not known"); strings.Contains(got.out, "uid_") || strings.Contains(got.out, "UID_") {
		t.Errorf("after the removal:\n%s", got.out)
	}
}

// Formerly no page named the triggers of followed tables, which refused all rows without the plugin, and nothing let
// the database number the keys.
func TestRemove_TheApplicationGoesOnWithoutThePlugin(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		printed := d.New(t)
		useEverything(t, d)
		useEverything(t, printed)

		r := runner{t: t, dsn: dsn(d)}
		before := r.run("remove", "--table", "empties")
		before.want(t, exitOK, "-- End following", "-- By hand: notes.id is a text", "-- By hand: leaf_alloc stays", "events.id", "DROP VIEW")
		if again := r.run("remove", "--table", "empties"); again.out != before.out {
			t.Errorf("it has changed something: it printed\n%s\nand then\n%s", before.out, again.out)
		}
		done := r.run("remove", "--table", "empties", "--yes").want(t, exitOK)
		if done.out != before.out {
			t.Errorf("it printed\n%s\nand ran\n%s", before.out, done.out)
		}
		goesOn(t, d)

		db := printed.Open(t, nil)
		for _, s := range stepsOf(t, runner{t: t, dsn: dsn(printed)}.run("remove", "--json", "--table", "empties")) {
			must(t, db.Connection(func(conn *gorm.DB) error {
				for _, statement := range s.SQL {
					if err := conn.Exec(statement).Error; err != nil {
						return err
					}
				}
				return nil
			}))
		}
		goesOn(t, printed)
	})
}

// With a schema of its own, the plugin's tables, functions and segments are not in the schema of the application's.
func TestRemove_NamesTheSchema(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		schema := d.Beside(t)
		db := d.Open(t, nil)
		p := plugintest.Use(t, db, uidplugin.WithSchema(schema))
		must(t, p.AutoMigrate(&event{}, &invoice{}))
		must(t, follow.Enable(t.Context(), db, &event{}))
		must(t, migrations.CreateFunctions(t.Context(), db, migrations.In(schema)))
		must(t, db.Create(&event{}).Error)
		must(t, db.Create(&invoice{}).Error)
		testkit.MustClose(t, p)

		r := runner{t: t, dsn: dsn(d)}
		quoted := `"` + schema + `".`
		r.run("remove", "--yes", "--schema", schema).want(t, exitOK, "DROP VIEW "+quoted+`"uid_origin"`,
			"DROP FUNCTION "+quoted+`"uid_table"(bigint)`, "DROP TABLE "+quoted+`"leaf_alloc"`, "Let the database number invoices.id")
		db = d.Open(t, nil) // without the plugin
		must(t, db.Table("events").Create(&plain{}).Error)
		must(t, db.Table("invoices").Create(&plain{}).Error)
		must(t, db.Exec(`DROP TABLE `+quoted+`leaf_alloc`).Error)
		must(t, db.Exec(`DROP SCHEMA `+schema).Error) // nothing else is in it
	}, "postgres")
}

// A process that runs needs the tables, so nothing is changed.
func TestRemove_RefusesWhileProcessesRun(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		p := plugintest.Use(t, db, uidplugin.WithHost(workernode.Host{Name: "web-1", Port: "8080", Application: "shop"}))
		must(t, p.AutoMigrate(&order{}))
		must(t, db.Create(&order{}).Error)
		r := runner{t: t, dsn: dsn(d)}
		r.run("remove", "--yes").want(t, exitFailed, "processes with the plugin run: shop on web-1, port 8080 (live); end them first")
		r.run("remove").want(t, exitOK, "warning: do not run the statements yet", "web-1", "WORKER_REGISTRY")
		must(t, db.Create(&order{}).Error)
		testkit.MustClose(t, p)
		r.run("remove", "--yes").want(t, exitOK)
	})
}

// The cursor of a consumer is the only record of the rows that it has not handled, such as mails to send. Formerly it
// was dropped without a word.
func TestRemove_RefusesWhileRowsWaitForAConsumer(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		ids := shop(t, db, "web-1", "first", "second")
		followThen(0, insertCursor+` ('mails', '', 'orders', `+ids[0].String()+`, '', 0, 0, '')`)(t, db)
		r := runner{t: t, dsn: dsn(d)}
		r.run("remove", "--yes").want(t, exitFailed, "rows of orders wait for the consumer mails, which is stopped: 1. ",
			`"uid follow consumers remove mails --table orders"`)
		r.run("remove").want(t, exitOK, "warning: do not run the statements yet: rows of orders wait",
			"-- By hand: Note that the consumer mails has handled the rows of orders up to the id "+ids[0].String())
		r.run("follow", "consumers", "reset", "mails", "--to", ids[1].String(), "--yes").want(t, exitOK)
		r.run("remove", "--yes").want(t, exitOK, "up to the id "+ids[1].String())
		if db.Migrator().HasTable("UID_CURSOR") {
			t.Error("UID_CURSOR is still there")
		}
	})
}

// Without the connections of other databases the command is refused, because nothing would number the keys of their
// tables.
func TestRemove_OtherDatabases(t *testing.T) {
	t.Parallel()
	sqlite := testkit.Engine{Name: "sqlite"}
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		s := newShards(t, sqlite.New(t), d, "shard-1")
		there := "shard-1=" + dsn(d)
		r := runner{t: t, dsn: dsn(s.registry)}
		r.run("follow", "enable", "shard-1.orders", "--database", there).want(t, exitOK)
		r.run("remove", "--yes").want(t, exitFailed, `"shard-1" (1 table)`, "--database NAME=DSN")
		r.run("remove", "--yes", "--database", there).want(t, exitOK, "In the database shard-1: ")
		var id int64
		db := d.Open(t, nil)
		must(t, db.Exec("INSERT INTO orders (text) VALUES ('plain')").Error)
		must(t, db.Raw("SELECT id FROM orders WHERE text = 'plain'").Scan(&id).Error)
		if id <= int64(s.id) {
			t.Errorf("the new key %d is not above %d", id, s.id)
		}
	})
}

// The command copes with an earlier run that was interrupted, with other programs that use the same tables, and with
// keys that need other statements.
func TestRemove_TablesAsTheyMayBe(t *testing.T) {
	t.Parallel()
	eachShop(t, func(t *testing.T, d *testkit.Database, db *gorm.DB, r runner) {
		exec(`INSERT INTO "WORKER_NODE" ("ID", "HOST_NAME", "PORT", "TYPE", "LAUNCH_DATE", "MODIFIED", "CREATED") VALUES
			(100, 'java', '1', 1, CURRENT_DATE, CURRENT_TIMESTAMP, CURRENT_TIMESTAMP)`)(t, db)
		r.run("remove").want(t, exitOK, "By hand: WORKER_NODE stays, because UidGenerator uses it",
			"its inserts into a numbered table can fail with duplicate keys")
		must(t, db.Exec("CREATE TABLE pairs (a BIGINT, b BIGINT, PRIMARY KEY (a, b))").Error)
		must(t, db.Exec("CREATE TABLE bigs (id BIGINT NOT NULL PRIMARY KEY, text VARCHAR(10))").Error)
		named := []string{"remove", "--table", "pairs", "--table", "bigs", "--table", "nosuch"}
		r.run(named...).want(t, exitOK, "By hand: pairs does not have a single integer", "By hand: nosuch does not exist")
		if d.Name == "sqlite" {
			r.run(named...).want(t, exitOK, "By hand: SQLite does not number bigs.id, because its type is BIGINT")
		} else {
			r.run("remove").want(t, exitOK, "WORKER_NODE does not have the tables. Pass --table for each", "the plugin sets: bigs\n")
		}
		if d.Name == "postgres" { // a table that had a sequence before the plugin
			must(t, db.Exec("CREATE SEQUENCE s; ALTER TABLE orders ALTER COLUMN id SET DEFAULT nextval('s')").Error)
		}
		exec(`DROP TABLE "WORKER_SESSION"`)(t, db)
		r.run(append(named, "--yes")...).want(t, exitOK)
		must(t, db.Exec("INSERT INTO orders (text) VALUES ('plain')").Error)
		id := number(t, db, "SELECT id FROM orders WHERE text = 'plain'")
		if id <= int64(r.id) {
			t.Errorf("the new key %d is not above %d", id, r.id)
		}
		r.run("remove", "--yes").want(t, exitOK)
		if !db.Migrator().HasTable("WORKER_NODE") && d.Name != "sqlite" {
			t.Error("UidGenerator's table was dropped")
		}
		shop(t, d.Open(t, nil), "web-2", "the plugin is back") // db.Use and a create work again
	})
}

// Formerly the command failed without the tables of the plugin, and on PostgreSQL for a table that was renamed, so
// nothing but SQL by hand made the table accept rows again.
func TestFollowDisable_WorksWithoutTheTablesAndAfterARename(t *testing.T) {
	t.Parallel()
	eachShop(t, func(t *testing.T, d *testkit.Database, db *gorm.DB, r runner) {
		late := 0 // an id from long ago
		insert := func(table string) error {
			late++
			return db.Exec("INSERT INTO "+table+" (id, text) VALUES (?, 'plain')", late).Error
		}
		r.run("follow", "enable", "orders").want(t, exitOK)
		advance(t, db)
		exec("ALTER TABLE orders RENAME TO sales")(t, db)
		if insert("sales") == nil {
			t.Error("the trigger accepts an old id")
		}
		r.run("follow", "disable", "orders").want(t, exitOK, "orders is no longer followed")
		must(t, insert("sales"))

		exec("ALTER TABLE sales RENAME TO orders")(t, db)
		r.run("follow", "enable", "orders").want(t, exitOK)
		exec(`DROP TABLE "WORKER_SESSION"`, `DROP TABLE "WORKER_SLOT"`, `DROP TABLE "WORKER_NODE"`, `DROP TABLE "WORKER_REGISTRY"`, `DROP TABLE "UID_FOLLOW"`)(t, db)
		if d.Name != "postgres" {
			exec(`DROP TABLE "UID_FOLLOW_GATE"`)(t, db)
			if insert("orders") == nil {
				t.Error("the trigger accepts rows without its tables")
			}
		}
		r.run("follow", "disable", "orders").want(t, exitOK, "orders is no longer followed")
		db = d.Open(t, nil) // a connection of SQLite remembers the trigger that it could not run
		must(t, insert("orders"))
		r.run("follow", "disable", "orders").want(t, exitFailed, "orders: the table is not followed")
	})
}

// The statements of docs/removing.md let SQLite number a key that it does not number.
func TestDocument_TheStatementsNumberAKeyOfSQLite(t *testing.T) {
	t.Parallel()
	d := testkit.Engine{Name: "sqlite"}.New(t)
	db := d.Open(t, nil)
	must(t, db.Exec("CREATE TABLE orders (id BIGINT NOT NULL PRIMARY KEY, name TEXT)").Error)
	must(t, db.Exec("INSERT INTO orders VALUES (1178338586584416256, 'old')").Error)
	r := runner{t: t, dsn: dsn(d)}
	r.run("remove", "--table", "orders").want(t, exitOK, "By hand: SQLite does not number orders.id")
	text, err := os.ReadFile("../../docs/removing.md")
	must(t, err)
	_, block, _ := strings.Cut(string(text), "```sql\n")
	block, _, _ = strings.Cut(block, "```")
	must(t, db.Connection(func(conn *gorm.DB) error {
		for statement := range strings.SplitSeq(strings.TrimSpace(block), ";\n") {
			if err := conn.Exec(statement).Error; err != nil {
				return err
			}
		}
		return nil
	}))
	r.run("remove", "--table", "orders").want(t, exitOK, "SQLite numbers orders.id itself")
	must(t, db.Exec("INSERT INTO orders (name) VALUES ('new')").Error)
	var ids []int64
	must(t, db.Raw("SELECT id FROM orders ORDER BY id").Scan(&ids).Error)
	if len(ids) != 2 || ids[1] != ids[0]+1 {
		t.Errorf("the keys are %v", ids)
	}
}

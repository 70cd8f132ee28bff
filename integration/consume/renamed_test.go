package consume_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/follow"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	engine "github.com/uidplugin/uidplugin/internal/follow"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	gormschema "gorm.io/gorm/schema"
)

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
		harness.Use(t, plain)
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
		db, into := shop(t, d, nil), effectsElsewhere(t)
		place(t, db, 2, "Ulm")
		consumer := consumeMails(t, db, follow.Into(into))
		effectsCome(t, into, "mails", 2)
		consumer.stop(t)
		testkit.Must(t, db.Migrator().RenameTable("orders", "purchases"))
		testkit.Must(t, follow.Enable(t.Context(), db, &purchase{}, follow.WithSlack(slack)))
		consumer = consumePurchases(t, db, follow.Into(into))
		failsWith(t, db, "set TABLE_NAME of this row of UID_CURSOR to purchases")
		testkit.Must(t, into.Exec("UPDATE UID_CURSOR SET TABLE_NAME = 'purchases'").Error)
		buy(t, db)
		effectsCome(t, into, "mails", 3)
		consumer.stop(t)
	})
}

// The model no longer names the schema, and the table was renamed. "uid tables rename" leaves the cursor, because it
// cannot tell whether the two names have the same schema, so the error must not advise it.
func TestConsume_ARenamedTableWithoutItsSchemaGetsNoSecondCursor(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := renamed(t, d)
		former := d.Current() + ".orders"
		testkit.Must(t, db.Table("UID_CURSOR").Where("1 = 1").Update("TABLE_NAME", former).Error)
		testkit.Must(t, follow.Enable(t.Context(), db, &purchase{}, follow.WithSlack(slack)))
		consumer := consumePurchases(t, db)
		failsWith(t, db, former+", which is not a table any more: if it was renamed to purchases,"+
			" set TABLE_NAME of this row of UID_CURSOR to purchases")
		testkit.Must(t, db.Table("UID_CURSOR").Where("1 = 1").Update("TABLE_NAME", "purchases").Error)
		buy(t, db)
		effectsCome(t, db, "mails", 3)
		consumer.stop(t)
	})
}

// The model names the schema of its table. A model of another program names a table there without the schema, because
// the program is connected to that schema.
func TestConsume_LooksForOtherTablesOfAConsumerInTheSchemaOfItsTable(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		schema := d.Beside(t)
		db := d.Open(t, &gorm.Config{NamingStrategy: &gormschema.NamingStrategy{TablePrefix: schema + "."}})
		harness.Use(t, db)
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

// PostgreSQL accepts the name of the database before the schema. The other table of the consumer must not be taken for
// one that was renamed, because people would remove its cursor, so that all its effects happen again.
func TestConsume_LooksForOtherTablesThatAreNamedWithTheirDatabase(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		plain, prefix := shop(t, d, nil), d.Schema+".public."
		testkit.Must(t, follow.Disable(t.Context(), plain, &order{}))
		db := d.Open(t, &gorm.Config{NamingStrategy: &gormschema.NamingStrategy{TablePrefix: prefix}})
		harness.Use(t, db)
		testkit.Must(t, follow.Enable(t.Context(), db, &order{}, follow.WithSlack(slack)))
		testkit.Must(t, db.Exec(`INSERT INTO "UID_CURSOR" ("CONSUMER", "SPACE", "TABLE_NAME", "LAST_ID") VALUES ('mails', '', ?, 1)`,
			prefix+"effects").Error)
		place(t, db, 2, "Ulm")
		consumer := consumeMails(t, db)
		effectsCome(t, db, "mails", 2)
		consumer.stop(t)
	}, "postgres")
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
	effectsCome(t, db, "mails", 3)
	consumer.stop(t)
}

package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/admin"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// A sale is the model of orders after their table was renamed.
type sale struct {
	ID   uidplugin.ID
	Text string
}

// sales is an application after the rename. It finds the row of an id.
func sales(t *testing.T, db *gorm.DB, id uidplugin.ID, options ...uidplugin.Option) (string, error) {
	t.Helper()
	p := plugintest.Use(t, db, append(options, uidplugin.WithModels(&sale{}))...)
	defer func() { testkit.MustClose(t, p) }()
	must(t, db.Create(&sale{Text: "new"}).Error)
	row, err := p.Find(t.Context(), id)
	if s, ok := row.(*sale); ok {
		return s.Text, err
	}
	return "", err
}

// Formerly no id from before the rename led to its row, and nothing could be done about it.
func TestTablesRename_OldIDsResolve(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		ids := shop(t, db, "web-1", "first", "second")
		r := runner{t: t, dsn: dsn(d)}
		rename := func(args ...string) result { return r.run(append([]string{"tables", "rename"}, args...)...) }

		rename("orders", "sales", "--yes").want(t, exitFailed, `the table "orders" still exists`)
		exec("ALTER TABLE orders RENAME TO sales")(t, db)
		rename("orders", "sale", "--yes").want(t, exitFailed, `the table "sale" does not exist`)
		rename("other", "sales", "--yes").want(t, exitFailed, `no worker ids of the table "other"`)
		rename("orders", "sales").want(t, exitFailed, "pass --yes")
		r.run("where", "--row", ids[0].String()).want(t, exitWrong, "uid tables rename orders NEW")

		const command = "uid tables rename orders sales"
		if text, err := sales(t, d.Open(t, nil), ids[0]); err == nil || errors.Is(err, uidplugin.ErrNoSuchID) || !strings.Contains(err.Error(), command) {
			t.Errorf("before: %q, %v", text, err)
		}
		r.doctor().want(t, exitWrong, admin.CodeTableRenamed, "rows of the table sales have ids of the table orders", "which does not exist", command)
		rename("orders", "sales", "--yes").want(t, exitOK, "1 worker id of orders: now of sales")
		if text, err := sales(t, d.Open(t, nil), ids[0]); err != nil || text != "first" {
			t.Errorf("after: %q, %v", text, err)
		}
		r.run("where", "--row", ids[1].String()).want(t, exitOK, "sales", "second")
		r.doctor().want(t, exitOK, "0 findings, 0 not done")
		rename("orders", "sales", "--yes").want(t, exitFailed, "no worker ids")
	})
}

// A view with the old name lets processes with the old model insert rows during a deployment. After the last one the
// command is run again. A table that was dropped is no finding.
func TestTablesRename_WithAViewOfTheOldName(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		_, r := shopIn(t, d)
		db := d.Open(t, nil)
		exec("ALTER TABLE orders RENAME TO sales", "CREATE VIEW orders AS SELECT * FROM sales")(t, db)
		old := plugintest.Use(t, db)
		o := order{Text: "by the view"}
		must(t, db.Create(&o).Error)
		testkit.MustClose(t, old)

		if _, err := sales(t, d.Open(t, nil), o.ID); err == nil || errors.Is(err, uidplugin.ErrNoSuchID) {
			t.Errorf("before: %v", err)
		}
		r.doctor().want(t, exitWrong, admin.CodeTableRenamed)
		r.run("tables", "rename", "orders", "sales", "--yes").want(t, exitOK)
		if text, err := sales(t, d.Open(t, nil), o.ID); err != nil || text != "by the view" {
			t.Errorf("after: %q, %v", text, err)
		}
		exec("DROP VIEW orders", "DROP TABLE sales")(t, db)
		r.doctor().want(t, exitOK, "0 findings, 0 not done")
	}, "mariadb", "mysql", "postgres")
}

func TestTablesRename_WithAMaterializedViewOfTheOldName(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		_, r := shopIn(t, d)
		exec("ALTER TABLE orders RENAME TO sales", "CREATE MATERIALIZED VIEW orders AS SELECT * FROM sales")(t, d.Open(t, nil))
		r.doctor().want(t, exitWrong, admin.CodeTableRenamed)
		r.run("tables", "rename", "orders", "sales", "--yes").want(t, exitOK)
	}, "postgres")
}

// The command names other things with the old name: followed tables, and tags of segments.
func TestTablesRename_NamesFollowingAndSegments(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		useEverything(t, d)
		db := d.Open(t, nil)
		r := runner{t: t, dsn: dsn(d)}
		exec("ALTER TABLE events RENAME TO happenings", "ALTER TABLE invoices RENAME TO bills",
			insertCursor+` ('mails', '', 'events', 7, '', 0, 0, ''), ('index', '', 'events', 8, '', 0, 0, ''), ('index', '', 'happenings', 0, '', 0, 0, '')`)(t, db)
		r.run("tables", "rename", "events", "happenings", "--yes").want(t, exitOK, "1 worker id of events: now of happenings",
			"Its consumers go on with the rows of happenings: index, mails", "The cursor of index stays at events, because happenings", "set happenings to it, then remove the cursor of events",
			`Run "uid follow enable happenings", and when a follower has begun, "uid follow disable events"`)
		r.run("tables", "rename", "invoices", "bills", "--yes", "--json").want(t, exitOK, `"worker_ids":0`, "uid:segment:invoices")
		r.run("follow", "enable", "happenings").want(t, exitOK, "installed")
		r.run("follow", "disable", "events").want(t, exitOK)
		if list := db.Exec("INSERT INTO happenings (id, text) VALUES (5, 'x')"); list.Error != nil {
			t.Error(list.Error)
		}
	})
}

// A cursor is in the schema of its table. The command cannot move it, and without it the consumer would begin anew.
func TestTablesRename_ToAnotherSchemaTellsWhereTheCursorBelongs(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		useEverything(t, d)
		schema := d.Beside(t)
		exec("ALTER TABLE events SET SCHEMA "+schema, insertCursor+` ('mails', '', 'events', 7, '', 0, 0, '')`)(t, d.Open(t, nil))
		r := runner{t: t, dsn: dsn(d)}
		r.run("tables", "rename", "events", schema+".events", "--yes").want(t, exitOK, "The cursor of mails stays at events",
			"copy the row into UID_CURSOR of that schema, with TABLE_NAME "+schema+".events")
	}, "postgres")
}

func TestTablesRename_OtherDatabases(t *testing.T) {
	t.Parallel()
	sqlite := testkit.Engine{Name: "sqlite"}
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		s := newShards(t, sqlite.New(t), d, "shard-1")
		exec("ALTER TABLE orders RENAME TO sales")(t, s.db)
		r, there := runner{t: t, dsn: dsn(s.registry)}, "shard-1="+dsn(d)
		r.run("tables", "rename", "shard-1.orders", "shard-1.sales", "--yes").want(t, exitFailed, "--database shard-1=DSN")
		find := func() (string, error) {
			return sales(t, d.Open(t, nil), s.id, uidplugin.WithRegistry(s.registry.Open(t, nil)), uidplugin.WithDatabaseName("shard-1"))
		}
		if _, err := find(); err == nil || !strings.Contains(err.Error(), "uid tables rename shard-1.orders shard-1.sales") {
			t.Errorf("before: %v", err)
		}
		r.run("doctor", "--database", there).want(t, exitWrong, "uid tables rename shard-1.orders shard-1.sales")
		r.run("tables", "rename", "shard-1.orders", "shard-1.sales", "--yes", "--database", there).want(t, exitOK)
		if text, err := find(); err != nil || text != "elsewhere" {
			t.Errorf("after: %q, %v", text, err)
		}
	})
}

// wing: follow

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/admin"
	"github.com/uidplugin/uidplugin/internal/follow"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/migrations"
	"gorm.io/gorm"
)

// advance lets a follower of orders do a round.
func advance(t *testing.T, db *gorm.DB) int64 {
	t.Helper()
	conn, err := sqldb.Open(db, time.Minute)
	must(t, err)
	var mark int64
	testkit.Eventually(t, "a round", time.Minute, func() bool { // a busy machine may stand still in it for too long
		mark, err = follow.NewMark(conn, follow.Table{Name: "orders", Key: "id"}, generator.DefaultLayout(), time.Now).Advance(t.Context())
		return err == nil
	})
	return mark
}

// ofFollowed has each finding about followed tables.
var ofFollowed = []sickness{
	{code: admin.CodeFollowTrigger, spoil: followThen(0, "DROP TRIGGER uid_follow_orders_1c168a"),
		words: []string{"orders is followed, but its trigger is gone", "uid follow enable"}},
	{code: admin.CodeFollowBroken, engines: []string{"mariadb", "mysql", "sqlite"}, spoil: followThen(0, `DELETE FROM "UID_FOLLOW_GATE"`),
		words: []string{"orders is followed, but refuses all new rows: a part of its installation is missing", "uid follow disable"}},
	{code: admin.CodeFollowBroken, engines: onPostgres, spoil: followThen(0, `DROP SEQUENCE uid_follow_orders_1c168a_mark`),
		words: []string{"orders is followed, but refuses all new rows: a part of its installation is missing", "uid follow disable"}},
	{code: admin.CodeFollowStopped, spoil: followThen(90*time.Second, `UPDATE "UID_FOLLOW" SET "PUBLISHED" = %d, "CLOSER" = 'c', "CLOSER_UNTIL" = 1767225600000`),
		words: []string{"the mark of orders is 1m3", "no process has raised it since 2026-01-01 00:00:00.000", "uid follow disable"}},
	{code: admin.CodeFollowAhead, spoil: followThen(-time.Hour, `UPDATE "UID_FOLLOW" SET "PUBLISHED" = %d`),
		words: []string{"the mark of orders is 59m5", "uid follow reset"}},
	{code: admin.CodeFollowRefused, engines: onMySQL, spoil: followThen(0, "ALTER TABLE orders ENGINE=MyISAM"),
		words: []string{"orders is followed, but the table cannot be followed: its engine is MyISAM", "ignore this code"}},
	{code: admin.CodeFollowRefused, engines: onPostgres, spoil: followThen(0, "CREATE TABLE special () INHERITS (orders)"),
		words: []string{"orders is followed, but the table cannot be followed: the table special inherits"}},
	{code: admin.CodeConsumerStuck, spoil: followThen(0, insertCursor+` ('mails', '', 'orders', 5, 'web-1', 7, 1767225600000, 'no route')`),
		words: []string{"the consumer mails fails at the row 7 of orders since 2026-01-01 00:00:00.000", ": no route", "start a process that runs the consumer", "uid follow consumers reset mails --table orders --to 7"}},
	{code: admin.CodeConsumerStopped, spoil: followThen(90*time.Second, "INSERT INTO orders (id, text) VALUES (%d, 'old')",
		insertCursor+` ('mails', '', 'orders', 5, '', 0, 0, '')`),
		words: []string{"no process runs the consumer mails, and rows of orders wait for it: 2, the oldest for 1m3", "uid follow consumers remove mails --table orders"}},
	{code: admin.CodeConsumerStopped, spoil: followThen(0, insertCursor+` ('mails', '', 'orders', 5, '', 0, 0, '')`, "DROP TRIGGER uid_follow_orders_1c168a", `DELETE FROM "UID_FOLLOW"`),
		words: []string{"the consumer mails cannot run, because orders is not followed", "uid follow enable orders", "uid follow consumers remove mails --table orders"}},
	{code: admin.CodeConsumerPaused, spoil: followThen(90*time.Second, "INSERT INTO orders (id, text) VALUES (%d, 'old')",
		insertCursor+` ('mails', '', 'orders', 5, '', 0, 0, ''), ('bills', '', 'orders', 9000000000000000000, '', 0, 0, '')`, `UPDATE "UID_CURSOR" SET "PAUSED" = 1`),
		words: []string{"the consumer mails is paused, and rows of orders wait for it: 2, the oldest for 1m3", "uid follow consumers resume mails --table orders"}},
}

const insertCursor = `INSERT INTO "UID_CURSOR" ("CONSUMER", "SPACE", "TABLE_NAME", "LAST_ID", "HOLDER", "STUCK_ID", "STUCK_SINCE", "ERROR") VALUES`

// followThen makes orders followed, and then runs statements. A %d in them becomes the mark of a time ago.
func followThen(ago time.Duration, statements ...string) func(*testing.T, *gorm.DB) {
	return func(t *testing.T, db *gorm.DB) {
		t.Helper()
		conn, err := sqldb.Open(db, time.Minute)
		must(t, err)
		must(t, follow.Enable(t.Context(), conn, follow.Table{Name: "orders", Key: "id", Slack: time.Second}))
		mark, err := follow.MarkAt(generator.DefaultLayout(), time.Now().Add(-ago))
		must(t, err)
		for _, s := range statements {
			if db.Name() == "postgres" && strings.HasPrefix(s, "DROP TRIGGER") {
				s += " ON orders"
			}
			if strings.Contains(s, "%d") {
				s = fmt.Sprintf(s, mark)
			}
			exec(s)(t, db)
		}
	}
}

func statusOf(t *testing.T, r runner, code int) (f admin.Followed) {
	t.Helper()
	got := r.run("follow", "status", "orders", "--json").want(t, code)
	must(t, json.Unmarshal([]byte(got.out), &f))
	return f
}

func TestFollow_EnablesAndDisablesATable(t *testing.T) {
	t.Parallel()
	eachShop(t, func(t *testing.T, d *testkit.Database, db *gorm.DB, r runner) {
		r.run("follow", "status").want(t, exitOK, "TABLE  KEY")
		r.run("follow", "status", "orders").want(t, exitFailed, "orders is not followed")
		r.run("follow", "disable", "orders").want(t, exitFailed, "orders: the table is not followed")
		r.run("follow", "enable", "order").want(t, exitFailed, `the table "order" does not exist`)
		r.run("follow", "enable", "orders", "--key", "text").want(t, exitFailed, "the table cannot be followed: orders.text is ")
		r.run("follow", "enable", "orders", "--slack", "1ms").want(t, exitFailed, "the slack 1ms must be from 20ms to 1h")

		r.run("follow", "enable", "orders", "--slack", "2s").want(t, exitOK, "\norders  id", "  2s  ", "installed")
		if f := statusOf(t, r, exitOK); f.Table != "orders" || f.Key != "id" || f.Slack != 2000 || f.Mark != 0 || f.Closing || f.Trigger != follow.TriggerInstalled {
			t.Errorf("after enable: %+v", f)
		}
		mark := advance(t, db)
		if f := statusOf(t, r, exitOK); int64(f.Mark) != mark || f.Behind < 2000 || f.Behind > 60_000 || !f.Closing || len(f.Holders) > 0 {
			t.Errorf("after a round: %+v", f)
		}
		r.run("follow", "enable", "orders").want(t, exitOK, fmt.Sprint(mark), "  1s  ", "until 20") // it keeps the mark
		exec(`UPDATE "UID_FOLLOW" SET "CLOSER_UNTIL" = 0`)(t, db)
		r.run("follow", "status").want(t, exitOK, "given back")
		insert := func() error { return db.Exec("INSERT INTO orders (id, text) VALUES (?, 'late')", mark-1).Error }
		if err := insert(); err == nil || !strings.Contains(err.Error(), "too late") {
			t.Errorf("a row below the mark: %v", err)
		}
		r.run("follow", "disable", "orders").want(t, exitOK, "orders is no longer followed")
		must(t, insert())
		r.run("follow", "status", "--json").want(t, exitOK)
	})
}

// A mark in the future is found, and lowered after a confirmation.
func TestFollow_ResetsAMarkInTheFuture(t *testing.T) {
	t.Parallel()
	eachShop(t, func(t *testing.T, d *testkit.Database, db *gorm.DB, r runner) {
		r.run("follow", "enable", "orders").want(t, exitOK)
		future, err := follow.MarkAt(generator.DefaultLayout(), time.Now().Add(2*time.Hour))
		must(t, err)
		exec(fmt.Sprintf(`UPDATE "UID_FOLLOW" SET "PUBLISHED" = %d`, future))(t, db)
		r.run("follow", "status").want(t, exitWrong, "-1h59m5", "\n"+admin.CodeFollowAhead+"  the mark of orders is 1h59m5", "uid follow reset")
		r.doctor().want(t, exitWrong, admin.CodeFollowAhead, "1 finding, 0 not done")
		r.run("follow", "reset", "orders").want(t, exitFailed, "cannot ask for confirmation", "pass --yes to lower the mark")
		wrong := r
		wrong.now = func() time.Time { return time.Now().Add(time.Hour) }
		wrong.run("follow", "reset", "orders", "--yes").want(t, exitFailed, "synchronize them")
		if f := statusOf(t, r, exitWrong); int64(f.Mark) != future || f.Ahead < 7_100_000 {
			t.Errorf("it was reset: %+v", f)
		}
		r.run("follow", "reset", "orders", "--yes").want(t, exitOK, "orders", "installed")
		mark := advance(t, db)
		if f := statusOf(t, r, exitOK); int64(f.Mark) != mark || mark >= future || f.Ahead != 0 {
			t.Errorf("after the reset and a round: %+v", f)
		}
	})
}

// The statements for people who run migrations themselves do the same as enable.
func TestSQL_PrintsWhatEnableRuns(t *testing.T) {
	t.Parallel()
	eachShop(t, func(t *testing.T, d *testkit.Database, db *gorm.DB, r runner) {
		got := r.run("sql", "--follow", "orders", "--slack", "3s", "--json").want(t, exitOK)
		for line := range strings.Lines(got.out) {
			var statement struct{ SQL string }
			must(t, json.Unmarshal([]byte(line), &statement))
			must(t, db.Exec(statement.SQL).Error)
		}
		if f := statusOf(t, r, exitOK); f.Slack != 3000 || f.Trigger != follow.TriggerInstalled {
			t.Errorf("%+v", f)
		}
		advance(t, db)
		r.run("follow", "enable", "orders").want(t, exitOK, "installed")
		r.run("follow", "disable", "orders").want(t, exitOK)
	})
	r := runner{t: t}
	r.run("sql", "--follow", "orders").want(t, exitFailed, "no dialect given")
	r.run("sql", "--follow", "orders", "--dialect", "oracle").want(t, exitFailed, `the dialect "oracle"`)
	r.run("sql", "--follow", "orders", "--only", "tables", "--dialect", "mysql").want(t, exitFailed, "only")
	r.run("sql", "--follow", "orders", "--dialect", "MySQL", "--delimiter").want(t, exitOK, "\nEND IF//\nDELIMITER ;\n", "`orders`")
}

// The text is a migration of goose, golang-migrate and Atlas. goose ends a statement at a line that ends with a
// semicolon, except between two of its comments; Atlas does at three line breaks, as its own comment says; golang-migrate
// sends everything at once. The drivers send one statement at a time here.
func TestSQL_PrintsMigrations(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		for tool, split := range map[string]func(string) []string{"goose": gooseStatements, "Atlas": atlasStatements} {
			d := d.New(t)
			db := d.Open(t, nil)
			shop(t, db, "web-1", "first")
			schema := d.Current()
			text := runner{t: t}.run("sql", "--follow", "orders", "--dialect", d.Name, "--schema", schema).want(t, exitOK)
			statements := split(text.out)
			want, _, err := migrations.FollowStatementsFor(d.Name, schema, "orders", "id", time.Second)
			must(t, err)
			if len(statements) != len(want) {
				t.Errorf("%s: %d statements instead of %d: %q", tool, len(statements), len(want), statements)
			}
			for _, statement := range statements {
				must(t, db.Exec(statement).Error)
			}
			if f := statusOf(t, runner{t: t, dsn: dsn(d)}, exitOK); f.Trigger != follow.TriggerInstalled {
				t.Errorf("%s: %+v", tool, f)
			}
		}
	})
}

func gooseStatements(text string) (statements []string) {
	statement, whole := "", false
	for line := range strings.Lines(text) {
		switch begin, _, _ := strings.Cut(line, "--"); {
		case strings.HasPrefix(line, "-- +goose StatementBegin"):
			whole = true
		case strings.HasPrefix(line, "-- +goose StatementEnd"):
			statements, statement, whole = append(statements, statement), "", false
		case statement == "" && strings.TrimSpace(begin) == "":
		case !whole && strings.HasSuffix(strings.TrimSpace(begin), ";"):
			statements, statement = append(statements, statement+line), ""
		default:
			statement += line
		}
	}
	return statements
}

func atlasStatements(text string) (statements []string) {
	directive, text, _ := strings.Cut(text, "\n")
	delimiter := strings.ReplaceAll(strings.TrimPrefix(directive, "-- atlas:delimiter "), `\n`, "\n")
	text = strings.NewReplacer("StatementBegin\n", "", "StatementEnd\n", "").Replace(text) // with the end of their lines
	for statement := range strings.SplitSeq(text, delimiter) {
		statement = strings.TrimSpace(strings.ReplaceAll(statement, "-- +goose ", ""))
		if statement != "" {
			statements = append(statements, statement)
		}
	}
	return statements
}

// A transaction that has inserted a row is listed, or the reason why it cannot be.
func TestFollow_ListsOpenTransactions(t *testing.T) {
	t.Parallel()
	eachShop(t, func(t *testing.T, d *testkit.Database, db *gorm.DB, r runner) {
		r.run("follow", "enable", "orders").want(t, exitOK)
		tx := db.Begin()
		defer tx.Rollback()
		id, err := follow.MarkAt(generator.DefaultLayout(), time.Now())
		must(t, err)
		must(t, tx.Exec("INSERT INTO orders (id, text) VALUES (?, 'open')", id).Error)
		if d.Name == "mysql" {
			r.run("follow", "status").want(t, exitOK, "warning: orders: performance_schema is OFF")
			return
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			conn, err := sqldb.Open(db, time.Minute)
			if err != nil {
				t.Error(err)
			}
			for ctx.Err() == nil && err == nil { // again, because a busy machine may stand still in a round for too long
				_, _ = follow.NewMark(conn, follow.Table{Name: "orders", Key: "id"}, generator.DefaultLayout(), time.Now).Advance(ctx)
			}
		}()
		defer func() { stop(); <-ended }()
		var got result
		for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(300 * time.Millisecond) {
			if got = r.run("follow", "status"); strings.Contains(got.out, "OPEN SINCE") {
				break
			}
		}
		got.want(t, exitOK, "\nTABLE   SESSION", "\norders  ", "  test  127.0.0.1")
	}, "mariadb", "mysql", "postgres")
}

// A user who may only read the tables sees the marks, and which privileges the rest needs. No trigger is said to be gone.
func TestFollow_NamesMissingPrivileges(t *testing.T) {
	t.Parallel()
	missing := map[string][]string{
		"mariadb":  {"hidden", "the privilege TRIGGER", "it needs PROCESS"},
		"mysql":    {"hidden", "the privilege TRIGGER", "performance_schema is OFF"},
		"postgres": {"installed", "read the mark of the trigger", "needs the role pg_monitor", "\nTABLE   SESSION"},
	}
	eachShop(t, func(t *testing.T, d *testkit.Database, db *gorm.DB, r runner) {
		r.run("follow", "enable", "orders").want(t, exitOK)
		mark := advance(t, db)
		r.dsn = reader(t, d, db)
		tx := db.Begin()
		id, err := follow.MarkAt(generator.DefaultLayout(), time.Now())
		must(t, err)
		must(t, tx.Exec("INSERT INTO orders (id, text) VALUES (?, 'open')", id).Error)
		r.run("follow", "status").want(t, exitOK, append(missing[d.Name], fmt.Sprint(mark), "warning: orders: ")...)
		must(t, tx.Rollback().Error)
		code, word := exitFailed, "not checked: followed tables: orders: seeing the trigger needs"
		if d.Name == "postgres" {
			code, word = exitOK, "0 findings, 0 not done"
		}
		r.doctor().want(t, code, word)
		r.run("follow", "enable", "orders").want(t, exitFailed)
	}, "mariadb", "mysql", "postgres")
}

// The table refuses rows of other programs from then on, as follow.Enable logs.
func TestFollow_WarnsOfATableThatTheDatabaseNumbers(t *testing.T) {
	t.Parallel()
	eachShop(t, func(t *testing.T, d *testkit.Database, db *gorm.DB, r runner) {
		numbered := "CREATE TABLE numbered (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY)"
		if d.Name == "postgres" {
			numbered = "CREATE TABLE numbered (id BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY)"
		}
		must(t, db.Exec(numbered).Error)
		got := r.run("follow", "enable", "numbered")
		got.want(t, exitOK, "warning: the database numbers numbered.id, so a row that is inserted without the plugin is usually refused")
		if got := r.run("follow", "enable", "orders"); strings.Contains(got.err, "numbers") {
			t.Errorf("of orders: %s", got.err)
		}
	}, "mariadb", "mysql", "postgres")
}

// A migration job may enable a table before any process has begun the id space. The layout does not matter yet.
func TestFollow_EnablesATableBeforeTheIDSpaceBegins(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		must(t, db.AutoMigrate(&order{}))
		r := runner{t: t, dsn: dsn(d)}
		for range 2 {
			r.run("follow", "enable", "orders").want(t, exitOK, "installed", "warning: no process has begun an id space")
		}
		r.run("follow", "disable", "orders").want(t, exitOK, "orders is no longer followed")
		r.run("follow", "disable", "orders").want(t, exitFailed, "the table is not followed")
		r.run("follow", "enable", "orders").want(t, exitOK)
		exec(`DELETE FROM "UID_FOLLOW"`)(t, db) // disable removes the rest
		r.run("follow", "disable", "orders").want(t, exitOK)
		r.run("follow", "status").want(t, exitFailed, "no id space")
		r.run("follow", "enable", "orders").want(t, exitOK)
		id := shop(t, db, "web-1", "first")[0]
		advance(t, db)
		if f := statusOf(t, r, exitOK); f.Trigger != follow.TriggerInstalled || id == 0 {
			t.Errorf("%+v", f)
		}
	})
}

// A table that only one of the given databases has needs no prefix.
func TestFollow_FindsATableOfAnotherDatabase(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		s := newShards(t, testkit.Engine{Name: "sqlite"}.New(t), d, "shard-1")
		r, there := runner{t: t, dsn: dsn(s.registry)}, "shard-1="+dsn(d)
		r.run("follow", "enable", "orders", "--database", there).want(t, exitOK, "shard-1.orders", "installed")
		r.run("follow", "status", "orders", "--database", there).want(t, exitOK, "shard-1.orders", "installed")
		r.run("follow", "disable", "shard-1.orders", "--database", there).want(t, exitOK)
		r.run("follow", "enable", "order", "--database", there).want(t, exitFailed, `the table "order" does not exist`, "NAME.TABLE")
		if d.Name != "sqlite" {
			r.run("partitions", "orders", "--every", "month", "--database", there).want(t, exitOK, "-- convert ")
		}
	})
}

// A table that moves to another schema keeps its trigger, whose function stays. Formerly status and doctor found nothing.
func TestFollow_ReportsWhatAMovedTableHasLeft(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		for _, inPath := range []bool{true, false} {
			d := d.New(t)
			db, other := d.Open(t, nil), d.Elsewhere(t).Current()
			shop(t, db, "web-1", "first")
			r := runner{t: t, dsn: dsn(d)}
			if inPath {
				r.dsn += " search_path=" + d.Current() + "," + other
			}
			r.run("follow", "enable", "orders").want(t, exitOK)
			exec(insertCursor+` ('mails', '', 'orders', 5, '', 0, 0, '')`)(t, db)
			must(t, db.Exec("ALTER TABLE orders SET SCHEMA "+other).Error)
			r.run("follow", "consumers", "pause", "mails").want(t, exitOK, "paused", "warning: mails: orders: ")
			got := r.run("follow", "status")
			got.want(t, exitWrong, admin.CodeFollowTrigger+"  orders was followed in the schema "+d.Current()+", and is in another one now: followers of "+other+".orders")
			r.doctor().want(t, exitWrong, "orders was followed in the schema", "1 finding")
			_, fix, _ := strings.Cut(got.out, "    DROP FUNCTION")
			must(t, db.Exec("DROP FUNCTION"+fix).Error)
			r.run("follow", "status").want(t, exitOK)
			if inPath {
				r.run("follow", "enable", "orders").want(t, exitOK, "installed")
				r.run("follow", "status", "orders").want(t, exitOK, "installed")
			}
		}
	}, "postgres")
}

package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/admin"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/publicid"
	"gorm.io/gorm"
)

// reader creates a user who may only read the database, and returns its data source name.
func reader(t *testing.T, d *testkit.Database, db *gorm.DB) string {
	t.Helper()
	name := "r_" + d.Schema
	statements := []string{
		"CREATE USER '" + name + "' IDENTIFIED BY 'r3ad'",
		"GRANT SELECT ON `" + d.Schema + "`.* TO '" + name + "'",
	}
	drop := []string{"DROP USER '" + name + "'"}
	if d.Name == "postgres" {
		statements = []string{
			"CREATE ROLE " + name + " LOGIN PASSWORD 'r3ad'",
			"GRANT USAGE ON SCHEMA public TO " + name,
			"GRANT SELECT ON ALL TABLES IN SCHEMA public TO " + name,
		}
		drop = []string{"DROP OWNED BY " + name, "DROP ROLE " + name}
	}
	for _, s := range statements {
		must(t, db.Exec(s).Error)
	}
	t.Cleanup(func() {
		for _, s := range drop {
			if err := db.Exec(s).Error; err != nil {
				t.Error(err)
			}
		}
	})
	if d.Name == "postgres" {
		return d.DSN("user="+name, "password=r3ad")
	}
	_, address, _ := strings.Cut(d.DSN(), "@")
	return name + ":r3ad@" + address
}

func TestCommands_ReadWithTheRightSelectOnly(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		id := shop(t, db, "web-1", "first")[0].String()
		r := runner{t: t, dsn: reader(t, d, db)}
		for _, args := range [][]string{
			{"where", "--row", id}, {"decode", id}, {"tables"}, {"slots"}, {"sessions"}, {"plan"}, {"sql"},
			{"sessions", "prune", "--before", "2026-01-01", "--dry-run"},
		} {
			r.run(args...).want(t, exitOK)
		}
		r.run("where", "--row", id).want(t, exitOK, "web-1", "first")
		// Some checks of the doctor may need more privileges.
		if got := r.doctor(); got.code == exitWrong ||
			strings.Contains(got.out, "not checked: keys") {
			t.Errorf("%+v", got)
		}
		got := r.run("next", "orders").want(t, exitFailed)
		if strings.Contains(got.err, "r3ad") || strings.Count(got.err, "\n") != 1 {
			t.Errorf("%s", got.err)
		}
		slots := number(t, db, `SELECT COUNT(*) FROM `+db.Statement.Quote("WORKER_SLOT"))
		if slots != 1 {
			t.Errorf("%d slots, so reading took one", slots)
		}
	}, "mariadb", "mysql", "postgres")
}

// Exit codes distinguish a finding from a command that could not run.
func TestCommands_ExitCodes(t *testing.T) {
	t.Parallel()

	d := testkit.Engine{Name: "sqlite"}.New(t)
	db := d.Open(t, nil)
	ids := shop(t, db, "web-1", "first", "second")
	r := runner{t: t, dsn: dsn(d)}
	r.run("where", ids[0].String()).want(t, exitOK)
	r.run("where", ids[0].String(), "5").want(t, exitWrong, "cannot be decoded")
	must(t, db.Exec("DELETE FROM orders WHERE id = ?", ids[1]).Error)
	r.run("where", "--row", ids[1].String()).want(t, exitWrong, "orders has none with id = "+ids[1].String())
	r.run("where", "--row", "--json", ids[1].String()).want(t, exitWrong, `"code":"no_row"`, `"table":"orders"`)
	must(t, db.Exec(`DROP TABLE "WORKER_SESSION"`).Error)
	r.run("where", ids[0].String()).want(t, exitFailed, "WORKER_SESSION")
	must(t, db.Exec(`DROP TABLE "WORKER_REGISTRY"`).Error)
	r.run("decode", ids[0].String()).want(t, exitFailed, "pass --layout to decode without the database")
	runner{t: t}.run("where", "1").want(t, exitFailed, "no database given")
	r.run("next", "orders", "-n", "0").want(t, exitFailed, "outside 1 to 1000000")
}

// A number that a spreadsheet or JavaScript has rounded is often an id of another table. Formerly where named that
// table.
func TestWhere_SaysThatANumberWasRounded(t *testing.T) {
	t.Parallel()

	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		ids := shop(t, d.Open(t, nil), "web-1", "first", "second")
		r := runner{t: t, dsn: dsn(d)}
		for _, id := range ids {
			for _, n := range []uidplugin.ID{uidplugin.ID(float64(id)), id / 10_000 * 10_000} {
				if n != id {
					got := r.run("where", "--row", n.String()).want(t, exitWrong, "the number was rounded")
					if text := got.out + got.err; strings.Count(text, "read ids as text") != 1 || strings.Contains(text, " 1 rows") {
						t.Errorf("%s", text)
					}
				}
			}
			got := r.run("where", "--row", id.String()).want(t, exitOK)
			if strings.Contains(got.out, "rounded") {
				t.Errorf("an id with a row: %s", got.out)
			}
		}
		if got := r.run("where", "--json", (ids[0] / 10_000 * 10_000).String()); !strings.Contains(got.out+got.err, "rounded") {
			t.Errorf("without the row: %+v", got)
		}
	}, "sqlite", "mariadb", "postgres")
}

// If the database has numbered a row, Find looks for it in the table of the id before the number. Formerly where did
// not.
func TestWhere_FindsRowsThatFindFinds(t *testing.T) {
	t.Parallel()

	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		must(t, db.Exec("CREATE TABLE orders (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, text TEXT, data BLOB, total INT)").Error)
		p := plugintest.Use(t, db, uidplugin.WithModels(&order{}))
		o := order{Text: "with"}
		must(t, db.Create(&o).Error)
		testkit.MustClose(t, p)
		must(t, db.Exec("INSERT INTO orders (text) VALUES ('old')"+strings.Repeat(", ('old')", 59)).Error)
		r := runner{t: t, dsn: dsn(d)}
		for _, n := range []uidplugin.ID{1, 15, 16, 40, 60} {
			if _, err := p.Find(t.Context(), o.ID+n); err != nil {
				t.Errorf("Find: %v", err)
			}
			r.run("where", "--row", (o.ID+n).String()).want(t, exitOK, (o.ID + n).String(), "orders", "old")
		}
		r.run("where", "--row", (o.ID+40).String()).want(t, exitOK, "numbered the row", o.ID.String())
		r.run("where", "--row", "--json", (o.ID+40).String()).want(t, exitOK, `"follows":"`+o.ID.String()+`"`, `"text":"old"`)
		r.run("where", "--row", (o.ID+61).String()).want(t, exitWrong)
	}, "mariadb", "mysql")
}

// Ids come from arguments, from standard input, and as public ids.
func TestWhere_ReadsIDsAsPeopleWriteThem(t *testing.T) {
	t.Parallel()

	d := testkit.Engine{Name: "sqlite"}.New(t)
	id := shop(t, d.Open(t, nil), "web-1", "first")[0]
	secret := []byte("0123456789abcdef0123456789abcdef")
	keys, err := publicid.NewKeys(secret)
	must(t, err)
	codec, err := keys.Codec("ord")
	must(t, err)
	text := codec.Encode(int64(id))
	hex := fmt.Sprintf("%x", secret)
	other := strings.Repeat("1122", 16)
	for _, r := range []runner{
		{stdin: fmt.Sprintf("\n %d \n\"%d\",\n%s", id, id, text), env: map[string]string{"UID_PUBLIC_KEY": hex}},
		{stdin: fmt.Sprintf("\ufeff%d\r\n(%d)\n'%s'\n", id, id, text), env: map[string]string{"UID_PUBLIC_KEY": other + "," + hex}},
		{stdin: fmt.Sprintf("%d\n%d\n%s\n", id, id, text),
			env: map[string]string{"UID_PUBLIC_KEY": "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="}},
	} {
		r.t, r.dsn = t, dsn(d)
		got := r.run("where", "--json").want(t, exitOK)
		if strings.Count(got.out, `"id":"`+id.String()+`"`) != 3 {
			t.Errorf("%q: %+v", r.stdin, got)
		}
	}
	for _, around := range []string{"%s", "id=%s", "order_id=%s,", `"id":"%s"`, "id: %s", `{"row_id": %s}`, "#4: id=%s"} {
		for _, each := range []string{id.String(), text} {
			r := runner{t: t, dsn: dsn(d), env: map[string]string{"UID_PUBLIC_KEY": hex}}
			got := r.run("where", "--json", fmt.Sprintf(around, each))
			if !strings.Contains(got.out, `"table":"orders"`) {
				t.Errorf(around+": %+v", each, got)
			}
		}
	}
	// A public id of another type may stand for the same number as the id of an order.
	r := runner{t: t, dsn: dsn(d), env: map[string]string{"UID_PUBLIC_KEY": hex}}
	if got := r.run("where", text); !strings.Contains(got.out, "ord\n") || strings.Contains(got.out, "wrong type") {
		t.Errorf("%+v", got)
	}
	codec, err = keys.Codec("cus")
	must(t, err)
	r.run("where", codec.Encode(int64(id))).want(t, exitOK, "cus\n", "wrong type")
	r.run("where", "--json", codec.Encode(int64(id))).want(t, exitOK, `"prefix":"cus"`)
	r = runner{t: t, dsn: dsn(d)}
	r.run("where", "order_id="+strings.Repeat("x", 100)).want(t, exitWrong, `"`+strings.Repeat("x", 60)+`..."`)
	r.run("where", "made order_id 4").want(t, exitWrong, `"made order_id 4" is neither`, "pass an id")
	r.run("where", "order_id: 1.17705913759118E+18").want(t, exitWrong,
		`"1.17705913759118E+18" has lost its last digits, because a spreadsheet rounded it`, "as text")
	line := `2026-11-23T08:00:00Z level=info trace=1600000000000000000 msg="paid" order={id:` + id.String() + `} in 12 ms`
	if got := r.run("where", "--json", line).want(t, exitOK, `"id":"`+id.String()+`"`); strings.Count(got.out, "\n") != 1 {
		t.Errorf("what is no id is in\n%s", got.out)
	}
	r.stdin = strings.Repeat("x ", 100_000) + line + "\n"
	r.run("where", "--json").want(t, exitOK, `"id":"`+id.String()+`"`)
	r.stdin = ""
	r.run("where", strings.ReplaceAll(line, id.String(), "none")).want(t, exitWrong, "1600000000000000000")
	r.run("where", text).want(t, exitWrong, "looks like a public id", "UID_PUBLIC_KEY")
	got := r.run("where", "--public-key", other, text).want(t, exitWrong, "not a public id of this key")
	if strings.Contains(got.err, other) {
		t.Errorf("the key is in %s", got.err)
	}
	got = r.run("where", "--public-key", "0123zz", text).want(t, exitFailed, "not 32 bytes")
	if strings.Contains(got.err, "0123zz") {
		t.Errorf("the key is in %s", got.err)
	}
}

// Rows are found by keys of several kinds. For others the output says why not.
func TestRowReader_FindsTheColumnOfTheID(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		id := shop(t, db, "web-1", "first")[0]
		for _, s := range []string{
			"CREATE TABLE texts (k VARCHAR(20) PRIMARY KEY, v " +
				"INT)", "CREATE TABLE parts (a INT, b BIGINT, PRIMARY KEY (a, b))",
			"CREATE TABLE plain (b BIGINT, c INT)",
			fmt.Sprintf("INSERT INTO texts VALUES ('%d', 7)", id), fmt.Sprintf("INSERT INTO parts VALUES (1, %d)", id),
			fmt.Sprintf("INSERT INTO plain VALUES (%d, 1)", id), fmt.Sprintf("INSERT INTO plain VALUES (%d, 2)", id),
		} {
			must(t, db.Exec(s).Error)
		}
		a := &app{dsn: dsn(d), timeout: time.Minute, now: time.Now, env: func(string) string { return "" }}
		open, err := a.open(t.Context(), reads)
		must(t, err)
		defer open.close()
		read := func(table, column string) (*admin.Row, error) {
			f := &admin.Finder{DB: open.DB, Column: column}
			return f.Row(context.Background(), uidplugin.Location{ID: id, Table: table})
		}
		if r, err := read("texts", ""); err != nil || r.Cells[1].Text != "7" {
			t.Errorf("%+v, %v", r, err)
		}
		if r, err := read("parts", "b"); err != nil || r.Cells[0].Text != "1" {
			t.Errorf("%+v, %v", r, err)
		}
		for _, tt := range [][3]string{
			{"parts", "", "name the column of the id by --column"}, {"plain", "", "--column"}, {"plain", "b", "several rows"},
			{"nosuch", "", "the table nosuch does not exist"}, {"", "", "serves all tables"}, {"orders", "nosuch", "no column nosuch"},
		} {
			_, err := read(tt[0], tt[1])
			testkit.IsError(t, err, admin.ErrRow, tt[2])
		}
		_, err = (&admin.Finder{DB: open.DB}).Row(
			context.Background(),
			uidplugin.Location{ID: id, Database: "other", Table: "orders"},
		)
		testkit.IsError(t, err, admin.ErrRow, "database other")
	})
}

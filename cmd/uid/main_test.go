package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

var must = testkit.Must

func TestMain(m *testing.M) { testscript.Main(m, map[string]func(){"uid": main}) }

type order struct {
	ID    uidplugin.ID
	Text  string
	Data  []byte
	Total *int
}

// shop creates orders as the application shop on a host, and returns their ids.
func shop(t testing.TB, db *gorm.DB, host string, texts ...string) []uidplugin.ID {
	t.Helper()
	h := workernode.Host{Name: host, Port: "8080", Kind: workernode.Container, Application: "shop"}
	return shopWith(t, db, []uidplugin.Option{uidplugin.WithHost(h)}, texts...)
}

// shopWith is shop with other options.
func shopWith(t testing.TB, db *gorm.DB, options []uidplugin.Option, texts ...string) (ids []uidplugin.ID) {
	t.Helper()
	p := plugintest.Use(t, db, options...)
	must(t, p.AutoMigrate(&order{}))
	for _, text := range texts {
		o := order{Text: text, Data: []byte{0, 255}}
		must(t, db.Create(&o).Error)
		ids = append(ids, o.ID)
	}
	testkit.MustClose(t, p)
	return ids
}

// eachShop runs a test on all engines, or on some, in a shop with one order.
func eachShop(t *testing.T, f func(*testing.T, *testkit.Database, *gorm.DB, runner), engines ...string) {
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db, r := shopIn(t, d)
		f(t, d, db, r)
	}, engines...)
}

// shopIn makes a shop with one order in a database.
func shopIn(t *testing.T, d *testkit.Database) (*gorm.DB, runner) {
	t.Helper()
	db := d.Open(t, nil)
	return db, runner{t: t, dsn: dsn(d), id: shop(t, db, "web-1", "first")[0]}
}

// sqliteShop makes a shop with one order in a database of SQLite.
func sqliteShop(t *testing.T) (*testkit.Database, *gorm.DB, runner) {
	t.Helper()
	d := testkit.Engine{Name: "sqlite"}.New(t)
	db, r := shopIn(t, d)
	return d, db, r
}

func number(t *testing.T, db *gorm.DB, query string, args ...any) (n int64) {
	t.Helper()
	must(t, db.Raw(query, args...).Scan(&n).Error)
	return n
}

// exec runs statements that name columns in double quotes.
func exec(statements ...string) func(*testing.T, *gorm.DB) {
	return func(t *testing.T, db *gorm.DB) {
		t.Helper()
		for _, s := range statements {
			if db.Dialector.Name() == "mysql" {
				s = strings.ReplaceAll(s, `"`, "`")
			}
			must(t, db.Exec(s).Error)
		}
	}
}

// A result has the output and exit code of a run of the program.
type result struct {
	code     int
	out, err string
}

// A runner runs the program in this process.
type runner struct {
	t     testing.TB
	dsn   string
	id    uidplugin.ID // of the order of eachShop
	stdin string
	env   map[string]string
	now   func() time.Time // nil means time.Now
}

func (r runner) run(args ...string) result {
	r.t.Helper()
	var out, err bytes.Buffer
	env := func(name string) string {
		if name == "UID_DSN" && r.env[name] == "" {
			return r.dsn
		}
		return r.env[name]
	}
	a := &app{in: strings.NewReader(r.stdin), out: &out, err: &err, env: env, now: time.Now}
	if r.now != nil {
		a.now = r.now
	}
	code := a.run(r.t.Context(), args)
	return result{code, out.String(), err.String()}
}

// doctor runs "uid doctor" without the checks of the server's settings.
func (r runner) doctor(args ...string) result {
	r.t.Helper()
	return r.run(append([]string{"doctor", "--ignore", strings.Join(ofServers, ",")}, args...)...)
}

// want checks the exit code, and that the output has each of words. It returns the result.
func (r result) want(t testing.TB, code int, words ...string) result {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d; output:\n%s%s", r.code, code, r.out, r.err)
	}
	testkit.SaysAll(t, r.out+r.err, words...)
	return r
}

// dsn returns the data source name of a database as a user writes it.
func dsn(d *testkit.Database) string {
	if d.Name == "sqlite" {
		return "sqlite:" + d.Schema
	}
	return d.DSN()
}

// runScripts runs the scripts of a folder against a database with three orders.
func runScripts(t *testing.T, dir string, d *testkit.Database) {
	t.Helper()
	db := d.Open(t, nil)
	ids := shop(t, db, "web-1", "first", "second", "third")
	testscript.Run(t, testscript.Params{
		Dir: dir,
		Setup: func(e *testscript.Env) error {
			e.Setenv("UID_DSN", dsn(d))
			e.Setenv("GORACE", "atexit_sleep_ms=0") // else each command of a script waits a second at its end
			for i, id := range ids {
				e.Setenv(fmt.Sprint("ID", i+1), fmt.Sprint(id))
			}
			parts, err := generator.DefaultLayout().Decompose(int64(ids[0]))
			if err != nil {
				return err
			}
			e.Setenv("TIME1", at(parts.Time))
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"sql": func(ts *testscript.TestScript, _ bool, args []string) { ts.Check(db.Exec(args[0]).Error) },
		},
		UpdateScripts: os.Getenv("UPDATE_SCRIPTS") != "",
	})
}

// Scripts of users rely on these exit codes, which docs/command.md lists.
func TestRun_ExitCodes(t *testing.T) {
	t.Parallel()
	r := runner{t: t}
	for want, args := range [][]string{{"decode", "1176816959799427126"}, {"decode", "5"}, {"decode", "--layout", "nosuch", "5"}} {
		r.run(args...).want(t, want)
	}
}

func TestScripts_SQLite(t *testing.T) {
	t.Parallel()
	runScripts(t, "testdata/script", testkit.Engine{Name: "sqlite"}.New(t))
}

// These scripts run on each server, because the output differs from that on SQLite.
func TestScripts_Servers(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) { runScripts(t, "testdata/servers", d) })
}

package adopt_test

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/inspector"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	"gorm.io/gorm/schema"
)

// Rows of these tables are created together, so their ids are often of one tick.
type (
	Invoice Order
	Parcel  Order
	Payment Order
	Refund  Order
	Return  Order
)

var shop = []any{&Order{}, &Invoice{}, &Parcel{}, &Payment{}, &Refund{}, &Return{}}

// A rollout is a database that processes with the plugin and without it insert into.
type rollout struct {
	t      *testing.T
	models []any
	tables []string
	with   []*gorm.DB
	plugin *uidplugin.Plugin // of the last of them
	old    *gorm.DB
}

func newRollout(t *testing.T, d *testkit.Database, processes int, models ...any) *rollout {
	r := &rollout{t: t, models: models, old: d.Open(t, nil)}
	for _, m := range models {
		table := schema.NamingStrategy{}.TableName(reflect.TypeOf(m).Elem().Name())
		testkit.Must(t, r.old.Exec("CREATE TABLE "+table+" (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, name TEXT)").Error)
		r.tables = append(r.tables, table)
	}
	for range processes {
		db := d.Open(t, nil)
		r.plugin = harness.Use(t, db, uidplugin.WithModels(models...))
		r.with = append(r.with, db)
	}
	return r
}

// create creates a row of each model with the plugin.
func (r *rollout) create() {
	db := r.with[rand.IntN(len(r.with))]
	for _, m := range r.models {
		testkit.Must(r.t, db.Create(reflect.New(reflect.TypeOf(m).Elem()).Interface()).Error)
	}
}

// insert inserts n rows into each table without the plugin.
func (r *rollout) insert(n int) {
	for _, table := range r.tables {
		testkit.Must(r.t, r.old.Exec("INSERT INTO "+table+" (name) VALUES ('old')"+strings.Repeat(", ('old')", n-1)).Error)
	}
}

// fates counts what becomes of the rows of old processes.
type fates struct{ rows, located, elsewhere, nowhere, found, missing, wrong int }

// fates looks up all rows of old processes.
func (r *rollout) fates() (f fates) {
	for i, table := range r.tables {
		var ids []int64
		testkit.Must(r.t, r.old.Table(table).Where("name = 'old'").Pluck("id", &ids).Error)
		f.rows += len(ids)
		for _, id := range ids {
			l, err := r.plugin.Locate(r.t.Context(), uidplugin.ID(id))
			switch {
			case errors.Is(err, uidplugin.ErrNoSuchID):
				f.nowhere++
			case err != nil:
				r.t.Fatal(err)
			case l.Table == table:
				f.located++
			default:
				f.elsewhere++
			}
			row, err := r.plugin.Find(r.t.Context(), uidplugin.ID(id))
			switch {
			case errors.Is(err, gorm.ErrRecordNotFound) || errors.Is(err, uidplugin.ErrNoSuchID):
				f.missing++
			case err != nil:
				r.t.Fatal(err)
			case reflect.TypeOf(row) == reflect.TypeOf(r.models[i]):
				f.found++
			default:
				f.wrong++
			}
		}
	}
	return f
}

// While the database numbers the keys, the rows that old processes insert after a row of the plugin get numbers with
// the worker ids of other tables, if they are more than 15. Formerly Find did not find them, or found rows of other
// tables.
func TestRows_OfOldProcessesAreFound(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		r := newRollout(t, d, 1, shop...) // ids of two processes ascend to some milliseconds only
		for range 4 {
			r.create()
			r.insert(60)
		}
		if f := r.fates(); f.found != f.rows || f.rows != 4*60*len(shop) {
			t.Errorf("%+v", f)
		}
		var all []uidplugin.ID
		testkit.Must(t, r.old.Table("refunds").Pluck("id", &all).Error)
		rows, err := r.plugin.FindAll(t.Context(), all, uidplugin.OnlyModels(&Refund{}))
		if len(rows) != 4*61 || err != nil {
			t.Errorf("%d rows, and %v", len(rows), err)
		}
		if _, err := r.plugin.Find(t.Context(), all[30], uidplugin.OnlyModels(&Order{})); !errors.Is(err, uidplugin.ErrNoSuchID) {
			t.Errorf("a row of another model: %v", err)
		}
		page, err := inspector.New(r.with[0], inspector.WithModels(shop...))
		testkit.Must(t, err)
		shows := func(id uidplugin.ID, table string) {
			w := httptest.NewRecorder()
			page.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/id?id="+id.String(), nil))
			testkit.SaysAll(t, w.Body.String(), "This is a row of <strong>"+table+"</strong>")
		}
		shows(all[30], "refunds")
		// Formerly the page had no row for a number that has the worker id of no table.
		var of string
		var unknown uidplugin.ID
		for _, table := range r.tables {
			testkit.Must(t, r.old.Table(table).Pluck("id", &all).Error)
			for _, id := range all {
				if _, err := r.plugin.Locate(t.Context(), id); errors.Is(err, uidplugin.ErrUnknownID) {
					of, unknown = table, id
				}
			}
		}
		shows(unknown, of)
	}, "mariadb", "mysql")
}

// TestRowsMeasured prints what becomes of the rows of old processes, for docs/from-auto-increment.md.
func TestRowsMeasured(t *testing.T) {
	if *adoptFor == 0 {
		t.Skip("it takes minutes: -adopt.for 1m")
	}
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		for _, ratio := range []int{1, 4, 9, 19, 99} {
			r := newRollout(t, d.New(t), 2, shop...)
			r.create()
			for n := 0; n < 2000; {
				if rand.IntN(ratio+1) == 0 {
					r.create()
					continue
				}
				r.insert(1)
				n++
			}
			t.Logf("%d inserts without the plugin for each with it: %+v", ratio, r.fates())
		}
	}, "mariadb", "mysql")
}

package uidtest_test

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/glebarez/sqlite"
	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/inspector"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/publicid"
	"github.com/uidplugin/uidplugin/uidtest"
	"gorm.io/gorm"
)

// A ticket and its guest have keys that users see.
type (
	ticket struct {
		ID      publicid.ID[ticket]
		Seat    string
		GuestID publicid.ID[guest]
		Guest   guest
	}
	guest struct {
		ID   publicid.ID[guest]
		Name string
	}
)

// bothModels lists them.
var bothModels = uidplugin.WithModels(&ticket{}, &guest{})

func (ticket) PublicPrefix() string { return "tic" }
func (guest) PublicPrefix() string  { return "gst" }

// A lookedUp is a database with a ticket, whose id is of the instant at.
type lookedUp struct {
	*uidplugin.Plugin
	ctx  context.Context
	db   *gorm.DB
	at   time.Time
	row  ticket
	id   uidplugin.ID
	text string
}

// openLookedUp opens a database with a plugin and creates the ticket.
func openLookedUp(t *testing.T, p gorm.Plugin, at time.Time) lookedUp {
	t.Helper()
	plugintest.TestKeys()
	db := open(t, p, &guest{}, &ticket{})
	row := ticket{Seat: "12F", Guest: guest{Name: "Ada"}}
	testkit.Must(t, db.Create(&row).Error)
	return lookedUp{uidplugin.From(db), t.Context(), db, at, row, uidplugin.ID(row.ID), row.ID.String()}
}

// lookups are all that look ids up. Each returns what it finds, without what differs between runs.
var lookups = map[string]func(l lookedUp) (string, error){
	"Plugin.Decode": func(l lookedUp) (string, error) {
		parts, err := l.Decode(l.id)
		return fmt.Sprint(parts.Time.Sub(l.at).Abs() < time.Minute, parts.WorkerID != 0), err
	},
	"Plugin.Locate": func(l lookedUp) (string, error) {
		where, err := l.Locate(l.ctx, l.id)
		s := where.Session
		return fmt.Sprintf("%q %q %v %v %q slot %d", where.Table, where.Database, where.ID == l.id,
			where.Time.Sub(l.at).Abs() < time.Minute, s.Host, s.Slot), err
	},
	"Plugin.Find": func(l lookedUp) (string, error) {
		row, err := l.Find(l.ctx, l.id)
		return seat(row), err
	},
	"Plugin.FindAll": func(l lookedUp) (string, error) {
		rows, err := l.FindAll(l.ctx, []uidplugin.ID{l.id, uidplugin.ID(l.row.GuestID)})
		return fmt.Sprint(len(rows), seat(rows[l.id])), err
	},
	"publicid.Find": func(l lookedUp) (string, error) {
		row, err := publicid.Find(l.ctx, l.db, l.text, uidplugin.OnlyModels(&ticket{}, &guest{}))
		return seat(row), err
	},
	"FindAs": func(l lookedUp) (string, error) {
		rows, err := uidplugin.FindAs[ticket](l.ctx, l.db, l.id)
		return fmt.Sprint(len(rows), seat(rows[0])), err
	},
	"publicid.FindAs": func(l lookedUp) (string, error) {
		row, err := publicid.FindAs[ticket](l.ctx, l.db, l.text)
		return seat(row), err
	},
	"publicid.Parse": func(l lookedUp) (string, error) {
		id, err := publicid.Parse[ticket](l.text)
		return fmt.Sprint(id == l.row.ID), err
	},
	"ParseID": func(l lookedUp) (string, error) {
		id, err := uidplugin.ParseID(fmt.Sprint(int64(l.id)))
		return fmt.Sprint(id == l.id), err
	},
	"publicid.ParseAny": func(l lookedUp) (string, error) {
		id, err := publicid.ParseAny(l.text)
		return fmt.Sprint(id == int64(l.id)), err
	},
	"Plugin.CreatedBetween": func(l lookedUp) (string, error) {
		var out []int
		for _, from := range []time.Duration{-time.Hour, -2 * time.Hour, time.Hour} {
			var rows []ticket
			if err := l.db.Scopes(l.CreatedBetween(l.at.Add(from), l.at.Add(from+90*time.Minute))).Find(&rows).Error; err != nil {
				return "", err
			}
			out = append(out, len(rows))
		}
		return fmt.Sprint(out), nil
	},
	"Plugin.Range": func(l lookedUp) (string, error) {
		first, last, err := l.Range(l.at, l.at.Add(time.Hour))
		return fmt.Sprint(first > 0 && last > first), err
	},
	"Plugin.NextID": func(l lookedUp) (string, error) {
		id, err := l.NextID(l.ctx, &ticket{})
		return fmt.Sprint(id > l.id), err
	},
	"inspector.New": func(l lookedUp) (string, error) {
		page, err := inspector.New(l.db, inspector.WithModels(&ticket{}))
		if err != nil {
			return "", err
		}
		w := httptest.NewRecorder()
		page.ServeHTTP(w, httptest.NewRequest("GET", "/id?format=json&id="+l.text, nil))
		body := w.Body.String()
		if w.Code == 404 && strings.Contains(body, uidplugin.ErrNotDecodable.Error()) {
			return "", uidplugin.ErrNotDecodable
		}
		return fmt.Sprint(w.Code, strings.Contains(body, `"table": "tickets"`), strings.Contains(body, `"12F"`)), nil
	},
}

// seat returns the seat of a row that is a ticket.
func seat(row any) string {
	if row, ok := row.(*ticket); ok && row != nil {
		return row.Seat
	}
	return fmt.Sprintf("%T", row)
}

// withTime are the lookups that need the time, or the table, in the id.
var withTime = map[string]bool{
	"Plugin.Decode": true, "Plugin.Locate": true, "Plugin.Find": true, "Plugin.FindAll": true, "Plugin.CreatedBetween": true,
	"inspector.New": true,
}

// A test of an application finds what the application finds in production. Formerly CreatedBetween failed with both
// plugins, and publicid.Find with Fixed.
func TestPlugins_LookUpAsInProduction(t *testing.T) {
	t.Parallel()

	production := openLookedUp(t, uidplugin.New(bothModels, uidplugin.WithLogger(nil)), time.Now())
	defer func() { testkit.MustClose(t, production) }()
	fixed, sequential := openLookedUp(t, uidtest.Fixed(noon, bothModels), noon), openLookedUp(t, uidtest.Sequential(bothModels), noon)
	for name, lookup := range lookups {
		t.Run(name, func(t *testing.T) {
			want, err := lookup(production)
			testkit.Must(t, err)
			if got, err := lookup(fixed); err != nil || got != want {
				t.Errorf("Fixed: %s, %v; want %s", got, err, want)
			}
			got, err := lookup(sequential)
			if withTime[name] {
				testkit.IsError(t, err, uidplugin.ErrNotDecodable)
			} else if err != nil || got != want {
				t.Errorf("Sequential: %s, %v; want %s", got, err, want)
			}
		})
	}
}

// notLookups are the exported functions and methods that look no id up.
var notLookups = strings.Fields(`
	Plugin.AutoMigrate Plugin.Close Plugin.Health Plugin.Initialize Plugin.Layout Plugin.Name Plugin.Register Plugin.Stats
	Plugin.Nodes Plugin.Slots Plugin.Sessions From IDs New OnlyModels Scoped publicid.NewKeys publicid.SetKeys`)

// A lookup that is added later must not be forgotten.
func TestPlugins_EachLookupIsTried(t *testing.T) {
	t.Parallel()

	plugin := reflect.TypeFor[*uidplugin.Plugin]()
	var names []string
	for i := range plugin.NumMethod() {
		names = append(names, "Plugin."+plugin.Method(i).Name)
	}
	files, err := filepath.Glob("../*.go")
	testkit.Must(t, err)
	ofPublicid, err := filepath.Glob("../publicid/*.go")
	testkit.Must(t, err)
	for _, file := range append(files, ofPublicid...) {
		prefix := map[bool]string{true: "publicid."}[slices.Contains(ofPublicid, file)]
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		testkit.Must(t, err)
		for _, d := range parsed.Decls {
			if d, ok := d.(*ast.FuncDecl); ok && d.Recv == nil && d.Name.IsExported() && !strings.HasSuffix(file, "_test.go") {
				names = append(names, prefix+d.Name.Name)
			}
		}
	}
	if len(names) < 40 {
		t.Fatalf("only %d functions were found", len(names))
	}
	for _, name := range names {
		if lookups[name] == nil && !slices.Contains(notLookups, name) && !strings.HasPrefix(name, "With") {
			t.Errorf("%s is neither in lookups nor in notLookups", name)
		}
	}
}

// Formerly two tables of one worker id had equal ids. A layout with few worker ids makes such tables certain.
func TestFixed_TablesThatShareAWorkerID(t *testing.T) {
	t.Parallel()

	layout := generator.Layout{TimeBits: 41, WorkerBits: 1, SequenceBits: 4, Tick: time.Millisecond, Epoch: generator.DefaultLayout().Epoch}
	l := openLookedUp(t, uidtest.Fixed(noon, bothModels, uidplugin.WithLayout(layout)), noon)
	for range 20 {
		row := ticket{Seat: "1A", Guest: guest{Name: "Bob"}}
		testkit.Must(t, l.db.Create(&row).Error)
		for id, table := range map[uidplugin.ID]string{uidplugin.ID(row.ID): "tickets", uidplugin.ID(row.GuestID): "guests"} {
			if where, err := l.Locate(t.Context(), id); err != nil || where.Table != table {
				t.Errorf("the id %d of %s is of %q, %v", id, table, where.Table, err)
			}
		}
	}
	next, err := l.NextID(t.Context(), &guest{})
	testkit.Must(t, err)
	_, err = l.Locate(t.Context(), next+1) // nobody has it
	testkit.IsError(t, err, uidplugin.ErrUnknownID, "uidtest.Fixed")
}

// Ids that do not resolve to a table in production do not resolve to one in a test, and rows of an earlier run of the
// test are found.
func TestFixed_LocatesWhatProductionLocates(t *testing.T) {
	t.Parallel()

	for name, option := range map[string]uidplugin.Option{
		"WithOneWorkerID": uidplugin.WithOneWorkerID(), "WithWorkerID": uidplugin.WithWorkerID(7),
	} {
		l := openLookedUp(t, uidtest.Fixed(noon, bothModels, option), noon)
		where, err := l.Locate(t.Context(), l.id)
		if err != nil || where.Table != "" || where.Session.Host == "" {
			t.Errorf("%s: the id is of %v, %v", name, where, err)
		}
		_, err = l.Find(t.Context(), l.id)
		testkit.IsError(t, err, uidplugin.ErrNoModel, "serves all tables")
	}

	l := openLookedUp(t, uidtest.Fixed(noon, bothModels), noon)
	earlier := ticket{ID: l.row.ID + 5, Seat: "3C", GuestID: l.row.GuestID}
	testkit.Must(t, l.db.Create(&earlier).Error)
	row, err := l.Find(t.Context(), uidplugin.ID(earlier.ID))
	if err != nil || seat(row) != "3C" {
		t.Errorf("the row with an id of an earlier run is %v, %v", row, err)
	}
	for id, want := range map[uidplugin.ID]error{
		l.id + 16:    uidplugin.ErrUnknownID, // of another worker id
		l.id + 1<<40: uidplugin.ErrFutureID,
		42:           uidplugin.ErrNotDecodable,
		-1:           uidplugin.ErrNegativeID,
	} {
		_, err := l.Locate(t.Context(), id)
		testkit.IsError(t, err, want)
		testkit.IsError(t, err, uidplugin.ErrNoSuchID)
	}
}

// Formerly a test that needs a row of yesterday and one of today got ErrUnknownID for the row of yesterday.
func TestFixed_FindsRowsOfAnotherTime(t *testing.T) {
	t.Parallel()

	today := openLookedUp(t, uidtest.Fixed(noon, bothModels), noon)
	pool, err := today.db.DB()
	testkit.Must(t, err)
	earlier, err := gorm.Open(&sqlite.Dialector{Conn: pool}, &gorm.Config{})
	testkit.Must(t, err)
	yesterday := noon.AddDate(0, 0, -1)
	testkit.Must(t, earlier.Use(uidtest.Fixed(yesterday, bothModels)))
	row := ticket{Seat: "12F", Guest: guest{Name: "Ada"}}
	testkit.Must(t, earlier.Create(&row).Error)
	before := lookedUp{today.Plugin, t.Context(), today.db, yesterday, row, uidplugin.ID(row.ID), row.ID.String()}
	for name, lookup := range lookups {
		want, err := lookup(today)
		testkit.Must(t, err)
		if got, err := lookup(before); err != nil || got != want {
			t.Errorf("%s of the row of yesterday: %s, %v; want %s", name, got, err, want)
		}
	}
}

// Keys of segments have no time in production either.
func TestFixed_Segments(t *testing.T) {
	t.Parallel()

	type invoice struct {
		ID int64 `gorm:"primaryKey;uid:segment:invoice-service"`
	}
	db := open(t, uidtest.Fixed(noon, uidplugin.WithModels(&invoice{})), &invoice{})
	rows := make([]invoice, 3)
	testkit.Must(t, db.Create(&rows).Error)
	if rows[0].ID != 1 || rows[2].ID != 3 {
		t.Errorf("rows %v", rows)
	}
	_, err := uidplugin.From(db).Locate(t.Context(), 3)
	testkit.IsError(t, err, uidplugin.ErrNotDecodable, "segment")
	err = db.Scopes(uidplugin.From(db).CreatedBetween(noon, noon.Add(time.Hour))).Find(&rows).Error
	testkit.IsError(t, err, uidplugin.ErrNotDecodable, "the generator segment")
}

// Formerly a test that sets large keys itself got ErrUnknownID from publicid.Find.
func TestSequential_FindOfAPublicIDWithALargeKey(t *testing.T) {
	t.Parallel()

	l := openLookedUp(t, uidtest.Sequential(bothModels), noon)
	large := ticket{ID: 1 << 50, Seat: "9D", GuestID: l.row.GuestID}
	testkit.Must(t, l.db.Create(&large).Error)
	row, err := publicid.Find(t.Context(), l.db, large.ID.String())
	if err != nil || seat(row) != "9D" {
		t.Errorf("the row is %v, %v", row, err)
	}
	_, err = l.Decode(1 << 50)
	testkit.IsError(t, err, uidplugin.ErrNotDecodable, "uidtest.Sequential")
}

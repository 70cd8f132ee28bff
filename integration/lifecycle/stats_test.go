package lifecycle_test

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

func TestPluginStats_ShowsTheSlot(t *testing.T) {
	t.Parallel()

	db := plugintest.Open(t, uidplugin.WithModels(&plugintest.Part{}, &plugintest.Article{}))
	p := uidplugin.From(db)
	if err := p.Health(); err != nil {
		t.Errorf("Health: %v", err)
	}
	s := p.Stats()
	if l := s.Slot; l.ID != 1 || l.WorkerIDs != 2 || l.Allocated != 1 || l.Reclaimed != 0 ||
		l.Sessions != 1 || l.Lost != 0 || l.LostCommits != 0 || l.Given != 1026 || l.Failures != 0 ||
		l.LastError != nil || !l.Since.IsZero() {
		t.Errorf("%+v", l)
	}
	if now := time.Since(s.Time); now < 0 || now > time.Minute {
		t.Errorf("it was so at %v", s.Time)
	}
	until := time.Until(s.Slot.Until)
	if l := s.Slot; l.From.After(time.Now()) || until < 5*time.Minute || until > 11*time.Minute {
		t.Errorf("granted: %v to %v", l.From, l.Until)
	}
	for _, table := range s.Tables {
		if len(table.WorkerIDs) != 1 || table.From.Before(s.Slot.From) || table.Until != s.Slot.Until {
			t.Errorf("%+v", table)
		}
	}
	var space string
	must(t, db.Raw(`SELECT "ID_SPACE" FROM "WORKER_REGISTRY"`).Scan(&space).Error)
	if s.Space == "" || s.Space != space {
		t.Errorf("the id space is %q, and %q in the registry", s.Space, space)
	}
	testkit.MustClose(t, p)
	testkit.IsError(t, p.Health(), uidplugin.ErrClosed)
	if n := plugintest.Count(t, db, "WORKER_SLOT", `"HOLDER" <> ''`); n != 0 {
		t.Errorf("%d slots were not released", n)
	}
	if l := p.Stats().Slot; l.ID != 0 {
		t.Errorf("after Close: %+v", l)
	}
	testkit.IsError(t, uidplugin.From(plugintest.Bare(t)).Health(), uidplugin.ErrNotRegistered)
}

// Ids count when they are handed out, whether a row gets them or not.
func TestPluginStats_CountsIDs(t *testing.T) {
	t.Parallel()

	db := plugintest.Open(t, uidplugin.WithModels(&plugintest.Part{}, &plugintest.Article{}))
	plugintest.Migrate(t, db, &plugintest.Part{}, &plugintest.Article{})
	p := uidplugin.From(db)
	must(t, db.Create(&[]plugintest.Part{{}, {}, {}}).Error)
	_, err := p.NextID(t.Context(), &plugintest.Part{})
	must(t, err)
	for range 2 { // the second time after Close
		made := map[string]int64{}
		for _, table := range p.Stats().Tables {
			if made[table.Table] = table.Made; table.Waits != 0 {
				t.Errorf("%+v", table)
			}
		}
		if made["parts"] != 4 || made["articles"] != 0 {
			t.Errorf("made: %v", made)
		}
		testkit.MustClose(t, p)
	}
}

// breaking returns a handle whose statements fail while broken is true, if they contain text.
func breaking(t *testing.T, text string) (db *gorm.DB, broken *atomic.Bool) {
	t.Helper()
	db, broken = plugintest.Bare(t), new(atomic.Bool)
	plugintest.Tapped(db, func(_ context.Context, query string) error {
		if broken.Load() && strings.Contains(query, text) {
			return plugintest.ErrBroken
		}
		return nil
	})
	return db, broken
}

// A table that got no worker id is named with the database's own reason, until it has one. The others continue.
func TestPluginHealth_NamesATableThatGetsNoIDs(t *testing.T) {
	t.Parallel()

	db, broken := breaking(t, "INSERT INTO `main`.`WORKER_NODE`")
	p := plugintest.Use(t, db, uidplugin.WithModels(&plugintest.Article{}))
	plugintest.Migrate(t, db, &plugintest.Part{}, &plugintest.Article{})
	broken.Store(true)
	for range 2 {
		testkit.IsError(t, db.Create(&plugintest.Part{}).Error, plugintest.ErrBroken)
		err := p.Health()
		testkit.IsError(t, err, plugintest.ErrBroken, "uidplugin: ", "parts", "since 20")
		if strings.Contains(err.Error(), "table articles") {
			t.Errorf("Health: %v", err)
		}
		must(t, db.Create(&plugintest.Article{}).Error)
	}
	broken.Store(false)
	must(t, db.Create(&plugintest.Part{}).Error)
	testkit.Eventually(t, "Health recovers", time.Minute, func() bool { return p.Health() == nil })
}

func TestPluginHealth_AClockThatIsFarFromTheDatabasesIsRefused(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		name    string
		theirs  time.Time
		options []uidplugin.Option
		refused bool
	}{
		{"years behind", plugintest.Noon.AddDate(3, 0, 0), nil, true},
		{"years ahead", plugintest.Noon.AddDate(-3, 0, 0), nil, true},
		{"an hour", plugintest.Noon.Add(time.Hour), nil, true},
		{"minutes", plugintest.Noon.Add(9 * time.Minute), nil, false},
		{"an hour of two", plugintest.Noon.Add(time.Hour), []uidplugin.Option{plugintest.WithMaxSkew(2 * time.Hour)}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			db, mock := testkit.Mock(t, plugintest.Dialects[0].Dial)
			steps := plugintest.Migrated(plugintest.Dialects[0].SQL)
			last := 1
			plugintest.Expect(mock, steps[:last]...)
			plugintest.Expect(mock, plugintest.Step{SQL: "SELECT UNIX_TIMESTAMP()", Args: []driver.Value{}, Rows: sqlmock.NewRows([]string{"now"}).AddRow(tt.theirs.Unix())})
			if !tt.refused {
				plugintest.Expect(mock, steps[last:]...)
			}
			options := append([]uidplugin.Option{uidplugin.WithLogger(nil), plugintest.WithMaxSkew(workernode.DefaultMaxSkew)}, plugintest.OnMock...)
			err := db.Use(uidplugin.New(append(options, tt.options...)...))
			if errors.Is(err, workernode.ErrClock) != tt.refused {
				t.Fatalf("db.Use: %v", err)
			}
			if tt.refused {
				saysAll(t, err.Error(), "uidplugin: ", "2026-06-01 12:00:00", tt.theirs.Format(time.DateTime))
				plugintest.Unregistered(t, db)
			}
		})
	}
}

// The JSON must be readable without this package: no number for a kind or a duration, no year 1, and an error that is
// not {}.
func TestStats_JSON(t *testing.T) {
	t.Parallel()

	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		value any
		want  string
	}{
		{uidplugin.TableStats{Table: "orders", Generator: "cached", WorkerIDs: []int64{7}, From: at, Until: at, Lead: 1500 * time.Millisecond, Made: 9, Waits: 1},
			`{"table":"orders","generator":"cached","worker_ids":[7],"from":"2026-01-02T03:04:05Z","until":"2026-01-02T03:04:05Z","made":9,"waits":1,"lead":"1.5s"}`},
		{uidplugin.TableStats{Table: "*", Generator: "segment"}, `{"table":"*","generator":"segment","made":0,"waits":0}`},
		{workernode.SlotStats{ID: 1, Renewals: 2, LastError: errors.New("no \"way\""), Since: at},
			`{"id":1,"worker_ids":0,"given":0,"renewals":2,"failures":0,"sessions":0,"reclaimed":0,"allocated":0,"lost":0,"lost_commits":0,"since":"2026-01-02T03:04:05Z","last_error":"no \"way\""}`},
		{uidplugin.Location{ID: 7, Parts: generator.Parts{Time: at, WorkerID: 3}, Table: "orders", Session: workernode.Session{Slot: 1, Application: "shop", Host: "a", Port: "80", Kind: workernode.Container, From: at}},
			`{"id":"7","time":"2026-01-02T03:04:05Z","worker_id":3,"sequence":0,"table":"orders","session":{"slot":1,"application":"shop","host":"a","port":"80","kind":"container","from":"2026-01-02T03:04:05Z"}}`},
	} {
		if got, err := json.Marshal(c.value); err != nil || string(got) != c.want {
			t.Errorf("%s, %v; want\n%s", got, err, c.want)
		}
	}

	fixed, err := json.Marshal(uidplugin.From(plugintest.Open(t, uidplugin.WithWorkerID(7))).Stats())
	must(t, err)
	p := uidplugin.From(plugintest.Open(t, uidplugin.WithModels(&plugintest.Part{})))
	whole, err := json.Marshal(p.Stats())
	must(t, err)
	for _, text := range []string{string(fixed), string(whole)} {
		var back map[string]any
		must(t, json.Unmarshal([]byte(text), &back))
		if strings.Contains(text, "0001-01-01") || back["layout"] != p.Layout().String() || back["tables"] == nil {
			t.Errorf("%s", text)
		}
	}
	if strings.Contains(string(fixed), "slot") || !strings.Contains(string(whole), `"id_space":"`) {
		t.Errorf("with a fixed worker id %s, else %s", fixed, whole)
	}
}

// A time.Time after the year 9999 cannot be written as JSON, and some layouts end later.
func TestStats_JSONOfALayoutThatEndsAfter9999(t *testing.T) {
	t.Parallel()

	stats := uidplugin.From(plugintest.Open(t, uidplugin.WithLayout(generator.Layout{TimeBits: 51, WorkerBits: 6, SequenceBits: 6, Tick: time.Millisecond, Epoch: time.UnixMilli(1582136402000)}))).Stats()
	if text, err := json.Marshal(stats); err != nil || stats.Expires.Year() != 9999 {
		t.Errorf("%s, %v", text, err)
	}
}

// A host name of another program must not begin a new line in a log.
func TestLocation_StringQuotesWhatTablesSay(t *testing.T) {
	t.Parallel()

	l := uidplugin.Location{ID: 7, Table: "orders\n", Database: "shop", Session: workernode.Session{Application: "a\x1b[31m", Host: "h\r\nERROR", Port: "80"}}
	want := `id 7 of "orders\n" of the database "shop", made 0001-01-01 00:00:00 UTC by "a\x1b[31m" on "h\r\nERROR", port "80"`
	if got := l.String(); got != want {
		t.Errorf("%s, want\n%s", got, want)
	}
	if got := (uidplugin.Location{}).String(); !strings.HasPrefix(got, "id 0 of a table, made ") {
		t.Error(got)
	}
}

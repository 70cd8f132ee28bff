package uidplugin_test

import (
	"database/sql/driver"
	"errors"
	"testing"
	"time"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

func TestHealthAndStatsTellOfLeases(t *testing.T) {
	t.Parallel()

	db := open(t, uidplugin.WithModels(&part{}, &article{}))
	p := uidplugin.From(db)
	if err := p.Health(); err != nil {
		t.Errorf("Health: %v", err)
	}
	s := p.Stats()
	if s.Leases.Held != 4 || s.Leases.Spares != 2 || s.Leases.Fresh != 4 || s.Leases.LastError != nil {
		t.Errorf("%+v", s.Leases)
	}
	for _, table := range s.Tables {
		if len(table.WorkerIDs) != 1 || !table.From.Before(table.Until) || time.Until(table.Until) < 5*time.Minute {
			t.Errorf("%+v", table)
		}
	}
	must(t, p.Close(t.Context()))
	if err := p.Health(); !errors.Is(err, uidplugin.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if n := count(t, db, "WORKER_NODE", `"HOLDER" <> ''`); n != 0 {
		t.Errorf("%d worker ids were not given back", n)
	}
	if err := uidplugin.From(bare(t)).Health(); !errors.Is(err, uidplugin.ErrNotRegistered) {
		t.Errorf("without a plugin: %v", err)
	}
}

// TestAProcessTakesOverWhatAnotherGaveBack, so ids go on leading to their table, and
// to the process if it is still the one that the row names.
func TestAProcessTakesOverWhatAnotherGaveBack(t *testing.T) {
	t.Parallel()

	name := fileOf(t, bare(t))
	now := time.Now()
	start := func(host string, at time.Time) (*uidplugin.Plugin, int64) {
		db := file(t, name, &gorm.Config{})
		p := use(t, db, uidplugin.WithSpares(0), uidplugin.WithClock(func() time.Time { return at }),
			uidplugin.WithHost(workernode.Host{Name: host, Port: "1", Kind: workernode.Actual}))
		migrate(t, db, &part{})
		r := part{}
		must(t, db.Create(&r).Error)
		return p, r.ID
	}
	first, id := start("web-1", now)
	must(t, first.Close(t.Context()))
	second, other := start("web-2", now.Add(2*time.Hour))
	if other <= id {
		t.Errorf("%d after %d", other, id)
	}
	old, err := second.Locate(t.Context(), id)
	must(t, err)
	if old.Table != "parts" || old.Host != "" || !old.Launched.IsZero() {
		t.Errorf("the first process's id leads to %+v", old)
	}
	fresh, err := second.Locate(t.Context(), other)
	must(t, err)
	if fresh.Table != "parts" || fresh.Host != "web-2" || fresh.WorkerID != old.WorkerID || fresh.Launched.Sub(now.Add(2*time.Hour)).Abs() > 2*time.Second {
		t.Errorf("the second's to %+v", fresh)
	}
}

func TestAClockThatIsFarFromTheDatabasesIsRefused(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		name    string
		theirs  time.Time
		options []uidplugin.Option
		refused bool
	}{
		{"years behind", noon.AddDate(3, 0, 0), nil, true},
		{"years ahead", noon.AddDate(-3, 0, 0), nil, true},
		{"an hour", noon.Add(time.Hour), nil, true},
		{"minutes", noon.Add(9 * time.Minute), nil, false},
		{"an hour of two", noon.Add(time.Hour), []uidplugin.Option{uidplugin.WithMaxClockSkew(2 * time.Hour)}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			db, mock := mocked(t, dialects[0].dial)
			expect(mock, migrated(dialects[0].sql, 58)...)
			expect(mock, step{sql: "SELECT UNIX_TIMESTAMP()", args: []driver.Value{}, rows: sqlmock.NewRows([]string{"now"}).AddRow(tt.theirs.Unix())})
			options := append([]uidplugin.Option{uidplugin.WithLogger(nil), uidplugin.WithDisposable(), uidplugin.WithClock(atNoon),
				uidplugin.WithMaxClockSkew(workernode.DefaultMaxSkew)}, tt.options...)
			err := db.Use(uidplugin.New(options...))
			if errors.Is(err, workernode.ErrClock) != tt.refused {
				t.Fatalf("db.Use: %v", err)
			}
			if tt.refused {
				saysAll(t, err.Error(), "uidplugin: ", "2026-06-01 12:00:00", tt.theirs.Format(time.DateTime))
				unregistered(t, db)
			}
		})
	}
}

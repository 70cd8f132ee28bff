package narrow_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uidplugin/uidplugin/internal/catalog"
	"github.com/uidplugin/uidplugin/internal/config"
	"github.com/uidplugin/uidplugin/internal/inspect"
	"github.com/uidplugin/uidplugin/internal/model"
	"github.com/uidplugin/uidplugin/internal/narrow"
	"github.com/uidplugin/uidplugin/internal/supply"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// Creates that fail may be frequent, so the columns are read again at most once a second. Another program may have
// widened a column in the meantime.
func TestGuard_ReadsTheColumnsAgainOnceASecond(t *testing.T) {
	t.Parallel()

	type sample struct {
		ID   int64
		Next int64 `gorm:"uid"`
	}
	synctest.Test(t, func(t *testing.T) {
		file := testkit.SQLite{Path: testkit.SQLitePath(t)}
		db, other := file.Open(t), file.Open(t)
		create := func(kind string) {
			testkit.Must(t, other.Exec("DROP TABLE IF EXISTS samples").Error)
			testkit.Must(t, other.Exec("CREATE TABLE samples (id BIGINT PRIMARY KEY, next "+kind+")").Error)
		}
		create("REAL")
		cfg := config.New()
		ids := supply.New(supply.Config{Layout: cfg.Layout, Specs: cfg.Specs, Default: cfg.Generator, Log: cfg.Log})
		defer ids.Close(t.Context())
		guard := narrow.New(cfg, db, nil, catalog.New(cfg, db, ids))
		guard.Note(db, []any{&sample{}})
		guard.Inspect([]inspect.Column{{Table: "samples", Name: "next", Type: "REAL"}})
		testkit.Must(t, db.Callback().Create().Before("gorm:create").Register("narrow", guard.BeforeInsert))
		id := int64(0)
		refused := func() bool {
			id++
			err := db.Create(&sample{ID: id, Next: 1<<60 + 1}).Error
			if err != nil && !errors.Is(err, model.ErrField) {
				t.Fatal(err)
			}
			return err != nil
		}
		if !refused() {
			t.Error("an id that does not fit is stored")
		}
		create("BIGINT")
		if !refused() {
			t.Error("the columns are read again at once")
		}
		if time.Sleep(time.Second); refused() {
			t.Error("the columns are not read again after a second")
		}
	})
}

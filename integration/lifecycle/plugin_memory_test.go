package lifecycle_test

import (
	"fmt"
	"testing"

	"github.com/glebarez/sqlite"
	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// memory returns a handle on a SQLite database in memory with a pool of at most n connections, or of any number
// if n is 0.
func memory(t *testing.T, dsn string, n int) *gorm.DB {
	t.Helper()
	db, err := gorm.Open(sqlite.Open(dsn), &gorm.Config{Logger: logger.Discard})
	must(t, err)
	pool, err := db.DB()
	must(t, err)
	pool.SetMaxOpenConns(n)
	t.Cleanup(func() { _ = pool.Close() })
	return db
}

// Each connection to :memory: has a database of its own. A pool of several would lose the worker ids with whichever
// connection had them, so db.Use refuses it and says what to do.
func TestPluginInitialize_RefusesAMemoryDatabaseForEachConnection(t *testing.T) {
	t.Parallel()

	for _, dsn := range []string{":memory:", "file::memory:", "file:each?mode=memory"} {
		for _, n := range []int{0, 2} {
			db := memory(t, dsn, n)
			err := db.Use(uidplugin.New(uidplugin.WithLogger(nil)))
			testkit.IsError(t, err, workernode.ErrTable, "uidplugin: ", "in-memory", "SetMaxOpenConns(1)", "file::memory:?cache=shared")
			plugintest.Unregistered(t, db)
		}
	}
}

// With one connection, or a shared database, or a fixed worker id, a database in memory works.
func TestPluginInitialize_TakesAMemoryDatabase(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		name, dsn string
		pool      int
		option    uidplugin.Option
	}{
		{"one connection", ":memory:", 1, nil},
		{"one connection, models", ":memory:", 1, uidplugin.WithModels(&plugintest.Part{})},
		{"shared", "file:shared?mode=memory&cache=shared", 0, nil},
		{"shared, two connections", "file:two?mode=memory&cache=shared", 2, nil},
		{"fixed worker id", ":memory:", 1, uidplugin.WithWorkerID(3)},
	} {
		db := memory(t, tt.dsn, tt.pool)
		p := plugintest.Use(t, db, tt.option)
		plugintest.Migrate(t, db, &plugintest.Part{}, &plugintest.Counter{})
		var rows []plugintest.Part
		for i := range 50 {
			r := plugintest.Part{Name: fmt.Sprint(i)}
			must(t, db.Create(&r).Error)
			must(t, db.Transaction(func(tx *gorm.DB) error { return tx.Create(&plugintest.Part{}).Error }))
			rows = append(rows, r)
		}
		must(t, db.Create(&plugintest.Counter{}).Error)
		if n := plugintest.Count(t, db, "parts"); n != 100 {
			t.Errorf("%s: %d rows", tt.name, n)
		}
		for _, r := range rows {
			if _, err := p.Locate(t.Context(), uidplugin.ID(r.ID)); err != nil {
				t.Fatal(err)
			}
		}
		testkit.MustClose(t, p)
	}
}

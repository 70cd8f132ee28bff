package lifecycle_test

import (
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// lookupOnly returns a handle on a file whose plugin makes no ids. The connections refuse every change.
func lookupOnly(t *testing.T, path string, options ...uidplugin.Option) (*gorm.DB, error) {
	t.Helper()
	db := testkit.SQLite{Path: path, Params: []string{"_pragma=query_only(1)"}}.Open(t)
	return db, db.Use(uidplugin.New(append(options, uidplugin.WithLookupOnly())...))
}

type lookedUp struct {
	ID   uidplugin.ID
	Text string
}

// A plugin that only looks up finds tables, processes and rows, writes nothing, and takes no slot.
func TestWithLookupOnly_WritesNothing(t *testing.T) {
	t.Parallel()

	path := testkit.SQLitePath(t)
	db := testkit.SQLite{Path: path}.Open(t)
	must(t, db.Use(uidplugin.New(uidplugin.WithHost(workernode.Host{Name: "web-1"}))))
	must(t, uidplugin.From(db).AutoMigrate(&lookedUp{}))
	row := lookedUp{Text: "a"}
	must(t, db.Create(&row).Error)
	testkit.MustClose(t, uidplugin.From(db))

	reader, err := lookupOnly(t, path, uidplugin.WithModels(&lookedUp{}))
	must(t, err)
	p := uidplugin.From(reader)
	l, err := p.Locate(t.Context(), row.ID)
	if must(t, err); l.Table != "looked_ups" || l.Session.Host != "web-1" {
		t.Errorf("%+v", l)
	}
	found, err := p.Find(t.Context(), row.ID)
	if must(t, err); found.(*lookedUp).Text != "a" {
		t.Errorf("%+v", found)
	}
	slots, err := plugintest.NodesOf(t, reader).Slots(t.Context(), p.Layout(), 0, 10)
	if must(t, err); len(slots) != 1 || slots[0].Held {
		t.Errorf("%+v", slots)
	}
	testkit.IsError(t, reader.Create(&lookedUp{}).Error, uidplugin.ErrOption, "WithLookupOnly")
	testkit.IsError(t, plugintest.Second(p.NextID(t.Context(), &lookedUp{})), uidplugin.ErrOption, "WithLookupOnly")
	must(t, p.Health())
	testkit.MustClose(t, p)
}

// It begins no id space: a layout that was pinned by a tool would bind the application.
func TestWithLookupOnly_BeginsNoIDSpace(t *testing.T) {
	t.Parallel()

	path := testkit.SQLitePath(t)
	db := testkit.SQLite{Path: path}.Open(t)
	must(t, db.Exec("PRAGMA user_version = 1").Error)
	testkit.IsError(t, plugintest.Second(lookupOnly(t, path)), workernode.ErrTable, "WORKER_NODE")
	must(t, db.Use(uidplugin.New()))
	testkit.MustClose(t, uidplugin.From(db))
	must(t, db.Exec(`DELETE FROM "WORKER_REGISTRY"`).Error)
	_, err := lookupOnly(t, path)
	testkit.IsError(t, err, workernode.ErrTable, "WORKER_REGISTRY has no row", "a migration job leave WithLookupOnly out")
	_, err = lookupOnly(t, path, uidplugin.WithWorkerID(1))
	testkit.IsError(t, err, uidplugin.ErrOption, "WithLookupOnly", "WithWorkerID")
}

package lookup_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/admin"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
)

// An id whose session was pruned has a table, a time and a row, and no process: neither an error nor a wrong one.
func TestPluginLocate_AfterPruning(t *testing.T) {
	t.Parallel()

	path := testkit.SQLitePath(t)
	c := testkit.NewClock(time.Now())
	var first, last uidplugin.ID
	for _, host := range []string{"web-1", "web-2"} {
		db := plugintest.File(t, path, nil)
		p := plugintest.Use(t, db, uidplugin.WithClock(c.Now), uidplugin.WithHost(workernode.Host{Name: host}))
		must(t, p.AutoMigrate(&plugintest.Article{}))
		row := plugintest.Article{Name: host}
		must(t, db.Create(&row).Error)
		if first == 0 {
			first = row.ID
		}
		last = row.ID
		testkit.MustClose(t, p)
		c.Add(time.Hour)
	}
	db := plugintest.File(t, path, nil)
	p := plugintest.Use(t, db, uidplugin.WithClock(c.Now), uidplugin.WithModels(&plugintest.Article{}))
	operator, err := admin.Connect(db, time.Minute, c.Now)
	must(t, err)
	must(t, operator.ReadRegistry(t.Context()))
	did, err := operator.Prune(t.Context(), c.Now().Add(-time.Minute))
	if must(t, err); did.Sessions != 1 {
		t.Fatalf("%+v", did)
	}

	l, err := p.Locate(t.Context(), first)
	must(t, err)
	if l.Session != (workernode.Session{}) || l.Table != "articles" || l.Time.IsZero() || l.WorkerID == 0 {
		t.Errorf("%+v", l)
	}
	testkit.SaysAll(t, l.String(), "articles", "by a process that is not known")
	text, err := json.Marshal(l)
	must(t, err)
	testkit.SaysAll(t, string(text), `"session":{"application":"","host":"","port":""}`)
	found, err := p.Find(t.Context(), first)
	if must(t, err); found.(*plugintest.Article).Name != "web-1" {
		t.Errorf("%+v", found)
	}
	if l, err = p.Locate(t.Context(), last); err != nil || l.Session.Host != "web-2" || l.Session.Pruned() {
		t.Errorf("%+v, %v", l, err)
	}
}

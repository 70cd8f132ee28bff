package leases_test

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/admin"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/migrations"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// Sessions are pruned while a process makes ids. Older ids resolve to their table and time, to no process, and never to
// a wrong one; in SQL too, which knows nothing of pruning, as earlier versions of the library do not.
func TestPrune_OldIDsKeepTheirTable(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		c := testkit.NewClock(time.Now())
		db := d.Open(t, nil)
		var dates []time.Time
		ids := map[string]uidplugin.ID{}
		const processes = 6
		for i := range processes {
			port := fmt.Sprint("process", i)
			p := harness.Use(t, d.Open(t, nil), uidplugin.WithModels(&harness.T1{}), uidplugin.WithClock(c.Now),
				uidplugin.WithHost(workernode.Host{Port: port}))
			dates = append(dates, c.Now())
			if i == 3 { // while it holds the slot: what began before process 2 goes
				did, err := operator(t, db).Prune(t.Context(), dates[2])
				if testkit.Must(t, err); did != (admin.Pruning{Slots: 1, Sessions: 2}) {
					t.Errorf("%+v", did)
				}
			}
			id, err := p.NextID(t.Context(), &harness.T1{})
			testkit.Must(t, err)
			ids[port] = id
			harness.Close(t, p)
			c.Add(2 * time.Hour)
		}
		p := harness.Use(t, d.Open(t, nil), uidplugin.WithClock(c.Now))
		last := dates[processes-1].Add(time.Minute)
		nodes := operator(t, db)
		preview, err := nodes.Prunable(t.Context(), last)
		testkit.Must(t, err)
		did, err := nodes.Prune(t.Context(), last)
		if testkit.Must(t, err); preview != did || did.Slots != 1 || did.Sessions != processes-3 {
			t.Errorf("preview %+v, did %+v", preview, did)
		}
		testkit.Must(t, migrations.CreateFunctions(t.Context(), db))
		for port, id := range ids {
			checkPruned(t, p, db, port, id, port == fmt.Sprint("process", processes-1))
		}
		list, err := nodes.Nodes.Sessions(t.Context(), p.Layout(), 1, time.Time{}, 10)
		if testkit.Must(t, err); len(list) < 2 || !list[len(list)-1].Pruned() || list[0].Pruned() {
			t.Errorf("%+v", list)
		}
	})
}

// operator returns what the command uid works with.
func operator(t *testing.T, db *gorm.DB) *admin.DB {
	t.Helper()
	d, err := admin.Connect(db, time.Minute, time.Now)
	testkit.Must(t, err)
	testkit.Must(t, d.ReadRegistry(t.Context()))
	return d
}

// checkPruned checks what an id resolves to, in Go and in SQL: its process if it was kept, else none.
func checkPruned(t *testing.T, p *uidplugin.Plugin, db *gorm.DB, port string, id uidplugin.ID, kept bool) {
	t.Helper()
	want := ""
	if kept {
		want = port
	}
	l, err := p.Locate(t.Context(), id)
	if err != nil || l.Table != "t1" || l.Session.Port != want || (l.Session == workernode.Session{}) == kept ||
		l.Time.IsZero() {
		t.Errorf("%d of %s: %+v, %v", id, port, l, err)
	}
	var table, process string
	query := `SELECT table_name, port FROM uid_origin WHERE worker_id = ? AND ? BETWEEN first_id AND last_id`
	testkit.Must(t, db.Raw(query, l.WorkerID, id).Row().Scan(&table, &process))
	if table != "t1" || process != want {
		t.Errorf("%d of %s: SQL says %q, %q", id, port, table, process)
	}
	if db.Dialector.Name() != "sqlite" {
		var of sql.NullString
		testkit.Must(t, db.Raw(`SELECT uid_table(?)`, id).Row().Scan(&of))
		if of.String != "t1" {
			t.Errorf("%d of %s: uid_table says %v", id, port, of)
		}
	}
}

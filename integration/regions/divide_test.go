package regions_test

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/follow"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/admin"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/migrations"
	"gorm.io/gorm"
)

// The registry of a server in use is divided while a process runs. Then the server is copied, and the other region begins
// on the copy. Both servers locate the ids from before.
func TestRegions_BeginWithAServerInUse(t *testing.T) {
	t.Parallel()
	e := testkit.MariaDB()
	a := &region{Server: e.NewServer(t, serverOptions(e.Name, 0)...), name: "a"}
	a.open(t)
	ledger := testkit.NewLedger(t)
	writers := []*writer{a.start(t, ledger, writerTask{Patient: true})}
	others := divide(t, a.db, 2)
	writers = append(writers, a.start(t, ledger, writerTask{Region: [2]int{0, 2}, Patient: true}))
	a.Run(t, "stop")
	b := &region{Server: a.Copy(t, serverOptions(e.Name, 1)...), name: "b"}
	a.Run(t, "start")
	b.Run(t, "start")
	b.open(t)

	var position string
	testkit.Must(t, b.db.Raw("SELECT @@gtid_binlog_pos").Scan(&position).Error)
	b.exec(t, "RESET MASTER", "SET GLOBAL gtid_slave_pos = '"+position+"'")
	begin(t, b.db, others[0])
	b.follow(t, a)
	a.follow(t, b)
	before := ledger.Len()
	writers = append(writers, b.start(t, ledger, writerTask{Region: [2]int{1, 2}}))
	testkit.Eventually(t, "rows of both", time.Minute, func() bool { return ledger.Len() > before+300 })
	for _, w := range writers {
		testkit.Must(t, w.Stop())
	}
	caughtUp(t, a, b)
	rows := located(t, a.Database(), ledger)
	if n := located(t, b.Database(), ledger); n != rows {
		t.Errorf("%d rows in b, %d in a", n, rows)
	}
	t.Logf("%d rows, %d of them before the other server began", rows, before)
}

// divide divides the registry of a database, and returns the new regions.
func divide(t *testing.T, db *gorm.DB, of int64) []admin.Region {
	t.Helper()
	d, err := admin.Connect(db, time.Minute, time.Now)
	testkit.Must(t, err)
	testkit.Must(t, d.ReadRegistry(t.Context()))
	_, others, err := d.Split(t.Context(), of, 0)
	testkit.Must(t, err)
	return others
}

// begin begins a region in a database, which may be a copy of another region's.
func begin(t *testing.T, db *gorm.DB, r admin.Region) {
	t.Helper()
	testkit.Must(t, migrations.Up(t.Context(), db))
	harness.Exec(t, db, `DELETE FROM "WORKER_REGISTRY"`)
	harness.Exec(t, db, r.SQL[0])
}

// The tables of an earlier version are upgraded on one of two servers, while the other one writes. The statements reach
// the other one by replication, except those about WORKER_REGISTRY, which it runs itself.
func TestRegions_TablesAreUpgradedOnOneServerFirst(t *testing.T) {
	t.Parallel()
	a, b := newRegions(t, testkit.MariaDB())
	for _, r := range []*region{a, b} {
		testkit.Must(t, migrations.Up(t.Context(), r.db))
		for table, column := range map[string]string{"WORKER_NODE": "DATABASE_NAME", "WORKER_REGISTRY": "SCHEMA_VERSION"} {
			r.exec(t, "ALTER TABLE "+table+" DROP COLUMN "+column)
		}
		r.exec(t, "RESET MASTER")
	}
	b.follow(t, a)
	a.follow(t, b)
	write := func(r *region, id int) {
		harness.Exec(t, r.db, `INSERT INTO "WORKER_NODE" ("ID", "HOST_NAME", "PORT", "TYPE", "LAUNCH_DATE") VALUES (?, 'earlier', '', 1, CURRENT_DATE)`, id)
	}
	a.relay.Cut()
	b.relay.Cut()
	write(a, 2)
	write(b, 1)
	testkit.Must(t, migrations.Up(t.Context(), a.db))
	write(a, 4)
	write(b, 3)
	a.relay.Restore(t)
	b.relay.Restore(t)
	testkit.Eventually(t, "the new column", time.Minute, func() bool { return b.db.Migrator().HasColumn("WORKER_NODE", "DATABASE_NAME") })
	if b.db.Migrator().HasColumn("WORKER_REGISTRY", "SCHEMA_VERSION") {
		t.Error("WORKER_REGISTRY is replicated")
	}
	testkit.Must(t, migrations.Up(t.Context(), b.db))
	write(b, 5)
	testkit.Eventually(t, "all rows", time.Minute, func() bool {
		replicates(t, a, b)
		return harness.Count(t, a.db, "WORKER_NODE") == 5 && harness.Count(t, b.db, "WORKER_NODE") == 5
	})
}

// Each region follows its own rows, and gets those of the other one by replication, past the trigger. If follow.Enable was
// replicated, the other server would get a trigger without its tables, and refuse all rows.
func TestRegions_FollowTheirOwnRows(t *testing.T) {
	t.Parallel()
	a, b := newRegions(t, testkit.MariaDB())
	ledger := testkit.NewLedger(t)
	var handles []*gorm.DB
	own := make([]map[int64]bool, 2)
	for n, r := range []*region{a, b} {
		db := r.Database().Open(t, nil)
		harness.Use(t, db, writerTask{Region: [2]int{n, 2}, Port: r.name}.options()...)
		testkit.Must(t, db.AutoMigrate(models...))
		if r == a {
			b.follow(t, a)
			testkit.Eventually(t, "the tables", time.Minute, func() bool { return b.db.Migrator().HasTable("notes") })
			a.follow(t, b)
		}
		handles, own[n] = append(handles, db), map[int64]bool{}
	}
	create := func() {
		for n, db := range handles {
			notes := make([]note, 20)
			testkit.Must(t, db.Create(&notes).Error)
			for _, row := range notes {
				own[n][int64(row.ID)] = true
				ledger.Add("notes "+string(rune('a'+n)), int64(row.ID))
			}
		}
	}
	create()
	for _, r := range []*region{a, b} {
		session := r.Database().Open(t, nil, "sql_log_bin=0")
		harness.Use(t, session, uidplugin.WithLookupOnly())
		testkit.Must(t, follow.Enable(t.Context(), session, &note{}, follow.WithSlack(300*time.Millisecond)))
	}
	create()
	caughtUp(t, a, b)
	for n, db := range handles {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		got := map[int64]bool{}
		for row, err := range follow.Rows[note](ctx, db, 0) {
			if err != nil {
				if ctx.Err() == nil {
					t.Error(err)
				}
				break
			}
			got[int64(row.ID)] = true
			if len(got) == len(own[n]) { // no other row comes soon
				time.AfterFunc(time.Second, cancel)
			}
		}
		cancel()
		if !maps.Equal(got, own[n]) {
			t.Errorf("region %d follows %d rows, and has made %d: %v", n, len(got), len(own[n]), slices.Sorted(maps.Keys(got)))
		}
	}
	caughtUp(t, a, b)
	located(t, a.Database(), ledger)
	located(t, b.Database(), ledger)
}

package outage_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
)

// Each failure must be visible in three places: the log, Health, and the error of a create, with the database's own
// reason. A process that only stops making ids tells nobody what to do.

// visible waits until the log, Health and a create have the reason.
func visible(t *testing.T, p *uidplugin.Plugin, j *testkit.Log, reason string) {
	t.Helper()
	testkit.Eventually(t, "Health that says "+reason, time.Minute, func() bool {
		err := p.Health()
		return err != nil && strings.Contains(err.Error(), reason)
	})
	err := harness.Refused(t, "error that says "+reason, func() error {
		_, err := harness.NextID(p)
		return err
	}, func(err error) bool { return strings.Contains(err.Error(), reason) })
	testkit.IsError(t, err, generator.ErrLeaseExpired, "t1")
	if !strings.Contains(j.String(), reason) {
		t.Errorf("the log does not say %q:\n%s", reason, j)
	}
}

// healthy waits until ids come again.
func healthy(t *testing.T, p *uidplugin.Plugin) {
	t.Helper()
	testkit.Eventually(t, "health", time.Minute, func() bool { return p.Health() == nil })
	harness.MustID(t, p)
}

// Another program locks the row of the slot.
func TestVisible_LockWaits(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		j := &testkit.Log{}
		db := d.Open(t, nil)
		p := harness.Use(t, db, uidplugin.WithLogger(j.Logger()), uidplugin.WithModels(&harness.T1{}), uidplugin.WithLead(3*time.Second))
		lock := d.Open(t, nil).Begin()
		testkit.Must(t, lock.Error)
		table := map[bool]string{true: "`WORKER_SLOT`", false: `"WORKER_SLOT"`}[d.IsMySQL()]
		testkit.Must(t, lock.Exec("SELECT * FROM "+table+" FOR UPDATE").Error)
		visible(t, p, j, "a lock is held")
		testkit.Must(t, lock.Rollback().Error)
		healthy(t, p)
	}, "mariadb", "mysql", "postgres")
}

// The server refuses writes, as a replica does after a failover.
func TestVisible_ReadOnlyServer(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		harness.Close(t, harness.Use(t, d.Open(t, nil), uidplugin.WithModels(&harness.T1{}), uidplugin.WithLead(3*time.Second))) // makes the tables
		params := map[string]string{"mariadb": "tx_read_only=1", "mysql": "transaction_read_only=1",
			"postgres": "default_transaction_read_only=on"}
		j := &testkit.Log{}
		db := d.Open(t, nil, params[d.Name])
		var err error
		testkit.Eventually(t, "error with the database's reason", time.Minute, func() bool { // a busy machine is slow
			err = db.Use(uidplugin.New(uidplugin.WithLogger(j.Logger()), uidplugin.WithModels(&harness.T1{}),
				uidplugin.WithTimeout(2*time.Second)))
			return err == nil || strings.Contains(strings.ReplaceAll(strings.ToLower(err.Error()), "-", " "), "read only")
		})
		testkit.IsError(t, err, nil, "uidplugin: ", "t1")
	}, "mariadb", "mysql", "postgres")
}

// A start on a server that refuses writes fails at once, because only an operator can change that.
func TestVisible_AStartOnAReadOnlyServerDoesNotWait(t *testing.T) {
	t.Parallel()
	for _, e := range testkit.Engines() {
		if !e.IsMySQL() {
			continue
		}
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			d := e.NewServer(t).New(t)
			admin := d.Open(t, nil)
			harness.Close(t, harness.Use(t, admin, uidplugin.WithModels(&harness.T1{}))) // makes the tables
			u := harness.NewUser(t, d)
			u.Grant("ALL")
			testkit.Must(t, admin.Exec("SET GLOBAL read_only = ON").Error)
			err := u.Open().Use(uidplugin.New(harness.Quiet, uidplugin.WithModels(&harness.T1{}), uidplugin.WithTimeout(time.Minute)))
			testkit.IsError(t, err, nil, "no worker id for t1: the database is read-only for this connection; connect to the primary", "Error 1290")
			testkit.Must(t, admin.Exec("SET GLOBAL read_only = OFF").Error)
		})
	}
}

// A user loses the right to change the slot's row while the process runs.
func TestVisible_ARightIsRevoked(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		harness.Close(t, harness.Use(t, d.Open(t, nil), uidplugin.WithLead(3*time.Second)))
		u := harness.NewUser(t, d)
		u.Grant("SELECT, INSERT, UPDATE", "WORKER_NODE", "WORKER_SLOT", "WORKER_SESSION", "WORKER_REGISTRY")
		j := &testkit.Log{}
		p := harness.Use(t, u.Open(), uidplugin.WithLogger(j.Logger()), uidplugin.WithModels(&harness.T1{}))
		harness.MustID(t, p)
		u.Revoke("UPDATE", "WORKER_SLOT")
		visible(t, p, j, "denied")
		u.Grant("UPDATE", "WORKER_SLOT")
		healthy(t, p)
	}, "mariadb", "mysql", "postgres")
}

// The starts of a user who must not insert worker ids use up none. Formerly, on a small layout, all were used up after
// 15 attempts, although no process ever had one.
func TestVisible_FailedStartsUseUpNoWorkerIDs(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		admin := d.Open(t, nil)
		harness.Close(t, harness.Use(t, admin, uidplugin.WithLayout(harness.FewWorkers(4))))
		u := harness.NewUser(t, d)
		u.Grant("SELECT, INSERT, UPDATE", "WORKER_SLOT", "WORKER_SESSION", "WORKER_REGISTRY")
		u.Grant("SELECT, UPDATE", "WORKER_NODE")
		j := &testkit.Log{}
		for range 15 {
			err := u.Open().Use(uidplugin.New(uidplugin.WithLogger(j.Logger()), uidplugin.WithLayout(harness.FewWorkers(4)), uidplugin.WithModels(&harness.T1{}),
				uidplugin.WithTimeout(time.Minute)))
			testkit.IsError(t, err, nil, "t1", "WORKER_NODE", "denied")
		}
		wdb, err := workernode.Open(admin, time.Minute)
		testkit.Must(t, err)
		r, err := wdb.Registry(t.Context())
		testkit.Must(t, err)
		if r.NextID != 1 || len(harness.Nodes(t, admin)) != 0 {
			t.Errorf("NEXT_ID is %d after 15 failed starts", r.NextID)
		}
		u.Grant("INSERT", "WORKER_NODE")
		q := harness.Use(t, u.Open(), uidplugin.WithLayout(harness.FewWorkers(4)), uidplugin.WithModels(&harness.T1{}))
		if w := q.Stats().Tables[0].WorkerIDs[0]; w != 1 {
			t.Errorf("worker id %d", w)
		}
	}, "mariadb", "mysql", "postgres")
}

func TestVisible_ClosedPool(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		j := &testkit.Log{}
		db, err := d.Connect(nil)
		testkit.Must(t, err)
		p := uidplugin.New(uidplugin.WithLogger(j.Logger()), uidplugin.WithModels(&harness.T1{}), uidplugin.WithLead(3*time.Second))
		testkit.Must(t, db.Use(p))
		harness.MustID(t, p)
		testkit.Must(t, testkit.Close(db))
		visible(t, p, j, "database is closed")
		if err := p.Close(t.Context()); err == nil {
			t.Error("Close reports no error, although the slot was not released")
		}
	})
}

// Somebody has set FENCE far ahead: the process says so, gets another slot, and goes on. The ids that it made before
// resolve still.
func TestVisible_FenceAhead(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		j := &testkit.Log{}
		db := d.Open(t, nil)
		p := harness.Use(t, db, uidplugin.WithLogger(j.Logger()), uidplugin.WithModels(&harness.T1{}), uidplugin.WithLead(3*time.Second))
		before := harness.MustID(t, p)
		former := p.Stats().Slot.ID
		harness.Exec(t, db, `UPDATE "WORKER_SLOT" SET "FENCE" = "FENCE" + 1000000000, "VERSION" = "VERSION" + 1`)
		testkit.Eventually(t, "other slot", time.Minute, func() bool {
			_, err := harness.NextID(p)
			s := p.Stats().Slot
			return err == nil && s.ID != 0 && s.ID != former
		})
		healthy(t, p)
		j.SaysOnce(t, "further ahead of the clock than the lead")
		harness.Resolves(t, p, "t1", "", before, harness.MustID(t, p))
	})
}

// FLOOR_TICK lies far ahead, as an operator may set it by mistake: a start is refused, and says which value is wrong.
func TestVisible_FloorAhead(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		harness.Close(t, harness.Use(t, db))
		harness.Exec(t, db, `UPDATE "WORKER_REGISTRY" SET "FLOOR_TICK" = 2000000000000`)
		j := &testkit.Log{}
		err := d.Open(t, nil).Use(uidplugin.New(uidplugin.WithLogger(j.Logger()), uidplugin.WithModels(&harness.T1{}), uidplugin.WithTimeout(time.Minute)))
		testkit.IsError(t, err, workernode.ErrClock, "FLOOR_TICK", "2000000000000", "t1")
	})
}

// A table gets no worker id, because all are given out. Tables that have one continue.
func TestVisible_NoWorkerIDsLeft(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		testkit.Must(t, db.AutoMigrate(&harness.T1{}, &harness.T2{}))
		p := harness.Use(t, db, uidplugin.WithLayout(harness.FewWorkers(4)), uidplugin.WithModels(harness.Ten[harness.D0, harness.D0]()...))
		harness.Use(t, d.Open(t, nil), uidplugin.WithLayout(harness.FewWorkers(4)), uidplugin.WithModels(harness.Ten[harness.D0, harness.D0]()[:5]...))
		err := db.Create(&harness.T1{}).Error
		testkit.IsError(t, err, workernode.ErrExhausted, "t1", "15")
		testkit.IsError(t, p.Health(), workernode.ErrExhausted, "t1")
		if _, err := p.NextID(t.Context(), &harness.Numbered[harness.D0, harness.D0, harness.D3]{}); err != nil {
			t.Errorf("a table that has a worker id: %v", err)
		}
	})
}

// A deadlock between the process and another program rolls one of them back. The worker id is added all the same, and
// no id is lost or made twice.
func TestVisible_DeadlockIsTriedAgain(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db, wire := testkit.OpenWire(t, d)
		testkit.Must(t, db.AutoMigrate(&harness.T1{}, &harness.T2{}))
		j := &testkit.Log{}
		p := harness.Use(t, db, uidplugin.WithLogger(j.Logger()), uidplugin.WithModels(&harness.T1{}))
		other := d.Open(t, nil)
		q := func(s string) string {
			if d.IsMySQL() {
				return strings.ReplaceAll(s, `"`, "`")
			}
			return s
		}
		// The INSERT of the process waits for this row, and then the other program waits for the row of the slot.
		tx := other.Begin()
		testkit.Must(t, tx.Error)
		var next int64 // read first: INSERT ... SELECT would lock the row of the registry
		testkit.Must(t, other.Raw(q(`SELECT "NEXT_ID" FROM "WORKER_REGISTRY"`)).Scan(&next).Error)
		testkit.Must(t, tx.Exec(q(`INSERT INTO "WORKER_NODE" ("ID", "HOST_NAME", "PORT", "TYPE", "LAUNCH_DATE") VALUES (?, '', '', 1, CURRENT_DATE)`), next).Error)
		reached, done := make(chan struct{}), make(chan error, 1)
		reach := sync.OnceFunc(func() { close(reached) })
		wire.Set(func(c *testkit.Crossing) error {
			if c.Is("INSERT INTO WORKER_NODE") {
				reach()
			}
			return c.Run()
		})
		go func() {
			<-reached
			time.Sleep(50 * time.Millisecond)
			err := tx.Exec(q(`UPDATE "WORKER_SLOT" SET "MODIFIED" = CURRENT_TIMESTAMP`)).Error
			done <- errors.Join(err, tx.Rollback().Error)
		}()
		ledger := testkit.NewLedger(t)
		row := harness.T2{}
		testkit.Must(t, db.Create(&row).Error)
		ledger.Add("t2", row.ID)
		t.Logf("the other program: %v", <-done)
		healthy(t, p)
		for range 100 {
			id, err := p.NextID(t.Context(), &harness.T2{})
			testkit.Must(t, err)
			ledger.Add("t2", int64(id))
		}
		reader := harness.Use(t, other, uidplugin.WithModels(&harness.T1{}))
		harness.Resolves(t, reader, "t2", "", row.ID)
	}, "mariadb", "mysql", "postgres")
}

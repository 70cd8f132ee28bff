package integration_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// Each failure must be visible in three places: the log, Health, and the error of a create, with the database's own
// reason. A process that only stops making ids tells nobody what to do.

// visible waits until the log, Health and a create have the reason.
func visible(t *testing.T, p *uidplugin.Plugin, j *journal, reason string) {
	t.Helper()
	eventually(t, 10*time.Second, "Health that says "+reason, func() bool {
		err := p.Health()
		return err != nil && strings.Contains(err.Error(), reason)
	})
	var err error
	for begin := time.Now(); err == nil && time.Since(begin) < 10*time.Second; {
		_, err = nextID(p)
	}
	says(t, err, generator.ErrLeaseExpired, "t1", reason)
	if !strings.Contains(j.String(), reason) {
		t.Errorf("the log does not say %q:\n%s", reason, j)
	}
}

// healthy waits until ids come again.
func healthy(t *testing.T, p *uidplugin.Plugin) {
	t.Helper()
	eventually(t, 10*time.Second, "health", func() bool { return p.Health() == nil })
	if _, err := nextID(p); err != nil {
		t.Error(err)
	}
}

// Another program locks the row of the slot.
func TestVisible_LockWaits(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		j := &journal{}
		db := open(t, d)
		p := use(t, db, j.option(), uidplugin.WithModels(&T1{}), uidplugin.WithLead(time.Second))
		lock := open(t, d).Begin()
		must(t, lock.Error)
		table := map[bool]string{true: "`WORKER_SLOT`", false: `"WORKER_SLOT"`}[d.isMySQL()]
		must(t, lock.Exec("SELECT * FROM "+table+" FOR UPDATE").Error)
		visible(t, p, j, "a lock is held")
		must(t, lock.Rollback().Error)
		healthy(t, p)
	}, "mariadb", "mysql", "postgres")
}

// The server refuses writes, as a replica does after a failover.
func TestVisible_ReadOnlyServer(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		must(t, closeOf(use(t, open(t, d), uidplugin.WithModels(&T1{}), uidplugin.WithLead(time.Second)))) // makes the tables
		params := map[string]string{"mariadb": "tx_read_only=1", "mysql": "transaction_read_only=1",
			"postgres": "default_transaction_read_only=on"}
		j := &journal{}
		err := open(t, d, params[d.name]).Use(uidplugin.New(j.option(), uidplugin.WithModels(&T1{}),
			uidplugin.WithTimeout(2*time.Second)))
		says(t, err, nil, "uidplugin: ", "t1")
		if text := strings.ToLower(err.Error()); !strings.Contains(text, "read only") &&
			!strings.Contains(text, "read-only") {
			t.Errorf("the error does not have the database's reason: %v", err)
		}
	}, "mariadb", "mysql", "postgres")
}

func closeOf(p *uidplugin.Plugin) error { return p.Close(context.Background()) }

// A user loses the right to change the slot's row while the process runs.
func TestVisible_ARightIsRevoked(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		must(t, closeOf(use(t, open(t, d), uidplugin.WithLead(time.Second))))
		u := newUser(t, d)
		u.grant("SELECT, INSERT, UPDATE", "WORKER_NODE", "WORKER_SLOT", "WORKER_SESSION", "WORKER_REGISTRY")
		j := &journal{}
		p := use(t, u.open(), j.option(), uidplugin.WithModels(&T1{}))
		_, err := nextID(p)
		must(t, err)
		u.revoke("UPDATE", "WORKER_SLOT")
		visible(t, p, j, "denied")
		u.grant("UPDATE", "WORKER_SLOT")
		healthy(t, p)
	}, "mariadb", "mysql", "postgres")
}

// A user who must not insert worker ids starts again and again: that uses up none. On a small layout all were gone
// after 15 attempts, although no process ever had one.
func TestVisible_FailedStartsUseUpNoWorkerIDs(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		admin := open(t, d)
		must(t, closeOf(use(t, admin, uidplugin.WithLayout(few(4)))))
		u := newUser(t, d)
		u.grant("SELECT, INSERT, UPDATE", "WORKER_SLOT", "WORKER_SESSION", "WORKER_REGISTRY")
		u.grant("SELECT, UPDATE", "WORKER_NODE")
		j := &journal{}
		for range 15 {
			err := u.open().Use(uidplugin.New(j.option(), uidplugin.WithLayout(few(4)), uidplugin.WithModels(&T1{}),
				uidplugin.WithTimeout(5*time.Second)))
			says(t, err, nil, "t1", "WORKER_NODE", "denied")
		}
		wdb, err := workernode.Open(admin, time.Minute)
		must(t, err)
		r, err := wdb.OpenRegistry(t.Context(), few(4), workernode.DefaultLead)
		must(t, err)
		if r.NextID != 1 || len(rows(t, admin)) != 0 {
			t.Errorf("NEXT_ID is %d after 15 failed starts", r.NextID)
		}
		u.grant("INSERT", "WORKER_NODE")
		q := use(t, u.open(), uidplugin.WithLayout(few(4)), uidplugin.WithModels(&T1{}))
		if w := q.Stats().Tables[0].WorkerIDs[0]; w != 1 {
			t.Errorf("worker id %d", w)
		}
	}, "mariadb", "mysql", "postgres")
}

// A dbUser is a user of the database with the rights that a test grants.
type dbUser struct {
	t     *testing.T
	d     *database
	admin *gorm.DB
	name  string
}

func newUser(t *testing.T, d *database) *dbUser {
	t.Helper()
	u := &dbUser{t, d, open(t, d), strings.ReplaceAll(d.schema, "t", "v")}
	if d.isMySQL() {
		must(t, u.admin.Exec("CREATE USER "+u.name+"@'%' IDENTIFIED BY 'secret'").Error)
		t.Cleanup(func() { must(t, u.admin.Exec("DROP USER "+u.name+"@'%'").Error) })
	} else {
		must(t, u.admin.Exec("CREATE ROLE "+u.name+" LOGIN PASSWORD 'secret'").Error)
		must(t, u.admin.Exec("GRANT USAGE ON SCHEMA "+d.schema+" TO "+u.name).Error)
		t.Cleanup(func() { must(t, u.admin.Exec("DROP OWNED BY "+u.name+"; DROP ROLE "+u.name).Error) })
	}
	return u
}

func (u *dbUser) change(what, rights, to string, tables ...string) {
	u.t.Helper()
	for _, table := range tables {
		on, user := `"`+table+`"`, u.name
		if u.d.isMySQL() {
			on, user = u.d.schema+"."+table, u.name+"@'%'"
		}
		must(u.t, u.admin.Exec(what+" "+rights+" ON "+on+" "+to+" "+user).Error)
	}
}

func (u *dbUser) grant(rights string, tables ...string) {
	u.t.Helper()
	u.change("GRANT", rights, "TO", tables...)
}
func (u *dbUser) revoke(rights string, tables ...string) {
	u.t.Helper()
	u.change("REVOKE", rights, "FROM", tables...)
}

// open returns a handle of the user.
func (u *dbUser) open() *gorm.DB {
	u.t.Helper()
	dsn := strings.Replace(u.d.dsn(), "test:test@", u.name+":secret@", 1)
	if u.d.name == "postgres" {
		dsn = u.d.dsn("user="+u.name, "password=secret")
	}
	db, err := gorm.Open(u.d.dialector(dsn), &gorm.Config{Logger: logger.Discard})
	must(u.t, err)
	u.t.Cleanup(func() { _ = closed(db) })
	return db
}

// The pool is closed under the plugin.
func TestVisible_ClosedPool(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		j := &journal{}
		db, err := d.connect(nil)
		must(t, err)
		p := uidplugin.New(j.option(), uidplugin.WithModels(&T1{}), uidplugin.WithLead(time.Second))
		must(t, db.Use(p))
		_, err = nextID(p)
		must(t, err)
		must(t, closed(db))
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
	each(t, func(t *testing.T, d *database) {
		j := &journal{}
		db := open(t, d)
		p := use(t, db, j.option(), uidplugin.WithModels(&T1{}), uidplugin.WithLead(time.Second))
		before, err := nextID(p)
		must(t, err)
		former := p.Stats().Slot.ID
		execute(t, db, `UPDATE "WORKER_SLOT" SET "FENCE" = "FENCE" + 1000000000, "VERSION" = "VERSION" + 1`)
		eventually(t, 10*time.Second, "other slot", func() bool {
			_, err := nextID(p)
			s := p.Stats().Slot
			return err == nil && s.ID != 0 && s.ID != former
		})
		healthy(t, p)
		j.saysOnce(t, "further ahead of the clock than the lead")
		after, err := nextID(p)
		must(t, err)
		resolves(t, p, "t1", "", before, after)
	})
}

// FLOOR_TICK lies far ahead, as an operator may set it by mistake: a start is refused, and says which value is wrong.
func TestVisible_FloorAhead(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		db := open(t, d)
		must(t, closeOf(use(t, db)))
		execute(t, db, `UPDATE "WORKER_REGISTRY" SET "FLOOR_TICK" = 2000000000000`)
		j := &journal{}
		err := open(t, d).Use(uidplugin.New(j.option(), uidplugin.WithModels(&T1{}), uidplugin.WithTimeout(5*time.Second)))
		says(t, err, workernode.ErrClock, "FLOOR_TICK", "2000000000000", "t1")
	})
}

// A table gets no worker id, because all are given out. Tables that have one go on.
func TestVisible_NoWorkerIDsLeft(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		db := open(t, d)
		must(t, db.AutoMigrate(&T1{}, &T2{}))
		p := use(t, db, uidplugin.WithLayout(few(4)), uidplugin.WithModels(ten[d0, d0]()...))
		use(t, open(t, d), uidplugin.WithLayout(few(4)), uidplugin.WithModels(ten[d0, d0]()[:5]...))
		err := db.Create(&T1{}).Error
		says(t, err, workernode.ErrExhausted, "t1", "15")
		says(t, p.Health(), workernode.ErrExhausted, "t1")
		if _, err := p.NextID(t.Context(), &Numbered[d0, d0, d3]{}); err != nil {
			t.Errorf("a table that has a worker id: %v", err)
		}
	})
}

// A deadlock between the process and another program rolls one of them back. The table of a spare is written all the
// same, and no id is lost or made twice.
func TestVisible_DeadlockIsTriedAgain(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		db, tap := tapped(t, d)
		must(t, db.AutoMigrate(&T1{}, &T2{}))
		j := &journal{}
		p := use(t, db, j.option(), uidplugin.WithModels(&T1{}))
		other := open(t, d)
		q := func(s string) string {
			if d.isMySQL() {
				return strings.ReplaceAll(s, `"`, "`")
			}
			return s
		}
		tx := other.Begin()
		must(t, tx.Error)
		must(t, tx.Exec(q(`UPDATE "WORKER_NODE" SET "MODIFIED" = CURRENT_TIMESTAMP, "CREATED" = "CREATED" WHERE "TABLE_NAME" = ''`)).Error)
		must(t, tx.Exec(q(`SELECT * FROM "WORKER_NODE" WHERE "TABLE_NAME" = '' FOR UPDATE`)).Error)
		reached, done := make(chan struct{}), make(chan error, 1)
		tap.meet(func(query string, run func() error) error {
			if strings.Contains(query, "CASE WHEN") && strings.Contains(query, "TABLE_NAME") {
				select {
				case <-reached:
				default:
					close(reached)
				}
			}
			return run()
		})
		ledger := testkit.NewLedger(t)
		row := T2{}
		must(t, db.Transaction(func(tx *gorm.DB) error { return tx.Create(&row).Error }))
		ledger.Add("t2", row.ID)
		go func() {
			<-reached
			time.Sleep(50 * time.Millisecond)
			err := tx.Exec(q(`UPDATE "WORKER_SLOT" SET "MODIFIED" = CURRENT_TIMESTAMP`)).Error
			done <- errors.Join(err, tx.Rollback().Error)
		}()
		t.Logf("the other program: %v", <-done)
		eventually(t, 10*time.Second, "table of the spare", func() bool {
			for _, n := range rows(t, other) {
				if n.Table.Name == "t2" {
					return true
				}
			}
			return false
		})
		healthy(t, p)
		for range 100 {
			id, err := p.NextID(t.Context(), &T2{})
			must(t, err)
			ledger.Add("t2", int64(id))
		}
		reader := use(t, other, uidplugin.WithModels(&T1{}))
		resolves(t, reader, "t2", "", row.ID)
	}, "mariadb", "mysql", "postgres")
}

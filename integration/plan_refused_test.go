package integration_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// Renewals are not part of the application's transaction: if they were, its rollback
// would take the fence back, and others would make the same ids.
func TestRollbackTakesNoFenceBack(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		for _, inside := range []bool{false, true} { // the control
			db := open(t, fresh(t, d.engine))
			c := newMovedClock(0)
			lessor(t, db, c, nil) // makes the tables
			pool, err := workernode.Open(db, 10*time.Second)
			must(t, err)
			tx := db.Begin()
			must(t, tx.Error)
			if inside {
				pool = pool.On(tx.Statement.ConnPool)
			}
			k, err := workernode.NewLeased(pool, small(4), workernode.Host{Name: "h", Port: "1", Kind: workernode.Actual}, workernode.LeasedConfig{Now: c.now})
			must(t, err)
			var ids counted
			ids.add(drain(t, tenant(t, k, c, "t1"))...)
			if inside {
				must(t, k.Close(t.Context()))
			}
			must(t, tx.Rollback().Error)
			ids.add(drain(t, tenant(t, lessor(t, db, c, nil), c, "t1"))...)
			if !inside {
				must(t, k.Close(t.Context()))
			}
			if (ids.twice > 0) != inside {
				t.Errorf("inside the transaction %t: %d of %d ids came twice", inside, ids.twice, len(ids.seen))
			}
		}
	}, "mariadb", "mysql", "postgres")
}

// A transaction that has the only connection waits in vain for another one; that is why
// its ids come from what was granted before.
func TestTheOnlyConnection(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		db := open(t, d)
		must(t, db.AutoMigrate(&T1{}))
		pool, err := db.DB()
		must(t, err)
		pool.SetMaxOpenConns(1)
		use(t, db, uidplugin.WithModels(&T1{}), uidplugin.WithSpares(0))
		beside, err := workernode.Open(db, 200*time.Millisecond)
		must(t, err)
		must(t, db.Transaction(func(tx *gorm.DB) error {
			_, err := beside.Exec(t.Context(), `UPDATE "WORKER_REGISTRY" SET "NEXT_ID" = "NEXT_ID" WHERE 1 = 0`)
			says(t, err, context.DeadlineExceeded)
			begin := time.Now()
			err = tx.Create(&T1{}).Error
			if took := time.Since(begin); took > 200*time.Millisecond {
				t.Errorf("a create took %v", took)
			}
			return err
		}))
	})
}

// Without the refusal of autocommit=0, a worker id would be in use whose row goes away
// with the connection, and the next process would get it again.
func TestAutocommitOffControl(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		c := newMovedClock(0)
		healthy := open(t, d)
		lessor(t, healthy, c, nil) // makes the tables
		var ids counted
		db, err := d.connect(nil, "autocommit=0")
		must(t, err)
		pool, err := db.DB()
		must(t, err)
		pool.SetMaxOpenConns(1)
		b := &believer{DB: pool}
		db.Config.ConnPool, db.Statement.ConnPool = b, b
		w, err := workernode.Open(db, 10*time.Second)
		must(t, err)
		k, err := workernode.NewLeased(w, small(4), workernode.Host{Name: "h", Port: "1", Kind: workernode.Actual}, workernode.LeasedConfig{Now: c.now})
		must(t, err)
		ids.add(drain(t, tenant(t, k, c, "t1"))...)
		must(t, k.Close(t.Context()))
		must(t, pool.Close()) // and nothing was committed
		ids.add(drain(t, tenant(t, lessor(t, healthy, c, nil), c, "t1"))...)
		if ids.twice == 0 {
			t.Errorf("%d ids, none twice: there would be no need to refuse autocommit=0", len(ids.seen))
		}
	}, "mariadb", "mysql")
}

// Without the layout in the registry, processes with different layouts would make the
// same numbers with different worker ids.
func TestLayoutMismatchControl(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		c := newMovedClock(0)
		db := open(t, d)
		one, other := generator.DefaultLayout(), generator.DefaultLayout()
		other.WorkerBits, other.SequenceBits = 21, 14
		var ids counted
		for i, layout := range []generator.Layout{one, other, one, one} { // worker ids 1, 2, 3 and 4: 2<<14 is 4<<13
			if i == 1 || i == 2 { // another one than before
				says(t, open(t, d).Use(uidplugin.New(quiet, uidplugin.WithLayout(layout))), workernode.ErrLayoutMismatch)
				execute(t, db, `UPDATE "WORKER_REGISTRY" SET "LAYOUT" = ?`, layout.String())
			}
			p := use(t, open(t, d), uidplugin.WithLayout(layout), uidplugin.WithModels(&T1{}), uidplugin.WithClock(c.now), uidplugin.WithSpares(0))
			for range 100 {
				id, err := nextID(p)
				must(t, err)
				ids.add(id)
			}
		}
		if ids.twice == 0 {
			t.Errorf("%d ids, none twice: there would be no need to refuse another layout", len(ids.seen))
		}
	}, "mariadb")
}

// Processes that take all worker ids there are, and crash: the next one is refused, no
// worker id is used twice or wrapped around, and it gets one as soon as the fences of
// those that are gone have passed. Worker ids that are wrapped around make ids twice.
func TestAllWorkerIDsCrashed(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		layout := few(8) // 1 to 255
		c := newMovedClock(0)
		start := func(db *gorm.DB, option uidplugin.Option) (*uidplugin.Plugin, error) {
			p := uidplugin.New(quiet, uidplugin.WithLayout(layout), uidplugin.WithClock(c.now), option)
			return p, db.Use(p)
		}
		models := thousand()[:255]
		var ids counted
		take := func(p *uidplugin.Plugin, model any) {
			t.Helper()
			id, err := p.NextID(t.Context(), model)
			must(t, err)
			ids.add(id)
			if parts, err := p.Decode(id); err != nil || parts.WorkerID < 1 || parts.WorkerID > 255 {
				t.Fatalf("id %d: %+v, %v", id, parts, err)
			}
		}
		crashed, v := valved(t, d)
		p, err := start(crashed, uidplugin.WithModels(models...))
		must(t, err)
		for _, model := range models {
			take(p, model)
		}
		v.shut.Store(true)
		refused := func(when string, model any) {
			t.Helper()
			_, err := start(open(t, d), uidplugin.WithModels(model))
			if !errors.Is(err, workernode.ErrExhausted) || !strings.Contains(fmt.Sprint(err), "255") {
				t.Errorf("%s: %v", when, err)
			}
		}
		refused("while they are held", models[0])
		c.move(15 * time.Second)
		refused("before the fences have passed", models[0])
		wait := time.Minute
		if d.name == "sqlite" {
			wait = 11 * time.Minute // its leases are longer
		}
		c.move(wait)
		refused("for a table that none is of", &T1{})
		p, err = start(open(t, d), uidplugin.WithModels(models...))
		must(t, err)
		for _, model := range models {
			take(p, model)
		}
		if n := len(rows(t, open(t, d))); n != 255 || ids.twice > 0 {
			t.Errorf("%d rows, %d ids came twice", n, ids.twice)
		}
		must(t, p.Close(t.Context()))

		for i := range 300 { // the control
			p, err := start(open(t, fresh(t, engines[0])), uidplugin.WithWorkerID(int64(i%255)+1))
			must(t, err)
			take(p, &T1{})
			if ids.twice > 0 {
				return
			}
		}
		t.Error("no id came twice with worker ids that wrap around")
	}, "sqlite", "mariadb")
}

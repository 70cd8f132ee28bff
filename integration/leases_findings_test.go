package integration_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// What was found by trying to break it.

// TwoKinds has ids of two generators.
type TwoKinds struct {
	ID   int64 `gorm:"primaryKey;autoIncrement:false;uid:cached"`
	Code int64 `gorm:"uid:default"`
}

// One generator of a table has lost its worker id, which the other gets later.
func TestTwoGeneratorsOfATableAfterALoss(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		c := newMovedClock(4)
		j := &journal{}
		db1, v := valved(t, d)
		p1 := use(t, db1, uidplugin.WithClock(c.now), uidplugin.WithSpares(0), j.option(), uidplugin.WithMaxClockBackwards(time.Minute))
		must(t, db1.AutoMigrate(&TwoKinds{}))
		var ids used
		create := func(code int64) {
			t.Helper()
			row := TwoKinds{Code: code}
			must(t, db1.Create(&row).Error)
			ids.add(t, row.ID, "ID")
			if code == 0 {
				ids.add(t, row.Code, "Code")
			}
		}
		worker := func() int64 { return p1.Stats().Tables[0].WorkerIDs[0] }
		create(1)
		first := worker()
		// Process 1 is cut off, then process 2 comes and goes.
		v.shut.Store(true)
		c.move(3 * time.Minute)
		time.Sleep(300 * time.Millisecond)
		db2 := open(t, d)
		p2 := uidplugin.New(quiet, uidplugin.WithClock(c.now), uidplugin.WithSpares(0))
		must(t, db2.Use(p2))
		row := TwoKinds{Code: 1}
		must(t, db2.Create(&row).Error)
		must(t, p2.Close(t.Context()))
		v.shut.Store(false)
		eventually(t, 10*time.Second, "other worker id", func() bool {
			_, _ = p1.NextID(context.Background(), &TwoKinds{})
			return worker() != first
		})
		for range 4 {
			c.move(8 * time.Second)
			create(1)
			time.Sleep(1300 * time.Millisecond)
		}
		if worker() == first {
			t.Fatal("it has the worker id that it began with: nothing is tested")
		}
		for begin := time.Now(); time.Since(begin) < 8*time.Second; time.Sleep(20 * time.Millisecond) {
			rows := make([]TwoKinds, 500)
			ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
			err := db1.WithContext(ctx).Create(&rows).Error
			cancel()
			if err != nil {
				t.Fatalf("after %v: %v; health: %v; %+v", time.Since(begin), err, p1.Health(), p1.Stats().Tables)
			}
			for _, row := range rows {
				ids.add(t, row.ID, "ID")
				ids.add(t, row.Code, "Code")
			}
		}
	}, "postgres")
}

// A process that has been idle must not bind a spare that another one may have by now.
func TestASpareIsNotUsedAfterALongRest(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		c := newMovedClock(0)
		db := open(t, d)
		must(t, db.AutoMigrate(&T1{}))
		pool, err := db.DB()
		must(t, err)
		pool.SetMaxOpenConns(1)
		p := use(t, db, uidplugin.WithClock(c.now))
		c.move(15 * time.Minute)
		time.Sleep(time.Second)
		other := uidplugin.New(quiet, uidplugin.WithClock(c.now))
		must(t, open(t, d).Use(other))
		defer func() { _ = other.Close(t.Context()) }()
		row := T1{}
		err = db.Transaction(func(tx *gorm.DB) error { return tx.Create(&row).Error })
		if errors.Is(err, uidplugin.ErrInTransaction) {
			return // better than an id that leads nowhere
		}
		must(t, err)
		eventually(t, 5*time.Second, "the table of the spare", func() bool {
			l, err := p.Locate(t.Context(), int64(row.ID))
			return err == nil && l.Table == "t1"
		})
	}, "postgres", "sqlite")
}

// setWall is the clock of the machine, whose wall clock tests set; the monotonic reading
// stays.
type setWall struct{ ahead atomic.Int64 } // seconds

func (s *setWall) now() time.Time {
	now := time.Now()
	*(*uint64)(unsafe.Pointer(&now)) += uint64(s.ahead.Load()) << 30
	return now
}

// The wall clock is set an hour ahead by mistake, and the database's is right.
func TestAWallClockThatIsAheadChangesNothing(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		s, j := &setWall{}, &journal{}
		db, v := valved(t, d)
		p := use(t, db, uidplugin.WithClock(s.now), uidplugin.WithMaxClockSkew(10*time.Minute), uidplugin.WithModels(&T1{}), j.option())
		_, err := nextID(p)
		must(t, err)
		before := v.n.Load()
		s.ahead.Store(3600)
		longest, last := time.Duration(0), int64(0)
		for begin := time.Now(); time.Since(begin) < 12*time.Second; time.Sleep(10 * time.Millisecond) {
			start := time.Now()
			id, err := nextID(p)
			must(t, err)
			longest, last = max(longest, time.Since(start)), id
		}
		if n := v.n.Load() - before; n > 12 {
			t.Errorf("%d statements in 12 s\n%s", n, j)
		}
		parts, _ := p.Decode(last)
		// It may bear a time that is ahead by what a fresh lease is.
		if off := time.Since(parts.Time); off > 3*time.Second || off < -15*time.Second {
			t.Errorf("the last id bears a time %v ago", off)
		}
		t.Logf("longest wait %v", longest)
	}, "postgres")
}

// The row of a spare that was read for a number that is no id is not what it will be.
func TestLocateRemembersNoSpares(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		c := newMovedClock(0)
		a, av := valved(t, d)
		use(t, a, uidplugin.WithClock(c.now), uidplugin.WithSpares(1), quiet)
		must(t, a.AutoMigrate(&T1{}, &T2{}, &T3{}))
		defer av.shut.Store(false)
		b := open(t, d)
		pb := use(t, b, uidplugin.WithClock(c.now), uidplugin.WithSpares(1), quiet)
		spare := rows(t, a)[0]
		// Somebody asks B for a number with the worker id of A's spare, of a later tick.
		bogus, err := pb.Layout().Compose(generator.Parts{Time: pb.Layout().TimeOf(spare.Fence + 5), WorkerID: spare.WorkerID, Sequence: 7})
		must(t, err)
		_, err = pb.Locate(t.Context(), bogus)
		if err == nil {
			t.Error("a number that nobody made leads somewhere")
		}
		// A's keeper is cut off; A uses its spare for t1 in a transaction that commits, and dies.
		tx := a.Begin()
		row := T1{}
		av.shut.Store(true)
		must(t, tx.Create(&row).Error)
		must(t, tx.Commit().Error)
		// Two minutes later B, which has used its own spare, takes A's over, for t2.
		c.move(3 * time.Minute)
		for i := range 200 {
			time.Sleep(20 * time.Millisecond)
			n := rows(t, b)
			if i == 20 {
				tx := b.Begin()
				must(t, tx.Create(&T3{}).Error)
				must(t, tx.Commit().Error)
			}
			if k := slices.IndexFunc(n, func(n *workernode.Node) bool { return n.WorkerID == spare.WorkerID && n.Holder != spare.Holder }); k >= 0 {
				break
			}
		}
		tx = b.Begin()
		defer tx.Rollback()
		must(t, tx.Create(&T2{}).Error)
		l, err := pb.Locate(t.Context(), int64(row.ID))
		if err == nil && l.Table != "t1" {
			t.Errorf("the id of a row of t1 leads to %+v", l)
		}
	}, "postgres")
}

// Where worker ids are used up, attempts to get some cost UidGenerator none, and do not
// follow one another without a pause.
func TestExhaustionLeavesUidGeneratorItsNumbers(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		db, v := valved(t, d)
		execute(t, db, "CREATE TABLE WORKER_NODE (ID BIGINT NOT NULL AUTO_INCREMENT, HOST_NAME VARCHAR(64) NOT NULL, PORT VARCHAR(64) NOT NULL, TYPE INT NOT NULL, LAUNCH_DATE DATE NOT NULL, MODIFIED TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, CREATED TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, PRIMARY KEY(ID)) ENGINE=INNODB")
		l := small(4)
		l.WorkerBits = 4
		wdb, err := workernode.Open(db, 10*time.Second)
		must(t, err)
		use(t, open(t, d), uidplugin.WithLayout(l), uidplugin.WithSpares(0))
		k, err := workernode.NewLeased(wdb, l, workernode.Host{Name: "h", Port: "1"}, workernode.LeasedConfig{})
		must(t, err)
		leases, err := k.Assign(t.Context(), "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n")
		must(t, err)
		// one is left; two are wanted
		if _, err := k.Assign(t.Context(), "o", "p"); !errors.Is(err, workernode.ErrExhausted) {
			t.Fatal(err)
		}
		var id int64
		execute(t, db, `INSERT INTO WORKER_NODE (HOST_NAME, PORT, TYPE, LAUNCH_DATE) VALUES ('java', '', 1, CURRENT_DATE)`)
		must(t, db.Raw("SELECT MAX(ID) FROM WORKER_NODE").Scan(&id).Error)
		if id != 15 {
			t.Errorf("15 was nobody's, and UidGenerator got %d: its 4 bits hold up to 15", id)
		}
		g, err := generator.NewCached(generator.CachedConfig{Layout: l, Lease: leases[0], Low: k.Need})
		must(t, err)
		k.Keep(leases[0], g)
		before := v.n.Load()
		begin := time.Now()
		for time.Since(begin) < 8*time.Second {
			if _, err := g.Next(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if n := v.n.Load() - before; n > 60 {
			t.Errorf("%d statements in 8 s", n)
		}
		execute(t, db, `INSERT INTO WORKER_NODE (HOST_NAME, PORT, TYPE, LAUNCH_DATE) VALUES ('java', '', 1, CURRENT_DATE)`)
		must(t, db.Raw("SELECT MAX(ID) FROM WORKER_NODE").Scan(&id).Error)
		if id > 16 {
			t.Errorf("AUTO_INCREMENT is at %d", id)
		}
		must(t, k.Close(t.Context()))
	}, "mysql")
}

package follow_test

import (
	"cmp"
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/follow"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	engine "github.com/uidplugin/uidplugin/internal/follow"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// A trigger for each statement does not fire for rows that are inserted into a partition directly.
func TestEnable_GuardsEveryWayIntoAPartitionedTable(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		run := func(query string, args ...any) error { return db.Exec(query, args...).Error }
		testkit.Must(t, run("CREATE TABLE events (id bigint PRIMARY KEY, writer bigint, n bigint) PARTITION BY RANGE (id)"))
		testkit.Must(t, run("CREATE TABLE low PARTITION OF events FOR VALUES FROM (0) TO (1000)"))
		testkit.Must(t, run("CREATE TABLE high PARTITION OF events "+
			"FOR VALUES FROM (1000) TO (9000000000000000000) PARTITION BY RANGE (id)"))
		testkit.Must(t, run("CREATE TABLE deep PARTITION OF high DEFAULT"))
		for name, into := range map[string][]string{"events": {"events", "high", "deep"}, "deep": {"deep", "high"}} {
			conn, err := sqldb.Open(db, time.Minute)
			testkit.Must(t, err)
			table := engine.Table{Name: name, Key: "id", Slack: time.Second}
			for range 2 {
				testkit.Must(t, engine.Enable(t.Context(), conn, table))
			}
			m := engine.NewMark(conn, table, generator.DefaultLayout(), time.Now)
			published := testkit.Advanced(t, m)
			for i, target := range into {
				query := "INSERT INTO " + target + " (id) VALUES (?)"
				if err := run(query, published-1); !isTooLate(err) {
					t.Errorf("%s: a row below the mark, into %s: %v", name, target, err)
				}
				testkit.Must(t, run(query, published+int64(i)))
			}
			if name == "events" { // a partition that comes later
				testkit.Must(t, run("ALTER TABLE events DETACH PARTITION low"))
				testkit.Must(t, run("CREATE TABLE late PARTITION OF events FOR VALUES FROM (0) TO (1000)"))
				if err := run("INSERT INTO late (id) VALUES (1)"); !isTooLate(err) {
					t.Errorf("a row below the mark, into a new partition: %v", err)
				}
				testkit.Must(t, run("INSERT INTO low (id) VALUES (1)")) // it does not belong to the table any more
			}
			testkit.Must(t, engine.Disable(t.Context(), conn, table))
			testkit.Must(t, run("INSERT INTO deep (id) VALUES (?)", published-1))
			testkit.Must(t, run("DELETE FROM events WHERE id >= 1000"))
		}
	}, "postgres")
}

// Writers insert all the time, one of them in a transaction of three seconds, while several processes enable the table.
// They do not wait for that transaction, and a follower that begins afterwards misses nothing.
func TestEnable_OnATableInUseDelaysNobodyAndMissesNoRow(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		testkit.Must(t, db.AutoMigrate(&event{}))
		task := hostileTask{Database: *d}
		ctx, stop := context.WithCancel(t.Context())
		var writing sync.WaitGroup
		defer writing.Wait()
		defer stop()
		h := &hostile{Hostile: &harness.Hostile{T: t}, db: db}
		var inserted atomic.Int64
		for i := range 4 {
			writing.Go(func() {
				w := task.writer(db, i, reports{})
				for ctx.Err() == nil {
					begin := time.Now()
					err := db.Create(&event{ID: w.id(age()), Writer: i}).Error
					h.tookInsert(time.Since(begin))
					if err == nil {
						inserted.Add(1)
					} else if !isTooLate(err) {
						t.Error(err)
					}
					time.Sleep(rand.N(10 * time.Millisecond))
				}
			})
		}
		began := make(chan struct{})
		var ended atomic.Int64 // when the transaction ended
		writing.Go(func() { keepOpen(t, db, d.Name, task.writer(db, 9, reports{}).idOf(0), began, &ended, &inserted) })
		<-began

		begin := time.Now()
		var enabling sync.WaitGroup
		for range 3 {
			enabling.Go(func() {
				conn, err := sqldb.Open(d.Open(t, nil), time.Minute)
				if err == nil {
					err = engine.Enable(ctx, conn, hostileTable)
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		enabling.Wait()
		waited, took := time.Now().UnixNano() > ended.Load() && ended.Load() > 0, time.Since(begin)
		seen := make(chan int64, 100_000)
		following, end := context.WithCancel(t.Context())
		defer end()
		go task.follow(following, db, func(id int64) { seen <- id }, func(err error) {
			if following.Err() == nil {
				t.Error(err)
			}
		})
		time.Sleep(time.Second)
		stop()
		writing.Wait()
		truth := h.truth()
		var ids []int64
		for lastOf(ids) < lastOf(truth) && !t.Failed() {
			select {
			case id := <-seen:
				ids = append(ids, id)
			case <-time.After(2 * time.Minute):
				t.Fatal("the follower has stopped")
			}
		}
		missed, twice, disorder, unborn := compare(truth, ids)
		t.Logf("%d rows; enabled in %v; longest INSERT %v; missed %d, twice %d, out of order %d, not in the table %d",
			len(truth), took, h.longest, missed, twice, disorder, unborn)
		if missed+twice+disorder+unborn > 0 || !waited {
			t.Errorf("rows are missed, or it did not wait for the open transaction: %t", waited)
		}
	})
}

// keepOpen inserts a row and commits three seconds later, or when other writers have inserted 50 rows meanwhile, if that
// takes longer. On SQLite, where everybody waits for it, it commits at once.
func keepOpen(t *testing.T, db *gorm.DB, dialect string, id int64, began chan<- struct{}, ended, inserted *atomic.Int64) {
	err := db.Transaction(func(tx *gorm.DB) error {
		err := tx.Create(&event{ID: id, Writer: -1}).Error
		before, begin := inserted.Load(), time.Now()
		close(began)
		if dialect != "sqlite" {
			time.Sleep(3 * time.Second)
			for ; inserted.Load() < before+50; time.Sleep(10 * time.Millisecond) {
				if time.Since(begin) > time.Minute {
					t.Error("writers wait for a process that enables the table, and this one for an open transaction")
					break
				}
			}
		}
		ended.Store(time.Now().UnixNano())
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// Rows that the database numbers are usually refused. Formerly users whose other programs insert such rows learned that
// only from errors.
func TestEnable_WarnsOfAKeyThatTheDatabaseNumbers(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db, log := d.Open(t, nil), &testkit.Log{}
		harness.Use(t, db, uidplugin.WithLogger(log.Logger()))
		key := map[string]string{"postgres": "BIGSERIAL PRIMARY KEY"}[d.Name]
		testkit.Must(t, db.Exec("CREATE TABLE letters (id "+cmp.Or(key, "BIGINT AUTO_INCREMENT PRIMARY KEY")+", town VARCHAR(9), sender_id BIGINT)").Error)
		for range 2 {
			testkit.Must(t, follow.Enable(t.Context(), db, &letter{}))
		}
		if lines := log.Lines("numbers the key of this followed table"); len(lines) != 1 {
			t.Errorf("%d warnings: %s", len(lines), lines)
		}
	}, "mysql", "mariadb", "postgres")
}

// A migration job leaves WithLookupOnly out, so it begins the id space of a new database. Close releases
// its slot.
func TestEnable_AMigrationJobBeginsTheIDSpace(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		err := d.Open(t, nil).Use(uidplugin.New(uidplugin.WithLookupOnly()))
		testkit.IsError(t, err, uidplugin.ErrTable, "WORKER_NODE")
		db := d.Open(t, nil)
		p := uidplugin.New(uidplugin.WithLogger(nil))
		testkit.Must(t, db.Use(p))
		testkit.Must(t, p.AutoMigrate(&letter{}))
		testkit.Must(t, follow.Enable(t.Context(), db, &letter{}))
		harness.Close(t, p)
		held := int64(-1)
		testkit.Must(t, db.Table("WORKER_SLOT").Not(map[string]any{"HOLDER": ""}).Count(&held).Error)
		if held != 0 {
			t.Errorf("it holds %d slots", held)
		}
		reader := d.Open(t, nil)
		testkit.Must(t, reader.Use(uidplugin.New(uidplugin.WithLookupOnly(), uidplugin.WithLogger(nil))))
		testkit.Must(t, follow.Enable(t.Context(), reader, &letter{}))
	})
}

package outage_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

var (
	lateRounds = flag.Int("late.rounds", 2, "how often TestLateAnswers restarts its process: 20 in the long form")
	lateMost   = flag.Duration("late.most", 150*time.Millisecond, "the longest delay of an answer in TestLateAnswers")
)

// A numbered table has a row created in it.
type numbered struct {
	table  string
	create func(db *gorm.DB) (int64, error)
}

func ofNumber[C harness.Digit]() numbered {
	return numbered{harness.Numbered[harness.D9, harness.D9, C]{}.TableName(), func(db *gorm.DB) (int64, error) {
		row := harness.Numbered[harness.D9, harness.D9, C]{}
		err := db.Create(&row).Error
		return row.ID, err
	}}
}

var nineTables = []numbered{ofNumber[harness.D0](), ofNumber[harness.D1](), ofNumber[harness.D2](), ofNumber[harness.D3](), ofNumber[harness.D4](),
	ofNumber[harness.D5](), ofNumber[harness.D6](), ofNumber[harness.D7](), ofNumber[harness.D8]()}

// Each answer of the database comes late by a random time. A process with free slots to reclaim starts
// again and again, and creates the first rows of nine tables at once, inside and outside of transactions. With several
// statements about worker ids in flight, two tables once got the same worker id, and others were never renewed again.
// The long form:
//
//	go test -run TestLateAnswers -v -timeout 0 ./integration/outage/ -late.rounds 20
func TestLateAnswers_OneTableForEachWorkerID(t *testing.T) {
	t.Parallel()
	testkit.SkipIfShort(t, "it takes half a minute")
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db, c := d.Open(t, nil), testkit.NewRunningClock(time.Now(), 1)
		testkit.Must(t, db.AutoMigrate(harness.Ten[harness.D9, harness.D9]()...))
		locator := harness.Use(t, db, uidplugin.WithClock(c.Now))
		// Former processes leave slots, with worker ids of some of the tables.
		for i := range 2 {
			p := uidplugin.New(harness.Quiet, uidplugin.WithClock(c.Now), uidplugin.WithModels(harness.Ten[harness.D9, harness.D9]()[3*i:3*i+2]...))
			testkit.Must(t, d.Open(t, nil).Use(p))
			harness.Close(t, p)
		}
		l := &lateProcess{T: t, ledger: testkit.NewLedger(t), of: map[int64]lateID{}}
		for round := range *lateRounds {
			c.Add(time.Hour)
			l.run(d, c, db, round)
		}
		workers := map[int64]string{}
		for id, from := range l.of {
			where, err := locator.Locate(t.Context(), uidplugin.ID(id))
			if err != nil || where.Table != from.table || where.Session.Port != from.port {
				t.Errorf("Locate(%d) = %+v, %v; want table %s of %s", id, where, err, from.table, from.port)
			}
			if other := workers[where.WorkerID]; other != "" && other != from.table {
				t.Errorf("worker id %d is of %s and of %s", where.WorkerID, other, from.table)
			}
			workers[where.WorkerID] = from.table
		}
		t.Logf("%d rows, %d worker ids, %d slots", l.ledger.Len(), len(workers), len(harness.Slots(t, db)))
	}, "mariadb", "mysql", "postgres")
}

// A lateID is an id with the table and process that it must resolve to.
type lateID struct{ table, port string }

type lateProcess struct {
	*testing.T
	ledger *testkit.Ledger

	mu sync.Mutex
	of map[int64]lateID
}

func (l *lateProcess) add(table, port string, id int64) {
	l.ledger.Add(table, id)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of[id] = lateID{table, port}
}

// run is one start of the process.
func (l *lateProcess) run(d *testkit.Database, c *testkit.Clock, healthy *gorm.DB, round int) {
	t := l.T
	port, r := fmt.Sprint("round", round), testkit.NewRelay(t, d.Address())
	var params []string
	if d.IsMySQL() && round%2 == 0 {
		params = append(params, "interpolateParams=true") // else prepared statements, which take twice as many answers
	}
	db := r.Open(t, d, params...)
	r.Slow.Store(int64(*lateMost))
	j := &testkit.Log{}
	p := uidplugin.New(uidplugin.WithLogger(j.Logger()), uidplugin.WithClock(c.Now), uidplugin.WithHost(workernode.Host{Port: port}),
		uidplugin.WithTimeout(time.Minute))
	testkit.Must(t, db.Use(p))
	var group sync.WaitGroup
	for i, table := range nineTables {
		group.Go(func() {
			for begin, made := time.Now(), 0; made < 2; {
				var id int64
				var err error
				if i%2 == 0 {
					id, err = table.create(db)
				} else {
					err = db.Transaction(func(tx *gorm.DB) error {
						id, err = table.create(tx)
						return err
					})
				}
				if err == nil {
					l.add(table.table, port, id)
					made++
				} else if time.Since(begin) > 2*time.Minute || !errors.Is(err, uidplugin.ErrInTransaction) {
					t.Errorf("%s, after %v: %v", table.table, time.Since(begin), err)
					return
				}
			}
		})
	}
	group.Wait()
	l.renewed(c, p, port)
	used := p.Stats().Slot
	for _, s := range harness.Slots(t, healthy) {
		if s.ID == used.ID && s.Fence.Before(used.Until.Add(-p.Layout().Tick)) {
			t.Errorf("slot %d has FENCE %v, below what is used, %v", s.ID, s.Fence, used.Until)
		}
	}
	if round%2 == 0 {
		r.Slow.Store(int64(*lateMost / 10))
		harness.Close(t, p)
	} else { // it is killed
		r.Cut()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_ = p.Close(ctx)
	}
	if t.Failed() {
		t.Logf("the log of %s:\n%s", port, j)
	}
}

// renewed checks that each table is renewed when time passes, and makes more ids.
func (l *lateProcess) renewed(c *testkit.Clock, p *uidplugin.Plugin, port string) {
	for range 2 {
		c.Add(9 * time.Second)
		for i, table := range nineTables {
			begin := time.Now()
			for made := 0; made < 50; {
				id, err := p.NextID(l.Context(), harness.Ten[harness.D9, harness.D9]()[i])
				if err == nil {
					l.add(table.table, port, int64(id))
					made++
				} else if time.Since(begin) > time.Minute {
					l.Errorf("%s is not renewed: %v", table.table, err)
					return
				} else {
					time.Sleep(20 * time.Millisecond)
				}
			}
		}
	}
	testkit.Eventually(l.T, "renewal of all tables", time.Minute, func() bool {
		s := p.Stats()
		for _, table := range s.Tables {
			if !table.Until.After(c.Now()) || !table.Until.Equal(s.Slot.Until) {
				return false
			}
		}
		return len(s.Tables) == len(nineTables)
	})
}

package integration_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

var (
	lateRounds = flag.Int("late.rounds", 2, "how often TestLateAnswers restarts its process: 20 in the long form")
	lateMost   = flag.Duration("late.most", 300*time.Millisecond, "the longest delay of an answer in TestLateAnswers")
)

// A numbered table has a row created in it.
type numbered struct {
	table  string
	create func(db *gorm.DB) (int64, error)
}

func ofNumber[C digit]() numbered {
	return numbered{Numbered[d9, d9, C]{}.TableName(), func(db *gorm.DB) (int64, error) {
		row := Numbered[d9, d9, C]{}
		err := db.Create(&row).Error
		return row.ID, err
	}}
}

var nineTables = []numbered{ofNumber[d0](), ofNumber[d1](), ofNumber[d2](), ofNumber[d3](), ofNumber[d4](),
	ofNumber[d5](), ofNumber[d6](), ofNumber[d7](), ofNumber[d8]()}

// Each answer of the database comes late by a random time. A process with free slots and spares to reclaim starts
// again and again, and creates the first rows of nine tables at once, inside and outside of transactions. With several
// statements about worker ids in flight, two tables once got the same worker id, and others were never renewed again.
// The long form:
//
//	go test -run TestLateAnswers -v -timeout 0 ./integration/ -late.rounds 20
func TestLateAnswers_OneTableForEachWorkerID(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes half a minute")
	}
	each(t, func(t *testing.T, d *database) {
		db, c := open(t, d), newMovedClock(1)
		must(t, db.AutoMigrate(ten[d9, d9]()...))
		locator := use(t, db, uidplugin.WithClock(c.now))
		// Former processes leave slots, with worker ids of some of the tables and spares.
		for i := range 2 {
			p := uidplugin.New(quiet, uidplugin.WithClock(c.now), uidplugin.WithModels(ten[d9, d9]()[3*i:3*i+2]...))
			must(t, open(t, d).Use(p))
			must(t, p.Close(t.Context()))
		}
		l := &lateProcess{T: t, ledger: testkit.NewLedger(t), of: map[int64]lateID{}}
		for round := range *lateRounds {
			c.move(time.Hour)
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
		t.Logf("%d rows, %d worker ids, %d slots", l.ledger.Len(), len(workers), len(slots(t, db)))
	}, "mariadb", "mysql", "postgres")
}

// A lateID is what an id must resolve to.
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
func (l *lateProcess) run(d *database, c *movedClock, healthy *gorm.DB, round int) {
	t := l.T
	port, r := fmt.Sprint("round", round), newRelay(t, d.address())
	var params []string
	if d.isMySQL() && round%2 == 0 {
		params = append(params, "interpolateParams=true") // else prepared statements, which take twice as many answers
	}
	db := r.open(t, d, params...)
	r.slow.Store(int64(*lateMost))
	j := &journal{}
	p := uidplugin.New(j.option(), uidplugin.WithClock(c.now), uidplugin.WithHost(workernode.Host{Port: port}),
		uidplugin.WithTimeout(time.Minute))
	must(t, db.Use(p))
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
	for _, s := range slots(t, healthy) {
		if s.ID == used.ID && s.Fence < p.Layout().TickAt(used.Until)-1 {
			t.Errorf("slot %d has FENCE %d, below what is used, %v", s.ID, s.Fence, used.Until)
		}
	}
	if round%2 == 0 {
		r.slow.Store(int64(*lateMost / 10))
		if err := p.Close(t.Context()); err != nil {
			t.Errorf("close: %v", err)
		}
	} else { // it is killed
		r.cut()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_ = p.Close(ctx)
	}
	if t.Failed() {
		t.Logf("the log of %s:\n%s", port, j)
	}
}

// renewed checks that each table is renewed when time passes, and makes more ids.
func (l *lateProcess) renewed(c *movedClock, p *uidplugin.Plugin, port string) {
	for range 2 {
		c.move(9 * time.Second)
		for i, table := range nineTables {
			begin := time.Now()
			for made := 0; made < 50; {
				id, err := p.NextID(l.Context(), ten[d9, d9]()[i])
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
	eventually(l.T, 30*time.Second, "renewal of all tables", func() bool {
		s := p.Stats()
		for _, table := range s.Tables {
			if !table.Until.After(c.now()) || !table.Until.Equal(s.Slot.Until) {
				return false
			}
		}
		return len(s.Tables) == len(nineTables)
	})
}

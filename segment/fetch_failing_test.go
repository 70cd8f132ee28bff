package segment_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/segment"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// While the database is unreachable, the remaining ids are handed out. Then callers get the error. When it is back,
// ids are made without further action. The log reports the outage and its end once each.
func TestGenerator_GoesOnWhenTheDatabaseIsBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		log := &testkit.Log{}
		g, _, wire := begun(t, segment.Config{Step: 100, MaxStep: 1, Log: log.Logger()})
		away := errors.New("connection refused")
		wire.Set(func(*testkit.Crossing) error { return away })
		for id := int64(2); id <= 100; id++ { // what is left
			gapless(t, id, next(t, g))
		}
		for range 3 {
			fails(t, g, away)
			fails(t, g, generator.ErrSource)
		}
		if s := g.State(); s.Failed < 3 || !errors.Is(s.LastError, away) || s.Left != 0 {
			t.Errorf("%+v", s)
		}
		testkit.IsError(t, g.Fill(t.Context(), make([]int64, 10)), away)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := g.Next(ctx)
		testkit.IsError(t, err, context.DeadlineExceeded)
		wire.Set(nil)
		begin := time.Now()
		if id := next(t, g); id != 101 || time.Since(begin) > 2*time.Second {
			t.Errorf("id %d after 100 and %v", id, time.Since(begin))
		}
		if s := g.State(); s.LastError != nil {
			t.Errorf("%+v", s)
		}
		log.SaysOnce(t, "cannot be fetched")
		log.SaysOnce(t, "fetched again")
	})
}

// While ids remain, no caller notices an unreachable database, and not every id sends a statement to it.
func TestGenerator_HidesAShortOutage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g, _, wire := begun(t, segment.Config{Step: 10_000, MaxStep: 1})
		var asked atomic.Int64
		wire.Set(func(*testkit.Crossing) error { asked.Add(1); return errors.New("connection refused") })
		for range 9000 {
			next(t, g)
			time.Sleep(time.Millisecond)
		}
		if n := asked.Load(); n < 5 || n > 30 {
			t.Errorf("the database was asked %d times in 9 s", n)
		}
		wire.Set(nil)
		gapless(t, next(t, g)+1, fill(t, g, 20_000)...)
	})
}

// A buggyPool calls bug before and after each statement.
type buggyPool struct {
	gorm.ConnPool
	bug func(query string, ran bool)
}

func (p *buggyPool) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	p.bug(query, false)
	defer p.bug(query, true)
	return p.ConnPool.ExecContext(ctx, query, args...)
}

func (p *buggyPool) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	p.bug(query, false)
	defer p.bug(query, true)
	return p.ConnPool.QueryContext(ctx, query, args...)
}

func TestGenerator_SurvivesADriverThatPanics(t *testing.T) {
	bubble(t, func(t *testing.T) {
		type statement struct {
			begins string
			ran    bool
		}
		var armed atomic.Pointer[statement]
		db := handle(t, file(t))
		db.Config.ConnPool = &buggyPool{db.Config.ConnPool, func(query string, ran bool) {
			if s := armed.Load(); s != nil && strings.HasPrefix(query, s.begins) && ran == s.ran && armed.CompareAndSwap(s, nil) {
				panic("a bug in the driver")
			}
		}}
		g := open(t, db, segment.Config{Step: 10, MaxStep: 1})
		last := next(t, g)
		for _, s := range []statement{{"SELECT", false}, {"SELECT", true}, {"UPDATE", false}, {"UPDATE", true}} {
			synctest.Wait()
			armed.Store(&s)
			for failed := 0; armed.Load() != nil || g.State().LastError != nil; {
				id, err := g.Next(t.Context())
				if err == nil {
					last = above(t, last, id)
				} else if failed++; failed > 1 || !strings.Contains(err.Error(), "a bug in the driver") {
					t.Fatal(err)
				}
			}
		}
	})
}

// A log that panics costs a range, not the generator.
func TestGenerator_SurvivesALogThatPanics(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db := handle(t, file(t))
		leaf(t, db, 1, 10)
		log := testkit.LogFunc(func(slog.Record) { panic("a bug in the log") })
		g := open(t, db, segment.Config{MaxStep: 1, Log: log})
		last := next(t, g)
		for i := range 20 {
			run(t, db, "UPDATE leaf_alloc SET max_id = 1") // it says so
			for range 10 {
				if id, err := g.Next(t.Context()); err == nil {
					last = above(t, last, id)
				}
			}
			if i == 19 && g.State().Failed == 0 {
				t.Error("it did not panic")
			}
		}
	})
}

// The UPDATE is executed and its answer is lost: the range is a hole.
func TestGenerator_LostAnswersLeaveHoles(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db, wire := wired(t)
		g := open(t, db, segment.Config{Step: 10, MaxStep: 1})
		var lost atomic.Int64
		updates, failed := 0, 0
		wire.Set(func(c *testkit.Crossing) error {
			err := c.Run()
			if c.Is("UPDATE") {
				if updates++; updates%3 == 0 {
					lost.Add(1)
					return errors.New("invalid connection")
				}
			}
			return err
		})
		last, holes := int64(0), 0
		for range 1000 {
			id, err := g.Next(t.Context())
			if err != nil {
				failed++
				continue
			}
			if id != last+1 {
				holes++
			}
			last = above(t, last, id)
		}
		synctest.Wait()
		if n := int(lost.Load()); holes == 0 || n-holes > 1 || failed > n {
			t.Errorf("%d answers lost, %d holes, %d failures", n, holes, failed)
		}
	})
}

// Errors that pass, and conflicts with other processes, reach no caller.
func TestGenerator_RepeatsErrorsThatPass(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g, db, wire := begun(t, segment.Config{Step: 10, MaxStep: 1})
		for _, passing := range []error{
			testkit.SQLiteCode(5), testkit.SQLiteCode(6 | 1<<8),
			testkit.SQLState("40001"), testkit.SQLState("40P01"), testkit.SQLState("55P03"),
			errors.New("Error 1213 (40001): Deadlock found when trying to get lock"), errors.New("Error 1205 (HY000): Lock wait timeout exceeded"),
			errors.New("Error 1020 (HY000): Record has changed since last read"), errors.New("database is locked"),
			nil, // another process was faster
		} {
			n, before := 0, g.State()
			wire.Set(func(c *testkit.Crossing) error {
				if n++; n > 90 || passing == nil && !c.Is("UPDATE") {
					return c.Run()
				}
				if passing == nil {
					must(t, db.Exec("update leaf_alloc set max_id = max_id + 3").Error)
					return c.Run()
				}
				return passing
			})
			fill(t, g, 20)
			synctest.Wait()
			if s := g.State(); s.Failed > 0 || s.Conflicts < before.Conflicts+20 && s.Ranges > before.Ranges+1 {
				t.Errorf("after %v: %+v, before %+v", passing, s, before)
			}
		}
		// Not forever, however.
		busy := testkit.SQLiteCode(5)
		wire.Set(func(*testkit.Crossing) error { return busy })
		for range 21 {
			if _, err := g.Next(t.Context()); err != nil {
				testkit.IsError(t, err, busy)
				return
			}
		}
		t.Error("a database that is always busy is no error")
	})
}

// A trigger lowers max_id, so the next process would fetch the same range: the numbers are not used, and the error names
// the column. That error stays, although no other process is at work.
func TestGenerator_RefusesAMaxIDThatIsNotKept(t *testing.T) {
	t.Parallel()
	db := handle(t, file(t))
	g := open(t, db, segment.Config{Step: 10, MaxStep: 1})
	fill(t, g, 5)
	eventually(t, "second range", func() bool { return g.State().Ranges == 2 })
	run(t, db, "CREATE TRIGGER lowers AFTER UPDATE ON leaf_alloc WHEN NEW.max_id > 21 BEGIN UPDATE leaf_alloc SET max_id = 21; END")
	if last := fill(t, g, 15)[14]; last != 20 {
		t.Errorf("id %d", last)
	}
	for range 2 {
		fails(t, g, workernode.ErrTable, "did not keep max_id = 31")
	}
	testkit.IsError(t, g.Health(), workernode.ErrTable, "max_id")
	run(t, db, "DROP TRIGGER lowers")
	eventually(t, "ids above those that may be made twice", func() bool { id, err := g.Next(t.Context()); return err == nil && id == 21 })
}

// Close ends a fetch in progress. Callers that wait for it get ErrClosed, and no goroutine remains, because otherwise
// the bubble would fail.
func TestGeneratorClose_EndsAFetch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, stuck := range []string{"SELECT", "UPDATE", "nothing"} {
			g, _, wire := begun(t, segment.Config{Step: 1, MaxStep: 1})
			entered, closing := make(chan struct{}, 100), make(chan struct{})
			wire.Set(func(c *testkit.Crossing) error {
				if c.Is(stuck) {
					entered <- struct{}{}
					<-closing
					return context.Canceled
				}
				return c.Run()
			})
			var wg sync.WaitGroup
			if stuck != "nothing" {
				next(t, g)
				<-entered
				for range 5 {
					wg.Go(func() {
						if id, err := g.Next(context.Background()); !errors.Is(err, generator.ErrClosed) {
							t.Errorf("%d, %v", id, err)
						}
					})
				}
				synctest.Wait()
				time.AfterFunc(time.Second, func() { close(closing) }) // what a driver does whose context ends
			}
			g.Close()
			wg.Wait()
			fails(t, g, generator.ErrClosed)
		}
	})
}

// The same with a real driver that waits for a lock: no goroutine is left.
func TestGeneratorClose_EndsWhileTheDatabaseIsLocked(t *testing.T) {
	path := file(t)
	db := handle(t, path)
	run(t, db, "PRAGMA busy_timeout = 300") // of the one connection, which the driver does not give up before
	pool, err := db.DB()
	must(t, err)
	pool.SetMaxOpenConns(1)
	other := handle(t, path)
	before := runtime.NumGoroutine()
	g := open(t, db, segment.Config{Step: 1, MaxStep: 1})
	next(t, g)
	eventually(t, "second range", func() bool { return g.State().Ranges == 2 })
	tx := other.Begin()
	must(t, tx.Exec("UPDATE leaf_alloc SET step = 2").Error)
	next(t, g) // the next range is due, and cannot be fetched
	time.Sleep(50 * time.Millisecond)
	begin := time.Now()
	g.Close()
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("Close took %v", took)
	}
	must(t, tx.Rollback().Error)
	eventually(t, "end of all goroutines", func() bool { return runtime.NumGoroutine() <= before })
}

// The fetch is outside the application's transaction: what that takes back, ids are not.
func TestGenerator_FetchesOutsideOfTransactions(t *testing.T) {
	t.Parallel()

	path := file(t)
	db := handle(t, path)
	g := open(t, db, segment.Config{Step: 10, MaxStep: 1})
	last := fill(t, g, 2)[1]
	eventually(t, "second range", func() bool { return g.State().Ranges == 2 })
	tx := db.Begin() // takes SQLite's lock
	run(t, tx, "CREATE TABLE things (id INT)")
	for range 18 { // of both ranges, and the third one has to wait
		last = above(t, last, next(t, g))
	}
	must(t, tx.Rollback().Error)
	above(t, last, fill(t, g, 50)...)
}

package segment_test

import (
	"bytes"
	"context"
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
)

// While the database is unreachable, the remaining ids are handed out. Then callers get the error. When it is back,
// ids are made without further action. The log reports the outage and its end once each.
func TestGenerator_GoesOnWhenTheDatabaseIsBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		db, p := meddled(handle(t, file(t)))
		g := open(t, db, segment.Config{Step: 100, MaxStep: 1, Log: slog.New(slog.NewTextHandler(&log, nil))})
		last := next(t, g)
		synctest.Wait()
		away := errors.New("connection refused")
		p.set(func(string, func() error) error { return away })
		for range 99 { // what is left
			last = next(t, g)
		}
		for range 3 {
			if id, err := g.Next(t.Context()); id != 0 || !errors.Is(err, away) || !errors.Is(err, generator.ErrSource) {
				t.Fatalf("%d, %v", id, err)
			}
		}
		if s := g.State(); s.Failed < 3 || !errors.Is(s.LastError, away) || s.Left != 0 {
			t.Errorf("%+v", s)
		}
		testkit.IsError(t, g.Fill(t.Context(), make([]int64, 10)), away)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := g.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with a context of its own: %v", err)
		}
		p.set(nil)
		begin := time.Now()
		if id := next(t, g); id != last+1 || time.Since(begin) > 2*time.Second {
			t.Errorf("id %d after %d and %v", id, last, time.Since(begin))
		}
		if s := g.State(); s.LastError != nil {
			t.Errorf("%+v", s)
		}
		if text := log.String(); strings.Count(text, "cannot be fetched") != 1 || strings.Count(text, "fetched again") != 1 {
			t.Errorf("logged\n%s", text)
		}
	})
}

// While ids remain, no caller notices an unreachable database, and not every id sends a statement to it.
func TestGenerator_HidesAShortOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, p := meddled(handle(t, file(t)))
		g := open(t, db, segment.Config{Step: 10_000, MaxStep: 1})
		next(t, g)
		synctest.Wait()
		var asked atomic.Int64
		p.set(func(string, func() error) error { asked.Add(1); return errors.New("connection refused") })
		for range 9000 {
			next(t, g)
			time.Sleep(time.Millisecond)
		}
		if n := asked.Load(); n < 5 || n > 30 {
			t.Errorf("the database was asked %d times in 9 s", n)
		}
		p.set(nil)
		last := next(t, g)
		for _, id := range fill(t, g, 20_000) {
			if id != last+1 {
				t.Fatalf("id %d after %d", id, last)
			}
			last = id
		}
	})
}

func TestGenerator_SurvivesADriverThatPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, p := meddled(handle(t, file(t)))
		var panicked atomic.Bool
		g := open(t, db, segment.Config{Step: 10, MaxStep: 1})
		last := next(t, g)
		synctest.Wait()
		for _, part := range []string{"SELECT", "UPDATE"} {
			for _, before := range []bool{true, false} {
				panicked.Store(false)
				p.set(func(query string, run func() error) error {
					if strings.HasPrefix(query, part) && panicked.CompareAndSwap(false, true) {
						if !before {
							_ = run()
						}
						panic("a bug in the driver")
					}
					return run()
				})
				for failed := 0; ; {
					id, err := g.Next(t.Context())
					if err != nil {
						if failed++; failed > 1 || !strings.Contains(err.Error(), "a bug in the driver") {
							t.Fatal(err)
						}
						continue
					}
					if id <= last {
						t.Fatalf("id %d after %d", id, last)
					}
					if last = id; panicked.Load() && g.State().LastError == nil {
						break
					}
				}
			}
		}
	})
}

// A log that panics costs a range, not the generator.
func TestGenerator_SurvivesALogThatPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := handle(t, file(t))
		leaf(t, db, 1, 10)
		g := open(t, db, segment.Config{MaxStep: 1, Log: slog.New(&panicking{Handler: slog.DiscardHandler})})
		last := next(t, g)
		for i := range 20 {
			run(t, db, "UPDATE leaf_alloc SET max_id = 1") // it says so
			for range 10 {
				id, err := g.Next(t.Context())
				if err == nil && id <= last {
					t.Fatalf("id %d after %d", id, last)
				}
				last = max(last, id)
			}
			if i == 19 && g.State().Failed == 0 {
				t.Error("it did not panic")
			}
		}
	})
}

type panicking struct{ slog.Handler }

func (*panicking) Enabled(context.Context, slog.Level) bool  { return true }
func (*panicking) Handle(context.Context, slog.Record) error { panic("a bug in the log") }
func (p *panicking) WithAttrs([]slog.Attr) slog.Handler      { return p }
func (p *panicking) WithGroup(string) slog.Handler           { return p }

// The UPDATE is executed and its answer is lost: the range is a hole.
func TestGenerator_LostAnswersLeaveHoles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, p := meddled(handle(t, file(t)))
		g := open(t, db, segment.Config{Step: 10, MaxStep: 1})
		var lost atomic.Int64
		failed := 0
		p.set(func(query string, run func() error) error {
			err := run()
			if strings.HasPrefix(query, "UPDATE") && p.updates()%3 == 0 {
				lost.Add(1)
				return errors.New("invalid connection")
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
			if id <= last {
				t.Fatalf("id %d after %d", id, last)
			}
			if id != last+1 {
				holes++
			}
			last = id
		}
		synctest.Wait()
		if n := int(lost.Load()); holes == 0 || n-holes > 1 || failed > n {
			t.Errorf("%d answers lost, %d holes, %d failures", n, holes, failed)
		}
	})
}

// coded is an error of SQLite's driver, stated one of PostgreSQL's.
type (
	coded  int
	stated string
)

func (c coded) Error() string     { return "database error" }
func (c coded) Code() int         { return int(c) }
func (s stated) Error() string    { return "ERROR" }
func (s stated) SQLState() string { return string(s) }

// Errors that pass, and conflicts with other processes, reach no caller.
func TestGenerator_RepeatsErrorsThatPass(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, p := meddled(handle(t, file(t)))
		g := open(t, db, segment.Config{Step: 10, MaxStep: 1})
		next(t, g)
		synctest.Wait()
		for _, passing := range []error{
			coded(5), coded(6 | 1<<8), stated("40001"), stated("40P01"), stated("55P03"),
			errors.New("Error 1213 (40001): Deadlock found when trying to get lock"), errors.New("Error 1205 (HY000): Lock wait timeout exceeded"),
			errors.New("Error 1020 (HY000): Record has changed since last read"), errors.New("database is locked"),
			nil, // another process was faster
		} {
			n, before := 0, g.State()
			p.set(func(query string, run func() error) error {
				if n++; n > 60 || passing == nil && !strings.HasPrefix(query, "UPDATE") {
					return run()
				}
				if passing == nil {
					must(t, db.Exec("update leaf_alloc set max_id = max_id + 3").Error)
					return run()
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
		p.set(func(string, func() error) error { return coded(5) })
		for range 21 {
			if _, err := g.Next(t.Context()); err != nil {
				if !errors.Is(err, coded(5)) {
					t.Error(err)
				}
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
		if id, err := g.Next(t.Context()); !errors.Is(err, workernode.ErrTable) || !strings.Contains(err.Error(), "did not keep max_id = 31") {
			t.Errorf("%d, %v", id, err)
		}
	}
	testkit.IsError(t, g.Health(), workernode.ErrTable, "max_id")
	run(t, db, "DROP TRIGGER lowers")
	eventually(t, "ids above those that may be made twice", func() bool { id, err := g.Next(t.Context()); return err == nil && id == 21 })
}

// Close ends a fetch in progress. Callers that wait for it get ErrClosed, and no goroutine remains, because otherwise
// the bubble would fail.
func TestGeneratorClose_EndsAFetch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, stuck := range []string{"SELECT", "UPDATE", "nothing"} {
			db, p := meddled(handle(t, file(t)))
			g := open(t, db, segment.Config{Step: 1, MaxStep: 1})
			next(t, g)
			synctest.Wait()
			entered, closing := make(chan struct{}, 100), make(chan struct{})
			p.set(func(query string, run func() error) error {
				if strings.HasPrefix(query, stuck) {
					entered <- struct{}{}
					<-closing
					return context.Canceled
				}
				return run()
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
			if id, err := g.Next(t.Context()); !errors.Is(err, generator.ErrClosed) {
				t.Errorf("%d, %v", id, err)
			}
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
		id := next(t, g)
		if id <= last {
			t.Fatalf("id %d after %d", id, last)
		}
		last = id
	}
	must(t, tx.Rollback().Error)
	for _, id := range fill(t, g, 50) {
		if id <= last {
			t.Fatalf("id %d after %d", id, last)
		}
		last = id
	}
}

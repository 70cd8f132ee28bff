package consume_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/follow"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	engine "github.com/uidplugin/uidplugin/internal/follow"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

func connect(t *testing.T, db *gorm.DB) *sqldb.DB {
	t.Helper()
	conn, err := sqldb.Open(db, time.Minute)
	testkit.Must(t, err)
	return conn
}

var mails = engine.ConsumerKey{Consumer: "mails", Table: "orders"}

// consumeMails runs a process of the consumer on a handle of its own.
func consumeMails(t *testing.T, db *gorm.DB, options ...follow.ConsumeOption) *running {
	t.Helper()
	return start(t, func(ctx context.Context) error { return follow.Consume(ctx, db, "mails", write("mails"), options...) })
}

// works waits until one of several processes works.
func works(t *testing.T, all ...*gorm.DB) (i int) {
	t.Helper()
	eventually(t, "a process works", func() bool {
		i = slices.IndexFunc(all, func(db *gorm.DB) bool {
			s := follow.Stats(db)
			return len(s) > 0 && len(s[0].Consumers) > 0 && s[0].Consumers[0].Works
		})
		return i >= 0
	})
	return i
}

func TestConsume_AnOperatorActsWhileItRuns(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := shop(t, d, nil)
		place(t, db, 3, "Ulm")
		processes := []*gorm.DB{shop(t, d, nil), shop(t, d, nil)}
		all := []*running{consumeMails(t, processes[0]), consumeMails(t, processes[1])}
		finished(t, db, "mails")

		before := effects(t, db, "mails")
		testkit.Must(t, engine.ResetConsumer(t.Context(), connect(t, db), mails, before[0]))
		effectsCome(t, db, "mails", 5)
		if got := effects(t, db, "mails")[3:]; !slices.Equal(got, before[1:]) {
			t.Errorf("after the reset the effects are %v, not %v", got, before[1:])
		}

		testkit.Must(t, engine.PauseConsumer(t.Context(), connect(t, db), mails, true))
		place(t, db, 2, "Bonn")
		eventually(t, "the processes noticed the pause", func() bool {
			return !slices.ContainsFunc(processes, func(db *gorm.DB) bool { return !follow.Stats(db)[0].Consumers[0].Paused })
		})
		if n := len(effects(t, db, "mails")); n != 5 {
			t.Errorf("a paused consumer has made effects: %d", n)
		}
		testkit.Must(t, engine.PauseConsumer(t.Context(), connect(t, db), mails, false))
		effectsCome(t, db, "mails", 7)

		testkit.Must(t, engine.RemoveConsumer(t.Context(), connect(t, db), mails))
		for _, r := range all {
			if err := <-r.ended; !errors.Is(err, follow.ErrRemoved) {
				t.Errorf("after the removal: %v", err)
			}
		}
		if keys, err := engine.ConsumersOf(t.Context(), connect(t, db), "orders"); err != nil || len(keys) > 0 {
			t.Errorf("%v, %v", keys, err)
		}
	})
}

// The pool of the process that works is closed, as if it was killed: it cannot give up the cursor.
func TestConsume_AnotherProcessTakesOver(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := shop(t, d, nil)
		processes := []*gorm.DB{shop(t, d, nil), shop(t, d, nil)}
		all := []*running{consumeMails(t, processes[0]), consumeMails(t, processes[1])}
		place(t, db, 3, "Ulm")
		i := works(t, processes...)
		testkit.Must(t, testkit.Close(processes[i]))
		place(t, db, 3, "Bonn")
		finished(t, db, "mails")
		all[i].cancel()
		all[1-i].stop(t)
	})
}

// While a handler takes longer than the term, other processes must not wait for its lock: one of them would become the
// holder before the skip is stored, so the row would come again for ever. A batch that fails comes again row by row.
func TestConsume_SkipsARowThatTakesLongerThanTheTerm(t *testing.T) {
	t.Parallel()
	testkit.SkipIfShort(t, "it takes a dozen seconds")
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := shop(t, d, nil)
		orders := place(t, db, 4, "Ulm")
		handle := func(tx *gorm.DB, orders []*order) error {
			for _, o := range orders {
				if err := write("mails")(tx, o); err != nil {
					return err
				}
				if o.Price == 1 { // the second
					time.Sleep(3500 * time.Millisecond)
					return follow.Skip
				}
			}
			return nil
		}
		var all []*running
		for i := range 6 {
			process, size := shop(t, d, nil), 3-i%2*2
			all = append(all, start(t, func(ctx context.Context) error { return follow.ConsumeBatch(ctx, process, "mails", size, handle) }))
		}
		eventually(t, "the rows after the slow one were handled", func() bool { return len(effects(t, db, "mails")) >= 3 })
		want := []int64{int64(orders[0].ID), int64(orders[2].ID), int64(orders[3].ID)}
		if got := effects(t, db, "mails"); !slices.Equal(got, want) {
			t.Errorf("the effects are %v, not %v", got, want)
		}
		for _, r := range all {
			r.stop(t)
		}
	})
}

// A process cannot extend its term while its handler is running.
func TestListConsumers_AHandlerThatTakesLongerThanTheTermWorks(t *testing.T) {
	t.Parallel()
	testkit.SkipIfShort(t, "it waits for the end of a term")
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := shop(t, d, nil)
		place(t, db, 1, "Ulm")
		begun, end := make(chan struct{}), make(chan struct{})
		r := start(t, func(ctx context.Context) error {
			return follow.Consume(ctx, db, "mails", func(*gorm.DB, *order) error {
				close(begun)
				<-end
				return nil
			})
		})
		<-begun
		var cursor engine.CursorStatus
		eventually(t, "the term has ended", func() bool {
			list, err := engine.ListConsumers(t.Context(), connect(t, db))
			testkit.Must(t, err)
			cursor = list[0]
			return cursor.Now.After(cursor.Until)
		})
		if !cursor.Held() {
			t.Error("while the handler is running, no process works")
		}
		close(end)
		r.stop(t)
		list, err := engine.ListConsumers(t.Context(), connect(t, db))
		if testkit.Must(t, err); list[0].Held() {
			t.Errorf("after its end %s works", list[0].Holder)
		}
	}, servers...)
}

// A process that stands still in its handler would hold the lock of the cursor for hours. The test sets the limit lower
// than Consume does; it keeps lower limits.
func TestConsume_AProcessThatStandsStillIsCutOff(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := shop(t, d, nil)
		limit := "wait_timeout=2"
		if d.Name == "postgres" {
			limit = "idle_in_transaction_session_timeout=2000"
		}
		still := d.Open(t, nil, limit)
		testkit.Must(t, still.Use(uidplugin.New(uidplugin.WithWorkerID(900), uidplugin.WithLogger(nil))))
		place(t, db, 3, "Ulm")
		var once sync.Once
		standing, goOn := make(chan bool), make(chan bool)
		var late atomic.Value
		r := start(t, func(ctx context.Context) error {
			return follow.Consume(ctx, still, "mails", func(tx *gorm.DB, o *order) (err error) {
				err = write("mails")(tx, o)
				once.Do(func() {
					close(standing)
					<-goOn
					late.Store(tx.Create(&effect{Consumer: "mails", OrderID: 1}).Error != nil)
					err = nil // not even then
				})
				return err
			})
		})
		<-standing
		other := consumeMails(t, shop(t, d, nil))
		finished(t, db, "mails")
		close(goOn)
		eventually(t, "the first process went on", func() bool { return late.Load() != nil })
		if late.Load() != true {
			t.Error("a transaction that has lost its lock could write")
		}
		place(t, db, 3, "Bonn")
		finished(t, db, "mails")
		r.stop(t)
		other.stop(t)
	}, servers...)
}

// A process that stands by does not follow the table. One that ends gives up the cursor, so another need not wait.
func TestConsume_StandingByIsCheap(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		processes := []*gorm.DB{shop(t, d, nil), shop(t, d, nil)}
		first := consumeMails(t, processes[0])
		works(t, processes[0])
		second := consumeMails(t, processes[1])
		eventually(t, "the second has read the cursor", func() bool {
			s := follow.Stats(processes[1])
			return len(s) > 0 && len(s[0].Consumers) > 0
		})
		if s := follow.Stats(processes[1])[0]; s.Followers != 0 || s.Consumers[0].Works {
			t.Errorf("a process that stands by follows: %+v", s)
		}
		first.stop(t) // it gives up the cursor
		works(t, processes[1])
		second.stop(t)
	})
}

// Effects in another database of another kind, whose events' database loses commits.
func TestConsume_IntoAnotherDatabase(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db, into := shop(t, d, nil), effectsElsewhere(t)
		place(t, db, 3, "Ulm")
		var want []int64
		testkit.Must(t, db.Model(&order{}).Order("id").Pluck("id", &want).Error)
		r := consumeMails(t, db, follow.Into(into))
		effectsCome(t, into, "mails", 3)
		r.stop(t)
		if got := effects(t, into, "mails"); !slices.Equal(got, want) {
			t.Errorf("the effects are %v, not %v", got, want)
		}

		// The mark falls back below the cursor, which another process has moved with a mark that is lost.
		future := want[2] + 1<<42 // minutes, which the mark does not reach during the test
		testkit.Must(t, into.Exec(`UPDATE UID_CURSOR SET LAST_ID = ?`, future).Error)
		if err := follow.Consume(t.Context(), db, "mails", write("mails"), follow.Into(into)); err == nil {
			t.Error("no error")
		} else if !strings.Contains(err.Error(), "has lost commits") {
			t.Error(err)
		}
		r = consumeMails(t, db, follow.Into(into), follow.WithRewind())
		eventually(t, "the cursor went back", func() bool {
			last := future
			testkit.Must(t, into.Table("UID_CURSOR").Pluck("LAST_ID", &last).Error)
			return last < future
		})
		place(t, db, 1, "Bonn")
		effectsCome(t, into, "mails", 4)
		r.stop(t)
	})
}

// A purchase is an order after the table was renamed.
type purchase order

// The cursor is on a server, and the database of the events loses commits while no process of the consumer works.
func TestConsume_TheCursorOfAnotherDatabaseHasTheMark(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db, into := testkit.SQLite{}.Open(t), d.Open(t, nil)
		harness.Use(t, db, uidplugin.WithWorkerID(1))
		testkit.Must(t, into.AutoMigrate(&effect{}, &total{}))
		testkit.Must(t, db.AutoMigrate(&order{}))
		testkit.Must(t, follow.Enable(t.Context(), db, &order{}, follow.WithSlack(slack)))
		orders := place(t, db, 3, "Ulm")
		r := consumeMails(t, db, follow.Into(into))
		effectsCome(t, into, "mails", 3)
		r.stop(t)
		testkit.Must(t, db.Exec("UPDATE UID_FOLLOW SET PUBLISHED = ?, RECENT = ''", orders[1].ID).Error)
		_, err := follow.Settled(t.Context(), db, &order{})
		testkit.Must(t, err)
		if err := follow.Consume(t.Context(), db, "mails", write("mails"), follow.Into(into)); err == nil || !strings.Contains(err.Error(), "has lost commits") {
			t.Fatal(err)
		}
		r = consumeMails(t, db, follow.Into(into), follow.WithRewind())
		effectsCome(t, into, "mails", 5)
		r.stop(t)
	})
}

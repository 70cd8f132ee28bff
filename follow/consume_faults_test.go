package follow_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/follow"
	engine "github.com/uidplugin/uidplugin/internal/follow"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/uidtest"
	"gorm.io/gorm"
)

// consumerOf returns the state of the only consumer of a process, or none if it has not begun yet.
func consumerOf(db *gorm.DB) (c follow.ConsumerStats) {
	if tables := follow.Stats(db); len(tables) > 0 && len(tables[0].Consumers) > 0 {
		c = tables[0].Consumers[0]
	}
	return c
}

// A deferred constraint fails at COMMIT. The row fails like one whose handler fails: those before it take effect, an
// operator sees it, and it goes on by itself.
func TestConsume_ARowFailsAtCommit(t *testing.T) {
	t.Parallel()
	db := testkit.SQLite{Params: []string{"_pragma=foreign_keys(1)"}}.Open(t)
	plugintest.Use(t, db, uidplugin.WithWorkerID(1))
	testkit.Must(t, db.AutoMigrate(&ticket{}))
	testkit.Must(t, db.Exec("CREATE TABLE seats (name TEXT PRIMARY KEY)").Error)
	testkit.Must(t, db.Exec("CREATE TABLE effects (n INTEGER PRIMARY KEY, consumer TEXT, ticket INTEGER,"+
		" seat TEXT REFERENCES seats (name) DEFERRABLE INITIALLY DEFERRED)").Error)
	testkit.Must(t, db.Exec("INSERT INTO seats VALUES ('1A')").Error)
	testkit.Must(t, follow.Enable(t.Context(), db, &ticket{}, follow.WithSlack(20*time.Millisecond)))
	issue(t, db, 2)
	unknown := ticket{Seat: "9Z"}
	testkit.Must(t, db.Create(&unknown).Error)
	issue(t, db, 1)
	until(t, db, 4, func(ctx context.Context) error {
		go func() {
			var stuck struct {
				ID    int64  `gorm:"column:STUCK_ID"`
				Error string `gorm:"column:ERROR"`
			}
			for stuck.ID != int64(unknown.ID) && ctx.Err() == nil {
				time.Sleep(5 * time.Millisecond)
				_ = db.Table("UID_CURSOR").Take(&stuck).Error
			}
			if n := plugintest.Count(t, db, "effects"); n != 2 || !strings.Contains(stuck.Error, "FOREIGN KEY") {
				t.Errorf("%d effects, and the error %q", n, stuck.Error)
			}
			_ = db.Exec("INSERT INTO seats VALUES ('9Z')").Error
		}()
		return follow.ConsumeBatch(ctx, db, "mails", 10, func(tx *gorm.DB, rows []*ticket) error {
			for _, row := range rows {
				err := tx.Exec("INSERT INTO effects (consumer, ticket, seat) VALUES ('mails', ?, ?)", row.ID, row.Seat).Error
				if err != nil {
					return err
				}
			}
			return nil
		})
	})
	checkEffects(t, db)
}

// The database of the events loses commits, and the statement that sets the cursor back fails once. The mark has passed
// the cursor when the consumer tries again, so only what the process has seen tells that rows could be missed.
func TestConsume_GoesBackAlsoIfThatFailsOnce(t *testing.T) {
	t.Parallel()
	db := tickets(t, nil, 3)
	var wire testkit.Wire
	into := wire.Open(t, testkit.SQLite{})
	testkit.Must(t, into.AutoMigrate(&effect{}))
	var ids []int64
	testkit.Must(t, db.Model(&ticket{}).Order("id").Pluck("id", &ids).Error)
	back := ids[1] // the mark with which the database has recovered: the last two rows come again
	var failed atomic.Bool
	until(t, into, 5, func(ctx context.Context) error {
		go func() {
			for n := int64(0); n < 3 && ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
				_ = into.Model(&effect{}).Count(&n).Error
			}
			wire.Set(func(c *testkit.Crossing) error {
				if c.Is("UPDATE UID_CURSOR") && len(c.Args) > 0 && c.Args[0].Value == back-1 && !failed.Swap(true) {
					return testkit.ErrLost
				}
				return c.Run()
			})
			if err := db.Exec("UPDATE UID_FOLLOW SET PUBLISHED = ?", back).Error; err != nil {
				t.Error(err)
			}
		}()
		return follow.Consume(ctx, db, "mails", write("mails"), follow.Into(into), follow.WithRewind())
	})
	if !failed.Load() {
		t.Error("no statement was lost")
	}
}

// SQLite would commit later statements of the handler one by one, and the row comes again.
func TestConsume_NoticesThatATransactionHasEnded(t *testing.T) {
	t.Parallel()
	db := tickets(t, uidtest.Sequential(), 2)
	first := true
	until(t, db, 2, func(ctx context.Context) error {
		return follow.Consume(ctx, db, "mails", func(tx *gorm.DB, row *ticket) error {
			if first {
				first = false
				testkit.Must(t, tx.Exec("UPDATE effects SET n = n; ROLLBACK").Error)
			}
			_ = write("mails")(tx, row) // the handler does not look
			return nil
		})
	})
	checkEffects(t, db)
}

// SQLite keeps a transaction whose COMMIT finds the file locked. It was given back to the pool, so nobody else could
// write any more, and the consumer stood still for good.
func TestConsume_ABusyCommitLeavesNoTransaction(t *testing.T) {
	t.Parallel()
	var wire testkit.Wire
	db, file := wired(t, &wire, 3)
	var fetching, busy atomic.Int64 // the connection that reads rows
	wire.Set(func(c *testkit.Crossing) error {
		if c.Inside && strings.Contains(c.SQL, "FROM `tickets`") {
			fetching.Store(int64(c.Conn))
		}
		if c.SQL == "COMMIT" && fetching.Load() == int64(c.Conn) && busy.Add(1) <= 2 {
			return errors.New("database is locked (5) (SQLITE_BUSY)")
		}
		return c.Run()
	})
	until(t, file.Open(t), 3, func(ctx context.Context) error { return follow.Consume(ctx, db, "mails", write("mails")) })
	if busy.Load() < 2 {
		t.Error("no COMMIT was busy")
	}
	checkEffects(t, db)
}

// A fragile ticket cannot be read while its seat is broken.
type fragile ticket

func (fragile) TableName() string { return "tickets" }

func (f *fragile) AfterFind(*gorm.DB) error {
	if f.Seat == "broken" {
		return errors.New("the seat is broken")
	}
	return nil
}

// A database in memory ends with its connection, and a test of an application would then find no table.
func TestConsume_AnUnreadableRowKeepsADatabaseInMemory(t *testing.T) {
	t.Parallel()
	db := testkit.SQLite{Path: ":memory:"}.Open(t)
	pool, err := db.DB()
	testkit.Must(t, err)
	pool.SetMaxOpenConns(1)
	testkit.Must(t, db.Use(uidtest.Sequential()))
	testkit.Must(t, db.AutoMigrate(&ticket{}, &effect{}))
	testkit.Must(t, follow.Enable(t.Context(), db, &ticket{}))
	testkit.Must(t, db.Create(&[]ticket{{Seat: "1A"}, {Seat: "broken"}, {Seat: "1C"}}).Error)
	until(t, db, 3, func(ctx context.Context) error {
		go func() {
			for { // until the rows before the broken one have come, and it failed
				if consumerOf(db).LastError != nil {
					break
				}
				time.Sleep(5 * time.Millisecond)
			}
			db.Model(&ticket{}).Where("id = 2").Update("seat", "1B")
		}()
		return follow.Consume(ctx, db, "mails", func(tx *gorm.DB, row *fragile) error { return write("mails")(tx, (*ticket)(row)) })
	})
	checkEffects(t, db)
}

// With Into the cursor is changed after rows were read, also if one of them cannot be read. That row was passed over.
func TestConsume_IntoAnotherDatabaseDoesNotPassOverAnUnreadableRow(t *testing.T) {
	t.Parallel()
	for name, plugin := range map[string]gorm.Plugin{"production": nil, "uidtest": uidtest.Sequential()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, into := tickets(t, plugin, 1), testkit.SQLite{}.Open(t)
			testkit.Must(t, into.AutoMigrate(&ticket{}, &effect{}))
			broken := ticket{Seat: "broken"}
			testkit.Must(t, db.Create(&broken).Error)
			issue(t, db, 1)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() {
				defer cancel()
				for n := int64(0); n < 3 && ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
					c := consumerOf(db)
					if strings.Contains(fmt.Sprint(c.LastError), "the seat is broken") {
						_ = db.Model(&broken).Update("seat", "1B").Error
					}
					if _ = into.Model(&effect{}).Count(&n).Error; n < 2 && c.Last >= broken.ID {
						return // it has passed the row over
					}
				}
			}()
			err := follow.Consume(ctx, db, "mails", func(tx *gorm.DB, row *fragile) error {
				return write("mails")(tx, (*ticket)(row))
			}, follow.Into(into))
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			var got, want []int64
			testkit.Must(t, db.Model(&ticket{}).Order("id").Pluck("id", &want).Error)
			testkit.Must(t, into.Model(&effect{}).Order("n").Pluck("ticket", &got).Error)
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("the effects are of %v, not %v", got, want)
			}
		})
	}
}

// A row that fails at COMMIT closes no connection, because a database in memory ends with it.
func TestConsume_AFailedCommitKeepsADatabaseInMemory(t *testing.T) {
	t.Parallel()
	db := testkit.SQLite{Path: ":memory:", Params: []string{"_pragma=foreign_keys(1)"}}.Open(t)
	pool, err := db.DB()
	testkit.Must(t, err)
	pool.SetMaxOpenConns(1)
	testkit.Must(t, db.Use(uidtest.Sequential()))
	testkit.Must(t, db.AutoMigrate(&ticket{}))
	testkit.Must(t, db.Exec("CREATE TABLE seats (name TEXT PRIMARY KEY)").Error)
	testkit.Must(t, db.Exec("CREATE TABLE effects (n INTEGER PRIMARY KEY, consumer TEXT, ticket INTEGER,"+
		" seat TEXT REFERENCES seats (name) DEFERRABLE INITIALLY DEFERRED)").Error)
	testkit.Must(t, follow.Enable(t.Context(), db, &ticket{}))
	testkit.Must(t, db.Create(&[]ticket{{Seat: "1A"}}).Error)
	var calls atomic.Int64
	until(t, db, 1, func(ctx context.Context) error {
		return follow.Consume(ctx, db, "mails", func(tx *gorm.DB, row *ticket) error {
			if calls.Add(1) > 1 {
				if err := tx.Exec("INSERT INTO seats VALUES (?)", row.Seat).Error; err != nil {
					return err
				}
			}
			return tx.Exec("INSERT INTO effects (consumer, ticket, seat) VALUES ('mails', ?, ?)", row.ID, row.Seat).Error
		})
	})
	checkEffects(t, db)
}

// The statement that moves the cursor fails, or the handler panics. The transaction is rolled back, and the connection
// stays open.
func TestConsume_AnyFailureOfAHandlersTransactionKeepsADatabaseInMemory(t *testing.T) {
	t.Parallel()
	for _, fault := range []string{"UPDATE", "panic"} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			var wire testkit.Wire
			db := wire.Open(t, testkit.SQLite{Path: ":memory:", Pool: 1})
			testkit.Must(t, db.Use(uidtest.Sequential()))
			prepare(t, db, 2)
			var failed atomic.Bool
			wire.Set(func(c *testkit.Crossing) error {
				if fault == "UPDATE" && c.Is(fault+" UID_CURSOR") && c.Args[0].Value == int64(1) && !failed.Swap(true) {
					return errors.New("disk I/O error")
				}
				return c.Run()
			})
			consume := func(ctx context.Context) (err error) {
				defer func() {
					if v := recover(); v != nil && v != fault {
						t.Error(v)
					}
				}()
				return follow.Consume(ctx, db, "mails", func(tx *gorm.DB, row *ticket) error {
					if !failed.Swap(true) {
						testkit.Must(t, write("mails")(tx, row))
						panic(fault)
					}
					return write("mails")(tx, row)
				})
			}
			until(t, db, 2, func(ctx context.Context) error {
				if err := consume(ctx); err != nil {
					return err
				}
				return consume(ctx) // after the panic
			})
			if !failed.Load() {
				t.Error("nothing has failed")
			}
			checkEffects(t, db)
		})
	}
}

// A server that does not answer keeps no consumer from ending.
func TestConsume_EndsWhileAFetchWaitsForTheServer(t *testing.T) {
	t.Parallel()
	testkit.SkipIfShort(t, "it waits for 10 s")
	var wire testkit.Wire
	db, _ := wired(t, &wire, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var fetching atomic.Int64
	release := make(chan struct{})
	defer close(release)
	var stuck atomic.Bool
	wire.Set(func(c *testkit.Crossing) error {
		if c.Inside && strings.Contains(c.SQL, "FROM `tickets`") {
			fetching.Store(int64(c.Conn))
		}
		if c.SQL == "BEGIN" && stuck.Load() {
			cancel()
			select {
			case <-c.Context.Done():
				return c.Context.Err()
			case <-release:
				return errors.New("no network")
			}
		}
		err := c.Run()
		if c.Is("UPDATE UID_CURSOR") && !c.Inside { // the consumer holds the cursor; the next transaction fetches
			stuck.Store(true)
		}
		return err
	})
	ended := make(chan error, 1)
	go func() { ended <- follow.Consume(ctx, db, "mails", write("mails")) }()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	case <-time.After(2 * time.Minute):
		t.Error("the consumer does not end")
	}
}

// The database of the events loses commits. Before a process can set the cursor back, another one does so, which then
// handles the rows again. They must not come a third time once the first process works again.
func TestConsume_GoesBackOnceIfAnotherProcessDoesSo(t *testing.T) {
	t.Parallel()
	db := tickets(t, nil, 3)
	var wire testkit.Wire
	file := testkit.SQLite{Path: testkit.SQLitePath(t)}
	into, operator := wire.Open(t, file), file.Open(t)
	testkit.Must(t, into.AutoMigrate(&effect{}))
	var ids []int64
	testkit.Must(t, db.Model(&ticket{}).Order("id").Pluck("id", &ids).Error)
	back := ids[1]
	set := func(last int64, holder string, until time.Time) {
		err := operator.Exec("UPDATE UID_CURSOR SET LAST_ID = ?, MARK = ?, HOLDER = ?, HOLDER_UNTIL = ?", last, back, holder, until.UnixMilli()).Error
		if err != nil {
			t.Error(err)
		}
	}
	until(t, operator, 4, func(ctx context.Context) error {
		go func() {
			for n := int64(0); n < 3 && ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
				_ = operator.Model(&effect{}).Count(&n).Error
			}
			var moved atomic.Bool
			wire.Set(func(c *testkit.Crossing) error {
				if c.Is("UPDATE UID_CURSOR") && len(c.Args) > 0 && c.Args[0].Value == back-1 && !moved.Swap(true) {
					set(back-1, "other", time.Now().Add(5*time.Second))
					return testkit.ErrLost
				}
				return c.Run()
			})
			if err := db.Exec("UPDATE UID_FOLLOW SET PUBLISHED = ?", back).Error; err != nil {
				t.Error(err)
			}
			for ; ctx.Err() == nil; time.Sleep(50 * time.Millisecond) { // until the first process stands by
				if int64(consumerOf(db).Last) == back-1 {
					break
				}
				if moved.Load() {
					set(back-1, "other", time.Now().Add(5*time.Second))
				}
			}
			set(ids[2], "", time.Now())
			err := follow.ErrTooLate // on a busy machine
			for errors.Is(err, follow.ErrTooLate) {
				err = db.Create(&ticket{Seat: "1A"}).Error
			}
			if err != nil {
				t.Error(err)
			}
		}()
		return follow.Consume(ctx, db, "mails", write("mails"), follow.Into(into), follow.WithRewind())
	})
	var got, want []int64
	testkit.Must(t, db.Model(&ticket{}).Order("id").Pluck("id", &want).Error)
	testkit.Must(t, operator.Model(&effect{}).Order("n").Pluck("ticket", &got).Error)
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the effects are of %v, not %v", got, want)
	}
}

// A statement of a handler ends the transaction. The connection stays open, because a database in memory ends with it.
func TestConsume_AnEndedTransactionKeepsADatabaseInMemory(t *testing.T) {
	t.Parallel()
	db := testkit.SQLite{Path: ":memory:", Pool: 1}.Open(t)
	testkit.Must(t, db.Use(uidtest.Sequential()))
	testkit.Must(t, db.AutoMigrate(&ticket{}, &effect{}))
	testkit.Must(t, follow.Enable(t.Context(), db, &ticket{}))
	issue(t, db, 2)
	failed := false
	until(t, db, 2, func(ctx context.Context) error {
		return follow.Consume(ctx, db, "mails", func(tx *gorm.DB, row *ticket) error {
			if !failed {
				failed = true
				return tx.Exec("INSERT OR ROLLBACK INTO tickets (id) VALUES (?)", row.ID).Error
			}
			return write("mails")(tx, row)
		})
	})
	checkEffects(t, db)
}

// A consumer that ends interrupts the statement that looks at the mark. Its connection stays open, because a database
// in memory ends with it.
func TestConsume_ItsEndKeepsADatabaseInMemory(t *testing.T) {
	t.Parallel()
	var wire testkit.Wire
	db := wire.Open(t, testkit.SQLite{Path: ":memory:", Pool: 1})
	plugintest.Use(t, db, uidplugin.WithWorkerID(1))
	prepare(t, db, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var handled atomic.Bool
	wire.Set(func(c *testkit.Crossing) error {
		if handled.Load() && c.Is("SELECT PUBLISHED, SLACK") {
			cancel()
			<-c.Context.Done()
			return c.Context.Err()
		}
		return c.Run()
	})
	err := follow.Consume(ctx, db, "mails", func(tx *gorm.DB, row *ticket) error {
		handled.Store(true)
		return write("mails")(tx, row)
	})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	wire.Set(nil)
	checkEffects(t, db)
}

// COMMIT does not return, as on a network drive. The consumer still logs that, and ends with its context.
func TestConsume_EndsWhileACommitDoesNotReturn(t *testing.T) {
	t.Parallel()
	testkit.SkipIfShort(t, "it waits for 10 s")
	var wire testkit.Wire
	db, _ := wired(t, &wire, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	release := make(chan struct{})
	defer close(release)
	var handling atomic.Int64
	wire.Set(func(c *testkit.Crossing) error {
		if c.Inside && c.Is("INSERT INTO effects") {
			handling.Store(int64(c.Conn))
		}
		if c.SQL == "COMMIT" && handling.Load() == int64(c.Conn) {
			cancel()
			<-release
		}
		return c.Run()
	})
	ended := make(chan error, 1)
	go func() { ended <- follow.Consume(ctx, db, "mails", write("mails")) }()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	case <-time.After(2 * time.Minute):
		t.Error("the consumer does not end")
	}
}

// A server that does not answer BEGIN or COMMIT makes no follower stand still without an error.
func TestConsume_AFetchThatGetsNoAnswerFails(t *testing.T) {
	t.Parallel()
	testkit.SkipIfShort(t, "it waits for 20 s")
	for _, statement := range []string{"BEGIN", "COMMIT"} {
		want := "follow tickets: " + statement + ": no answer within 10s"
		for _, into := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s into=%v", statement, into), func(t *testing.T) {
				t.Parallel()
				var wire testkit.Wire
				db, _ := wired(t, &wire, 1)
				effects, options := db, []follow.ConsumeOption(nil)
				if into {
					effects = testkit.SQLite{}.Open(t)
					testkit.Must(t, effects.AutoMigrate(&ticket{}, &effect{}))
					options = append(options, follow.Into(effects))
				}
				answer := holdUp(t, &wire, statement, into)
				until(t, effects, 1, func(ctx context.Context) error {
					go func() {
						defer answer()
						for begin := time.Now(); time.Since(begin) < 2*time.Minute; time.Sleep(5 * time.Millisecond) {
							if strings.Contains(fmt.Sprint(consumerOf(db).LastError), want) {
								return
							}
						}
						t.Errorf("the last error of the consumer is %v", consumerOf(db).LastError)
					}()
					return follow.Consume(ctx, db, "mails", write("mails"), options...)
				})
				if !into {
					checkEffects(t, db)
				}
			})
		}
		t.Run(statement+" of Rows", func(t *testing.T) {
			t.Parallel()
			var wire testkit.Wire
			db, _ := wired(t, &wire, 1)
			answer := holdUp(t, &wire, statement, true)
			defer answer()
			for row, err := range follow.Rows[ticket](t.Context(), db, 0) {
				if err == nil {
					break
				}
				if answer(); !strings.Contains(err.Error(), want) {
					t.Error(row, err)
				}
			}
		})
	}
}

// The statement that reads rows gets no answer. It may be slow, so it is not ended, but an operator must see it.
func TestConsume_ASlowFetchIsAnError(t *testing.T) {
	t.Parallel()
	testkit.SkipIfShort(t, "it waits for 10 s")
	var log testkit.Log
	var wire testkit.Wire
	db := wire.Open(t, testkit.SQLite{Path: testkit.SQLitePath(t)})
	plugintest.Use(t, db, uidplugin.WithWorkerID(1), uidplugin.WithLogger(log.Logger()))
	prepare(t, db, 1)
	answers := make(chan struct{})
	answer := sync.OnceFunc(func() { close(answers) })
	defer answer()
	wire.Set(func(c *testkit.Crossing) error {
		if c.Inside && strings.Contains(c.SQL, "FROM `tickets`") {
			<-answers
		}
		return c.Run()
	})
	until(t, db, 1, func(ctx context.Context) error {
		go func() {
			defer answer()
			for begin := time.Now(); time.Since(begin) < 2*time.Minute; time.Sleep(5 * time.Millisecond) {
				if strings.Contains(fmt.Sprint(consumerOf(db).LastError), "has taken ten seconds") {
					return
				}
			}
			t.Errorf("the last error of the consumer is %v", consumerOf(db).LastError)
		}()
		return follow.Consume(ctx, db, "mails", write("mails"))
	})
	log.SaysOnce(t, "has taken ten seconds")
	checkEffects(t, db)
}

// With Into a fetch has no lock on the cursor. If it took longer than the term of the process, another process took the
// cursor meanwhile, so what was fetched could not be handled, and the other one fared no better.
func TestConsume_IntoASlowFetchKeepsTheCursor(t *testing.T) {
	t.Parallel()
	testkit.SkipIfShort(t, "it waits for some seconds")
	var wire testkit.Wire
	db, file := wired(t, &wire, 2)
	other := wire.Open(t, file)
	plugintest.Use(t, other, uidplugin.WithWorkerID(2))
	into := testkit.SQLite{}.Open(t)
	testkit.Must(t, into.AutoMigrate(&effect{}))
	wire.Set(func(c *testkit.Crossing) error {
		if c.Inside && strings.Contains(c.SQL, "FROM `tickets`") {
			if err := c.Sleep(5 * time.Second); err != nil {
				return err
			}
		}
		return c.Run()
	})
	until(t, into, 2, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("no process handles rows"))
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- follow.Consume(ctx, other, "mails", write("mails"), follow.Into(into)) }()
		err := follow.Consume(ctx, db, "mails", write("mails"), follow.Into(into))
		<-ended
		return err
	})
	var want, got []int64
	testkit.Must(t, db.Model(&ticket{}).Order("id").Pluck("id", &want).Error)
	testkit.Must(t, into.Model(&effect{}).Order("n").Pluck("ticket", &got).Error)
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the effects are of %v, not %v", got, want)
	}
}

// holdUp makes a statement wait until answer is called: at once, or once a consumer holds its cursor.
func holdUp(t *testing.T, wire *testkit.Wire, statement string, atOnce bool) (answer func()) {
	t.Helper()
	var holds atomic.Bool
	holds.Store(atOnce)
	answers := make(chan struct{})
	wire.Set(func(c *testkit.Crossing) error {
		if c.SQL == statement && holds.Load() {
			select {
			case <-c.Context.Done():
				return c.Context.Err()
			case <-answers:
			}
		}
		err := c.Run()
		if c.Is("UPDATE UID_CURSOR") && !c.Inside { // the next transaction fetches
			holds.Store(true)
		}
		return err
	})
	return sync.OnceFunc(func() { close(answers) })
}

// The connection breaks while the handler computes. The row did not fail for that, so it counts as no failure.
func TestConsume_AConnectionThatBreaksIsNoFailureOfTheRow(t *testing.T) {
	t.Parallel()
	for _, broken := range []error{driver.ErrBadConn, errors.New("invalid connection"), io.ErrUnexpectedEOF} {
		var wire testkit.Wire
		db, _ := wired(t, &wire, 1)
		var broke atomic.Bool
		wire.Set(func(c *testkit.Crossing) error {
			if strings.HasPrefix(c.SQL, "RELEASE") && !broke.Swap(true) {
				return broken
			}
			return c.Run()
		})
		until(t, db, 1, func(ctx context.Context) error {
			return follow.Consume(ctx, db, "mails", func(tx *gorm.DB, row *ticket) error {
				if c := consumerOf(db); c.Failed > 0 || c.Stuck != 0 {
					t.Errorf("after %v: %+v", broken, c)
				}
				return write("mails")(tx, row)
			})
		})
		if !broke.Load() {
			t.Error("the connection did not break")
		}
		checkEffects(t, db)
	}
}

// The handler sends no statement for so long that the server ends its connection. That is no accident, so the log tells
// it at once, and not after three tries of half a minute.
func TestConsume_AHandlerThatStandsStillFails(t *testing.T) {
	t.Parallel()
	testkit.SkipIfShort(t, "it waits for 30 s")
	var wire testkit.Wire
	db, _ := wired(t, &wire, 1)
	var broke atomic.Bool
	wire.Set(func(c *testkit.Crossing) error {
		if strings.HasPrefix(c.SQL, "RELEASE") && !broke.Swap(true) {
			return driver.ErrBadConn
		}
		return c.Run()
	})
	until(t, db, 1, func(ctx context.Context) error {
		return follow.Consume(ctx, db, "mails", func(tx *gorm.DB, row *ticket) error {
			if broke.Load() {
				if c := consumerOf(db); c.Failed != 1 || c.Stuck != row.ID {
					t.Errorf("%+v", c)
				}
				return write("mails")(tx, row)
			}
			time.Sleep(30 * time.Second)
			return nil
		})
	})
	checkEffects(t, db)
}

// Somebody has set PAUSED by hand. Each number but 0 pauses the consumer, and the list has it.
func TestConsume_AnyNumberPauses(t *testing.T) {
	t.Parallel()
	db := tickets(t, nil, 1)
	until(t, db, 1, func(ctx context.Context) error { return follow.Consume(ctx, db, "mails", write("mails")) })
	testkit.Must(t, db.Exec("UPDATE UID_CURSOR SET PAUSED = 2").Error)
	conn, err := sqldb.Open(db, time.Minute)
	testkit.Must(t, err)
	if list, err := engine.ListConsumers(t.Context(), conn); err != nil || len(list) != 1 || !list[0].Paused {
		t.Errorf("%+v, %v", list, err)
	}
	issue(t, db, 1)
	until(t, db, 2, func(ctx context.Context) error {
		go func() {
			for c := consumerOf(db); !c.Paused && c.LastError == nil && ctx.Err() == nil; c = consumerOf(db) {
				time.Sleep(5 * time.Millisecond)
			}
			if c := consumerOf(db); !c.Paused {
				t.Errorf("%+v", c)
			}
			_ = db.Exec("UPDATE UID_CURSOR SET PAUSED = 0").Error
		}()
		return follow.Consume(ctx, db, "mails", write("mails"))
	})
	checkEffects(t, db)
}

// The mark cannot advance, so the consumer stands still. It reads its cursor meanwhile, and its state must keep the
// error.
func TestConsume_KeepsTheErrorOfTheMark(t *testing.T) {
	t.Parallel()
	var wire testkit.Wire
	db, _ := wired(t, &wire, 1)
	var id int64
	testkit.Must(t, db.Model(&ticket{}).Pluck("id", &id).Error)
	publish := func(mark int64) error { return db.Exec("UPDATE UID_FOLLOW SET PUBLISHED = ?", mark).Error }
	testkit.Must(t, publish(id+1<<50)) // in days
	until(t, db, 1, func(ctx context.Context) error {
		reads := 0 // since the first error
		wire.Set(func(c *testkit.Crossing) error {
			if c.Is("SELECT LAST_ID") { // the consumer itself calls this
				switch err := consumerOf(db).LastError; {
				case err != nil:
					reads++
				case reads > 0 && reads < 4:
					t.Errorf("there is no error any more after %d reads of the cursor", reads)
					reads = 4
				}
				if reads == 4 {
					reads++
					go func() { _ = publish(id) }()
				}
			}
			return c.Run()
		})
		return follow.Consume(ctx, db, "mails", write("mails"))
	})
	checkEffects(t, db)
}

// The log names a process that works instead of another one which was killed, but not one that begins.
func TestConsume_LogsThatItTakesOver(t *testing.T) {
	t.Parallel()
	const line = "a consumer works in this process now"
	var log testkit.Log
	db := testkit.SQLite{}.Open(t)
	plugintest.Use(t, db, uidplugin.WithWorkerID(1), uidplugin.WithLogger(log.Logger()))
	prepare(t, db, 1)
	until(t, db, 1, func(ctx context.Context) error { return follow.Consume(ctx, db, "mails", write("mails")) })
	if lines := log.Lines(line); len(lines) > 0 {
		t.Error(lines)
	}
	testkit.Must(t, db.Exec("UPDATE UID_CURSOR SET HOLDER = 'killed', HOLDER_UNTIL = ?", time.Now().UnixMilli()).Error)
	issue(t, db, 1)
	until(t, db, 2, func(ctx context.Context) error { return follow.Consume(ctx, db, "mails", write("mails")) })
	log.SaysOnce(t, line)
}

// The consumer waits for uid tables rename, which gives it the cursor. Then it works, also if no row comes.
func TestConsume_ForgetsAnErrorOnceItHasACursor(t *testing.T) {
	t.Parallel()
	var log testkit.Log
	db := testkit.SQLite{}.Open(t)
	plugintest.Use(t, db, uidplugin.WithWorkerID(1), uidplugin.WithLogger(log.Logger()))
	prepare(t, db, 0)
	testkit.Must(t, db.Exec("INSERT INTO UID_CURSOR (CONSUMER, SPACE, TABLE_NAME, LAST_ID) VALUES ('mails', '', 'visas', 0)").Error)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- follow.Consume(ctx, db, "mails", write("mails")) }()
	testkit.Eventually(t, "an error", time.Minute, func() bool {
		return strings.Contains(fmt.Sprint(consumerOf(db).LastError), "uid tables rename visas tickets")
	})
	testkit.Must(t, db.Exec("UPDATE UID_CURSOR SET TABLE_NAME = 'tickets'").Error)
	testkit.Eventually(t, "no error", time.Minute, func() bool { return consumerOf(db).Works && consumerOf(db).LastError == nil })
	log.SaysOnce(t, "a consumer goes on")
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

package follow_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strings"
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

// withSeats creates tickets, seats, and effects whose seats must be there at COMMIT.
func withSeats(t *testing.T, db *gorm.DB) {
	t.Helper()
	testkit.Must(t, db.AutoMigrate(&ticket{}))
	testkit.Must(t, db.Exec("CREATE TABLE seats (name TEXT PRIMARY KEY)").Error)
	testkit.Must(t, db.Exec("CREATE TABLE effects (n INTEGER PRIMARY KEY, consumer TEXT, ticket INTEGER,"+
		" seat TEXT REFERENCES seats (name) DEFERRABLE INITIALLY DEFERRED)").Error)
}

// seat is a handler that writes an effect with the seat of its ticket.
func seat(tx *gorm.DB, row *ticket) error {
	return tx.Exec("INSERT INTO effects (consumer, ticket, seat) VALUES ('mails', ?, ?)", row.ID, row.Seat).Error
}

// A deferred constraint fails at COMMIT. The row fails like one whose handler fails: those before it take effect, an
// operator sees it, and it goes on by itself.
func TestConsume_ARowFailsAtCommit(t *testing.T) {
	t.Parallel()
	db := testkit.SQLite{Params: []string{"_pragma=foreign_keys(1)"}}.Open(t)
	plugintest.Use(t, db, uidplugin.WithWorkerID(1))
	withSeats(t, db)
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
				if err := seat(tx, row); err != nil {
					return err
				}
			}
			return nil
		})
	})
	checkEffects(t, db)
}

// If a statement of the handler ends the transaction, SQLite would commit the later ones one by one, and the row would
// come again.
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

// SQLite keeps a transaction open if its COMMIT finds the file locked. Formerly its connection was given back to the
// pool like that, so nobody else could write any more, and the consumer stood still for good.
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

// With Into the cursor is changed after rows were read, also if one of them cannot be read. Formerly that row was
// passed over.
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
			checkEffectsOf(t, into, ids(t, db))
		})
	}
}

// The connection breaks while the handler computes. That is not the fault of the row, so it does not count as a
// failure.
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

// The handler sends no statement for so long that the server ends its connection. It probably does so again at the next
// try, so the log tells it at once, and not after three tries of half a minute.
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

// A step fails again and again. The consumer reads its cursor in between, and its state must keep the error until the
// step succeeds, or until it is not needed any more.
func TestConsume_KeepsTheErrorOfAStep(t *testing.T) {
	t.Parallel()
	steps := map[string]func(c *testkit.Crossing, id int64) bool{
		"hold the cursor": func(c *testkit.Crossing, _ int64) bool { return !c.Inside && c.Is("UPDATE UID_CURSOR") },
		"fetch rows":      func(c *testkit.Crossing, _ int64) bool { return c.Inside && c.Is("SELECT PUBLISHED") },
		"handle rows": func(c *testkit.Crossing, id int64) bool {
			return c.Inside && c.Is("UPDATE UID_CURSOR") && c.Args[0].Value == id
		},
	}
	ends := map[string]func(ctx context.Context, db *gorm.DB) error{
		"it succeeds":       func(context.Context, *gorm.DB) error { return nil },
		"the cursor is set": func(ctx context.Context, db *gorm.DB) error { return reset(ctx, db, ids(t, db)[0]+1) },
		"the consumer is paused": func(_ context.Context, db *gorm.DB) error {
			return db.Exec("UPDATE UID_CURSOR SET PAUSED = 1").Error
		},
		"another process works": func(ctx context.Context, db *gorm.DB) error {
			go func() {
				for ; ctx.Err() == nil; time.Sleep(200 * time.Millisecond) {
					_ = hold(db, 2*time.Second)
				}
			}()
			return nil
		},
	}
	for step, is := range steps {
		for end, act := range ends {
			if end == "the cursor is set" && step != "handle rows" { // it would go on to fail
				continue
			}
			t.Run(step+" until "+end, func(t *testing.T) {
				t.Parallel()
				var wire testkit.Wire
				db, file := wired(t, &wire, 1)
				operator, id := file.Open(t), ids(t, db)[0]
				const most = 6
				var failed atomic.Int64
				wire.Set(func(c *testkit.Crossing) error {
					if !is(c, id) || failed.Load() > most && end == "it succeeds" {
						return c.Run()
					}
					n := failed.Add(1)
					if state := consumerOf(db); 2 < n && n <= most && state.LastError == nil { // a fetch sends two
						t.Errorf("there is no error any more: %+v", state)
					}
					return errors.New("disk I/O error")
				})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				ended := make(chan error, 1)
				go func() { ended <- follow.Consume(ctx, db, "mails", write("mails")) }()
				testkit.Eventually(t, "failures", time.Minute, func() bool { return failed.Load() > most })
				testkit.Must(t, act(ctx, operator))
				testkit.Eventually(t, "no error", time.Minute, func() bool { return consumerOf(db).LastError == nil })
				cancel()
				if err := <-ended; !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
		}
	}
}

// A row that has often failed comes again after a minute. Meanwhile a statement fails once, which must not hide why the row
// fails.
func TestConsume_TheStateHasTheErrorOfAStuckRowAgain(t *testing.T) {
	t.Parallel()
	var wire testkit.Wire
	db, _ := wired(t, &wire, 1)
	testkit.Must(t, db.Exec("INSERT INTO UID_CURSOR (CONSUMER, SPACE, TABLE_NAME, LAST_ID, ATTEMPTS) VALUES ('mails', '', 'tickets', ?, 6)", ids(t, db)[0]-1).Error)
	var failed atomic.Bool
	wire.Set(func(c *testkit.Crossing) error {
		if c.Is("SELECT LAST_ID") && consumerOf(db).Stuck != 0 && !failed.Swap(true) {
			return errors.New("disk I/O error")
		}
		return c.Run()
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended, noRoute := make(chan error, 1), errors.New("no route")
	go func() {
		ended <- follow.Consume(ctx, db, "mails", func(*gorm.DB, *ticket) error { return noRoute })
	}()
	testkit.Eventually(t, "another error", time.Minute, func() bool { return strings.Contains(fmt.Sprint(consumerOf(db).LastError), "disk I/O") })
	testkit.Eventually(t, "the error of the row", time.Minute, func() bool { return errors.Is(consumerOf(db).LastError, noRoute) })
	if c := consumerOf(db); c.Failed != 1 || c.Stuck == 0 {
		t.Errorf("%+v", c)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// hold makes another process hold the cursor for d.
func hold(db *gorm.DB, d time.Duration) error {
	return db.Exec("UPDATE UID_CURSOR SET HOLDER = 'other', HOLDER_UNTIL = ?", time.Now().Add(d).UnixMilli()).Error
}

// A fetch takes so long to fail that another process takes the cursor. Its fetches fail as well, so the first one takes
// the cursor again. The log has the error once, and the state keeps it.
func TestConsume_KeepsTheErrorWhileProcessesTakeTurns(t *testing.T) {
	t.Parallel()
	var log testkit.Log
	var wire testkit.Wire
	db, file := wired(t, &wire, 1, uidplugin.WithLogger(log.Logger()))
	operator := file.Open(t)
	var failed, turns atomic.Int64
	wire.Set(func(c *testkit.Crossing) error {
		switch {
		case c.Inside && strings.Contains(c.SQL, "FROM `tickets`") && turns.Load() < 2:
			if n := failed.Add(1); n == 3 && consumerOf(db).LastError == nil { // a fetch sends two
				t.Error("there is no error any more when it takes the cursor again")
			}
			return errors.New("the query was too long")
		case c.Is("SELECT LAST_ID") && failed.Load() > 2*turns.Load():
			turns.Add(1)
			if err := hold(operator, 1500*time.Millisecond); err != nil {
				t.Error(err)
			}
		}
		return c.Run()
	})
	until(t, db, 1, func(ctx context.Context) error { return follow.Consume(ctx, db, "mails", write("mails")) })
	log.SaysOnce(t, "the query was too long")
	log.SaysOnce(t, "after=\"fetch rows\"")
	checkEffects(t, db)
}

// The log tells in which process a consumer works, and whether the one before was killed. A clean hand-over is not
// logged as a problem.
func TestConsume_LogsThatItTakesOver(t *testing.T) {
	t.Parallel()
	const killed = "because the last one was killed, stands still, or needed more than 3 s for its rows"
	var log testkit.Log
	db := testkit.SQLite{}.Open(t)
	plugintest.Use(t, db, uidplugin.WithWorkerID(1), uidplugin.WithLogger(log.Logger()))
	prepare(t, db, 1)
	for range 2 {
		until(t, db, 1, func(ctx context.Context) error { return follow.Consume(ctx, db, "mails", write("mails")) })
	}
	if lines := log.Lines(killed); len(lines) > 0 {
		t.Error(lines)
	}
	testkit.Must(t, db.Exec("UPDATE UID_CURSOR SET HOLDER = 'web-7/pid-9/KQ', HOLDER_UNTIL = ?", time.Now().UnixMilli()).Error)
	issue(t, db, 1)
	until(t, db, 2, func(ctx context.Context) error { return follow.Consume(ctx, db, "mails", write("mails")) })
	log.SaysOnce(t, killed)
	log.SaysOnce(t, "holder=web-7/pid-9\n")
	if lines := log.Lines("a consumer works in this process now"); len(lines) < 2 {
		t.Error(lines)
	}
}

// A consumer that begins anew, or that an operator has paused or set, looks as if it had lost its rows or stood still.
// After a pause no process was killed.
func TestConsume_LogsThatItBeginsAndWhatAnOperatorDoes(t *testing.T) {
	t.Parallel()
	const wasPaused, wasResumed = "a consumer was paused by an operator", "a consumer was resumed by an operator"
	var log testkit.Log
	db := testkit.SQLite{}.Open(t)
	plugintest.Use(t, db, uidplugin.WithWorkerID(1), uidplugin.WithLogger(log.Logger()))
	prepare(t, db, 1)
	for range 2 {
		until(t, db, 1, func(ctx context.Context) error { return follow.Consume(ctx, db, "mails", write("mails")) })
	}
	log.SaysOnce(t, "a consumer has no cursor yet, so it begins with the rows after this id")
	operate := func() error {
		conn, err := sqldb.Open(db, time.Minute)
		for _, paused := range []bool{true, false} {
			err = errors.Join(err, engine.PauseConsumer(t.Context(), conn, engine.ConsumerKey{Consumer: "mails", Table: "tickets"}, paused))
			testkit.Eventually(t, "the line", time.Minute, func() bool { return len(log.Lines(map[bool]string{true: wasPaused, false: wasResumed}[paused])) > 0 })
		}
		testkit.Eventually(t, "it works", time.Minute, func() bool { return consumerOf(db).Works })
		return errors.Join(err, reset(t.Context(), db, 0))
	}
	operated := make(chan error, 1)
	until(t, db, 2, func(ctx context.Context) error {
		go func() {
			testkit.Eventually(t, "it works", time.Minute, func() bool { return consumerOf(db).Works })
			operated <- operate()
		}()
		return follow.Consume(ctx, db, "mails", write("mails"))
	})
	testkit.Must(t, <-operated)
	for _, line := range []string{wasPaused, wasResumed, "the cursor of a consumer was set by an operator"} {
		log.SaysOnce(t, line)
	}
	if lines := log.Lines("was killed"); len(lines) > 0 {
		t.Error(lines)
	}
}

// A handler that fails is logged at each try, so its success is logged, too.
func TestConsume_LogsThatARowWhichFailedIsHandled(t *testing.T) {
	t.Parallel()
	var log testkit.Log
	db := testkit.SQLite{}.Open(t)
	plugintest.Use(t, db, uidplugin.WithWorkerID(1), uidplugin.WithLogger(log.Logger()))
	prepare(t, db, 2)
	calls := 0
	until(t, db, 2, func(ctx context.Context) error {
		return follow.Consume(ctx, db, "mails", func(tx *gorm.DB, row *ticket) error {
			if calls++; calls == 1 {
				return errors.New("no route")
			}
			return write("mails")(tx, row)
		})
	})
	log.SaysOnce(t, "a consumer goes on")
	log.SaysOnce(t, "tries=2")
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

// A named ticket is a ticket whose table has its schema before its name.
type named ticket

func (named) TableName() string { return "main.tickets" }

// A second cursor would handle all rows again.
func TestConsume_ATableWithAnotherNameGetsNoSecondCursor(t *testing.T) {
	t.Parallel()
	db := tickets(t, nil, 2)
	until(t, db, 2, func(ctx context.Context) error { return follow.Consume(ctx, db, "mails", write("mails")) })
	testkit.Must(t, follow.Enable(t.Context(), db, &named{}))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		defer cancel()
		for n := int64(2); n == 2 && ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
			for _, s := range follow.Stats(db) {
				for _, c := range s.Consumers {
					if strings.Contains(fmt.Sprint(c.LastError), "a cursor for tickets, which is the same table as main.tickets") {
						return
					}
				}
			}
			_ = db.Model(&effect{}).Count(&n).Error
		}
	}()
	err := follow.Consume(ctx, db, "mails", func(tx *gorm.DB, row *named) error { return write("mails")(tx, (*ticket)(row)) })
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	checkEffects(t, db)
}

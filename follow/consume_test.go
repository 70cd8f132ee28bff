package follow_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/follow"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/uidtest"
	"gorm.io/gorm"
)

// An effect is what a handler writes for a ticket.
type effect struct {
	N        int64 `gorm:"primaryKey;autoIncrement"`
	Consumer string
	Ticket   int64
}

// tickets returns a handle with followed tickets, whose plugin is that of an application or of its tests.
func tickets(t *testing.T, plugin gorm.Plugin, n int) *gorm.DB {
	t.Helper()
	db := testkit.SQLite{}.Open(t)
	if plugin != nil {
		testkit.Must(t, db.Use(plugin))
	} else {
		plugintest.Use(t, db, uidplugin.WithWorkerID(1))
	}
	testkit.Must(t, db.AutoMigrate(&ticket{}, &effect{}))
	testkit.Must(t, follow.Enable(t.Context(), db, &ticket{}, follow.WithSlack(20*time.Millisecond)))
	issue(t, db, n)
	return db
}

func issue(t *testing.T, db *gorm.DB, n int) {
	t.Helper()
	for range n {
		testkit.Must(t, db.Create(&ticket{Seat: "1A"}).Error)
	}
}

// write is a handler that writes an effect.
func write(consumer string) func(tx *gorm.DB, row *ticket) error {
	return func(tx *gorm.DB, row *ticket) error {
		return tx.Create(&effect{Consumer: consumer, Ticket: int64(row.ID)}).Error
	}
}

// until ends the context when there are n effects, and returns the result of a consumer.
func until(t *testing.T, db *gorm.DB, n int64, consume func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- consume(ctx) }()
	for {
		var found int64
		testkit.Must(t, db.Model(&effect{}).Count(&found).Error)
		if found >= n {
			break
		}
		select {
		case err := <-ended:
			t.Fatalf("the consumer has ended after %d effects: %v", found, err)
		case <-time.After(5 * time.Millisecond):
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the consumer has ended with %v", err)
	}
}

// checkEffects compares the effects of a consumer with the tickets.
func checkEffects(t *testing.T, db *gorm.DB, consumer string) {
	t.Helper()
	var want, got []int64
	testkit.Must(t, db.Model(&ticket{}).Order("id").Pluck("id", &want).Error)
	testkit.Must(t, db.Model(&effect{}).Where("consumer = ?", consumer).Order("n").Pluck("ticket", &got).Error)
	if len(want) != len(got) {
		t.Fatalf("%d tickets have %d effects", len(want), len(got))
	}
	for i := range want {
		if want[i] != got[i] {
			t.Fatalf("effect %d is of the ticket %d, not %d", i, got[i], want[i])
		}
	}
}

func TestConsume_EachRowTakesEffectOnceAndInOrder(t *testing.T) {
	t.Parallel()
	for name, plugin := range map[string]gorm.Plugin{"production": nil, "uidtest": uidtest.Sequential()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := tickets(t, plugin, 3)
			until(t, db, 3, func(ctx context.Context) error { return follow.Consume(ctx, db, "mails", write("mails")) })
			issue(t, db, 2) // the next one goes on from the cursor
			until(t, db, 5, func(ctx context.Context) error { return follow.Consume(ctx, db, "mails", write("mails")) })
			checkEffects(t, db, "mails")
		})
	}
}

// A batch comes again row by row, so that a row that fails holds up none before it.
func TestConsume_FailingAndSkippedRows(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int{"one by one": 1, "batches": 4} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := tickets(t, uidtest.Sequential(), 6)
			failures, counted := 0, map[string]follow.ConsumerStats{}
			handle := func(tx *gorm.DB, rows []*ticket) error {
				for _, row := range rows {
					testkit.Must(t, write("mails")(tx, row))
					if row.ID == 2 {
						return fmt.Errorf("no address: %w", follow.Skip)
					}
					if row.ID == 4 && len(rows) == 1 && failures < 1 {
						failures++
						return errors.New("the post is closed\u2026")
					} else if row.ID == 4 && len(rows) > 1 {
						return errors.New("a batch fails")
					}
					if row.ID == 4 {
						counted["stuck"] = follow.Stats(db)[0].Consumers[0]
					}
				}
				counted["end"] = follow.Stats(db)[0].Consumers[0]
				return nil
			}
			until(t, db, 5, func(ctx context.Context) error { return follow.ConsumeBatch(ctx, db, "mails", size, handle) })
			testkit.Must(t, db.Delete(&ticket{}, 2).Error)
			checkEffects(t, db, "mails")
			if s := counted["stuck"]; s.Stuck != 4 || s.LastError == nil || s.Skipped != 1 || !s.Works {
				t.Errorf("%+v", s)
			}
			if s := counted["end"]; s.Stuck != 0 || s.LastError != nil || s.Last < 4 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// The reason is in UID_CURSOR, in ASCII, for operators and for the other processes.
func TestConsume_StoresWhyARowFails(t *testing.T) {
	t.Parallel()
	db := tickets(t, uidtest.Sequential(), 1)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		ended <- follow.Consume(ctx, db, "mails", func(*gorm.DB, *ticket) error {
			return errors.New("geschlossen für " + strings.Repeat("immer", 100))
		})
	}()
	var found struct {
		StuckID    int64  `gorm:"column:STUCK_ID"`
		StuckSince int64  `gorm:"column:STUCK_SINCE"`
		RetryAt    int64  `gorm:"column:RETRY_AT"`
		Attempts   int    `gorm:"column:ATTEMPTS"`
		Error      string `gorm:"column:ERROR"`
	}
	for found.Attempts < 1 {
		time.Sleep(5 * time.Millisecond)
		_ = db.Table("UID_CURSOR").Take(&found).Error
	}
	cancel()
	<-ended
	if found.StuckID != 1 || found.RetryAt-found.StuckSince != 1000 || len(found.Error) != 255 || !strings.HasPrefix(found.Error, "geschlossen f?r immer") {
		t.Errorf("%+v", found)
	}
}

func TestConsume_APanicRollsBackAndGoesOnUp(t *testing.T) {
	t.Parallel()
	db := tickets(t, uidtest.Sequential(), 1)
	defer func() {
		if recover() != "oh" {
			t.Error("no panic")
		}
		if n := plugintest.Count(t, db, "effects"); n != 0 {
			t.Errorf("%d effects", n)
		}
		until(t, db, 1, func(ctx context.Context) error { return follow.Consume(ctx, db, "mails", write("mails")) })
	}()
	_ = follow.Consume(t.Context(), db, "mails", func(tx *gorm.DB, row *ticket) error {
		testkit.Must(t, write("mails")(tx, row))
		panic("oh")
	})
}

// Those who close the pool seldom end the context, too. The consumer then tried again, and logged errors, until the
// process ended.
func TestConsume_EndsWithItsPool(t *testing.T) {
	t.Parallel()

	for name, plugin := range map[string]func() gorm.Plugin{
		"uidtest":       func() gorm.Plugin { return uidtest.Sequential() },
		"a real plugin": func() gorm.Plugin { return nil },
	} {
		for _, into := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, into %v", name, into), func(t *testing.T) {
				t.Parallel()

				db := tickets(t, plugin(), 1)
				effects, options := db, []follow.ConsumeOption(nil)
				if into {
					effects = testkit.SQLite{}.Open(t)
					testkit.Must(t, effects.AutoMigrate(&effect{}))
					options = append(options, follow.Into(effects))
				}
				pool, err := effects.DB()
				testkit.Must(t, err)
				err = follow.Consume(t.Context(), db, "mails", func(*gorm.DB, *ticket) error { return pool.Close() }, options...)
				testkit.IsError(t, err, nil, "the consumer mails of", "sql: database is closed")
			})
		}
	}
}

func TestConsume_RefusesBadOptions(t *testing.T) {
	t.Parallel()
	db := tickets(t, uidtest.Sequential(), 0)
	for _, name := range []string{"", "a\n", strings.Repeat("a", 129), "\xff", "a ", " a", " "} {
		if err := follow.Consume(t.Context(), db, name, write("")); !errors.Is(err, uidplugin.ErrOption) {
			t.Errorf("the name %.20q: %v", name, err)
		}
	}
	for _, option := range []follow.ConsumeOption{follow.Into(nil), follow.From(-1), nil} {
		want := uidplugin.ErrOption
		if option == nil {
			option, want = follow.From(-5), uidplugin.ErrNegativeID
		}
		err := follow.Consume(t.Context(), db, "mails", write(""), option)
		if !errors.Is(err, want) && !errors.Is(err, uidplugin.ErrNegativeID) {
			t.Errorf("%v", err)
		}
	}
	if err := follow.ConsumeBatch(t.Context(), db, "mails", 0, func(*gorm.DB, []*ticket) error { return nil }); !errors.Is(err, uidplugin.ErrOption) {
		t.Error(err)
	}
	if err := follow.Consume[ticket](t.Context(), db, "mails", nil); !errors.Is(err, uidplugin.ErrOption) {
		t.Error(err)
	}
	if err := follow.Consume(t.Context(), db.Limit(3), "mails", write("")); !errors.Is(err, uidplugin.ErrClause) {
		t.Error(err)
	}
	other := testkit.SQLite{}.Open(t)
	plugintest.Use(t, other, uidplugin.WithWorkerID(2))
	testkit.Must(t, other.AutoMigrate(&ticket{}))
	if err := follow.Consume(t.Context(), other, "mails", write("")); !errors.Is(err, follow.ErrNotEnabled) {
		t.Errorf("a table that is not enabled: %v", err)
	}
}

func TestConsume_BeginsWhereItIsTold(t *testing.T) {
	t.Parallel()
	db := tickets(t, uidtest.Sequential(), 3)
	if handled, err := follow.Handled(t.Context(), db, &ticket{}); handled != 0 || err != nil {
		t.Errorf("without consumers: %d, %v", handled, err)
	}
	consume := func(name string, option follow.ConsumeOption) func(ctx context.Context) error {
		return func(ctx context.Context) error { return follow.Consume(ctx, db, name, write(name), option) }
	}
	until(t, db, 1, consume("third", follow.From(2)))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- consume("now", follow.FromNow())(ctx) }()
	for plugintest.Count(t, db, "UID_CURSOR") < 2 {
		time.Sleep(5 * time.Millisecond)
	}
	cancel()
	<-ended
	issue(t, db, 1)
	until(t, db, 2, consume("now", nil))
	until(t, db, 3, consume("third", follow.FromNow())) // it has a cursor
	var got []string
	testkit.Must(t, db.Model(&effect{}).Order("n").Select("consumer || ticket").Scan(&got).Error)
	if want := "[third3 now4 third4]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
	until(t, db, 4, consume("second", follow.From(3)))
	if handled, err := follow.Handled(t.Context(), db, &ticket{}); handled != 4 || err != nil {
		t.Errorf("%d, %v", handled, err)
	}
}

func TestConsume_IntoAnotherDatabase(t *testing.T) {
	t.Parallel()
	db, effects := tickets(t, uidtest.Sequential(), 2), testkit.SQLite{}.Open(t)
	testkit.Must(t, effects.AutoMigrate(&effect{}))
	for n := int64(2); n < 4; n++ {
		until(t, effects, n, func(ctx context.Context) error {
			return follow.Consume(ctx, db, "mails", write("mails"), follow.Into(effects))
		})
		issue(t, db, 1)
	}
	var space string
	testkit.Must(t, effects.Table("UID_CURSOR").Pluck("SPACE", &space).Error)
	if n := plugintest.Count(t, db, "effects"); n != 0 || space != "test.db" {
		t.Errorf("%d effects in the database of the rows; the space is %q", n, space)
	}
}

// Rows that do not match are passed over without effects, and the cursor moves on.
func TestConsume_PassesOverRowsThatDoNotMatch(t *testing.T) {
	t.Parallel()
	db := tickets(t, nil, 3)
	chosen := ticket{Seat: "9Z"}
	testkit.Must(t, db.Create(&chosen).Error)
	until(t, db, 1, func(ctx context.Context) error {
		return follow.Consume(ctx, db.Where("seat = ?", "9Z"), "mails", write("mails"))
	})
	issue(t, db, 2)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error)
	go func() { ended <- follow.Consume(ctx, db.Where("seat = ?", "9Z"), "mails", write("mails")) }()
	var last uidplugin.ID
	testkit.Must(t, db.Model(&ticket{}).Select("MAX(id)").Scan(&last).Error)
	for handled := uidplugin.ID(0); handled < last; time.Sleep(5 * time.Millisecond) {
		var err error
		handled, err = follow.Handled(t.Context(), db, &ticket{})
		testkit.Must(t, err)
	}
	cancel()
	<-ended
	if n := plugintest.Count(t, db, "effects"); n != 1 {
		t.Errorf("%d effects", n)
	}
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
	checkEffects(t, db, "mails")
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
	checkEffects(t, db, "mails")
}

// SQLite keeps a transaction whose COMMIT finds the file locked. It was given back to the pool, so nobody else could
// write any more, and the consumer stood still for good.
func TestConsume_ABusyCommitLeavesNoTransaction(t *testing.T) {
	t.Parallel()
	var wire testkit.Wire
	file := testkit.SQLite{Path: testkit.SQLitePath(t)}
	db := wire.Open(t, file)
	plugintest.Use(t, db, uidplugin.WithWorkerID(1))
	testkit.Must(t, db.AutoMigrate(&ticket{}, &effect{}))
	testkit.Must(t, follow.Enable(t.Context(), db, &ticket{}, follow.WithSlack(20*time.Millisecond)))
	issue(t, db, 3)
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
	checkEffects(t, db, "mails")
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
				if s := follow.Stats(db); len(s) > 0 && len(s[0].Consumers) > 0 && s[0].Consumers[0].LastError != nil {
					break
				}
				time.Sleep(5 * time.Millisecond)
			}
			db.Model(&ticket{}).Where("id = 2").Update("seat", "1B")
		}()
		return follow.Consume(ctx, db, "mails", func(tx *gorm.DB, row *fragile) error { return write("mails")(tx, (*ticket)(row)) })
	})
	checkEffects(t, db, "mails")
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
	checkEffects(t, db, "mails")
}

// A server that does not answer keeps no consumer from ending.
func TestConsume_EndsWhileAFetchWaitsForTheServer(t *testing.T) {
	t.Parallel()
	var wire testkit.Wire
	db := wire.Open(t, testkit.SQLite{Path: testkit.SQLitePath(t)})
	plugintest.Use(t, db, uidplugin.WithWorkerID(1))
	testkit.Must(t, db.AutoMigrate(&ticket{}, &effect{}))
	testkit.Must(t, follow.Enable(t.Context(), db, &ticket{}, follow.WithSlack(20*time.Millisecond)))
	issue(t, db, 1)
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
	case <-time.After(30 * time.Second):
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
		err := operator.Exec("UPDATE UID_CURSOR SET LAST_ID = ?, HOLDER = ?, HOLDER_UNTIL = ?", last, holder, until.UnixMilli()).Error
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
			for ctx.Err() == nil { // until the first process stands by
				if c := follow.Stats(db)[0].Consumers; len(c) > 0 && int64(c[0].Last) == back-1 {
					break
				}
				time.Sleep(5 * time.Millisecond)
			}
			set(ids[2], "", time.Now())
			if err := db.Create(&ticket{Seat: "1A"}).Error; err != nil {
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
	checkEffects(t, db, "mails")
}

// COMMIT does not return, as on a network drive. The consumer still logs that, and ends with its context.
func TestConsume_EndsWhileACommitDoesNotReturn(t *testing.T) {
	t.Parallel()
	var wire testkit.Wire
	db := wire.Open(t, testkit.SQLite{Path: testkit.SQLitePath(t)})
	plugintest.Use(t, db, uidplugin.WithWorkerID(1))
	testkit.Must(t, db.AutoMigrate(&ticket{}, &effect{}))
	testkit.Must(t, follow.Enable(t.Context(), db, &ticket{}, follow.WithSlack(20*time.Millisecond)))
	issue(t, db, 1)
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
	case <-time.After(30 * time.Second):
		t.Error("the consumer does not end")
	}
}

// A server that does not answer BEGIN makes no consumer stand still without an error.
func TestConsume_AFetchThatGetsNoAnswerFails(t *testing.T) {
	t.Parallel()
	var wire testkit.Wire
	db := wire.Open(t, testkit.SQLite{Path: testkit.SQLitePath(t)})
	plugintest.Use(t, db, uidplugin.WithWorkerID(1))
	testkit.Must(t, db.AutoMigrate(&ticket{}, &effect{}))
	testkit.Must(t, follow.Enable(t.Context(), db, &ticket{}, follow.WithSlack(20*time.Millisecond)))
	issue(t, db, 1)
	var holds atomic.Bool
	answers := make(chan struct{})
	wire.Set(func(c *testkit.Crossing) error {
		if c.SQL == "BEGIN" && holds.Load() {
			select {
			case <-c.Context.Done():
				return c.Context.Err()
			case <-answers:
			}
		}
		err := c.Run()
		if c.Is("UPDATE UID_CURSOR") && !c.Inside { // the consumer holds the cursor; the next transaction fetches
			holds.Store(true)
		}
		return err
	})
	until(t, db, 1, func(ctx context.Context) error {
		go func() {
			defer close(answers)
			for begin := time.Now(); time.Since(begin) < 40*time.Second; time.Sleep(5 * time.Millisecond) {
				c := follow.Stats(db)[0].Consumers
				if len(c) > 0 && strings.Contains(fmt.Sprint(c[0].LastError), "BEGIN: no answer within 10s: ") { // not the mark's
					return
				}
			}
			t.Error("the consumer has no error")
		}()
		return follow.Consume(ctx, db, "mails", write("mails"))
	})
	checkEffects(t, db, "mails")
}

package follow_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
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
	prepare(t, db, n)
	return db
}

// prepare creates the tables, and n tickets, which are followed.
func prepare(t *testing.T, db *gorm.DB, n int) {
	t.Helper()
	testkit.Must(t, db.AutoMigrate(&ticket{}, &effect{}))
	testkit.Must(t, follow.Enable(t.Context(), db, &ticket{}, follow.WithSlack(20*time.Millisecond)))
	issue(t, db, n)
}

// wired returns a handle of a file with n followed tickets. Its statements cross the wire.
func wired(t *testing.T, wire *testkit.Wire, n int, options ...uidplugin.Option) (*gorm.DB, testkit.SQLite) {
	t.Helper()
	file := testkit.SQLite{Path: testkit.SQLitePath(t)}
	db := wire.Open(t, file)
	plugintest.Use(t, db, append(options, uidplugin.WithWorkerID(1))...)
	prepare(t, db, n)
	return db, file
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

// ids returns the ids of the tickets.
func ids(t *testing.T, db *gorm.DB) (list []int64) {
	t.Helper()
	testkit.Must(t, db.Model(&ticket{}).Order("id").Pluck("id", &list).Error)
	return list
}

// checkEffects compares the effects of the consumer mails with the tickets in its database.
func checkEffects(t *testing.T, db *gorm.DB) {
	t.Helper()
	checkEffectsOf(t, db, ids(t, db))
}

// checkEffectsOf compares the effects of the consumer mails with the ids of tickets.
func checkEffectsOf(t *testing.T, db *gorm.DB, want []int64) {
	t.Helper()
	var got []int64
	testkit.Must(t, db.Model(&effect{}).Where("consumer = ?", "mails").Order("n").Pluck("ticket", &got).Error)
	if !slices.Equal(got, want) {
		t.Fatalf("the effects are of %v, not %v", got, want)
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
			checkEffects(t, db)
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
			checkEffects(t, db)
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

// Programs that close the pool seldom end the context, too. Formerly the consumer then tried again, and logged errors,
// until the process ended.
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
	if err := follow.Consume(t.Context(), other, "mails", write("")); !errors.Is(err, follow.ErrNotEnabled) || other.Migrator().HasTable("UID_CURSOR") {
		t.Errorf("a table that is not enabled: %v; it got a cursor: %t", err, other.Migrator().HasTable("UID_CURSOR"))
	}
}

// Another follower of the process has found the table before it was enabled, and looks again only after a second.
func TestConsume_BeginsRightAfterEnableNextToAnotherFollower(t *testing.T) {
	t.Parallel()
	db := testkit.SQLite{}.Open(t)
	plugintest.Use(t, db, uidplugin.WithWorkerID(1))
	testkit.Must(t, db.AutoMigrate(&ticket{}, &effect{}))
	ctx, cancel := context.WithCancel(t.Context())
	failed, ended := make(chan error, 10), make(chan bool)
	go func() {
		defer close(ended)
		for _, err := range follow.Rows[ticket](ctx, db, 0) {
			if err != nil && ctx.Err() == nil {
				failed <- err
			}
		}
	}()
	testkit.IsError(t, <-failed, follow.ErrNotEnabled)
	prepare(t, db, 1)
	until(t, db, 1, func(ctx context.Context) error { return follow.Consume(ctx, db, "mails", write("mails")) })
	cancel()
	<-ended
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

// Enable publishes no mark. Formerly, a new consumer began at the published mark, so at the oldest row while another
// process was the closer.
func TestConsume_FromNowPassesOldRowsOverWhileAnotherProcessAdvancesTheMark(t *testing.T) {
	t.Parallel()
	testkit.SkipIfShort(t, "it takes two seconds")
	db := tickets(t, nil, 3)
	time.Sleep(1100 * time.Millisecond) // longer than the slack; ids with WithWorkerID begin a second ahead of the clock
	testkit.Must(t, db.Exec("UPDATE UID_FOLLOW SET CLOSER = 'another', CLOSER_UNTIL = ?", time.Now().Add(2*time.Second).UnixMilli()).Error)
	until(t, db, 1, func(ctx context.Context) error {
		go func() {
			for plugintest.Count(t, db, "UID_CURSOR") == 0 && ctx.Err() == nil {
				time.Sleep(5 * time.Millisecond)
			}
			_ = issueLate(db) // until fails without it
		}()
		return follow.Consume(ctx, db, "mails", write("mails"), follow.FromNow())
	})
	var got []int64
	testkit.Must(t, db.Raw("SELECT ticket - (SELECT MAX(id) FROM tickets) FROM effects").Scan(&got).Error)
	if !slices.Equal(got, []int64{0}) {
		t.Errorf("ids of handled rows, from that of the last row: %v", got)
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

// SPACE has the name of the database of the rows. A database in memory has none. MySQL has names of up to 64 characters,
// of three bytes each, which must not lose their ends: databases whose names begin alike would share a cursor. Only the
// name of a file can be longer than 128 characters. It is cut off between two of them, because servers refuse a part.
func TestConsume_IntoNamesTheDatabaseOfTheRows(t *testing.T) {
	t.Parallel()
	named, end := strings.Repeat("\u5e93", 64), strings.Repeat("\u00e9", 28)
	long := strings.Repeat("a", 100) + end
	for want, path := range map[string]string{
		"main": ":memory:", "shop.db": filepath.Join(t.TempDir(), "shop.db"),
		named: filepath.Join(t.TempDir(), named), long: filepath.Join(t.TempDir(), long+end),
	} {
		db, into := testkit.SQLite{Path: path, Pool: 1}.Open(t), testkit.SQLite{}.Open(t)
		plugintest.Use(t, db, uidplugin.WithWorkerID(1))
		prepare(t, db, 1)
		testkit.Must(t, into.AutoMigrate(&effect{}))
		until(t, into, 1, func(ctx context.Context) error {
			return follow.Consume(ctx, db, "mails", write("mails"), follow.Into(into))
		})
		var space string
		testkit.Must(t, into.Table("UID_CURSOR").Select("SPACE").Row().Scan(&space))
		if space != want {
			t.Errorf("the database %s is named %q, not %q", path, space, want)
		}
	}
}

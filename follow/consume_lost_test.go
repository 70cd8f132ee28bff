package follow_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/follow"
	"github.com/uidplugin/uidplugin/generator"
	engine "github.com/uidplugin/uidplugin/internal/follow"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// awaitEffects waits until there are n effects.
func awaitEffects(ctx context.Context, db *gorm.DB, n int64) {
	for found := int64(0); found < n && ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
		_ = db.Model(&effect{}).Count(&found).Error
	}
}

// issueLate issues a ticket, once more if it comes too late on a busy machine.
func issueLate(db *gorm.DB) error {
	err := follow.ErrTooLate
	for errors.Is(err, follow.ErrTooLate) {
		err = db.Create(&ticket{Seat: "1A"}).Error
	}
	return err
}

// reset sets the cursor of the only consumer, as an operator does.
func reset(ctx context.Context, db *gorm.DB, to int64) error {
	conn, err := sqldb.Open(db, time.Minute)
	if err != nil {
		return err
	}
	list, err := engine.ListConsumers(ctx, conn)
	if err == nil && len(list) != 1 {
		err = fmt.Errorf("%d consumers", len(list))
	}
	if err != nil {
		return err
	}
	return engine.ResetConsumer(ctx, conn, list[0].ConsumerKey, to)
}

// lose makes the database of three tickets, which a consumer has handled, lose its latest commits while no process of
// the consumer works. Then another follower publishes a higher mark, and a ticket comes. It returns both databases.
func lose(t *testing.T) (db, into *gorm.DB) {
	t.Helper()
	db, into = tickets(t, nil, 3), testkit.SQLite{}.Open(t)
	testkit.Must(t, into.AutoMigrate(&effect{}))
	until(t, into, 3, func(ctx context.Context) error {
		return follow.Consume(ctx, db, "mails", write("mails"), follow.Into(into))
	})
	before := ids(t, db)
	testkit.Must(t, db.Exec("UPDATE UID_FOLLOW SET PUBLISHED = ?, RECENT = ''", before[1]).Error)
	if settled, err := follow.Settled(t.Context(), db, &ticket{}); err != nil || int64(settled) <= before[2] {
		t.Fatalf("the mark is %d: %v", settled, err)
	}
	testkit.Must(t, issueLate(db))
	return db, into
}

// The database of the events loses commits, and the statement that sets the cursor back fails some times, of which the
// log has one line. The mark has passed the cursor when the consumer tries again, so only the mark that the process has
// seen tells that rows could be missed.
func TestConsume_GoesBackAlsoIfThatFailsAtFirst(t *testing.T) {
	t.Parallel()
	var log testkit.Log
	db := testkit.SQLite{}.Open(t)
	plugintest.Use(t, db, uidplugin.WithWorkerID(1), uidplugin.WithLogger(log.Logger()))
	prepare(t, db, 3)
	var wire testkit.Wire
	into := wire.Open(t, testkit.SQLite{})
	testkit.Must(t, into.AutoMigrate(&effect{}))
	back := ids(t, db)[1] // the mark with which the database has recovered: the last two rows come again
	var failed atomic.Int64
	until(t, into, 5, func(ctx context.Context) error {
		go func() {
			awaitEffects(ctx, into, 3)
			wire.Set(func(c *testkit.Crossing) error {
				if c.Is("UPDATE UID_CURSOR") && len(c.Args) > 0 && c.Args[0].Value == back-1 && failed.Add(1) <= 3 {
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
	if failed.Load() <= 3 {
		t.Error("no statement was lost")
	}
	log.SaysOnce(t, "what=\"move the cursor\"")
	log.SaysOnce(t, "after=\"move the cursor\"")
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
	before := ids(t, db)
	back := before[1]
	set := func(last int64, holder string, until time.Time) {
		err := operator.Exec("UPDATE UID_CURSOR SET LAST_ID = ?, MARK = ?, HOLDER = ?, HOLDER_UNTIL = ?", last, back, holder, until.UnixMilli()).Error
		if err != nil {
			t.Error(err)
		}
	}
	until(t, operator, 4, func(ctx context.Context) error {
		go func() {
			awaitEffects(ctx, operator, 3)
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
			set(before[2], "", time.Now())
			if err := issueLate(db); err != nil {
				t.Error(err)
			}
		}()
		return follow.Consume(ctx, db, "mails", write("mails"), follow.Into(into), follow.WithRewind())
	})
	checkEffectsOf(t, operator, ids(t, db))
}

// The process that worked has ended together with the database, as when both were on one machine. The next one does not
// know the mark that was lost, but the cursor has it.
func TestConsume_ANewProcessGoesBackAfterLostCommits(t *testing.T) {
	t.Parallel()
	db, into := lose(t)
	for range 3 { // the error stays until somebody acts
		ctx, cancel := context.WithCancel(t.Context())
		err := follow.Consume(ctx, db, "mails", func(tx *gorm.DB, row *ticket) error {
			cancel() // it goes on as if nothing had happened
			return write("mails")(tx, row)
		}, follow.Into(into))
		cancel()
		if err == nil || !strings.Contains(err.Error(), "has lost commits") {
			t.Fatal(err)
		}
		// Meanwhile others follow the table, and UID_FOLLOW no longer has marks of the time of the loss.
		testkit.Must(t, db.Exec("UPDATE UID_FOLLOW SET RECENT = ''").Error)
	}
	all := ids(t, db)
	for range 2 { // once only
		until(t, into, 6, func(ctx context.Context) error {
			return follow.Consume(ctx, db, "mails", write("mails"), follow.Into(into), follow.WithRewind())
		})
	}
	checkEffectsOf(t, into, append(all[:3:3], all[1:]...))
}

// Somebody has set MARK by hand to a number that no mark can be. No commits were lost. The consumer goes on, and stores
// the mark with which it reads rows.
func TestConsume_AnOddMarkIsReplaced(t *testing.T) {
	t.Parallel()
	for _, mark := range []int64{math.MinInt64, -math.MaxInt64, math.MaxInt64} {
		db, into := tickets(t, nil, 1), testkit.SQLite{}.Open(t)
		testkit.Must(t, into.AutoMigrate(&effect{}))
		until(t, into, 1, func(ctx context.Context) error {
			return follow.Consume(ctx, db, "mails", write("mails"), follow.Into(into))
		})
		testkit.Must(t, into.Exec("UPDATE UID_CURSOR SET MARK = ?", mark).Error)
		issue(t, db, 1)
		until(t, into, 2, func(ctx context.Context) error {
			return follow.Consume(ctx, db, "mails", write("mails"), follow.Into(into))
		})
		checkEffectsOf(t, into, ids(t, db))
		var last, got int64
		testkit.Must(t, into.Table("UID_CURSOR").Select("LAST_ID", "MARK").Row().Scan(&last, &got))
		if got <= last || got == math.MaxInt64 {
			t.Errorf("MARK was %d, and is %d with the cursor %d", mark, got, last)
		}
	}
}

// An operator decides which rows come again.
func TestConsume_DoesNotGoBackBehindAnOperator(t *testing.T) {
	t.Parallel()
	db, into := lose(t)
	testkit.Must(t, reset(t.Context(), into, ids(t, db)[2]))
	until(t, into, 4, func(ctx context.Context) error {
		return follow.Consume(ctx, db, "mails", write("mails"), follow.Into(into), follow.WithRewind())
	})
	checkEffectsOf(t, into, ids(t, db))
}

// An operator sets the cursor forward while the process cannot set it back.
func TestConsume_AnOperatorEndsGoingBack(t *testing.T) {
	t.Parallel()
	db := tickets(t, nil, 3)
	var wire testkit.Wire
	file := testkit.SQLite{Path: testkit.SQLitePath(t)}
	into, operator := wire.Open(t, file), file.Open(t)
	testkit.Must(t, into.AutoMigrate(&effect{}))
	before := ids(t, db)
	back := before[1]
	until(t, operator, 4, func(ctx context.Context) error {
		go func() {
			awaitEffects(ctx, operator, 3)
			var failed atomic.Bool
			wire.Set(func(c *testkit.Crossing) error {
				if !c.Is("UPDATE UID_CURSOR") || len(c.Args) == 0 || c.Args[0].Value != back-1 || failed.Swap(true) {
					return c.Run()
				}
				if err := reset(context.Background(), operator, before[2]+1); err != nil {
					t.Error(err)
				}
				return testkit.ErrLost
			})
			if err := db.Exec("UPDATE UID_FOLLOW SET PUBLISHED = ?", back).Error; err != nil {
				t.Error(err)
			}
			for !failed.Load() && ctx.Err() == nil {
				time.Sleep(5 * time.Millisecond)
			}
			if err := issueLate(db); err != nil {
				t.Error(err)
			}
		}()
		return follow.Consume(ctx, db, "mails", write("mails"), follow.Into(into), follow.WithRewind())
	})
	checkEffectsOf(t, operator, ids(t, db))
}

// With Into, too, a cursor may be above the mark because of the slack: an operator has set it to now, or a new consumer
// begins after an id that was just made. No commits were lost.
func TestConsume_IntoACursorOfNowWaitsForTheMark(t *testing.T) {
	t.Parallel()
	for _, begins := range []bool{false, true} {
		db, into := tickets(t, nil, 1), testkit.SQLite{}.Open(t)
		testkit.Must(t, into.AutoMigrate(&effect{}))
		options := []follow.ConsumeOption{follow.Into(into)}
		want, later := ids(t, db), []int64(nil)
		now, err := engine.MarkAt(generator.DefaultLayout(), time.Now().Add(time.Second))
		testkit.Must(t, err)
		if begins {
			want, options = nil, append(options, follow.From(uidplugin.ID(now)))
		} else {
			until(t, into, 1, func(ctx context.Context) error {
				return follow.Consume(ctx, db, "mails", write("mails"), options...)
			})
			testkit.Must(t, reset(t.Context(), into, now))
		}
		until(t, into, int64(len(want)+1), func(ctx context.Context) error {
			go func() {
				for row := (ticket{}); int64(row.ID) <= now && ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
					if row = (ticket{Seat: "1A"}); db.Create(&row).Error != nil {
						row.ID = 0 // too late, on a busy machine
					}
				}
			}()
			return follow.Consume(ctx, db, "mails", write("mails"), options...)
		})
		testkit.Must(t, db.Model(&ticket{}).Where("id > ?", now).Pluck("id", &later).Error)
		checkEffectsOf(t, into, append(want, later...))
	}
}

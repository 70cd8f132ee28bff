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
	"github.com/uidplugin/uidplugin/generator"
	engine "github.com/uidplugin/uidplugin/internal/follow"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// lose makes the database of three tickets, which a consumer has handled, lose its latest commits while no process of
// the consumer works. Then another follower publishes a higher mark, and a ticket comes. It returns both databases.
func lose(t *testing.T) (db, into *gorm.DB) {
	t.Helper()
	db, into = tickets(t, nil, 3), testkit.SQLite{}.Open(t)
	testkit.Must(t, into.AutoMigrate(&effect{}))
	until(t, into, 3, func(ctx context.Context) error {
		return follow.Consume(ctx, db, "mails", write("mails"), follow.Into(into))
	})
	var ids []int64
	testkit.Must(t, db.Model(&ticket{}).Order("id").Pluck("id", &ids).Error)
	testkit.Must(t, db.Exec("UPDATE UID_FOLLOW SET PUBLISHED = ?, RECENT = ''", ids[1]).Error)
	if settled, err := follow.Settled(t.Context(), db, &ticket{}); err != nil || int64(settled) <= ids[2] {
		t.Fatalf("the mark is %d: %v", settled, err)
	}
	err := follow.ErrTooLate // on a busy machine
	for errors.Is(err, follow.ErrTooLate) {
		err = db.Create(&ticket{Seat: "1A"}).Error
	}
	testkit.Must(t, err)
	return db, into
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
	var want, got []int64
	testkit.Must(t, db.Model(&ticket{}).Order("id").Pluck("id", &want).Error)
	for range 2 { // once only
		until(t, into, 6, func(ctx context.Context) error {
			return follow.Consume(ctx, db, "mails", write("mails"), follow.Into(into), follow.WithRewind())
		})
	}
	testkit.Must(t, into.Model(&effect{}).Order("n").Pluck("ticket", &got).Error)
	if want = append(want[:3:3], want[1:]...); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the effects are of %v, not %v", got, want)
	}
}

// An operator decides which rows come again.
func TestConsume_DoesNotGoBackBehindAnOperator(t *testing.T) {
	t.Parallel()
	db, into := lose(t)
	var ids, got []int64
	testkit.Must(t, db.Model(&ticket{}).Order("id").Pluck("id", &ids).Error)
	conn, err := sqldb.Open(into, time.Minute)
	testkit.Must(t, err)
	list, err := engine.ListConsumers(t.Context(), conn)
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	testkit.Must(t, engine.ResetConsumer(t.Context(), conn, list[0].ConsumerKey, ids[2]))
	until(t, into, 4, func(ctx context.Context) error {
		return follow.Consume(ctx, db, "mails", write("mails"), follow.Into(into), follow.WithRewind())
	})
	testkit.Must(t, into.Model(&effect{}).Order("n").Pluck("ticket", &got).Error)
	if fmt.Sprint(got) != fmt.Sprint(ids) {
		t.Errorf("the effects are of %v, not %v", got, ids)
	}
}

// An operator sets the cursor forward while the process cannot set it back.
func TestConsume_AnOperatorEndsGoingBack(t *testing.T) {
	t.Parallel()
	db := tickets(t, nil, 3)
	var wire testkit.Wire
	file := testkit.SQLite{Path: testkit.SQLitePath(t)}
	into, operator := wire.Open(t, file), file.Open(t)
	testkit.Must(t, into.AutoMigrate(&effect{}))
	conn, err := sqldb.Open(operator, time.Minute)
	testkit.Must(t, err)
	var ids, got []int64
	testkit.Must(t, db.Model(&ticket{}).Order("id").Pluck("id", &ids).Error)
	back, reset := ids[1], ids[2]+1
	until(t, operator, 4, func(ctx context.Context) error {
		go func() {
			for n := int64(0); n < 3 && ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
				_ = operator.Model(&effect{}).Count(&n).Error
			}
			var failed atomic.Bool
			wire.Set(func(c *testkit.Crossing) error {
				if !c.Is("UPDATE UID_CURSOR") || len(c.Args) == 0 || c.Args[0].Value != back-1 || failed.Swap(true) {
					return c.Run()
				}
				list, err := engine.ListConsumers(context.Background(), conn)
				if err == nil {
					err = engine.ResetConsumer(context.Background(), conn, list[0].ConsumerKey, reset)
				}
				if err != nil {
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
	testkit.Must(t, db.Model(&ticket{}).Order("id").Pluck("id", &ids).Error)
	testkit.Must(t, operator.Model(&effect{}).Order("n").Pluck("ticket", &got).Error)
	if fmt.Sprint(got) != fmt.Sprint(ids) {
		t.Errorf("the effects are of %v, not %v", got, ids)
	}
}

// With Into, too, a cursor may be above the mark because of the slack: an operator has set it to now, or a new consumer
// begins after an id that was just made. No commits were lost.
func TestConsume_IntoACursorOfNowWaitsForTheMark(t *testing.T) {
	t.Parallel()
	for _, begins := range []bool{false, true} {
		db, into := tickets(t, nil, 1), testkit.SQLite{}.Open(t)
		testkit.Must(t, into.AutoMigrate(&effect{}))
		options := []follow.ConsumeOption{follow.Into(into)}
		var want, got, later []int64
		testkit.Must(t, db.Model(&ticket{}).Pluck("id", &want).Error)
		now, err := engine.MarkAt(generator.DefaultLayout(), time.Now().Add(time.Second))
		testkit.Must(t, err)
		if begins {
			want, options = nil, append(options, follow.From(uidplugin.ID(now)))
		} else {
			until(t, into, 1, func(ctx context.Context) error {
				return follow.Consume(ctx, db, "mails", write("mails"), options...)
			})
			conn, err := sqldb.Open(into, time.Minute)
			testkit.Must(t, err)
			list, err := engine.ListConsumers(t.Context(), conn)
			if err != nil || len(list) != 1 {
				t.Fatal(list, err)
			}
			testkit.Must(t, engine.ResetConsumer(t.Context(), conn, list[0].ConsumerKey, now))
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
		testkit.Must(t, into.Model(&effect{}).Order("n").Pluck("ticket", &got).Error)
		if want = append(want, later...); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("the effects are of %v, not %v", got, want)
		}
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

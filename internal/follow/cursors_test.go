package follow_test

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/internal/follow"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// A table that was enabled by an earlier version has no UID_CURSOR in its schema.
func TestEnable_AddsTheTableOfCursors(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		e := enable(t, d)
		for range 2 {
			insert := e.db.Exec(e.quoted("INSERT INTO UID_CURSOR (CONSUMER, SPACE, TABLE_NAME, LAST_ID) VALUES ('mails', '', 'events', 1)"))
			testkit.Must(t, insert.Error)
			testkit.Must(t, e.db.Exec(e.quoted("DROP TABLE UID_CURSOR")).Error)
			testkit.Must(t, follow.Enable(t.Context(), e.conn, e.table))
		}
		testkit.Must(t, follow.Disable(t.Context(), e.conn, e.table))
		if !e.db.Migrator().HasTable(follow.CursorTable) {
			t.Error("Disable has dropped the cursors")
		}
	})
}

// put inserts a cursor as a consumer leaves it while a row fails.
func put(t *testing.T, e followed, k follow.ConsumerKey, last int64) {
	t.Helper()
	testkit.Must(t, e.db.Exec(e.quoted("INSERT INTO UID_CURSOR (CONSUMER, SPACE, TABLE_NAME, LAST_ID, ATTEMPTS, RETRY_AT, STUCK_ID, STUCK_SINCE, ERROR)"+
		" VALUES (?, ?, ?, ?, 3, 5, 6, 7, 'no route')"), k.Consumer, k.Space, k.Table, last).Error)
}

// cursorsOf lists the cursors as texts.
func cursorsOf(t *testing.T, e followed) (list []string) {
	t.Helper()
	all, err := follow.ListConsumers(t.Context(), e.conn)
	testkit.Must(t, err)
	for _, c := range all {
		list = append(list, fmt.Sprintf("%s: %d, paused %t, waiting %d from %d, attempts %d, stuck at %d since %d, retry at %d, error %q, unread %v",
			c.ConsumerKey, c.Last, c.Paused, c.Waiting, c.Oldest, c.Attempts, c.StuckID, c.StuckSince.UnixMilli(), c.RetryAt.UnixMilli(), c.Error, c.Unread))
	}
	return list
}

func wantCursors(t *testing.T, e followed, want ...string) {
	t.Helper()
	for i, text := range want {
		want[i] = strings.NewReplacer("STUCK", `attempts 3, stuck at 6 since 7, retry at 5, error "no route"`,
			"FRESH", fmt.Sprintf(`attempts 0, stuck at 0 since %d, retry at %[1]d, error ""`, time.Time{}.UnixMilli())).Replace(text)
	}
	if got := cursorsOf(t, e); !slices.Equal(got, want) {
		t.Errorf("the cursors are\n%s\ninstead of\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Formerly one time that JSON cannot have made the output of all consumers, and of all followed tables, fail.
func TestListConsumers_AnyTimeFitsIntoJSON(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		e := enable(t, d)
		put(t, e, follow.ConsumerKey{Consumer: "mails", Table: "events"}, 1)
		for _, ms := range []int64{math.MaxInt64, math.MinInt64, 0} {
			testkit.Must(t, e.db.Exec(e.quoted("UPDATE UID_CURSOR SET HOLDER_UNTIL = ?, RETRY_AT = ?, STUCK_SINCE = ?"), ms, ms, ms).Error)
			testkit.Must(t, e.db.Exec(e.quoted("UPDATE UID_FOLLOW SET CLOSER_UNTIL = ?"), ms).Error)
			list, err := follow.ListConsumers(t.Context(), e.conn)
			testkit.Must(t, err)
			if _, err := json.Marshal(list); err != nil {
				t.Errorf("consumers with the time %d: %v", ms, err)
			}
			if _, err := json.Marshal(e.status(t)); err != nil {
				t.Errorf("a followed table with the time %d: %v", ms, err)
			}
		}
	})
}

func TestConsumers_AreListedAndChangedByTheirKey(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		e, ctx := enable(t, d), t.Context()
		mails := follow.ConsumerKey{Consumer: "mails", Table: "events"}
		for _, k := range []follow.ConsumerKey{mails, {Consumer: "Mails", Table: "events"}, {Consumer: "mails", Space: "shop", Table: "events"}} {
			put(t, e, k, 1)
		}
		first := e.id(t, 0)
		testkit.Must(t, e.db.Create([]event{{ID: first}, {ID: first + 1}}).Error)
		others := []string{
			fmt.Sprintf("Mails of events: 1, paused false, waiting 2 from %d, STUCK, unread <nil>", first),
			"mails of shop.events: 1, paused false, waiting -1 from 0, STUCK, unread its table is in another database",
		}
		changed := func(err error, want ...string) {
			t.Helper()
			testkit.Must(t, err)
			wantCursors(t, e, slices.Concat(others[:1], want, others[1:])...)
		}
		changed(follow.PauseConsumer(ctx, e.conn, mails, true), fmt.Sprintf("mails of events: 1, paused true, waiting 2 from %d, STUCK, unread <nil>", first))
		for range 2 { // MySQL does not count a row whose values stay
			changed(follow.ResetConsumer(ctx, e.conn, mails, first), fmt.Sprintf("mails of events: %d, paused true, waiting 1 from %d, FRESH, unread <nil>", first, first+1))
		}
		changed(follow.PauseConsumer(ctx, e.conn, mails, false), fmt.Sprintf("mails of events: %d, paused false, waiting 1 from %d, FRESH, unread <nil>", first, first+1))
		changed(follow.RemoveConsumer(ctx, e.conn, mails))
		for _, err := range []error{
			follow.ResetConsumer(ctx, e.conn, mails, 1), follow.PauseConsumer(ctx, e.conn, mails, true), follow.RemoveConsumer(ctx, e.conn, mails),
		} {
			testkit.IsError(t, err, follow.ErrNoConsumer, "the consumer mails of events: there is no such consumer")
		}
		testkit.Must(t, e.db.Exec(e.quoted("DROP TABLE UID_CURSOR")).Error)
		testkit.IsError(t, follow.RemoveConsumer(ctx, e.conn, mails), follow.ErrNoConsumer)
		wantCursors(t, e)
	})
}

// A consumer of a table that was renamed goes on from its row. If one has already begun under the new name of the
// table, its cursor stays.
func TestConsumers_GoOnWithARenamedTable(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		e, ctx := enable(t, d), t.Context()
		for i, k := range []follow.ConsumerKey{
			{Consumer: "bills", Table: "events"}, {Consumer: "bills", Table: "news"}, {Consumer: "bills", Space: "shop", Table: "events"},
			{Consumer: "mails", Table: "events"}, {Consumer: "mails", Table: "events2"},
		} {
			put(t, e, k, int64(i))
		}
		testkit.Must(t, e.db.Exec(e.quoted("UPDATE UID_CURSOR SET CONDITIONS = 'with the name'")).Error)
		n, left, err := follow.RenameConsumers(ctx, e.conn, "events", "news")
		testkit.Must(t, err)
		if n != 1 || len(left) != 1 || left[0].String() != "bills of events" {
			t.Errorf("%d were renamed, and %v left", n, left)
		}
		var unknown int64 // another hash would be logged as a change of the conditions
		if testkit.Must(t, e.db.Raw(e.quoted("SELECT COUNT(*) FROM UID_CURSOR WHERE CONDITIONS = ''")).Scan(&unknown).Error); unknown != n {
			t.Errorf("%d cursors without conditions", unknown)
		}
		for i, c := range cursorsOf(t, e) {
			if want := []string{"bills of events: 0,", "bills of news: 1,", "bills of shop.events: 2,", "mails of events2: 4,", "mails of news: 3,"}[i]; !strings.HasPrefix(c, want) {
				t.Errorf("%s instead of %s", c, want)
			}
		}
		if n, left, err = follow.RenameConsumers(ctx, e.conn, "events", "other.news"); err != nil || n != 0 || len(left) != 1 {
			t.Errorf("to another schema: %d, %v, %v", n, left, err)
		}
		testkit.Must(t, e.db.Exec(e.quoted("DROP TABLE UID_CURSOR")).Error)
		if n, left, err = follow.RenameConsumers(ctx, e.conn, "events", "news"); err != nil || n != 0 || len(left) != 0 {
			t.Errorf("without the table: %d, %v, %v", n, left, err)
		}
	})
}

// A reset waits for the row in hand, and the consumer then finds another cursor than the one that it left.
func TestResetConsumer_IsNotUndoneByTheRowInHand(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		e, mails := enable(t, d), follow.ConsumerKey{Consumer: "mails", Table: "events"}
		put(t, e, mails, 1)
		move := func(tx *gorm.DB, from, to int64) int64 {
			moved := tx.Exec(e.quoted("UPDATE UID_CURSOR SET LAST_ID = ? WHERE CONSUMER = 'mails' AND LAST_ID = ?"), to, from)
			testkit.Must(t, moved.Error)
			return moved.RowsAffected
		}
		reset := make(chan error, 1)
		testkit.Must(t, e.db.Transaction(func(tx *gorm.DB) error {
			if n := move(tx, 1, 5); n != 1 {
				t.Errorf("%d rows", n)
			}
			go func() { reset <- follow.ResetConsumer(t.Context(), e.conn, mails, 3) }()
			select {
			case err := <-reset:
				t.Errorf("it did not wait: %v", err)
			case <-time.After(200 * time.Millisecond):
			}
			return nil
		}))
		testkit.Must(t, <-reset)
		if n := move(e.db, 5, 6); n != 0 {
			t.Error("the consumer went on from where it was")
		}
		wantCursors(t, e, "mails of events: 3, paused false, waiting 0 from 0, FRESH, unread <nil>")
	})
}

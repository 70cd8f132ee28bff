// wing: follow

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	public "github.com/uidplugin/uidplugin/follow"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/admin"
	"github.com/uidplugin/uidplugin/internal/follow"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// consumersOf returns the output of "uid follow consumers --json".
func consumersOf(t *testing.T, r runner, code int) (list []admin.Consumer) {
	t.Helper()
	got := r.run("follow", "consumers", "--json").want(t, code)
	for decoder := json.NewDecoder(strings.NewReader(got.out)); decoder.More(); {
		var c admin.Consumer
		must(t, decoder.Decode(&c))
		list = append(list, c)
	}
	return list
}

func TestConsumers_AreListedResetPausedAndRemoved(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		ids := shop(t, db, "web-1", "first", "second")
		r := runner{t: t, dsn: dsn(d)}
		r.run("follow", "consumers", "list").want(t, exitOK, "CONSUMER  TABLE")
		r.run("follow", "consumers", "lists").want(t, exitFailed, "lists")
		r.run("follow", "consumers", "reset", "mails", "--to", "now", "--yes").want(t, exitFailed, "mails: there is no such consumer", "uid follow consumers")
		followThen(0, insertCursor+` ('mails', '', 'orders', 0, '', 0, 0, ''), ('bills', '', 'orders', 0, 'web-1', 7, 1767225600000, 'no route'), `+
			`('bills', 'shop', 'invoices', 5, '', 0, 0, '')`, `UPDATE "UID_CURSOR" SET "HOLDER_UNTIL" = 4102444800000 WHERE "HOLDER" <> ''`, `UPDATE "UID_FOLLOW" SET "SLACK" = 20`)(t, db)
		r.run("follow", "consumers").want(t, exitWrong, "\nbills     orders", "  web-1   stuck at 7 since 2026-01-01 00:00:00.000: no route\n",
			"\nbills     shop.invoices  5 ", "  -       -       stopped\n", "\nmails     orders         0        -    ", "\n"+admin.CodeConsumerStuck+"  ")

		exec(`UPDATE "UID_CURSOR" SET "RETRY_AT" = 4102444799000 WHERE "HOLDER" <> ''`)(t, db)
		r.run("follow", "consumers").want(t, exitWrong, "00:00:00.000: no route; tried again at 23:59:59\n")
		exec(`UPDATE "UID_CURSOR" SET "HOLDER_UNTIL" = 0`)(t, db)
		r.run("follow", "consumers").want(t, exitWrong, "  stopped, stuck at 7 since ", "start a process that runs the consumer")
		exec(`UPDATE "UID_CURSOR" SET "HOLDER_UNTIL" = 4102444800000 WHERE "HOLDER" <> ''`)(t, db)

		mails := func(code int) admin.Consumer { return consumersOf(t, r, code)[2] }
		if c := mails(exitWrong); c.Name != "mails" || c.State != admin.ConsumerStopped || c.Rows != 2 || c.Behind > 60_000 || c.LastID != 0 {
			t.Errorf("%+v", c)
		}
		first := ids[0].String()
		r.run("follow", "consumers", "reset", "mails", "--to", first).want(t, exitFailed, "cannot ask for confirmation", "pass --yes to set the cursor")
		r.run("follow", "consumers", "reset", "mails", "--to", first, "--dry-run").want(t, exitOK, "the cursor of mails of orders: to be set to "+first+" from 0; rows that are passed over: 1")
		r.run("follow", "consumers", "reset", "mails", "--to", first, "--yes").want(t, exitOK, "the cursor of mails of orders: set to "+first+" from 0; rows that are passed over: 1")
		r.run("follow", "consumers", "reset", "mails", "--to", "beginning", "--dry-run").want(t, exitOK, "to be set to 0 from "+first+"; rows that come again: 1")
		if c := mails(exitWrong); c.Rows != 1 || c.LastID != ids[0] || c.LastTime.IsZero() {
			t.Errorf("after the reset: %+v", c)
		}
		day, err := follow.MarkAt(generator.DefaultLayout(), time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC))
		must(t, err)
		r.run("follow", "consumers", "reset", "mails", "--to", "2026-05-01", "--yes", "--json").want(t, exitOK,
			fmt.Sprintf(`{"consumer":"mails","table":"orders","from":"%s","to":"%d","rows":1,"done":true}`, first, day-1))
		for to, want := range map[string]string{
			"-1": "must not be negative", "9223372036854775807": "would pass over all rows until then", "soon": `"soon" is neither`,
			"2090-01-01": "is in the future",
		} {
			r.run("follow", "consumers", "reset", "mails", "--yes", "--to="+to).want(t, exitFailed, want)
		}
		r.run("follow", "consumers", "reset", "bills", "--to", "now", "--yes").want(t, exitFailed, "several tables", "orders, shop.invoices")
		r.run("follow", "consumers", "reset", "bills", "--to", "now", "--yes", "--table", "orders").want(t, exitOK)
		for _, c := range consumersOf(t, r, exitOK) {
			if c.Name == "bills" && c.Table == "orders" && (c.State != admin.ConsumerRunning || c.Rows != 0 || c.Behind != 0 || c.StuckID != 0 || c.Error != "") {
				t.Errorf("after the reset to now: %+v", c)
			}
		}
		r.run("follow", "consumers", "pause", "mails").want(t, exitOK, "paused")
		must(t, db.Exec(`INSERT INTO orders (id, text) VALUES (?, 'old')`, day+1).Error)
		r.run("follow", "consumers", "reset", "mails", "--to", "2026-05-01", "--yes").want(t, exitOK)
		resumed := r.run("follow", "consumers", "resume", "mails").want(t, exitOK, "resumed; a running process takes it", "if none runs, start one")
		if strings.Contains(resumed.out, "remove") {
			t.Errorf("after resume, removal is advised: %s", resumed.out)
		}
		r.run("follow", "consumers").want(t, exitWrong, "no process runs the consumer mails")
		r.run("follow", "consumers", "reset", "mails", "--to", "now", "--yes").want(t, exitOK)
		r.run("follow", "consumers", "remove", "bills", "--table", "shop.invoices").want(t, exitFailed, "pass --yes to remove the cursor")
		r.run("follow", "consumers", "remove", "bills", "--table", "shop.invoices", "--yes").want(t, exitOK, "the cursor of bills of shop.invoices: removed at 5")
		r.run("follow", "consumers", "remove", "mail").want(t, exitFailed, "mail: there is no such consumer")
		if list := consumersOf(t, r, exitOK); len(list) != 2 || list[0].Table != "orders" {
			t.Errorf("after the removal: %+v", list)
		}
	})
}

// A transaction may insert a row now whose id it made before, and the table accepts the row within the slack.
func TestConsumers_ResetToNowPassesNoRowOverThatIsBeingInserted(t *testing.T) {
	t.Parallel()
	eachShop(t, func(t *testing.T, _ *testkit.Database, db *gorm.DB, r runner) {
		ago := func(d time.Duration) int64 {
			id, err := follow.MarkAt(generator.DefaultLayout(), time.Now().Add(-d))
			must(t, err)
			return id
		}
		followThen(0, insertCursor+` ('mails', '', 'orders', 0, '', 0, 0, ''), ('bills', 'shop', 'invoices', 5, '', 0, 0, '')`,
			`UPDATE "UID_FOLLOW" SET "SLACK" = 3600000`)(t, db)
		made, old := ago(30*time.Minute), ago(61*time.Minute)
		r.run("follow", "consumers", "reset", "mails", "--to", "now", "--yes").want(t, exitOK)
		exec(fmt.Sprintf("INSERT INTO orders (id, text) VALUES (%d, 'made'), (%d, 'old')", made, old))(t, db)
		if c := consumersOf(t, r, exitWrong)[1]; int64(c.LastID) < old || int64(c.LastID) >= made || c.Rows != 2 {
			t.Errorf("%+v, and the ids of the new rows are %d and %d", c, made, old)
		}
		exec(`UPDATE "UID_FOLLOW" SET "SLACK" = 9223372036854775807`)(t, db)
		for _, name := range []string{"mails", "bills"} {
			r.run("follow", "consumers", "reset", name, "--to", "now", "--yes").want(t, exitFailed, "is not known", "pass an age")
		}
	})
}

// The database of follow.Into has no id space, so times do not name ids there.
func TestFollowDisable_NamesConsumersThatHaveRowsToHandle(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		ids := shop(t, db, "web-1", "first", "second")
		r := runner{t: t, dsn: dsn(d)}
		followThen(0, insertCursor+` ('mails', '', 'orders', 0, '', 0, 0, ''), ('bills', '', 'orders', `+ids[1].String()+`, '', 0, 0, '')`)(t, db)
		got := r.run("follow", "disable", "orders").want(t, exitOK, "the consumer mails has not handled: 2. ")
		if strings.Contains(got.out, "bills") {
			t.Error(got.out)
		}
	})
}

func TestConsumers_NeedNoIDSpace(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		f, table := follow.Flavor(d.Name), follow.Table{Name: follow.CursorTable}
		db := d.Open(t, nil)
		must(t, db.Exec(f.CreateCursors(table)).Error)
		exec(insertCursor+` ('mails', 'shop', 'orders', 5, '', 0, 0, '')`)(t, db)
		r := runner{t: t, dsn: dsn(d)}
		r.run("follow", "consumers").want(t, exitOK, "\nmails     shop.orders  5 ", "warning: no process has begun an id space")
		r.run("follow", "consumers", "reset", "mails", "--to", "now", "--yes").want(t, exitFailed, "the layout of the ids is not known")
		r.run("follow", "consumers", "reset", "mails", "--to", "7", "--yes").want(t, exitOK)
		if list := consumersOf(t, r, exitOK); list[0].LastID != 7 || list[0].Rows != -1 {
			t.Errorf("%+v", list)
		}
	})
}

// The error of a consumer with follow.Into has SPACE and TABLE_NAME, but not the name that --database gives to the
// database of the cursor.
func TestConsumers_AreFoundByTheTableInTheirErrors(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		s := newShards(t, testkit.Engine{Name: "sqlite"}.New(t), d, "shard-1")
		f, db := follow.Flavor(d.Name), d.Open(t, nil)
		must(t, db.Exec(f.CreateCursors(follow.Table{Name: follow.CursorTable})).Error)
		exec(insertCursor+` ('mails', 'shop.a', 'orders', 5, '', 0, 0, ''), ('mails', 'shop.b', 'orders', 6, '', 0, 0, '')`)(t, db)
		r := runner{t: t, dsn: dsn(s.registry)}
		remove := []string{"follow", "consumers", "remove", "mails", "--yes", "--database", "shard-1=" + dsn(d), "--table"}
		r.run(append(remove, "orders")...).want(t, exitFailed, "shard-1.shop.a.orders, shard-1.shop.b.orders")
		r.run(append(remove, "shop.a.orders")...).want(t, exitOK, "removed at 5")
		r.run(append(remove, "shard-1.shop.b.orders")...).want(t, exitOK, "removed at 6")
	})
}

func TestConsumers_ARunningOneObeys(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		ids := shop(t, d.Open(t, nil), "web-1", "first", "second")
		r, db := runner{t: t, dsn: dsn(d)}, d.Open(t, nil)
		plugintest.Use(t, db, uidplugin.WithModels(&order{}), uidplugin.WithHost(workernode.Host{Name: "web-7", Port: "8080"}))
		must(t, public.Enable(t.Context(), db, &order{}, public.WithSlack(20*time.Millisecond)))
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		handled, ended := make(chan uidplugin.ID, 100), make(chan error, 1)
		go func() {
			ended <- public.Consume(ctx, db, "mails", func(_ *gorm.DB, o *order) error { handled <- o.ID; return nil })
		}()
		next := func(want ...uidplugin.ID) {
			t.Helper()
			for _, id := range want {
				select {
				case got := <-handled:
					if got != id {
						t.Errorf("%d was handled instead of %d", got, id)
					}
				case err := <-ended:
					t.Fatalf("before %d: %v", id, err)
				}
			}
		}
		next(ids...)
		testkit.Eventually(t, "the commands show where the process runs", time.Minute, func() bool {
			return strings.Contains(r.run("follow", "consumers").out, "  web-7/8080  running") &&
				strings.Contains(r.run("follow", "status").out, "  web-7/8080  until ")
		})
		r.run("follow", "consumers", "pause", "mails").want(t, exitOK, "paused")
		o := order{Text: "third"}
		err := db.Create(&o).Error
		for errors.Is(err, public.ErrTooLate) { // on a busy machine
			err = db.Create(&o).Error
		}
		must(t, err)
		r.run("follow", "consumers", "reset", "mails", "--to", ids[0].String(), "--yes").want(t, exitOK)
		select {
		case id := <-handled:
			t.Errorf("%d was handled during the pause", id)
		case <-time.After(300 * time.Millisecond):
		}
		r.run("follow", "consumers", "resume", "mails").want(t, exitOK)
		next(ids[1], o.ID)
		r.run("follow", "consumers", "remove", "mails", "--yes").want(t, exitOK)
		if err := <-ended; !errors.Is(err, public.ErrRemoved) {
			t.Errorf("after the removal: %v", err)
		}
	})
}

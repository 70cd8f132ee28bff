package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/admin"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// status counts the same states as "uid slots", and a finding changes the exit code.
func TestStatus_CountsSlotsAndWorkerIDs(t *testing.T) {
	t.Parallel()
	eachShop(t, func(t *testing.T, d *testkit.Database, db *gorm.DB, r runner) {
		now := generator.DefaultLayout().TickAt(time.Now())
		for i, s := range []struct {
			reusable, ahead int64
			holder          string
		}{{1, 60_000, "live"}, {1, -3_600_000, "expired"}, {1, -1e9, "expired"}, {1, -2e9, "expired"}, {0, -1e9, ""}, {0, -1e9, "ended"}} {
			exec(fmt.Sprintf(slotRow+`) VALUES (%d, 'l', %d, %d, 1, '%s', %d, 'shop', 'h', 'p')`,
				10+i, s.reusable, now+s.ahead, s.holder, min(now, now+s.ahead)))(t, db)
		}
		r.run("status").want(t, exitOK, "1 of 261119 given out", "7, 1 live, 3 expired, 1 free, 2 retired",
			"no problem with the clock")
		r.run("status", "--json").want(t, exitOK, `"slots":{"expired":3,"free":1,"live":1,"retired":2},"databases":[],"findings":[]`)
		for state, n := range map[string]int{"live": 1, "expired": 3, "free": 1, "retired": 2, "idle": 0} {
			if got := r.run("slots", "--json", "--state", state).want(t, exitOK); strings.Count(got.out, "\n") != n {
				t.Errorf("%s: %s", state, got.out)
			}
		}
		exec(`DELETE FROM "WORKER_SLOT" WHERE "HOLDER" = 'live'`)(t, db) // now all that are held stand still
		r.run("status").want(t, exitWrong, "6, 3 expired, 1 free, 2 retired", "\n"+admin.CodeNoSlotLive+"  processes hold 3 slots")
		exec(`DELETE FROM "WORKER_SLOT" WHERE "HOLDER" = 'expired'`)(t, db)
		exec(`UPDATE "WORKER_REGISTRY" SET "NEXT_ID" = 262141`)(t, db)
		r.run("status").want(t, exitWrong, "used up by 20", "\n"+admin.CodeWorkerIDs+"  261116 of 261119")
		r.run("status", "--json").want(t, exitWrong, `"findings":[{"code":"worker-ids"`)
	})
}

func TestStatus_NamesOtherDatabases(t *testing.T) {
	t.Parallel()
	sqlite := testkit.Engine{Name: "sqlite"}
	s := newShards(t, sqlite.New(t), sqlite.New(t), "shard-1")
	runner{t: t, dsn: dsn(s.registry)}.run("status").want(t, exitOK, "this one, shard-1")
}

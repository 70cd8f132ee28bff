package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/admin"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// The doctor finds registries that give out the same numbers, and has nothing to say about regions that do not meet.
func TestDoctor_ComparesRegions(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		begin := func(n, of int) (*gorm.DB, runner) {
			other := d.New(t)
			db := other.Open(t, nil)
			regional(t, db, n, of, "first")
			return db, runner{t: t, dsn: dsn(other)}
		}
		compare := func(a, b runner) result {
			return a.doctor("--region", b.dsn)
		}
		_, a := begin(0, 2)
		_, b := begin(1, 2)
		fdb, f := begin(3, 4)
		_, whole := begin(0, 1)
		compare(a, b).want(t, exitOK, "12 checks, 0 findings, 0 not done")
		compare(a, f).want(t, exitOK)
		a.doctor("--region", b.dsn, "--region", f.dsn).want(t, exitOK)
		for _, tt := range []struct {
			a, b runner
			says string
		}{
			{b, f, "(region 3 of 4, id space "}, {f, b, "(region 1 of 2, id space "}, {a, whole, "(region 0 of 1, id space "},
			{whole, f, "(region 3 of 4, id space "},
		} {
			compare(tt.a, tt.b).want(t, exitWrong,
				admin.CodeRegionShared, tt.says, "give out the same numbers", "uid region split")
		}
		same := compare(a, a)
		same.want(t, exitWrong, admin.CodeRegionShared, "the same database, a replica or a clone", "1 finding,")
		exec(`UPDATE "WORKER_REGISTRY" SET "LAYOUT" = '1-41-10-12/1ms@1514764800'`)(t, fdb)
		compare(a, f).want(t, exitWrong,
			admin.CodeRegionShared, "1-41-10-12/1ms@1514764800", "1-41-18-4/1ms@1514764800", "Use one layout")
		a.run("doctor", "--region", "sqlite:nosuch.db").want(t, exitFailed, "--region: ", "nosuch.db")
		exec(`DELETE FROM "WORKER_REGISTRY"`)(t, fdb)
		compare(a, f).want(t, exitFailed, "--region: ", "no row")
	})
}

// A region that does not begin with the printed statements gets numbers that the divided registry had given out.
func TestDoctor_FindsARegionThatBeganTooLow(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		first := d.Open(t, nil)
		for range 5 { // each with a worker id and a slot, because the one before is reserved for some time
			shop(t, d.Open(t, nil), "web-1", "first")
			exec(`UPDATE "WORKER_SLOT" SET "REUSABLE" = 0`)(t, first)
		}
		r := runner{t: t, dsn: dsn(d)}
		list := regions(t, r.run("region", "split", "2", "--yes", "--json"))
		other := d.New(t)
		odb := other.Open(t, nil)
		regional(t, odb, 1, 2, "elsewhere") // gets worker id 1025 and slot 1
		o := runner{t: t, dsn: dsn(other)}
		o.doctor().want(t, exitOK)
		fix := ""
		for _, both := range [][2]runner{{r, o}, {o, r}} {
			got := both[0].doctor("--region", both[1].dsn)
			got.want(t, exitWrong, "has 2 worker ids up to 1029 and 2 slots up to 5, which ",
				" will give out again: NEXT_ID is 1027 and NEXT_SLOT is 3", "1 worker id (the first is 1025) belong", "2 findings")
			_, fix, _ = strings.Cut(got.out, "Run in ")
		}
		_, fix, _ = strings.Cut(fix, ": ")
		fix, _, _ = strings.Cut(fix, ";")
		must(t, odb.Exec(fix).Error)
		r.doctor("--region", o.dsn).want(t, exitWrong, "1 worker id (the first is 1025) belong", "1 finding,")
		got := regions(t, o.run("region", "--json"))
		if got[0].NextID != 1031 || got[0].NextSlot != 7 || list[1].NextID != 1031 {
			t.Errorf("%+v", got)
		}
	})
}

// Replicated rows of another region may be old, or come before rows that they refer to. Formerly the doctor took that
// region's processes for dead.
func TestDoctor_IsNotMisledByReplicatedRows(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		regional(t, db, 0, 2, "first")
		tick := generator.DefaultLayout().TickAt(time.Now())
		for slot, age := range []int64{0, 3_600_000, 30 * 24 * 3_600_000} {
			exec(fmt.Sprintf(slotRow+`, "REGION")
				VALUES (%d, '1-41-18-4/1ms@1514764800', 1, %d, 1, 'far', %d, 'far', 'h', 'p', 1)`,
				2*slot+1, tick-age+9000, tick-age),
				fmt.Sprintf(nodeRow+`, "SLOT", "LAYOUT", "TABLE_NAME", "START_TICK")
				VALUES (%d, 'h', 'p', 1, '2026-01-01', %d, '1-41-18-4/1ms@1514764800', 'orders', %d)`,
					2*slot+1501, 2*slot+1, tick))(t, db)
		}
		r := runner{t: t, dsn: dsn(d)}
		r.doctor().want(t, exitOK)
		r.run("status").want(t, exitOK,
			"region      0 of 2", "1 of 130559 given out, 0.1 a day", "slots       4, 1 free, 3 remote")
		r.run("slots").want(t, exitOK, "SLOT  REGION  STATE ", "\n2     0       free ", "\n1     1       remote ")
		for state, n := range map[string]int{"live": 0, "expired": 0, "overdue": 0, "free": 1, "remote": 3} {
			if got := r.run("slots", "--json", "--state", state).want(t, exitOK); strings.Count(got.out, "\n") != n {
				t.Errorf("%s: %s", state, got.out)
			}
		}
		nodes, err := workernode.Open(db, time.Minute)
		must(t, err)
		slots, err := nodes.Slots(t.Context(), generator.DefaultLayout(), 0, 10)
		must(t, err)
		for _, s := range slots {
			if s.Remote != (s.ID%2 == 1) || s.Region != s.ID%2 || s.Remote != (s.State(time.Now()) == "remote") {
				t.Errorf("%+v", s)
			}
		}
		// A slot above NEXT_SLOT with a number of this region was given out by another registry, whatever its column
		// REGION says.
		for _, region := range []int{0, 1} {
			exec(fmt.Sprintf(slotRow+`, "REGION")
				VALUES (40, 'l', 1, %[1]d, 1, '', %[1]d, 'far', 'h', 'p', %[2]d)`, tick, region))(t, db)
			got := r.doctor()
			got.want(t, exitWrong, admin.CodeRegionShared, "have 1 slot up to 40", "(NEXT_SLOT is 4):", "1 finding,")
			exec(`DELETE FROM "WORKER_SLOT" WHERE "ID" = 40`)(t, db)
		}
		exec(`UPDATE "WORKER_REGISTRY" SET "NEXT_ID" = 200002`)(t, db)
		r.run("status").want(t, exitWrong, admin.CodeWorkerIDs, "99488 of 130559 worker ids of region 0 of 2 were given out")
		exec(`UPDATE "WORKER_REGISTRY" SET "NEXT_ID" = 262143`)(t, db) // of region 1
		r.run("status").want(t, exitWrong, "all 130559 worker ids of region 0 of 2 were given out")
	})
}

// If a process gets a slot between two statements of the doctor, the doctor must not take it for another registry's.
func TestDoctor_ReadsTheCountersAfterTheRows(t *testing.T) {
	t.Parallel()
	d := testkit.Engine{Name: "sqlite"}.New(t)
	db := d.Open(t, nil)
	shop(t, db, "web-1")
	of, err := admin.Connect(db, time.Minute, time.Now)
	must(t, err)
	must(t, of.ReadRegistry(t.Context()))
	shop(t, d.Open(t, nil), "web-1", "first")
	if r := of.Examine(t.Context()); len(r.Findings)+len(r.Undone) > 0 {
		t.Errorf("%+v", r)
	}
}

package integration_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/migrations"
	"github.com/uidplugin/uidplugin/workernode"
)

// The clock is set while a process is down, ahead or back, so that time comes twice. No
// id does, ids bear the time of the clock, and a row that was held in the future is left
// alone until then. With a worker id that somebody has set, which has no row that would
// remember, the same clocks make ids twice.
func TestClockSetOverARestart(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		steps := []time.Duration{-time.Hour, -30 * time.Second, 30 * time.Second, 365 * 24 * time.Hour}
		if d.name != "mariadb" { // to save time
			steps = steps[1:3]
		}
		for _, step := range steps {
			for _, control := range []bool{false, true} {
				d := fresh(t, d.engine)
				c := newMovedClock(0)
				c.base = c.base.Truncate(time.Second)
				var ids counted
				var workers []int64
				for _, off := range []time.Duration{0, step.Abs(), min(step+step.Abs(), 0), step.Abs(), 0} { // there and back again
					c.moved.Store(int64(off))
					option := uidplugin.WithSpares(0)
					if control {
						option = uidplugin.WithWorkerID(1)
					}
					p := use(t, open(t, d), uidplugin.WithModels(&T1{}), uidplugin.WithClock(c.now), option)
					for range 500 {
						id, err := nextID(p)
						must(t, err)
						ids.add(id)
						parts, err := p.Decode(id)
						must(t, err)
						if ahead := parts.Time.Sub(c.now()); ahead < -time.Second || ahead > 21*time.Second && d.name != "sqlite" {
							t.Fatalf("%v: an id that is %v ahead", step, ahead)
						}
						if parts.Sequence == 0 {
							workers = append(workers, parts.WorkerID)
						}
					}
					must(t, p.Close(t.Context()))
				}
				switch {
				case control && ids.twice == 0:
					t.Errorf("%v: no id came twice with a worker id that was set, so this shows nothing", step)
				case !control && ids.twice > 0:
					t.Errorf("%v: %d ids came twice", step, ids.twice)
				}
				if control {
					continue
				}
				poisoned := 0
				for _, row := range rows(t, open(t, d)) {
					if row.Fence > small(13).TickAt(c.now().Add(time.Hour-time.Second)) {
						poisoned++
					}
				}
				if d.name == "mariadb" {
					t.Logf("%v: worker ids %v, %d rows are held an hour ahead or more", step, workers, poisoned)
				}
				if poisoned > 0 && step.Abs() < time.Hour || poisoned == 0 && step > time.Hour {
					t.Errorf("%v: %d rows are held an hour ahead or more", step, poisoned)
				}
			}
		}
	})
}

// When the database goes away, exactly the ids of the ticks that were granted can be
// made; then there is an error at once that has the database's in it. When it is back,
// there are ids again. With the database there, they do not end.
func TestAwayUntilUsedUp(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		for _, away := range []bool{true, false} {
			db, v := valved(t, fresh(t, d.engine))
			c := newMovedClock(0)
			p := use(t, db, uidplugin.WithLayout(small(4)), uidplugin.WithModels(&T1{}), uidplugin.WithClock(c.now), uidplugin.WithSpares(0))
			row := rows(t, db)[0]
			want := int(row.Fence-row.Start) * 16
			if away {
				v.shut.Store(true)
			}
			c.move(10 * time.Second) // as far as the first tick, and fences could move on
			if d.name == "sqlite" {
				want -= 10 * 16 // leases begin with the present, and it has passed
			}
			got := 0
			var err error
			for ; err == nil && got < want+100; got++ {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				_, err = p.NextID(ctx, &T1{})
				cancel()
			}
			if !away {
				if err != nil {
					t.Errorf("the control: with the database there, after %d of %d ids: %v", got-1, want, err)
				}
				continue
			}
			got--
			says(t, err, generator.ErrLeaseExpired, "t1")
			says(t, err, errValve)
			// Of the present tick a part has passed.
			if got > want || got <= want-16 {
				t.Errorf("%d ids, and %d were granted: (%d, %d]", got, want, row.Start, row.Fence)
			}
			fastest := time.Hour
			for range 20 {
				begin := time.Now()
				_, err := nextID(p)
				fastest = min(fastest, time.Since(begin))
				if err == nil {
					t.Fatal("an id though all were used up")
				}
			}
			if fastest > time.Millisecond {
				t.Errorf("an error takes %v", fastest)
			}
			v.shut.Store(false)
			c.move(time.Minute)
			begin := time.Now()
			eventually(t, 5*time.Second, "id after the return", func() bool { _, err := nextID(p); return err == nil })
			if took := time.Since(begin); took > 2*time.Second {
				t.Errorf("the first id came %v after the return", took)
			}
		}
	})
}

// A backup of ten minutes ago is restored under processes that run. In the guarded mode
// no id comes twice, and no id leads to a table that it is not of, though a worker id
// whose row was lost is given out again, for another table. In the durable mode, which
// promises itself that this does not happen, ids come twice; unless FLOOR_SECOND and
// NEXT_ID are set before anybody starts, as docs/running.md says.
func TestRestoredBackup(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		for _, test := range []struct {
			name    string
			durable bool
			floor   bool
			twice   bool
		}{
			{"guarded", false, false, false},
			{"durable", true, false, true},
			{"durable, with FLOOR_SECOND", true, true, false},
		} {
			db := open(t, fresh(t, d.engine))
			c := newMovedClock(0)
			c.base = c.base.Truncate(time.Second)
			config := func(l *workernode.LeasedConfig) { l.Durable = test.durable }
			var ids counted
			of := map[int64]string{}
			add := func(table string, got []int64) {
				if len(got) == 0 {
					t.Errorf("%s: no ids of %s", test.name, table)
				}
				ids.add(got...)
				of[got[0]], of[got[len(got)-1]] = table, table
			}
			start := func(table string) (*workernode.Leased, *generator.Cached) {
				k := lessor(t, db, c, config)
				g := tenant(t, k, c, table)
				add(table, drain(t, g))
				return k, g
			}
			running, g := start("t1")
			for _, table := range []string{"NODE", "REGISTRY"} {
				execute(t, db, `CREATE TABLE "COPY_`+table+`" AS SELECT * FROM "WORKER_`+table+`"`)
			}
			c.move(10 * time.Minute)
			running.Need()
			eventually(t, 5*time.Second, "renewal", func() bool { return g.Usage().Left > 0 })
			add("t1", drain(t, g))
			late, h := start("t3")

			if test.floor {
				must(t, errors.Join(running.Close(t.Context()), late.Close(t.Context())))
			}
			for _, table := range []string{"NODE", "REGISTRY"} {
				execute(t, db, `DROP TABLE "WORKER_`+table+`"`)
			}
			running.Need() // which finds nothing
			c.move(12 * time.Second)
			tables, err := workernode.Open(db, time.Minute)
			must(t, err)
			must(t, migrations.Up(t.Context(), tables))
			for _, table := range []string{"NODE", "REGISTRY"} {
				execute(t, db, `INSERT INTO "WORKER_`+table+`" SELECT * FROM "COPY_`+table+`"`)
			}
			if test.floor {
				execute(t, db, `UPDATE "WORKER_REGISTRY" SET "FLOOR_SECOND" = ?, "NEXT_ID" = "NEXT_ID" + 100`, small(4).TickAt(c.now())+3600)
			}
			start("t4") // it gets the worker id whose row was lost
			start("t1")
			for table, k := range map[string]*workernode.Leased{"t1": running, "t3": late} {
				g := map[string]*generator.Cached{"t1": g, "t3": h}[table]
				if !test.floor {
					k.Need()
					eventually(t, 5*time.Second, "lease after the restore", func() bool { return g.Usage().Left > 0 })
					add(table, drain(t, g))
				}
			}
			if (ids.twice > 0) != test.twice {
				t.Errorf("%s: %d of %d ids came twice", test.name, ids.twice, len(ids.seen))
			}
			if test.twice {
				continue
			}
			p := use(t, db, uidplugin.WithLayout(small(4)), uidplugin.WithClock(c.now), uidplugin.WithSpares(0))
			unknown := 0
			for id, table := range of {
				where, err := p.Locate(t.Context(), id)
				switch {
				case errors.Is(err, uidplugin.ErrUnknownID):
					unknown++
				case err != nil && !errors.Is(err, uidplugin.ErrFutureID) || err == nil && where.Table != table:
					t.Errorf("%s: Locate of an id of %s: %+v, %v", test.name, table, where, err)
				}
			}
			if unknown == 0 || unknown == len(of) {
				t.Errorf("%s: of %d ids %d are not known any more", test.name, len(of), unknown)
			}
		}
	})
}

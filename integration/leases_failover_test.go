package integration_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/migrations"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// lessor returns one start of a process, past the plugin.
func lessor(t *testing.T, db *gorm.DB, c *movedClock, change func(*workernode.LeasedConfig)) *workernode.Leased {
	t.Helper()
	d, err := workernode.Open(db, 10*time.Second)
	must(t, err)
	must(t, migrations.Up(t.Context(), d))
	_, err = d.Join(t.Context(), small(4))
	must(t, err)
	config := workernode.LeasedConfig{Now: c.now, MaxLanes: 1}
	if change != nil {
		change(&config)
	}
	k, err := workernode.NewLeased(d, small(4), workernode.Host{Name: "h", Port: "1", Kind: workernode.Actual}, config)
	must(t, err)
	t.Cleanup(func() { _ = k.Close(context.Background()) })
	return k
}

// tenant returns the generator of a table.
func tenant(t *testing.T, k *workernode.Leased, c *movedClock, table string) *generator.Cached {
	t.Helper()
	leases, err := k.Assign(t.Context(), table)
	must(t, err)
	g, err := generator.NewCached(generator.CachedConfig{Layout: small(4), Lease: leases[0], NoWait: true, Clock: generator.NewClock(c.now)})
	must(t, err)
	k.Keep(leases[0], g)
	return g
}

// drain takes all ids that a generator has.
func drain(t *testing.T, g *generator.Cached) (ids []int64) {
	t.Helper()
	for {
		id, err := g.Next(t.Context())
		if err == nil {
			ids = append(ids, id)
			continue
		}
		if !errors.Is(err, generator.ErrLeaseExpired) {
			t.Fatal(err)
		}
		return ids
	}
}

// A database that has lost its last commits, as a promoted replica has, gives worker
// ids out again. No id comes twice if the margin and the time that the failover took
// are as docs/running.md says, and some do if either is less.
func TestLostCommits(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		for _, test := range []struct {
			name   string
			gap    time.Duration // between the last commit that was lost and the first one afterwards
			margin time.Duration // 0 is the default
			norow  bool          // the row was lost, too
			twice  bool          // ids come twice
		}{
			{name: "enough", gap: 11 * time.Second},
			{name: "enough, no row", gap: 11 * time.Second, norow: true},
			{name: "too fast", gap: 10 * time.Second, twice: true},
			{name: "too fast, no row", gap: 10 * time.Second, norow: true, twice: true},
			{name: "no margin", gap: 11 * time.Second, margin: 1, twice: true},
			{name: "no margin, no row", gap: 11 * time.Second, margin: 1, norow: true, twice: true},
		} {
			t.Run(test.name, func(t *testing.T) {
				for _, noticed := range []bool{false, true} { // by the process that goes on, before another one starts
					if noticed && test.twice {
						continue
					}
					d := fresh(t, d.engine)
					db := open(t, d)
					c := newMovedClock(0)
					c.base = c.base.Truncate(time.Second)
					config := func(l *workernode.LeasedConfig) { l.Margin = test.margin }
					if test.norow {
						lessor(t, db, c, config)
					} else {
						former := lessor(t, db, c, config)
						drain(t, tenant(t, former, c, "t1"))
						must(t, former.Close(t.Context()))
						c.move(time.Minute)
					}
					for _, table := range []string{"NODE", "REGISTRY"} {
						execute(t, db, `CREATE TABLE "COPY_`+table+`" AS SELECT * FROM "WORKER_`+table+`"`)
					}
					seen := map[int64]bool{}
					twice := 0
					add := func(ids []int64) {
						if len(ids) == 0 {
							t.Error("no ids")
						}
						for _, id := range ids {
							if seen[id] {
								twice++
							}
							seen[id] = true
						}
					}
					first := lessor(t, db, c, config)
					g := tenant(t, first, c, "t1")
					add(drain(t, g))
					for _, table := range []string{"NODE", "REGISTRY"} {
						execute(t, db, `DELETE FROM "WORKER_`+table+`"`)
						execute(t, db, `INSERT INTO "WORKER_`+table+`" SELECT * FROM "COPY_`+table+`"`)
					}
					c.move(test.gap)
					if noticed {
						first.Need()
						eventually(t, 5*time.Second, "notice of the loss", func() bool {
							// The row is not its own any more, so it cannot prove that it was.
							s := first.Stats()
							return s.Regressed == 0 && s.Lost == 1
						})
						eventually(t, 5*time.Second, "other lease", func() bool { return g.Usage().Left > 0 })
						add(drain(t, g))
					}
					second := lessor(t, db, c, config)
					add(drain(t, tenant(t, second, c, "t1")))
					if (twice > 0) != test.twice {
						t.Errorf("%d of %d ids came twice (noticed: %t)", twice, len(seen), noticed)
					}
				}
			})
		}
	})
}

// A process finds out that the database has forgotten a renewal, and goes on.
func TestLostRenewal(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		db := open(t, d)
		c := newMovedClock(0)
		k := lessor(t, db, c, nil)
		g := tenant(t, k, c, "t1")
		before := drain(t, g)
		execute(t, db, `CREATE TABLE "COPY_NODE" AS SELECT * FROM "WORKER_NODE"`)
		c.move(5 * time.Second)
		k.Need()
		eventually(t, 5*time.Second, "renewal", func() bool { return k.Stats().Renewed == 1 })
		before = append(before, drain(t, g)...)
		execute(t, db, `DELETE FROM "WORKER_NODE"`)
		execute(t, db, `INSERT INTO "WORKER_NODE" SELECT * FROM "COPY_NODE"`)
		c.move(5 * time.Second)
		k.Need()
		eventually(t, 5*time.Second, "notice of the loss", func() bool { return k.Stats().Regressed == 1 && k.Stats().LastError == nil })
		eventually(t, 5*time.Second, "renewal after the loss", func() bool { return g.Usage().Left > 0 })
		after := drain(t, g)
		if s := k.Stats(); s.Lost != 0 || len(after) == 0 || after[0] <= before[len(before)-1] {
			t.Errorf("%d ids afterwards, %+v", len(after), s)
		}
	})
}

// Whether the driver counts the rows that an UPDATE matches or those that it changes,
// makes no difference.
func TestLeasesWithFoundRows(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		type row struct {
			ID     int64
			Table  string
			Holder bool
			Fence  int64
		}
		run := func(found string) (stats []workernode.LeaseStats, all []row) {
			db := open(t, fresh(t, d.engine), "clientFoundRows="+found)
			c := newMovedClock(0)
			c.base = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
			tables := []string{"a", "b", "c"}
			first := lessor(t, db, c, nil)
			_, err := first.Assign(t.Context(), tables...)
			must(t, err)
			must(t, first.Close(t.Context()))
			c.move(30 * time.Second)

			second := lessor(t, db, c, nil)
			for _, table := range tables {
				drain(t, tenant(t, second, c, table))
			}
			for i := range 3 {
				second.Need() // of no use before the clock moves
				time.Sleep(300 * time.Millisecond)
				c.move(2 * time.Second)
				second.Need()
				eventually(t, 5*time.Second, "renewal with clientFoundRows="+found, func() bool { return second.Stats().Renewed >= int64(3*i+3) })
			}
			c.move(2 * time.Minute)
			third := lessor(t, db, c, nil)
			_, err = third.Assign(t.Context(), tables...)
			must(t, err)
			c.move(time.Second)
			second.Need()
			eventually(t, 5*time.Second, "loss with clientFoundRows="+found, func() bool {
				s := second.Stats()
				return s.Lost == 3 && s.Fresh == 3
			})
			for _, k := range []*workernode.Leased{first, second, third} {
				stats = append(stats, k.Stats())
			}
			for _, r := range rows(t, db) {
				all = append(all, row{r.WorkerID, r.Table, r.Holder != "", r.Fence})
			}
			return stats, all
		}
		changed, rowsChanged := run("false")
		found, rowsFound := run("true")
		for i := range changed {
			if changed[i] != found[i] {
				t.Errorf("process %d: %+v with changed rows, %+v with found ones", i+1, changed[i], found[i])
			}
		}
		if len(rowsChanged) != len(rowsFound) || len(rowsFound) != 6 {
			t.Fatalf("%+v with changed rows, %+v with found ones", rowsChanged, rowsFound)
		}
		for i := range rowsFound {
			if rowsChanged[i] != rowsFound[i] {
				t.Errorf("row %+v with changed rows, %+v with found ones", rowsChanged[i], rowsFound[i])
			}
		}
	}, "mariadb", "mysql")
}

package integration_test

import (
	"context"
	"database/sql"
	"flag"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/workernode"
)

var planStarts = flag.Int("plan.starts", 0, "how many starts TestManyStartsForFewRows has: 500 in the long form")

// What a statement that takes worker ids over compares.
var fenceOfTaken = regexp.MustCompile("[`\"]FENCE[`\"] = (\\?|\\$\\d+) AND [`\"]ID[`\"] IN")

// Many starts want a worker id of one table at once, and a tenth as many are free: these
// are taken over by one start each, the others get new ones, in a few statements. If the
// statement that takes over did not compare fences, several would get the same. The long
// form:
//
//	go test -run TestManyStartsForFewRows -v ./integration/ -plan.starts 500
func TestManyStartsForFewRows(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		n := 60
		switch {
		case d.name == "sqlite":
			n = 20 // one writes at a time
		case *planStarts > 0:
			n = *planStarts
		}
		for _, control := range []bool{false, true} {
			if control && d.name == "sqlite" {
				continue // starts may come one after the other
			}
			d := fresh(t, d.engine)
			db := open(t, d)
			c := newMovedClock(0)
			former := lessor(t, db, c, nil)
			names := slices.Repeat([]string{"t1"}, n/10)
			_, err := former.Assign(t.Context(), names...)
			must(t, err)
			must(t, former.Close(t.Context()))
			c.move(2 * time.Hour)

			pool, err := db.DB()
			must(t, err)
			pool.SetMaxOpenConns(32)
			lessees := make([]*workernode.Leased, n)
			valves := make([]*valve, n)
			for i := range lessees {
				one := *db
				config := *db.Config
				valves[i] = &valve{DB: pool}
				config.ConnPool = valves[i]
				if control {
					m := &meddler{DB: pool}
					f := meddling(func(about, query string, args []any, run func(string, ...any) (sql.Result, error)) (sql.Result, error) {
						if about == "take over" {
							without := `"FENCE" >= 0 * $1 AND "ID" IN`
							if d.isMySQL() {
								without = "`FENCE` >= 0 * $1 AND `ID` IN"
							}
							query = fenceOfTaken.ReplaceAllString(query, without)
						}
						return run(query, args...)
					})
					m.exec.Store(&f)
					config.ConnPool = m
				}
				one.Config = &config
				w, err := workernode.Open(&one, 30*time.Second)
				must(t, err)
				lessees[i], err = workernode.NewLeased(w, small(4), workernode.Host{Name: "h", Port: "1", Kind: workernode.Actual}, workernode.LeasedConfig{Now: c.now})
				must(t, err)
			}
			var mu sync.Mutex
			held := map[generator.Lease]int{}
			var group sync.WaitGroup
			gate := make(chan struct{})
			begin := time.Now()
			for _, k := range lessees {
				group.Go(func() {
					<-gate
					leases, err := k.Assign(context.Background(), "t1")
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					defer mu.Unlock()
					held[generator.Lease{WorkerID: leases[0].WorkerID}]++
				})
			}
			close(gate)
			group.Wait()
			took := time.Since(begin)
			var sent []int64
			var taken, new int64
			for i, k := range lessees {
				s := k.Stats()
				taken, new = taken+s.Taken, new+s.Fresh
				sent = append(sent, valves[i].n.Load())
			}
			group.Go(func() {
				for _, k := range lessees {
					_ = k.Close(context.Background())
				}
			})
			group.Wait()
			same := -len(held)
			for _, starts := range held {
				same += starts
			}
			if control {
				if same == 0 {
					t.Error("without the comparison, no two starts have the same worker id, so this shows nothing")
				}
				continue
			}
			slices.Sort(sent)
			t.Logf("%d starts in %v: %d worker ids new, %d taken over; statements: median %d, 99 of 100 at most %d, the most %d",
				n, took.Round(time.Millisecond), new, taken, sent[n/2], sent[n*99/100], sent[n-1])
			if same > 0 {
				t.Errorf("%d starts have a worker id that another one has", same)
			}
			if taken == 0 || taken > int64(n/10) || taken+new != int64(n) {
				t.Errorf("%d taken over, %d new", taken, new)
			}
		}
	})
}

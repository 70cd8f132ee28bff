package workernode_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/workernode"
)

func TestAssignGivesEachTableItsWorkerID(t *testing.T) {
	t.Parallel()

	db := tables(t)
	a := assigner(t, db, layout)
	leases, err := a.Assign(t.Context(), "orders", "items", "orders")
	must(t, err)
	now := layout.TickAt(noon)
	want := []generator.Lease{{WorkerID: 1, From: now, Until: layout.MaxTick()}, {WorkerID: 2, From: now, Until: layout.MaxTick()}, {WorkerID: 3, From: now, Until: layout.MaxTick()}}
	if !slices.Equal(leases, want) {
		t.Errorf("leases %+v", leases)
	}
	nodes, err := open(t, db).Lookup(t.Context(), 1, 2, 3)
	must(t, err)
	for i, table := range []string{"orders", "items", "orders"} {
		n := nodes[int64(i+1)]
		if age := time.Since(n.LaunchDate); age < -24*time.Hour || age > 48*time.Hour || len(n.Holder) < 16 {
			t.Errorf("%+v", n)
		}
		n.LaunchDate, n.Holder = time.Time{}, ""
		want := workernode.Node{WorkerID: int64(i + 1), Table: table, Layout: layout.String(), Host: "web-1", Port: "8080",
			Kind: workernode.Container, Start: now - 1, Held: now - 1, Fence: layout.MaxTick()}
		if *n != want {
			t.Errorf("%+v, want %+v", *n, want)
		}
	}
	if leases, err = a.Assign(t.Context()); leases != nil || err != nil {
		t.Errorf("of nothing: %v, %v", leases, err)
	}
}

func TestARowSaysWhatItIsNot(t *testing.T) {
	t.Parallel()

	db := tables(t)
	_, err := assigner(t, db, layout).Assign(t.Context(), "orders")
	must(t, err)
	var row struct {
		Reusable          int
		Modified, Created time.Time
	}
	must(t, db.Raw(`SELECT "REUSABLE" AS reusable, "MODIFIED" AS modified, "CREATED" AS created FROM "WORKER_NODE"`).Scan(&row).Error)
	if row.Reusable != 0 || time.Since(row.Created).Abs() > 24*time.Hour || time.Since(row.Modified).Abs() > 24*time.Hour {
		t.Errorf("%+v", row)
	}
}

func TestWorkerIDsAreUniqueAmongManyAssigners(t *testing.T) {
	t.Parallel()

	db := tables(t)
	shared := assigner(t, db, layout)
	var mu sync.Mutex
	seen := map[int64]bool{}
	var group sync.WaitGroup
	for i := range 16 {
		group.Go(func() {
			a := shared
			if i%2 == 0 {
				a = assigner(t, db, layout) // another start
			}
			for n := range 5 {
				leases, err := a.Assign(t.Context(), names(n+1)...)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for _, l := range leases {
					if seen[l.WorkerID] {
						t.Errorf("%d was given out twice", l.WorkerID)
					}
					seen[l.WorkerID] = true
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	if len(seen) != 16*15 {
		t.Errorf("%d worker ids", len(seen))
	}
}

func TestTheLastWorkerIDIsTheLayouts(t *testing.T) {
	t.Parallel()

	db := tables(t)
	a := assigner(t, db, narrow(3))
	leases, err := a.Assign(t.Context(), names(5)...)
	must(t, err)
	if got := workers(leases); !slices.Equal(got, []int64{1, 2, 3, 4, 5}) {
		t.Errorf("worker ids %d", got)
	}
	_, err = a.Assign(t.Context(), names(3)...)
	if !errors.Is(err, workernode.ErrExhausted) {
		t.Fatalf("three of two: %v", err)
	}
	saysAll(t, err.Error(), "3 more", "from 6 on", "3 bits", "1 to 7", "more worker bits")
	// What does not fit takes nothing from what does.
	leases, err = a.Assign(t.Context(), "orders", "items")
	must(t, err)
	if got := workers(leases); !slices.Equal(got, []int64{6, 7}) {
		t.Errorf("worker ids %d", got)
	}
	for range 2 {
		if _, err = a.Assign(t.Context(), "orders"); !errors.Is(err, workernode.ErrExhausted) {
			t.Errorf("one of none: %v", err)
		}
	}
}

// changed is the result of a statement that changed so many rows.
type changed int64

func (changed) LastInsertId() (int64, error)   { return 0, nil }
func (c changed) RowsAffected() (int64, error) { return int64(c), nil }

func TestManyTablesTakeFewStatements(t *testing.T) {
	t.Parallel()

	db, p := meddled(tables(t))
	var sizes []int
	p.exec = func(query string, run func() (sql.Result, error)) (sql.Result, error) {
		if !strings.HasPrefix(query, "INSERT INTO `WORKER_NODE`") {
			return run()
		}
		sizes = append(sizes, strings.Count(query, "(?, ?"))
		return changed(sizes[len(sizes)-1]), nil
	}
	leases, err := assigner(t, db, layout).Assign(t.Context(), names(2*workernode.InsertChunk+1)...)
	must(t, err)
	for i, l := range leases {
		if l.WorkerID != int64(i+1) {
			t.Fatalf("worker id %d at %d", l.WorkerID, i)
		}
	}
	if want := []int{workernode.InsertChunk, workernode.InsertChunk, 1}; !slices.Equal(sizes, want) {
		t.Errorf("statements of %d rows, want %d", sizes, want)
	}
}

func TestTableNamesThatDoNotFitAreRefused(t *testing.T) {
	t.Parallel()

	db := tables(t)
	a := assigner(t, db, layout)
	for _, name := range []string{"", strings.Repeat("t", 129), strings.Repeat("表", 129)} {
		_, err := a.Assign(t.Context(), "orders", name)
		if !errors.Is(err, workernode.ErrTable) {
			t.Fatalf("%q: %v", name, err)
		}
		saysAll(t, err.Error(), "workernode: ", "128 characters")
	}
	if nodes, err := open(t, db).Nodes(t.Context(), 0, 10); len(nodes) != 0 || err != nil {
		t.Errorf("rows %v, %v", nodes, err)
	}
	long := strings.Repeat("表", 128)
	_, err := a.Assign(t.Context(), long)
	must(t, err)
	if nodes, err := open(t, db).Nodes(t.Context(), 0, 10); err != nil || len(nodes) != 1 || nodes[0].Table != long {
		t.Errorf("rows %v, %v", nodes, err)
	}
}

// TestTheFloorIsRespected: an operator sets it after a restore, and no tick up to
// it is stamped.
func TestTheFloorIsRespected(t *testing.T) {
	t.Parallel()

	now := layout.TickAt(noon)
	for _, tt := range []struct{ floor, from int64 }{
		{0, now}, {now - 1, now}, {now, now + 1}, {now + 3600, now + 3601}, {layout.MaxTick() - 1, layout.MaxTick()},
	} {
		db := tables(t)
		_, err := open(t, db).Join(t.Context(), layout)
		must(t, err)
		run(t, db, `UPDATE "WORKER_REGISTRY" SET "FLOOR_SECOND" = ?`, tt.floor)
		leases, err := assigner(t, db, layout).Assign(t.Context(), "orders")
		must(t, err)
		nodes, err := open(t, db).Lookup(t.Context(), 1)
		must(t, err)
		if leases[0].From != tt.from || nodes[1].Start != tt.from-1 {
			t.Errorf("floor %d: from %d, START_SECOND %d", tt.floor, leases[0].From, nodes[1].Start)
		}
	}
}

func TestAFloorAtTheEndOfTheLayoutLeavesNothingToStamp(t *testing.T) {
	t.Parallel()

	db := tables(t)
	_, err := open(t, db).Join(t.Context(), layout)
	must(t, err)
	run(t, db, `UPDATE "WORKER_REGISTRY" SET "FLOOR_SECOND" = ?`, layout.MaxTick())
	leases, err := assigner(t, db, layout).Assign(t.Context(), "orders")
	if err == nil {
		t.Fatalf("leases %+v", leases)
	}
	saysAll(t, err.Error(), "FLOOR_SECOND")
	if nodes, err := open(t, db).Nodes(t.Context(), 0, 10); len(nodes) != 0 || err != nil {
		t.Errorf("rows %v, %v", nodes, err)
	}
}

func TestAClockOutsideTheLayoutGetsNoWorkerID(t *testing.T) {
	t.Parallel()

	for _, now := range []time.Time{layout.Epoch.Add(-1), layout.Expires()} {
		db := tables(t)
		a := workernode.NewDisposable(open(t, db), layout, web1, func() time.Time { return now })
		if _, err := a.Assign(t.Context(), "orders"); !errors.Is(err, generator.ErrLayout) {
			t.Errorf("%v: %v", now, err)
		}
		if nodes, err := open(t, db).Nodes(t.Context(), 0, 10); len(nodes) != 0 || err != nil {
			t.Errorf("rows %v, %v", nodes, err)
		}
	}
	// FLOOR_SECOND is 0 at least, so that tick 0 is stamped by nobody.
	db := tables(t)
	leases, err := workernode.NewDisposable(open(t, db), layout, web1, func() time.Time { return layout.Epoch }).Assign(t.Context(), "orders")
	if err != nil || leases[0].From != 1 {
		t.Errorf("%+v, %v", leases, err)
	}
}

// TestAcknowledgedOrNothing loses the answers of statements that were carried
// out: no worker id of them is ever used.
func TestAcknowledgedOrNothing(t *testing.T) {
	t.Parallel()

	lost := errors.New("the answer was lost")
	for _, statement := range []string{"UPDATE `WORKER_REGISTRY`", "INSERT INTO `WORKER_NODE`"} {
		t.Run(statement, func(t *testing.T) {
			t.Parallel()

			db, p := meddled(tables(t))
			a := assigner(t, db, layout)
			p.exec = func(query string, run func() (sql.Result, error)) (sql.Result, error) {
				result, err := run()
				if err == nil && strings.HasPrefix(query, statement) {
					p.exec = nil
					return nil, lost
				}
				return result, err
			}
			if leases, err := a.Assign(t.Context(), "orders", "items"); !errors.Is(err, lost) {
				t.Fatalf("%v, %v", leases, err)
			}
			leases, err := a.Assign(t.Context(), "orders", "items")
			must(t, err)
			if got := workers(leases); !slices.Equal(got, []int64{3, 4}) {
				t.Errorf("worker ids %d", got)
			}
		})
	}
}

// TestPassingConflictsAreTriedAgain, lasting ones are not.
func TestPassingConflictsAreTriedAgain(t *testing.T) {
	t.Parallel()

	for _, statement := range []string{"UPDATE `WORKER_REGISTRY`", "INSERT INTO `WORKER_NODE`", "INSERT INTO `WORKER_REGISTRY`"} {
		for _, tt := range []struct {
			err   error
			calls int
		}{{code(5), 3}, {code(8), 1}} {
			db, p := meddled(tables(t))
			calls := 0
			p.exec = func(query string, run func() (sql.Result, error)) (sql.Result, error) {
				if strings.HasPrefix(query, statement) {
					if calls++; calls < 3 {
						return nil, tt.err
					}
				}
				return run()
			}
			_, err := assigner(t, db, layout).Assign(t.Context(), "orders")
			if calls != tt.calls || (err == nil) != (tt.calls == 3) || err != nil && !errors.Is(err, tt.err) {
				t.Errorf("%s: %d calls, %v", statement, calls, err)
			}
		}
	}
}

func TestAnInsertThatChangesNothingIsAnError(t *testing.T) {
	t.Parallel()

	db, p := meddled(tables(t))
	p.exec = func(query string, run func() (sql.Result, error)) (sql.Result, error) {
		if strings.HasPrefix(query, "INSERT INTO `WORKER_NODE`") {
			return changed(0), nil
		}
		return run()
	}
	_, err := assigner(t, db, layout).Assign(t.Context(), "orders", "items")
	if err == nil {
		t.Fatal("no error")
	}
	saysAll(t, err.Error(), "workernode: insert worker nodes", "0 new rows", "2")
}

func TestALostRaceIsRunAgainUntilTheContextEnds(t *testing.T) {
	t.Parallel()

	db, p := meddled(tables(t))
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	p.exec = func(query string, run func() (sql.Result, error)) (sql.Result, error) {
		if !strings.HasPrefix(query, "UPDATE `WORKER_REGISTRY`") {
			return run()
		}
		if calls++; calls == 3 {
			cancel()
		}
		return changed(0), nil
	}
	_, err := assigner(t, db, layout).Assign(ctx, "orders")
	if !errors.Is(err, context.Canceled) || calls != 3 {
		t.Fatalf("%d calls, %v", calls, err)
	}
	saysAll(t, err.Error(), "workernode: reserve worker ids", "other processes were always faster")
}

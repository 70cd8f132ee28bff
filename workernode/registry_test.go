package workernode_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/migrations"
	"github.com/uidplugin/uidplugin/workernode"
)

func TestJoinPinsTheLayout(t *testing.T) {
	t.Parallel()

	d := open(t, tables(t))
	want := workernode.Registry{Layout: layout.String(), NextID: 1}
	for range 2 {
		if got, err := d.Join(t.Context(), layout); err != nil || got != want {
			t.Errorf("Join: %+v, %v", got, err)
		}
	}
	for _, other := range []generator.Layout{generator.SnowflakeLayout(), generator.JSSafeLayout(), narrow(21)} {
		_, err := d.Join(t.Context(), other)
		if !errors.Is(err, workernode.ErrLayoutMismatch) {
			t.Fatalf("%v: %v", other, err)
		}
		saysAll(t, err.Error(), layout.String(), other.String(), "two rows could get one id")
		if _, err = workernode.NewDisposable(d, other, web1, atNoon).Assign(t.Context(), "orders"); !errors.Is(err, workernode.ErrLayoutMismatch) {
			t.Errorf("Assign: %v", err)
		}
	}
}

func TestJoinBeginsAboveTheRowsThatThereAre(t *testing.T) {
	t.Parallel()

	db := tables(t)
	foreign(t, db, 41)
	foreign(t, db, 7)
	if got, err := open(t, db).Join(t.Context(), layout); err != nil || got.NextID != 42 {
		t.Errorf("Join: %+v, %v", got, err)
	}
}

// TestOneLayoutWins of those that processes begin an empty registry with at once.
func TestOneLayoutWins(t *testing.T) {
	t.Parallel()

	path := filepath.Join(t.TempDir(), "test.db")
	must(t, migrations.Up(t.Context(), open(t, handle(t, path))))
	layouts := []generator.Layout{layout, generator.SnowflakeLayout(), narrow(20)}
	var won [3]atomic.Int64
	var group sync.WaitGroup
	start := make(chan struct{})
	for i := range 12 {
		d := open(t, handle(t, path))
		group.Go(func() {
			<-start
			switch _, err := d.Join(context.Background(), layouts[i%3]); {
			case err == nil:
				won[i%3].Add(1)
			case !errors.Is(err, workernode.ErrLayoutMismatch):
				t.Error(err)
			}
		})
	}
	close(start)
	group.Wait()
	if a, b, c := won[0].Load(), won[1].Load(), won[2].Load(); a+b+c != 4 || max(a, b, c) != 4 {
		t.Errorf("the layouts were accepted %d, %d and %d times", a, b, c)
	}
}

func TestWithoutTablesJoinSaysWhatItWanted(t *testing.T) {
	t.Parallel()

	d := open(t, handle(t, filepath.Join(t.TempDir(), "test.db")))
	_, err := d.Join(t.Context(), layout)
	if err == nil {
		t.Fatal("joined")
	}
	saysAll(t, err.Error(), "workernode: read the registry", "WORKER_REGISTRY")
	_, err = d.Lookup(t.Context(), 1)
	if err == nil {
		t.Fatal("looked up")
	}
	saysAll(t, err.Error(), "workernode: look up worker ids", "WORKER_NODE")
	if _, err = d.Nodes(t.Context(), 0, 10); err == nil {
		t.Fatal("listed")
	}
	saysAll(t, err.Error(), "workernode: list worker nodes", "WORKER_NODE")
}

// TestARegistryThatCannotBeBegun says so after a bounded number of attempts.
func TestARegistryThatCannotBeBegun(t *testing.T) {
	t.Parallel()

	db, p := meddled(tables(t))
	refused, calls := code(8), 0
	p.exec = func(string, func() (sql.Result, error)) (sql.Result, error) {
		calls++
		return nil, refused
	}
	_, err := open(t, db).Join(t.Context(), layout)
	if !errors.Is(err, refused) || calls != 1 {
		t.Fatalf("%d calls, %v", calls, err)
	}
	saysAll(t, err.Error(), "workernode: begin the registry")

	p.query = func(query string, run func() (*sql.Rows, error)) (*sql.Rows, error) {
		if strings.Contains(query, "MAX(") {
			return nil, refused
		}
		return run()
	}
	_, err = open(t, db).Join(t.Context(), layout)
	if !errors.Is(err, refused) {
		t.Fatal(err)
	}
	saysAll(t, err.Error(), "workernode: begin the registry")
}

package supply_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
)

// The pair has both worker ids from its first create on. The second one once came seconds later, and until
// then the pair could not do what it is for.
func TestPaired_HasBothWorkerIDsFromTheStart(t *testing.T) {
	t.Parallel()

	for name, option := range map[string]uidplugin.Option{
		"plain": nil, "disposable": uidplugin.WithDisposable(),
		"fixed": uidplugin.WithWorkerID(3), "from db.Use": uidplugin.WithModels(&plugintest.Twin{}),
		"one for all": uidplugin.WithOneWorkerID(),
	} {
		db := plugintest.Open(t, option, uidplugin.WithDefaultGenerator("paired"))
		plugintest.Migrate(t, db, &plugintest.Twin{})
		must(t, db.Create(&plugintest.Twin{}).Error)
		ids := uidplugin.From(db).Stats().Tables[0].WorkerIDs
		if len(ids) != 2 || ids[0] == ids[1] {
			t.Errorf("%s: the worker ids are %v", name, ids)
		}
		ledger := testkit.NewLedger(t)
		rows := make([]plugintest.Twin, 5_000) // more than a tick of one worker id has
		must(t, db.CreateInBatches(&rows, 500).Error)
		for _, r := range rows {
			ledger.Add("twins", r.ID)
		}
	}
}

// A listed model has both worker ids before a transaction, which may have the only connection.
func TestPaired_GetsBothWorkerIDsInsideATransaction(t *testing.T) {
	t.Parallel()

	db := plugintest.Open(t, uidplugin.WithModels(&plugintest.Twin{}))
	plugintest.Migrate(t, db, &plugintest.Twin{})
	plugintest.Single(t, db)
	tx := db.Begin()
	r := plugintest.Twin{}
	must(t, tx.Create(&r).Error)
	if ids := uidplugin.From(db).Stats().Tables[0].WorkerIDs; len(ids) != 2 {
		t.Errorf("the worker ids are %v", ids)
	}
	must(t, tx.Commit().Error)
	plugintest.IsOurs(t, db, "twins", r.ID)
}

// Each process reclaims the two worker ids of its predecessor, adds none, and makes no id again.
func TestPaired_ReclaimsBothWorkerIDs(t *testing.T) {
	t.Parallel()

	name, clock, ledger := plugintest.FileOf(t, plugintest.Bare(t)), testkit.NewClock(plugintest.Noon), testkit.NewLedger(t)
	var first []int64
	for i := range 4 {
		db := plugintest.File(t, name, nil)
		p := plugintest.Use(t, db, uidplugin.WithClock(clock.Now))
		must(t, p.AutoMigrate(&plugintest.Twin{}))
		for range 20 {
			for range 50 {
				id, err := p.NextID(t.Context(), &plugintest.Twin{})
				must(t, err)
				ledger.Add("twins", int64(id))
				if i := ledger.Len(); i%20 == 0 {
					plugintest.IsOurs(t, db, "twins", int64(id))
				}
			}
			clock.Add(time.Millisecond)
		}
		ids := p.Stats().Tables[0].WorkerIDs
		if first == nil {
			first = ids
		}
		if !slices.Equal(ids, first) {
			t.Errorf("process %d has the worker ids %v, and the first had %v", i, ids, first)
		}
		testkit.MustClose(t, p)
		clock.Add(time.Hour)
	}
	db := plugintest.File(t, name, nil)
	plugintest.Rows(t, 2, db, "WORKER_NODE", `"TABLE_NAME" = 'twins'`)
}

// With a fixed worker id the pair makes ids with a second one, which Locate once did not know.
func TestPaired_LocateKnowsTheBackupOfAFixedWorkerID(t *testing.T) {
	t.Parallel()

	db := plugintest.Open(t, uidplugin.WithWorkerID(3), uidplugin.WithDefaultGenerator("paired"))
	p, workers := uidplugin.From(db), map[int64]bool{}
	ids := make([]uidplugin.ID, 20_000) // more than a tick of one worker id has, so they are made first
	for i := range ids {
		var err error
		ids[i], err = p.NextID(t.Context(), &plugintest.Twin{})
		must(t, err)
	}
	for _, id := range ids {
		l, err := p.Locate(t.Context(), id)
		must(t, err)
		workers[l.WorkerID] = true
	}
	if len(workers) != 2 || !workers[3] || !workers[p.Layout().BackupWorker(3)] {
		t.Errorf("the worker ids are %v", workers)
	}
}

// The 53-bit layout has 31 worker ids, of which each process needs two: 15 processes, or 16 with numbers of their own.
func TestPaired_FifteenProcessesOfTheJSSafeLayout(t *testing.T) {
	t.Parallel()

	options := []uidplugin.Option{
		uidplugin.WithLogger(nil), uidplugin.WithLayout(generator.JSSafeLayout()), uidplugin.WithDefaultGenerator("paired"),
	}
	path, ledger := plugintest.FileOf(t, plugintest.Bare(t)), testkit.NewLedger(t)
	for i := range 16 {
		db := plugintest.File(t, path, nil)
		p := uidplugin.New(append(options, uidplugin.WithOneWorkerID())...)
		must(t, db.Use(p))
		t.Cleanup(func() { _ = p.Close(context.Background()) })
		id, err := p.NextID(t.Context(), &plugintest.Twin{})
		if i == 15 {
			testkit.IsError(t, err, workernode.ErrExhausted, "no worker id for all tables")
			continue
		}
		must(t, err)
		ledger.Add("twins", int64(id))
	}
	path = plugintest.FileOf(t, plugintest.Bare(t)) // the registry has given out the numbers of the other one
	for n := range int64(17) {
		db := plugintest.File(t, path, nil)
		p := uidplugin.New(append(options, uidplugin.WithWorkerID(n), uidplugin.WithClock(plugintest.AtNoon))...)
		err := db.Use(p)
		if n == 16 {
			testkit.IsError(t, err, uidplugin.ErrOption, "give out only worker ids up to 15")
			continue
		}
		must(t, err)
		_, err = p.NextID(t.Context(), &plugintest.Twin{})
		must(t, err)
		if got := p.Stats().Tables[0].WorkerIDs; !slices.Equal(got, []int64{n, n + 16}) {
			t.Errorf("the number %d has the worker ids %v", n, got)
		}
	}
}

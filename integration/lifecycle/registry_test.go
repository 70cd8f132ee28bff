package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// Eight shards in one process share a slot. Without WithRegistry each had an id space of its own, and rows of different
// shards got the same ids.
func TestWithRegistry_ShardsShareAnIDSpace(t *testing.T) {
	t.Parallel()

	const shards, rows = 8, 1000
	registry := testkit.SQLite{}.Open(t)
	ledger := testkit.NewLedger(t)
	var group sync.WaitGroup
	plugins := make([]*uidplugin.Plugin, shards)
	for i := range shards {
		name := fmt.Sprintf("shard%d.db", i)
		db, p := shard(t, registry, filepath.Join(t.TempDir(), name))
		plugins[i] = p
		group.Go(func() {
			for range rows / 100 {
				batch := make([]plugintest.Part, 100)
				if err := db.Create(&batch).Error; err != nil {
					t.Error(err)
					return
				}
				for _, row := range batch {
					ledger.Add(name, row.ID)
				}
			}
		})
	}
	group.Wait()
	if ledger.Len() != shards*rows {
		t.Errorf("%d ids of %d rows", ledger.Len(), shards*rows)
	}
	checked := 0
	for id, name := range ledger.Tables() {
		if checked++; checked > 500 {
			break
		}
		l, err := plugins[checked%shards].Locate(t.Context(), uidplugin.ID(id))
		if err != nil || l.Table != "parts" || l.Database != name {
			t.Fatalf("Locate(%d) = %+v, %v; want the database %s", id, l, err, name)
		}
	}
	if n := plugintest.Count(t, registry, "WORKER_SLOT"); n != 1 {
		t.Errorf("%d slots, want 1", n)
	}
	if a, b := plugins[0].Stats(), plugins[7].Stats(); a.Space == "" || a.Space != b.Space || a.Slot.ID != b.Slot.ID {
		t.Errorf("the first plugin has %+v, the last one %+v; want one id space and one slot", a, b)
	}
}

// Find of an id of another shard returns an error that says so, and never a row of this shard.
func TestWithRegistry_FindSaysThatAnIDIsOfAnotherDatabase(t *testing.T) {
	t.Parallel()

	registry := testkit.SQLite{}.Open(t)
	parts := uidplugin.WithModels(&plugintest.Part{})
	one, p := shard(t, registry, filepath.Join(t.TempDir(), "one.db"), parts)
	two, _ := shard(t, registry, filepath.Join(t.TempDir(), "two.db"), parts, uidplugin.WithDatabaseName("the second"))
	var a, b plugintest.Part
	must(t, one.Create(&a).Error)
	must(t, two.Create(&b).Error)
	if _, err := p.Find(t.Context(), uidplugin.ID(a.ID)); err != nil {
		t.Error(err)
	}
	_, err := p.Find(t.Context(), uidplugin.ID(b.ID))
	testkit.IsError(t, err, uidplugin.ErrOtherDatabase, "the second", "one.db")
}

// The last plugin that closes releases the slot. A plugin that is opened later has other ids.
func TestWithRegistry_TheLastPluginReleasesTheSlot(t *testing.T) {
	t.Parallel()

	registry := testkit.SQLite{}.Open(t)
	held := func() int64 { return plugintest.Count(t, registry, "WORKER_SLOT", `"HOLDER" <> ''`) }
	ledger := testkit.NewLedger(t)
	paths := []string{filepath.Join(t.TempDir(), "a.db"), filepath.Join(t.TempDir(), "b.db")}
	create := func(db *gorm.DB) {
		t.Helper()
		for range 100 {
			var row plugintest.Part
			must(t, db.Create(&row).Error)
			ledger.Add("parts", row.ID)
		}
	}
	a, first := shard(t, registry, paths[0])
	b, second := shard(t, registry, paths[1])
	create(a)
	create(b)
	testkit.MustClose(t, first)
	testkit.MustClose(t, first) // a second Close changes nothing
	if n := held(); n != 1 {
		t.Errorf("%d slots are held", n)
	}
	create(b)
	testkit.IsError(t, a.Create(&plugintest.Part{}).Error, uidplugin.ErrClosed)
	again, third := shard(t, registry, paths[0]) // shares the slot of the second
	create(again)
	create(b)
	testkit.MustClose(t, second)
	create(again)
	testkit.MustClose(t, third)
	if n := held(); n != 0 {
		t.Errorf("%d slots are held after the last Close", n)
	}
	later, _ := shard(t, registry, paths[1])
	create(later)
}

// Plugins that share a slot must agree on the options of the slot.
func TestWithRegistry_ConflictingOptionsAreAnError(t *testing.T) {
	t.Parallel()

	registry := testkit.SQLite{}.Open(t)
	plugintest.Use(t, plugintest.Bare(t), uidplugin.WithRegistry(registry))
	for option, o := range map[string]uidplugin.Option{
		"WithDisposable": uidplugin.WithDisposable(), "WithLayout": uidplugin.WithLayout(otherLayout()), "WithClock": uidplugin.WithClock(plugintest.AtNoon),
	} {
		err := plugintest.Bare(t).Use(uidplugin.New(uidplugin.WithRegistry(registry), o, uidplugin.WithLogger(nil)))
		testkit.IsError(t, err, uidplugin.ErrOption, option, "WithRegistry")
	}
	err := plugintest.Bare(t).Use(uidplugin.New(uidplugin.WithRegistry(registry), uidplugin.WithWorkerID(1)))
	testkit.IsError(t, err, uidplugin.ErrOption, "WithRegistry", "WithWorkerID")
	err = plugintest.Bare(t).Use(uidplugin.New(uidplugin.WithRegistry(nil)))
	testkit.IsError(t, err, uidplugin.ErrOption, "WithRegistry")
	plugintest.Use(t, plugintest.Bare(t), uidplugin.WithRegistry(registry)) // works, because the failed plugins have left
}

// The first create is in a transaction on a pool of one. It needs no other connection, because the worker id comes
// from another database.
func TestWithRegistry_TheFirstCreateInATransactionNeedsNoOtherConnection(t *testing.T) {
	t.Parallel()

	registry := testkit.SQLite{}.Open(t)
	db := testkit.SQLite{Pool: 1}.Open(t)
	plugintest.Migrate(t, db, &plugintest.Part{}, &plugintest.Article{}, &plugintest.Invoice{}, &plugintest.Customer{})
	plugintest.Use(t, db, uidplugin.WithRegistry(registry))
	must(t, db.Transaction(func(tx *gorm.DB) error {
		return errors.Join(tx.Create(&plugintest.Part{}).Error, tx.Create(&plugintest.Article{}).Error, tx.Create(&plugintest.Invoice{}).Error, tx.Create(&plugintest.Customer{}).Error)
	}))
}

// Plugins of one process join the registry and leave it at any time, like tenants of a server that opens a database
// for each request. The last plugin may leave while another one joins.
func TestWithRegistry_HammerOfTenantsThatComeAndGo(t *testing.T) {
	t.Parallel()

	const tenants, rounds = 6, 8
	registry := testkit.SQLite{}.Open(t)
	ledger := testkit.NewLedger(t)
	dir := t.TempDir()
	var group sync.WaitGroup
	for i := range tenants {
		name := fmt.Sprintf("tenant%d.db", i)
		plugintest.Migrate(t, plugintest.File(t, filepath.Join(dir, name), nil), &plugintest.Part{}, &plugintest.Article{})
		group.Go(func() {
			for round := range rounds {
				db := plugintest.File(t, filepath.Join(dir, name), nil)
				p := uidplugin.New(uidplugin.WithRegistry(registry), uidplugin.WithLogger(nil), uidplugin.WithModels(&plugintest.Part{}), uidplugin.WithTimeout(time.Minute))
				if err := db.Use(p); err != nil {
					t.Error(err)
					return
				}
				parts, articles := make([]plugintest.Part, 200), make([]plugintest.Article, 1+round)
				if err := errors.Join(db.Create(&parts).Error, db.Create(&articles).Error); err != nil {
					t.Error(err)
				}
				for _, row := range parts {
					ledger.Add(name, row.ID)
				}
				for _, row := range articles {
					ledger.Add(name, int64(row.ID))
				}
				testkit.MustClose(t, p)
			}
		})
	}
	group.Wait()
	if n := plugintest.Count(t, registry, "WORKER_SLOT", `"HOLDER" <> ''`); n != 0 {
		t.Errorf("%d slots are held", n)
	}
	// Each table needs one worker id per round at most. None is used again, because Lead is 10 minutes on SQLite.
	if n := plugintest.Count(t, registry, "WORKER_NODE", `"TABLE_NAME" <> ''`); n > tenants*rounds*2 {
		t.Errorf("%d worker ids, want %d at most", n, tenants*rounds*2)
	}
}

// A plugin with other options tries to join the registry while the last plugin closes. Formerly the lease manager
// then never ended, and held its slot.
func TestWithRegistry_AConflictNextToTheLastCloseLeaksNothing(t *testing.T) {
	t.Parallel()

	registry := testkit.SQLite{}.Open(t)
	dir := t.TempDir()
	for round := range 15 {
		good := plugintest.File(t, filepath.Join(dir, "good.db"), nil)
		bad := plugintest.File(t, filepath.Join(dir, "bad.db"), nil)
		p := uidplugin.New(uidplugin.WithRegistry(registry), uidplugin.WithLogger(nil))
		must(t, good.Use(p))
		plugintest.Migrate(t, good, &plugintest.Part{})
		must(t, good.Create(&plugintest.Part{}).Error)
		var group sync.WaitGroup
		group.Go(func() {
			q := uidplugin.New(uidplugin.WithRegistry(registry), uidplugin.WithDisposable(), uidplugin.WithLogger(nil))
			if err := bad.Use(q); err == nil { // it came after the Close
				testkit.MustClose(t, q)
			}
		})
		testkit.MustClose(t, p)
		group.Wait()
		if n := plugintest.Count(t, registry, "WORKER_SLOT", `"HOLDER" <> ''`); n != 0 {
			t.Fatalf("round %d: %d slots are held", round, n)
		}
	}
}

// A process without WithRegistry is still in the database's own id space, so its ids may be equal to those of the
// registry. The log warns of it.
func TestWithRegistry_WarnsOfProcessesWithoutIt(t *testing.T) {
	t.Parallel()

	path := filepath.Join(t.TempDir(), "shop.db")
	old := plugintest.File(t, path, nil)
	p := plugintest.Use(t, old)
	plugintest.Migrate(t, old, &plugintest.Part{})
	must(t, old.Create(&plugintest.Part{}).Error)
	var log plugintest.Journal
	plugintest.Use(t, plugintest.File(t, path, nil), log.Option(), uidplugin.WithRegistry(testkit.SQLite{}.Open(t)))
	saysAll(t, log.String(), "this database's own id space", "stop all processes without WithRegistry")
	testkit.MustClose(t, p)
	var quiet plugintest.Journal
	plugintest.Use(t, plugintest.File(t, path, nil), quiet.Option(), uidplugin.WithRegistry(testkit.SQLite{}.Open(t)))
	if warnings := quiet.Lines("WARN"); len(warnings) > 0 {
		t.Errorf("%q", warnings)
	}
}

// A transaction as the registry is refused, because it ends before the plugin does.
func TestWithRegistry_RefusesATransaction(t *testing.T) {
	t.Parallel()

	registry := testkit.SQLite{}.Open(t)
	plugintest.Use(t, plugintest.Bare(t), uidplugin.WithRegistry(registry))
	tx := registry.Begin()
	defer tx.Rollback()
	testkit.IsError(t, plugintest.Bare(t).Use(uidplugin.New(uidplugin.WithRegistry(tx))), uidplugin.ErrOption, "WithRegistry", "transaction")
}

// With thousands of tenants, a worker id for each table of each tenant would be too many. With WithOneWorkerID a new
// tenant gets the worker id of one that has left, once the clock has passed its ids.
func TestWithRegistry_TenantsTakeTurnsWithOneWorkerID(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("-short: it takes two seconds")
	}

	registry := testkit.SQLite{}.Open(t)
	keep := plugintest.Use(t, plugintest.Bare(t), uidplugin.WithRegistry(registry), uidplugin.WithOneWorkerID(), uidplugin.WithLead(100*time.Millisecond))
	ledger := testkit.NewLedger(t)
	for i := range 6 {
		path := filepath.Join(t.TempDir(), fmt.Sprintf("tenant%d.db", i))
		db, p := shard(t, registry, path, uidplugin.WithOneWorkerID(), uidplugin.WithLead(100*time.Millisecond))
		testkit.Eventually(t, "rows", time.Minute, func() bool { // the short lease may end on a busy machine
			rows := make([]plugintest.Part, 500)
			if err := db.Create(&rows).Error; err != nil {
				testkit.IsError(t, err, generator.ErrLeaseExpired)
				return false
			}
			for _, r := range rows {
				ledger.Add("parts", r.ID)
			}
			return true
		})
		testkit.MustClose(t, p)
		time.Sleep(300 * time.Millisecond)
	}
	if n := plugintest.Count(t, registry, "WORKER_NODE", `"TABLE_NAME" = '*'`); n > 3 {
		t.Errorf("%d worker ids for tenants that take turns", n)
	}
	testkit.Eventually(t, "Health", time.Minute, func() bool { return keep.Health() == nil }) // a short lease may end on a busy machine
}

// Shards on several servers often have the same database name. Their ids differ, but Locate cannot name the shard, so
// the log says what to do. A tenant that is opened again does not count as another database.
func TestWithRegistry_WarnsOfDatabasesWithOneName(t *testing.T) {
	t.Parallel()

	registry := plugintest.Bare(t)
	var log plugintest.Journal
	use := func(path string, options ...uidplugin.Option) *uidplugin.Plugin {
		options = append(options, uidplugin.WithRegistry(registry), uidplugin.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		p := uidplugin.New(options...)
		must(t, plugintest.File(t, path, nil).Use(p))
		t.Cleanup(func() { _ = p.Close(context.Background()) })
		return p
	}
	const warning = "have databases of the same name"
	a, b := filepath.Join(t.TempDir(), "s.db"), filepath.Join(t.TempDir(), "s.db")
	testkit.MustClose(t, use(a))
	first := use(a)
	use(b, uidplugin.WithDatabaseName("other"))
	if lines := log.Lines(warning); len(lines) != 0 {
		t.Errorf("one database of each name: %q", lines)
	}
	use(b)
	if lines := log.Lines(warning); len(lines) != 1 || !strings.Contains(lines[0], "database=s.db") {
		t.Errorf("two databases of one name: %q", lines)
	}
	testkit.MustClose(t, first)
}

// shard returns a handle on the SQLite database of a path, with the table of part. Its plugin uses a registry.
func shard(tb testing.TB, registry *gorm.DB, path string, options ...uidplugin.Option) (*gorm.DB, *uidplugin.Plugin) {
	tb.Helper()
	db := plugintest.File(tb, path, nil)
	p := plugintest.Use(tb, db, append(options, uidplugin.WithRegistry(registry))...)
	plugintest.Migrate(tb, db, &plugintest.Part{})
	return db, p
}

// otherLayout is a layout that differs from the default.
func otherLayout() generator.Layout {
	l := generator.DefaultLayout()
	l.WorkerBits, l.SequenceBits = 15, 7
	return l
}

package lookup_test

import (
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// openParts returns a handle with the plugin, on a SQLite database of its own, that has the table of part.
func openParts(tb testing.TB, options ...uidplugin.Option) (*gorm.DB, *uidplugin.Plugin) {
	tb.Helper()
	db := plugintest.Open(tb, options...)
	p := uidplugin.From(db)
	must(tb, p.AutoMigrate(&plugintest.Part{}))
	return db, p
}

// stampedAt returns the first id of the default layout that worker makes in the tick of a time.
func stampedAt(tb testing.TB, worker int64, of time.Time) int64 {
	tb.Helper()
	l := generator.DefaultLayout()
	id, err := l.Compose(generator.Parts{Time: l.TimeOf(l.TickAt(of)), WorkerID: worker})
	must(tb, err)
	return id
}

// finds checks that Find returns the row want for its id.
func finds[T comparable](tb testing.TB, p *uidplugin.Plugin, id int64, want T) {
	tb.Helper()
	row, err := p.Find(tb.Context(), uidplugin.ID(id))
	if got, ok := row.(*T); err != nil || !ok || *got != want {
		tb.Errorf("Find(%d): %v, %v; want %v", id, row, err, want)
	}
}

// findsCrate checks that Find returns the crate of that name for an id.
func findsCrate(tb testing.TB, p *uidplugin.Plugin, id int64, name string) {
	tb.Helper()
	row, err := p.Find(tb.Context(), uidplugin.ID(id))
	if got, ok := row.(*crate); err != nil || !ok || got.Name != name {
		tb.Errorf("Find(%d): %v, %v; want the crate %q", id, row, err, name)
	}
}

// unwrapped returns the errors that err joins.
func unwrapped(tb testing.TB, err error) []error {
	tb.Helper()
	list, ok := err.(interface{ Unwrap() []error })
	if !ok {
		tb.Fatalf("the error is a %T: %v", err, err)
	}
	return list.Unwrap()
}

// addNode adds a row of WORKER_NODE that another program, or process, has inserted.
func addNode(t *testing.T, db *gorm.DB, n workernode.Node) {
	t.Helper()
	slot := any(nil)
	if n.Slot != 0 {
		slot = n.Slot
	}
	must(t, db.Exec(`INSERT INTO "WORKER_NODE" ("ID", "HOST_NAME", "PORT", "TYPE", "LAUNCH_DATE", "SLOT", "DATABASE_NAME", "TABLE_NAME", "LAYOUT", "START_TICK")`+
		` VALUES (?, 'java-1', '8080', 1, '2024-02-29', ?, ?, ?, ?, ?)`, n.WorkerID, slot, n.Table.Database, n.Table.Name, n.Layout, n.Start).Error)
}

// elsewhere is a worker id of a slot that no process of the test has, for a table.
func elsewhere(worker int64, table string) workernode.Node {
	return workernode.Node{WorkerID: worker, Slot: 50, Table: workernode.Table{Name: table}, Layout: generator.DefaultLayout().String()}
}

// A sessionRow is a row of WORKER_SESSION.
type sessionRow struct {
	Start, Before int64
	Host          string
}

// addSlot adds a free slot with a FENCE, and its sessions: START_TICK, BEFORE_TICK and host of each.
func addSlot(t *testing.T, db *gorm.DB, slot, fence int64, sessions ...sessionRow) {
	t.Helper()
	must(t, db.Exec(`INSERT INTO "WORKER_SLOT" ("ID", "LAYOUT", "REUSABLE", "FENCE", "VERSION", "HOLDER", "SEEN_TICK", "APPLICATION", "HOST_NAME", "PORT")`+
		` VALUES (?, ?, 0, ?, 9, '', 0, 'shop', 'web-9', '80')`, slot, generator.DefaultLayout().String(), fence).Error)
	for _, s := range sessions {
		must(t, db.Exec(`INSERT INTO "WORKER_SESSION" ("SLOT", "START_TICK", "BEFORE_TICK", "APPLICATION", "HOST_NAME", "PORT", "TYPE", "LAUNCHED", "HOLDER")`+
			` VALUES (?, ?, ?, 'shop', ?, '80', 2, '2026-06-01 11:00:00.000', 'token')`, slot, s.Start, s.Before, s.Host).Error)
	}
}

// A crate belongs to a tenant.
type crate struct {
	ID        int64 `gorm:"primaryKey;autoIncrement:false;uid"`
	Tenant    int
	Name      string
	Slips     []slip
	DeletedAt gorm.DeletedAt
}

// A slip belongs to a crate, and to its tenant.
type slip struct {
	ID      int64 `gorm:"primaryKey;autoIncrement:false;uid"`
	CrateID int64
	Tenant  int
}

// loadedKey is the key of a counter in a context: of the crates that were read.
type loadedKey struct{}

func (p *crate) AfterFind(tx *gorm.DB) error {
	if n, ok := tx.Statement.Context.Value(loadedKey{}).(*int); ok {
		*n++
	}
	if mark, ok := tx.Get("mark"); ok {
		p.Name += mark.(string)
	}
	return nil
}

// crates returns a handle with the crates of two tenants, each with a slip.
func crates(t *testing.T) (db *gorm.DB, mine, theirs crate) {
	t.Helper()
	db = plugintest.Open(t)
	must(t, uidplugin.From(db).AutoMigrate(&crate{}, &slip{}))
	mine = crate{Tenant: 1, Name: "mine", Slips: []slip{{Tenant: 1}}}
	theirs = crate{Tenant: 2, Name: "theirs", Slips: []slip{{Tenant: 2}}}
	must(t, db.Create(&mine).Error)
	must(t, db.Create(&theirs).Error)
	return db, mine, theirs
}

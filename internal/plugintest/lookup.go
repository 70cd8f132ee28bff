package plugintest

import (
	"errors"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// NodesOf reads the tables of a handle.
func NodesOf(tb testing.TB, db *gorm.DB) *workernode.DB {
	tb.Helper()
	d, err := workernode.Open(db, time.Minute)
	must(tb, err)
	return d
}

// A SessionRow is a row of WORKER_SESSION.
type SessionRow struct {
	Start, Before int64
	Host          string
}

// OpenParts returns a handle with the plugin, on a SQLite database of its own, that has the table of part.
func OpenParts(tb testing.TB, options ...uidplugin.Option) (*gorm.DB, *uidplugin.Plugin) {
	tb.Helper()
	db := Open(tb, options...)
	p := uidplugin.From(db)
	must(tb, p.AutoMigrate(&Part{}))
	return db, p
}

// Shard returns a handle on the SQLite database of a path, with the table of part. Its plugin uses a registry.
func Shard(tb testing.TB, registry *gorm.DB, path string, options ...uidplugin.Option) (*gorm.DB, *uidplugin.Plugin) {
	tb.Helper()
	db := File(tb, path, nil)
	p := Use(tb, db, append(options, uidplugin.WithRegistry(registry))...)
	Migrate(tb, db, &Part{})
	return db, p
}

// StampedAt returns the first id of the default layout that worker makes in the tick of a time.
func StampedAt(tb testing.TB, worker int64, of time.Time) int64 {
	tb.Helper()
	l := generator.DefaultLayout()
	id, err := l.Compose(generator.Parts{Time: l.TimeOf(l.TickAt(of)), WorkerID: worker})
	must(tb, err)
	return id
}

// Finds checks that Find returns the row want for its id.
func Finds[T comparable](tb testing.TB, p *uidplugin.Plugin, id int64, want T) {
	tb.Helper()
	row, err := p.Find(tb.Context(), uidplugin.ID(id))
	if got, ok := row.(*T); err != nil || !ok || *got != want {
		tb.Errorf("Find(%d): %v, %v; want %v", id, row, err, want)
	}
}

// FindsCrate checks that Find returns the crate of that name for an id.
func FindsCrate(tb testing.TB, p *uidplugin.Plugin, id int64, name string) {
	tb.Helper()
	row, err := p.Find(tb.Context(), uidplugin.ID(id))
	if got, ok := row.(*Crate); err != nil || !ok || got.Name != name {
		tb.Errorf("Find(%d): %v, %v; want the crate %q", id, row, err, name)
	}
}

// Unwrapped returns the errors that err joins.
func Unwrapped(tb testing.TB, err error) []error {
	tb.Helper()
	list, ok := err.(interface{ Unwrap() []error })
	if !ok {
		tb.Fatalf("the error is a %T: %v", err, err)
	}
	return list.Unwrap()
}

// kindsOfNoID are the errors that distinguish numbers. No error may wrap two of them.
var kindsOfNoID = []error{
	uidplugin.ErrNegativeID, uidplugin.ErrFutureID, uidplugin.ErrUnknownID, uidplugin.ErrOtherLayout,
	uidplugin.ErrNoModel, gorm.ErrRecordNotFound, uidplugin.ErrNotRegistered,
}

// Only checks that err is of one kind and of no other, and says what it is about.
func Only(t *testing.T, err, kind error, says ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want %v", kind)
	}
	for _, k := range kindsOfNoID {
		if errors.Is(err, k) != (k == kind) {
			t.Errorf("the error\n\t%v\nis %v: %v", err, k, errors.Is(err, k))
		}
	}
	testkit.SaysAll(t, err.Error(), says...)
}

// AddNode adds a row of WORKER_NODE that another program, or process, has inserted.
func AddNode(t *testing.T, db *gorm.DB, n workernode.Node) {
	t.Helper()
	slot := any(nil)
	if n.Slot != 0 {
		slot = n.Slot
	}
	must(t, db.Exec(`INSERT INTO "WORKER_NODE" ("ID", "HOST_NAME", "PORT", "TYPE", "LAUNCH_DATE", "SLOT", "DATABASE_NAME", "TABLE_NAME", "LAYOUT", "START_TICK")`+
		` VALUES (?, 'java-1', '8080', 1, '2024-02-29', ?, ?, ?, ?, ?)`, n.WorkerID, slot, n.Table.Database, n.Table.Name, n.Layout, n.Start).Error)
}

// Elsewhere is a worker id of a slot that no process of the test has, for a table.
func Elsewhere(worker int64, table string) workernode.Node {
	return workernode.Node{WorkerID: worker, Slot: 50, Table: workernode.Table{Name: table}, Layout: generator.DefaultLayout().String()}
}

// AddSlot adds a free slot with a FENCE, and its sessions: START_TICK, BEFORE_TICK and host of each.
func AddSlot(t *testing.T, db *gorm.DB, slot, fence int64, sessions ...SessionRow) {
	t.Helper()
	must(t, db.Exec(`INSERT INTO "WORKER_SLOT" ("ID", "LAYOUT", "REUSABLE", "FENCE", "VERSION", "HOLDER", "SEEN_TICK", "APPLICATION", "HOST_NAME", "PORT")`+
		` VALUES (?, ?, 0, ?, 9, '', 0, 'shop', 'web-9', '80')`, slot, generator.DefaultLayout().String(), fence).Error)
	for _, s := range sessions {
		must(t, db.Exec(`INSERT INTO "WORKER_SESSION" ("SLOT", "START_TICK", "BEFORE_TICK", "APPLICATION", "HOST_NAME", "PORT", "TYPE", "LAUNCHED", "HOLDER")`+
			` VALUES (?, ?, ?, 'shop', ?, '80', 2, '2026-06-01 11:00:00.000', 'token')`, slot, s.Start, s.Before, s.Host).Error)
	}
}

// A Crate belongs to a tenant.
type Crate struct {
	ID        int64 `gorm:"primaryKey;autoIncrement:false;uid"`
	Tenant    int
	Name      string
	Slips     []Slip
	DeletedAt gorm.DeletedAt
}

// A Slip belongs to a crate, and to its tenant.
type Slip struct {
	ID      int64 `gorm:"primaryKey;autoIncrement:false;uid"`
	CrateID int64
	Tenant  int
}

// LoadedKey is the key of a counter in a context: of the crates that were read.
type LoadedKey struct{}

func (p *Crate) AfterFind(tx *gorm.DB) error {
	if n, ok := tx.Statement.Context.Value(LoadedKey{}).(*int); ok {
		*n++
	}
	if mark, ok := tx.Get("mark"); ok {
		p.Name += mark.(string)
	}
	return nil
}

// Crates returns a handle with the crates of two tenants, each with a slip.
func Crates(t *testing.T) (db *gorm.DB, mine, theirs Crate) {
	t.Helper()
	db = Open(t)
	must(t, uidplugin.From(db).AutoMigrate(&Crate{}, &Slip{}))
	mine = Crate{Tenant: 1, Name: "mine", Slips: []Slip{{Tenant: 1}}}
	theirs = Crate{Tenant: 2, Name: "theirs", Slips: []Slip{{Tenant: 2}}}
	must(t, db.Create(&mine).Error)
	must(t, db.Create(&theirs).Error)
	return db, mine, theirs
}

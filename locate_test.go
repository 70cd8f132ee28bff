package uidplugin_test

import (
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// kindsOfNoID are the errors that tell numbers apart; no two may be found behind
// one error.
var kindsOfNoID = []error{
	uidplugin.ErrNegativeID, uidplugin.ErrFutureID, uidplugin.ErrUnknownID, uidplugin.ErrOtherLayout,
	uidplugin.ErrNoModel, gorm.ErrRecordNotFound, uidplugin.ErrNotRegistered,
}

// only checks that err is of one kind and of no other, and says what it is about.
func only(t *testing.T, err, kind error, says ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want %v", kind)
	}
	for _, k := range kindsOfNoID {
		if errors.Is(err, k) != (k == kind) {
			t.Errorf("the error\n\t%v\nis %v: %v", err, k, errors.Is(err, k))
		}
	}
	saysAll(t, err.Error(), says...)
}

// addNode adds a row of WORKER_NODE that somebody else made.
func addNode(t *testing.T, db *gorm.DB, n workernode.Node) {
	t.Helper()
	must(t, db.Exec(`INSERT INTO "WORKER_NODE" ("ID", "HOST_NAME", "PORT", "TYPE", "LAUNCH_DATE", "TABLE_NAME", "LAYOUT", "START_SECOND", "HELD_SECOND", "FENCE")`+
		` VALUES (?, 'java-1', '8080', 1, '2024-02-29', ?, ?, ?, ?, ?)`, n.WorkerID, n.Table, n.Layout, n.Start, max(n.Start, n.Held), n.Fence).Error)
}

func TestLocateTellsNumbersApartThatAreNoIDs(t *testing.T) {
	t.Parallel()

	l := generator.DefaultLayout()
	now := l.TickAt(noon)
	db := open(t, uidplugin.WithClock(atNoon))
	p := uidplugin.From(db)
	addNode(t, db, workernode.Node{WorkerID: 20})
	addNode(t, db, workernode.Node{WorkerID: 21, Table: "orders", Layout: generator.SnowflakeLayout().String(), Fence: l.MaxTick()})
	addNode(t, db, workernode.Node{WorkerID: 22, Table: "orders", Layout: l.String(), Start: now - 10, Fence: now - 5})

	stamped := func(worker, tick int64) int64 {
		id, err := l.Compose(generator.Parts{Time: l.TimeOf(tick), WorkerID: worker, Sequence: 3})
		must(t, err)
		return id
	}
	for _, tt := range []struct {
		name string
		id   int64
		kind error
		says []string
	}{
		{"negative", -1, uidplugin.ErrNegativeID, []string{"-1"}},
		{"most negative", -1 << 63, uidplugin.ErrNegativeID, []string{"-9223372036854775808"}},
		{"future", stamped(22, now+3662), uidplugin.ErrFutureID, []string{"2026-06-01 13:01:02 UTC", "2026-06-01 13:01:01 UTC"}},
		{"far future", 1<<63 - 1, uidplugin.ErrFutureID, []string{"9223372036854775807", "2034"}},
		{"no such worker id", stamped(999, now), uidplugin.ErrUnknownID, []string{"999", "WORKER_NODE"}},
		{"zero", 0, uidplugin.ErrUnknownID, []string{"worker id 0"}},
		{"row of UidGenerator", stamped(20, now), uidplugin.ErrOtherLayout, []string{"20", "UidGenerator", "2024-02-29"}},
		{"row with another layout", stamped(21, now), uidplugin.ErrOtherLayout, []string{"21", generator.SnowflakeLayout().String(), l.String()}},
		{"before the worker id was given out", stamped(22, now-10), uidplugin.ErrUnknownID, []string{"22", "11:59:50", "11:59:51", "11:59:56"}},
		{"after its fence", stamped(22, now-4), uidplugin.ErrUnknownID, []string{"22", "11:59:56"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			got, err := p.Locate(t.Context(), tt.id)
			only(t, err, tt.kind, append(tt.says, "uidplugin: ")...)
			if got != (uidplugin.Location{}) {
				t.Errorf("Locate: %+v", got)
			}
			_, err = p.Find(t.Context(), tt.id)
			only(t, err, tt.kind)
		})
	}
	for _, tick := range []int64{now - 9, now - 5} { // first and last of worker id 22
		if got, err := p.Locate(t.Context(), stamped(22, tick)); err != nil || got.Table != "orders" || got.Launched != l.TimeOf(now-9) {
			t.Errorf("Locate: %+v, %v", got, err)
		}
	}
	// The latest that another process may have stamped is not of the future.
	_, err := p.Locate(t.Context(), stamped(999, now+3661))
	only(t, err, uidplugin.ErrUnknownID)
}

func TestLocateRefusesBitsThatTheLayoutDoesNotHave(t *testing.T) {
	t.Parallel()

	db := open(t, uidplugin.WithLayout(generator.JSSafeLayout()))
	for _, id := range []int64{1 << 53, 1<<63 - 1} {
		_, err := uidplugin.From(db).Locate(t.Context(), id)
		only(t, err, uidplugin.ErrUnknownID, "53 bits")
		if !errors.Is(err, generator.ErrLayout) {
			t.Errorf("Locate: %v", err)
		}
		if _, err = uidplugin.From(db).Decode(id); !errors.Is(err, generator.ErrLayout) {
			t.Errorf("Decode: %v", err)
		}
	}
	if _, err := uidplugin.From(db).Decode(-1); !errors.Is(err, uidplugin.ErrNegativeID) {
		t.Errorf("Decode: %v", err)
	}
}

func TestLocateOfARowThatWasCreated(t *testing.T) {
	t.Parallel()

	host := workernode.Host{Name: "web-1", Port: "8080", Kind: workernode.Container}
	db := open(t, uidplugin.WithHost(host), uidplugin.WithClock(atNoon))
	migrate(t, db, &part{})
	r := part{}
	must(t, db.Create(&r).Error)
	want := uidplugin.Location{ID: uidplugin.ID(r.ID), Time: noon, WorkerID: 3, Table: "parts", Host: "web-1", Port: "8080", Kind: workernode.Container, Launched: noon}
	if got, err := uidplugin.From(db).Locate(t.Context(), r.ID); err != nil || got != want {
		t.Errorf("Locate: %+v, %v", got, err)
	}
	// A table whose model nobody has given leads to the table, but to no row.
	addNode(t, db, workernode.Node{WorkerID: 50, Table: "elsewhere", Layout: generator.DefaultLayout().String(), Fence: 1 << 27})
	if got, err := uidplugin.From(db).Locate(t.Context(), at(t, 50, 0)); err != nil || got.Table != "elsewhere" {
		t.Errorf("Locate: %+v, %v", got, err)
	}
	_, err := uidplugin.From(db).Find(t.Context(), at(t, 50, 0))
	only(t, err, uidplugin.ErrNoModel, "elsewhere", "WithModels")
}

func TestLocateWithAFixedWorkerIDKnowsOnlyItsOwn(t *testing.T) {
	t.Parallel()

	db := open(t, uidplugin.WithWorkerID(7), uidplugin.WithClock(atNoon), uidplugin.WithHost(workernode.Host{Name: "web-1", Port: "8080", Kind: 1}))
	migrate(t, db, &part{})
	r := part{}
	must(t, db.Create(&r).Error)
	p := uidplugin.From(db)
	want := uidplugin.Location{ID: uidplugin.ID(r.ID), Time: noon, WorkerID: 7, Host: "web-1", Port: "8080", Kind: workernode.Container}
	if got, err := p.Locate(t.Context(), r.ID); err != nil || got != want {
		t.Errorf("Locate: %+v, %v", got, err)
	}
	_, err := p.Locate(t.Context(), at(t, 8, 0))
	only(t, err, uidplugin.ErrUnknownID, "worker id 8", "7", "WithWorkerID")
	_, err = p.Find(t.Context(), r.ID)
	only(t, err, uidplugin.ErrNoModel, "all tables")
	if nodes, err := p.Nodes(t.Context(), 0, 10); len(nodes) != 0 || err != nil {
		t.Errorf("Nodes: %v, %v", nodes, err)
	}
	if tables := p.Stats().Tables; len(tables) != 1 || tables[0].Table != "*" || tables[0].WorkerIDs[0] != 7 {
		t.Errorf("Stats: %+v", tables)
	}
}

// TestLocateKnowsTheIDsThatThisProcessMade, also when its clock was set back
// since: ids go on from where they were, so they are ahead of the clock.
func TestLocateKnowsTheIDsThatThisProcessMade(t *testing.T) {
	t.Parallel()

	var back atomic.Int64
	db := open(t, uidplugin.WithClock(func() time.Time { return noon.Add(-time.Duration(back.Load())) }))
	migrate(t, db, &part{})
	must(t, db.Create(&part{}).Error)
	back.Store(int64(2 * time.Hour))
	r := part{}
	must(t, db.Create(&r).Error)
	isOurs(t, db, "parts", r.ID)
	if _, err := uidplugin.From(db).Find(t.Context(), r.ID); err != nil {
		t.Errorf("Find: %v", err)
	}
}

// TestLocateKnowsIDsAboveAFloor: after a restore an operator may have set the
// floor above the clock, and ids are stamped from there on.
func TestLocateKnowsIDsAboveAFloor(t *testing.T) {
	t.Parallel()

	path := filepath.Join(t.TempDir(), "test.db")
	use(t, file(t, path, &gorm.Config{}))
	db := file(t, path, &gorm.Config{})
	must(t, db.Exec(`UPDATE "WORKER_REGISTRY" SET "FLOOR_SECOND" = ?`, generator.DefaultLayout().TickAt(noon)+86400).Error)
	use(t, db, uidplugin.WithClock(atNoon))
	migrate(t, db, &part{})
	r := part{}
	must(t, db.Create(&r).Error)
	parts, err := uidplugin.From(db).Decode(r.ID)
	if err != nil || !parts.Time.After(noon.Add(24*time.Hour)) {
		t.Fatalf("the id is stamped %v, %v", parts.Time, err)
	}
	isOurs(t, db, "parts", r.ID)
}

func TestNodesListsWhoWasGivenAWorkerID(t *testing.T) {
	t.Parallel()

	db := open(t, uidplugin.WithSpares(0), uidplugin.WithModels(&part{}, &article{}, &invoice{}))
	p := uidplugin.From(db)
	var tables []string
	for after := int64(0); ; {
		nodes, err := p.Nodes(t.Context(), after, 2)
		must(t, err)
		if len(nodes) == 0 {
			break
		}
		for _, n := range nodes {
			tables = append(tables, n.Table)
			after = n.WorkerID
		}
	}
	if len(tables) != 3 || tables[0] != "parts" || tables[2] != "invoices" {
		t.Errorf("the tables are %q", tables)
	}
}

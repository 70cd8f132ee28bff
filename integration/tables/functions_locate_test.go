package tables_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/migrations"
	"gorm.io/gorm"
)

// An origin is the answer of the SQL functions about an id.
type origin struct {
	ID                          int64
	UidTable                    *string // what uid_table says
	DatabaseName, TableName     *string
	Slot, WorkerID              *int64
	Application, HostName, Port *string
	Type                        *int
	Launched                    moment
	HeldFrom, HeldUntil         moment
}

// originsOf returns what SQL says of ids, in their order.
func originsOf(t *testing.T, d *testkit.Database, db *gorm.DB, ids []int64) (list []origin) {
	t.Helper()
	insertIDs(t, db, ids)
	_, worker := formulas(t, d, db)
	table := "uid_table(i.id)"
	if d.Name == "sqlite" {
		table = "NULL"
	}
	worker = regexp.MustCompile(`\bid\b`).ReplaceAllString(worker, "i.id")
	testkit.Must(t, db.Raw("SELECT i.id, "+table+" AS uid_table, o.* FROM ids i LEFT JOIN uid_origin o"+
		" ON o.worker_id = "+worker+" AND i.id BETWEEN o.first_id AND o.last_id ORDER BY i.n").Scan(&list).Error)
	if len(list) != len(ids) {
		t.Fatalf("%d rows for %d ids", len(list), len(ids))
	}
	return list
}

// checkOrigins compares what SQL says of ids with Locate, and returns how many are located.
func checkOrigins(t *testing.T, d *testkit.Database, db *gorm.DB, p *uidplugin.Plugin, ids []int64) (located int) {
	t.Helper()
	for i, got := range originsOf(t, d, db, ids) {
		want := origin{ID: ids[i]}
		l, err := p.Locate(t.Context(), uidplugin.ID(ids[i]))
		if err == nil {
			located++
			kind, table := int(l.Session.Kind), l.Table
			if table == "" {
				table = "*"
			}
			name := table
			if l.Database != "" {
				name = l.Database + "." + table
			}
			s := l.Session
			want = origin{
				ID: ids[i], UidTable: &name, DatabaseName: &l.Database, TableName: &table, Slot: &s.Slot, WorkerID: &l.WorkerID,
				Application: &s.Application, HostName: &s.Host, Port: &s.Port, Type: &kind,
				Launched: momentOf(s.Launched), HeldFrom: momentOf(s.From),
			}
			if !s.Until.IsZero() {
				want.HeldUntil = momentOf(s.Until)
			}
		}
		if d.Name == "sqlite" {
			want.UidTable = nil
		}
		if g, w := got.String(), want.String(); g != w {
			t.Errorf("%d:\n  SQL    %s\n  Locate %s, %v", ids[i], g, w, err)
		}
	}
	return located
}

// String shows the values behind the pointers.
func (o origin) String() string {
	text, _ := json.Marshal(o)
	return string(text)
}

// A past has the rows that history has inserted.
type past struct {
	t      *testing.T
	r      *rand.Rand
	db     *gorm.DB
	layout generator.Layout
	ticks  [][]int64 // of each slot, the ticks at which something changes
}

// firstSlot and firstWorker are above those of a plugin that is in use.
const firstSlot, firstWorker = 1000, 1000

// history inserts slots, sessions and worker ids as processes write them, and also sessions that overlap, which no
// process writes. It returns ids at the limits of all of them: each ids of each worker id.
func history(t *testing.T, r *rand.Rand, db *gorm.DB, l generator.Layout, slots, workers, each int) (ids []int64) {
	t.Helper()
	p := &past{t: t, r: r, db: db, layout: l}
	for range slots {
		p.addSlot()
	}
	for worker := firstWorker; worker < firstWorker+workers; worker++ {
		slot, start := p.addWorker(int64(worker))
		ticks := append([]int64{0, start, l.MaxTick()}, p.ticks[min(slot, slots-1)]...)
		for range each {
			near := ticks[r.IntN(len(ticks))]
			if r.IntN(3) == 0 {
				near = ticks[r.IntN(min(5, len(ticks)))] // the first session
			}
			tick := min(max(near+r.Int64N(3)-1, 0), l.MaxTick())
			ids = append(ids, tick<<(l.WorkerBits+l.SequenceBits)|int64(worker)<<l.SequenceBits|r.Int64N(l.MaxSequence()+1))
		}
	}
	return append(ids, 0, -1, math.MaxInt64, math.MinInt64)
}

func (p *past) addSlot() {
	p.t.Helper()
	r, slot, now := p.r, firstSlot+len(p.ticks), p.layout.TickAt(time.Now())
	tick := now - 360_000
	var ticks []int64
	for range r.IntN(12) {
		before := tick + 10 + r.Int64N(20_000)
		start := before + r.Int64N(10)*r.Int64N(2)
		if r.IntN(5) == 0 {
			before = start + 7 // as no process writes it
		}
		harness.Exec(p.t, p.db, `INSERT INTO "WORKER_SESSION" ("SLOT", "START_TICK", "BEFORE_TICK", "APPLICATION",
			"HOST_NAME", "PORT", "TYPE", "LAUNCHED", "HOLDER") VALUES (?, ?, ?, 'shop', ?, ?, ?, ?, 'x')`,
			slot, start, before, fmt.Sprintf("host-%d", r.IntN(9)), fmt.Sprint(r.IntN(9000)), 1+r.IntN(2),
			time.Now().Add(-time.Duration(r.IntN(1e9))).UTC().Format("2006-01-02 15:04:05.000"))
		ticks = append(ticks, start, before)
		tick = start + 1
	}
	fence := []int64{tick, tick + 10_000, now + 3_600_000}[r.IntN(3)]
	harness.Exec(p.t, p.db, `INSERT INTO "WORKER_SLOT" ("ID", "LAYOUT", "REUSABLE", "FENCE", "VERSION", "HOLDER",
		"SEEN_TICK", "APPLICATION", "HOST_NAME", "PORT") VALUES (?, ?, 1, ?, 1, '', 0, 'shop', 'h', 'p')`, slot, p.layout.String(), fence)
	p.ticks = append(p.ticks, append(ticks, fence, tick))
}

// addWorker inserts a worker id. It returns which slot it has, and its START_TICK.
func (p *past) addWorker(worker int64) (slot int, start int64) {
	p.t.Helper()
	r := p.r
	slot = r.IntN(len(p.ticks) + 1) // the last has no row
	if slot < len(p.ticks) && r.IntN(2) == 0 {
		start = max(p.ticks[slot][r.IntN(len(p.ticks[slot]))]+r.Int64N(3)-1, 0)
	}
	var owner any = firstSlot + slot
	layout := p.layout.String()
	switch r.IntN(12) {
	case 0:
		owner, layout = nil, "" // as UidGenerator inserts it
	case 1:
		layout = generator.SnowflakeLayout().String()
	}
	harness.Exec(p.t, p.db, `INSERT INTO "WORKER_NODE" ("ID", "HOST_NAME", "PORT", "TYPE", "LAUNCH_DATE", "SLOT",
		"DATABASE_NAME", "TABLE_NAME", "LAYOUT", "START_TICK") VALUES (?, 'h', 'p', 1, '2026-01-01', ?, ?, ?, ?, ?)`,
		worker, owner, []string{"", "", "shop"}[r.IntN(3)],
		[]string{"", "*", "orders", "items", "it's"}[r.IntN(5)], layout, start)
	return slot, start
}

// The SQL functions agree with Locate about each id, whatever the tables contain.
func TestFunctions_LocateAsGoDoes(t *testing.T) {
	t.Parallel()

	slots, workers := 40, 80
	if testing.Short() || testkit.Race {
		slots, workers = 15, 30
	}
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		each := 20 // servers take a millisecond for an id
		if d.Name == "sqlite" {
			each = 60
		}
		for _, l := range []generator.Layout{generator.DefaultLayout(), generator.JSSafeTablesLayout()} {
			d := d.New(t)
			db := d.Open(t, nil)
			p := harness.Use(t, db, uidplugin.WithLayout(l))
			ids := history(t, rand.New(rand.NewPCG(3, uint64(l.TimeBits))), db, l, slots, workers, each)
			testkit.Must(t, migrations.CreateFunctions(t.Context(), db))
			if located := checkOrigins(t, d, db, p, ids); located < len(ids)/10 || located > len(ids)*9/10 {
				t.Errorf("%s: %d of %d ids are located", l, located, len(ids))
			}
		}
	})
}

// Rows of two databases with one registry: the functions are in the registry's, and name the database.
func TestFunctions_NameTheDatabase(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		registry := d.Open(t, nil)
		var ids []int64
		var last *uidplugin.Plugin
		for range 2 { // processes
			for _, name := range []string{"shard1", "shard2"} {
				db := d.New(t).Open(t, nil)
				last = harness.Use(t, db, uidplugin.WithRegistry(d.Open(t, nil)), uidplugin.WithDatabaseName(name))
				testkit.Must(t, db.AutoMigrate(&harness.T1{}, &harness.T2{}))
				for range 3 {
					a, b := harness.T1{}, harness.T2{}
					testkit.Must(t, db.Create(&a).Error)
					testkit.Must(t, db.Create(&b).Error)
					ids = append(ids, int64(a.ID), b.ID)
				}
			}
		}
		testkit.Must(t, migrations.CreateFunctions(t.Context(), registry))
		if located := checkOrigins(t, d, registry, last, ids); located != len(ids) {
			t.Errorf("%d of %d ids are located", located, len(ids))
		}
		if first := originsOf(t, d, registry, ids)[0]; *first.DatabaseName != "shard1" || *first.TableName != "t1" {
			t.Errorf("%s", first)
		}
	})
}

package tables_test

import (
	"database/sql"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/migrations"
	"gorm.io/gorm"
)

// formulas returns the expressions of the time and the worker id of column id: the functions, or on SQLite what the
// text of the view says.
func formulas(t *testing.T, d *testkit.Database, db *gorm.DB) (time, worker string) {
	t.Helper()
	if d.Name != "sqlite" {
		return "uid_time(id)", "uid_worker(id)"
	}
	var text string
	testkit.Must(t, db.Raw("SELECT sql FROM sqlite_master WHERE name = 'uid_origin'").Scan(&text).Error)
	m := regexp.MustCompile(`(?s)/\* The time of an id is\s+(.*?)\s+and its worker id\s+(.*?) \*/`).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("the view is %s", text)
	}
	return m[1], m[2]
}

// setLayout makes a layout that of the registry, and installs its functions.
func setLayout(t *testing.T, db *gorm.DB, text string) {
	t.Helper()
	harness.Exec(t, db, `DELETE FROM "WORKER_REGISTRY"`)
	harness.Exec(t, db, `INSERT INTO "WORKER_REGISTRY" ("NAME", "ID_SPACE", "LAYOUT", "LEAD_TICKS", "NEXT_ID",
		"NEXT_SLOT", "FLOOR_TICK") VALUES ('default', 'space', ?, 10000, 1, 1, 0)`, text)
	testkit.Must(t, migrations.CreateFunctions(t.Context(), db))
}

// insertIDs makes a table of ids, with a key so that they come back in their order.
func insertIDs(t *testing.T, db *gorm.DB, ids []int64) {
	t.Helper()
	testkit.Must(t, db.Exec("DROP TABLE IF EXISTS ids").Error)
	testkit.Must(t, db.Exec("CREATE TABLE ids (n INT PRIMARY KEY, id BIGINT)").Error)
	testkit.Must(t, db.Transaction(func(tx *gorm.DB) error {
		for n := 0; n < len(ids); {
			var text strings.Builder
			for end := min(n+10000, len(ids)); n < end; n++ {
				fmt.Fprintf(&text, ",(%d,%d)", n, ids[n])
			}
			if _, err := tx.Statement.ConnPool.ExecContext(t.Context(), "INSERT INTO ids VALUES "+text.String()[1:]); err != nil {
				return err
			}
		}
		return nil
	}))
}

// A moment is a time in a column, in milliseconds of UTC; empty for NULL. SQLite has texts.
type moment string

const momentFormat = "2006-01-02 15:04:05.000000"

func momentOf(at time.Time) moment { return moment(at.UTC().Format(momentFormat)) }

// Scan implements [sql.Scanner].
func (m *moment) Scan(v any) error {
	switch v := v.(type) {
	case nil:
		*m = ""
	case time.Time:
		*m = momentOf(v)
	case string:
		at, err := time.Parse("2006-01-02 15:04:05", v)
		*m = momentOf(at)
		return err
	default:
		return fmt.Errorf("a time is a %T", v)
	}
	return nil
}

// randomLayout returns a valid layout of any kind.
func randomLayout(r *rand.Rand) generator.Layout {
	for {
		l := generator.Layout{TimeBits: uint8(1 + r.IntN(61)), WorkerBits: uint8(1 + r.IntN(30)), SequenceBits: uint8(1 + r.IntN(30))}
		l.Tick = []time.Duration{time.Millisecond, 10 * time.Millisecond, time.Second, time.Hour, 1500 * time.Microsecond,
			time.Millisecond + time.Duration(r.IntN(1e9))}[r.IntN(6)]
		l.Epoch = time.Date(1+r.IntN(3000), 1, 1+r.IntN(365), 0, 0, r.IntN(86400), []int{0, 123e6, r.IntN(1e9)}[r.IntN(3)], time.UTC)
		if l.Validate() == nil {
			return l
		}
	}
}

// randomIDs returns ids of a layout, numbers that are none, and those at the limits.
func randomIDs(r *rand.Rand, l generator.Layout, n int) []int64 {
	bits := l.TimeBits + l.WorkerBits + l.SequenceBits
	lowest, highest := int64(1)<<(l.WorkerBits+l.SequenceBits), int64(1)<<bits-1
	ids := []int64{0, 1, -1, lowest - 1, lowest, lowest + 1, highest - 1, highest, highest + 1, math.MaxInt64, math.MinInt64}
	for len(ids) < n {
		id := r.Int64()
		switch r.IntN(8) {
		case 0: // of any length
			id >>= r.IntN(63)
		case 1:
			id = -id
		default: // of the layout, by half with a time of the years that have four digits
			id &= highest
			if year := l.TickAt(time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)); r.IntN(2) == 0 && year > 0 && year < l.MaxTick() {
				id = id&(lowest-1) | r.Int64N(year)<<(l.WorkerBits+l.SequenceBits)
			}
		}
		ids = append(ids, id)
	}
	return ids
}

// TestFunctions_DecodeAsGoDoes: a million ids, whatever the layout and the time zone of the connection.
func TestFunctions_DecodeAsGoDoes(t *testing.T) {
	t.Parallel()

	rounds, n := 20, 50_000
	if testing.Short() || testkit.Race {
		rounds, n = 8, 2_000
	}
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		pool, err := db.DB()
		testkit.Must(t, err)
		pool.SetMaxOpenConns(1) // for the time zone
		testkit.Must(t, migrations.Up(t.Context(), db))
		switch {
		case d.IsMySQL():
			testkit.Must(t, db.Exec("SET time_zone = '-09:30'").Error)
		case d.Name == "postgres":
			testkit.Must(t, db.Exec("SET TIME ZONE 'America/New_York'").Error)
		}
		r := rand.New(rand.NewPCG(1, 2))
		times := 0
		for round := range rounds {
			l := randomLayout(r)
			if round < 4 {
				l = []generator.Layout{generator.DefaultLayout(), generator.SnowflakeLayout(),
					generator.JSSafeLayout(), generator.JSSafeTablesLayout()}[round]
			}
			setLayout(t, db, l.String())
			times += checkDecode(t, d, db, l, randomIDs(r, l, n))
		}
		if times < rounds*n/3 {
			t.Errorf("%d times of %d ids", times, rounds*n)
		}
	})
}

// checkDecode compares the functions with Decompose, and returns how many ids have a time.
func checkDecode(t *testing.T, d *testkit.Database, db *gorm.DB, l generator.Layout, ids []int64) (times int) {
	t.Helper()
	insertIDs(t, db, ids)
	timeOf, workerOf := formulas(t, d, db)
	rows, err := db.Raw("SELECT id, " + timeOf + ", " + workerOf + " FROM ids ORDER BY n").Rows()
	testkit.Must(t, err)
	defer rows.Close()
	precision := time.Millisecond
	if d.Name != "sqlite" && (l.Tick%time.Millisecond != 0 || l.Epoch.Nanosecond()%1e6 != 0) {
		precision = time.Microsecond
	}
	n := 0
	for ; rows.Next(); n++ {
		var id int64
		var at moment
		var worker sql.NullInt64
		testkit.Must(t, rows.Scan(&id, &at, &worker))
		var wantAt moment
		var wantWorker sql.NullInt64
		if p, err := l.Decompose(id); err == nil && p.Time.After(l.Epoch) { // no id has the first tick
			wantWorker = sql.NullInt64{Int64: p.WorkerID, Valid: true}
			if y := p.Time.Year(); y >= 1 && y <= 9999 {
				wantAt = momentOf(p.Time.Truncate(precision))
				times++
			}
		}
		if id != ids[n] || at != wantAt || worker != wantWorker {
			t.Fatalf("%s: of %d the time is %q and the worker id %v, want %q and %v",
				l, id, at, worker, wantAt, wantWorker)
		}
	}
	testkit.Must(t, rows.Err())
	if n != len(ids) {
		t.Errorf("%d rows of %d ids", n, len(ids))
	}
	return times
}

// An origin is what SQL says of an id.
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
	var text strings.Builder
	for _, v := range []any{o.UidTable, o.DatabaseName, o.TableName, o.Slot, o.WorkerID, o.Application, o.HostName, o.Port, o.Type} {
		switch v := v.(type) {
		case *string:
			if v != nil {
				fmt.Fprintf(&text, "%q ", *v)
				continue
			}
		case *int64:
			if v != nil {
				fmt.Fprintf(&text, "%d ", *v)
				continue
			}
		case *int:
			if v != nil {
				fmt.Fprintf(&text, "%d ", *v)
				continue
			}
		}
		text.WriteString("NULL ")
	}
	return text.String() + fmt.Sprintf("launched %s, held from %s until %s", o.Launched, o.HeldFrom, o.HeldUntil)
}

// A past is what history has inserted.
type past struct {
	t      *testing.T
	r      *rand.Rand
	db     *gorm.DB
	layout generator.Layout
	ticks  [][]int64 // of each slot, those at which something changes
}

// firstSlot and firstWorker are above those of a plugin that is in use.
const firstSlot, firstWorker = 1000, 1000

// history inserts slots, sessions and worker ids: what processes write, and sessions that overlap, as they never do. It returns ids at the limits of all of them.
func history(t *testing.T, r *rand.Rand, db *gorm.DB, l generator.Layout, slots, workers int) (ids []int64) {
	t.Helper()
	p := &past{t: t, r: r, db: db, layout: l}
	for range slots {
		p.addSlot()
	}
	for worker := firstWorker; worker < firstWorker+workers; worker++ {
		slot, start := p.addWorker(int64(worker))
		ticks := append([]int64{0, start, l.MaxTick()}, p.ticks[min(slot, slots-1)]...)
		for range 60 {
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

// addSlot inserts a slot and its sessions.
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
		owner, layout = nil, "" // of UidGenerator
	case 1:
		layout = generator.SnowflakeLayout().String()
	}
	harness.Exec(p.t, p.db, `INSERT INTO "WORKER_NODE" ("ID", "HOST_NAME", "PORT", "TYPE", "LAUNCH_DATE", "SLOT",
		"DATABASE_NAME", "TABLE_NAME", "LAYOUT", "START_TICK") VALUES (?, 'h', 'p', 1, '2026-01-01', ?, ?, ?, ?, ?)`,
		worker, owner, []string{"", "", "shop"}[r.IntN(3)],
		[]string{"", "*", "orders", "items", "it's"}[r.IntN(5)], layout, start)
	return slot, start
}

// Whatever is in the tables, SQL says of an id what Locate says.
func TestFunctions_LocateAsGoDoes(t *testing.T) {
	t.Parallel()

	slots, workers := 40, 80
	if testing.Short() || testkit.Race {
		slots, workers = 15, 30
	}
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		for _, l := range []generator.Layout{generator.DefaultLayout(), generator.JSSafeTablesLayout()} {
			d := d.New(t)
			db := d.Open(t, nil)
			p := harness.Use(t, db, uidplugin.WithLayout(l))
			ids := history(t, rand.New(rand.NewPCG(3, uint64(l.TimeBits))), db, l, slots, workers)
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
					ids = append(ids, a.ID.Int64(), b.ID)
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

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

// SQL and Go decode a million ids equally, for all layouts and time zones of the connection.
func TestFunctions_DecodeAsGoDoes(t *testing.T) {
	t.Parallel()

	rounds, n := 20, 10_000
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

// The name of a schema is in the text of the functions, so it must not end that text.
func TestCreateFunctions_InASchemaOfAnyName(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		for _, schema := range []string{`a$$b`, `$uid1$ $$`, `it's "one" $`, `a?; --`} {
			db := d.New(t).Open(t, nil)
			pool, err := db.DB()
			testkit.Must(t, err)
			pool.SetMaxOpenConns(1) // for the search path
			name := `"` + strings.ReplaceAll(schema, `"`, `""`) + `"`
			for _, statement := range []string{"DROP SCHEMA IF EXISTS " + name + " CASCADE", "CREATE SCHEMA " + name, "SET search_path TO " + name} {
				_, err := pool.ExecContext(t.Context(), statement)
				testkit.Must(t, err)
			}
			testkit.Must(t, migrations.Up(t.Context(), db))
			setLayout(t, db, generator.DefaultLayout().String())
			var worker int64
			row := pool.QueryRowContext(t.Context(), "SELECT "+name+".uid_worker("+fmt.Sprint(1<<22|7<<4)+") + COALESCE(length("+name+".uid_table(1)), 0)")
			if err := row.Scan(&worker); err != nil || worker != 7 {
				t.Errorf("%s: the worker id is %d, %v", schema, worker, err)
			}
			_, err = pool.ExecContext(t.Context(), "DROP SCHEMA "+name+" CASCADE")
			testkit.Must(t, err)
		}
	}, "postgres")
}

package regions_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// A site is a database that is used by the test itself.
type site struct {
	*testkit.Database
	port string
	db   *gorm.DB // with a plugin
}

// newSite opens a database as a region, or as the region of its registry if region is [0 0].
func newSite(t *testing.T, d *testkit.Database, port string, region [2]int) *site {
	t.Helper()
	s := &site{d, port, d.Open(t, nil)}
	testkit.Must(t, s.db.Use(uidplugin.New(writerTask{Region: region, Port: port}.options()...)))
	t.Cleanup(func() { s.close(t) })
	testkit.Must(t, s.db.AutoMigrate(models...))
	return s
}

func (s *site) close(t *testing.T) {
	t.Helper()
	testkit.MustClose(t, uidplugin.From(s.db))
}

func (s *site) create(t *testing.T, ledger *testkit.Ledger) {
	t.Helper()
	for range 2 {
		var lines string
		testkit.Eventually(t, "rows", time.Minute, func() bool { // the short lease may end on a busy machine
			var err error
			if lines, err = createRows(s.db); err != nil && !errors.Is(err, generator.ErrLeaseExpired) {
				t.Fatal(err)
			}
			return err == nil
		})
		for line := range strings.Lines(lines) {
			record(ledger, s.port, line)
		}
	}
}

// merged are the tables to merge, in this order, their primary keys, and the condition for rows of some regions. FENCE of
// WORKER_SLOT is what makes ids valid, so it comes after the sessions. Rows come last, after those that they refer to.
var merged = []struct {
	table string
	key   []string
	of    string
}{
	{"WORKER_NODE", []string{"ID"}, `"SLOT" IN (SELECT "ID" FROM "WORKER_SLOT" WHERE "REGION" IN ?)`},
	{"WORKER_SESSION", []string{"SLOT", "START_TICK"}, `"SLOT" IN (SELECT "ID" FROM "WORKER_SLOT" WHERE "REGION" IN ?)`},
	{"WORKER_SLOT", []string{"ID"}, `"REGION" IN ?`},
	{"customers", []string{"id"}, ""}, {"orders", []string{"id"}, ""}, {"items", []string{"id"}, ""}, {"notes", []string{"id"}, ""},
}

// merge copies the rows of one moment of a database of SQLite to another one, in one transaction, and replaces those that
// are there. Rows of the target's own region must not be replaced, because their FENCE may be an earlier one.
func merge(t *testing.T, from, to *testkit.Database, regions ...int) {
	t.Helper()
	testkit.Must(t, from.Open(t, nil).Transaction(func(from *gorm.DB) error {
		return to.Open(t, nil).Transaction(func(to *gorm.DB) error {
			for _, m := range merged {
				var rows []map[string]any
				query := from.Table(m.table)
				if m.of != "" {
					query = query.Where(m.of, regions)
				}
				if err := query.Find(&rows).Error; err != nil {
					return err
				}
				for chunk := range slices.Chunk(rows, 100) {
					replace := clause.OnConflict{DoUpdates: clause.AssignmentColumns(slices.Sorted(maps.Keys(chunk[0])))}
					for _, name := range m.key {
						replace.Columns = append(replace.Columns, clause.Column{Name: name})
					}
					if err := to.Table(m.table).Clauses(replace).Create(chunk).Error; err != nil {
						return fmt.Errorf("%s: %w", m.table, err)
					}
				}
			}
			return nil
		})
	}))
}

// Three SQLite files make ids of one id space, offline, and a server locates them after their rows were merged, again and
// again while they are used.
func TestRegions_EdgesAreMerged(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		ledger := testkit.NewLedger(t)
		server := newSite(t, d, "server", [2]int{0, 4})
		var edges []*site
		for n := 1; n < 4; n++ {
			edges = append(edges, newSite(t, testkit.Engine{Name: "sqlite"}.New(t), fmt.Sprint("edge", n), [2]int{n, 4}))
		}
		for range 2 {
			server.create(t, ledger)
			for n, edge := range edges {
				edge.create(t, ledger)
				merge(t, edge.Database, d, n+1)
			}
			located(t, d, ledger)
		}
		edges[0].close(t) // another process takes its slot
		edges[0] = newSite(t, edges[0].Database, "again", [2]int{})
		edges[0].create(t, ledger)
		merge(t, edges[0].Database, d, 1)
		if rows := located(t, d, ledger); rows != ledger.Len() {
			t.Errorf("%d rows of %d", rows, ledger.Len())
		}
		var last int64
		testkit.Must(t, edges[0].db.Raw("SELECT MAX(id) FROM notes").Scan(&last).Error)
		if row, err := uidplugin.From(server.db).Find(t.Context(), uidplugin.ID(last)); err != nil || row.(*note).ID != uint64(last) {
			t.Error(row, err)
		}
	})
}

// The server of region 0 is lost, and the other one has its rows up to some moment. Processes of region 0 continue in
// region 1. Region 1 is then divided, and a new server begins with a part of it. No id comes twice, whatever the lost
// server had made, or makes when it comes back.
func TestRegions_ALostServerIsReplaced(t *testing.T) {
	t.Parallel()
	sqlite := testkit.Engine{Name: "sqlite"}
	ledger, late := testkit.NewLedger(t), testkit.NewLedger(t)
	lost := newSite(t, sqlite.New(t), "lost", [2]int{0, 2})
	other := newSite(t, sqlite.New(t), "other", [2]int{1, 2})
	lost.create(t, ledger)
	other.create(t, ledger)
	merge(t, lost.Database, other.Database, 0)
	lost.create(t, late)

	db := other.Open(t, nil)
	testkit.IsError(t, db.Use(uidplugin.New(writerTask{Region: [2]int{0, 2}}.options()...)), uidplugin.ErrRegion)
	moved := newSite(t, other.Database, "moved", [2]int{1, 2})
	moved.create(t, ledger)
	others := divide(t, db, 4)
	fresh := sqlite.New(t)
	begin(t, fresh.Open(t, nil), others[0])
	third := newSite(t, fresh, "third", [2]int{3, 4})
	merge(t, other.Database, fresh, 0, 1)
	for _, s := range []*site{other, moved, third} {
		s.create(t, ledger)
	}
	merge(t, third.Database, other.Database, 3)
	merge(t, other.Database, third.Database, 1)
	for _, s := range []*site{other, third} {
		if rows := located(t, s.Database, ledger); rows != ledger.Len() {
			t.Errorf("%s: %d rows of %d", s.port, rows, ledger.Len())
		}
	}

	lost.create(t, late)
	for id, by := range late.Tables() {
		ledger.Add(by, id)
	}
	merge(t, lost.Database, other.Database, 0)
	located(t, other.Database, ledger)
}

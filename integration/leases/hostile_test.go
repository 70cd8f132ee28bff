package leases_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/migrations"
	"github.com/uidplugin/uidplugin/workernode"
)

// three starts three processes, and checks that each has a slot of its own and that their ids differ and resolve.
func three(t *testing.T, d *testkit.Database, params ...string) {
	t.Helper()
	ledger := testkit.NewLedger(t)
	held := map[int64]bool{}
	for round := range 2 {
		var plugins []*uidplugin.Plugin
		for range 3 {
			p := harness.Use(t, d.Open(t, nil, params...), uidplugin.WithModels(&harness.T1{}, &harness.T2{}), uidplugin.WithLead(3*time.Second))
			plugins = append(plugins, p)
			if s := p.Stats().Slot.ID; held[s] {
				t.Errorf("slot %d has two holders", s)
			} else {
				held[s] = true
			}
		}
		clear(held)
		for _, p := range plugins {
			for table, model := range map[string]any{"t1": &harness.T1{}, "t2": &harness.T2{}} {
				for i := range 50 {
					var id uidplugin.ID
					testkit.Eventually(t, "an id of "+table, time.Minute, func() bool { // the short lease may end on a busy machine
						var err error
						id, err = p.NextID(t.Context(), model)
						return err == nil
					})
					ledger.Add(table, int64(id))
					if i%10 == 0 || i == 49 { // each takes a round trip
						harness.Resolves(t, plugins[0], table, "", int64(id))
					}
				}
			}
		}
		if round == 1 {
			testkit.Eventually(t, "renewals", time.Minute, func() bool {
				_, err := harness.NextID(plugins[2])
				return err == nil && plugins[2].Stats().Slot.Renewals >= 2
			})
		}
		for _, p := range plugins {
			harness.Close(t, p)
		}
	}
}

// A trigger on the plugin's tables inserts into a table with AUTO_INCREMENT, as an audit does. LAST_INSERT_ID is then
// that of the other table. Formerly only one process could start.
func TestHostile_TriggersWithAutoIncrement(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		harness.Close(t, harness.Use(t, db, uidplugin.WithLead(3*time.Second)))
		testkit.Must(t, db.Exec("CREATE TABLE audit (id BIGINT AUTO_INCREMENT PRIMARY KEY, what VARCHAR(64))").Error)
		testkit.Must(t, db.Exec("INSERT INTO audit (id, what) VALUES (4711, 'past')").Error)
		for i, on := range []string{"UPDATE ON WORKER_REGISTRY", "UPDATE ON WORKER_SLOT", "INSERT ON WORKER_SLOT",
			"INSERT ON WORKER_SESSION", "INSERT ON WORKER_NODE", "UPDATE ON WORKER_NODE"} {
			testkit.Must(t, db.Exec(fmt.Sprintf("CREATE TRIGGER audit%d AFTER %s FOR EACH ROW INSERT INTO audit (what) VALUES ('%s')",
				i, on, on)).Error)
		}
		three(t, d)
		if n := harness.Count(t, db, "audit"); n < 20 {
			t.Errorf("%d rows of the triggers", n)
		}
	}, "mariadb", "mysql")
}

// A database that keeps another FENCE than it acknowledges would let two processes make the same ids. db.Use says so, and
// leaves no slot.
func TestHostile_FenceThatIsNotKept(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		var params, hostile []string
		switch {
		case d.IsMySQL():
			params = []string{"sql_mode=%27ANSI_QUOTES%27"} // without strict mode
			hostile = []string{`ALTER TABLE WORKER_SLOT MODIFY FENCE INT NOT NULL`, `ALTER TABLE WORKER_NODE MODIFY START_TICK INT NOT NULL`,
				`CREATE TRIGGER lower_it BEFORE UPDATE ON WORKER_SLOT FOR EACH ROW SET NEW.FENCE = OLD.FENCE`}
		case d.Name == "postgres":
			hostile = []string{`CREATE FUNCTION lower_it() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW."FENCE" := OLD."FENCE"; RETURN NEW; END $$;
				CREATE TRIGGER lower_it BEFORE UPDATE ON "WORKER_SLOT" FOR EACH ROW EXECUTE FUNCTION lower_it()`}
		default:
			hostile = []string{`CREATE TRIGGER lower_it AFTER UPDATE ON WORKER_SLOT BEGIN UPDATE WORKER_SLOT SET FENCE = OLD.FENCE WHERE ID = OLD.ID; END`}
		}
		for _, statement := range hostile {
			own := d.New(t)
			db := own.Open(t, nil, params...)
			testkit.Must(t, migrations.Up(t.Context(), db))
			testkit.Must(t, db.Exec(statement).Error)
			err := db.Use(uidplugin.New(harness.Quiet, uidplugin.WithModels(&harness.T1{})))
			testkit.IsError(t, err, workernode.ErrTable, "WORKER_")
			var slots int64
			if testkit.Must(t, db.Table("WORKER_SLOT").Count(&slots).Error); slots != 0 {
				t.Errorf("%s: %d slots", statement, slots)
			}
		}
	})
}

func TestHostile_OptionsOfTheDriver(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		for _, params := range [][]string{{"columnsWithAlias=true"}, {"clientFoundRows=true"}, {"interpolateParams=true"},
			{"parseTime=false", "loc=Local"},
			{"multiStatements=true", "columnsWithAlias=true", "clientFoundRows=true", "interpolateParams=true"}} {
			three(t, d.New(t), params...)
		}
	}, "mariadb", "mysql")
}

// Rows that no process writes: numbers at the ends of their types, unknown layouts, text that could mislead. Processes
// start, make ids and locate them; nothing panics, and bad rows are not used.
func TestHostile_Rows(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		harness.Close(t, harness.Use(t, db, uidplugin.WithLead(3*time.Second), uidplugin.WithModels(&harness.T1{})))
		layout, most := generator.DefaultLayout().String(), int64(math.MaxInt64)
		name := harness.Slots(t, db)[0].Application
		slot := func(id int64, layout string, fence, version int64, holder string, seen int64) {
			harness.Exec(t, db, `INSERT INTO "WORKER_SLOT" ("ID", "LAYOUT", "REUSABLE", "FENCE", "VERSION", "HOLDER", "SEEN_TICK", "APPLICATION", "HOST_NAME", "PORT", "MODIFIED") VALUES (?, ?, 1, ?, ?, ?, ?, ?, 'h', 'p', CURRENT_TIMESTAMP)`,
				id, layout, fence, version, holder, seen, name)
		}
		slot(-1, layout, 0, 0, "", 0)
		slot(0, layout, 0, 0, "", 0)
		slot(100, layout, 0, most, "", 0)
		slot(101, layout, 0, most-1, "", 0)
		slot(102, layout, -most, 5, "", -most)
		slot(103, layout, most, 5, "", most)
		slot(104, "1+2+3 of nothing", 0, 5, "", 0)
		slot(105, layout, 0, -5, "", 0)
		slot(106, layout, 0, 5, "'; DROP TABLE x; --\n\x1b[31m", 0)
		slot(most, layout, 0, 5, "", 0)
		node := func(id, slot int64, table, layout string, start int64) {
			harness.Exec(t, db, `INSERT INTO "WORKER_NODE" ("ID", "HOST_NAME", "PORT", "TYPE", "LAUNCH_DATE", "SLOT", "DATABASE_NAME", "TABLE_NAME", "LAYOUT", "START_TICK") VALUES (?, 'h', 'p', 2, CURRENT_DATE, ?, '', ?, ?, ?)`,
				id, slot, table, layout, start)
		}
		node(-7, 100, "t1", layout, 0)
		node(most, 101, "t1", layout, 0)
		node(5000, 102, "t1", "another layout", 0)
		node(5001, 100, "t1", layout, most)
		node(5002, 101, "t2\n", layout, -most)
		node(5003, 106, strings.Repeat("x", 128), layout, 0)
		node(5004, 999, "t1", layout, 0) // its slot does not exist
		harness.Exec(t, db, `INSERT INTO "WORKER_SESSION" ("SLOT", "START_TICK", "BEFORE_TICK", "APPLICATION", "HOST_NAME", "PORT", "TYPE", "LAUNCHED", "HOLDER") VALUES (102, ?, ?, 'a', 'h', 'p', 99, '2020-01-01 00:00:00', '')`, -most, most)
		for range 2 { // then with what the first have left
			three(t, d)
		}
		p := harness.Use(t, d.Open(t, nil), uidplugin.WithModels(&harness.T1{}))
		for _, worker := range []int64{5000, 5001, 5002, 5003, 5004} {
			id, err := p.Layout().Compose(generator.Parts{Time: time.Now().Add(-time.Hour), WorkerID: worker})
			testkit.Must(t, err)
			if l, err := p.Locate(t.Context(), uidplugin.ID(id)); err == nil || !errors.Is(err, uidplugin.ErrUnknownID) &&
				!errors.Is(err, uidplugin.ErrOtherLayout) {
				t.Errorf("a number of worker id %d: %+v, %v", worker, l, err)
			}
		}
		testkit.Eventually(t, "health", time.Minute, func() bool { return p.Health() == nil })
	})
}

package leases_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// A restart takes the worker ids of all its tables over with its slot. How many statements about the slot come before
// the first id does not depend on the number of tables.
func TestRestart_FewStatementsForManyTables(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		c := testkit.NewClock(time.Now())
		for _, tables := range []int{10, 200} {
			d := d.New(t)
			for round, few := 0, false; !few && round < 6; round++ {
				db, wire := testkit.OpenWire(t, d)
				p := uidplugin.New(harness.Quiet, uidplugin.WithModels(harness.Thousand()[:tables]...), uidplugin.WithClock(c.Now))
				testkit.Must(t, db.Use(p))
				_, err := p.NextID(t.Context(), &harness.Numbered[harness.D0, harness.D0, harness.D0]{})
				testkit.Must(t, err)
				sent := slices.DeleteFunc(wire.Take(), func(statement string) bool {
					return !aboutSlots.MatchString(statement) || strings.HasSuffix(statement, "WHERE 1 = 0") // of migrations.Up
				})
				few = round > 0 && len(sent) <= 8 && p.Stats().Slot.Reclaimed == 1
				if round == 5 && !few { // on a busy machine a start may repeat statements that took too long, but not each one
					t.Errorf("%d tables: %d statements before the first id, want 8 at most:\n%s", tables, len(sent),
						strings.Join(sent, "\n"))
				}
				harness.Close(t, p)
				c.Add(2 * time.Hour)
			}
		}
	})
}

// Statements about slots, and what is around them. Tables are created and the registry is read before.
var aboutSlots = regexp.MustCompile(`^(BEGIN|COMMIT|ROLLBACK)|^(SELECT|UPDATE|INSERT) .*(WORKER_SLOT|WORKER_SESSION|FROM (\w+\.)?WORKER_NODE WHERE SLOT|INTO (\w+\.)?WORKER_NODE)`)

// A start with a thousand models takes about as many statements as one with ten, for new worker ids and for those of a
// former process.
func TestStart_AThousandModels(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		models := harness.Thousand()
		start := func(n int, c *testkit.Clock, d *testkit.Database) int64 {
			db, wire := testkit.OpenWire(t, d)
			p := uidplugin.New(harness.Quiet, uidplugin.WithModels(models[:n]...), uidplugin.WithClock(c.Now))
			testkit.Must(t, db.Use(p))
			sent := int64(len(wire.Take()))
			if got := len(p.Stats().Tables); got != n {
				t.Errorf("%d tables, want %d", got, n)
			}
			harness.Close(t, p)
			c.Add(2 * time.Hour)
			return sent
		}
		n, c := 1000, testkit.NewClock(time.Now())
		if d.Name == "sqlite" {
			n = 200 // the race detector makes it slow
		}
		compare := func() (more string) {
			few, many := d.New(t), d.New(t)
			for _, what := range []string{"new", "reclaimed"} {
				a, b := start(10, c, few), start(n, c, many)
				// An INSERT has room for some hundred worker ids.
				if most := a + 1 + int64(n/100); b > most || what == "reclaimed" && b > a+1 {
					more += fmt.Sprintf("%s: %d statements for %d models, %d for 10\n", what, b, n, a)
				}
			}
			return more
		}
		more := compare()
		for try := 0; more != "" && try < 5; try++ { // on a busy machine a start may repeat statements that took too long
			more = compare()
		}
		if more != "" {
			t.Error(more)
		}
	})
}

// Every process needs the registry's row to get a slot or worker ids. One whose machine vanishes in the middle of that
// once left the row locked until the server gave its connection up, and no other process could start.
func TestStart_WhileAnotherProcessHangsAnywhere(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		harness.Close(t, harness.Use(t, d.Open(t, nil), uidplugin.WithModels(&harness.T2{}), uidplugin.WithDisposable())) // creates the tables
		n := 1
		for ; hangsAt(t, d, n); n++ {
		}
		if n < 12 {
			t.Errorf("a start took %d statements", n-1)
		}
	}, "mariadb", "mysql", "postgres")
}

// hangsAt starts a process that hangs after its nth statement, and another one. It reports whether there were so many.
func hangsAt(t *testing.T, d *testkit.Database, n int) bool {
	t.Helper()
	models := uidplugin.WithModels(&harness.T1{}, &harness.T2{})
	db, wire := testkit.OpenWire(t, d)
	var sent atomic.Int64
	hangs, goOn := make(chan struct{}), make(chan struct{})
	wire.Set(func(c *testkit.Crossing) error {
		err := c.Run()
		if sent.Add(1) == int64(n) {
			close(hangs)
			<-goOn
		}
		return err
	})
	p, used := uidplugin.New(harness.Quiet, models), make(chan error, 1)
	go func() { used <- db.Use(p) }()
	reached := false
	select {
	case err := <-used:
		testkit.Must(t, err)
		used <- nil
	case <-hangs:
		reached = true
		other := uidplugin.New(harness.Quiet, models)
		if err := d.Open(t, nil).Use(other); err != nil {
			t.Errorf("statement %d hangs: %v", n, err)
		}
		harness.Close(t, other)
	}
	wire.Set(nil)
	close(goOn)
	<-used
	harness.Close(t, p)
	return reached
}

// A process whose database is far away gets a slot. Formerly a transaction of the lease manager had 2 s for all of its
// answers.
func TestStart_WithASlowDatabase(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		harness.Close(t, harness.Use(t, d.Open(t, nil))) // creates the tables
		db, wire := testkit.OpenWire(t, d)
		wire.Set(func(c *testkit.Crossing) error {
			time.Sleep(300 * time.Millisecond)
			return c.Run()
		})
		p := harness.Use(t, db, uidplugin.WithModels(&harness.T1{}))
		for range 3 {
			harness.MustID(t, p)
		}
		wire.Set(nil)
	}, "mariadb", "postgres")
}

type numbered struct {
	ID int64 `gorm:"primaryKey;autoIncrement:false;uid:segment"`
}

// errorsOnly leaves out statements that took too long, as some do on a busy machine.
type errorsOnly struct{ logger.Interface }

func (l errorsOnly) Trace(ctx context.Context, begin time.Time, statement func() (string, int64), err error) {
	if !errors.Is(err, context.DeadlineExceeded) {
		l.Interface.Trace(ctx, begin, statement, err)
	}
}

// The first processes of an application start at once on an empty database. Only one of them can insert the registry's
// row, or create a table, but GORM's logger must not show errors that nobody has to do anything about.
func TestStart_FirstProcessesLogNoErrors(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		for range 3 {
			own, statements := d.New(t), &testkit.Log{}
			testkit.Must(t, own.Open(t, nil).AutoMigrate(&numbered{}))
			processes := 15
			if d.Name == "sqlite" {
				processes = 5 // one writes at a time
			}
			var starts sync.WaitGroup
			for range processes {
				db := own.Open(t, &gorm.Config{Logger: errorsOnly{logger.New(log.New(statements, "", 0), logger.Config{LogLevel: logger.Error})}})
				starts.Go(func() {
					p := uidplugin.New(harness.Quiet, uidplugin.WithModels(&harness.T1{}, &numbered{}))
					if err := db.Use(p); err != nil {
						t.Error(err)
						return
					}
					harness.Close(t, p)
				})
			}
			starts.Wait()
			if text := statements.String(); text != "" {
				t.Errorf("GORM's log has\n%.2000s", text)
			}
		}
	})
}

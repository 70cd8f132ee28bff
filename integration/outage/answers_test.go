package outage_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

var errAnswer = errors.New("the answer is lost")

// One process starts, renews, adds a table, begins a new session and closes. This is repeated for each statement that
// it sends, and the answer of that statement is lost: before or after the database has executed it, or when its rows are
// read. No id comes twice, because the process uses nothing that it does not know. Every table is renewed, and each id resolves.
func TestAnswers_EachOneIsLostOnce(t *testing.T) {
	t.Parallel()
	testkit.SkipWithRace(t)
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		n := live(t, d, -1, unsent) // all is well
		if n < 20 {                 // 34, or less where a busy machine has two of them done in one
			t.Fatalf("the process has sent only %d statements", n)
		}
		step := 1
		if d.Name != "sqlite" {
			step = 3 // because lives on a server take long; over several runs each statement has its turn
		}
		if testing.Short() {
			step = 5
		}
		losses := []loss{executed, unsent}
		if d.Name == "sqlite" { // the code that reads rows is the same on all engines
			losses = append(losses, torn)
		}
		for k := rand.IntN(step); k < n; k += step {
			for _, how := range losses {
				t.Run(fmt.Sprintf("%d/%s", k, how), func(t *testing.T) {
					t.Parallel()
					live(t, d, k, how)
				})
			}
		}
	}, "sqlite", "mariadb", "postgres")
}

// A loss is how the answer of a statement is lost.
type loss string

const (
	executed loss = "executed"
	unsent   loss = "not executed"
	torn     loss = "executed, and its rows cannot be read"
)

// live runs one life, which loses the answer of one statement, and returns how many there were.
func live(t *testing.T, d *testkit.Database, lose int, how loss) int {
	t.Helper()
	db, wire := testkit.OpenWire(t, d.New(t))
	defer func() { _ = testkit.Close(db) }()
	l := &life{T: t, db: db, wire: wire, lose: lose, how: how, c: testkit.NewClock(time.Now()), ledger: testkit.NewLedger(t),
		of: map[int64]lateID{}}
	l.c.Set(l.c.Now().Truncate(time.Second))
	defer func() {
		if t.Failed() {
			t.Logf("the answer of statement %d was lost, %s: %s", lose, how, l.hit)
		}
	}()
	l.run()
	return l.n
}

// A life is one process, and those before and after it.
type life struct {
	*testing.T
	db   *gorm.DB
	wire *testkit.Wire
	lose int // this statement of the process
	how  loss
	hit  string // its text
	n    int    // statements of the process

	c      *testkit.Clock
	ledger *testkit.Ledger
	of     map[int64]lateID
	log    testkit.Log // of the process
}

// take drains tenants. All tenants of a process have the same port.
func (l *life) take(port string, of map[string]*harness.Tenant) {
	l.Helper()
	for table, g := range of {
		ids := g.Drain(l.T)
		l.ledger.Add(table, ids...)
		if len(ids) > 0 {
			l.of[ids[0]], l.of[ids[len(ids)-1]] = lateID{table, port}, lateID{table, port}
		}
	}
}

// assigned is NewTenant, tried again as a caller would. The clock moves meanwhile: a statement whose outcome is unknown may
// have used up the ticks of the moment.
func (l *life) assigned(m *workernode.Manager, table string) *harness.Tenant {
	l.Helper()
	for try := 0; ; try++ {
		ctx, cancel := context.WithTimeout(l.Context(), 5*time.Second)
		leases, err := m.Assign(ctx, []workernode.Table{{Name: table}}, nil)
		cancel()
		if err == nil {
			return harness.Attach(l.T, m, leases[0])
		}
		if try == 12 {
			l.Fatalf("%v; %+v", err, m.Stats())
		}
		l.c.Add(time.Second)
	}
}

func (l *life) run() {
	l.Helper()
	former := harness.NewManager(l.T, l.db, l.c, nil)
	l.take("", map[string]*harness.Tenant{"t1": harness.NewTenant(l.T, former, "t1")})
	harness.Close(l.T, former)
	l.c.Add(2 * time.Hour)

	m := harness.NewManager(l.T, l.db, l.c, func(c *workernode.Config) {
		c.Log = l.log.Logger()
	})
	l.wire.Set(func(c *testkit.Crossing) error {
		if l.n++; l.n-1 != l.lose {
			return c.Run()
		}
		l.hit = c.SQL
		if l.how != unsent {
			if err := c.Run(); err != nil {
				return err
			}
		}
		if c.Torn = l.how == torn; c.Torn {
			return nil
		}
		return errAnswer
	})
	mine := map[string]*harness.Tenant{"t1": l.assigned(m, "t1")}
	l.take("m", mine)
	mine["t2"] = l.assigned(m, "t2")
	l.take("m", mine)
	for _, pause := range []time.Duration{4 * time.Second, 4 * time.Second, 30 * time.Second} {
		l.c.Add(pause)
		for _, g := range mine {
			g.Renewed(l.T, m, l.c)
		}
		l.take("m", mine)
		if pause == 4*time.Second && mine["t3"] == nil {
			mine["t3"] = l.assigned(m, "t3")
			l.take("m", mine)
		}
	}
	for try := 0; ; try++ {
		ctx, cancel := context.WithTimeout(l.Context(), 5*time.Second)
		err := m.Close(ctx)
		cancel()
		if err == nil {
			break
		}
		if try == 12 {
			l.Fatal(err)
		}
	}
	l.wire.Set(nil)
	l.c.Add(2 * time.Hour)
	next := harness.NewManager(l.T, l.db, l.c, nil)
	theirs := map[string]*harness.Tenant{}
	for _, table := range []string{"t1", "t2", "t3", "t4"} {
		theirs[table] = harness.NewTenant(l.T, next, table)
	}
	l.take("next", theirs)
	if next.Stats().Reclaimed != 1 {
		l.Errorf("the slot was not reclaimed: %+v", next.Stats())
	}
	harness.Close(l.T, next)
	l.resolve()
}

// resolve checks that ids resolve to their tables, and those of one process to one host.
func (l *life) resolve() {
	l.Helper()
	p := uidplugin.New(harness.Quiet, uidplugin.WithLayout(harness.SmallLayout(4)), uidplugin.WithClock(l.c.Now))
	testkit.Must(l.T, l.db.Use(p))
	defer func() { _ = p.Close(l.Context()) }()
	hosts := map[string]string{}
	for id, from := range l.of {
		where, err := p.Locate(l.Context(), uidplugin.ID(id))
		if err != nil || where.Table != from.table {
			l.Errorf("Locate(%d) = %+v, %v; want table %s", id, where, err, from.table)
			continue
		}
		if host := hosts[from.port]; host != "" && host != where.Session.Host {
			l.Errorf("ids of process %q resolve to %s and %s", from.port, host, where.Session.Host)
		}
		hosts[from.port] = where.Session.Host
	}
	if len(hosts) != 3 || hosts["m"] == hosts["next"] {
		l.Errorf("ids of three processes resolve to %v", hosts)
	}
}

package regions_test

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

var regionsFor = flag.Duration("regions.for", 0, "how long TestRegions_ReplicateInBothDirections inserts on MariaDB: its long form")

// Two servers that take writes and replicate in both directions never make an id twice, and never stop replicating.
// Each locates the ids of both. Meanwhile the connections between them are cut for a fifth of the time, and processes
// are killed. If a process reclaimed a replicated slot of the other region, both would change one row.
//
// The long form:
//
//	go test -run TestRegions_Replicate/mariadb -v -timeout 0 ./integration/regions/ -regions.for 5m
func TestRegions_ReplicateInBothDirections(t *testing.T) {
	testkit.SkipWithRace(t) // its processes share nothing, and locating all ids takes ten times as long
	t.Parallel()
	for _, e := range testkit.Engines() {
		if e.Name == "sqlite" {
			continue
		}
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			switch {
			case e.Name != "mariadb":
				replicate(t, e, 0, time.Second, 0)
			case *regionsFor == 0:
				replicate(t, e, time.Second, time.Second, time.Second)
			default:
				replicate(t, e, *regionsFor*2/5, *regionsFor/5, *regionsFor*2/5)
			}
		})
	}
}

// replicate runs the test on servers of an engine, for some time before, while and after their connections are cut.
func replicate(t *testing.T, e testkit.Engine, before, cut, after time.Duration) {
	a, b := newRegions(t, e)
	r := &running{T: t, ledger: testkit.NewLedger(t), a: a, b: b}
	if cut > time.Second { // the long form
		r.pause = 40 * time.Millisecond
	}
	r.start(a)
	if e.Name == "postgres" { // which does not replicate the tables themselves
		r.start(b)
		a.publish(t, 0, 2)
		b.publish(t, 1, 2)
	}
	b.follow(t, a)
	testkit.Eventually(t, "the tables of the other region", time.Minute, func() bool { return b.db.Migrator().HasTable("notes") })
	a.follow(t, b)
	r.start(b)
	r.start(a)
	r.start(b)

	r.run(before)
	a.relay.Cut()
	b.relay.Cut()
	r.run(cut)
	a.relay.Restore(t)
	b.relay.Restore(t)
	lag := r.lag()
	r.run(after)
	for _, w := range r.writers {
		testkit.Must(t, w.Stop())
	}
	stopped := time.Now()
	caughtUp(t, a, b)
	end := time.Since(stopped)
	rows := located(t, a.Database(), r.ledger)
	if n := located(t, b.Database(), r.ledger); n != rows {
		t.Errorf("%d rows in b, %d in a", n, rows)
	}
	reclaimed := r.ownSlots()
	replicates(t, a, b)
	t.Logf("%d rows were reported, %d are in both databases; %d processes were killed, and %d slots reclaimed; the rows of %v"+
		" without connections came within %v, and the last ones within %v",
		r.ledger.Len(), rows, r.kills, reclaimed, cut, lag.Round(time.Millisecond), end.Round(time.Millisecond))
	if reclaimed == 0 {
		t.Error("no slot was reclaimed, so this has not shown which ones are")
	}
}

// running is processes of two regions.
type running struct {
	*testing.T
	ledger  *testkit.Ledger
	a, b    *region
	writers []*writer
	kills   int
	pause   time.Duration // of processes
}

func (r *running) start(in *region) {
	r.Helper()
	n := 0
	if in == r.b {
		n = 1
	}
	r.writers = append(r.writers, in.start(r.T, r.ledger, writerTask{Region: [2]int{n, 2}, Pause: r.pause}))
}

// run replaces processes again and again.
func (r *running) run(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		r.replace()
		r.wait(min(4*time.Second, time.Until(end)))
	}
}

// wait waits, while replication must not stop.
func (r *running) wait(d time.Duration) {
	r.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		replicates(r.T, r.a, r.b)
	}
}

// replace kills the oldest process of each region, and starts others when the slots can be reclaimed. By then the
// replicated slot of the other region could be reclaimed, too, if processes ignored REGION.
func (r *running) replace() {
	for _, in := range []*region{r.a, r.b} {
		i := slices.IndexFunc(r.writers, func(w *writer) bool { return w.region == in })
		r.writers[i].Kill()
		r.writers[i].free(r.T)
		r.writers = slices.Delete(r.writers, i, i+1)
		r.kills++
	}
	r.wait(2*lead + time.Second)
	r.start(r.a)
	r.start(r.b)
}

// lag waits until each server has the last note that the other one has now, and returns how long that took.
func (r *running) lag() time.Duration {
	begin := time.Now()
	for _, in := range []*region{r.a, r.b} {
		var last int64
		testkit.Must(r, in.db.Raw("SELECT MAX(id) FROM notes").Scan(&last).Error)
		other := r.a
		if in == r.a {
			other = r.b
		}
		testkit.Eventually(r, "rows of the time without connections", 5*time.Minute, func() bool {
			var n int64
			testkit.Must(r, other.db.Table("notes").Where("id = ?", last).Count(&n).Error)
			return n > 0
		})
	}
	return time.Since(begin)
}

// ownSlots fails the test if a process has held a slot of another region. It returns how many slots were reclaimed.
func (r *running) ownSlots() (reclaimed int) {
	holder := map[int64]string{}
	var sessions []struct {
		Slot int64  `gorm:"column:SLOT"`
		Port string `gorm:"column:PORT"`
	}
	testkit.Must(r, r.b.db.Table("WORKER_SESSION").Find(&sessions).Error)
	again := map[int64]bool{}
	for _, s := range sessions {
		if name, _, _ := strings.Cut(s.Port, "-"); s.Slot%2 != int64(name[0]-'a') {
			r.Errorf("the process %s has held slot %d", s.Port, s.Slot)
		}
		if first, ok := holder[s.Slot]; ok && first != s.Port {
			again[s.Slot] = true
		}
		holder[s.Slot] = s.Port
	}
	for _, s := range harness.Slots(r.T, r.b.db) {
		if s.Region != s.ID%2 {
			r.Errorf("slot %d is of region %d", s.ID, s.Region)
		}
	}
	return len(again)
}

// Without regions, or with one region twice, ids meet and replication stops. So the test above is able to fail.
func TestRegions_ControlWithoutThem(t *testing.T) {
	t.Parallel()
	for name, region := range map[string][2]int{"not divided": {}, "the same": {0, 2}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b := newRegions(t, testkit.MariaDB())
			ledger := &testkit.Ledger{}
			task := writerTask{Region: region, Pause: 20 * time.Millisecond}
			writers := []*writer{a.start(t, ledger, task), b.start(t, ledger, task)}
			testkit.Eventually(t, "an id that comes twice", time.Minute, func() bool { return ledger.Twice() > 0 })
			for _, w := range writers {
				testkit.Must(t, w.Stop())
			}
			b.follow(t, a)
			testkit.Eventually(t, "the end of replication", time.Minute, func() bool { return b.fault(t) != "" })
			t.Log(fmt.Sprint(ledger.Twice(), " of ", ledger.Len(), " ids came twice; ", b.fault(t)))
		})
	}
}

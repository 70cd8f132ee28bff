package integration_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// The database is unreachable and comes back: ids go on until what was granted is used up, then creates fail at once
// with the database's own reason. Afterwards all is well without a restart.
func TestOutage_OfTheConnections(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		db, away, back := relayed(t, d)
		j := &journal{}
		p := use(t, db, j.option(), uidplugin.WithLead(2*time.Second), uidplugin.WithModels(&T1{}))
		cause := "connection refused"
		if d.name == "sqlite" {
			cause = errShut.Error()
		}
		outage(t, p, j, cause, away, back)
	})
}

// The same with a server that is killed and started again.
func TestOutage_OfTheServer(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a server")
	}
	t.Parallel()
	if os.Getenv("UID_TEST_MARIADB") == "" {
		t.Skip("UID_TEST_MARIADB is not set: no mariadb")
	}
	server(t, "mariadb", func(d *database, run func(command string)) {
		j := &journal{}
		p := use(t, open(t, d), j.option(), uidplugin.WithLead(2*time.Second), uidplugin.WithModels(&T1{}))
		outage(t, p, j, "connection refused", func() { run("kill") }, func() { run("start") })
	})
}

// server runs a test with a server of its own, and its commands in servers.sh.
func server(t *testing.T, name string, test func(d *database, run func(command string))) {
	t.Helper()
	out, err := exec.Command("./servers.sh", "up", name).Output()
	if err != nil {
		t.Skipf("servers.sh up %s: %v", name, err)
	}
	env := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			env[key] = strings.Trim(value, "'")
		}
	}
	key := "UID_TEST_" + strings.ToUpper(name)
	run := func(command string) {
		if out, err := exec.Command("./servers.sh", command, env[key+"_DIR"]).CombinedOutput(); err != nil {
			t.Fatalf("servers.sh %s: %v\n%s", command, err, out)
		}
	}
	t.Cleanup(func() { run("down") })
	own := fmt.Sprintf("%s_OWN_%d", key, serial.Add(1))
	must(t, os.Setenv(own, env[key]))
	test(&database{engine: engine{name: name, env: own}}, run)
}

// outage makes the database of a plugin unreachable, and brings it back.
func outage(t *testing.T, p *uidplugin.Plugin, j *journal, cause string, away, back func()) {
	t.Helper()
	ledger := testkit.NewLedger(t)
	take := func() error {
		id, err := nextID(p)
		if err == nil {
			ledger.Add("t1", id)
		}
		return err
	}
	for begin := time.Now(); time.Since(begin) < 300*time.Millisecond; time.Sleep(5 * time.Millisecond) {
		must(t, take())
	}
	must(t, p.Health())
	away()
	until := p.Stats().Tables[0].Until
	for time.Now().Before(until) {
		if err := take(); err != nil {
			if left := time.Until(until); left > 0 {
				t.Fatalf("no id, %v before the lease ends: %v", left, err)
			}
			break
		}
		time.Sleep(time.Millisecond)
	}
	var err error
	for begin := time.Now(); err == nil && time.Since(begin) < 10*time.Second; {
		err = take()
	}
	says(t, err, generator.ErrLeaseExpired, "t1", cause)
	for begin := time.Now(); time.Since(begin) < 700*time.Millisecond; time.Sleep(20 * time.Millisecond) {
		if take() == nil {
			t.Error("an id though the lease was used up")
		}
	}
	says(t, p.Health(), nil, "could not be renewed since", cause)
	if s := p.Stats().Slot; s.LastError == nil || s.Since.IsZero() {
		t.Errorf("the statistics show no error: %+v", s)
	}

	back()
	eventually(t, 5*time.Second, "id after the return", func() bool { return take() == nil })
	eventually(t, 5*time.Second, "health after the return", func() bool { return p.Health() == nil })
	j.saysOnce(t, "cannot be renewed")
	j.saysOnce(t, "is renewed again")
	if s := p.Stats().Slot; s.LastError != nil || s.Lost != 0 || s.LostCommits != 0 {
		t.Errorf("after the return: %+v", s)
	}
	ids := ledger.Tables()
	for id := range ids {
		resolves(t, p, "t1", "", id)
		break
	}
}

// The database is unreachable: exactly the ids of the ticks that were granted can be made. Then creates fail at once,
// with the database's reason. With the database there they go on.
func TestOutage_UsesUpExactlyWhatWasGranted(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		for _, away := range []bool{true, false} {
			db, tap := tapped(t, fresh(t, d.engine))
			c := newMovedClock(0)
			p := use(t, db, uidplugin.WithLayout(small(4)), uidplugin.WithLead(4*time.Second), uidplugin.WithModels(&T1{}),
				uidplugin.WithClock(c.now))
			s := p.Stats().Tables[0]
			want := int(s.Until.Sub(s.From)/time.Second) * 16
			if away {
				tap.shut.Store(true)
				c.move(2 * time.Second) // so that a renewal moves the fence
				want -= 2 * 16
				eventually(t, 5*time.Second, "renewal that fails", func() bool { return p.Health() != nil })
			}
			got := 0
			var err error
			for ; err == nil && got < want+50; got++ {
				if !away && got%10 == 0 { // a tick has 16
					c.move(time.Second)
				}
				_, err = nextID(p)
			}
			if !away {
				if err != nil {
					t.Errorf("the control: with the database there, after %d of %d ids: %v", got-1, want, err)
				}
				continue
			}
			got--
			says(t, err, generator.ErrLeaseExpired, "t1")
			says(t, err, errShut)
			if got > want || got <= want-16 { // a part of the present tick has passed
				t.Errorf("%d ids, and %d were granted: %+v", got, want, s)
			}
			tap.shut.Store(false)
			c.move(time.Minute)
			eventually(t, 5*time.Second, "id after the return", func() bool { _, err := nextID(p); return err == nil })
		}
	})
}

// A table whose creates fail for longer than an idle process is renewed is not taken for one that is well.
func TestOutage_LongOneStaysVisible(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		db, tap := tapped(t, d)
		c, j := newMovedClock(0), &journal{}
		p := use(t, db, uidplugin.WithClock(c.now), j.option(), uidplugin.WithLayout(small(2)), uidplugin.WithModels(&T1{}))
		tap.shut.Store(true)
		defer tap.shut.Store(false)
		c.move(time.Hour + time.Minute)
		var err error
		for err == nil {
			_, err = nextID(p)
		}
		says(t, err, generator.ErrLeaseExpired, errShut.Error())
		c.move(11 * time.Minute)
		for begin := time.Now(); time.Since(begin) < 1500*time.Millisecond; time.Sleep(10 * time.Millisecond) {
			if p.Health() == nil {
				t.Fatalf("the plugin is well, though the database is unreachable:\n%s", j)
			}
		}
		j.saysOnce(t, "cannot be renewed")
	})
}

// A plugin that is used always has ids for more than half of the lead.
func TestRenewals_ComeEarly(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		p := use(t, open(t, d), uidplugin.WithModels(&T1{}), uidplugin.WithLead(6*time.Second))
		first := p.Stats().Tables[0].Until
		for begin := time.Now(); time.Since(begin) < 5*time.Second; time.Sleep(20 * time.Millisecond) {
			_, err := nextID(p)
			must(t, err)
			if left := time.Until(p.Stats().Tables[0].Until); left < 2*time.Second {
				t.Fatalf("a lease ends in %v", left)
			}
		}
		if s := p.Stats(); !s.Tables[0].Until.After(first) || s.Slot.Renewals < 2 || s.Slot.Sessions != 1 {
			t.Errorf("not renewed: %+v", s)
		}
	}, "sqlite", "mariadb", "postgres")
}

// With a pool of one, callers in transactions that need ids all the time leave the lease manager its turn. A
// transaction that holds the only connection until its ids are used up gets an error, not a deadlock.
func TestOutage_OfAPoolOfOne(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		db := open(t, d)
		must(t, db.AutoMigrate(&T1{}))
		pool, err := db.DB()
		must(t, err)
		pool.SetMaxOpenConns(1)
		p := use(t, db, uidplugin.WithModels(&T1{}), uidplugin.WithLead(2*time.Second), uidplugin.WithTimeout(time.Second))
		ledger := testkit.NewLedger(t)
		enough := func() bool { return p.Stats().Slot.Renewals >= 4 }
		for begin := time.Now(); !enough() && time.Since(begin) < 20*time.Second; {
			must(t, db.Transaction(func(tx *gorm.DB) error {
				row := T1{}
				if err := tx.Create(&row).Error; err != nil {
					return err
				}
				ledger.Add("t1", row.ID.Int64())
				time.Sleep(10 * time.Millisecond)
				return nil
			}))
		}
		if !enough() {
			t.Errorf("%d ids without renewals: %+v", ledger.Len(), p.Stats().Slot)
		}
		begin := time.Now()
		err = db.Transaction(func(tx *gorm.DB) error {
			for time.Since(begin) < 20*time.Second {
				row := T1{}
				if err := tx.Create(&row).Error; err != nil {
					return err
				}
				ledger.Add("t1", row.ID.Int64())
				time.Sleep(time.Millisecond)
			}
			return nil
		})
		says(t, err, generator.ErrLeaseExpired, "t1")
		if took := time.Since(begin); took > 15*time.Second {
			t.Errorf("the transaction took %v to fail", took)
		}
		eventually(t, 5*time.Second, "row after the transaction", func() bool { return db.Create(&T1{}).Error == nil })
	})
}

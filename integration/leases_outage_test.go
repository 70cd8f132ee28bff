package integration_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"gorm.io/gorm"
)

// The database goes away and comes back: ids go on until the lease ends and then fail
// with the cause; afterwards all is well by itself. The clock runs faster, so that
// the 20 seconds of a lease are 2.
func TestLeasesWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		db, away, back := relayed(t, d)
		c, j := newMovedClock(10), &journal{}
		if d.name == "sqlite" {
			c = newMovedClock(600) // its leases are of 10 minutes and more
		}
		p := use(t, db, uidplugin.WithClock(c.now), j.option(), uidplugin.WithLayout(small(8)), uidplugin.WithModels(&T1{}))
		cause := "connection refused"
		if d.name == "sqlite" {
			cause = errValve.Error()
		}
		outage(t, p, c, j, cause, away, back)
	})
}

// The same with a server that is killed and started again.
func TestLeasesWhileTheServerIsDead(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a server")
	}
	t.Parallel()
	if os.Getenv("UID_TEST_MARIADB") == "" {
		t.Skip("UID_TEST_MARIADB is not set: no mariadb")
	}
	server(t, "mariadb", func(d *database, run func(command string)) {
		c, j := newMovedClock(10), &journal{}
		p := use(t, open(t, d), uidplugin.WithClock(c.now), j.option(), uidplugin.WithLayout(small(8)), uidplugin.WithModels(&T1{}))
		outage(t, p, c, j, "connection refused", func() { run("kill") }, func() { run("start") })
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

// outage takes the database of a plugin away and brings it back.
func outage(t *testing.T, p *uidplugin.Plugin, c *movedClock, j *journal, cause string, away, back func()) {
	t.Helper()
	var all used
	take := func() error {
		id, err := nextID(p)
		if err == nil {
			all.add(t, id, "the plugin")
		}
		return err
	}
	for begin := time.Now(); time.Since(begin) < 300*time.Millisecond; time.Sleep(5 * time.Millisecond) {
		must(t, take())
	}
	must(t, p.Health())
	away()
	until := p.Stats().Tables[0].Until
	if left := until.Sub(c.now()); left > 21*time.Second && c.factor == 10 || left > time.Hour+time.Minute {
		t.Errorf("ids may be made for another %v", left)
	}
	for c.now().Before(until) {
		if err := take(); err != nil {
			if now := c.now(); now.Before(until) {
				t.Fatalf("no id, %v before the lease ends: %v", until.Sub(now), err)
			}
			break
		}
		time.Sleep(2 * time.Millisecond)
	}
	// What is left of the last ticks is used up.
	var err error
	for begin := time.Now(); err == nil && time.Since(begin) < 10*time.Second; {
		err = take()
	}
	says(t, err, generator.ErrLeaseExpired, "t1", cause)
	if begin := time.Now(); !errors.Is(take(), generator.ErrLeaseExpired) || time.Since(begin) > time.Second {
		t.Errorf("the next one takes %v to fail", time.Since(begin))
	}
	for begin := time.Now(); time.Since(begin) < 700*time.Millisecond; time.Sleep(20 * time.Millisecond) {
		if take() == nil {
			t.Error("an id though the lease was used up")
		}
	}
	says(t, p.Health(), nil, "could not be renewed since", cause)
	if s := p.Stats().Leases; s.LastError == nil || s.Since.IsZero() {
		t.Errorf("the statistics tell of no error: %+v", s)
	}

	back()
	begin := time.Now()
	eventually(t, 5*time.Second, "id after the return", func() bool { return take() == nil })
	if took := time.Since(begin); took > 3*time.Second {
		t.Errorf("the first id came %v after the return, not within a second", took)
	}
	eventually(t, 2*time.Second, "health after the return", func() bool { return p.Health() == nil })
	j.saysOnce(t, "worker ids cannot be renewed")
	j.saysOnce(t, "worker ids are renewed again")
	if s := p.Stats().Leases; s.LastError != nil || s.Lost != 0 || s.Regressed != 0 {
		t.Errorf("after the return: %+v", s)
	}
}

// A table whose creates fail for longer than one that nobody uses is renewed, is not
// taken for one that is well.
func TestLongOutage(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		db, v := valved(t, d)
		c, j := newMovedClock(0), &journal{}
		p := use(t, db, uidplugin.WithClock(c.now), j.option(), uidplugin.WithLayout(small(2)), uidplugin.WithModels(&T1{}))
		v.shut.Store(true)
		defer v.shut.Store(false)
		c.move(time.Hour + time.Minute)
		var err error
		for err == nil {
			_, err = nextID(p)
		}
		says(t, err, generator.ErrLeaseExpired, errValve.Error())
		time.Sleep(time.Second) // until it has been seen that ids were taken
		c.move(11 * time.Minute)
		for begin := time.Now(); time.Since(begin) < 1500*time.Millisecond; time.Sleep(10 * time.Millisecond) {
			if p.Health() == nil {
				t.Fatalf("the plugin is well, though the database is away:\n%s", j)
			}
		}
		j.saysOnce(t, "worker ids cannot be renewed")
	})
}

// A plugin that is used has ids for at least 13 seconds at any moment.
func TestLeasesAreRenewedEarly(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		p := use(t, open(t, d), uidplugin.WithModels(&T1{}))
		first := p.Stats().Tables[0].Until
		for begin := time.Now(); time.Since(begin) < 8*time.Second; time.Sleep(20 * time.Millisecond) {
			_, err := nextID(p)
			must(t, err)
			// Half a second is for machines that are busy.
			if left := time.Until(p.Stats().Tables[0].Until); left < 12500*time.Millisecond {
				t.Fatalf("a lease ends in %v", left)
			}
		}
		if s := p.Stats(); !s.Tables[0].Until.After(first) || s.Leases.Renewed == 0 {
			t.Errorf("not renewed: %+v", s)
		}
	}, "mariadb")
}

// With a pool of one, callers in transactions that need ids all the time leave the
// keeper its turn.
func TestLeasesWithAPoolOfOne(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		db := open(t, d)
		must(t, db.AutoMigrate(&T1{}))
		pool, err := db.DB()
		must(t, err)
		pool.SetMaxOpenConns(1)
		c, layout := newMovedClock(10), small(8)
		if d.name == "sqlite" {
			c, layout = newMovedClock(100), small(4)
		}
		p := use(t, db, uidplugin.WithClock(c.now), uidplugin.WithLayout(layout), uidplugin.WithModels(&T1{}), uidplugin.WithMaxLanes(1),
			uidplugin.WithTimeout(time.Second))
		var all used
		enough := func() bool { return p.Stats().Leases.Renewed >= 4 }
		for begin := time.Now(); !enough() && time.Since(begin) < 10*time.Second; {
			must(t, db.Transaction(func(tx *gorm.DB) error {
				// So many that less than half of the lease is left.
				for s := p.Stats().Tables[0]; s.Lead < s.Until.Sub(c.now())*6/10; s = p.Stats().Tables[0] {
					for range 20 {
						id, err := nextID(p)
						if err != nil {
							return err
						}
						all.add(t, id, "the plugin")
					}
				}
				row := T1{}
				if err := tx.Create(&row).Error; err != nil {
					return err
				}
				all.add(t, row.ID.Int64(), "the plugin")
				time.Sleep(10 * time.Millisecond)
				return nil
			}))
		}
		if !enough() {
			t.Errorf("%d ids without renewals: %+v", len(all.ids), p.Stats().Leases)
		}

		// A transaction that holds the only connection until its ids are used up gets an
		// error, not a deadlock; then all goes on.
		begin := time.Now()
		err = db.Transaction(func(tx *gorm.DB) error {
			for time.Since(begin) < 20*time.Second {
				if _, err := nextID(p); err != nil {
					return err
				}
			}
			return nil
		})
		says(t, err, generator.ErrLeaseExpired, "t1")
		if took := time.Since(begin); took > 9*time.Second {
			t.Errorf("the transaction took %v to fail", took)
		}
		begin = time.Now()
		eventually(t, 5*time.Second, "row after the transaction", func() bool { return db.Create(&T1{}).Error == nil })
		if took := time.Since(begin); took > 3*time.Second {
			t.Errorf("the next row came %v later, not within a second", took)
		}
	})
}

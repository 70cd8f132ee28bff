package outage_test

import (
	"context"
	"errors"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/inspector"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// The database is unreachable and comes back: ids go on until what was granted is used up, then creates fail at once
// with the database's own reason. Afterwards all is well without a restart.
func TestOutage_OfTheConnections(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db, away, back := testkit.OpenBreakable(t, d)
		j := &testkit.Log{}
		p := harness.Use(t, db, uidplugin.WithLogger(j.Logger()), uidplugin.WithLead(2*time.Second), uidplugin.WithModels(&harness.T1{}))
		cause := "connection refused"
		if d.Name == "sqlite" {
			cause = testkit.ErrShut.Error()
		}
		outage(t, db, p, j, cause, away, back)
	})
}

// The same with a server that is killed and started again.
func TestOutage_OfTheServer(t *testing.T) {
	testkit.SkipIfShort(t, "it starts a server")
	t.Parallel()
	server := testkit.MariaDB().NewServer(t)
	j := &testkit.Log{}
	db := server.Database().Open(t, nil)
	p := harness.Use(t, db, uidplugin.WithLogger(j.Logger()), uidplugin.WithLead(2*time.Second), uidplugin.WithModels(&harness.T1{}))
	outage(t, db, p, j, "connection refused", func() { server.Run(t, "kill") }, func() { server.Run(t, "start") })
}

// outage makes the database of a plugin unreachable, and brings it back. Meanwhile the first create of another table
// fails. Nothing repeats it: a process that is not ready gets no requests.
func outage(t *testing.T, db *gorm.DB, p *uidplugin.Plugin, j *testkit.Log, cause string, away, back func()) {
	t.Helper()
	ledger := testkit.NewLedger(t)
	take := func() error {
		id, err := harness.NextID(p)
		if err == nil {
			ledger.Add("t1", id)
		}
		return err
	}
	for range 50 { // again and again, because the short lease may end while a busy machine stalls
		testkit.Eventually(t, "id before the outage", time.Minute, func() bool { return take() == nil })
		time.Sleep(5 * time.Millisecond)
	}
	testkit.Eventually(t, "health before the outage", time.Minute, func() bool { return p.Health() == nil })
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
	err := harness.Refused(t, "error with the database's reason", take, func(err error) bool { return strings.Contains(err.Error(), cause) })
	testkit.IsError(t, err, generator.ErrLeaseExpired, "t1")
	for begin := time.Now(); time.Since(begin) < 700*time.Millisecond; time.Sleep(20 * time.Millisecond) {
		if take() == nil {
			t.Error("an id though the lease was used up")
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := db.WithContext(ctx).Create(&harness.T2{}).Error; err == nil {
		t.Error("a row was created while the database was unreachable")
	}
	testkit.Eventually(t, "health of the table of the failed create", time.Minute, func() bool {
		return strings.Contains(p.Health().Error(), "no worker id for table t2 since")
	})
	testkit.IsError(t, p.Health(), nil, "could not be renewed since", cause)
	if status := readiness(db); status != http.StatusServiceUnavailable {
		t.Errorf("the readiness probe answers %d in the outage", status)
	}
	if s := p.Stats().Slot; s.LastError == nil || s.Since.IsZero() {
		t.Errorf("the statistics show no error: %+v", s)
	}

	back()
	testkit.Eventually(t, "id after the return", time.Minute, func() bool { return take() == nil })
	testkit.Eventually(t, "readiness after the return", time.Minute, func() bool { return readiness(db) == http.StatusOK })
	saysBothEnds(t, j, 0)
	if s := p.Stats().Slot; s.LastError != nil || s.Lost != 0 || s.LostCommits != 0 {
		t.Errorf("after the return: %+v", s)
	}
	ids := ledger.Tables()
	for id := range ids {
		harness.Resolves(t, p, "t1", "", id)
		break
	}
}

// saysBothEnds checks that the log has one line for the beginning of each outage, and one for its end, except of the
// present ones. A busy machine adds outages: a statement has its limit of time.
func saysBothEnds(t *testing.T, j *testkit.Log, present int) {
	t.Helper()
	begun := func() int { return len(j.Lines("process cannot ")) }
	testkit.Eventually(t, "one line for each end of an outage", time.Minute, func() bool {
		return begun() > 0 && begun() == len(j.Lines("is renewed again"))+present
	})
}

// readiness returns the status of the readiness probe.
func readiness(db *gorm.DB) int {
	answer := httptest.NewRecorder()
	inspector.HealthHandler(db).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	return answer.Code
}

// The database is unreachable: exactly the ids of the ticks that were granted can be made. Then creates fail at once,
// with the database's reason. Once the database is back they continue.
func TestOutage_UsesUpExactlyWhatWasGranted(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		for _, away := range []bool{true, false} {
			db, wire := testkit.OpenWire(t, d.New(t))
			c := testkit.NewClock(time.Now())
			p := harness.Use(t, db, uidplugin.WithLayout(harness.SmallLayout(4)), uidplugin.WithModels(&harness.T1{}),
				uidplugin.WithLead(10*time.Second), uidplugin.WithClock(c.Now))
			s := p.Stats().Tables[0]
			want := int(s.Until.Sub(s.From)/time.Second) * 16
			if away {
				wire.Shut.Store(true)
				c.Add(2 * time.Second) // so that a renewal moves the fence
				want -= 2 * 16
				testkit.Eventually(t, "renewal that fails", time.Minute, func() bool { return p.Health() != nil })
			}
			got := 0
			var err error
			for ; err == nil && got < want+50; got++ {
				if !away && got%10 == 0 { // a tick has 16
					c.Add(time.Second)
				}
				if !away { // the control
					harness.MustID(t, p)
					continue
				}
				_, err = harness.NextID(p)
			}
			if !away {
				continue
			}
			got--
			testkit.IsError(t, err, generator.ErrLeaseExpired, "t1")
			testkit.IsError(t, err, testkit.ErrShut)
			if got > want || got <= want-16 { // a part of the present tick has passed
				t.Errorf("%d ids, and %d were granted: %+v", got, want, s)
			}
			wire.Shut.Store(false)
			c.Add(time.Minute)
			testkit.Eventually(t, "id after the return", time.Minute, func() bool { _, err := harness.NextID(p); return err == nil })
		}
	})
}

// If creates of a table fail for longer than an idle process is renewed, Health still reports it.
func TestOutage_LongOneStaysVisible(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db, wire := testkit.OpenWire(t, d)
		c, j, statements := testkit.NewClock(time.Now()), &testkit.Log{}, &testkit.Log{}
		db.Logger = logger.New(log.New(statements, "", 0), logger.Config{LogLevel: logger.Error})
		p := harness.Use(t, db, uidplugin.WithClock(c.Now), uidplugin.WithLogger(j.Logger()), uidplugin.WithLayout(harness.SmallLayout(2)), uidplugin.WithModels(&harness.T1{}))
		wire.Shut.Store(true)
		defer wire.Shut.Store(false)
		c.Add(time.Hour + time.Minute)
		err := harness.Refused(t, "error with the database's reason", func() error {
			_, err := harness.NextID(p)
			return err
		}, func(err error) bool { return errors.Is(err, testkit.ErrShut) })
		testkit.IsError(t, err, generator.ErrLeaseExpired)
		c.Add(11 * time.Minute)
		for begin := time.Now(); time.Since(begin) < 1500*time.Millisecond; time.Sleep(10 * time.Millisecond) {
			if p.Health() == nil {
				t.Fatalf("the plugin is well, though the database is unreachable:\n%s", j)
			}
		}
		saysBothEnds(t, j, 1)
		if n := len(statements.Lines(testkit.ErrShut.Error())); n > 2 { // those that were sent when it was shut
			t.Errorf("%d attempts are in the application's log of statements:\n%s", n, statements)
		}
	})
}

// A plugin that is used gets its next lease long before the last one ends.
func TestRenewals_ComeEarly(t *testing.T) {
	t.Parallel()
	testkit.SkipIfShort(t, "it takes five seconds")
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		p := harness.Use(t, d.Open(t, nil), uidplugin.WithModels(&harness.T1{}), uidplugin.WithLead(6*time.Second))
		until, early := p.Stats().Tables[0].Until, 0
		testkit.Eventually(t, "two leases that come early", time.Minute, func() bool { // a busy machine delays some
			harness.MustID(t, p)
			if next := p.Stats().Tables[0].Until; next.After(until) {
				if time.Until(until) > 2*time.Second {
					early++
				}
				until = next
			}
			return early == 2
		})
		if s := p.Stats(); s.Slot.Renewals < 2 || s.Slot.Sessions != 1 {
			t.Errorf("not renewed: %+v", s)
		}
	}, "sqlite", "mariadb", "postgres")
}

// With a pool of one, callers in transactions that need ids all the time leave the lease manager its turn. A
// transaction that holds the only connection until its ids are used up gets an error, not a deadlock.
func TestOutage_OfAPoolOfOne(t *testing.T) {
	t.Parallel()
	testkit.SkipIfShort(t, "it takes four seconds")
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		testkit.Must(t, db.AutoMigrate(&harness.T1{}))
		pool, err := db.DB()
		testkit.Must(t, err)
		pool.SetMaxOpenConns(1)
		p := harness.Use(t, db, uidplugin.WithModels(&harness.T1{}), uidplugin.WithLead(2*time.Second))
		ledger := testkit.NewLedger(t)
		enough := func() bool { return p.Stats().Slot.Renewals >= 4 }
		for begin := time.Now(); !enough() && time.Since(begin) < time.Minute; {
			err := db.Transaction(func(tx *gorm.DB) error {
				row := harness.T1{}
				if err := tx.Create(&row).Error; err != nil {
					return err
				}
				ledger.Add("t1", int64(row.ID))
				time.Sleep(10 * time.Millisecond)
				return nil
			})
			if err != nil && !errors.Is(err, generator.ErrLeaseExpired) { // it may end while a busy machine stalls
				t.Fatal(err)
			}
		}
		if !enough() {
			t.Errorf("%d ids without renewals: %+v", ledger.Len(), p.Stats().Slot)
		}
		// One a millisecond, so for 15 s on a machine that does not stand still meanwhile.
		const most = 15_000
		err = db.Transaction(func(tx *gorm.DB) error {
			for range most {
				row := harness.T1{}
				if err := tx.Create(&row).Error; err != nil {
					return err
				}
				ledger.Add("t1", int64(row.ID))
				time.Sleep(time.Millisecond)
			}
			return nil
		})
		testkit.IsError(t, err, generator.ErrLeaseExpired, "t1")
		testkit.Eventually(t, "row after the transaction", time.Minute, func() bool { return db.Create(&harness.T1{}).Error == nil })
	})
}

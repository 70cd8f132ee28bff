package workernode_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
)

// A settable clock is one whose wall clock is set while the monotonic one goes on, as when somebody sets the time of a
// machine.
type settable struct{ ahead atomic.Int64 } // in seconds

// now is time.Now with the seconds added to the bits of the wall clock, which a time with a monotonic reading has from
// bit 30 on.
func (s *settable) now() time.Time {
	t := time.Now()
	*(*uint64)(unsafe.Pointer(&t)) += uint64(s.ahead.Load()) << 30
	return t
}

// A wall clock that is set neither stops the renewals of a running process nor makes ids twice. If it is set ahead, ids
// follow it, because SQLite has no clock that could object.
func TestManager_RenewsWhenTheWallClockIsSet(t *testing.T) {
	t.Parallel() // and not in a bubble, where times have no monotonic reading

	s := &settable{}
	before := s.now()
	s.ahead.Store(3600)
	if after := s.now(); after.Sub(before) > time.Minute || after.Round(0).Sub(before.Round(0)) < 59*time.Minute {
		t.Fatalf("time.Time is not built as this test expects: %v, %v", after.Sub(before), after.Round(0).Sub(before.Round(0)))
	}
	s.ahead.Store(0)
	w := newWorld(t)
	p := w.start(func(c *workernode.Config, _ *workernode.Host) {
		c.Now, c.MaxSkew, c.Lead = s.now, workernode.DefaultMaxSkew, time.Second
	})
	p.use(t, table("orders"), 10)
	for _, ahead := range []int64{-3600, -30, 0, 3600, 0, -3600} {
		last := p.until()
		s.ahead.Store(ahead)
		testkit.Eventually(t, "a renewal", time.Minute, func() bool {
			p.use(t, table("orders"), 1)
			return p.until() > last
		})
		if st := p.Stats(); st.LastError != nil || st.ID != 1 {
			t.Fatalf("set to %+d s: %+v", ahead, st)
		}
	}
	if p.until() < layout.TickAt(before.Add(time.Hour)) {
		t.Error("ids have not followed the clock")
	}
	w.check()
}

// A clock that differs from the database's by hours would leave ids with a wrong time, and a fence that stands in the
// way when it is set right.
func TestDBCheckClock_ComparesWithTheDatabase(t *testing.T) {
	t.Parallel()

	here := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		theirs time.Time
		skew   time.Duration
		ok     bool
	}{
		{here, time.Minute, true},
		{here.Add(-time.Minute), time.Minute, true},
		{here.Add(time.Minute), time.Minute, true},
		{here.Add(-61 * time.Second), time.Minute, false},
		{here.Add(61 * time.Second), time.Minute, false},
		{here.Add(time.Hour), 0, true},
	} {
		d, mock := mocked(t, testkit.OnMySQL)
		if tt.skew > 0 {
			mock.ExpectQuery("SELECT UNIX_TIMESTAMP()").WillReturnRows(sqlmock.NewRows([]string{"t"}).AddRow(tt.theirs.Unix()))
		}
		err := d.CheckClock(t.Context(), func() time.Time { return here }, tt.skew)
		if (err == nil) != tt.ok || err != nil && !errors.Is(err, workernode.ErrClock) {
			t.Errorf("%v: %v", tt, err)
		}
		if err != nil {
			saysAll(t, err.Error(), "2026-06-01 12:00:00", tt.theirs.Format(time.DateTime))
		}
	}
}

// A process whose clock is a minute behind loses its slot again and again, so the log must name the clock.
func TestManager_LogsAClockThatDiffers(t *testing.T) {
	t.Parallel()

	here := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		ahead time.Duration // of the database's clock
		says  string
	}{{0, ""}, {time.Second, ""}, {-time.Second, ""}, {30 * time.Second, "behind=30s"}, {-2 * time.Second, "behind=-2s"}} {
		d, mock := mocked(t, testkit.OnMySQL)
		mock.ExpectQuery("SELECT UNIX_TIMESTAMP()").WillReturnRows(sqlmock.NewRows([]string{"t"}).AddRow(here.Add(tt.ahead).Unix()))
		var log testkit.Log
		must(t, workernode.CheckClock(t.Context(), d, func() time.Time { return here }, log.Logger()))
		if text := log.String(); !strings.Contains(text, tt.says) || (tt.says == "") != (text == "") {
			t.Errorf("%v: %s", tt.ahead, text)
		}
	}
}

// Two machines slept for an hour, and the clock of the database's was set a minute later. Formerly the process never
// asked the database again, so its ids stayed an hour behind, and others took its slots.
func TestManager_FollowsAClockThatTheDatabaseConfirmsLater(t *testing.T) {
	t.Parallel()

	s, log := &settable{}, &testkit.Log{}
	d, mock := mocked(t, testkit.OnMySQL)
	theirs := func(ahead time.Duration) {
		at := time.Now().Add(ahead).Unix()
		mock.ExpectQuery("SELECT UNIX_TIMESTAMP()").WillReturnRows(sqlmock.NewRows([]string{"t"}).AddRow(at))
	}
	c := workernode.NewClockCheck(d, s.now, log.Logger())
	theirs(0)
	must(t, c.Check(t.Context()))
	s.ahead.Store(3600)
	theirs(0)
	for range 3 { // it asks once
		must(t, c.Check(t.Context()))
	}
	c.Pass(time.Minute)
	theirs(0)
	must(t, c.Check(t.Context()))
	if ahead := time.Until(c.Now()); ahead > time.Minute {
		t.Fatalf("the process follows a clock that is %v ahead of the database's", ahead)
	}
	c.Pass(time.Minute)
	theirs(time.Hour)
	must(t, c.Check(t.Context()))
	if ahead := time.Until(c.Now()); ahead < 59*time.Minute {
		t.Errorf("the process is %v ahead, and the wall clock an hour", ahead)
	}
	log.SaysOnce(t, "ids do not follow it")
	log.SaysOnce(t, "ids follow it")
	must(t, mock.ExpectationsWereMet())
}

// A database whose clock cannot be read is no reason to take the process's for right.
func TestDBClock_ReturnsTheErrorOfTheDatabase(t *testing.T) {
	t.Parallel()

	d, mock := mocked(t, testkit.OnPostgres)
	mock.ExpectQuery(`SELECT CAST(EXTRACT(EPOCH FROM CURRENT_TIMESTAMP) AS BIGINT)`).WillReturnError(sql.ErrConnDone)
	testkit.IsError(t, d.CheckClock(context.Background(), time.Now, time.Minute), sql.ErrConnDone)
	if _, ok, err := open(t, tables(t)).Clock(t.Context()); ok || err != nil {
		t.Errorf("SQLite has a clock: %v", err)
	}
}

// A machine that slept for longer than grace has lost its slot, and stamps no tick of the next holder.
func TestManager_NoticesThatTheMachineSlept(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		clock := testkit.NewClock(now())
		p := w.start(func(c *workernode.Config, _ *workernode.Host) { c.Now = clock.Now })
		go func() { // this process's clock goes on, except while it sleeps
			for {
				select {
				case <-t.Context().Done():
					return
				case <-time.After(time.Millisecond):
					clock.Add(time.Millisecond)
				}
			}
		}()
		p.use(t, table("orders"), 10)
		p.wire.Set(func(c *testkit.Crossing) error { return errors.Join(c.Sleep(5*time.Minute), c.Run()) })
		time.Sleep(70 * time.Second)
		next := w.start(nil)
		next.use(t, table("orders"), 100)
		if next.Stats().ID != 1 {
			t.Errorf("%+v", next.Stats())
		}
		p.wire.Set(nil)
		clock.Set(now())
		for range 20 {
			p.use(t, table("orders"), 10)
			next.use(t, table("orders"), 10)
			time.Sleep(100 * time.Millisecond)
		}
		if p.Stats().Lost != 1 {
			t.Errorf("%+v", p.Stats())
		}
		w.check()
	})
}

// A clock that is set must neither repeat ids nor hang: a caller gets an error within seconds where no tick can be
// granted.
func TestManager_NeitherRepeatsIDsNorHangsWhenTheClockIsSet(t *testing.T) {
	each(t, map[string]time.Duration{"stands still": 0, "back a second": -time.Second, "back an hour": -time.Hour, "ahead an hour": time.Hour}, func(t *testing.T, w *world, by time.Duration) {
		clock := testkit.NewRunningClock(now(), 1)
		var frozen atomic.Pointer[time.Time]
		p := w.start(func(c *workernode.Config, _ *workernode.Host) {
			c.Now = func() time.Time {
				if at := frozen.Load(); at != nil {
					return *at
				}
				return clock.Now()
			}
		})
		p.use(t, table("orders"), 100)
		n := 400
		if shown := clock.Add(by); by == 0 {
			frozen.Store(&shown)
			n = 4000 // more than all lanes have
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for range 100 {
			ids := make([]int64, n)
			err := p.generators[table("orders")].Fill(ctx, ids)
			if err != nil {
				if ctx.Err() != nil || by > 0 {
					t.Fatal(err)
				}
				saysAll(t, err.Error(), "clock")
				return
			}
			w.ledger.Add("orders", ids...)
			time.Sleep(10 * time.Millisecond)
		}
		if by == 0 {
			t.Error("ids came without end")
		}
		w.check()
	})
}

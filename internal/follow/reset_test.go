package follow_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/follow"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// future raises and publishes a mark that is an hour ahead.
func (e followed) future(t *testing.T) int64 {
	t.Helper()
	mark := e.id(t, -time.Hour)
	raise := fmt.Sprint("UPDATE UID_FOLLOW_GATE SET MARK = ", mark)
	switch e.f {
	case follow.MariaDB:
		raise = fmt.Sprintf("SELECT SETVAL(%s_mark, %d)", triggerOf(t, e), mark)
	case follow.Postgres:
		raise = fmt.Sprintf("SELECT setval('%s_mark', %d)", triggerOf(t, e), mark)
	}
	testkit.Must(t, e.db.Exec(raise).Error)
	publish := "UPDATE UID_FOLLOW SET PUBLISHED = ?"
	if e.f == follow.Postgres {
		publish = `UPDATE "UID_FOLLOW" SET "PUBLISHED" = ?`
	}
	testkit.Must(t, e.db.Exec(publish, mark).Error)
	return mark
}

// The table refuses rows as long as its mark is in the future, and takes them after a reset.
func TestReset_LowersAMarkInTheFuture(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		e := enable(t, d)
		mark := e.future(t)
		if s := e.status(t); s.Published != mark || s.Raised < mark || s.Ahead() < 59*time.Minute || s.Behind() > -59*time.Minute {
			t.Errorf("before: %+v", s)
		}
		if err := e.db.Create(&event{ID: e.id(t, 0)}).Error; err == nil || !strings.Contains(err.Error(), "uid_follow: too late") {
			t.Errorf("a row below the mark: %v", err)
		}
		wrong := func() time.Time { return time.Now().Add(time.Hour) }
		if err := follow.Reset(t.Context(), e.conn, "events", generator.DefaultLayout(), wrong); !errors.Is(err, workernode.ErrClock) {
			t.Errorf("with a wrong clock: %v", err)
		}
		testkit.Must(t, follow.Reset(t.Context(), e.conn, "events", generator.DefaultLayout(), time.Now))
		s := e.status(t)
		if at := s.TimeOf(s.Raised); s.Published >= s.Raised || s.Ahead() != 0 || s.Now.Sub(at) < time.Second || s.Now.Sub(at) > time.Minute {
			t.Errorf("after: %+v, raised to %v", s, at)
		}
		testkit.Must(t, e.db.Create(&event{ID: e.id(t, 0)}).Error)
		published := testkit.Advanced(t, e.mark)
		if published < s.Raised || published >= mark {
			t.Errorf("%d was published, after %d", published, s.Raised)
		}
		if err := follow.Reset(t.Context(), e.conn, "missing", generator.DefaultLayout(), time.Now); !errors.Is(err, follow.ErrNotEnabled) {
			t.Errorf("a table that is not followed: %v", err)
		}
	})
}

// A reset does not raise a mark.
func TestReset_KeepsALowMark(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		e := enable(t, d)
		testkit.Must(t, follow.Reset(t.Context(), e.conn, "events", generator.DefaultLayout(), time.Now))
		if s := e.status(t); s.Raised != 1 || s.Published >= 0 {
			t.Errorf("%+v", s)
		}
	})
}

// A round that began before a reset must not publish its mark, because the trigger may accept lower ids
// since the reset.
func TestReset_EndsRoundsThatHaveBegun(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		e := enable(t, d)
		db, wire := testkit.OpenWire(t, d)
		conn, err := sqldb.Open(db, time.Minute)
		testkit.Must(t, err)
		reset := false
		wire.Set(func(c *testkit.Crossing) error {
			if !reset && publishes(c) {
				reset = true
				testkit.Must(t, follow.Reset(t.Context(), e.conn, "events", generator.DefaultLayout(), time.Now))
			}
			return c.Run()
		})
		published, err := follow.NewMark(conn, e.table, generator.DefaultLayout(), time.Now).Advance(t.Context())
		if s := e.status(t); err != nil || published > 0 || s.Published >= 0 || !reset {
			t.Errorf("%d was published, %v; reset: %t; %+v", published, err, reset, s)
		}
	})
}

// MySQL refuses the limit of a lock in a hint. Formerly a reset that met an open transaction failed after the limit of
// a statement instead of trying again, and new writers waited behind it meanwhile.
func TestReset_WaitsTwoSecondsAtATime(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		e := enable(t, d)
		log := &gormLog{Interface: logger.Discard}
		conn, err := sqldb.Open(d.Open(t, &gorm.Config{Logger: log}), time.Minute)
		testkit.Must(t, err)
		e.future(t)
		tx := e.db.Begin()
		defer tx.Rollback()
		testkit.Must(t, tx.Create(&event{ID: e.id(t, -2*time.Hour)}).Error)
		ended := make(chan error)
		go func() { ended <- follow.Reset(t.Context(), conn, "events", generator.DefaultLayout(), time.Now) }()
		testkit.Eventually(t, "the reset gives up once", time.Minute, func() bool { return strings.Contains(log.String(), "Error 1205") })
		testkit.Must(t, tx.Commit().Error)
		testkit.Must(t, <-ended)
	}, "mysql")
}

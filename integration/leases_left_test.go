package integration_test

import (
	"bytes"
	"context"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"gorm.io/gorm"
)

// These tests count goroutines, so they do not run next to others.

// goroutines returns those that run code of the library or of a pool.
func goroutines() (stacks []string) {
	buf := make([]byte, 1<<22)
	for stack := range bytes.SplitSeq(buf[:runtime.Stack(buf, true)], []byte("\n\n")) {
		s := string(stack)
		_, s, _ = strings.Cut(s, "\n") // without the number
		if strings.Contains(s, "testing.(*T).") {
			continue
		}
		for _, mark := range []string{"uidplugin/workernode.", "uidplugin/generator.", "uidplugin/uidplugin.", "database/sql.", "go-sql-driver", "jackc/pgx"} {
			if strings.Contains(s, mark) {
				stacks = append(stacks, s)
				break
			}
		}
	}
	return stacks
}

// unchanged fails unless there are as many goroutines as before again, within limit.
func unchanged(t *testing.T, before []string, limit time.Duration) {
	t.Helper()
	var now []string
	for begin := time.Now(); time.Since(begin) < limit; time.Sleep(10 * time.Millisecond) {
		if now = goroutines(); len(now) <= len(before) {
			return
		}
	}
	t.Errorf("%d goroutines, %d before:\n%s", len(now), len(before), strings.Join(now, "\n\n"))
}

// sequential runs a test on all engines, or on those named, one after the other.
func sequential(t *testing.T, test func(t *testing.T, d *database), only ...string) {
	for _, e := range engines {
		if len(only) > 0 && !slices.Contains(only, e.name) {
			continue
		}
		t.Run(e.name, func(t *testing.T) {
			if !e.here() {
				t.Skipf("%s is not set: no %s", e.env, e.name)
			}
			test(t, fresh(t, e))
		})
	}
}

// connections returns how many connections the server has to a database, or of an
// application's name on PostgreSQL.
func connections(t *testing.T, admin *gorm.DB, d *database) (n int64) {
	t.Helper()
	query := "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE DB = ?"
	if d.name == "postgres" {
		query = "SELECT COUNT(*) FROM pg_stat_activity WHERE application_name = ?"
	}
	must(t, admin.Raw(query, d.schema).Scan(&n).Error)
	return n
}

// After Close of many plugins and their pools nothing is left: no goroutine, no
// connection, no slot that is held.
func TestLeasesLeaveNothingBehind(t *testing.T) {
	sequential(t, func(t *testing.T, d *database) {
		admin := open(t, &database{engine: d.engine, schema: map[bool]string{true: d.schema}[d.name == "sqlite"]})
		must(t, admin.Exec("SELECT 1").Error)
		before := goroutines()
		n := 20
		if d.name == "sqlite" {
			n = 5
		}
		var params []string
		if d.name == "postgres" {
			params = append(params, "application_name="+d.schema)
		}
		for range n {
			db, err := d.connect(nil, params...)
			must(t, err)
			p := uidplugin.New(quiet, uidplugin.WithModels(&T1{}, &T2{}, &T5{}))
			must(t, db.Use(p))
			_, err = nextID(p)
			must(t, err)
			_, err = p.NextID(t.Context(), &Tag{}) // not among those given
			must(t, err)
			if n := len(goroutines()); n <= len(before) {
				t.Errorf("%d goroutines with a plugin, %d before: the test counts wrong ones", n, len(before))
			}
			must(t, p.Close(t.Context()))
			pool, _ := db.DB()
			must(t, pool.Close())
		}
		unchanged(t, before, 3*time.Second)
		if d.name != "sqlite" {
			eventually(t, 3*time.Second, "end of the connections", func() bool { return connections(t, admin, d) == 0 })
		}
		all := slots(t, open(t, d))
		if len(all) != n { // a slot is free when the clock has passed its fence
			t.Errorf("%d slots, want %d", len(all), n)
		}
		for _, s := range all {
			if s.Holder != "" {
				t.Errorf("a slot was not released: %+v", s)
			}
		}
	})
}

// Who closes the pool but not the plugin leaves nothing running either.
func TestLeasesOfClosedPools(t *testing.T) {
	var databases []*database
	for _, e := range engines {
		if e.here() {
			databases = append(databases, fresh(t, e))
		}
	}
	before := goroutines()
	var plugins []*uidplugin.Plugin
	for _, d := range databases {
		db, err := d.connect(nil)
		must(t, err)
		p := uidplugin.New(quiet, uidplugin.WithModels(&T1{}), uidplugin.WithLead(2*time.Second))
		must(t, db.Use(p))
		_, err = nextID(p)
		must(t, err)
		pool, _ := db.DB()
		must(t, pool.Close())
		plugins = append(plugins, p)
	}
	unchanged(t, before, 10*time.Second)
	// Close says that the slots were not released, and does not hang.
	for i, p := range plugins {
		if err := p.Close(t.Context()); err == nil {
			t.Errorf("%s: no error, though nothing could be released", databases[i].name)
		}
	}
}

// When the lease is used up, creates on a pool that was closed fail.
func TestCreatesWithAClosedPool(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		c := newMovedClock(0)
		db, err := d.connect(nil)
		must(t, err)
		p := uidplugin.New(quiet, uidplugin.WithModels(&T1{}), uidplugin.WithClock(c.now), uidplugin.WithLayout(small(2)))
		must(t, db.Use(p))
		pool, _ := db.DB()
		must(t, pool.Close())
		c.move(2 * time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		for err == nil {
			_, err = p.NextID(ctx, &T1{})
		}
		if ctx.Err() != nil {
			t.Errorf("a create waits for a pool that is closed: %v", err)
		}
	})
}

// The same if the server dies.
func TestLeasesLeaveNothingOfADeadServer(t *testing.T) {
	if os.Getenv("UID_TEST_MARIADB") == "" || testing.Short() {
		t.Skip("no mariadb")
	}
	server(t, "mariadb", func(d *database, run func(command string)) {
		before := goroutines()
		var handles []*gorm.DB
		var plugins []*uidplugin.Plugin
		for range 5 {
			db, err := d.connect(nil)
			must(t, err)
			p := uidplugin.New(quiet, uidplugin.WithModels(&T1{}, &T2{}))
			must(t, db.Use(p))
			handles, plugins = append(handles, db), append(plugins, p)
		}
		run("kill")
		for i, p := range plugins {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			says(t, p.Close(ctx), nil, "uidplugin: close: ")
			cancel()
			pool, _ := handles[i].DB()
			_ = pool.Close()
		}
		unchanged(t, before, 3*time.Second)
	})
}

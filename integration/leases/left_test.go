package leases_test

import (
	"bytes"
	"context"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
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
		for _, mark := range []string{"github.com/uidplugin/uidplugin", "database/sql.", "go-sql-driver", "jackc/pgx"} {
			if strings.Contains(s, mark) {
				stacks = append(stacks, s)
				break
			}
		}
	}
	return stacks
}

// unchanged fails unless there are as many goroutines as before again, within a minute.
func unchanged(t *testing.T, before []string) {
	t.Helper()
	var now []string
	for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(10 * time.Millisecond) {
		if now = goroutines(); len(now) <= len(before) {
			return
		}
	}
	t.Errorf("%d goroutines, %d before:\n%s", len(now), len(before), strings.Join(now, "\n\n"))
}

// sequential runs a test on all engines, or on those named, one after the other.
func sequential(t *testing.T, test func(t *testing.T, d *testkit.Database), only ...string) {
	for _, e := range testkit.Engines() {
		if len(only) > 0 && !slices.Contains(only, e.Name) {
			continue
		}
		t.Run(e.Name, func(t *testing.T) {
			e.Need(t)
			test(t, e.New(t))
		})
	}
}

// connections returns the number of the server's connections to a database, or on PostgreSQL of an application's
// name. SQLite has no server.
func connections(t *testing.T, admin *gorm.DB, d *testkit.Database) (n int64) {
	t.Helper()
	if d.Name == "sqlite" {
		return 0
	}
	query := "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE DB = ?"
	if d.Name == "postgres" {
		query = "SELECT COUNT(*) FROM pg_stat_activity WHERE application_name = ?"
	}
	testkit.Must(t, admin.Raw(query, d.Schema).Scan(&n).Error)
	return n
}

// After many plugins and their pools were closed, no goroutine, no connection and no held slot remains.
func TestClose_LeasesLeaveNothingBehind(t *testing.T) {
	sequential(t, func(t *testing.T, d *testkit.Database) {
		admin := (&testkit.Database{Engine: d.Engine, Schema: map[bool]string{true: d.Schema}[d.Name == "sqlite"]}).Open(t, nil)
		testkit.Must(t, admin.Exec("SELECT 1").Error)
		before := goroutines()
		n := 20
		if d.Name == "sqlite" {
			n = 5
		}
		var params []string
		if d.Name == "postgres" {
			params = append(params, "application_name="+d.Schema)
		}
		for range n {
			db, err := d.Connect(nil, params...)
			testkit.Must(t, err)
			p := uidplugin.New(harness.Quiet, uidplugin.WithModels(&harness.T1{}, &harness.T2{}, &harness.T5{}))
			testkit.Must(t, db.Use(p))
			_, err = harness.NextID(p)
			testkit.Must(t, err)
			_, err = p.NextID(t.Context(), &harness.T3{}) // not among those given
			testkit.Must(t, err)
			if !strings.Contains(strings.Join(goroutines(), "\n\n"), "workernode.(*Manager).run(") {
				t.Errorf("the test does not see the lease manager")
			}
			harness.Close(t, p)
			pool, _ := db.DB()
			testkit.Must(t, pool.Close())
		}
		unchanged(t, before)
		testkit.Eventually(t, "end of the connections", time.Minute, func() bool { return connections(t, admin, d) == 0 })
		all := harness.Slots(t, d.Open(t, nil))
		if len(all) == 0 || len(all) > n { // a slot is free when the clock has passed its fence, which it does on a slow machine
			t.Errorf("%d slots, want %d at most", len(all), n)
		}
		for _, s := range all {
			if s.Held {
				t.Errorf("a slot was not released: %+v", s)
			}
		}
	})
}

// If an application closes the pool but not the plugin, nothing keeps running either.
func TestClose_LeasesOfClosedPools(t *testing.T) {
	var databases []*testkit.Database
	for _, e := range testkit.Engines() {
		if e.Available() {
			databases = append(databases, e.New(t))
		}
	}
	before := goroutines()
	var plugins []*uidplugin.Plugin
	for _, d := range databases {
		db, err := d.Connect(nil)
		testkit.Must(t, err)
		p := uidplugin.New(harness.Quiet, uidplugin.WithModels(&harness.T1{}), uidplugin.WithLead(2*time.Second))
		testkit.Must(t, db.Use(p))
		harness.MustID(t, p)
		pool, _ := db.DB()
		testkit.Must(t, pool.Close())
		plugins = append(plugins, p)
	}
	unchanged(t, before)
	// Close says that the slots were not released, and does not hang.
	for i, p := range plugins {
		if err := p.Close(t.Context()); err == nil {
			t.Errorf("%s: no error, though nothing could be released", databases[i].Name)
		}
	}
}

// After Close no goroutine, connection or held slot is left, even if the server has died.
func TestClose_LeasesLeaveNothingOfADeadServer(t *testing.T) {
	testkit.SkipIfShort(t, "it starts a server")
	server := testkit.MariaDB().NewServer(t)
	before := goroutines()
	var handles []*gorm.DB
	var plugins []*uidplugin.Plugin
	for range 5 {
		db, err := server.Database().Connect(nil)
		testkit.Must(t, err)
		p := uidplugin.New(harness.Quiet, uidplugin.WithModels(&harness.T1{}, &harness.T2{}))
		testkit.Must(t, db.Use(p))
		handles, plugins = append(handles, db), append(plugins, p)
	}
	server.Run(t, "kill")
	for i, p := range plugins {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		testkit.IsError(t, p.Close(ctx), nil, "uidplugin: close: ")
		cancel()
		pool, _ := handles[i].DB()
		_ = pool.Close()
	}
	unchanged(t, before)
}

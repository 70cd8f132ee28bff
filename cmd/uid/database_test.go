package main

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/internal/testkit"
)

// A server that takes connections and says nothing is one that cannot be reached. The command took seconds longer than
// --timeout, and said "invalid connection".
func TestConnect_EndsWhenTheServerIsSilent(t *testing.T) {
	t.Parallel()

	silent, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer func() { _ = silent.Close() }()
	for _, dsn := range []string{"mysql://u:s3cret@%/shop", "postgres://u:s3cret@%/shop?connect_timeout=1"} {
		dsn = strings.Replace(dsn, "%", silent.Addr().String(), 1)
		begin := time.Now()
		got := runner{t: t, dsn: dsn}.run("doctor", "--timeout", "100ms")
		got.want(t, exitFailed, "the database cannot be opened: no answer within 100ms")
		if took := time.Since(begin); took > time.Second {
			t.Errorf("it took %v", took)
		}
		if strings.Contains(got.err, "s3cret") || strings.Count(got.err, "\n") != 1 {
			t.Errorf("%s", got.err)
		}
	}
}

// With every error of the first read, such as one of a full disk, a command began with advice about WithRegistry.
func TestReadRegistry_NamesWithRegistryOnlyWithoutTheTable(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		r := runner{t: t, dsn: dsn(d)}
		r.run("status").want(t, exitFailed, "no id space", "WithRegistry")
		shop(t, db, "web-1")
		exec(`ALTER TABLE "WORKER_REGISTRY" RENAME COLUMN "LAYOUT" TO "L"`)(t, db)
		got := r.run("status")
		if got.want(t, exitFailed, "LAYOUT"); strings.Contains(got.err, "WithRegistry") {
			t.Errorf("%s", got.err)
		}
	})
}

// --timeout holds for every statement: a table that is locked keeps the doctor from one check, and not from its report.
func TestQuery_EndsWhenATableIsLocked(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		shop(t, db, "web-1", "first")
		pool, err := db.DB()
		must(t, err)
		conn, err := pool.Conn(t.Context())
		must(t, err)
		defer func() { _ = conn.Close() }()
		lock, unlock := "LOCK TABLES orders WRITE", "UNLOCK TABLES"
		if d.Name == "postgres" {
			lock, unlock = "BEGIN; LOCK TABLE orders IN ACCESS EXCLUSIVE MODE", "ROLLBACK"
		}
		_, err = conn.ExecContext(t.Context(), lock)
		must(t, err)
		free := time.AfterFunc(20*time.Second, func() { _ = conn.Close() }) // so that a failure ends
		defer free.Stop()
		r := runner{t: t, dsn: dsn(d)}
		r.run("doctor", "--timeout", "1s", "--ignore", strings.Join(ofServers, ",")).want(t, exitFailed,
			"not checked: keys", "orders", "no answer within 1s", "9 checks, 0 findings, 1 not done")
		_, err = conn.ExecContext(t.Context(), unlock)
		must(t, err)
	}, "mariadb", "mysql", "postgres")
}

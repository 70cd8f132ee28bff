package integration_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// A process starts while the database is away, makes ids of what its predecessor had left,
// and goes on with worker ids of its own when the database is back.
func TestStartFromALeaseFile(t *testing.T) {
	if _, err := os.Stat("/proc/sys/kernel/random/boot_id"); err != nil {
		t.Skip("this machine tells no boot id")
	}
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		file := filepath.Join(t.TempDir(), "leases.json")
		option, models := uidplugin.WithLeaseFile(file), uidplugin.WithModels(&T1{})
		var all used
		take := func(p *uidplugin.Plugin, n int, who string) {
			t.Helper()
			for range n {
				id, err := nextID(p)
				must(t, err)
				all.add(t, id, who)
			}
		}
		// All of them by one address, as a lease file is of one.
		r := newRelay(t, d.address())
		through := func() *gorm.DB {
			host, port, _ := net.SplitHostPort(r.address)
			dsn := pgAddress.ReplaceAllString(d.dsn(), "host="+host+" port="+port)
			if d.isMySQL() {
				dsn = mysqlAddress.ReplaceAllString(d.dsn(), "tcp("+r.address+")")
			}
			db, err := gorm.Open(d.dialector(dsn), &gorm.Config{Logger: logger.Discard})
			must(t, err)
			t.Cleanup(func() { _ = closed(db) })
			return db
		}
		first := use(t, through(), option, models)
		take(first, 1000, "the first process")
		worker := first.Stats().Tables[0].WorkerIDs[0]
		must(t, first.Close(t.Context()))

		db, other := through(), through()
		r.cut()
		second := use(t, db, option, models)
		take(second, 1000, "the second process, without the database")
		if got := second.Stats().Tables[0].WorkerIDs; len(got) != 1 || got[0] != worker {
			t.Errorf("worker ids %v, want what the first process had, %d", got, worker)
		}
		if err := other.Use(uidplugin.New(quiet, option, models)); !errors.Is(err, workernode.ErrLeaseFile) {
			t.Errorf("a third process: %v", err)
		}
		if err := second.Health(); err != nil {
			t.Logf("health: %v", err)
		}

		r.mend(t)
		third := use(t, open(t, d), models)
		eventually(t, 15*time.Second, "a worker id of its own", func() bool {
			take(second, 10, "the second process")
			take(third, 10, "a process that started normally")
			s := second.Stats()
			return s.Leases.Lost > 0 && s.Leases.LastError == nil && s.Tables[0].WorkerIDs[0] != third.Stats().Tables[0].WorkerIDs[0]
		})
		take(second, 1000, "the second process")
		take(third, 1000, "a process that started normally")
	}, "mariadb", "mysql", "postgres")
}

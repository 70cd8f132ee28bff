package regions_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// A region is a server with a registry of its own. The others get its changes through a relay.
type region struct {
	*testkit.Server
	name    string // a letter
	db      *gorm.DB
	relay   *testkit.Relay
	started int // processes
}

// serverOptions are the options of the server of region n. docs/regions.md has them.
func serverOptions(engine string, n int) []string {
	ignored := []string{"--replicate-ignore-table=test.WORKER_REGISTRY", "--replicate-wild-ignore-table=test.UID_FOLLOW%",
		"--replicate-ignore-table=test.UID_CURSOR",
		"--replicate-wild-ignore-table=test.uid_follow%"}
	binlog := []string{"--log-bin=binlog", "--relay-log=relay", "--binlog-format=ROW", fmt.Sprintf("--server-id=%d", n+1)}
	switch engine {
	case "mariadb":
		return slices.Concat(binlog, ignored, []string{fmt.Sprintf("--gtid-domain-id=%d", n+1), "--slave-ddl-exec-mode=STRICT"})
	case "mysql":
		return slices.Concat(binlog, ignored, []string{"--gtid-mode=ON", "--enforce-gtid-consistency=ON"})
	}
	return []string{"-c", "wal_level=logical"}
}

// An operator gets the options with which the tests run.
func TestRegions_ThePageHasTheOptions(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/regions.md")
	testkit.Must(t, err)
	for _, engine := range []string{"mariadb", "mysql"} {
		for _, option := range serverOptions(engine, 0) {
			name, value, _ := strings.Cut(strings.TrimPrefix(option, "--"), "=")
			if name != "relay-log" && !strings.Contains(string(page), "\n"+name+" = "+strings.ReplaceAll(value, "test.", "shop.")) {
				t.Errorf("the page lacks %s", option)
			}
		}
	}
}

func newRegions(t *testing.T, e testkit.Engine) (a, b *region) {
	t.Helper()
	e.Need(t)
	var both [2]*region
	done := make(chan error)
	for n := range both {
		go func() {
			s, err := e.Up("", serverOptions(e.Name, n)...)
			if err == nil {
				t.Cleanup(func() { s.Run(t, "down") })
				both[n] = &region{Server: s, name: string(rune('a' + n))}
			}
			done <- err
		}()
	}
	for range both {
		if err := <-done; err != nil {
			defer testkit.LeftOut(t, err.Error())
		}
	}
	for _, r := range both {
		if r != nil {
			r.open(t)
		}
	}
	return both[0], both[1]
}

func (r *region) open(t *testing.T) {
	t.Helper()
	r.db = r.Database().Open(t, nil)
	r.relay = testkit.NewRelay(t, r.Database().Address())
}

func (r *region) exec(t *testing.T, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if err := r.db.Exec(s).Error; err != nil {
			t.Fatalf("%s: %s: %v", r.name, s, err)
		}
	}
}

// workerTables are the tables of the plugin that are replicated, with their key.
var workerTables = map[string]string{"WORKER_NODE": "ID", "WORKER_SLOT": "ID", "WORKER_SESSION": "SLOT"}

// publish is needed on PostgreSQL before follow. The publication has the rows of a region, so that a row does not come
// back. PostgreSQL 16 needs no conditions, because its subscriptions have origin = none.
func (r *region) publish(t *testing.T, n, of int) {
	t.Helper()
	var tables []string
	for table, key := range workerTables {
		tables = append(tables, fmt.Sprintf(`"%s" WHERE ("%s" %% %d = %d)`, table, key, of, n))
	}
	for _, table := range appTables {
		tables = append(tables, fmt.Sprintf(`%s WHERE (((id >> 4) & 262143) %% %d = %d)`, table, of, n))
	}
	r.exec(t, `CREATE PUBLICATION region FOR TABLE `+strings.Join(tables, ", "))
}

// follow lets r apply the changes of from. PostgreSQL copies the rows that are there already.
func (r *region) follow(t *testing.T, from *region) {
	t.Helper()
	host, port, err := net.SplitHostPort(from.relay.Address())
	testkit.Must(t, err)
	switch r.Name {
	case "mariadb":
		r.exec(t, fmt.Sprintf("CHANGE MASTER TO MASTER_HOST = '%s', MASTER_PORT = %s, MASTER_USER = 'test', MASTER_PASSWORD = 'test',"+
			" MASTER_CONNECT_RETRY = 1, MASTER_USE_GTID = slave_pos", host, port), "START SLAVE")
	case "mysql":
		r.exec(t, fmt.Sprintf("CHANGE REPLICATION SOURCE TO SOURCE_HOST = '%s', SOURCE_PORT = %s, SOURCE_USER = 'test', SOURCE_PASSWORD = 'test',"+
			" SOURCE_CONNECT_RETRY = 1, SOURCE_RETRY_COUNT = 0, SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1", host, port), "START REPLICA")
	case "postgres":
		r.exec(t, fmt.Sprintf("CREATE SUBSCRIPTION region_%s CONNECTION 'host=%s port=%s user=test password=test dbname=test'"+
			" PUBLICATION region", r.name, host, port))
		testkit.Eventually(t, "copies of the tables", time.Minute, func() bool {
			var n int64
			testkit.Must(t, r.db.Raw("SELECT COUNT(*) FROM pg_subscription_rel WHERE srsubstate <> 'r'").Scan(&n).Error)
			return n == 0
		})
	}
}

// fault returns the error with which r has stopped applying changes, or with which PostgreSQL tries again and again.
func (r *region) fault(t *testing.T) string {
	t.Helper()
	if r.Name == "postgres" { // which counts lost connections as errors, too
		log, err := os.ReadFile(filepath.Join(r.Dir, "log"))
		testkit.Must(t, err)
		return applyError.FindString(string(log))
	}
	query := "SHOW ALL SLAVES STATUS"
	if r.Name == "mysql" {
		query = "SHOW REPLICA STATUS"
	}
	var all []map[string]any
	testkit.Must(t, r.db.Raw(query).Scan(&all).Error)
	if len(all) != 1 {
		t.Fatalf("%s: %d connections", r.name, len(all))
	}
	if code := fmt.Sprint(all[0]["Last_SQL_Errno"]); code != "0" {
		return fmt.Sprintf("%s: %s", code, all[0]["Last_SQL_Error"])
	}
	return ""
}

var applyError = regexp.MustCompile("ERROR:  (duplicate key|logical replication target) .*")

// replicates reports an error if one of them has stopped.
func replicates(t *testing.T, both ...*region) {
	t.Helper()
	for _, r := range both {
		if fault := r.fault(t); fault != "" {
			t.Fatalf("%s: replication has stopped: %s", r.name, fault)
		}
	}
}

// content returns the rows of a table as texts, sorted.
func (r *region) content(t *testing.T, table string) (all []string) {
	t.Helper()
	var rows []map[string]any
	testkit.Must(t, r.db.Table(table).Find(&rows).Error)
	for _, row := range rows {
		all = append(all, fmt.Sprint(row))
	}
	slices.Sort(all)
	return all
}

// caughtUp waits until both servers have the same rows.
func caughtUp(t *testing.T, a, b *region) {
	t.Helper()
	for _, table := range slices.Concat(appTables, []string{"WORKER_NODE", "WORKER_SLOT", "WORKER_SESSION"}) {
		for begin := time.Now(); ; time.Sleep(20 * time.Millisecond) {
			replicates(t, a, b)
			if harness.Count(t, a.db, table) == harness.Count(t, b.db, table) && slices.Equal(a.content(t, table), b.content(t, table)) {
				break
			}
			if time.Since(begin) > 2*time.Minute {
				t.Fatalf("%s: %d rows in a and %d in b", table, harness.Count(t, a.db, table), harness.Count(t, b.db, table))
			}
		}
	}
}

// located locates all rows in a database. Those of the ledger have to be there, and resolve to their process.
func located(t *testing.T, d *testkit.Database, ledger *testkit.Ledger) (rows int) {
	t.Helper()
	db := d.Open(t, nil)
	pool, err := db.DB()
	testkit.Must(t, err)
	const readers = 4
	pool.SetMaxIdleConns(readers)
	p := harness.Use(t, db, uidplugin.WithLookupOnly())
	made := ledger.Tables()
	for _, table := range appTables {
		var ids []int64
		testkit.Must(t, db.Table(table).Pluck("id", &ids).Error)
		rows += len(ids)
		var group sync.WaitGroup
		for chunk := range slices.Chunk(ids, len(ids)/readers+1) {
			group.Go(func() {
				for _, id := range chunk {
					l, err := p.Locate(t.Context(), uidplugin.ID(id))
					by, known := made[id]
					if err != nil || l.Table != table || known && by != table+" "+l.Session.Port {
						t.Errorf("the id %d of %s, made as %q, is located in %q of %q: %v", id, table, by, l.Table, l.Session.Port, err)
						return
					}
				}
			})
		}
		group.Wait()
		for _, id := range ids {
			delete(made, id)
		}
	}
	if len(made) > 0 {
		t.Errorf("%d committed rows are missing", len(made))
	}
	return rows
}

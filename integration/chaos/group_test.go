//go:build linux

package chaos_test

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

var groupFor = flag.Duration("group.for", 0, "how long TestGroup goes on; below a minute, each fault comes once")

// Processes write to all three primaries of a replication group of MySQL, of which one is killed, one is stopped until
// the others expel it, and two are stopped at once, so that the third one has no majority. In the long form two are
// also killed at once, and an operator makes the survivor a group by itself. No id is made twice, and no tick of a
// worker id has ids of two processes. Controls that write without comparing do make duplicates.
//
// It takes three minutes on two slow cores, so it runs by hand, before a release:
//
//	go test -run 'TestGroup$' -v -timeout 0 ./integration/chaos/ -group.for 1s
//	go test -run 'TestGroup$' -v -timeout 0 ./integration/chaos/ -group.for 5m
func TestGroup(t *testing.T) {
	if *groupFor == 0 {
		t.Skip("it takes three minutes; run it with -group.for 1s")
	}
	t.Parallel()
	g, length := newGroup(t), *groupFor
	if length < time.Minute {
		length = 0
	}
	if length > 0 {
		g.patience = 4 * time.Minute
	}
	g.disturb(length, 4*time.Second, func(i int) {
		if length > 0 {
			g.forced((i + 2) % 3)
		}
		g.killed(i)
	}, g.halved)
}

// A group is a cluster of Group Replication with three primaries.
type group struct {
	*cluster
	addresses []string // between the members
}

// newGroup brings three members up.
func newGroup(t *testing.T) *group {
	harness.MySQLRoot(t)
	g := &group{cluster: newCluster(t)}
	g.back = g.online
	dir := harness.MariaDBFolder(t, "group")
	for range 3 {
		g.addresses = append(g.addresses, fmt.Sprintf("127.0.0.1:%d", testkit.FreePort()))
	}
	for i, address := range g.addresses {
		n := harness.NewMySQL(t, dir, fmt.Sprintf("node%d", i+1), fmt.Sprintf("--server-id=%d", i+1), "--gtid-mode=ON",
			"--enforce-gtid-consistency=ON", "--log-bin=binlog", "--report-host=127.0.0.1", "--performance-schema-instrument=%=OFF",
			"--plugin-load-add=group_replication.so", "--group-replication-group-name=aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa",
			"--group-replication-local-address="+address, "--group-replication-group-seeds="+strings.Join(g.addresses, ","),
			"--group-replication-ip-allowlist=127.0.0.1/8", "--group-replication-single-primary-mode=OFF",
			"--group-replication-enforce-update-everywhere-checks=ON", "--group-replication-recovery-get-public-key=ON",
			"--group-replication-member-expel-timeout=0", "--group-replication-recovery-reconnect-interval=1")
		g.nodes = append(g.nodes, n)
	}
	g.nodes[0].Install(t)
	for _, n := range g.nodes[1:] {
		testkit.Must(t, os.CopyFS(n.Data(), os.DirFS(g.nodes[0].Data())))
		testkit.Must(t, os.RemoveAll(filepath.Join(n.Data(), "auto.cnf"))) // the name that MySQL gave the other server
	}
	for i, n := range g.nodes {
		testkit.Must(t, n.Start("--group-replication-start-on-boot=OFF"))
		testkit.Must(t, n.Wait(time.Minute, "SELECT 1", "1"))
		testkit.Must(t, n.Exec("CHANGE REPLICATION SOURCE TO SOURCE_USER='test', SOURCE_PASSWORD='test' FOR CHANNEL 'group_replication_recovery'",
			fmt.Sprintf("SET GLOBAL group_replication_bootstrap_group=%d", max(1-i, 0)), "START GROUP_REPLICATION",
			"SET GLOBAL group_replication_bootstrap_group=OFF"))
		if i == 0 {
			testkit.Must(t, n.Exec("CREATE DATABASE uid CHARACTER SET utf8mb4", "CREATE DATABASE control CHARACTER SET utf8mb4",
				"CREATE TABLE control.probes (id INT PRIMARY KEY AUTO_INCREMENT)"))
		}
	}
	for i := range g.nodes {
		g.online(i)
	}
	g.Logf("three members after %v", g.since())
	return g
}

const groupMembers = "SELECT COUNT(*) FROM performance_schema.replication_group_members WHERE MEMBER_STATE = 'ONLINE'"

// online waits until a node takes statements, as one of three.
func (g *group) online(i int) {
	g.Helper()
	testkit.Must(g.T, g.nodes[(i+1)%3].Wait(time.Minute, groupMembers, "3")) // a node that was stopped does not know yet that it was expelled
	testkit.Must(g.T, g.nodes[i].Wait(time.Minute, groupMembers, "3"))
	testkit.Must(g.T, g.nodes[i].Wait(time.Minute, "SELECT @@super_read_only", "0"))
}

// join starts a node that was killed. It takes no writes before it has joined. The group refuses it until it has
// expelled its former incarnation, and a refused node does not try again by itself, so join does.
func (g *group) join(i int) {
	n := g.nodes[i]
	testkit.Must(g.T, n.Start("--super-read-only=ON", "--group-replication-start-on-boot=ON"))
	testkit.Must(g.T, n.Wait(time.Minute, "SELECT 1", "1"))
	for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(time.Second) {
		if n.Wait(time.Second, groupMembers, "0") != nil {
			return
		}
		if err := g.exec(i, time.Minute, "START GROUP_REPLICATION"); err != nil {
			g.Logf("%s: %v", n.Name, err)
		}
	}
}

// killed kills a node, and lets it join again.
func (g *group) killed(i int) {
	g.nodes[i].Kill()
	g.Logf("%v: %s is killed", g.since(), g.nodes[i].Name)
	testkit.Must(g.T, g.nodes[(i+1)%3].Wait(time.Minute, "SELECT COUNT(*) FROM performance_schema.replication_group_members", "2"))
	g.join(i)
	g.online(i)
	g.cleared(i, "killed, has joined again")
	time.Sleep(time.Second)
}

// halved stops two nodes at once. The third one has no majority, and commits nothing until the two go on.
func (g *group) halved(survivor int, away time.Duration) {
	begin := time.Now()
	for i, n := range g.nodes {
		if i != survivor {
			testkit.Must(g.T, n.Pause())
		}
	}
	g.Logf("%v: all nodes but %s are stopped, and it has no majority", g.since(), g.nodes[survivor].Name)
	g.blocked(survivor)
	time.Sleep(away - time.Since(begin))
	for i, n := range g.nodes {
		if i != survivor {
			testkit.Must(g.T, n.Resume())
		}
	}
	for i := range g.nodes {
		g.online(i)
		g.cleared(i, "was one of three without majority")
	}
	time.Sleep(time.Second)
}

// forced kills two nodes at once. The third one, survivor, commits nothing until an operator makes it a group by
// itself, which takes MySQL up to a minute. Then the others join it.
func (g *group) forced(survivor int) {
	s := g.nodes[survivor]
	for i, n := range g.nodes {
		if i != survivor {
			n.Kill()
		}
	}
	g.Logf("%v: all nodes but %s are killed, and it has no majority", g.since(), s.Name)
	g.blocked(survivor)
	testkit.Must(g.T, g.exec(survivor, 3*time.Minute, "SET GLOBAL group_replication_force_members = '"+g.addresses[survivor]+"'"))
	testkit.Must(g.T, s.Exec("SET GLOBAL group_replication_force_members = ''"))
	g.cleared(survivor, "without majority, was told that it is the group")
	for i := range g.nodes {
		if i != survivor {
			g.join(i)
		}
	}
	for i := range g.nodes {
		g.online(i)
		g.cleared(i, "is one of three again")
	}
	time.Sleep(2 * time.Second)
}

// blocked checks that a node without majority commits nothing.
func (g *group) blocked(i int) {
	if err := g.exec(i, 4*time.Second, "INSERT INTO probes VALUES (NULL)"); err == nil {
		g.Error("a node without majority commits")
	}
}

// exec executes a statement that may take long.
func (g *group) exec(i int, limit time.Duration, statement string) error {
	db, err := sql.Open("mysql", g.dsn(i, "control"))
	testkit.Must(g.T, err)
	defer db.Close()
	ctx, cancel := context.WithTimeout(g.Context(), limit)
	defer cancel()
	_, err = db.ExecContext(ctx, statement)
	return err
}

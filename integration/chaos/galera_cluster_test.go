//go:build linux

package chaos_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// A galera is a cluster of Galera.
type galera struct{ *cluster }

// galeraTransfer copies the data of a node to one that joins, on one machine. The server's own scripts need more
// programs, and a package that starts a server for the whole system.
const galeraTransfer = `#!/usr/bin/env bash
set -eu
bypass='' role='' address='' data='' gtid='' domain='' parent=''
while [ $# -gt 0 ]; do
  case $1 in
  --role) role=$2 ;;
  --address) address=$2 ;;
  --datadir) data=${2%/} ;;
  --gtid) gtid=$2 ;;
  --gtid-domain-id) domain=$2 ;;
  --parent) parent=$2 ;;
  --bypass) bypass=1 ;;
  --mysqld-args) break ;;
  esac
  shift
done
if [ "$role" = joiner ]; then
  rm -f "$data/transferred"
  echo "ready ${address%%/*}$data"
  until [ -e "$data/transferred" ]; do
    kill -0 "$parent"
    sleep 0.05
  done
  cat "$data/transferred"
  exit
fi
to=/${address#*/}
state="$gtid $domain"
if [ -z "$bypass" ]; then
  flushed=$data/tables_flushed
  rm -f "$flushed"
  echo 'flush tables'
  until grep -qs : "$flushed"; do
    [ ! -e "$data/sst_error" ] || exit 255
    sleep 0.02
  done
  state=$(cat "$flushed")
  rm "$flushed"
  find "$to" -mindepth 1 -maxdepth 1 ! -name grastate.dat ! -name gvwstate.dat ! -name 'galera.*' ! -name '*.pid' ! -name s.sock \
    ! -name 'wsrep*' ! -name 'sst*' -exec rm -rf {} +
  (cd "$data" && find . -mindepth 1 -maxdepth 1 ! -name grastate.dat ! -name gvwstate.dat ! -name 'galera.*' ! -name '*.pid' ! -name s.sock \
    ! -name 'wsrep*' ! -name 'sst*' ! -name ibtmp1 ! -name transferred -exec cp -a {} "$to/" ';')
fi
echo continue
echo "$state" >"$to/transferring"
mv "$to/transferring" "$to/transferred"
echo "done $state"
`

// newGalera brings three nodes up.
func newGalera(t *testing.T) galera {
	harness.NeedMariaDB(t)
	provider := testkit.GaleraProvider(t)
	g := galera{newCluster(t)}
	g.back = func(i int) {
		testkit.Must(t, g.nodes[(i+1)%3].Wait(time.Minute, "SHOW STATUS LIKE 'wsrep_cluster_size'", "3"))
		g.synced(i)
	}
	dir := harness.MariaDBFolder(t, "galera")
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "wsrep_sst_copy"), []byte(galeraTransfer), 0o755))
	var members []string
	for range 3 {
		members = append(members, fmt.Sprintf("127.0.0.1:%d", testkit.FreePort()))
	}
	for i, member := range members {
		n := harness.NewMariaDB(t, dir, fmt.Sprintf("node%d", i+1),
			"--wsrep-on=ON", "--wsrep-provider="+provider, "--wsrep-cluster-name=uidplugin", "--wsrep-cluster-address=gcomm://"+strings.Join(members, ","),
			fmt.Sprintf("--wsrep-node-name=node%d", i+1), "--wsrep-node-address=127.0.0.1", "--wsrep-sst-method=copy", "--wsrep-slave-threads=4",
			"--binlog-format=ROW", "--default-storage-engine=InnoDB", "--innodb-autoinc-lock-mode=2",
			"--wsrep-provider-options=gmcast.listen_addr=tcp://"+member+fmt.Sprintf(";ist.recv_addr=127.0.0.1:%d", testkit.FreePort())+
				";gcache.size=64M;evs.suspect_timeout=PT2S;evs.inactive_timeout=PT5S;evs.keepalive_period=PT0.5S;evs.inactive_check_period=PT0.5S;evs.install_timeout=PT5S")
		n.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH") + ":/usr/sbin:/sbin"}
		g.nodes = append(g.nodes, n)
	}
	g.nodes[0].Install(t)
	for i := range g.nodes {
		if i == 0 {
			testkit.Must(t, g.nodes[i].Start("--wsrep-new-cluster"))
		} else {
			testkit.Must(t, g.nodes[i].Start())
		}
		g.synced(i)
	}
	testkit.Must(t, g.nodes[0].Exec("CREATE DATABASE uid CHARACTER SET utf8mb4", "CREATE DATABASE control CHARACTER SET utf8mb4"))
	g.Logf("three nodes after %v", g.since())
	return g
}

const (
	galeraState = "SHOW STATUS LIKE 'wsrep_local_state_comment'"
	galeraPart  = "SHOW STATUS LIKE 'wsrep_cluster_status'"
)

// synced waits until a node takes statements.
func (g galera) synced(i int) {
	g.Helper()
	testkit.Must(g.T, g.nodes[i].Wait(time.Minute, galeraState, "Synced"))
	testkit.Must(g.T, g.nodes[i].Wait(time.Minute, "SHOW STATUS LIKE 'wsrep_ready'", "ON"))
}

// killed kills a node, and lets it join again.
func (g galera) killed(i int) {
	g.nodes[i].Kill()
	g.Logf("%v: %s is killed", g.since(), g.nodes[i].Name)
	time.Sleep(6 * time.Second)
	g.join(i)
	time.Sleep(2 * time.Second)
}

// join starts a node that was killed.
func (g galera) join(i int) {
	testkit.Must(g.T, g.nodes[i].Start())
	if err := g.nodes[i].Wait(time.Minute, galeraState, "Synced"); err != nil {
		g.Log(err) // a node ends if it gets no state, because its donor has left
		g.nodes[i].Kill()
		testkit.Must(g.T, g.nodes[i].Start())
	}
	g.synced(i)
	g.cleared(i, "killed, has joined again")
}

// halved kills two nodes at once. The third one, survivor, has no quorum and takes no statements, until an operator
// makes it a cluster by itself. Then the others join it.
func (g galera) halved(survivor int, away time.Duration) {
	s := g.nodes[survivor]
	var dead []int
	for i := range g.nodes {
		if i != survivor {
			g.nodes[i].Kill()
			dead = append(dead, i)
		}
	}
	begin := time.Now()
	testkit.Must(g.T, s.Wait(time.Minute, galeraPart, "non-Primary"))
	g.Logf("%v: all nodes but %s are killed, and it has no quorum", g.since(), s.Name)
	if err := s.Exec("UPDATE uid.WORKER_SLOT SET FENCE = FENCE + 1 WHERE ID = 1"); err == nil {
		g.Error("a node without quorum takes statements")
	}
	time.Sleep(away - time.Since(begin))
	testkit.Must(g.T, s.Exec("SET GLOBAL wsrep_provider_options = 'pc.bootstrap=YES'"))
	g.cleared(survivor, "without quorum, is told that it is the cluster")
	testkit.Must(g.T, s.Wait(time.Minute, galeraPart, "Primary"))
	g.synced(survivor)
	time.Sleep(time.Second)
	for _, i := range dead {
		g.join(i)
	}
	time.Sleep(2 * time.Second)
}

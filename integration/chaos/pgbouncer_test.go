//go:build linux

package chaos_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
)

// Processes share connections to PostgreSQL by way of PgBouncer in transaction mode, so statements of one process reach
// the server on different connections. Processes and PgBouncer are killed and stopped. No id is made twice, and each
// resolves to its table and process.
func TestPgBouncer(t *testing.T) {
	t.Parallel()
	engine := testkit.Engine{Name: "postgres", Variable: "UID_TEST_POSTGRES"}
	engine.Need(t)
	d := engine.New(t)
	b := newBouncer(t, d)
	c := newChaos(t)
	c.engine = engine.Name
	c.connect(d.DSN())
	for i := range 8 {
		task := chaosTask{Engine: engine.Name, DSN: b.dsn, Clock: filepath.Join(c.dir, "clock"), Tables: len(chaosTables), Batch: 1024,
			Rate: 1000, Plugin: i%2 == 0, Skew: workernode.DefaultMaxSkew}
		c.slots = append(c.slots, &chaosSlot{task: task})
		c.start(c.slots[i])
	}
	begin := time.Now()
	for kills := 0; !t.Failed(); {
		ran := time.Since(begin)
		if e, err := c.count.events(nil); ran > 15*chaosShort || ran > chaosShort && err == nil && e.reclaimed > 0 && kills > 0 {
			break
		}
		time.Sleep(200*time.Millisecond + time.Duration(c.random.IntN(400))*time.Millisecond)
		c.releaseOld(2*chaosLead + time.Second)
		for _, s := range c.slots {
			s.resume(false)
			if !c.running(s) && time.Now().After(s.again) {
				c.start(s)
			}
		}
		s := c.slots[c.random.IntN(len(c.slots))]
		switch what := c.random.IntN(100); {
		case what < 30:
			c.kill(s)
		case what < 65:
			c.stop(s, c.pause(s, false))
		case what < 80:
			c.terminate(s)
		case what < 95:
			kills++
			b.kill()
			time.Sleep(time.Duration(c.random.IntN(1000)) * time.Millisecond)
			b.start(t)
		}
	}
	c.end()

	r := c.report(0)
	t.Logf("seed %d: %d ids, %d duplicates, %d worker ids; %d slots reclaimed, %d new, %d lost; %d processes started, %d killed, %d stopped; PgBouncer started %d times",
		c.seed, r.ids, r.duplicates, r.workers, r.reclaimed, r.allocated, r.lost, c.starts, c.kills, c.stops, b.starts)
	if r.duplicates > 0 {
		t.Errorf("%d duplicates, the first: %s", r.duplicates, r.first)
	}
	for _, fault := range r.faults {
		t.Error(fault)
	}
	if r.ids == 0 || r.reclaimed == 0 || b.starts < 2 {
		t.Error("there was no chaos: this shows little")
	}
	if r.stall > 3*time.Minute {
		t.Errorf("a caller has waited for %v: %s", r.stall, r.stallOf)
	}
}

// A bouncer is a PgBouncer in transaction mode, with fewer connections to the server than its clients have to it.
type bouncer struct {
	dsn    string
	path   string
	config string
	cmd    *exec.Cmd
	starts int
}

// newBouncer starts a PgBouncer in front of a database, and kills it when the test ends.
func newBouncer(t *testing.T, d *testkit.Database) *bouncer {
	t.Helper()
	path, err := exec.LookPath("pgbouncer")
	if err != nil {
		path = "/usr/sbin/pgbouncer" // not in everybody's PATH
	}
	if _, err := os.Stat(path); err != nil {
		testkit.LeftOut(t, "there is no pgbouncer (Debian's package of this name)")
	}
	dir := harness.MariaDBFolder(t, "pgbouncer") // others may read it: pgbouncer refuses to be root
	host, port, err := net.SplitHostPort(d.Address())
	testkit.Must(t, err)
	b := &bouncer{path: path, config: filepath.Join(dir, "pgbouncer.ini")}
	own := strconv.Itoa(testkit.FreePort())
	b.dsn = strings.Replace(d.DSN(), "host="+host+" port="+port, "host=127.0.0.1 port="+own, 1)
	users := filepath.Join(dir, "users.txt")
	testkit.Must(t, os.WriteFile(users, []byte("\"test\" \"test\"\n"), 0o644))
	testkit.Must(t, os.WriteFile(b.config, fmt.Appendf(nil, `[databases]
* = host=%s port=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %s
unix_socket_dir =
auth_type = trust
auth_file = %s
pool_mode = transaction
default_pool_size = 10
max_client_conn = 200
`, host, port, own, users), 0o644))
	b.start(t)
	t.Cleanup(b.kill)
	return b
}

// start starts PgBouncer, and waits until it listens.
func (b *bouncer) start(t *testing.T) {
	t.Helper()
	b.starts++
	b.cmd = exec.Command(b.path, "-q", b.config)
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Getuid() == 0 {
		b.cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
	}
	testkit.Must(t, b.cmd.Start())
	_, address, _ := strings.Cut(b.dsn, "port=")
	port, _, _ := strings.Cut(address, " ")
	testkit.Eventually(t, "PgBouncer listens", time.Minute, func() bool {
		conn, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
}

// kill kills PgBouncer, with the transactions that are on their way.
func (b *bouncer) kill() {
	_ = b.cmd.Process.Kill()
	_ = b.cmd.Wait()
}

//go:build linux

// Package vitess_test tests the plugin on Vitess: vtgate, an unsharded keyspace with the registry, a keyspace with two
// shards, and a real mysqld below them. make test-vitess builds Vitess and runs it. It is no part of go.work, because
// Vitess needs a newer Go and takes minutes to build.
package vitess_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// binaries is the environment variable with the folder of vtcombo, vttestserver, mysqlctl and uid.
const binaries = "UID_TEST_VITESS"

// A vitess is vttestserver, with a vtcombo and a mysqld that it has started.
type vitess struct {
	dir   string // with data, and what the programs need
	port  int    // the first of four
	group int    // of its processes
	stop  func() // ends all of them
}

// mysqld is its command line: loader, libraries, program, --no-defaults, and options.
var mysqld []string

var cluster = sync.OnceValues(startVitess)

func TestMain(m *testing.M) {
	testkit.RunRole(testkit.Roles{"writer": testkit.Role(write)})
	code := 2
	func() {
		defer func() {
			if mysqld == nil { // not started
				return
			}
			if v, _ := cluster(); v != nil {
				v.stop()
			}
		}()
		code = m.Run()
	}()
	os.Exit(code)
}

// need returns the cluster.
func need(t *testing.T) *vitess {
	t.Helper()
	if os.Getenv(binaries) == "" {
		t.Skip(binaries + " is not set: no Vitess; make test-vitess builds it")
	}
	if os.Getenv("UID_TEST_MYSQL") == "" {
		t.Fatal("servers.sh has no MySQL, and Vitess needs its mysqld")
	}
	mysqld = harness.MySQLCommand(t)
	v, err := cluster()
	testkit.Must(t, err)
	return v
}

// dsn returns the data source name of a keyspace.
func (v *vitess) dsn(keyspace string) string {
	return fmt.Sprintf("test@tcp(127.0.0.1:%d)/%s?parseTime=true&loc=UTC&timeout=5s", v.port+3, keyspace)
}

// startVitess starts the programs, as nobody if this is root, because mysqlctl refuses to be root. They end with this
// process, whatever ends it.
func startVitess() (*vitess, error) {
	dir, err := os.MkdirTemp("", "uidplugin-vitess.")
	if err != nil {
		return nil, err
	}
	v := &vitess{dir: dir, port: freePorts()}
	if err := v.install(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	// The shell is the leader of the group of all of them, and kills it at the end of its input.
	cmd := v.command("sh", "-c", `"$@" </dev/null & cat >/dev/null; kill -9 0`, "sh", "vttestserver", "--port", strconv.Itoa(v.port),
		"--keyspaces=reg,shop", "--num-shards=1,2", "--replica-count=1", "--rdonly-count=0", "--mysql-bind-host=127.0.0.1",
		"--data-dir="+v.in("data"), "--schema-dir="+v.in("schema"), "--mysql-server-version=8.4.6-Vitess", "--log-format=text", "--log-level=warn")
	cmd.Stdout, cmd.Stderr = log, log
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	v.group = cmd.Process.Pid
	v.stop = func() {
		_ = input.Close()
		_ = cmd.Wait()
		_ = os.RemoveAll(dir)
	}
	if err := v.wait(3*time.Minute, "SELECT COUNT(*) FROM orders"); err != nil {
		text, _ := os.ReadFile(log.Name())
		v.stop()
		return nil, fmt.Errorf("%w\n%s", err, text[max(0, len(text)-3000):])
	}
	return v, nil
}

// freePorts returns the first of four free ports: of vtcombo, its gRPC, mysqld and vtgate.
func freePorts() int {
	for {
		port, free := testkit.FreePort(), true
		for i := 1; i < 4; i++ {
			l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port+i)))
			if free = free && err == nil; err == nil {
				_ = l.Close()
			}
		}
		if free {
			return port
		}
	}
}

func (v *vitess) in(path string) string { return filepath.Join(v.dir, path) }

// install writes what the programs read.
func (v *vitess) install() error {
	at, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "vitess.io/vitess").Output()
	if err != nil {
		return fmt.Errorf("go list vitess.io/vitess: %w", err)
	}
	users, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(at)), "config/init_db.sql"))
	if err != nil {
		return err
	}
	bin := os.Getenv(binaries)
	files := map[string]string{
		"root/config/init_db.sql": string(users),
		// Vitess's own file has a setting that MySQL 9 refuses, and loses commits.
		"root/config/mycnf/test-suite.cnf": "innodb_buffer_pool_size = 64M\ninnodb_flush_log_at_trx_commit = 1\ninnodb_redo_log_capacity = 32M\n" +
			"innodb_use_native_aio = 0\nsync_binlog = 1\ninnodb_doublewrite = 0\nreplica_net_timeout = 4\nsuper-read-only = false\n",
		"root/bin/mysqlctl": "#!/bin/sh\nexec " + bin + "/mysqlctl \"$@\"\n",
		// vttestserver gives it 4 transactions at once for each shard, and batches over two shards would wait for each other.
		"root/bin/vtcombo": "#!/bin/sh\nexec " + bin + "/vtcombo \"$@\" --queryserver-config-transaction-cap 40 --queryserver-config-pool-size 20\n",
		"mysql/sbin/mysqld": "#!/bin/bash\nunset LD_LIBRARY_PATH\n[ \"$1\" != --version ] || exec " + quoted(mysqld[:4]) + " --version\n" +
			"exec " + quoted(mysqld[:4]) + " \"$@\" " + quoted(mysqld[5:]) + " --performance-schema=OFF\n",
	}
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(v.in(name)), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(v.in(name), []byte(text), 0o755); err != nil {
			return err
		}
	}
	if err := os.CopyFS(v.in("schema"), os.DirFS("testdata/schema")); err != nil {
		return err
	}
	for _, name := range []string{"data", "tmp"} {
		if err := os.Mkdir(v.in(name), 0o755); err != nil {
			return err
		}
	}
	if os.Getuid() != 0 {
		return nil
	}
	return filepath.WalkDir(v.dir, func(path string, _ os.DirEntry, err error) error {
		return errors.Join(err, os.Chown(path, nobody, nobody))
	})
}

// quoted quotes arguments for a shell.
func quoted(args []string) string { return "'" + strings.Join(args, "' '") + "'" }

const nobody = 65534

// command returns a command of a new process group. If this is root, it is nobody, who may read the files of root.
func (v *vitess) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = v.dir
	cmd.Env = append(os.Environ(), "HOME="+v.in("tmp"), "TMPDIR="+v.in("tmp"), "VTROOT="+v.in("root"), "VTDATAROOT="+v.in("data"),
		"VT_MYSQL_ROOT="+v.in("mysql"), "PATH="+v.in("mysql/sbin")+":"+os.Getenv(binaries)+":"+os.Getenv("PATH"), "MYSQL_FLAVOR=MySQL80")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if os.Getuid() == 0 {
		const readAll = 2 // CAP_DAC_READ_SEARCH
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
		cmd.SysProcAttr.AmbientCaps = []uintptr{readAll}
	}
	return cmd
}

// wait waits until the keyspace shop answers a query.
func (v *vitess) wait(limit time.Duration, query string) error {
	db, err := sql.Open("mysql", v.dsn("shop"))
	if err != nil {
		return err
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for {
		_, err := db.ExecContext(ctx, query)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("Vitess does not answer within %v: %w", limit, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// crash kills mysqld, and starts it again after some time.
func (v *vitess) crash(away time.Duration) error {
	text, err := os.ReadFile(v.in("data/vt_0000000001/mysql.pid"))
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return err
	}
	args := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
	if !strings.Contains(string(line), v.dir) {
		return fmt.Errorf("the process %d of mysql.pid is another one: %q", pid, args)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return err
	}
	time.Sleep(away)
	for _, name := range []string{"mysql.sock.lock", "mysql.pid"} {
		_ = os.Remove(v.in("data/vt_0000000001/" + name))
	}
	cmd := v.command("sh", append([]string{"-c", `exec "$@"`, "sh"}, args...)...) // because its rights begin with the program
	cmd.SysProcAttr.Pgid = v.group
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }()
	return v.wait(time.Minute, "SELECT COUNT(*) FROM orders")
}

// A shop is the two handles of a process.
type shop struct {
	registry, db *gorm.DB
	plugin       *uidplugin.Plugin
}

// openShop connects to both keyspaces, and registers the plugin.
func openShop(registry, data string, options ...uidplugin.Option) (s shop, err error) {
	if s.registry, err = gorm.Open(mysql.Open(registry), &gorm.Config{Logger: logger.Discard}); err != nil {
		return s, err
	}
	if s.db, err = gorm.Open(mysql.Open(data), &gorm.Config{Logger: logger.Discard}); err != nil {
		return s, err
	}
	s.plugin = uidplugin.New(append(options, harness.Quiet, uidplugin.WithRegistry(s.registry),
		uidplugin.WithModels(&Order{}, &Item{}, &Stock{}, &Sale{}))...)
	return s, s.db.Use(s.plugin)
}

// open is openShop for a test.
func (v *vitess) open(t *testing.T, options ...uidplugin.Option) shop {
	t.Helper()
	s, err := openShop(v.dsn("reg"), v.dsn("shop"), options...)
	testkit.Must(t, err)
	t.Cleanup(func() {
		harness.Close(t, s.plugin)
		_, _ = testkit.Close(s.db), testkit.Close(s.registry)
	})
	return s
}

// The tables of testdata/schema/shop.
type (
	// An Order is on the shard of its id.
	Order struct {
		ID             uidplugin.ID
		Customer, Note string
		Items          []Item
	}
	// An Item is on the shard of its order.
	Item struct {
		ID      uidplugin.ID
		OrderID uidplugin.ID
		Title   string
	}
	// A Stock is on the shard of its tenant.
	Stock struct {
		ID     int64 `gorm:"primaryKey;uid"`
		Tenant int64
		Name   string
		Amount int64
	}
	// A Sale is on the shard of its tenant, and a lookup vindex leads from its id to the shard.
	Sale struct {
		ID     uidplugin.ID
		Tenant int64
		Name   string
	}
)

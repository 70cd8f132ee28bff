//go:build linux

package integration_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// What the tests with several MariaDB servers have in common. servers.sh knows single
// servers only; these replicate.

// A mariadb is a server, its data, and its port of 127.0.0.1.
type mariadb struct {
	name string
	dir  string // data is in it, and all else
	port int
	args []string
	env  []string

	cmd   *exec.Cmd
	ended chan struct{} // closed when the process has ended
}

// mariadbFolder makes a folder for servers, in memory if there is room. It is removed
// after they have been killed.
func mariadbFolder(t *testing.T, name string) string {
	t.Helper()
	base := "/dev/shm"
	var fs syscall.Statfs_t
	if err := syscall.Statfs(base, &fs); err != nil || fs.Bavail*uint64(fs.Bsize) < 2<<30 {
		base = ""
	}
	dir, err := os.MkdirTemp(base, "uidplugin-"+name+".")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	return dir
}

var takenPorts sync.Map

// freePort returns a port below those that outgoing connections get.
func freePort() int {
	for {
		port := 20000 + rand.IntN(12000)
		if _, taken := takenPorts.LoadOrStore(port, true); taken {
			continue
		}
		if l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			_ = l.Close()
			return port
		}
	}
}

// newMariaDB returns a server without data, which is killed when the test ends.
func newMariaDB(t *testing.T, parent, name string, args ...string) *mariadb {
	t.Helper()
	m := &mariadb{name: name, dir: filepath.Join(parent, name), port: freePort(), args: args}
	must(t, os.MkdirAll(filepath.Join(m.dir, "tmp"), 0o755))
	must(t, os.MkdirAll(m.data(), 0o755))
	t.Cleanup(func() {
		m.kill()
		if t.Failed() {
			log, _ := os.ReadFile(m.log())
			t.Logf("the end of the log of %s:\n%s", m.name, log[max(0, len(log)-3000):])
		}
	})
	return m
}

func (m *mariadb) data() string { return filepath.Join(m.dir, "data") }
func (m *mariadb) log() string  { return filepath.Join(m.dir, "log") }

func (m *mariadb) address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(m.port)) }

// dsn returns the data source name of a database at an address.
func mariadbDSN(address, schema string) string {
	return "test:test@tcp(" + address + ")/" + schema + "?charset=utf8mb4&parseTime=true&loc=UTC&time_zone=%27%2B00%3A00%27"
}

func mariadbUser(args ...string) []string {
	if os.Getuid() == 0 {
		args = append(args, "--user=root")
	}
	return args
}

// install makes the data of a new server, with a user who may do everything.
func (m *mariadb) install(t *testing.T) {
	t.Helper()
	users := filepath.Join(m.dir, "users.sql")
	must(t, os.WriteFile(users, []byte("FLUSH PRIVILEGES;\nCREATE USER 'test'@'%' IDENTIFIED BY 'test';\nGRANT ALL ON *.* TO 'test'@'%' WITH GRANT OPTION;\n"), 0o666))
	out, err := exec.Command("mariadb-install-db", mariadbUser("--no-defaults", "--datadir="+m.data(),
		"--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve", "--innodb-log-file-size=32M", "--extra-file="+users)...).CombinedOutput()
	if err != nil {
		t.Fatalf("mariadb-install-db: %v\n%s", err, out)
	}
}

// start starts the server, and does not wait until it answers.
func (m *mariadb) start(extra ...string) error {
	path, err := exec.LookPath("mariadbd")
	if err != nil {
		path = "/usr/sbin/mariadbd"
	}
	log, err := os.OpenFile(m.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	defer log.Close()
	_ = os.Remove(filepath.Join(m.data(), "s.sock"))
	args := mariadbUser("--no-defaults", "--datadir="+m.data(), "--port="+strconv.Itoa(m.port), "--socket=s.sock", "--bind-address=127.0.0.1",
		"--skip-name-resolve", "--performance-schema=OFF", "--max-connections=500", "--innodb-buffer-pool-size=64M", "--innodb-log-file-size=32M",
		"--innodb-flush-log-at-trx-commit=1", "--innodb-use-native-aio=0", "--character-set-server=utf8mb4", "--skip-log-error")
	cmd := exec.Command(path, append(append(args, m.args...), extra...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = m.data(), log, log
	cmd.Env = append(append(os.Environ(), "TMPDIR="+filepath.Join(m.dir, "tmp"), "LC_ALL=C"), m.env...)
	// A group of its own, with the scripts that it starts. It ends with this process.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	m.cmd, m.ended = cmd, ended
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	return nil
}

// wait waits until a query of one value says what it should, and returns an error if
// the server ends before.
func (m *mariadb) wait(limit time.Duration, query, want string) error {
	begin := time.Now()
	for {
		got, err := m.ask(query)
		if err == nil && got == want {
			return nil
		}
		select {
		case <-m.ended:
			return fmt.Errorf("%s has ended: %v", m.name, m.cmd.ProcessState)
		case <-time.After(50 * time.Millisecond):
		}
		if time.Since(begin) > limit {
			return fmt.Errorf("%s: %q says %q, %v, and not %q, for %v", m.name, query, got, err, want, limit)
		}
	}
}

// ask returns the last column of the first row.
func (m *mariadb) ask(query string) (string, error) {
	var value string
	err := m.with(func(ctx context.Context, db *sql.DB) error {
		rows, err := db.QueryContext(ctx, query)
		if err != nil {
			return err
		}
		defer rows.Close()
		columns, err := rows.Columns()
		if err != nil {
			return err
		}
		if !rows.Next() {
			return errors.Join(rows.Err(), sql.ErrNoRows)
		}
		into := make([]any, len(columns))
		for i := range into {
			into[i] = new(sql.RawBytes)
		}
		into[len(into)-1] = &value
		return rows.Scan(into...)
	})
	return value, err
}

// execute sends statements.
func (m *mariadb) execute(statements ...string) error {
	return m.with(func(ctx context.Context, db *sql.DB) error {
		for _, s := range statements {
			if _, err := db.ExecContext(ctx, s); err != nil {
				return fmt.Errorf("%s: %s: %w", m.name, s, err)
			}
		}
		return nil
	})
}

func (m *mariadb) with(f func(ctx context.Context, db *sql.DB) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	db, err := sql.Open("mysql", mariadbDSN(m.address(), "")+"&timeout=2s")
	if err != nil {
		return err
	}
	defer db.Close()
	return f(ctx, db)
}

// kill is kill -9, also of the scripts that the server has started.
func (m *mariadb) kill() {
	if m.cmd == nil {
		return
	}
	_ = syscall.Kill(-m.cmd.Process.Pid, syscall.SIGKILL)
	<-m.ended
	m.cmd = nil
}

// pause halts the server, as if its machine was suspended; resume lets it go on.
func (m *mariadb) pause() error  { return m.cmd.Process.Signal(syscall.SIGSTOP) }
func (m *mariadb) resume() error { return m.cmd.Process.Signal(syscall.SIGCONT) }

// A router passes connections on to one server, to another, or to none. It keeps its port all the time.
type router struct {
	address  string
	answered atomic.Int64 // when a server has last said anything, in Unix nanoseconds

	mu     sync.Mutex
	target string // "" refuses connections
	ends   map[net.Conn]bool
	group  sync.WaitGroup
}

func newRouter(t *testing.T, target string) *router {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	r := &router{address: l.Addr().String(), target: target, ends: map[net.Conn]bool{}}
	r.group.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			r.group.Go(func() { r.pass(client) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		r.route("")
		r.group.Wait()
	})
	return r
}

// route cuts all connections, and leads new ones to a server; "" is none.
func (r *router) route(target string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.target = target
	for c := range r.ends {
		_ = c.Close()
	}
}

// answers is what a server says to a client.
type answers struct {
	net.Conn
	router *router
}

func (a answers) Write(p []byte) (int, error) {
	a.router.answered.Store(time.Now().UnixNano())
	return a.Conn.Write(p)
}

func (r *router) pass(client net.Conn) {
	defer client.Close()
	r.mu.Lock()
	target := r.target
	r.mu.Unlock()
	if target == "" {
		return
	}
	server, err := net.DialTimeout("tcp", target, time.Second)
	if err != nil {
		return
	}
	defer server.Close()
	r.mu.Lock()
	if r.target != target { // cut meanwhile
		r.mu.Unlock()
		return
	}
	r.ends[client], r.ends[server] = true, true
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.ends, client)
		delete(r.ends, server)
	}()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(answers{client, r}, server)
		_ = client.Close()
	}()
	_, _ = io.Copy(server, client)
	_ = server.Close()
	<-done
}

// needMariaDB skips a test where no MariaDB is to be used, and tells whether its
// programs are there.
func needMariaDB(t *testing.T) {
	t.Helper()
	if os.Getenv("UID_TEST_MARIADB") == "" {
		t.Skip("UID_TEST_MARIADB is not set: no mariadb")
	}
	if _, err := exec.LookPath("mariadb-install-db"); err != nil {
		leftOut(t, "mariadb-install-db is not in PATH, so there is no server of its own: "+err.Error())
	}
}

// leftOut skips a test that should run, loudly; with CI=true it fails.
func leftOut(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	text := fmt.Sprintf("integration: %s IS LEFT OUT: %s\n", t.Name(), why)
	fmt.Print(text)
	if tty, err := os.OpenFile("/dev/tty", os.O_WRONLY, 0); err == nil {
		fmt.Fprint(tty, text)
		_ = tty.Close()
	}
	t.Skip(strings.TrimSpace(text))
}

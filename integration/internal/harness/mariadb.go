//go:build linux

package harness

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/internal/testkit"
)

// A MariaDB is a server with its own data and its own port on 127.0.0.1. Use it instead of a server of servers.sh
// if the server should end with the test.
type MariaDB struct {
	Name string
	Dir  string // the server's folder; its subfolder data has the data
	Port int
	args []string
	Env  []string

	mysqld []string // the beginning of the command line if the server is MySQL; see NewMySQL

	cmd   *exec.Cmd
	ended chan struct{} // closed after the process has ended
}

// MariaDBFolder makes a folder for servers, in memory if there is room. It removes the folder after the test, when
// the servers were killed.
func MariaDBFolder(t *testing.T, name string) string {
	t.Helper()
	base := "/dev/shm"
	var fs syscall.Statfs_t
	if err := syscall.Statfs(base, &fs); err != nil || fs.Bavail*uint64(fs.Bsize) < 2<<30 {
		base = ""
	}
	dir, err := os.MkdirTemp(base, "uidplugin-"+name+".")
	testkit.Must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	testkit.Must(t, os.Chmod(dir, 0o755))
	return dir
}

// NewMariaDB returns a server without data, which is killed when the test ends.
func NewMariaDB(t *testing.T, parent, name string, args ...string) *MariaDB {
	t.Helper()
	m := &MariaDB{Name: name, Dir: filepath.Join(parent, name), Port: testkit.FreePort(), args: args}
	testkit.Must(t, os.MkdirAll(filepath.Join(m.Dir, "tmp"), 0o755))
	testkit.Must(t, os.MkdirAll(m.Data(), 0o755))
	t.Cleanup(func() {
		m.Kill()
		if t.Failed() {
			log, _ := os.ReadFile(m.log())
			t.Logf("the end of the log of %s:\n%s", m.Name, log[max(0, len(log)-3000):])
		}
	})
	return m
}

func (m *MariaDB) Data() string { return filepath.Join(m.Dir, "data") }
func (m *MariaDB) log() string  { return filepath.Join(m.Dir, "log") }

func (m *MariaDB) Address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(m.Port)) }

// MariaDBDSN returns the data source name of a database at an address.
func MariaDBDSN(address, schema string) string {
	return "test:test@tcp(" + address + ")/" + schema + "?charset=utf8mb4&parseTime=true&loc=UTC&time_zone=%27%2B00%3A00%27"
}

func mariadbUser(args ...string) []string {
	if os.Getuid() == 0 {
		args = append(args, "--user=root")
	}
	return args
}

// Install makes the data and a user with all rights, or copies the data of a fresh server that servers.sh has kept.
func (m *MariaDB) Install(t *testing.T) {
	t.Helper()
	variable := "UID_TEST_MARIADB_DIR"
	if m.mysqld != nil {
		variable = "UID_TEST_MYSQL_DIR"
	}
	fresh := filepath.Join(os.Getenv(variable), "fresh", "data")
	if _, err := os.Stat(fresh); err == nil {
		testkit.Must(t, os.CopyFS(m.Data(), os.DirFS(fresh)))
		return
	}
	users := filepath.Join(m.Dir, "users.sql")
	testkit.Must(t, os.WriteFile(users, []byte("FLUSH PRIVILEGES;\nCREATE USER 'test'@'%' IDENTIFIED BY 'test';\nGRANT ALL ON *.* TO 'test'@'%' WITH GRANT OPTION;\n"), 0o666))
	cmd := exec.Command("mariadb-install-db", mariadbUser("--no-defaults", "--datadir="+m.Data(), "--tmpdir="+m.Dir,
		"--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve", "--innodb-log-file-size=32M", "--extra-file="+users)...)
	if m.mysqld != nil {
		cmd = exec.Command(m.mysqld[0], mariadbUser(append(m.mysqld[1:], "--datadir="+m.Data(), "--skip-log-bin", "--innodb-redo-log-capacity=32M",
			"--innodb-use-native-aio=0", "--initialize-insecure", "--init-file="+users)...)...)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
}

// Start starts the server without waiting for it to answer.
func (m *MariaDB) Start(extra ...string) error {
	log, err := os.OpenFile(m.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	defer log.Close()
	_ = os.Remove(filepath.Join(m.Data(), "s.sock"))
	command := m.command()
	args := mariadbUser("--datadir="+m.Data(), "--port="+strconv.Itoa(m.Port), "--socket=s.sock", "--bind-address=127.0.0.1",
		"--skip-name-resolve", "--max-connections=500", "--innodb-buffer-pool-size=64M",
		"--innodb-flush-log-at-trx-commit=1", "--innodb-use-native-aio=0", "--character-set-server=utf8mb4")
	cmd := exec.Command(command[0], slices.Concat(command[1:], args, m.args, extra)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = m.Data(), log, log
	cmd.Env = append(append(os.Environ(), "TMPDIR="+filepath.Join(m.Dir, "tmp"), "LC_ALL=C"), m.Env...)
	// The process group lets Kill reach the server's scripts. The kernel kills the server when this process ends.
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

// command returns the beginning of the command line.
func (m *MariaDB) command() []string {
	if m.mysqld != nil {
		return append(slices.Clip(m.mysqld), "--mysqlx=0", "--innodb-redo-log-capacity=32M")
	}
	path, err := exec.LookPath("mariadbd")
	if err != nil {
		path = "/usr/sbin/mariadbd"
	}
	return []string{path, "--no-defaults", "--performance-schema=OFF", "--innodb-log-file-size=32M", "--skip-log-error"}
}

// Wait repeats a query until it returns want. It fails after the limit, or when the server ends.
func (m *MariaDB) Wait(limit time.Duration, query, want string) error {
	begin := time.Now()
	for {
		got, err := m.Ask(query)
		if err == nil && got == want {
			return nil
		}
		select {
		case <-m.ended:
			return fmt.Errorf("%s has ended: %v", m.Name, m.cmd.ProcessState)
		case <-time.After(50 * time.Millisecond):
		}
		if time.Since(begin) > limit {
			return fmt.Errorf("%s: %q returned %q (error %v) instead of %q for %v", m.Name, query, got, err, want, limit)
		}
	}
}

// Ask returns the last column of the first row of a query.
func (m *MariaDB) Ask(query string) (string, error) {
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

// Exec runs statements.
func (m *MariaDB) Exec(statements ...string) error {
	return m.with(func(ctx context.Context, db *sql.DB) error {
		for _, s := range statements {
			if _, err := db.ExecContext(ctx, s); err != nil {
				return fmt.Errorf("%s: %s: %w", m.Name, s, err)
			}
		}
		return nil
	})
}

func (m *MariaDB) with(f func(ctx context.Context, db *sql.DB) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	db, err := sql.Open("mysql", MariaDBDSN(m.Address(), "")+"&timeout=20s")
	if err != nil {
		return err
	}
	defer db.Close()
	return f(ctx, db)
}

// Kill sends SIGKILL to the server and to the scripts that it has started.
func (m *MariaDB) Kill() {
	if m.cmd == nil {
		return
	}
	_ = syscall.Kill(-m.cmd.Process.Pid, syscall.SIGKILL)
	<-m.ended
	m.cmd = nil
}

// Pause halts the server like a suspended machine. Resume continues it.
func (m *MariaDB) Pause() error  { return m.cmd.Process.Signal(syscall.SIGSTOP) }
func (m *MariaDB) Resume() error { return m.cmd.Process.Signal(syscall.SIGCONT) }

// NeedMariaDB is like [testkit.Engine.Need], but also checks that the test can start its own MariaDB servers.
func NeedMariaDB(t *testing.T) {
	t.Helper()
	testkit.MariaDB().Need(t)
	if _, err := exec.LookPath("mariadb-install-db"); err != nil {
		testkit.LeftOut(t, "mariadb-install-db is not in PATH, so the test cannot start its own server: "+err.Error())
	}
}

//go:build linux

package harness

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/uidplugin/uidplugin/internal/testkit"
)

// NewMySQL is like [NewMariaDB], but the server is the Oracle MySQL that servers.sh has unpacked.
func NewMySQL(t *testing.T, parent, name string, args ...string) *MariaDB {
	t.Helper()
	m := NewMariaDB(t, parent, name, args...)
	m.mysqld = MySQLCommand(t)
	return m
}

// MySQLCommand returns the beginning of a command line of mysqld. It skips the test as MySQLRoot does.
func MySQLCommand(t *testing.T) []string {
	t.Helper()
	root := MySQLRoot(t)
	one := func(pattern string) string {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("there is no %s in %s", pattern, root)
		}
		return found[0]
	}
	// Start mysqld through the dynamic loader that was unpacked with it, because the system may have another libc.
	return []string{one("usr/lib*/ld-linux-*.so.*"), "--library-path", one("usr/lib/*-linux-gnu*") + ":" + root + "/usr/lib/mysql/private",
		root + "/usr/sbin/mysqld", "--no-defaults", "--basedir=" + root + "/usr", "--lc-messages-dir=" + root + "/usr/share/mysql",
		"--character-sets-dir=" + root + "/usr/share/mysql/charsets", "--plugin-dir=" + root + "/usr/lib/mysql/plugin", "--secure-file-priv=NULL"}
}

// MySQLRoot returns the folder into which servers.sh has unpacked MySQL. It skips the test without such a server.
func MySQLRoot(t *testing.T) string {
	t.Helper()
	engine := testkit.Engine{Name: "mysql", Variable: "UID_TEST_MYSQL"}
	engine.Need(t)
	conf, err := os.ReadFile(filepath.Join(os.Getenv(engine.Variable+"_DIR"), "conf"))
	if err != nil {
		t.Skip("the MySQL of UID_TEST_MYSQL is not a server of servers.sh, so there is no mysqld to start: " + err.Error())
	}
	found := regexp.MustCompile(`(?m)^MYROOT=(\S+)$`).FindSubmatch(conf)
	if found == nil {
		t.Fatalf("servers.sh writes no MYROOT into %s", conf)
	}
	return string(found[1])
}

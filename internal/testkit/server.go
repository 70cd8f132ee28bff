package testkit

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// A Server is a database server of a test's own. integration/servers.sh runs it.
type Server struct {
	Engine
	Dir string // what the server has is in it, its files in data
}

// NewServer brings a server of the engine up, with options of its command line. It is removed when the test ends.
// [Engine.Need] says what becomes of a test whose engine is missing, and [LeftOut] of one whose server does not start.
func (e Engine) NewServer(t *testing.T, options ...string) *Server {
	t.Helper()
	e.Need(t)
	printed, err := ServersScript(append([]string{"up", e.Name, ""}, options...)...)
	if err != nil {
		LeftOut(t, err.Error())
	}
	return newServer(t, e.Name, printed)
}

// Copy returns a second server with the data of this one, which is stopped, and with options of its command line. Run
// starts the new one. It is removed when the test ends.
func (s *Server) Copy(t *testing.T, options ...string) *Server {
	t.Helper()
	printed, err := ServersScript(append([]string{"copy", s.Dir, ""}, options...)...)
	Must(t, err)
	return newServer(t, s.Name, printed)
}

// newServer returns the server of which servers.sh has printed the variables.
func newServer(t *testing.T, engine, printed string) *Server {
	t.Helper()
	env := map[string]string{}
	for line := range strings.Lines(printed) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			env[key] = strings.Trim(value, "'")
		}
	}
	key := "UID_TEST_" + strings.ToUpper(engine)
	s := &Server{Dir: env[key+"_DIR"]}
	t.Cleanup(func() { s.Run(t, "down") })
	s.Engine = Engine{Name: engine, Variable: fmt.Sprintf("%s_OWN_%d", key, servers.Add(1))}
	Must(t, os.Setenv(s.Variable, env[key])) // child processes find it, too
	return s
}

// servers numbers the variables that name them.
var servers atomic.Int64

// Run gives the server a command of servers.sh: kill, stop, start or down.
func (s *Server) Run(t *testing.T, command string) {
	t.Helper()
	_, err := ServersScript(command, s.Dir)
	Must(t, err)
}

// Database returns the database that the server comes with.
func (s *Server) Database() *Database { return &Database{Engine: s.Engine} }

// ServersScript runs servers.sh, and returns what it prints.
func ServersScript(args ...string) (string, error) {
	path := "integration/servers.sh"
	for range 5 { // a test runs in its folder
		if _, err := os.Stat(path); err == nil {
			break
		}
		path = "../" + path
	}
	cmd := exec.Command(path, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("servers.sh %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out), err
}

// GaleraProvider returns the path of the library that makes MariaDB servers a cluster. Without it, see [LeftOut].
func GaleraProvider(t *testing.T) string {
	t.Helper()
	at := slices.IndexFunc(galeraProviders, func(path string) bool { _, err := os.Stat(path); return err == nil })
	if at < 0 {
		LeftOut(t, "there is no libgalera_smm.so (Debian's package galera-4)")
	}
	return galeraProviders[at]
}

// galeraProviders is where distributions put that library.
var galeraProviders = []string{
	"/usr/lib/galera/libgalera_smm.so", "/usr/lib/libgalera_smm.so", "/usr/lib64/galera-4/libgalera_smm.so",
	"/usr/lib64/galera/libgalera_smm.so",
}

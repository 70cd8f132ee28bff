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

// A Server is a private database server, run by integration/servers.sh.
type Server struct {
	Engine
	Dir string // the server's folder; the database is in its subfolder data
}

// NewServer starts a server of the engine with command-line options, and removes it when the test ends. It calls
// [Engine.Need] first, and [LeftOut] if the server does not start.
func (e Engine) NewServer(t *testing.T, options ...string) *Server {
	t.Helper()
	e.Need(t)
	s, err := e.Up("", options...)
	if err != nil {
		LeftOut(t, err.Error())
	}
	t.Cleanup(func() { s.Run(t, "down") })
	return s
}

// Copy returns a second server with a copy of the data of s. Stop s before the call, and start the copy with Run.
// The copy is removed when the test ends.
func (s *Server) Copy(t *testing.T, options ...string) *Server {
	t.Helper()
	printed, err := ServersScript(append([]string{"copy", s.Dir, ""}, options...)...)
	Must(t, err)
	second, err := newServer(s.Name, printed)
	Must(t, err)
	t.Cleanup(func() { second.Run(t, "down") })
	return second
}

// Up is like NewServer, for programs other than tests. The data is in dir. If dir is empty, the data is in memory,
// or in a temporary folder if memory is short. The caller should call Down of the server.
func (e Engine) Up(dir string, options ...string) (*Server, error) {
	printed, err := ServersScript(append([]string{"up", e.Name, dir}, options...)...)
	if err != nil {
		return nil, err
	}
	return newServer(e.Name, printed)
}

// newServer returns the server that the variables printed by servers.sh describe.
func newServer(engine, printed string) (*Server, error) {
	env := map[string]string{}
	for line := range strings.Lines(printed) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			env[key] = strings.Trim(value, "'")
		}
	}
	key := "UID_TEST_" + strings.ToUpper(engine)
	s := &Server{Dir: env[key+"_DIR"]}
	s.Engine = Engine{Name: engine, Variable: fmt.Sprintf("%s_OWN_%d", key, servers.Add(1))}
	return s, os.Setenv(s.Variable, env[key]) // so that child processes find the server
}

// Down stops the server and deletes its data.
func (s *Server) Down() error {
	_, err := ServersScript("down", s.Dir)
	return err
}

// servers counts the servers, so that each has an environment variable of its own.
var servers atomic.Int64

// Run runs a command of servers.sh on the server: kill, stop, start or down.
func (s *Server) Run(t *testing.T, command string) {
	t.Helper()
	_, err := ServersScript(command, s.Dir)
	Must(t, err)
}

// Database returns the initial database of the server.
func (s *Server) Database() *Database { return &Database{Engine: s.Engine} }

// ServersScript runs servers.sh and returns its output.
func ServersScript(args ...string) (string, error) {
	path := "integration/servers.sh"
	for range 5 { // because a test runs in the folder of its package
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

// GaleraProvider returns the path of the library for MariaDB clusters. If there is none, it calls [LeftOut].
func GaleraProvider(t *testing.T) string {
	t.Helper()
	at := slices.IndexFunc(galeraProviders, func(path string) bool { _, err := os.Stat(path); return err == nil })
	if at < 0 {
		LeftOut(t, "there is no libgalera_smm.so (Debian's package galera-4)")
	}
	return galeraProviders[at]
}

// galeraProviders lists the library's path in several distributions.
var galeraProviders = []string{
	"/usr/lib/galera/libgalera_smm.so", "/usr/lib/libgalera_smm.so", "/usr/lib64/galera-4/libgalera_smm.so",
	"/usr/lib64/galera/libgalera_smm.so",
}

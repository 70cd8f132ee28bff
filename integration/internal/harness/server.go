package harness

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/uidplugin/uidplugin/internal/testkit"
)

// servers numbers the variables that name them.
var servers atomic.Int64

// Server runs a test with a server of its own. Run gives the server a command of servers.sh, such as "kill" or "start".
func Server(t *testing.T, name string, test func(d *testkit.Database, run func(command string))) {
	t.Helper()
	out, err := exec.Command("../servers.sh", "up", name).Output()
	if err != nil {
		LeftOut(t, fmt.Sprintf("servers.sh up %s: %v", name, err))
	}
	env := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			env[key] = strings.Trim(value, "'")
		}
	}
	key := "UID_TEST_" + strings.ToUpper(name)
	run := func(command string) {
		if out, err := exec.Command("../servers.sh", command, env[key+"_DIR"]).CombinedOutput(); err != nil {
			t.Fatalf("servers.sh %s: %v\n%s", command, err, out)
		}
	}
	t.Cleanup(func() { run("down") })
	own := fmt.Sprintf("%s_OWN_%d", key, servers.Add(1))
	testkit.Must(t, os.Setenv(own, env[key]))
	test(&testkit.Database{Engine: testkit.Engine{Name: name, Variable: own}}, run)
}

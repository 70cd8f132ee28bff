// Package harness has what the tests in integration's folders share: plugins, their tables, models, servers and
// lease managers. Put helpers that do not need a plugin into [testkit].
//
// Each folder tests one subject on real databases: SQLite, and the servers that environment variables name.
// The command "make test" runs integration/servers.sh, which starts servers and sets the variables.
package harness

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/uidplugin/uidplugin/internal/testkit"
)

// Main runs the tests of a folder, or the role of a child process. It reports the engines without a server.
func Main(m *testing.M, roles testkit.Roles) {
	testkit.RunRole(roles)
	var absent []string
	for _, e := range testkit.Engines() {
		if !e.Available() {
			absent = append(absent, e.Name)
		}
	}
	if len(absent) > 0 {
		testkit.Tell(fmt.Sprintf("integration: left out, because they have no server: %s; make test starts servers\n", strings.Join(absent, ", ")))
	}
	os.Exit(m.Run())
}

// Package harness has the helpers shared by the tests in integration's folders: plugins, their tables, models, servers
// and lease managers. Put helpers that do not need a plugin into [testkit].
//
// Each folder tests one subject on real databases: SQLite in the process, and MariaDB, Oracle MySQL and PostgreSQL
// as environment variables say. make test runs integration/servers.sh, which starts servers and sets the variables.
package harness

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/uidplugin/uidplugin/internal/testkit"
)

// Main runs the tests of a folder, or in a child process its role. It reports the engines that the tests leave out.
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

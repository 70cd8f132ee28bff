// Package harness holds what the tests in the folders of integration have in common: the plugin on a database, tables
// of the plugin, models, servers and lease managers. What knows no plugin is in [testkit].
//
// Each folder tests one subject on real databases: SQLite in the process, and MariaDB, Oracle MySQL and PostgreSQL
// where the environment names them. integration/servers.sh brings private ones up; make test does both.
package harness

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/uidplugin/uidplugin/internal/testkit"
)

// Main runs the tests of a folder, or one of its roles. It says which engines are left out.
func Main(m *testing.M, roles testkit.Roles) {
	testkit.RunRole(roles)
	var absent []string
	for _, e := range testkit.Engines() {
		if !e.Available() {
			absent = append(absent, e.Name)
		}
	}
	if len(absent) > 0 {
		testkit.Tell(fmt.Sprintf("integration: left out, for there is no server: %s; make test brings them up\n", strings.Join(absent, ", ")))
	}
	os.Exit(m.Run())
}

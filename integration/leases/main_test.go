// Package leases_test tests worker ids of many processes: how they are allocated, reclaimed and released, and what that costs.
package leases_test

import (
	"testing"

	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

func TestMain(m *testing.M) {
	harness.Main(m, testkit.Roles{makeIDs: testkit.Role(maker), startAndReport: testkit.Role(started)})
}

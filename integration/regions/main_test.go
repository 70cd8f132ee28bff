// Package regions_test lets several databases make ids of one id space, and replicates or merges their rows.
package regions_test

import (
	"testing"

	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

func TestMain(m *testing.M) { harness.Main(m, testkit.Roles{"writer": testkit.Role(write)}) }

package consume_test

import (
	"testing"

	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

func TestMain(m *testing.M) {
	testkit.ManyAtOnce()
	harness.Main(m, hostileRoles)
}

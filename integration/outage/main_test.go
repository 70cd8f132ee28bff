// Package outage_test tests failures of the database: outages, lost rights, lost commits, and answers that are late or lost.
package outage_test

import (
	"testing"

	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

func TestMain(m *testing.M) {
	testkit.ManyAtOnce()
	harness.Main(m, nil)
}

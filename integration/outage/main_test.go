// Package outage_test tests failures of the database: outages, lost rights, lost commits, and answers that are late or lost.
package outage_test

import (
	"flag"
	"testing"

	"github.com/uidplugin/uidplugin/integration/internal/harness"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "8") // unless -parallel is given, because these tests mostly wait
	harness.Main(m, nil)
}

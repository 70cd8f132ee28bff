// Package segment_test tests package segment on real databases.
package segment_test

import (
	"testing"

	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

func TestMain(m *testing.M) {
	harness.Main(m, testkit.Roles{fetchSegments: testkit.Role(segmentChild)})
}

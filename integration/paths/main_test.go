// Package paths_test runs every way to create a row, on every engine, and the main job of the plugin around it.
package paths_test

import (
	"testing"

	"github.com/uidplugin/uidplugin/integration/internal/harness"
)

func TestMain(m *testing.M) { harness.Main(m, nil) }

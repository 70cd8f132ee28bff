// Package settings_test tests the plugin's main job with settings of servers: each sql_mode, and character sets.
package settings_test

import (
	"testing"

	"github.com/uidplugin/uidplugin/integration/internal/harness"
)

func TestMain(m *testing.M) { harness.Main(m, nil) }

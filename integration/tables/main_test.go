// Package tables_test tests the plugin's tables: created manually, next to UidGenerator's.
package tables_test

import (
	"testing"

	"github.com/uidplugin/uidplugin/integration/internal/harness"
)

func TestMain(m *testing.M) { harness.Main(m, nil) }

// Package registry_test tests several databases with one id space.
package registry_test

import (
	"testing"

	"github.com/uidplugin/uidplugin/integration/internal/harness"
)

func TestMain(m *testing.M) { harness.Main(m, nil) }

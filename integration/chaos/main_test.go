// Package chaos_test lets processes, clocks, connections and servers fail at random, with replicas and Galera clusters, and counts every id.
package chaos_test

import (
	"testing"

	"github.com/uidplugin/uidplugin/integration/internal/harness"
)

func TestMain(m *testing.M) { harness.Main(m, nil) }

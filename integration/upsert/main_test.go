// Package upsert_test tests what an id becomes after ON CONFLICT.
package upsert_test

import (
	"testing"

	"github.com/uidplugin/uidplugin/integration/internal/harness"
)

func TestMain(m *testing.M) { harness.Main(m, nil) }

package plugins_test

import (
	"os"
	"testing"

	"github.com/uidplugin/uidplugin/internal/testkit"
)

func TestMain(m *testing.M) {
	testkit.ManyAtOnce()
	os.Exit(m.Run())
}

package testkit_test

import (
	"strings"
	"testing"

	"github.com/uidplugin/uidplugin/internal/testkit"
)

func TestLogLines_ReturnsThoseWithAText(t *testing.T) {
	t.Parallel()

	var log testkit.Log
	log.Logger().Info("ships", "n", 1)
	log.Logger().Debug("boats")
	if got := log.Lines("boats"); len(got) != 1 || !strings.Contains(log.String(), "ships") {
		t.Errorf("lines %q of\n%s", got, &log)
	}
}

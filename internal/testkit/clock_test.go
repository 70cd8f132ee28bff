package testkit_test

import (
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/internal/testkit"
)

func TestClock_ShowsWhatItWasSetTo(t *testing.T) {
	t.Parallel()

	noon := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	c := testkit.NewClock(noon)
	if got := c.Add(-time.Hour); !got.Equal(noon.Add(-time.Hour)) || !c.Now().Equal(got) {
		t.Errorf("an hour back: %v, then %v", got, c.Now())
	}
	c.Set(noon)
	if !c.Now().Equal(noon) {
		t.Errorf("set to noon: %v", c.Now())
	}
	fast := testkit.NewRunningClock(noon, 1e6)
	testkit.Eventually(t, "an hour of a clock that runs a million times as fast", time.Minute,
		func() bool { return fast.Now().After(noon.Add(time.Hour)) })
}

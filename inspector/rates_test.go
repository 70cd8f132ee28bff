package inspector

import (
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
)

// A rate is that of the last two looks which were 10 s apart, or of the last look and now.
func TestMeter_CountsIDsASecond(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	var m meter
	for _, tt := range []struct {
		after time.Duration
		made  int64
		want  float64 // -1: none
	}{
		{0, 100, -1},
		{9 * time.Second, 1000, -1},
		{10 * time.Second, 1100, 100},
		{15 * time.Second, 1600, 100}, // since the first look
		{20 * time.Second, 1100, 0},   // since the look at 10 s
		{40 * time.Second, 1400, 15},  // since that at 20 s
		{-time.Hour, 1500, -1},        // the clock was set back
		{-time.Hour + 10*time.Second, 1600, 10},
	} {
		stats := uidplugin.Stats{Time: start.Add(tt.after), Tables: []uidplugin.TableStats{{Table: "orders", Made: tt.made}}}
		table := m.tables(stats)[0]
		got := table.Rate
		if got != nil && table.Since < apart {
			t.Errorf("after %v: a rate of %v", tt.after, table.Since)
		}
		if (got == nil) != (tt.want < 0) || got != nil && *got != tt.want {
			t.Errorf("after %v: %v, want %v", tt.after, got, tt.want)
		}
	}
}

package inspector

import (
	"database/sql/driver"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
)

// On call people have to know what fails, since when, and whether to act.
func TestHealthOf_SaysWhatAnOutageMeans(t *testing.T) {
	t.Parallel()
	gone := fmt.Errorf("uidplugin: the lease: %w", driver.ErrBadConn)
	stats := func(failed, until time.Duration) uidplugin.Stats {
		return uidplugin.Stats{Space: "x", Slot: workernode.SlotStats{
			ID: 1, LastError: gone, Since: noon.Add(failed), Until: noon.Add(until),
		}}
	}
	for name, tt := range map[string]struct {
		stats      uidplugin.Stats
		err        error
		unreadable bool
		summary    string
		says       string
	}{
		"well":       {uidplugin.Stats{Space: "x", Slot: workernode.SlotStats{ID: 1}}, nil, false, "healthy", "Ids can be made now"},
		"fixed":      {uidplugin.Stats{}, nil, false, "healthy", "Ids can be made now"},
		"tool":       {uidplugin.Stats{Space: "x"}, nil, false, "holds no slot", "This process holds no slot now"},
		"unreadable": {uidplugin.Stats{Space: "x"}, nil, true, "database unreachable", "could not read the database"},
		"closed":     {uidplugin.Stats{}, uidplugin.ErrClosed, true, "closed", "makes no more ids"},
		"table":      {uidplugin.Stats{Space: "x"}, gone, false, "needs attention", "Some creates fail"},
		"an outage begins": {
			stats(-3*time.Second, 7*time.Second), gone, true, "creates fail soon",
			"since 2026-06-01 11:59:57.000, 3.0 s ago. Creates will fail after 2026-06-01 12:00:07.000, in 7.0 s, or earlier if " +
				"the database does not answer. Rows are safe",
		},
		"an outage": {
			stats(-5*time.Minute, -290*time.Second), gone, true, "creates fail",
			"5 min 0 s ago. Creates have failed since 2026-06-01 11:55:10.000 at the latest. Rows are safe, and no id is " +
				"made twice. Do not restart the process, because it recovers",
		},
		"an outage of an idle process": {
			stats(-time.Minute, -time.Hour), gone, true, "creates fail", "Creates have failed since 2026-06-01 11:59:00.000 at",
		},
	} {
		h := healthOf(tt.stats, tt.err, tt.unreadable, noon)
		if h.OK != (tt.err == nil) || h.Summary != tt.summary || !strings.Contains(h.Advice, tt.says) {
			t.Errorf("%s: %+v", name, h)
		}
	}
}

func TestHealthHandler_SaysWhetherThePluginIsHealthy(t *testing.T) {
	t.Parallel()
	s := open(t)
	h := HealthHandler(s.db)
	if status, body := get(t, h, "/ready"); status != http.StatusOK || body != "ok\n" {
		t.Errorf("%d, %q", status, body)
	}
	testkit.MustClose(t, s.plugin)
	if status, body := get(t, h, "/ready"); status != http.StatusServiceUnavailable || body != "unavailable\n" {
		t.Errorf("after Close: %d, %q", status, body)
	}
	if status, _ := get(t, HealthHandler(testkit.SQLite{}.Open(t)), "/ready"); status != http.StatusServiceUnavailable {
		t.Errorf("without the plugin: %d", status)
	}
	shows(t, s.handler, http.StatusOK, "/", "The plugin is closed: this process makes no more ids.")
}

package page_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// documents is where the pictures are.
const documents = "../../docs"

// TestScreenshots takes the pictures of the documents, with -update.
func TestScreenshots(t *testing.T) {
	if !*update {
		t.Skip("without -update")
	}
	b := open(t)
	s, _ := live(t)
	history(t, s)
	var customer uidplugin.ID
	testkit.Must(t, s.db.Raw("SELECT MAX(id) FROM shop_customers").Scan(&customer).Error)
	for _, p := range []struct{ url, scheme, name string }{
		{"id?id=" + customer.String(), "light", "id-light"}, {"id?id=" + customer.String(), "dark", "id-dark"},
		{"sessions", "light", "sessions-light"},
	} {
		b.colours(p.scheme)
		b.resize(1100, 300)
		b.visit(s.url + p.url)
		b.resize(1100, min(eval[int64](b, "document.documentElement.scrollHeight"), 900))
		var data []byte
		b.run(chromedp.CaptureScreenshot(&data))
		testkit.Must(t, os.WriteFile(filepath.Join(documents, "inspector-"+p.name+".png"), data, 0o644))
	}
}

// history gives the live processes, which are in the slots 1 to 6, a past: an outage of a quarter of an hour, and
// processes that had their slots before. Two more slots have processes that have ended.
func history(t *testing.T, s *site) {
	const minute = int64(time.Minute / time.Millisecond)
	layout := s.plugin.Layout()
	now := layout.TickAt(time.Now())
	applications := []string{"uid", "shop-api", "shop-api", "shop-api", "shop-worker", "shop-import"}
	for slot := int64(1); slot <= 6; slot++ {
		launched := now - (150+slot*5%7*12)*minute
		testkit.Must(t, s.db.Exec("UPDATE WORKER_SESSION SET START_TICK = ?, BEFORE_TICK = ?, LAUNCHED = ? WHERE SLOT = ?",
			now-80*minute, now-95*minute, layout.TimeOf(launched), slot).Error)
		ended := launched - (1+slot%3*slot*4)*minute // of the process before
		testkit.Must(t, s.db.Exec(insertSession+`SELECT SLOT, ?, ?, APPLICATION, HOST_NAME, PORT, TYPE, LAUNCHED, HOLDER`+
			` FROM WORKER_SESSION WHERE SLOT = ?`, launched, ended, slot).Error)
		for i := range 1 + slot%3 {
			start := ended - (40+(slot+i*3)%5*15)*minute
			ended = start - minute
			s.insertSession(t, slot, start, ended, applications[slot-1], fmt.Sprintf("node-%d.example.org", 1+(slot+i)%5))
		}
	}
	for slot, held := range map[int64]string{7: "", 8: "x"} {
		start, seen := now-(slot*20+110)*minute, now-(slot*15-70)*minute
		testkit.Must(t, s.db.Exec(insertSlot+`VALUES (?, ?, 1, ?, 1, ?, ?, 'shop-import', 'node-3.example.org', 'pid-2214')`,
			slot, layout.String(), seen+10_000, held, seen).Error)
		s.insertSession(t, slot, start, 0, "shop-import", "node-3.example.org")
	}
}

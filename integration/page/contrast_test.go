package page_test

import (
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/inspector"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// contrasts returns the parts of the page with less contrast than WCAG 2.2 AA asks for: 4.5 for text, 3 for large text,
// pictures and the borders of fields. It also returns how many colours it compared.
const contrasts = `(() => {
	const parse = c => { const m = c.match(/[\d.]+/g).map(Number); return m.length < 4 ? [...m, 1] : m };
	const part = v => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4 };
	const light = c => 0.2126 * part(c[0]) + 0.7152 * part(c[1]) + 0.0722 * part(c[2]);
	const ratio = (a, b) => { const x = light(a), y = light(b); return (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05) };
	const back = e => {
		for (; e; e = e.parentElement) {
			const c = parse(getComputedStyle(e).backgroundColor);
			if (c[3] == 1) return c;
			if (c[3] > 0) return [255, 0, 255, 1]; // translucent, which this does not calculate
		}
		return [255, 255, 255, 1];
	};
	const low = []; let n = 0;
	const check = (e, colour, on, least, what) => {
		n++;
		const r = ratio(parse(colour), on);
		if (r < least) low.push([what, r.toFixed(2), colour, "on", on.slice(0, 3), e.outerHTML.slice(0, 80)].join(" "));
	};
	const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (walker.nextNode()) {
		const e = walker.currentNode.parentElement;
		if (!walker.currentNode.data.trim() || e.closest("svg")) continue;
		const s = getComputedStyle(e), size = parseFloat(s.fontSize);
		const large = size >= 24 || size >= 18.66 && +s.fontWeight >= 700;
		check(e, s.color, back(e), large ? 3 : 4.5, "text");
	}
	const drawn = (selector, least, what) => document.querySelectorAll(selector).forEach(
		e => check(e, getComputedStyle(e).fill, back(e.closest("svg")), least, what));
	drawn("svg text", 4.5, "text");
	drawn(".plot rect, .meter .fill", 3, "picture");
	for (const e of document.querySelectorAll("input")) {
		check(e, getComputedStyle(e).borderTopColor, back(e.parentElement), 3, "border");
		check(e, getComputedStyle(e, "::placeholder").color, back(e), 4.5, "placeholder");
		check(e, getComputedStyle(e).color, back(e), 4.5, "text");
	}
	return { low, n };
})()`

func TestPage_HasContrast(t *testing.T) {
	t.Parallel()
	b := open(t)
	db := testkit.SQLite{Config: config()}.Open(t)
	p := harness.Use(t, db)
	testkit.Must(t, p.AutoMigrate(shop...))
	s := serve(t, db, p, inspector.WithModels(shop...))
	s.insertSlots(t, 3, "host")
	testkit.Must(t, db.Exec("UPDATE WORKER_SLOT SET HOLDER = 'x' WHERE ID = 1001").Error)
	testkit.Must(t, db.Exec("UPDATE WORKER_SLOT SET REUSABLE = 0 WHERE ID = 1002").Error)
	now := p.Layout().TickAt(time.Now())
	s.insertSession(t, 1003, now-1000, now-60_000, "batch", "host")
	s.insertSession(t, 1003, now-500, now-700, "batch", "host")
	customer := Customer{Name: "Ada"}
	testkit.Must(t, db.Create(&customer).Error)
	backs := map[string]bool{}
	for _, scheme := range []string{"light", "dark"} {
		b.colours(scheme)
		for _, url := range pages(customer.ID.String()) {
			b.visit(s.url + url)
			found := eval[struct {
				Low []string
				N   int
			}](b, contrasts)
			if found.N < 10 {
				t.Errorf("%s: only %d colours", url, found.N)
			}
			for _, low := range found.Low {
				t.Errorf("%s, %s: %s", url, scheme, low)
			}
			backs[eval[string](b, "getComputedStyle(document.body).backgroundColor")] = true
		}
	}
	if len(backs) != 2 {
		t.Errorf("light and dark have the backgrounds %v", backs)
	}
}

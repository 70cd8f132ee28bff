package page_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/follow"
	"github.com/uidplugin/uidplugin/inspector"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// silent checks that the browser has not said anything: no violation of the policy, no error, no message.
func (b *tab) silent(url string) {
	b.t.Helper()
	if messages := b.take(); len(messages) > 0 {
		b.t.Errorf("%s: the browser says %q", url, messages)
	}
}

// Without it the tests for violations could pass because nothing reports them.
func TestBrowser_ReportsViolations(t *testing.T) {
	t.Parallel()
	b := open(t)
	db := testkit.SQLite{Config: config()}.Open(t)
	s := serve(t, db, harness.Use(t, db))
	b.visit(s.url)
	b.silent(s.url)
	eval[any](b, `document.body.setAttribute("style", "color: red")`)
	if messages := b.take(); !strings.Contains(strings.Join(messages, "\n"), "style-src") {
		t.Errorf("an inline style: %q", messages)
	}
	eval[any](b, `{
		const script = document.createElement("script");
		script.textContent = "window.ran = true";
		document.body.append(script);
	}`)
	if messages := b.take(); len(messages) == 0 || eval[bool](b, "window.ran === true") {
		t.Errorf("an inline script: %q", messages)
	}
}

func TestPage_LooksUpIDsOfTheQuickstart(t *testing.T) {
	t.Parallel()
	b := open(t)
	s, customer, order := quickstart(t)
	b.visit(s.url)
	if got := b.text("main"); !strings.Contains(got, "Ids can be made now, and later.") {
		t.Errorf("the first page says %q", got)
	}
	b.lookUp(order)
	testkit.SaysAll(t, b.text("main"), "Id "+order, "shop_orders", "quickstart", "Columns of the row", "customer_id",
		customer)
	b.click("table.row a:not([href$='" + order + "'])") // the key of its customer
	testkit.SaysAll(t, b.text("main"), "Id "+customer, "shop_customers", "Ada")
	for typed, want := range map[string]string{
		"abc": "This is not an id", "-1": "A negative number is never an id", "42": "too small for an id",
		order[:18] + "x": "This is not an id", `  "` + order + `", `: "shop_orders",
	} {
		b.lookUp(typed)
		testkit.SaysAll(t, b.text("main"), want)
		if alert := eval[bool](b, `document.querySelector("[role=alert]") !== null`); alert == (want == "shop_orders") {
			t.Errorf("%q: an alert is %t", typed, alert)
		}
	}
	for _, url := range pages(order, customer) {
		b.visit(s.url + url)
		b.silent(url)
	}
}

func TestPage_ShowsFiveLiveProcesses(t *testing.T) {
	t.Parallel()
	b := open(t)
	s, ids := live(t)
	b.visit(s.url + "slots")
	got := b.text("main")
	testkit.SaysAll(t, got, "shop-api", "shop-worker", "shop-import", "node-5.example.org", "this process")
	if n := strings.Count(got, "live"); n != 6+1 { // this process too, and the legend
		t.Errorf("%d live slots:\n%s", n-1, got)
	}
	for i, id := range ids {
		b.lookUp(id)
		testkit.SaysAll(t, b.text("main"), "shop_orders", fmt.Sprintf("node-%d.example.org", i+1), "customer_id")
	}
	b.click("nav li:last-child a")
	if lanes := eval[int](b, `document.querySelectorAll(".timeline rect.good").length`); lanes != 6 {
		t.Errorf("%d live sessions in the timeline", lanes)
	}
	for _, url := range pages(ids...) {
		b.visit(s.url + url)
		b.silent(url)
	}
}

func TestPage_IsPaged(t *testing.T) {
	t.Parallel()
	b := open(t)
	db := testkit.SQLite{Config: config()}.Open(t)
	s := serve(t, db, harness.Use(t, db, uidplugin.WithModels(shop...)), inspector.WithPageSize(10))
	s.insertSlots(t, 35, "host")
	for _, list := range []string{"slots", "sessions"} {
		b.visit(s.url + list)
		rows, visited := 0, 1
		for {
			rows += eval[int](b, `document.querySelectorAll("main tbody tr").length`)
			if !eval[bool](b, `document.querySelector("a[rel=next]") !== null`) {
				break
			}
			b.click("a[rel=next]")
			visited++
		}
		if rows != 36 || visited != 4 {
			t.Errorf("%s: %d rows on %d pages", list, rows, visited)
		}
		b.click(".pages a")
		if path := eval[string](b, "location.pathname + location.search"); path != prefix+"/"+list {
			t.Errorf("the first page is %s", path)
		}
		b.silent(list)
	}
}

func TestPage_StaysBelowItsPrefix(t *testing.T) {
	t.Parallel()
	b := open(t)
	db := testkit.SQLite{Config: config()}.Open(t)
	s := serve(t, db, harness.Use(t, db))
	b.visit(strings.TrimSuffix(s.url, "/"))
	if path := eval[string](b, "location.pathname"); path != prefix+"/" {
		t.Errorf("without a slash: %s", path)
	}
	for _, url := range pages() {
		b.visit(s.url + url)
		const links = `[...document.querySelectorAll("a,link")].map(e => new URL(e.href).pathname)`
		for _, link := range eval[[]string](b, links) {
			if !strings.HasPrefix(link, prefix+"/") {
				t.Errorf("%s links to %s", url, link)
			}
		}
		if n := eval[int](b, "document.styleSheets.length"); n != 1 {
			t.Errorf("%s has %d style sheets", url, n)
		}
	}
	answer, err := http.Get(s.url + "deeper/than/there/is")
	testkit.Must(t, err)
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusNotFound {
		t.Errorf("%s", answer.Status)
	}
	b.visit(s.url + "deeper/than/there/is")
	b.click("nav li:nth-child(3) a")
	if path := eval[string](b, "location.pathname"); path != prefix+"/slots" {
		t.Errorf("from a page that does not exist: %s", path)
	}
}

func TestPage_FitsATelephone(t *testing.T) {
	t.Parallel()
	b := open(t)
	db := testkit.SQLite{Config: config()}.Open(t)
	p := harness.Use(t, db)
	testkit.Must(t, p.AutoMigrate(shop...))
	s := serve(t, db, p, inspector.WithModels(shop...))
	s.insertSlots(t, 3, strings.Repeat("a-long-host-name", 20))
	customer := Customer{Name: strings.Repeat("Ada", 300)}
	testkit.Must(t, db.Create(&customer).Error)
	for _, width := range []int64{320, 390, 768, 1280} {
		b.resize(width, 844)
		for _, url := range pages(customer.ID.String(), customer.ID.String()+"1", strings.Repeat("x", 200)) {
			b.visit(s.url + url)
			if got := eval[int64](b, "document.documentElement.scrollWidth"); got > width {
				t.Errorf("%s is %d pixels wide on a screen of %d", url, got, width)
			}
			const narrow = `[...document.querySelectorAll("tbody :is(th, td):not(.wide)")].filter(e => e.offsetWidth < 20).map(e => e.innerText)`
			if gone := eval[[]string](b, narrow); len(gone) > 0 {
				t.Errorf("%s on a screen of %d: the cells %q are not seen", url, width, gone)
			}
		}
	}
}

func TestPage_IsUsedByKeyboard(t *testing.T) {
	t.Parallel()
	b := open(t)
	db := testkit.SQLite{Config: config()}.Open(t)
	s := serve(t, db, harness.Use(t, db, uidplugin.WithModels(shop...)))
	b.visit(s.url + "slots")
	const focused = `(() => { const e = document.activeElement, s = getComputedStyle(e), r = e.getBoundingClientRect();
		return [(e.getAttribute("aria-label") || e.innerText || e.name || e.tagName).trim(),
			s.outlineStyle + " " + s.outlineWidth,
			String(r.top >= 0 && r.left >= 0 && r.bottom <= innerHeight && r.right <= innerWidth)] })()`
	var order []string
	for range 12 {
		b.run(chromedp.KeyEvent(kb.Tab))
		// The skip link slides in.
		testkit.Eventually(t, "the focus to be on the screen", testTimeout, func() bool {
			return eval[[]string](b, focused)[2] == "true"
		})
		at := eval[[]string](b, focused)
		order = append(order, at[0])
		if at[1] != "solid 2px" {
			t.Errorf("%s has the outline %q", at[0], at[1])
		}
	}
	want := []string{
		"Skip to the content", "uid inspector", "Overview", "Tables", "Slots", "Sessions", "healthy", "id", "Look up",
		"Refresh", "JSON", "Slots", // the table, which may scroll
	}
	if !slices.Equal(order, want) {
		t.Errorf("the order is %q, want %q", order, want)
	}
	b.visit(s.url + "slots")
	b.run(chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Enter))
	if at := eval[string](b, "document.activeElement.id"); at != "main" {
		t.Errorf("the skip link leads to %q", at)
	}
}

func TestPage_SaysWhatItIsToAScreenReader(t *testing.T) {
	t.Parallel()
	b := open(t)
	db := testkit.SQLite{Config: config()}.Open(t)
	p := harness.Use(t, db)
	testkit.Must(t, p.AutoMigrate(shop...))
	s := serve(t, db, p, inspector.WithModels(shop...))
	customer := Customer{Name: "Ada"}
	testkit.Must(t, db.Create(&customer).Error)
	for _, url := range pages(customer.ID.String()) {
		b.visit(s.url + url)
		for _, wrong := range eval[[]string](b, `(() => { const wrong = [], all = s => [...document.querySelectorAll(s)];
			for (const s of ["html[lang]", "header", "main", "footer", "h1", "form[role=search]", "head title"])
				if (all(s).length != 1) wrong.push(s);
			for (const t of all("table")) if (!t.caption || !t.caption.innerText) wrong.push("table without caption");
			for (const t of all("th")) if (!t.scope) wrong.push("th without scope");
			for (const t of all("tbody tr")) if (!t.querySelector("th[scope=row]")) wrong.push("row without a header");
			for (const e of all("svg:not([aria-hidden=true] svg, [aria-hidden=true])"))
				if (e.getAttribute("role") != "img" || !e.getAttribute("aria-label")) wrong.push("svg without a name");
			for (const e of all("input")) if (!e.labels.length) wrong.push("input without a label");
			for (const e of all("nav,[role=region]")) if (!e.getAttribute("aria-label")) wrong.push("landmark without a name");
			for (const e of all("section"))
				if (!document.getElementById(e.getAttribute("aria-labelledby"))) wrong.push("section without a name");
			for (const e of all("a")) if (!e.innerText.trim()) wrong.push("link without a text");
			const ids = all("[id]").map(e => e.id); if (new Set(ids).size != ids.length) wrong.push("an id twice");
			let level = 0;
			for (const h of all("h1,h2,h3")) {
				if (+h.tagName[1] > level + 1) wrong.push("a heading is left out");
				level = +h.tagName[1];
			}
			return wrong })()`) {
			t.Errorf("%s: %s", url, wrong)
		}
	}
}

// Formerly the holder of a held-up table ended in an ellipsis at the width of the page.
func TestPage_ShowsTheWholeTransactionThatHoldsATableUp(t *testing.T) {
	t.Parallel()
	b := open(t)
	db := testkit.SQLite{Config: config()}.Open(t)
	p := harness.Use(t, db, uidplugin.WithModels(shop...))
	testkit.Must(t, p.AutoMigrate(shop...))
	testkit.Must(t, follow.Enable(t.Context(), db, shop[0]))
	s := serve(t, db, p)
	b.resize(1200, 800)
	b.visit(s.url + "tables")
	cut := eval[bool](b, `(() => {
		const cell = document.querySelector("section[aria-labelledby=followed] tbody td:last-child");
		cell.textContent = "session 1648, user shop_application from 10.0.3.17:51514, application web-frontend, idle in transaction, " +
			"since 2026-11-24 03:06:13.198 UTC and 17 more";
		return cell.scrollWidth > cell.clientWidth;
	})()`)
	if cut {
		t.Error("the transaction is cut off")
	}
	b.silent("tables")
}

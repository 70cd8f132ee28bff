package page_test

import (
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/inspector"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// get returns the status of a page and its text.
func (s *site) get(t *testing.T, url string) (int, string) {
	t.Helper()
	answer, err := http.Get(s.url + url)
	testkit.Must(t, err)
	defer answer.Body.Close()
	var body strings.Builder
	testkit.Must(t, answer.Write(&body))
	return answer.StatusCode, body.String()
}

// Each engine has its own words for what the page reads, and its own limits for what others may write.
func TestPage_ShowsHostileRowsOfAllEngines(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, config())
		p := harness.Use(t, db)
		testkit.Must(t, p.AutoMigrate(shop...))
		s := serve(t, db, p, inspector.WithModels(shop...), inspector.WithPageSize(3))
		hostile := "<script>alert(1)</script>\u202e\x1b[31m"
		for i, n := range []int64{math.MinInt64, -1, 0, math.MaxInt64} {
			id := int64(math.MaxInt64) - int64(i)
			harness.Exec(t, db, `INSERT INTO "WORKER_SLOT" ("ID", "LAYOUT", "REUSABLE", "FENCE", "VERSION", "HOLDER",`+
				` "SEEN_TICK", "APPLICATION", "HOST_NAME", "PORT") VALUES (?, 'x', 2, ?, ?, 'x', ?, ?, ?, ?)`,
				id, n, n, n, hostile, hostile, hostile)
			harness.Exec(t, db, `INSERT INTO "WORKER_SESSION" ("SLOT", "START_TICK", "BEFORE_TICK", "APPLICATION",`+
				` "HOST_NAME", "PORT", "TYPE", "LAUNCHED", "HOLDER")`+
				` VALUES (?, ?, ?, ?, ?, ?, 99, '2026-01-01 00:00:00', 'x')`, id, n, n, hostile, hostile, hostile)
		}
		customer := Customer{Name: hostile}
		testkit.Must(t, db.Create(&customer).Error)
		for _, url := range []string{
			"", "tables", "slots", "slots?after=1", "sessions", "sessions?slot=9223372036854775807",
			"id?id=" + customer.ID.String(),
		} {
			status, body := s.get(t, url)
			if status != http.StatusOK || strings.Contains(body, "<script") || strings.ContainsAny(body, "\u202e\x1b") {
				t.Errorf("%s: %d\n%s", url, status, body)
			}
		}
		for url, want := range map[string]string{
			"slots": `&lt;script&gt;alert(1)&lt;/script&gt;\u202e\x1b[31m`, "id?id=" + customer.ID.String(): "shop_customers",
			"sessions?slot=9223372036854775807": "&lt;script&gt;",
		} {
			_, body := s.get(t, url)
			testkit.SaysAll(t, body, want)
		}
	})
}

func TestPage_SaysThatTheDatabaseIsOutOfReach(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		migrated := d.Open(t, config())
		testkit.Must(t, harness.Use(t, migrated).AutoMigrate(shop...))
		db, cut, restore := testkit.OpenBreakable(t, d)
		s := serve(t, db, harness.Use(t, db, uidplugin.WithModels(shop...)))
		for range 2 {
			if status, body := s.get(t, "slots"); status != http.StatusOK {
				t.Fatalf("%d: %s", status, body)
			}
			cut()
			status, body := s.get(t, "slots")
			secret := strings.Contains(body, "test:test") || strings.Contains(body, "password=test")
			if status != http.StatusServiceUnavailable || secret {
				t.Errorf("out of reach: %d\n%s", status, body)
			}
			testkit.SaysAll(t, body, "The database cannot be read.", "</html>")
			status, body = s.get(t, "")
			if status != http.StatusServiceUnavailable {
				t.Errorf("the first page: %d", status)
			}
			testkit.SaysAll(t, body, "Lease until", "The slots cannot be read now.")
			restore()
		}
	}, "mariadb", "mysql", "postgres")
}

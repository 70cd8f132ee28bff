package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/glebarez/sqlite"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/publicid"
	"gorm.io/gorm"
)

func TestRun(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), &out, ""); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	if n := strings.Count(out.String(), "200 OK"); n != 3 || strings.Count(out.String(), `404 Not Found {"error":"not found"}`) != 4 {
		t.Errorf("%s", &out)
	}
	if strings.Contains(out.String(), "swordfish") || strings.Contains(out.String(), "Bob") {
		t.Errorf("a row was shown that the caller may not see:\n%s", &out)
	}
}

// If the tables cannot be created, the pool and the plugin are closed. A bubble waits for all goroutines of both.
func TestOpen_ClosesWhatItOpenedIfItFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "node.db")
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(26 * 365 * 24 * time.Hour) // a bubble begins in 2000, before the epoch of the layout
		db, err := gorm.Open(sqlite.Open(path), &gorm.Config{})
		testkit.Must(t, err)
		pool, err := db.DB()
		testkit.Must(t, err)
		testkit.Must(t, errors.Join(db.Exec("CREATE VIEW items AS SELECT 1 AS id").Error, pool.Close()))
		if _, err := open(path); err == nil || !strings.Contains(err.Error(), "items") {
			t.Errorf("open returned %v", err)
		}
	})
}

// For every row that a caller may not see, the answer is the same, byte by byte, so it hides whether the row exists.
func TestHandler_TellsNothingOfOtherRows(t *testing.T) {
	db, err := open(filepath.Join(t.TempDir(), "node.db"))
	testkit.Must(t, err)
	defer func(db *gorm.DB) {
		if err := closeAll(db); err != nil {
			t.Error(err)
		}
	}(db)
	ids, err := fill(db)
	testkit.Must(t, err)
	get := func(tenant, path string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		r.Header.Set("X-Tenant", tenant)
		w := httptest.NewRecorder()
		handler(db).ServeHTTP(w, r)
		return w
	}
	order, item, other, session := ids[0], ids[1], ids[2], ids[3]
	missing := get("red", "/node/nothing")
	for _, c := range []struct{ tenant, id string }{
		{"red", other}, {"red", session}, {"blue", order}, {"blue", item}, {"blue", session}, {"", order}, {"", item},
		{"red", "7"}, {"red", "1234567890123456789"}, {"red", order + "0"}, {"red", "itm" + order[3:]}, {"red", strings.Repeat("x", 5000)},
	} {
		got := get(c.tenant, "/node/"+c.id)
		if got.Code != http.StatusNotFound || got.Body.String() != missing.Body.String() || fmt.Sprint(got.Header()) != fmt.Sprint(missing.Header()) {
			t.Errorf("%.60s as %q: %d %s", c.id, c.tenant, got.Code, got.Body)
		}
	}
	for _, id := range []string{order, item} {
		if got := get("red", "/node/"+id); got.Code != http.StatusOK || !strings.Contains(got.Body.String(), id) {
			t.Errorf("%s: %d %s", id, got.Code, got.Body)
		}
	}
	var rows []map[string]any
	list := get("red", "/nodes?id="+strings.Join([]string{item, other, "7", session, order, item}, "&id="))
	if err := json.Unmarshal(list.Body.Bytes(), &rows); err != nil || len(rows) != 6 {
		t.Fatalf("%s: %v", list.Body, err)
	}
	if rows[0]["id"] != item || rows[1] != nil || rows[2] != nil || rows[3] != nil || rows[4]["id"] != order || rows[5]["id"] != item {
		t.Errorf("%s", list.Body)
	}
	if got := get("red", "/nodes?id=7"+strings.Repeat("&id=7", 100)); got.Code != http.StatusBadRequest {
		t.Errorf("101 ids: %d", got.Code)
	}
	// The number of the order, in a text of another type, is in no answer.
	number, err := publicid.Parse[Order](order)
	testkit.Must(t, err)
	forged := publicid.ID[Item](number).String()
	if got := get("red", "/node/"+forged); got.Code != http.StatusNotFound {
		t.Errorf("%s: %d %s", forged, got.Code, got.Body)
	}
	if got := get("red", "/nodes?id="+forged); strings.TrimSpace(got.Body.String()) != "[null]" {
		t.Errorf("%s: %s", forged, got.Body)
	}
	closed, err := open(filepath.Join(t.TempDir(), "closed.db"))
	if err == nil {
		err = closeAll(closed)
	}
	testkit.Must(t, err)
	db = closed
	for _, path := range []string{"/node/" + order, "/nodes?id=" + order} {
		if got := get("red", path); got.Code != http.StatusInternalServerError || strings.Contains(got.Body.String(), "sql") {
			t.Errorf("without the database: %d %s", got.Code, got.Body)
		}
	}
}

// A text that is no order's, or another tenant's, changes nothing: on MySQL a text in a condition is the number 0.
func TestHandler_Orders(t *testing.T) {
	db, err := open(filepath.Join(t.TempDir(), "node.db"))
	testkit.Must(t, err)
	defer func() {
		if err := closeAll(db); err != nil {
			t.Error(err)
		}
	}()
	ids, err := fill(db)
	testkit.Must(t, err)
	first, item, blue := ids[0], ids[1], ids[2]
	ada := Customer{Tenant: "red", Name: "Ada Lovelace"}
	second := Order{Tenant: "red"}
	testkit.Must(t, errors.Join(db.Create(&ada).Error, db.Create(&second).Error))
	send := func(tenant, method, path, body string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
		r.Header.Set("X-Tenant", tenant)
		w := httptest.NewRecorder()
		handler(db).ServeHTTP(w, r)
		return w
	}
	to := func(customer string) string { return fmt.Sprintf(`{"customer":%q}`, customer) }
	for _, c := range []struct {
		tenant, method, path, body string
		status                     int
		has                        []string
	}{
		{"red", "GET", "/orders", "", 200, []string{first, second.ID.String()}},
		{"red", "GET", "/orders?after=" + first, "", 200, []string{second.ID.String()}},
		{"red", "GET", "/orders?after=" + second.ID.String(), "", 200, []string{"[]"}},
		{"blue", "GET", "/orders", "", 200, []string{"[]"}},
		{"red", "GET", "/orders?after=" + item, "", 404, nil},
		{"red", "GET", "/orders?after=0", "", 404, nil},
		{"red", "PATCH", "/orders/" + first, to(ada.ID.String()), 200, []string{ada.ID.String()}},
		{"red", "PATCH", "/orders/" + first, to(blue), 404, nil},
		{"red", "PATCH", "/orders/" + first, to(item), 400, nil},
		{"red", "PATCH", "/orders/" + first, "{}", 404, nil},
		{"blue", "PATCH", "/orders/" + first, to(blue), 404, nil},
		{"blue", "DELETE", "/orders/" + first, "", 404, nil},
		{"red", "DELETE", "/orders/" + item, "", 404, nil},
		{"red", "DELETE", "/orders/x", "", 404, nil},
		{"red", "DELETE", "/orders/" + second.ID.String(), "", 204, nil},
		{"red", "DELETE", "/orders/" + second.ID.String(), "", 404, nil},
		{"red", "GET", "/orders", "", 200, []string{first, ada.ID.String()}},
	} {
		got := send(c.tenant, c.method, c.path, c.body)
		if got.Code != c.status {
			t.Errorf("%s %s as %s: %d %s", c.method, c.path, c.tenant, got.Code, got.Body)
		}
		for _, text := range c.has {
			if !strings.Contains(got.Body.String(), text) {
				t.Errorf("%s %s: %s lacks %s", c.method, c.path, got.Body, text)
			}
		}
	}
}

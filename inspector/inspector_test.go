package inspector

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// An account has a column of each kind that the page treats in its own way.
type account struct {
	ID       uidplugin.ID `gorm:"primaryKey;uid"`
	Parent   uidplugin.ID
	Email    string
	Password string `json:"-"`
	Note     *string
	Data     []byte
	Made     time.Time
	Active   bool
	Share    float64
	Tags     []string `gorm:"serializer:json"`
}

// An order is a model that the page does not list.
type order struct {
	ID int64 `gorm:"primaryKey;uid"`
}

// quiet discards what the plugin and the page log.
var quiet = slog.New(slog.DiscardHandler)

// A site is a page on a database of its own.
type site struct {
	db      *gorm.DB
	plugin  *uidplugin.Plugin
	handler *handler
}

// open returns a page on a new SQLite database with the tables of accounts and orders.
func open(tb testing.TB, options ...Option) *site {
	tb.Helper()
	return openOn(tb, testkit.SQLite{}.Open(tb), nil, options...)
}

func openOn(tb testing.TB, db *gorm.DB, plugin []uidplugin.Option, options ...Option) *site {
	tb.Helper()
	p := plugintest.Use(tb, db, append(plugin, uidplugin.WithModels(&account{}, &order{}))...)
	testkit.Must(tb, db.AutoMigrate(&account{}, &order{}))
	h, err := newHandler(db, append([]Option{WithLogger(quiet), WithModels(&account{})}, options...)...)
	testkit.Must(tb, err)
	return &site{db, p, h}
}

// get returns the status and the body of a page.
func get(tb testing.TB, h http.Handler, target string, header ...string) (int, string) {
	tb.Helper()
	w := ask(tb, h, http.MethodGet, target, header...)
	return w.Code, w.Body.String()
}

// shows reports a test error unless a page has the status and the words. It returns the body.
func shows(tb testing.TB, h http.Handler, want int, target string, text ...string) string {
	tb.Helper()
	status, body := get(tb, h, target)
	if status != want {
		tb.Errorf("%s: %d, want %d", target, status, want)
	}
	testkit.SaysAll(tb, words(body), text...)
	return body
}

// ask sends a request; header has names and values.
func ask(tb testing.TB, h http.Handler, method, target string, header ...string) *httptest.ResponseRecorder {
	tb.Helper()
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// getJSON returns the status and the data of a page.
func getJSON[T any](tb testing.TB, h http.Handler, target string) (status int, data T, failed *problem) {
	tb.Helper()
	w := ask(tb, h, http.MethodGet, target, "Accept", "application/json")
	if kind := w.Header().Get("Content-Type"); kind != "application/json" {
		tb.Fatalf("%s has the type %q", target, kind)
	}
	var d struct {
		Data  T
		Error *problem
	}
	if err := json.Unmarshal(w.Body.Bytes(), &d); err != nil {
		tb.Fatalf("%s: %v\n%s", target, err, w.Body)
	}
	return w.Code, d.Data, d.Error
}

func (s *site) create(tb testing.TB, a account) account {
	tb.Helper()
	testkit.Must(tb, s.db.Create(&a).Error)
	return a
}

// words returns what a reader of a page sees: its text, with single spaces.
func words(body string) string {
	body = regexp.MustCompile(`<[^>]*>`).ReplaceAllString(body, " ")
	return strings.Join(strings.Fields(body), " ")
}

func TestNew_RefusesWhatItCannotShow(t *testing.T) {
	t.Parallel()
	s := open(t)
	for name, tt := range map[string]struct {
		db     *gorm.DB
		option Option
		want   error
	}{
		"nil":                {nil, nil, uidplugin.ErrNotRegistered},
		"without plugin":     {testkit.SQLite{}.Open(t), nil, uidplugin.ErrNotRegistered},
		"no slash":           {s.db, WithPrefix("admin"), uidplugin.ErrOption},
		"nil mask":           {s.db, WithMask(nil), uidplugin.ErrOption},
		"nil logger":         {s.db, WithLogger(nil), uidplugin.ErrOption},
		"page of 0":          {s.db, WithPageSize(0), uidplugin.ErrOption},
		"page of 1001":       {s.db, WithPageSize(1001), uidplugin.ErrOption},
		"model without uids": {s.db, WithModels(&struct{ ID string }{}), uidplugin.ErrNoField},
	} {
		if h, err := New(tt.db, tt.option); h != nil && err == nil {
			t.Errorf("%s: no error", name)
		} else {
			testkit.IsError(t, err, tt.want)
		}
	}
}

func TestHandler_SetsTheHeadersOfEveryAnswer(t *testing.T) {
	t.Parallel()
	s := open(t)
	for _, target := range []string{
		"/", "/id?id=1", "/id?id=x", "/slots", "/tables", "/sessions", "/nowhere", "/style.css", "/icon.svg", "/?format=json",
	} {
		w := ask(t, s.handler, http.MethodGet, target)
		for name, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; " +
				"frame-ancestors 'none'; base-uri 'none'",
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
			"Vary": "Accept", "Content-Length": fmt.Sprint(w.Body.Len()),
		} {
			if got := w.Header().Get(name); got != want {
				t.Errorf("%s: %s is %q", target, name, got)
			}
		}
	}
}

func TestHandler_HasNoScriptAndNoInlineStyle(t *testing.T) {
	t.Parallel()
	s := open(t)
	a := s.create(t, account{Email: "ada@example.org"})
	for _, target := range []string{"/", "/id?id=" + a.ID.String(), "/slots", "/tables", "/sessions", "/nowhere"} {
		_, body := get(t, s.handler, target)
		forbidden := regexp.MustCompile(`(?i)<script|<style|\sstyle=|\son\w+=|javascript:|https?://`)
		if bad := forbidden.FindString(body); bad != "" {
			t.Errorf("%s has %q", target, bad)
		}
	}
}

func TestHandler_OnlyReads(t *testing.T) {
	t.Parallel()
	s := open(t)
	for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS"} {
		w := ask(t, s.handler, method, "/")
		if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: %d, Allow %q", method, w.Code, w.Header().Get("Allow"))
		}
	}
	server := httptest.NewServer(s.handler)
	defer server.Close()
	answer, err := server.Client().Head(server.URL + "/slots")
	testkit.Must(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	testkit.Must(t, err)
	if answer.StatusCode != http.StatusOK || len(body) != 0 || answer.ContentLength <= 0 {
		t.Errorf("HEAD: %s, %d bytes, length %d", answer.Status, len(body), answer.ContentLength)
	}
}

func TestHandler_SendsSelectsOnly(t *testing.T) {
	t.Parallel()
	db, wire := testkit.OpenWire(t, testkit.Engine{Name: "sqlite"}.New(t))
	s := openOn(t, db, nil)
	a := s.create(t, account{})
	wire.Take()
	for _, tt := range []struct {
		page       string
		statements int
	}{
		{"/", 1}, {"/id?id=x", 0}, {"/id?id=42", 0}, {"/style.css", 0}, {"/nowhere", 0}, {"/slots", 1}, {"/tables", 3},
		{"/sessions", 2}, {"/id?id=" + a.ID.String(), 3}, // worker id and session, worker id, row
	} {
		get(t, s.handler, tt.page)
		sent := wire.Take()
		writes := slices.ContainsFunc(sent, func(query string) bool { return !strings.HasPrefix(query, "SELECT ") })
		if len(sent) != tt.statements || writes {
			t.Errorf("%s sends %q", tt.page, sent)
		}
	}
}

func TestHandler_IsMountedAnywhere(t *testing.T) {
	t.Parallel()
	s := open(t)
	prefixed, err := New(s.db, WithPrefix("/admin/uid/"))
	testkit.Must(t, err)
	mux := http.NewServeMux()
	mux.Handle("/admin/uid/", prefixed)
	mux.Handle("/stripped/", http.StripPrefix("/stripped", s.handler))
	mux.Handle("/both/admin/uid/", http.StripPrefix("/both/admin/uid", prefixed))
	for target, want := range map[string]int{
		"/admin/uid/": 200, "/admin/uid/slots": 200, "/admin/uid/style.css": 200, "/admin/uid/none": 404,
		"/admin/uid/slots/": 404,
		"/stripped/":        200, "/stripped/slots": 200, "/stripped/style.css": 200, "/stripped/none": 404,
		"/both/admin/uid/": 200, "/both/admin/uid/slots": 200, "/both/admin/uid/a/b": 404,
	} {
		status, body := get(t, mux, target)
		if status != want {
			t.Errorf("%s: %d, want %d", target, status, want)
		}
		if links := regexp.MustCompile(`(href|action)="/`).FindString(body); links != "" {
			t.Errorf("%s has links that a proxy would break", target)
		}
	}
	if _, body := get(t, mux, "/both/admin/uid/a/b"); !strings.Contains(body, `href="./../style.css"`) {
		t.Error("a page further down has no style")
	}
}

func TestHandler_RedirectsToTheSlash(t *testing.T) {
	t.Parallel()
	s := open(t)
	prefixed, err := New(s.db, WithPrefix("/admin/uid"))
	testkit.Must(t, err)
	for _, tt := range []struct {
		h            http.Handler
		target, want string
	}{
		{prefixed, "/admin/uid", "./uid/"},
		{prefixed, "/admin/uid?format=json", "./uid/?format=json"},
		{http.StripPrefix("/tools/uid", s.handler), "/tools/uid?a=b", "./uid/?a=b"},
		{http.StripPrefix("//example.org", s.handler), "//example.org", "./"},
	} {
		r := httptest.NewRequest(http.MethodGet, "http://host"+tt.target, nil)
		r.RequestURI = tt.target
		w := httptest.NewRecorder()
		tt.h.ServeHTTP(w, r)
		if got := w.Header().Get("Location"); w.Code != http.StatusPermanentRedirect || !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s: %d, Location %q, want %q", tt.target, w.Code, got, tt.want)
		}
	}
}

func TestHandler_AnswersInJSON(t *testing.T) {
	t.Parallel()
	s := open(t)
	for _, tt := range []struct {
		target, accept, want string
	}{
		{"/", "", "text/html; charset=utf-8"},
		{"/", "*/*", "text/html; charset=utf-8"},
		{"/", "text/html,application/xhtml+xml,application/json;q=0.9", "text/html; charset=utf-8"},
		{"/", "application/json", "application/json"},
		{"/", "application/json, */*", "application/json"},
		{"/?format=json", "text/html", "application/json"},
		{"/?format=html", "application/json", "text/html; charset=utf-8"},
	} {
		w := ask(t, s.handler, http.MethodGet, tt.target, "Accept", tt.accept)
		if got := w.Header().Get("Content-Type"); got != tt.want {
			t.Errorf("%s with Accept %q has the type %q", tt.target, tt.accept, got)
		}
	}
	for _, target := range []string{"/", "/slots", "/tables", "/sessions", "/nowhere", "/slots?after=x"} {
		_, data, problem := getJSON[map[string]any](t, s.handler, target)
		if (data == nil) == (problem == nil) {
			t.Errorf("%s: data %v, problem %v", target, data, problem)
		}
	}
}

func TestHandler_SaysThatTheDatabaseIsOutOfReach(t *testing.T) {
	t.Parallel()
	var log testkit.Log
	s := open(t, WithLogger(log.Logger()))
	a := s.create(t, account{})
	status, _ := get(t, s.handler, "/id?id="+a.ID.String())
	if status != http.StatusOK {
		t.Fatalf("before: %d", status)
	}
	testkit.Must(t, testkit.Close(s.db))
	for _, target := range []string{"/", "/id?id=" + a.ID.String(), "/slots", "/tables", "/sessions"} {
		shows(t, s.handler, http.StatusServiceUnavailable, target,
			"database unreachable", "The database cannot be read.", "database is closed")
	}
	testkit.SaysAll(t, log.String(), "inspector: the database cannot be read", "path=/ ", "database is closed")
	if _, body := get(t, s.handler, "/id?id="+a.ID.String()); !strings.Contains(words(body), "Bits") {
		t.Error("the bits of an id need no database")
	}
	shows(t, s.handler, http.StatusServiceUnavailable, "/", "The slots cannot be read now.", "Lease until", "Id space")
}

// Formerly each load of a page in an outage logged the same, every 10 s for each page that refreshes itself.
func TestHandlerWrite_LogsAnOutageOnce(t *testing.T) {
	t.Parallel()
	var log testkit.Log
	s := open(t, WithLogger(log.Logger()))
	for n := 1; n <= 2; n++ {
		s.handler.limit = time.Nanosecond
		for _, target := range []string{"/", "/slots", "/nowhere", "/slots"} {
			get(t, s.handler, target)
		}
		shows(t, s.handler, http.StatusServiceUnavailable, "/slots", "The database did not answer within 1ns.")
		if got := strings.Count(log.String(), "cannot be read"); got != n {
			t.Errorf("%d lines after %d outages", got, n)
		}
		s.handler.limit = timeout
		if status, _ := get(t, s.handler, "/slots"); status != http.StatusOK {
			t.Fatalf("after the outage: %d", status)
		}
	}
}

// A tool has no models, and no tables of its own.
func TestHandler_OfAProcessWithoutModels(t *testing.T) {
	t.Parallel()
	s := open(t)
	a := s.create(t, account{Email: "ada@example.org"})
	db, err := gorm.Open(s.db.Dialector, &gorm.Config{})
	testkit.Must(t, err)
	t.Cleanup(func() { testkit.Must(t, testkit.Close(db)) })
	testkit.Must(t, db.Use(uidplugin.New(uidplugin.WithoutMigration(), uidplugin.WithLogger(quiet))))
	h, err := New(db, WithLogger(quiet))
	testkit.Must(t, err)
	for page, want := range map[string]string{
		"/": "holds no slot now", "/tables": "This process has not made ids for any table.", "/slots": "live",
		"/sessions": "live", "/id?id=" + a.ID.String(): "This page shows no rows",
	} {
		shows(t, h, http.StatusOK, page, want)
	}
	testkit.MustClose(t, uidplugin.From(db))
	shows(t, h, http.StatusOK, "/", "This process holds no slot now")
}

package inspector

import (
	"bytes"
	"embed"
	"encoding/json"
	"html/template"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin/internal/admin"
)

//go:embed templates/*.html
var templateFiles embed.FS

//go:embed static/style.css static/icon.svg
var staticFiles embed.FS

var assets = map[string]string{"/style.css": "text/css; charset=utf-8", "/icon.svg": "image/svg+xml"}

func isAsset(path string) bool { return assets[path] != "" }

// templates are the templates by page; the page "" shows only a problem.
var templates = parseTemplates()

func parseTemplates() map[string]*template.Template {
	frame := template.Must(template.New("frame.html").Funcs(functions).ParseFS(templateFiles, "templates/frame.html",
		"templates/shared*.html"))
	all := map[string]*template.Template{"": frame}
	for _, name := range []string{"overview", "id", "tables", "slots", "sessions"} {
		all[name] = template.Must(template.Must(frame.Clone()).ParseFS(templateFiles, "templates/"+name+".html"))
	}
	return all
}

// A frame is the data of a page for its template.
type frame struct {
	Title   string
	Page    string // for the navigation
	Root    string // relative address of the first page
	Typed   string
	Health  health
	Now     time.Time
	Refresh int    // seconds until a reload; 0 for none
	Again   string // address that turns reloads on, or off if they are on
	JSON    string // address of this page as JSON
	Problem *problem
	Data    any
}

// A document is a page as JSON.
type document struct {
	Time   time.Time `json:"time"` // clock of this process
	Health health    `json:"health"`
	Data   any       `json:"data,omitempty"`
	Error  *problem  `json:"error,omitempty"`
}

// write writes an answer as HTML or JSON. It renders the whole page first, so an error never leaves half a page.
func (h *handler) write(w http.ResponseWriter, r *http.Request, a answer) {
	status := http.StatusOK
	if a.problem != nil {
		status = a.problem.Status
	}
	switch {
	case a.problem == nil:
		h.outage.Store(false)
	case a.cause != nil && r.Context().Err() == nil && (a.ofRow || !h.outage.Swap(true)):
		h.log.Warn("inspector: the database cannot be read", "path", r.URL.Path, "error", a.cause)
	}
	var body bytes.Buffer
	now, query := h.now().UTC(), r.URL.Query()
	health := healthOf(h.plugin.Stats(), h.plugin.Health(), a.cause != nil, now)
	kind, err := "text/html; charset=utf-8", error(nil)
	if wantsJSON(r) {
		kind, err = "application/json", writeJSON(&body, document{now, health, a.data, a.problem})
	} else {
		f := frame{
			Title: a.title, Page: a.template, Root: rootFrom(h.below(r.URL.Path)), Typed: a.typed,
			Health: health, Now: now, Problem: a.problem, Data: a.data, JSON: next("", query, "format", "json"),
		}
		if f.Again = next("", query, "refresh", strconv.Itoa(refresh)); query.Has("refresh") {
			f.Refresh, f.Again = refresh, next("", query, "refresh", "")
		}
		err = templates[a.template].Execute(&body, f)
	}
	if err != nil {
		h.log.Error("inspector: a page cannot be written", "path", r.URL.Path, "error", err)
		http.Error(w, "The page cannot be written; the log has the reason.", http.StatusInternalServerError)
		return
	}
	send(w, status, kind, body.Bytes())
}

const refresh = 10 // seconds between reloads

// writeJSON writes indented JSON, for people with curl.
func writeJSON(body *bytes.Buffer, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err == nil {
		body.WriteString(admin.EscapeJSON(text) + "\n")
	}
	return err
}

// send writes a body. net/http drops it for HEAD.
func send(w http.ResponseWriter, status int, kind string, body []byte) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // fails if the client has gone
}

func writeAsset(w http.ResponseWriter, _ *http.Request, path string) {
	body, err := staticFiles.ReadFile("static" + path)
	if err != nil {
		panic(err) // impossible: the file is embedded
	}
	send(w, http.StatusOK, assets[path], body)
}

// wantsJSON reports whether a request is for JSON. A browser accepts text/html, so it gets HTML.
func wantsJSON(r *http.Request) bool {
	if format := r.URL.Query().Get("format"); format != "" {
		return format == "json"
	}
	accept := strings.Join(r.Header.Values("Accept"), ",")
	return strings.Contains(accept, "application/json") && !strings.Contains(accept, "text/html")
}

// rootFrom returns the relative address of the first page.
func rootFrom(path string) string {
	return "./" + strings.Repeat("../", max(strings.Count(path, "/")-1, 0))
}

// Package inspector is a page for the people who operate an application: where an id came from, who holds which slot,
// and which worker ids the tables have. It is an [http.Handler] that the application mounts behind its own
// authentication.
//
//	page, err := inspector.New(db, inspector.WithPrefix("/admin/uid"), inspector.WithModels(&Order{}))
//	mux.Handle("/admin/uid/", onlyAdmins(page))
//
// The page only reads, and answers GET and HEAD. It has no script. Each page is also JSON, under the same path: with
// format=json in the query, or with a header Accept that names application/json and not text/html.
//
// # Pages
//
//	./            the state of all slots, of this process and of the id space
//	id?id=N       an id: its bits, time, table, process, and its row if the model is listed
//	tables        tables of this process, and worker ids of all;  after=WORKER_ID
//	slots         slots, their holders and how far ahead they are;  after=SLOT
//	sessions      which process held which slot when;  slot=SLOT, after=SLOT, before=TIME, span=DURATION
//
// With refresh=10 in the query the browser loads a page again every ten seconds.
//
// At most three pages read the database at once; others wait for up to ten seconds. All statements of a page together
// get five seconds. If the database cannot be read, the page says why, with status 503: it is for operators. The reason is
// also logged. That of a row is only logged, as it may have values of the row.
package inspector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

const (
	timeout  = 5 * time.Second // for all statements of a page together; it waits twice as long for its turn
	maxPages = 3               // that read the database at once: each takes a connection of the application's pool
)

// A handler is the page. It may be used concurrently.
type handler struct {
	config
	db     *gorm.DB
	plugin *uidplugin.Plugin
	layout generator.Layout
	now    func() time.Time
	limit  time.Duration // of the statements of a page
	turns  chan struct{} // a place for each page that reads the database
	meter  *meter
}

// New returns the page for a handle that has the plugin. It sends no statement. The conditions of db hold for the rows
// that the page shows, as they do for [uidplugin.Plugin.Find]: with db.Unscoped() it shows deleted rows, too. The
// handler may be used concurrently.
//
// The error wraps [uidplugin.ErrNotRegistered] for a handle without the plugin, or [uidplugin.ErrOption]. For the
// models of [WithModels] it is that of [uidplugin.OnlyModels].
func New(db *gorm.DB, options ...Option) (http.Handler, error) {
	return newHandler(db, options...)
}

func newHandler(db *gorm.DB, options ...Option) (*handler, error) {
	if db == nil {
		return nil, fmt.Errorf("%w: inspector: the handle is nil", uidplugin.ErrNotRegistered)
	}
	c := config{pageSize: defaultPageSize, log: slog.Default()}
	for _, option := range options {
		if option == nil {
			continue
		}
		if err := option(&c); err != nil {
			return nil, err
		}
	}
	plugin := uidplugin.From(db)
	if err := plugin.Health(); errors.Is(err, uidplugin.ErrNotRegistered) {
		return nil, err
	}
	if _, err := plugin.FindAll(context.Background(), nil, uidplugin.OnlyModels(c.models...)); err != nil {
		return nil, err // of a model: without ids, nothing is sent
	}
	h := &handler{config: c, db: db, plugin: plugin, layout: plugin.Layout(), now: time.Now, limit: timeout, meter: &meter{},
		turns: make(chan struct{}, maxPages)}
	h.meter.tables(plugin.Stats()) // so that the first look has a rate
	return h, nil
}

// A reader reads what a page shows.
type reader func(h *handler, ctx context.Context, query url.Values) answer

// pages are those that there are, by path.
var pages = map[string]reader{
	"/":         (*handler).overview,
	"/id":       (*handler).lookup,
	"/tables":   (*handler).tables,
	"/slots":    (*handler).slots,
	"/sessions": (*handler).sessions,
}

// ServeHTTP implements [http.Handler].
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	setHeaders(w.Header())
	path := h.below(r.URL.Path)
	read, ok := pages[path]
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		h.write(w, r, refused(http.StatusMethodNotAllowed, "This page only reads: it answers GET and HEAD.", nil))
	case path == "":
		redirectToSlash(w, r)
	case isAsset(path):
		writeAsset(w, r, path)
	case !ok:
		h.write(w, r, refused(http.StatusNotFound, "There is no such page.", nil))
	default:
		h.write(w, r, h.inTurn(read, r))
	}
}

// errBusy is why a page reads nothing that did not get its turn.
var errBusy = errors.New("other pages are reading the database")

// inTurn reads a page when fewer than maxPages others are read. After a while without a turn the page shows what needs
// no database: the context of its statements has ended because of errBusy.
func (h *handler) inTurn(read reader, r *http.Request) answer {
	wait, cancel := context.WithTimeoutCause(r.Context(), 2*h.limit, errBusy)
	defer cancel()
	select {
	case h.turns <- struct{}{}: // also if the wait is over already
	default:
		select {
		case h.turns <- struct{}{}:
		case <-wait.Done():
			return read(h, wait, r.URL.Query())
		}
	}
	defer func() { <-h.turns }()
	ctx, cancel := context.WithTimeout(r.Context(), h.limit)
	defer cancel()
	return read(h, ctx, r.URL.Query())
}

// below returns a path below the prefix. Behind [http.StripPrefix] the path has none.
func (h *handler) below(path string) string {
	if rest, ok := strings.CutPrefix(path, h.prefix); ok && (rest == "" || rest[0] == '/') {
		return rest
	}
	return path
}

// redirectToSlash adds the slash without which the links of the page, which are relative, would lead elsewhere. The
// target is relative, too, so that a proxy may have changed the path.
func redirectToSlash(w http.ResponseWriter, r *http.Request) {
	path := r.URL.EscapedPath()
	if path == "" { // behind http.StripPrefix
		path, _, _ = strings.Cut(r.RequestURI, "?")
	}
	target := "./" + path[strings.LastIndexByte(path, '/')+1:] + "/"
	if r.URL.RawQuery != "" {
		target += "?" + r.URL.RawQuery
	}
	w.Header().Set("Location", target)
	w.WriteHeader(http.StatusPermanentRedirect)
}

// setHeaders sets the headers of all answers.
func setHeaders(header http.Header) {
	header.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; "+
		"frame-ancestors 'none'; base-uri 'none'")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cache-Control", "no-store")
	header.Set("Vary", "Accept")
}

// timeOf returns the start of a tick that was read from a table, as far as JSON can say it.
func (h *handler) timeOf(tick int64) time.Time {
	return workernode.TimeOf(h.layout, tick)
}

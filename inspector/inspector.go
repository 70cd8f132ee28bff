// Package inspector is a web page for operators. It shows the origin of an id, the holders of slots, and the worker ids
// of tables. Mount this [http.Handler] behind the application's authentication.
//
//	page, err := inspector.New(db, inspector.WithPrefix("/admin/uid"), inspector.WithModels(&Order{}))
//	mux.Handle("/admin/uid/", onlyAdmins(page))
//
// The page only reads, answers GET and HEAD, and does not use scripts. For JSON, add format=json to the query, or send
// an Accept header with application/json and without text/html.
//
// # Pages
//
//	./            the state of all slots, of this process and of the id space
//	id?id=N       an id: its bits, time, table, process, and its row if the model is listed
//	tables        tables of this process, followed tables, consumers, and all worker ids;  after=WORKER_ID
//	slots         slots, their holders and the ends of their leases;  after=SLOT
//	sessions      which process held which slot when;  slot=SLOT, after=SLOT, before=TIME, span=DURATION
//
// Add refresh=10 to the query to reload a page every ten seconds.
//
// At most three pages read the database at once; other pages wait for up to ten seconds. All statements of a page
// together get five seconds. If the database cannot be read, the page shows the reason with status 503, because its
// readers are operators. The reason is logged once per outage. Errors of a row are only logged, because they may
// contain values of the row.
package inspector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/core"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

const (
	timeout  = 5 * time.Second // for all statements of a page; a page waits twice as long for its turn
	maxPages = 3               // that read at once; few, because each takes a connection of the application's pool
)

// A handler serves the pages. It is safe for concurrent use.
type handler struct {
	config
	db     *gorm.DB
	plugin *uidplugin.Plugin
	nodes  *workernode.DB // nil with WithWorkerID
	layout generator.Layout
	now    func() time.Time
	limit  time.Duration // for the statements of a page
	turns  chan struct{} // limits the pages that read at once
	meter  *meter
	outage atomic.Bool // the last attempt to read the database failed
}

// New returns the page for a handle that has the plugin. It does not send statements. The conditions of db also apply
// to rows that the page shows, as in [uidplugin.Plugin.Find]: pass db.Unscoped() to show deleted rows. The handler is
// safe for concurrent use.
//
// The error wraps [uidplugin.ErrNotRegistered] for a handle without the plugin, or [uidplugin.ErrOption] for a
// wrong option. For a wrong model of [WithModels], New returns the error of [uidplugin.OnlyModels].
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
		return nil, err // a model is not valid; a call without ids only checks the models
	}
	owner, err := core.Of(db)
	if err != nil {
		return nil, err
	}
	h := &handler{config: c, db: db, plugin: plugin, nodes: owner.Workers, layout: plugin.Layout(), now: time.Now, limit: timeout, meter: &meter{},
		turns: make(chan struct{}, maxPages)}
	h.meter.tables(plugin.Stats()) // for the rates of the first page
	return h, nil
}

type reader func(h *handler, ctx context.Context, query url.Values) answer

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
		h.write(w, r, refused(http.StatusMethodNotAllowed, "This page is read-only: use GET or HEAD."))
	case path == "":
		redirectToSlash(w, r)
	case isAsset(path):
		writeAsset(w, r, path)
	case !ok:
		h.write(w, r, refused(http.StatusNotFound, "This page does not exist."))
	default:
		h.write(w, r, h.inTurn(read, r))
	}
}

// errBusy is the reason of a page that did not get its turn.
var errBusy = errors.New("other pages are reading the database")

// inTurn waits until fewer than maxPages other pages read the database, and then loads the page. After too long a
// wait the page's context has ended with errBusy, so the page shows only what needs no database.
func (h *handler) inTurn(load reader, r *http.Request) answer {
	wait, cancel := context.WithTimeoutCause(r.Context(), 2*h.limit, errBusy)
	defer cancel()
	select {
	case h.turns <- struct{}{}: // take a free turn even if the wait is over
	default:
		select {
		case h.turns <- struct{}{}:
		case <-wait.Done():
			return load(h, wait, r.URL.Query())
		}
	}
	defer func() { <-h.turns }()
	ctx, cancel := context.WithTimeout(r.Context(), h.limit)
	defer cancel()
	return load(h, ctx, r.URL.Query())
}

// below returns a path without the prefix, which [http.StripPrefix] may already have removed.
func (h *handler) below(path string) string {
	if rest, ok := strings.CutPrefix(path, h.prefix); ok && (rest == "" || rest[0] == '/') {
		return rest
	}
	return path
}

// redirectToSlash adds a trailing slash, because the links of the page are relative. The target is relative, too,
// because a proxy may have changed the path.
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

func setHeaders(header http.Header) {
	header.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; "+
		"frame-ancestors 'none'; base-uri 'none'")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cache-Control", "no-store")
	header.Set("Vary", "Accept")
}

// timeOf returns the start of a tick, limited to times that JSON can express.
func (h *handler) timeOf(tick int64) time.Time {
	return workernode.TimeOf(h.layout, tick)
}

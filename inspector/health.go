package inspector

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/uidplugin/uidplugin"
	"gorm.io/gorm"
)

// HealthHandler returns a handler for readiness probes: status 200 if [uidplugin.Plugin.Health] is nil, otherwise 503.
// It does not send statements. It hides the reason because probes are often unauthenticated; the page and
// the plugin's log have it.
//
// Do not use it for liveness: a process that cannot reach its database recovers by itself, and a restart does not help.
func HealthHandler(db *gorm.DB) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		status, text := http.StatusOK, "ok\n"
		if uidplugin.From(db).Health() != nil {
			status, text = http.StatusServiceUnavailable, "unavailable\n"
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text) // fails if the client has gone
	})
}

// A health describes the state of this process for operators.
type health struct {
	OK      bool   `json:"ok"`      // [uidplugin.Plugin.Health] returned nil
	Summary string `json:"summary"` // for the header of each page
	Advice  string `json:"advice"`  // consequence for creates, and the remedy
	Reason  string `json:"reason,omitempty"`
	Class   string `json:"-"` // CSS class of Summary
}

// healthOf describes the plugin's state. unreadable is true if this page could not read the database.
func healthOf(stats uidplugin.Stats, err error, unreadable bool, now time.Time) health {
	makes := stats.Slot.ID != 0 || stats.Space == "" // no Space means a fixed worker id, without a slot
	switch {
	case err == nil && unreadable:
		return health{
			OK: true, Summary: "database unreachable", Class: late,
			Advice: "This page could not read the database. While it does not answer, creates fail.",
		}
	case err == nil && makes:
		return health{OK: true, Summary: "healthy", Class: good, Advice: "Ids can be made now, and later."}
	case err == nil:
		return health{
			OK: true, Summary: "holds no slot",
			Advice: "This process holds no slot now: it makes no ids, or has made none yet.",
		}
	}
	h := health{Summary: "needs attention", Class: late, Reason: err.Error(), Advice: "Some creates fail or will fail."}
	switch {
	case errors.Is(err, uidplugin.ErrClosed):
		h.Summary, h.Class, h.Advice = "closed", bad, "The plugin is closed: this process makes no more ids."
	case stats.Slot.LastError != nil:
		h.Summary, h.Class = "creates fail", bad
		when := "Creates fail."
		switch until := stats.Slot.Until; {
		case until.After(now):
			h.Summary, h.Class = "creates fail soon", late
			when = "Creates will fail after " + clock(until) + ", in " + span(until.Sub(now)) +
				", or earlier if the database does not answer."
		case !until.IsZero():
			when = "Creates have failed since " + clock(later(until, stats.Slot.Since)) + " at the latest."
		}
		h.Advice = "The lease of this process could not be renewed since " + clock(stats.Slot.Since) + ", " +
			since(stats.Slot.Since, now) + ". " + when + " Rows are safe, and no id is made twice. " +
			"Do not restart the process, because it recovers as soon as the database accepts its statements again."
	}
	return h
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

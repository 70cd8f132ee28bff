package inspector

import (
	"io"
	"net/http"

	"github.com/uidplugin/uidplugin"
	"gorm.io/gorm"
)

// HealthHandler returns a handler for probes of readiness: status 200 if [uidplugin.Plugin.Health] is nil, 503
// otherwise. It sends no statement. It does not say why: probes are often asked without authentication. The page says
// why, and so does the log of the plugin.
//
// Do not use it for liveness: a process that cannot reach its database recovers by itself, and one that is started
// again does not help.
func HealthHandler(db *gorm.DB) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		status, text := http.StatusOK, "ok\n"
		if uidplugin.From(db).Health() != nil {
			status, text = http.StatusServiceUnavailable, "unavailable\n"
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text) // the caller has gone if it fails
	})
}

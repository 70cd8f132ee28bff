package harness

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"gorm.io/gorm"
)

// Quiet discards the plugin's log.
var Quiet = uidplugin.WithLogger(slog.New(slog.DiscardHandler))

// Use registers a plugin and closes it when the test ends.
func Use(t *testing.T, db *gorm.DB, options ...uidplugin.Option) *uidplugin.Plugin {
	t.Helper()
	p := uidplugin.New(append([]uidplugin.Option{Quiet}, options...)...)
	if err := db.Use(p); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { Close(t, p) })
	return p
}

// Close closes a plugin or a lease manager. It retries because a statement may time out on a busy machine.
func Close(t *testing.T, p interface {
	Close(ctx context.Context) error
}) {
	t.Helper()
	for try := 0; ; try++ {
		err := p.Close(context.Background())
		if err == nil {
			return
		}
		if try == 5 {
			t.Fatal(err)
		}
	}
}

// NextID returns an id for T1, or an error after ten seconds.
func NextID(p *uidplugin.Plugin) (int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	id, err := p.NextID(ctx, &T1{})
	return int64(id), err
}

// Resolves checks that ids resolve to a table and to a process, identified by its port.
func Resolves(t *testing.T, p *uidplugin.Plugin, table, port string, ids ...int64) {
	t.Helper()
	for _, id := range ids {
		l, err := p.Locate(context.Background(), uidplugin.ID(id))
		if err != nil || l.Table != table || port != "" && l.Session.Port != port {
			t.Errorf("Locate(%d) = %+v, %v; want table %s and port %s", id, l, err, table, port)
		}
	}
}

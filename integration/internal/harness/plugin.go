package harness

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/config"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// Quiet discards the plugin's log. It sets a timeout of a minute, because the machine may be busy.
var Quiet uidplugin.Option = func(c *config.Config) {
	uidplugin.WithLogger(slog.New(slog.DiscardHandler))(c)
	uidplugin.WithTimeout(time.Minute)(c)
}

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

// Close is [testkit.MustClose].
func Close(t *testing.T, p interface {
	Close(ctx context.Context) error
}) {
	t.Helper()
	testkit.MustClose(t, p)
}

// NextID returns an id for T1. It waits for at most a minute.
func NextID(p *uidplugin.Plugin) (int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	id, err := p.NextID(ctx, &T1{})
	return int64(id), err
}

// MustID returns an id for T1. It tries for a minute, because a short lease may end while a busy machine stalls.
func MustID(t *testing.T, p *uidplugin.Plugin) (id int64) {
	t.Helper()
	testkit.Eventually(t, "an id", time.Minute, func() bool {
		var err error
		id, err = NextID(p)
		return err == nil
	})
	return id
}

// Refused makes ids by calling take, until take returns an error that is wanted. It returns this error.
func Refused(t *testing.T, what string, take func() error, wanted func(err error) bool) (err error) {
	t.Helper()
	testkit.Eventually(t, what, time.Minute, func() bool {
		for range 100_000 {
			if err = take(); err != nil {
				return wanted(err)
			}
		}
		return false
	})
	return err
}

// Resolves checks that ids resolve to a table and to the process with a port. An empty port allows any process.
func Resolves(t *testing.T, p *uidplugin.Plugin, table, port string, ids ...int64) {
	t.Helper()
	for _, id := range ids {
		l, err := p.Locate(context.Background(), uidplugin.ID(id))
		if err != nil || l.Table != table || port != "" && l.Session.Port != port {
			t.Errorf("Locate(%d) = %+v, %v; want table %s and port %s", id, l, err, table, port)
		}
	}
}

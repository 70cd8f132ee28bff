package lookup_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/plugintest"
)

// A number such as 17 is no id of this layout, and its time means nothing. It is most often a key from before.
func TestPluginLocate_SaysThatANumberIsTooSmall(t *testing.T) {
	t.Parallel()

	p := uidplugin.From(plugintest.Open(t, uidplugin.WithModels(&plugintest.Part{})))
	for _, id := range []uidplugin.ID{0, 1, 17, 1 << 20} {
		_, err := p.Locate(t.Context(), id)
		if !errors.Is(err, uidplugin.ErrNotDecodable) || !errors.Is(err, uidplugin.ErrNoSuchID) || !strings.Contains(err.Error(), "too small for the layout: it may be a key from before the plugin") {
			t.Errorf("%d: %v", id, err)
		}
		if _, err := p.Decode(id); !errors.Is(err, uidplugin.ErrNotDecodable) {
			t.Errorf("Decode of %d: %v", id, err)
		}
	}
	if _, err := p.Locate(t.Context(), uidplugin.ID(plugintest.At(t, 999, 0))); !errors.Is(err, uidplugin.ErrUnknownID) || strings.Contains(err.Error(), "too small") {
		t.Errorf("of a worker id that does not exist: %v", err)
	}
}

// Decode refuses the ids of the first tick, as keys from before the plugin look like them. If a process could stamp that
// tick, Decode would refuse an id that was made. The clock of this test stands at the epoch.
func TestPluginDecode_NoLeasedIDHasTheFirstTick(t *testing.T) {
	t.Parallel()

	layout := generator.DefaultLayout()
	for _, kind := range []string{"cached", "snowflake", "paired"} {
		db, p := openParts(t, uidplugin.WithDefaultGenerator(kind), uidplugin.WithClock(func() time.Time { return layout.Epoch }))
		rows := make([]plugintest.Part, 10) // fewer than a tick has
		must(t, db.Create(&rows).Error)
		for _, r := range rows {
			if parts, err := p.Decode(uidplugin.ID(r.ID)); err != nil || layout.TickAt(parts.Time) != 1 {
				t.Errorf("%s: the id %d is of %v, %v; want the second tick", kind, r.ID, parts.Time, err)
			}
		}
	}
}

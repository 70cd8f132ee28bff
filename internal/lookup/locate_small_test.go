package lookup_test

import (
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/plugintest"
)

// Decode refuses the ids of the first tick, as keys from before the plugin look like them. If a process could stamp that
// tick, Decode would refuse an id that was made. The clock of this test stands at the epoch.
func TestPluginDecode_NoLeasedIDHasTheFirstTick(t *testing.T) {
	t.Parallel()

	layout := generator.DefaultLayout()
	for _, kind := range []string{uidplugin.Cached, uidplugin.Snowflake, uidplugin.Paired} {
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

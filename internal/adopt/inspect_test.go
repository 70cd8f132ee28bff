package adopt_test

import (
	"strings"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

var must = testkit.Must

// GORM parses a model into another schema for a table that Table names. The plugin's AutoMigrate makes the key plain
// there too, and GORM's own keeps it so.
func TestAutoIncrement_TablesThatTableNames(t *testing.T) {
	t.Parallel()

	j := &plugintest.Journal{}
	db := plugintest.Open(t, j.Option(), uidplugin.WithModels(&plugintest.Counter{}))
	must(t, uidplugin.From(db.Table("archive")).AutoMigrate(&plugintest.Counter{}))
	for range 2 {
		var create string
		must(t, db.Raw("SELECT sql FROM sqlite_master WHERE name = 'archive'").Row().Scan(&create))
		if lines := j.Lines("level=WARN"); strings.Contains(create, "AUTOINCREMENT") || len(lines) > 0 {
			t.Fatalf("%s; logged %q", create, lines)
		}
		must(t, db.Table("archive").Create(&plugintest.Counter{}).Error)
		must(t, db.Migrator().DropTable("archive"))
		must(t, db.Table("archive").AutoMigrate(&plugintest.Counter{}))
	}
}

// A tag that asks for AUTO_INCREMENT is a decision: sqlite_sequence and the like stay as they were. Formerly each start
// warned of it.
func TestAutoIncrement_ATagThatAsksForItIsADecision(t *testing.T) {
	t.Parallel()

	type wanted struct {
		ID int64 `gorm:"primaryKey;autoIncrement;uid"`
	}
	for _, d := range plugintest.Dialects {
		for _, options := range [][]uidplugin.Option{{uidplugin.WithModels(&wanted{})}, nil} {
			j := &plugintest.Journal{}
			db, mock := testkit.Mock(t, d.Dial)
			plugintest.Expect(mock, d.WithoutRegistry()...)
			plugintest.Use(t, db, append(options, uidplugin.WithWorkerID(7), j.Option())...)
			_, err := uidplugin.From(db).NextID(t.Context(), &wanted{})
			must(t, err)
			if lines := j.Lines("level=WARN"); len(lines) > 0 {
				t.Errorf("%s: %q", d.Name, lines)
			}
		}
	}
}

package catalog_test

import (
	"strings"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// inArchive is a scope that names another table than the model's.
func inArchive(db *gorm.DB) *gorm.DB { return db.Table("archive") }

// GORM parses a model into another schema for a table that Table or Scopes name. The plugin's AutoMigrate makes the key
// plain there too. After GORM's own, or with Scopes, there is a warning.
func TestAutoIncrement_TablesThatTableOrScopesName(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		name    string
		migrate func(db *gorm.DB) error
		plain   bool
	}{
		{"Table", func(db *gorm.DB) error { return db.Table("archive").AutoMigrate(&plugintest.Counter{}) }, false},
		{"Scopes", func(db *gorm.DB) error { return db.Scopes(inArchive).AutoMigrate(&plugintest.Counter{}) }, false},
		{"Migrator", func(db *gorm.DB) error { return db.Table("archive").Migrator().CreateTable(&plugintest.Counter{}) }, false},
		{"From, Table", func(db *gorm.DB) error { return uidplugin.From(db.Table("archive")).AutoMigrate(&plugintest.Counter{}) }, true},
		{"From, Scopes", func(db *gorm.DB) error {
			return uidplugin.From(db.Scopes(inArchive)).AutoMigrate(&plugintest.Counter{})
		}, false},
		{"From, Table, then Table", func(db *gorm.DB) error {
			must(t, uidplugin.From(db.Table("archive")).AutoMigrate(&plugintest.Counter{}))
			must(t, db.Migrator().DropTable("archive"))
			return db.Table("archive").AutoMigrate(&plugintest.Counter{})
		}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			j := &plugintest.Journal{}
			db := plugintest.Open(t, j.Option(), uidplugin.WithModels(&plugintest.Counter{}))
			must(t, tt.migrate(db))
			var create string
			must(t, db.Raw("SELECT sql FROM sqlite_master WHERE name = 'archive'").Row().Scan(&create))
			lines := j.Lines("level=WARN")
			plain := !strings.Contains(create, "AUTOINCREMENT")
			if plain != tt.plain || (len(lines) == 0) != plain || len(lines) > 1 {
				t.Fatalf("%s; logged %q", create, lines)
			}
			if !tt.plain {
				saysAll(t, lines[0], "the database numbers", "table=archive", "model=Counter", "column=id",
					"From(db.Table(name)).AutoMigrate")
				must(t, db.Migrator().DropTable("archive"))
				must(t, tt.migrate(db))
				if again := j.Lines("level=WARN"); len(again) != 1 {
					t.Errorf("%q", again)
				}
			}
			must(t, db.Table("archive").Create(&plugintest.Counter{}).Error)
		})
	}
}

// Tables of other models, and of models that the plugin does not number, are not warned of.
func TestAutoIncrement_OtherTablesThatTableNames(t *testing.T) {
	t.Parallel()

	type different struct {
		ID   int64
		Note string
	}
	type wanted struct {
		ID   int64 `gorm:"primaryKey;autoIncrement;uid"`
		Text string
	}
	j := &plugintest.Journal{}
	db := plugintest.Open(t, j.Option(), uidplugin.WithModels(&plugintest.Counter{}, &wanted{}))
	must(t, db.Table("archive").AutoMigrate(&different{}))
	must(t, db.Table("chosen").AutoMigrate(&wanted{}))
	must(t, db.Table("notes").Exec("CREATE TABLE notes (id INTEGER PRIMARY KEY AUTOINCREMENT)").Error)
	if lines := j.Lines("level=WARN"); len(lines) > 0 {
		t.Errorf("%q", lines)
	}
}

// A tag that asks for AUTO_INCREMENT is a decision: sqlite_sequence and the like stay as they were. It was warned of at
// each start.
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

// The number of a row that is inserted without the plugin differs between engines, and so do the consequences.
func TestAutoIncrement_TheWarningSaysWhichNumberTheDatabaseGives(t *testing.T) {
	t.Parallel()

	for _, d := range plugintest.Dialects {
		j := &plugintest.Journal{}
		db, _ := testkit.Mock(t, d.Dial)
		plugintest.Use(t, db, uidplugin.WithWorkerID(7), j.Option())
		_, err := uidplugin.From(db).NextID(t.Context(), &plugintest.Counter{})
		must(t, err)
		text := j.String()
		largest, sequence := strings.Contains(text, "duplicate key"), strings.Contains(text, "independently")
		if largest == (d.Name == "postgres") || sequence == largest {
			t.Errorf("%s: %s", d.Name, text)
		}
	}
}

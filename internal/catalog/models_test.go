package catalog_test

import (
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/catalog"
	"github.com/uidplugin/uidplugin/internal/config"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

var must, saysAll = testkit.Must, testkit.SaysAll

// numbersToo is in the line about keys that the database numbers.
const numbersToo = "the database numbers keys too"

// A first start is quiet: one line tells of all keys that GORM lets the database number. Formerly there was a warning
// of 400 characters for each table.
func TestAutoIncrement_KeysThatTheDatabaseNumbersAreToldOfOnce(t *testing.T) {
	t.Parallel()

	type second struct {
		gorm.Model `gorm:"uid"`
	}
	j := &plugintest.Journal{}
	db := plugintest.Open(t, j.Option())
	plugintest.Migrate(t, db, &plugintest.Counter{}, &second{})
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 3 {
				if err := db.Create(&plugintest.Counter{}).Error; err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	must(t, db.Create(&[]second{{}, {}}).Error)
	must(t, db.Model(&plugintest.Counter{}).Create(map[string]any{"name": "a"}).Error)
	lines := j.Lines(numbersToo)
	if len(lines) != 1 {
		t.Fatalf("%d lines: %q", len(lines), lines)
	}
	saysAll(t, lines[0], "level=INFO", "columns=counters.id", "docs/from-auto-increment.md")
}

// Errors have a line with the name for the reader to paste.
func TestCatalog_NameForATable(t *testing.T) {
	t.Parallel()

	type Parcel struct {
		uidplugin.Model
	}
	db := plugintest.Open(t)
	must(t, db.Table("boxes").AutoMigrate(&Parcel{}))
	must(t, db.AutoMigrate(&Parcel{}))
	must(t, db.Create(&Parcel{}).Error)
	c := catalog.New(&config.Config{}, db, nil)
	for table, want := range map[string]string{"orders": "Order", "order_lines": "OrderLine", "_x": "X", "": "", "ärzte": "Ärzte"} {
		if got := c.NameFor(table); got != want {
			t.Errorf("%q: %q, not %q", table, got, want)
		}
	}
}

func TestAutoIncrement_KeysThatArePlainAreNotWarnedOf(t *testing.T) {
	t.Parallel()

	type declared struct {
		ID int64 `gorm:"primaryKey;autoIncrement:false;uid"`
	}
	type public struct {
		uidplugin.Model
	}
	type textual struct {
		ID string `gorm:"primaryKey;uid"`
	}
	type secondary struct {
		ID    int64
		Trace int64 `gorm:"uid"`
	}
	type ranged struct {
		ID int64 `gorm:"primaryKey;uid:segment"`
	}
	j := &plugintest.Journal{}
	for _, tt := range []struct {
		name    string
		model   any
		prepare func(db *gorm.DB, model any) error
	}{
		{"a segment", &ranged{}, nil}, // wing: segment
		{"autoIncrement:false", &declared{}, nil},
		{"uidplugin.ID", &plugintest.Article{}, nil},
		{"uidplugin.Model", &public{}, nil},
		{"string", &textual{}, nil},
		{"not the key", &secondary{}, nil},
		{"Register", &plugintest.Counter{}, func(db *gorm.DB, m any) error { return uidplugin.From(db).Register(t.Context(), m) }},
		{"AutoMigrate", &plugintest.Counter{}, func(db *gorm.DB, m any) error { return uidplugin.From(db).AutoMigrate(m) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			db := plugintest.Open(t, j.Option())
			if tt.prepare != nil {
				must(t, tt.prepare(db, tt.model))
			}
			plugintest.Migrate(t, db, tt.model)
			must(t, db.Create(tt.model).Error)
		})
	}
	t.Run("WithModels", func(t *testing.T) {
		db := plugintest.Open(t, j.Option(), uidplugin.WithModels(&plugintest.Counter{}))
		plugintest.Migrate(t, db, &plugintest.Counter{})
		must(t, db.Create(&plugintest.Counter{}).Error)
	})
	if lines := j.Lines(numbersToo); len(lines) != 0 {
		t.Errorf("warnings: %q", lines)
	}
}

// ddl returns what AutoMigrate of models would run on a dialect.
func ddl(t *testing.T, db *gorm.DB, models ...any) string {
	t.Helper()
	tx, s := plugintest.Recorded(db.Session(&gorm.Session{DryRun: true}))
	for _, m := range models {
		must(t, tx.Migrator().CreateTable(m))
	}
	return strings.Join(s.Take(), "\n")
}

// parent and child are associated, so that one of them stands for both.
type parent struct {
	ID       int64 `gorm:"primaryKey;uid"`
	Children []child
	Friends  []friend `gorm:"many2many:friendships"`
}
type child struct {
	ID       int64 `gorm:"primaryKey;uid"`
	ParentID int64
}
type friend struct {
	gorm.Model `gorm:"uid"`
}

func TestAutoIncrement_KeysOfRegisteredModelsArePlain(t *testing.T) {
	t.Parallel()

	for _, d := range plugintest.Dialects {
		for _, way := range []string{"WithModels", "Register", "AutoMigrate", "none"} {
			t.Run(d.Name+"/"+way, func(t *testing.T) {
				t.Parallel()

				db, _ := testkit.Mock(t, d.Dial)
				options := []uidplugin.Option{uidplugin.WithWorkerID(7)}
				if way == "WithModels" {
					options = append(options, uidplugin.WithModels(&parent{}))
				}
				p := plugintest.Use(t, db, options...)
				switch way {
				case "Register":
					must(t, p.Register(t.Context(), &parent{}))
				case "AutoMigrate":
					// The mock refuses the queries that GORM's AutoMigrate sends next. The models are registered
					// before that.
					if err := p.AutoMigrate(&parent{}); err == nil {
						t.Fatal("migrated on a mock")
					}
				}
				got := ddl(t, db, &parent{}, &child{}, &friend{})
				auto := regexp.MustCompile(`(?i)auto_increment|serial`).FindAllString(got, -1)
				switch plain := strings.Count(strings.NewReplacer("`", "", `"`, "").Replace(got), "id bigint"); {
				case way == "none" && len(auto) != 3:
					t.Errorf("without a registration: %s", got)
				case way != "none" && (len(auto) != 0 || plain < 2):
					t.Errorf("%s", got)
				}
			})
		}
	}
}

func TestAutoIncrement_TheKeyOfMySQLIsBigintNotNull(t *testing.T) {
	t.Parallel()

	// A foreign key to gorm.Model needs the tag: MySQL refuses one of another sign.
	type toOldTable struct {
		ID    uidplugin.ID
		OldID uidplugin.ID `gorm:"type:bigint unsigned"`
	}
	db, _ := testkit.Mock(t, plugintest.Dialects[0].Dial)
	plugintest.Use(t, db, uidplugin.WithWorkerID(7), uidplugin.WithModels(&plugintest.Counter{}))
	for _, tt := range []struct {
		model any
		want  string
	}{
		{&plugintest.Counter{}, "CREATE TABLE `counters` (`id` bigint,`name` longtext,PRIMARY KEY (`id`))"},
		{&plugintest.Article{}, "CREATE TABLE `articles` (`id` bigint,`name` longtext,PRIMARY KEY (`id`))"},
		{&plugintest.Part{}, "CREATE TABLE `parts` (`id` bigint,`name` longtext,PRIMARY KEY (`id`))"},
		{&toOldTable{}, "CREATE TABLE `to_old_tables` (`id` bigint,`old_id` bigint unsigned,PRIMARY KEY (`id`))"},
	} {
		if got := ddl(t, db, tt.model); got != tt.want {
			t.Errorf("%s", got)
		}
	}
}

// AUTO_INCREMENT that the tag asks for stays, in all of GORM's spellings.
func TestAutoIncrement_ThatTheAuthorWantsStays(t *testing.T) {
	t.Parallel()

	type wanted struct {
		ID int64 `gorm:"primaryKey;autoIncrement:true;uid"`
	}
	type wantedPlain struct {
		ID int64 `gorm:"primaryKey;autoIncrement;uid"`
	}
	for _, model := range []any{&wanted{}, &wantedPlain{}} {
		db, _ := testkit.Mock(t, plugintest.Dialects[0].Dial)
		plugintest.Use(t, db, uidplugin.WithWorkerID(7), uidplugin.WithModels(model))
		if got := ddl(t, db, model); !strings.Contains(got, "AUTO_INCREMENT") {
			t.Errorf("%T: %s", model, got)
		}
	}
}

func TestAutoIncrement_AutoMigrateAlsoMigratesModelsWithoutTag(t *testing.T) {
	t.Parallel()

	db := plugintest.Open(t)
	must(t, uidplugin.From(db).AutoMigrate(&plugintest.Ledger{}, &plugintest.Counter{}, &parent{}, &child{}, &friend{}))
	must(t, db.Create(&parent{Children: []child{{}}, Friends: []friend{{}}}).Error)
	must(t, db.Create(&plugintest.Ledger{ID: 1}).Error)
	must(t, db.Create(&plugintest.Counter{}).Error)
	must(t, uidplugin.From(db).AutoMigrate()) // of nothing
	for _, model := range []any{nil, 5, &[]int{1}} {
		if err := uidplugin.From(db).AutoMigrate(model); err == nil {
			t.Errorf("AutoMigrate of %v: no error", model)
		}
	}
}

// The columns of a composite key are plain. GORM alone makes a column AUTO_INCREMENT if its name is id.
func TestAutoIncrement_ACompositeKeyOfRegisteredModelsIsPlain(t *testing.T) {
	t.Parallel()

	type shelf struct {
		Tenant int64 `gorm:"primaryKey"`
		ID     int64 `gorm:"primaryKey;uid"`
	}
	db, _ := testkit.Mock(t, plugintest.Dialects[0].Dial)
	plugintest.Use(t, db, uidplugin.WithWorkerID(7), uidplugin.WithModels(&shelf{}))
	if got, want := ddl(t, db, &shelf{}), "CREATE TABLE `shelves` (`tenant` bigint,`id` bigint,PRIMARY KEY (`tenant`,`id`))"; got != want {
		t.Errorf("%s", got)
	}
}

// An application lists all its models once, for AutoMigrate and for WithModels. Formerly those without a uid field were
// refused.
func TestPluginRegister_ModelsWithoutAUIDFieldAreNamedOnce(t *testing.T) {
	t.Parallel()

	type reading struct {
		No    uint `gorm:"primaryKey"`
		Value float64
	}
	j := &plugintest.Journal{}
	db := plugintest.Bare(t)
	p := plugintest.Use(t, db, j.Option(), uidplugin.WithModels(&plugintest.Part{}, &plugintest.Ledger{}, &reading{}))
	must(t, p.AutoMigrate(&reading{}, &plugintest.Part{}, &plugintest.Ledger{}))
	lines := j.Lines("no uid field")
	if len(lines) != 1 {
		t.Fatalf("logged %q", lines)
	}
	saysAll(t, lines[0], "level=INFO", "Ledger, reading")
	row := reading{Value: 1}
	must(t, db.Create(&row).Error)
	if row.No != 1 {
		t.Errorf("the database's key is %d", row.No)
	}
	if tables := p.Stats().Tables; len(tables) != 1 {
		t.Errorf("worker ids were taken for %+v", tables)
	}
}

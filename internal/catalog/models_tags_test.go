package catalog_test

import (
	"fmt"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// Key is embedded.
type Key struct {
	ID int64 `gorm:"primaryKey;autoIncrement:false;uid"`
}

// These all have an id in the column of their name.
type (
	byValue struct {
		Key
		Name string
	}
	byPointer struct {
		*Key
		Name string
	}
	prefixed struct {
		Key  Key `gorm:"embedded;embeddedPrefix:my_"`
		Name string
	}
	prefixedPointer struct {
		Key  *Key `gorm:"embedded;embeddedPrefix:my_"`
		Name string
	}
	taggedModel struct {
		gorm.Model `gorm:"uid"`
		Name       string
	}
	shadowed struct {
		ID int64 `gorm:"primaryKey;autoIncrement:false;uid"`
		gorm.Model
		Name string
	}
	ours struct {
		uidplugin.Model
		Name string
	}
	renamed struct {
		Number int64 `gorm:"primaryKey;uid;column:no"`
		Name   string
	}
	notTheKey struct {
		Name  string `gorm:"primaryKey"`
		Trace int64  `gorm:"uid"`
	}
)

func TestTag_TaggedFieldsAreFilledWhereverTheyAre(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		name   string
		model  any
		id     func(any) int64
		column string
	}{
		{"embedded", &byValue{}, func(m any) int64 { return m.(*byValue).ID }, "id"},
		{"embedded by pointer", &byPointer{}, func(m any) int64 { return m.(*byPointer).ID }, "id"},
		{"embedded by pointer that is set", &byPointer{Key: &Key{}}, func(m any) int64 { return m.(*byPointer).ID }, "id"},
		{"prefix", &prefixed{}, func(m any) int64 { return m.(*prefixed).Key.ID }, "my_id"},
		{"prefix and pointer", &prefixedPointer{}, func(m any) int64 { return m.(*prefixedPointer).Key.ID }, "my_id"},
		{"tagged gorm.Model", &taggedModel{}, func(m any) int64 { return int64(m.(*taggedModel).ID) }, "id"},
		{"shadowed gorm.Model", &shadowed{}, func(m any) int64 { return m.(*shadowed).ID }, "id"},
		{"uidplugin.Model", &ours{}, func(m any) int64 { return int64(m.(*ours).ID) }, "id"},
		{"column", &renamed{}, func(m any) int64 { return m.(*renamed).Number }, "no"},
		{"composite", &plugintest.Composite{Tenant: 5}, func(m any) int64 { return m.(*plugintest.Composite).ID }, "id"},
		{"not the key", &notTheKey{Name: "a"}, func(m any) int64 { return m.(*notTheKey).Trace }, "trace"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			db := plugintest.Open(t)
			p := uidplugin.From(db)
			must(t, p.AutoMigrate(tt.model))
			must(t, db.Create(tt.model).Error)
			stmt := &gorm.Statement{DB: db}
			must(t, stmt.Parse(tt.model))
			id := tt.id(tt.model)
			plugintest.IsOurs(t, db, stmt.Table, id)
			if n := plugintest.Count(t, db, stmt.Table, tt.column+" = ?", id); n != 1 {
				t.Errorf("%d rows with the id", n)
			}
			row, err := p.Find(t.Context(), uidplugin.ID(id))
			if tt.column == "trace" { // which is not the key
				plugintest.Only(t, err, uidplugin.ErrNotKey, "not_the_keys", fmt.Sprint(id))
				return
			}
			must(t, err)
			if got := tt.id(row); got != id {
				t.Errorf("found the id %d, want %d", got, id)
			}
		})
	}
}

// A tag on the line of an embedded model applies to its key only, although GORM copies the tag to the times next to
// it.
func TestTag_ATagOnTheEmbeddingLineMeansTheKey(t *testing.T) {
	t.Parallel()

	db := plugintest.Open(t)
	plugintest.Migrate(t, db, &taggedModel{}, &shadowed{})
	row := taggedModel{Name: "a"}
	must(t, db.Create(&row).Error)
	if row.CreatedAt.Year() < 2026 || row.UpdatedAt.Year() < 2026 || row.DeletedAt.Valid {
		t.Errorf("the row is %+v", row)
	}
	// A shadowed ID is no column, and stays as it is.
	other := shadowed{Name: "b"}
	must(t, db.Create(&other).Error)
	if other.ID == 0 || other.Model.ID != 0 {
		t.Errorf("the row is %+v", other)
	}
}

func TestTag_AllTaggedFieldsOfARowGetIDsOfTheirOwn(t *testing.T) {
	t.Parallel()

	type pair struct {
		ID     int64        `gorm:"primaryKey;autoIncrement:false;uid"`
		Trace  uidplugin.ID `gorm:"uid"`
		Public string       `gorm:"uid:snowflake;size:20"`
	}
	db := plugintest.Open(t)
	plugintest.Migrate(t, db, &pair{})
	rows := make([]pair, 3)
	must(t, db.Create(&rows).Error)
	seen := map[int64]bool{}
	for _, r := range rows {
		public, err := uidplugin.ParseID(r.Public)
		must(t, err)
		for _, id := range []int64{r.ID, int64(r.Trace), int64(public)} {
			plugintest.IsOurs(t, db, "pairs", id)
			if seen[id] {
				t.Errorf("%d was given out twice", id)
			}
			seen[id] = true
		}
	}
	if tables := uidplugin.From(db).Stats().Tables; len(tables) != 2 || tables[0].WorkerIDs[0] == tables[1].WorkerIDs[0] {
		t.Errorf("two generators of a table must not share a worker id: %+v", tables)
	}
}

func TestTag_FieldsThatAreSwitchedOffAreLeftAlone(t *testing.T) {
	t.Parallel()

	type off struct {
		ID      int64 `gorm:"primaryKey;autoIncrement:false;uid:false"`
		Dash    int64 `gorm:"uid:-"`
		Spaced  int64 `gorm:"uid: FALSE "`
		Ignored int64 `gorm:"uid;-"`
		hidden  int64 `gorm:"uid"`
	}
	db := plugintest.Open(t)
	plugintest.Migrate(t, db, &off{})
	row := off{ID: 1}
	must(t, db.Create(&row).Error)
	if row != (off{ID: 1}) || row.hidden != 0 {
		t.Errorf("the row is %+v", row)
	}
	if tables := uidplugin.From(db).Stats().Tables; len(tables) != 0 {
		t.Errorf("worker ids were taken: %+v", tables)
	}
	testkit.IsError(t, plugintest.Second(uidplugin.From(db).NextID(t.Context(), &off{})), uidplugin.ErrNoField)
}

func TestTag_AnUnknownGeneratorIsRefusedByName(t *testing.T) {
	t.Parallel()

	type odd struct {
		ID int64 `gorm:"primaryKey;uid:nosuch"`
	}
	db := plugintest.Bare(t)
	testkit.IsError(t, db.Use(uidplugin.New(uidplugin.WithModels(&odd{}))), uidplugin.ErrField, "odd.ID", `"nosuch"`, "cached", "snowflake")
	plugintest.Use(t, db)
	testkit.IsError(t, db.Create(&odd{}).Error, uidplugin.ErrField)
}

// An ID that is not GORM's key gets no id, because it needs a tag then. Somebody who forgot that would find 0 in every
// row.
func TestTag_WarnsOfAnIDThatIsNotTheKey(t *testing.T) {
	t.Parallel()

	type (
		coded struct {
			Code string `gorm:"primaryKey"`
			ID   uidplugin.ID
		}
		traced struct {
			Code  string `gorm:"primaryKey"`
			Trace int64  `gorm:"uid"`
			ID    uidplugin.ID
		}
		off struct {
			Code string       `gorm:"primaryKey"`
			ID   uidplugin.ID `gorm:"uid:-"`
		}
		tagged struct {
			Code string       `gorm:"primaryKey"`
			ID   uidplugin.ID `gorm:"uid"`
		}
		foreign struct {
			Code    string             `gorm:"primaryKey"`
			Number  uidplugin.ID       `gorm:"column:id"`
			Article plugintest.Article `gorm:"foreignKey:Number"`
		}
		number struct {
			Code string `gorm:"primaryKey"`
			ID   int64
		}
	)
	for _, tt := range []struct {
		model any
		field string // of the warning
	}{
		{&coded{}, "coded.ID"}, {&traced{}, "traced.ID"}, {&off{}, ""}, {&tagged{}, ""}, {&foreign{}, ""}, {&number{}, ""}, {&plugintest.Article{}, ""},
	} {
		j := &plugintest.Journal{}
		db := plugintest.Open(t, j.Option(), uidplugin.WithModels(tt.model))
		must(t, uidplugin.From(db).Register(t.Context(), tt.model))
		const line = "this field is not the key"
		if lines := j.Lines(line); len(lines) > 1 || (len(lines) == 1) != (tt.field != "") {
			t.Errorf("%T: %q", tt.model, lines)
		} else if len(lines) == 1 {
			saysAll(t, lines[0], tt.field, "key=code", "uid:-")
		}
	}
}

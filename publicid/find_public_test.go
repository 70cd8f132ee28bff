package publicid_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/publicid"
	"gorm.io/gorm"
)

func TestPlugin_FindPublic(t *testing.T) {
	t.Parallel()

	plugintest.TestKeys()
	db := plugintest.Open(t, uidplugin.WithModels(&plugintest.Pass{}, &plugintest.PassNote{}))
	plugintest.Migrate(t, db, &plugintest.Pass{}, &plugintest.PassNote{})
	row := plugintest.Pass{Notes: []plugintest.PassNote{{}}}
	must(t, db.Create(&row).Error)
	p := uidplugin.From(db)
	found, err := p.FindPublic(t.Context(), row.ID.String())
	if got, ok := found.(*plugintest.Pass); !ok || got.ID != row.ID || err != nil {
		t.Errorf("%v, %v", found, err)
	}
	for name, err := range map[string]error{
		"not listed": plugintest.Second(p.FindPublic(t.Context(), row.Notes[0].ID.String(), uidplugin.OnlyModels(&plugintest.Pass{}))),
		"a number":   plugintest.Second(p.FindPublic(t.Context(), uidplugin.ID(row.ID).String())),
		"no row":     plugintest.Second(p.FindPublic(t.Context(), (row.ID + 1<<40).String())),
		"tampered":   plugintest.Second(p.FindPublic(t.Context(), strings.Replace(row.ID.String(), "tkt_", "tkt_note_", 1))),
	} {
		if !errors.Is(err, uidplugin.ErrNoSuchID) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := uidplugin.From(plugintest.Bare(t)).FindPublic(t.Context(), row.ID.String()); !errors.Is(err, uidplugin.ErrNotRegistered) {
		t.Errorf("without the plugin: %v", err)
	}
}

// The number of a text may be that of a row of another type, because something wrote the key of one as the key of the
// other. The text is refused, as it does not name such a row.
func TestPlugin_FindPublicRefusesTheTextOfAnotherType(t *testing.T) {
	t.Parallel()

	plugintest.TestKeys()
	db := plugintest.Open(t, uidplugin.WithModels(&plugintest.Pass{}, &plugintest.PassNote{}, &plugintest.Part{}))
	plugintest.Migrate(t, db, &plugintest.Pass{}, &plugintest.PassNote{}, &plugintest.Part{})
	row, plain := plugintest.Pass{Notes: []plugintest.PassNote{{}}}, plugintest.Part{}
	must(t, db.Create(&row).Error)
	must(t, db.Create(&plain).Error)
	old := plugintest.Pass{ID: 3}
	must(t, db.Create(&old).Error)
	for name, wrong := range map[string]uidplugin.Public[plugintest.PassNote]{
		"an id": uidplugin.Public[plugintest.PassNote](row.ID), "a key from before": uidplugin.Public[plugintest.PassNote](old.ID),
		"a key that is not public": uidplugin.Public[plugintest.PassNote](plain.ID),
	} {
		for _, options := range [][]uidplugin.FindOption{nil, {uidplugin.OnlyModels(&plugintest.Pass{})}} {
			found, err := uidplugin.From(db).FindPublic(t.Context(), wrong.String(), options...)
			if found != nil || !errors.Is(err, uidplugin.ErrNoSuchID) {
				t.Errorf("%s: %v, %v", name, found, err)
			}
		}
		if found, err := uidplugin.FindPublicAs[plugintest.Pass](t.Context(), db, wrong.String()); found != nil || !errors.Is(err, uidplugin.ErrNoSuchID) {
			t.Errorf("%s as a pass: %v, %v", name, found, err)
		}
	}
}

func TestFindPublicAs(t *testing.T) {
	t.Parallel()

	plugintest.TestKeys()
	db := plugintest.Open(t, uidplugin.WithModels(&plugintest.Pass{}, &plugintest.PassNote{}))
	plugintest.Migrate(t, db, &plugintest.Pass{}, &plugintest.PassNote{}, &bookView{})
	row := plugintest.Pass{}
	must(t, db.Create(&row).Error)
	text := row.ID.String()
	if id, err := uidplugin.ParsePublic[plugintest.Pass](text); id != row.ID || err != nil {
		t.Errorf("ParsePublic: %d, %v", int64(id), err)
	}
	if found, err := uidplugin.FindPublicAs[plugintest.Pass](t.Context(), db, text); err != nil || found.ID != row.ID {
		t.Errorf("%v, %v", found, err)
	}
	for name, c := range map[string]struct {
		db   *gorm.DB
		text string
	}{
		"another type":   {db, uidplugin.Public[plugintest.PassNote](row.ID).String()},
		"a number":       {db, uidplugin.ID(row.ID).String()},
		"nothing":        {db, ""},
		"no row":         {db, (row.ID + 1<<40).String()},
		"not the user's": {db.Where("parent = 7"), text},
	} {
		found, err := uidplugin.FindPublicAs[plugintest.Pass](t.Context(), c.db, c.text)
		if found != nil || !errors.Is(err, uidplugin.ErrNoSuchID) || strings.Contains(err.Error(), "find "+uidplugin.ID(row.ID).String()) {
			t.Errorf("%s: %v, %v", name, found, err)
		}
	}
	for _, text := range []string{uidplugin.Public[plugintest.PassNote](row.ID).String(), uidplugin.ID(row.ID).String(), ""} {
		if id, err := uidplugin.ParsePublic[plugintest.Pass](text); id != 0 || !errors.Is(err, uidplugin.ErrNoSuchID) || !errors.Is(err, publicid.ErrInvalid) {
			t.Errorf("ParsePublic(%q): %d, %v", text, int64(id), err)
		}
	}
	if _, err := uidplugin.ParsePublic[badPrefix](text); !errors.Is(err, publicid.ErrConfig) || errors.Is(err, uidplugin.ErrNoSuchID) {
		t.Errorf("a bad prefix: %v", err)
	}
	if _, err := uidplugin.FindPublicAs[bookView](t.Context(), db, text); !errors.Is(err, uidplugin.ErrNotKey) || errors.Is(err, uidplugin.ErrNoSuchID) {
		t.Errorf("the key is of another type: %v", err)
	}
	if _, err := uidplugin.FindPublicAs[plugintest.Pass](t.Context(), plugintest.Bare(t), text); !errors.Is(err, uidplugin.ErrNotRegistered) {
		t.Errorf("without the plugin: %v", err)
	}
}

// Rows from before the plugin have small keys, which do not contain their table. The prefix of the text does.
func TestPlugin_FindPublicFindsRowsFromBefore(t *testing.T) {
	t.Parallel()

	plugintest.TestKeys()
	db := plugintest.Open(t, uidplugin.WithModels(&plugintest.Pass{}, &plugintest.PassNote{}))
	plugintest.Migrate(t, db, &plugintest.Pass{}, &plugintest.PassNote{})
	must(t, db.Create(&plugintest.Pass{ID: 3}).Error)
	p := uidplugin.From(db)
	row, err := p.FindPublic(t.Context(), uidplugin.Public[plugintest.Pass](3).String(), uidplugin.OnlyModels(&plugintest.Pass{}))
	if found, ok := row.(*plugintest.Pass); !ok || found.ID != 3 || err != nil {
		t.Errorf("%v, %v", row, err)
	}
	// Two tables with keys of one type: nothing says which of them it is.
	type archived struct {
		ID uidplugin.Public[plugintest.Pass]
	}
	plugintest.Migrate(t, db, &archived{})
	must(t, db.Create(&archived{ID: 3}).Error)
	both := uidplugin.OnlyModels(&plugintest.Pass{}, &archived{})
	if row, err := p.FindPublic(t.Context(), uidplugin.Public[plugintest.Pass](3).String(), both); row != nil || !errors.Is(err, uidplugin.ErrNotDecodable) {
		t.Errorf("two tables: %v, %v", row, err)
	}
	var later archived
	must(t, db.Create(&later).Error)
	if row, err := p.FindPublic(t.Context(), later.ID.String(), both); err != nil || row.(*archived).ID != later.ID {
		t.Errorf("an id of the plugin: %v, %v", row, err)
	}
	shard := plugintest.Open(t, uidplugin.WithModels(&plugintest.Pass{}), uidplugin.WithDatabaseName("shard"))
	plugintest.Migrate(t, shard, &plugintest.Pass{})
	must(t, shard.Create(&plugintest.Pass{ID: 3}).Error)
	if row, err := uidplugin.From(shard).FindPublic(t.Context(), uidplugin.Public[plugintest.Pass](3).String()); row != nil || !errors.Is(err, uidplugin.ErrNotDecodable) {
		t.Errorf("one of several databases: %v, %v", row, err)
	}
	for name, text := range map[string]string{"no row": uidplugin.Public[plugintest.Pass](4).String(), "another table": uidplugin.Public[plugintest.PassNote](3).String()} {
		_, err := p.FindPublic(t.Context(), text)
		if !errors.Is(err, uidplugin.ErrNoSuchID) || !strings.Contains(err.Error(), text) || strings.Contains(err.Error(), " 3") || strings.Contains(err.Error(), " 4") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

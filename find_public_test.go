package uidplugin_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/publicid"
	"gorm.io/gorm"
)

func TestPlugin_FindPublic(t *testing.T) {
	t.Parallel()

	testKeys()
	db := open(t, uidplugin.WithModels(&pass{}, &passNote{}))
	migrate(t, db, &pass{}, &passNote{})
	row := pass{Notes: []passNote{{}}}
	must(t, db.Create(&row).Error)
	p := uidplugin.From(db)
	found, err := p.FindPublic(t.Context(), row.ID.String())
	if got, ok := found.(*pass); !ok || got.ID != row.ID || err != nil {
		t.Errorf("%v, %v", found, err)
	}
	for name, err := range map[string]error{
		"not listed": second(p.FindPublic(t.Context(), row.Notes[0].ID.String(), uidplugin.OnlyModels(&pass{}))),
		"a number":   second(p.FindPublic(t.Context(), uidplugin.ID(row.ID).String())),
		"no row":     second(p.FindPublic(t.Context(), (row.ID + 1<<40).String())),
		"tampered":   second(p.FindPublic(t.Context(), strings.Replace(row.ID.String(), "tkt_", "tkt_note_", 1))),
	} {
		if !errors.Is(err, uidplugin.ErrNoSuchID) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := uidplugin.From(bare(t)).FindPublic(t.Context(), row.ID.String()); !errors.Is(err, uidplugin.ErrNotRegistered) {
		t.Errorf("without the plugin: %v", err)
	}
}

// The number of a text may be that of a row of another type, because something wrote the key of one as the key of the
// other. The text is refused, as it does not name such a row.
func TestPlugin_FindPublicRefusesTheTextOfAnotherType(t *testing.T) {
	t.Parallel()

	testKeys()
	db := open(t, uidplugin.WithModels(&pass{}, &passNote{}, &part{}))
	migrate(t, db, &pass{}, &passNote{}, &part{})
	row, plain := pass{Notes: []passNote{{}}}, part{}
	must(t, db.Create(&row).Error)
	must(t, db.Create(&plain).Error)
	old := pass{ID: 3}
	must(t, db.Create(&old).Error)
	for name, wrong := range map[string]uidplugin.Public[passNote]{
		"an id": uidplugin.Public[passNote](row.ID), "a key from before": uidplugin.Public[passNote](old.ID),
		"a key that is not public": uidplugin.Public[passNote](plain.ID),
	} {
		for _, options := range [][]uidplugin.FindOption{nil, {uidplugin.OnlyModels(&pass{})}} {
			found, err := uidplugin.From(db).FindPublic(t.Context(), wrong.String(), options...)
			if found != nil || !errors.Is(err, uidplugin.ErrNoSuchID) {
				t.Errorf("%s: %v, %v", name, found, err)
			}
		}
		if found, err := uidplugin.FindPublicAs[pass](t.Context(), db, wrong.String()); found != nil || !errors.Is(err, uidplugin.ErrNoSuchID) {
			t.Errorf("%s as a pass: %v, %v", name, found, err)
		}
	}
}

func TestFindPublicAs(t *testing.T) {
	t.Parallel()

	testKeys()
	db := open(t, uidplugin.WithModels(&pass{}, &passNote{}))
	migrate(t, db, &pass{}, &passNote{}, &bookView{})
	row := pass{}
	must(t, db.Create(&row).Error)
	text := row.ID.String()
	if id, err := uidplugin.ParsePublic[pass](text); id != row.ID || err != nil {
		t.Errorf("ParsePublic: %d, %v", int64(id), err)
	}
	if found, err := uidplugin.FindPublicAs[pass](t.Context(), db, text); err != nil || found.ID != row.ID {
		t.Errorf("%v, %v", found, err)
	}
	for name, c := range map[string]struct {
		db   *gorm.DB
		text string
	}{
		"another type":   {db, uidplugin.Public[passNote](row.ID).String()},
		"a number":       {db, uidplugin.ID(row.ID).String()},
		"nothing":        {db, ""},
		"no row":         {db, (row.ID + 1<<40).String()},
		"not the user's": {db.Where("parent = 7"), text},
	} {
		found, err := uidplugin.FindPublicAs[pass](t.Context(), c.db, c.text)
		if found != nil || !errors.Is(err, uidplugin.ErrNoSuchID) || strings.Contains(err.Error(), "find "+uidplugin.ID(row.ID).String()) {
			t.Errorf("%s: %v, %v", name, found, err)
		}
	}
	for _, text := range []string{uidplugin.Public[passNote](row.ID).String(), uidplugin.ID(row.ID).String(), ""} {
		if id, err := uidplugin.ParsePublic[pass](text); id != 0 || !errors.Is(err, uidplugin.ErrNoSuchID) || !errors.Is(err, publicid.ErrInvalid) {
			t.Errorf("ParsePublic(%q): %d, %v", text, int64(id), err)
		}
	}
	if _, err := uidplugin.ParsePublic[badPrefix](text); !errors.Is(err, publicid.ErrConfig) || errors.Is(err, uidplugin.ErrNoSuchID) {
		t.Errorf("a bad prefix: %v", err)
	}
	if _, err := uidplugin.FindPublicAs[bookView](t.Context(), db, text); !errors.Is(err, uidplugin.ErrNotKey) || errors.Is(err, uidplugin.ErrNoSuchID) {
		t.Errorf("the key is of another type: %v", err)
	}
	if _, err := uidplugin.FindPublicAs[pass](t.Context(), bare(t), text); !errors.Is(err, uidplugin.ErrNotRegistered) {
		t.Errorf("without the plugin: %v", err)
	}
}

// Rows from before the plugin have small keys, which do not contain their table. The prefix of the text does.
func TestPlugin_FindPublicFindsRowsFromBefore(t *testing.T) {
	t.Parallel()

	testKeys()
	db := open(t, uidplugin.WithModels(&pass{}, &passNote{}))
	migrate(t, db, &pass{}, &passNote{})
	must(t, db.Create(&pass{ID: 3}).Error)
	p := uidplugin.From(db)
	row, err := p.FindPublic(t.Context(), uidplugin.Public[pass](3).String(), uidplugin.OnlyModels(&pass{}))
	if found, ok := row.(*pass); !ok || found.ID != 3 || err != nil {
		t.Errorf("%v, %v", row, err)
	}
	// Two tables with keys of one type: nothing says which of them it is.
	type archived struct {
		ID uidplugin.Public[pass]
	}
	migrate(t, db, &archived{})
	must(t, db.Create(&archived{ID: 3}).Error)
	both := uidplugin.OnlyModels(&pass{}, &archived{})
	if row, err := p.FindPublic(t.Context(), uidplugin.Public[pass](3).String(), both); row != nil || !errors.Is(err, uidplugin.ErrNotDecodable) {
		t.Errorf("two tables: %v, %v", row, err)
	}
	var later archived
	must(t, db.Create(&later).Error)
	if row, err := p.FindPublic(t.Context(), later.ID.String(), both); err != nil || row.(*archived).ID != later.ID {
		t.Errorf("an id of the plugin: %v, %v", row, err)
	}
	shard := open(t, uidplugin.WithModels(&pass{}), uidplugin.WithDatabaseName("shard"))
	migrate(t, shard, &pass{})
	must(t, shard.Create(&pass{ID: 3}).Error)
	if row, err := uidplugin.From(shard).FindPublic(t.Context(), uidplugin.Public[pass](3).String()); row != nil || !errors.Is(err, uidplugin.ErrNotDecodable) {
		t.Errorf("one of several databases: %v, %v", row, err)
	}
	for name, text := range map[string]string{"no row": uidplugin.Public[pass](4).String(), "another table": uidplugin.Public[passNote](3).String()} {
		_, err := p.FindPublic(t.Context(), text)
		if !errors.Is(err, uidplugin.ErrNoSuchID) || !strings.Contains(err.Error(), text) || strings.Contains(err.Error(), " 3") || strings.Contains(err.Error(), " 4") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

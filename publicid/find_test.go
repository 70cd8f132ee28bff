package publicid_test

import (
	"database/sql/driver"
	"errors"
	"strings"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/publicid"
	"gorm.io/gorm"
)

func TestFind(t *testing.T) {
	t.Parallel()

	plugintest.TestKeys()
	db := plugintest.Open(t, uidplugin.WithModels(&plugintest.Pass{}, &plugintest.PassNote{}))
	plugintest.Migrate(t, db, &plugintest.Pass{}, &plugintest.PassNote{})
	row := plugintest.Pass{Notes: []plugintest.PassNote{{}}}
	must(t, db.Create(&row).Error)
	found, err := publicid.Find(t.Context(), db, row.ID.String())
	if got, ok := found.(*plugintest.Pass); !ok || got.ID != row.ID || err != nil {
		t.Errorf("%v, %v", found, err)
	}
	onlyPasses := uidplugin.OnlyModels(&plugintest.Pass{})
	for name, text := range map[string]string{
		"not listed": row.Notes[0].ID.String(),
		"a number":   uidplugin.ID(row.ID).String(),
		"no row":     (row.ID + 1<<40).String(),
		"tampered":   strings.Replace(row.ID.String(), "tkt_", "tkt_note_", 1),
	} {
		_, err := publicid.Find(t.Context(), db, text, onlyPasses)
		t.Run(name, func(t *testing.T) { testkit.IsError(t, err, uidplugin.ErrNoSuchID) })
	}
	testkit.IsError(t, plugintest.Second(publicid.Find(t.Context(), plugintest.Bare(t), row.ID.String())), uidplugin.ErrNotRegistered)
}

// The number of a text may be that of a row of another type, because something wrote the key of one as the key of the
// other. The text is refused, as it does not name such a row.
func TestFind_RefusesTheTextOfAnotherType(t *testing.T) {
	t.Parallel()

	plugintest.TestKeys()
	db := plugintest.Open(t, uidplugin.WithModels(&plugintest.Pass{}, &plugintest.PassNote{}, &plugintest.Part{}))
	plugintest.Migrate(t, db, &plugintest.Pass{}, &plugintest.PassNote{}, &plugintest.Part{})
	row, plain := plugintest.Pass{Notes: []plugintest.PassNote{{}}}, plugintest.Part{}
	must(t, db.Create(&row).Error)
	must(t, db.Create(&plain).Error)
	old := plugintest.Pass{ID: 3}
	must(t, db.Create(&old).Error)
	for name, wrong := range map[string]publicid.ID[plugintest.PassNote]{
		"an id": publicid.ID[plugintest.PassNote](row.ID), "a key from before": publicid.ID[plugintest.PassNote](old.ID),
		"a key that is not public": publicid.ID[plugintest.PassNote](plain.ID),
	} {
		for _, options := range [][]uidplugin.FindOption{nil, {uidplugin.OnlyModels(&plugintest.Pass{})}} {
			found, err := publicid.Find(t.Context(), db, wrong.String(), options...)
			if found != nil || !errors.Is(err, uidplugin.ErrNoSuchID) {
				t.Errorf("%s: %v, %v", name, found, err)
			}
		}
		if found, err := publicid.FindAs[plugintest.Pass](t.Context(), db, wrong.String()); found != nil || !errors.Is(err, uidplugin.ErrNoSuchID) {
			t.Errorf("%s as a pass: %v, %v", name, found, err)
		}
	}
}

func TestFindAs(t *testing.T) {
	t.Parallel()

	plugintest.TestKeys()
	db := plugintest.Open(t, uidplugin.WithModels(&plugintest.Pass{}, &plugintest.PassNote{}))
	plugintest.Migrate(t, db, &plugintest.Pass{}, &plugintest.PassNote{}, &bookView{})
	row := plugintest.Pass{}
	must(t, db.Create(&row).Error)
	text := row.ID.String()
	if id, err := publicid.Parse[plugintest.Pass](text); id != row.ID || err != nil {
		t.Errorf("Parse: %d, %v", int64(id), err)
	}
	if found, err := publicid.FindAs[plugintest.Pass](t.Context(), db, text); err != nil || found.ID != row.ID {
		t.Errorf("%v, %v", found, err)
	}
	for name, c := range map[string]struct {
		db   *gorm.DB
		text string
	}{
		"another type":   {db, publicid.ID[plugintest.PassNote](row.ID).String()},
		"a number":       {db, uidplugin.ID(row.ID).String()},
		"nothing":        {db, ""},
		"no row":         {db, (row.ID + 1<<40).String()},
		"not the user's": {db.Where("parent = 7"), text},
	} {
		found, err := publicid.FindAs[plugintest.Pass](t.Context(), c.db, c.text)
		if found != nil || !errors.Is(err, uidplugin.ErrNoSuchID) || strings.Contains(err.Error(), "find "+uidplugin.ID(row.ID).String()) {
			t.Errorf("%s: %v, %v", name, found, err)
		}
	}
	for _, text := range []string{publicid.ID[plugintest.PassNote](row.ID).String(), uidplugin.ID(row.ID).String(), ""} {
		if id, err := publicid.Parse[plugintest.Pass](text); id != 0 || !errors.Is(err, uidplugin.ErrNoSuchID) || !errors.Is(err, publicid.ErrInvalid) {
			t.Errorf("Parse(%q): %d, %v", text, int64(id), err)
		}
	}
	if _, err := publicid.Parse[badPrefix](text); !errors.Is(err, publicid.ErrConfig) || errors.Is(err, uidplugin.ErrNoSuchID) {
		t.Errorf("a bad prefix: %v", err)
	}
	if _, err := publicid.FindAs[bookView](t.Context(), db, text); !errors.Is(err, uidplugin.ErrNotKey) || errors.Is(err, uidplugin.ErrNoSuchID) {
		t.Errorf("the key is of another type: %v", err)
	}
	testkit.IsError(t, plugintest.Second(publicid.FindAs[plugintest.Pass](t.Context(), plugintest.Bare(t), text)), uidplugin.ErrNotRegistered)
}

// Rows from before the plugin have small keys, which do not contain their table. The prefix of the text does.
func TestFind_FindsRowsFromBefore(t *testing.T) {
	t.Parallel()

	plugintest.TestKeys()
	db := plugintest.Open(t, uidplugin.WithModels(&plugintest.Pass{}, &plugintest.PassNote{}))
	plugintest.Migrate(t, db, &plugintest.Pass{}, &plugintest.PassNote{})
	must(t, db.Create(&plugintest.Pass{ID: 3}).Error)
	row, err := publicid.Find(t.Context(), db, publicid.ID[plugintest.Pass](3).String(), uidplugin.OnlyModels(&plugintest.Pass{}))
	if found, ok := row.(*plugintest.Pass); !ok || found.ID != 3 || err != nil {
		t.Errorf("%v, %v", row, err)
	}
	// Two tables with keys of one type: nothing says which of them it is.
	type archived struct {
		ID publicid.ID[plugintest.Pass]
	}
	plugintest.Migrate(t, db, &archived{})
	must(t, db.Create(&archived{ID: 3}).Error)
	both := uidplugin.OnlyModels(&plugintest.Pass{}, &archived{})
	if row, err := publicid.Find(t.Context(), db, publicid.ID[plugintest.Pass](3).String(), both); row != nil || !errors.Is(err, uidplugin.ErrNotDecodable) {
		t.Errorf("two tables: %v, %v", row, err)
	}
	var later archived
	must(t, db.Create(&later).Error)
	if row, err := publicid.Find(t.Context(), db, later.ID.String(), both); err != nil || row.(*archived).ID != later.ID {
		t.Errorf("an id of the plugin: %v, %v", row, err)
	}
	shard := plugintest.Open(t, uidplugin.WithModels(&plugintest.Pass{}), uidplugin.WithDatabaseName("shard"))
	plugintest.Migrate(t, shard, &plugintest.Pass{})
	must(t, shard.Create(&plugintest.Pass{ID: 3}).Error)
	if row, err := publicid.Find(t.Context(), shard, publicid.ID[plugintest.Pass](3).String()); row != nil || !errors.Is(err, uidplugin.ErrNotDecodable) {
		t.Errorf("one of several databases: %v, %v", row, err)
	}
	for name, text := range map[string]string{"no row": publicid.ID[plugintest.Pass](4).String(), "another table": publicid.ID[plugintest.PassNote](3).String()} {
		_, err := publicid.Find(t.Context(), db, text)
		if !errors.Is(err, uidplugin.ErrNoSuchID) || !strings.Contains(err.Error(), text) || strings.Contains(err.Error(), " 3") || strings.Contains(err.Error(), " 4") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A row that the database numbered may be in the table of the id that its number follows. Formerly a text was refused
// for the prefix of that table, although its own table had no row.
func TestFind_DoesNotAskTheTableOfTheIDBefore(t *testing.T) {
	t.Parallel()

	plugintest.TestKeys()
	asks := plugintest.Process{SQL: plugintest.Dialects[0].SQL, Slot: 7}
	db, mock := plugintest.MockedUse(t)
	plugintest.Expect(mock, asks.Adds(58, "invoices", "pass_notes")...)
	must(t, uidplugin.From(db).Register(t.Context(), &plugintest.Invoice{}, &plugintest.PassNote{}))
	id := plugintest.At(t, 58, 2) // after an id with the worker id 56
	plugintest.Expect(mock, asks.LooksUp(plugintest.Node(plugintest.NodeRows(), 58, "pass_notes"), 58),
		plugintest.Step{SQL: "SELECT * FROM `pass_notes` WHERE `pass_notes`.`id` = ?", Args: []driver.Value{id}},
		asks.LooksUp(plugintest.Node(plugintest.NodeRows(), 56, "invoices"), 56))
	_, err := publicid.Find(t.Context(), db, publicid.ID[plugintest.PassNote](id).String())
	if !errors.Is(err, gorm.ErrRecordNotFound) || errors.Is(err, publicid.ErrInvalid) {
		t.Error(err)
	}
}

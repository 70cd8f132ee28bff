package publicid_test

import (
	"database/sql/driver"
	"errors"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/publicid"
	"gorm.io/gorm"
)

// A row that the database numbered may be in the table of the id before. A text was refused for the prefix of that
// table, although its own table had no row.
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

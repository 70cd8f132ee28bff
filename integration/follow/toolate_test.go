package follow_test

import (
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/follow"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// The rows that an update has saved before the one that was too late are rolled back with it, so their keys must be
// cleared, too. Otherwise a second try would take them for keys of the application, which are too late for ever.
func TestTooLate_ClearsTheKeysOfAllRowsThatAnUpdateSaves(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := office(t, d)
		old, err := uidplugin.From(db).NextID(t.Context(), &stamp{})
		testkit.Must(t, err)
		first := letter{Town: "Ely"}
		testkit.Must(t, db.Create(&first).Error)
		passMark(t, db, &stamp{})
		for name, save := range map[string]func(row *letter) error{
			"Save": func(row *letter) error { return db.Save(row).Error },
			"Updates": func(row *letter) error {
				return db.Session(&gorm.Session{FullSaveAssociations: true}).Updates(row).Error
			},
			"Append": func(row *letter) error { return db.Model(row).Association("Stamps").Append(row.Stamps) },
		} {
			row := first
			row.Sender, row.Stamps = &sender{Name: "Bob"}, []stamp{{Price: 1}, {ID: old}}
			testkit.IsError(t, save(&row), follow.ErrTooLate)
			if (name != "Append" && row.Sender.ID != 0) || row.Stamps[0].ID != 0 || row.ID != first.ID {
				t.Errorf("%s: %d, %d", name, row.Sender.ID, row.Stamps[0].ID)
			}
		}
	})
}

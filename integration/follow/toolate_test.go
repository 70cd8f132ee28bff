package follow_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/follow"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// passMark waits until ids that are made now are too old.
func passMark(t *testing.T, db *gorm.DB, model any) {
	t.Helper()
	id, err := uidplugin.From(db).NextID(t.Context(), model)
	testkit.Must(t, err)
	testkit.Eventually(t, "the mark passes", time.Minute, func() bool { return settled(t, db, model) > id })
}

// settled returns the mark, or 0 if the connection was lost, as when a busy machine stands still for seconds.
func settled(t *testing.T, db *gorm.DB, model any) uidplugin.ID {
	t.Helper()
	mark, err := follow.Settled(t.Context(), db, model)
	if err != nil && !harness.Unreachable.MatchString(err.Error()) {
		t.Fatal(err)
	}
	return mark
}

// behind returns an office whose ids are too old for a while, because its clock is set back.
func behind(t *testing.T, d *testkit.Database, by time.Duration) *gorm.DB {
	t.Helper()
	db := office(t, d, uidplugin.WithClock(func() time.Time { return time.Now().Add(-by) }))
	other := d.Open(t, nil)
	harness.Use(t, other, uidplugin.WithModels(&sender{}, &letter{}, &stamp{}))
	for _, model := range []any{&letter{}, &stamp{}} {
		passMark(t, other, model)
	}
	return db
}

// A try creates rows, and reports whether their ids are zero.
type try struct {
	create func(db *gorm.DB) error
	clear  func() bool
}

func tries() map[string]try {
	single, upsert, outside := &letter{Town: "Ely"}, &letter{Town: "Bath"}, &letter{Sender: &sender{Name: "Bob"}}
	two := []*letter{{Town: "Ely"}, {Town: "Bath"}}
	mapped := map[string]any{"town": "Ely"}
	associated := &letter{Town: "Ely", Sender: &sender{Name: "Ann"}, Stamps: []stamp{{Price: 1}}}
	return map[string]try{
		"a struct": {func(db *gorm.DB) error { return db.Create(single).Error }, func() bool { return single.ID == 0 }},
		"a slice":  {func(db *gorm.DB) error { return db.Create(&two).Error }, func() bool { return two[0].ID+two[1].ID == 0 }},
		"a map": {func(db *gorm.DB) error { return db.Model(&letter{}).Create(mapped).Error },
			func() bool { _, ok := mapped["id"]; return !ok }},
		"associations": {func(db *gorm.DB) error { return db.Create(associated).Error },
			func() bool { return associated.ID+associated.Sender.ID+associated.Stamps[0].ID == 0 }},
		"an upsert": {func(db *gorm.DB) error {
			return db.Clauses(clause.OnConflict{DoNothing: true}).Create(upsert).Error
		}, func() bool { return upsert.ID == 0 }},
		"a row that belongs to one of another table": {func(db *gorm.DB) error { return db.Create(outside).Error },
			func() bool { return outside.ID+outside.Sender.ID == 0 }},
	}
}

// A refused create leaves the structs as they were, and the clock has moved, so the second try succeeds.
func TestTooLate_TheSecondTrySucceeds(t *testing.T) {
	t.Parallel()
	for name := range tries() {
		t.Run(name, func(t *testing.T) {
			testkit.Each(t, func(t *testing.T, d *testkit.Database) {
				db, try := behind(t, d, 20*time.Second), tries()[name]
				testkit.IsError(t, try.create(db), follow.ErrTooLate, "follow", "create the rows again")
				if !try.clear() {
					t.Error("the refused create has left ids")
				}
				inTime(t, func() error { return try.create(db) })
				if try.clear() {
					t.Error("the second try has set no id")
				}
			})
		})
	}
}

// The application may have given the id to others.
func TestTooLate_KeepsTheKeysOfTheApplication(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := office(t, d)
		id, err := uidplugin.From(db).NextID(t.Context(), &letter{})
		testkit.Must(t, err)
		passMark(t, db, &letter{})
		rows := []*letter{{Town: "Ely"}, {ID: id}, {Town: "York"}}
		for range 2 {
			testkit.IsError(t, db.Create(&rows).Error, follow.ErrTooLate, "with new ids (NextID)")
			if rows[0].ID != 0 || rows[1].ID != id || rows[2].ID != 0 {
				t.Errorf("%d, %d and %d instead of 0, %d and 0", rows[0].ID, rows[1].ID, rows[2].ID, id)
			}
		}
		err = db.Exec(fmt.Sprintf("INSERT INTO letters (id, town) VALUES (%d, 'a')", id)).Error
		testkit.IsError(t, err, follow.ErrTooLate)
	})
}

// The rows are rolled back with the others of the transaction.
func TestTooLate_ATransactionIsRepeated(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := behind(t, d, 20*time.Second)
		work := func(tx *gorm.DB) error { return tx.Create(&letter{Town: "Ely", Stamps: []stamp{{Price: 1}}}).Error }
		testkit.IsError(t, db.Transaction(work), follow.ErrTooLate, "in a new transaction")
		inTime(t, func() error { return db.Transaction(work) })
	})
}

// An error of another kind keeps the keys, as GORM does, because the rows may have been inserted.
func TestTooLate_OtherErrorsKeepKeys(t *testing.T) {
	t.Parallel()
	db := office(t, testkit.Engines()[0].New(t))
	testkit.Must(t, db.Exec("CREATE UNIQUE INDEX one_town ON letters (town)").Error)
	add(t, db, &letter{Town: "uid_follow: too late"})
	again := letter{Town: "uid_follow: too late"}
	err := db.Create(&again).Error
	for again.ID == 0 && errors.Is(err, follow.ErrTooLate) { // on a busy machine it may indeed be too late
		err = db.Create(&again).Error
	}
	if err == nil || errors.Is(err, follow.ErrTooLate) || again.ID == 0 {
		t.Errorf("%v, %+v", err, again)
	}
}

// The rows that an update has saved before the one that was too late are rolled back with it, so their keys must be
// cleared, too. Otherwise a second try would take them for keys of the application, which are too late for ever.
func TestTooLate_ClearsTheKeysOfAllRowsThatAnUpdateSaves(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := office(t, d)
		old, err := uidplugin.From(db).NextID(t.Context(), &stamp{})
		testkit.Must(t, err)
		first := letter{Town: "Ely"}
		add(t, db, &first)
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

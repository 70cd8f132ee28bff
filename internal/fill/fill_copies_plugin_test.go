package fill_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// register registers a callback at each place where another plugin may have one.
func register(t *testing.T, db *gorm.DB, name string, f func(tx *gorm.DB, place string)) {
	t.Helper()
	at := func(place string) func(*gorm.DB) { return func(tx *gorm.DB) { f(tx, place) } }
	create, update := db.Callback().Create(), db.Callback().Update()
	for _, place := range []string{"*", "gorm:before_create", "gorm:save_before_associations", "gorm:create", "gorm:save_after_associations", "gorm:after_create"} {
		must(t, create.Before(place).Register(name+" before create "+place, at(name+" before create "+place)))
		must(t, create.After(place).Register(name+" after create "+place, at(name+" after create "+place)))
	}
	for _, place := range []string{"*", "gorm:before_update", "gorm:update", "gorm:save_after_associations", "gorm:after_update"} {
		must(t, update.Before(place).Register(name+" before update "+place, at(name+" before update "+place)))
		must(t, update.After(place).Register(name+" after update "+place, at(name+" after update "+place)))
	}
}

// writes are creates and updates whose statements the plugin changes.
var writes = []struct {
	name  string
	write func(db *gorm.DB, a *address) error
}{
	{"create", func(db *gorm.DB, a *address) error { return db.Create(a).Error }},
	{"select", func(db *gorm.DB, a *address) error { return db.Select("Name", "N", "Lines").Create(a).Error }},
	{"update all", func(db *gorm.DB, a *address) error {
		return db.Clauses(clause.OnConflict{Columns: []clause.Column{{Name: "name"}}, UpdateAll: true}).Create(a).Error
	}},
	{"do nothing", func(db *gorm.DB, a *address) error {
		return db.Clauses(clause.OnConflict{DoNothing: true}).Create(a).Error
	}},
	{"returning", func(db *gorm.DB, a *address) error {
		return db.Clauses(clause.OnConflict{Columns: []clause.Column{{Name: "name"}}, DoUpdates: clause.AssignmentColumns([]string{"n"})},
			clause.Returning{Columns: []clause.Column{{Name: "n"}}}).Create(a).Error
	}},
	{"save", func(db *gorm.DB, a *address) error { a.ID = 12; return db.Save(a).Error }},
	{"update of all", func(db *gorm.DB, a *address) error {
		a.ID = 12
		return errors.Join(db.Exec("INSERT OR IGNORE INTO addresses (id) VALUES (12)").Error, db.Select("*").Updates(a).Error)
	}},
}

// A hook that copies the statement, or a callback of another plugin wherever it is, changes nothing for the create, and
// sends what it sends without this plugin. Run it with -race.
func TestFill_CopiesSendWhatTheApplicationWrote(t *testing.T) {
	t.Parallel()

	for _, w := range writes {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()

			with, without := copiedStatements(t, w.write, true), copiedStatements(t, w.write, false)
			if len(without) < 100 || len(with) < 100 {
				t.Errorf("only %d and %d", len(without), len(with))
			}
			for name, want := range without {
				if got, ok := with[name]; (ok || strings.HasPrefix(name, "hook")) && !slices.Equal(got, want) {
					t.Errorf("%s:\nwith    %s\nwithout %s", name, got, want)
				}
			}
		})
	}
}

// copiedStatements returns what hooks and callbacks of other plugins send on copies, by place, way and statement. Without
// the plugin the application sets the keys.
func copiedStatements(t *testing.T, write func(db *gorm.DB, a *address) error, withPlugin bool) map[string][]string {
	t.Helper()
	db, sent := copying(t, 0, false), map[string][]string{}
	var mu sync.Mutex
	var f func(tx *gorm.DB, place string)
	call := func(tx *gorm.DB, place string) {
		if f != nil && tx.Statement.Schema != nil && tx.Statement.Schema.Name == "address" {
			f(tx, place)
		}
	}
	register(t, db, "early", call)
	if withPlugin {
		plugintest.Use(t, db, uidplugin.WithWorkerID(1))
	}
	register(t, db, "late", call)
	for i, c := range copies {
		for j, s := range sends {
			a := address{Name: c.name + s.name, Lines: []addressLine{{Text: "a"}}}
			a.Hook = func(tx *gorm.DB, hook string) error { call(tx, "hook "+hook); return nil }
			if !withPlugin {
				n := int64(i*100 + j)
				a.ID, a.Ref, a.Lines[0].ID = 1e15+n, 2e15+n, 3e15+n
			}
			f = func(tx *gorm.DB, place string) {
				was := f
				f = nil
				defer func() { f = was }()
				if tx.Statement.SQL.Len() > 0 || a.ID == 0 {
					return // GORM copies the text, and sends it again; a key that is not set yet is not compared
				}
				recorder := &plugintest.Statements{}
				_ = s.send(c.of(tx.Session(&gorm.Session{Logger: recorder})))
				mu.Lock()
				defer mu.Unlock()
				if strings.Contains("update update of a struct save delete query exec", s.name) {
					key := fmt.Sprint(place, ", ", c.name, ", ", s.name)
					for _, query := range recorder.Take() {
						sent[key] = append(sent[key], strings.ReplaceAll(query, fmt.Sprint(a.ID), "key"))
					}
				}
			}
			if err := write(db, &a); withPlugin && err == nil && plugintest.Count(t, db, "addresses", "id = ?", a.ID) != 1 {
				t.Errorf("%s, %s: no row has the key %d", c.name, s.name, a.ID)
			}
			f = nil
		}
	}
	return sent
}

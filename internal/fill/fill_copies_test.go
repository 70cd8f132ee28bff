package fill_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/core"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// These tests copy statements in hooks. GORM copies its maps with a statement, and so what the plugin keeps in them.

type (
	// address has hooks that send further statements. Ref may only be nil in a row that is refused.
	address struct {
		ID    int64  `gorm:"primaryKey;autoIncrement:false;uid"`
		Ref   int64  `gorm:"uid"`
		Name  string `gorm:"uniqueIndex"`
		N     int
		Lines []addressLine                        `gorm:"constraint:-"`
		Hook  func(tx *gorm.DB, name string) error `gorm:"-"`
	}
	addressLine struct {
		ID        int64 `gorm:"primaryKey;autoIncrement:false;uid"`
		AddressID int64
		Text      string
		Late      bool
	}
	// visit counts creates of addresses. It has a column with the name of a uid field of address.
	visit struct {
		ID  int64 `gorm:"primaryKey;autoIncrement:false;uid"`
		Ref int64
		N   int
	}
)

func (a *address) call(tx *gorm.DB, name string) error {
	hook := a.Hook
	if hook == nil {
		return nil
	}
	a.Hook = nil // because with some copies GORM calls the hooks of this row again
	defer func() { a.Hook = hook }()
	return hook(tx, name)
}

func (a *address) BeforeSave(tx *gorm.DB) error   { return a.call(tx, "BeforeSave") }
func (a *address) BeforeCreate(tx *gorm.DB) error { return a.call(tx, "BeforeCreate") }
func (a *address) BeforeUpdate(tx *gorm.DB) error { return a.call(tx, "BeforeUpdate") }
func (a *address) AfterCreate(tx *gorm.DB) error  { return a.call(tx, "AfterCreate") }
func (a *address) AfterUpdate(tx *gorm.DB) error  { return a.call(tx, "AfterUpdate") }
func (a *address) AfterSave(tx *gorm.DB) error    { return a.call(tx, "AfterSave") }

// copies are the ways to copy a statement.
var copies = []struct {
	name string
	of   func(tx *gorm.DB) *gorm.DB
}{
	{"NewDB", func(tx *gorm.DB) *gorm.DB { return tx.Session(&gorm.Session{NewDB: true}) }},
	{"SkipHooks", func(tx *gorm.DB) *gorm.DB { return tx.Session(&gorm.Session{SkipHooks: true}) }},
	{"Context", func(tx *gorm.DB) *gorm.DB { return tx.WithContext(context.Background()) }},
	{"PrepareStmt", func(tx *gorm.DB) *gorm.DB { return tx.Session(&gorm.Session{PrepareStmt: true}) }},
	{"Initialized", func(tx *gorm.DB) *gorm.DB { return tx.Session(&gorm.Session{Initialized: true}) }},
	{"CreateBatchSize", func(tx *gorm.DB) *gorm.DB { return tx.Session(&gorm.Session{CreateBatchSize: 1}) }},
	{"FullSaveAssociations", func(tx *gorm.DB) *gorm.DB { return tx.Session(&gorm.Session{FullSaveAssociations: true}) }},
	{"AllowGlobalUpdate", func(tx *gorm.DB) *gorm.DB { return tx.Session(&gorm.Session{AllowGlobalUpdate: true}) }},
	{"PropagateUnscoped", func(tx *gorm.DB) *gorm.DB { return tx.Unscoped().Session(&gorm.Session{PropagateUnscoped: true}) }},
	{"all", func(tx *gorm.DB) *gorm.DB {
		return tx.Session(&gorm.Session{SkipHooks: true, PrepareStmt: true, Initialized: true, CreateBatchSize: 1,
			FullSaveAssociations: true, AllowGlobalUpdate: true, DisableNestedTransaction: true, QueryFields: true})
	}},
	{"twice", func(tx *gorm.DB) *gorm.DB {
		return tx.Session(&gorm.Session{SkipHooks: true}).Session(&gorm.Session{Context: context.Background()})
	}},
	{"Set", func(tx *gorm.DB) *gorm.DB { return tx.Session(&gorm.Session{SkipHooks: true}).Set("x", 1) }},
}

// sends are what hooks send on a copy.
var sends = []struct {
	name string
	send func(tx *gorm.DB) error
}{
	{"update", func(tx *gorm.DB) error {
		return tx.Table("visits").Model(&visit{}).Where("id = 1").Update("n", gorm.Expr("n + 1")).Error
	}},
	{"update of a struct", func(tx *gorm.DB) error { return tx.Table("visits").Model(&visit{ID: 1}).Updates(visit{N: 7}).Error }},
	{"save", func(tx *gorm.DB) error { return tx.Table("visits").Model(&visit{}).Save(&visit{ID: 1, N: 2}).Error }},
	{"create", func(tx *gorm.DB) error { return tx.Table("visits").Model(&visit{}).Create(&visit{N: 3}).Error }},
	{"creates", func(tx *gorm.DB) error {
		return tx.Table("visits").Model(&visit{}).Create(&[]visit{{N: 3}, {N: 4}}).Error
	}},
	{"map", func(tx *gorm.DB) error {
		return tx.Table("visits").Model(&visit{}).Create(map[string]any{"n": 5}).Error
	}},
	{"upsert", func(tx *gorm.DB) error {
		return tx.Table("visits").Model(&visit{}).Clauses(clause.OnConflict{DoNothing: true}).Create(&visit{N: 4}).Error
	}},
	{"delete", func(tx *gorm.DB) error { return tx.Table("visits").Where("n = 5").Delete(&visit{}).Error }},
	{"query", func(tx *gorm.DB) error { return tx.Table("visits").Model(&visit{}).Limit(1).Find(&[]visit{}).Error }},
	{"exec", func(tx *gorm.DB) error { return tx.Exec("UPDATE visits SET n = n + 1 WHERE id = 1").Error }},
	{"with associations", func(tx *gorm.DB) error {
		a := address{Name: fmt.Sprintf("copy of %p", tx), Lines: []addressLine{{Text: "a"}}}
		return tx.Table("addresses").Model(&address{}).Omit("Ref").Create(&a).Error
	}},
}

var errByTrigger = errors.New("refused by a trigger")

// copying opens a database with addresses. Its triggers refuse some rows because of their ids: addresses whose n is -1, and
// lines that are late.
func copying(t *testing.T, pool int, withPlugin bool) *gorm.DB {
	t.Helper()
	db := testkit.SQLite{Pool: pool}.Open(t)
	if withPlugin {
		plugintest.Use(t, db, uidplugin.WithWorkerID(1), uidplugin.WithModels(&address{}, &visit{}))
		c, err := core.Of(db)
		must(t, err)
		c.OnInsertError = func(_ *gorm.Statement, err error) (error, bool) {
			if strings.Contains(err.Error(), errByTrigger.Error()) {
				return fmt.Errorf("%w: %w", errByTrigger, err), true
			}
			return err, false
		}
	}
	plugintest.Migrate(t, db, &address{}, &addressLine{}, &visit{})
	must(t, db.Create(&visit{ID: 1}).Error)
	for table, condition := range map[string]string{"addresses": "NEW.n = -1", "address_lines": "NEW.late"} {
		must(t, db.Exec("CREATE TRIGGER late_"+table+" AFTER INSERT ON "+table+" WHEN "+condition+
			" BEGIN SELECT RAISE(ABORT, '"+errByTrigger.Error()+"'); END").Error)
	}
	return db
}

// A hook that copies the statement, and sends another one on it, changes nothing for the create: refused rows lose
// their keys, those of associations too, and can be created again.
func TestFill_CopiesLeaveTheNotesOfTheCreate(t *testing.T) {
	t.Parallel()

	for _, c := range copies {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()

			db := copying(t, 0, true)
			for _, s := range sends {
				for _, at := range []string{"BeforeSave", "BeforeCreate", "AfterCreate", "AfterSave"} {
					for _, late := range []string{"address", "line"} {
						refuseOnce(t, db, s.name+at+late, at, late == "line", func(tx *gorm.DB) { _ = s.send(c.of(tx)) })
					}
				}
			}
		})
	}
}

// refuseOnce creates an address that is refused, and creates it again. In a hook it calls send.
func refuseOnce(t *testing.T, db *gorm.DB, name, at string, line bool, send func(tx *gorm.DB)) {
	t.Helper()
	a := address{Name: name, Lines: []addressLine{{Text: "a"}, {Text: "b"}}}
	after := strings.HasPrefix(at, "After") // a refused row does not get there, so the hook sends one that is refused
	a.Lines[1].Late = line && !after
	if !line && !after {
		a.N = -1
	}
	called := false
	a.Hook = func(tx *gorm.DB, hook string) error {
		if hook != at {
			return nil
		}
		called = true
		send(tx)
		if after {
			return tx.Session(&gorm.Session{NewDB: true}).Create(&address{Name: name + "'", N: -1}).Error
		}
		return nil
	}
	testkit.IsError(t, db.Create(&a).Error, errByTrigger)
	if a.ID != 0 || a.Ref != 0 || a.Lines[0].ID != 0 || a.Lines[1].ID != 0 || !called {
		t.Fatalf("%s: the refused rows have the keys %d, %d, %+v; called %t", name, a.ID, a.Ref, a.Lines, called)
	}
	a.N, a.Lines[1].Late, a.Hook = 0, false, nil
	must(t, db.Create(&a).Error)
	if plugintest.Count(t, db, "addresses", "id = ? AND ref = ?", a.ID, a.Ref) != 1 || plugintest.Count(t, db, "address_lines", "address_id = ?", a.ID) != 2 {
		t.Fatalf("%s: the second try stored nothing of %+v", name, a)
	}
}

// A create whose hooks copy the statement does not change the keys of other creates. Run it with -race.
func TestFill_CopiesLeaveOtherCreates(t *testing.T) {
	t.Parallel()

	db := copying(t, 1, true)
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 60 {
				c, s := copies[(g+i)%len(copies)], sends[(g+i*3)%5]
				hook := func(tx *gorm.DB, name string) error {
					if name != "BeforeCreate" {
						return nil
					}
					var other sync.WaitGroup // GORM copies the statement, so another goroutine may use the copy
					copied := c.of(tx)
					other.Go(func() { _ = s.send(copied) })
					other.Wait()
					return nil
				}
				a := address{Name: fmt.Sprint(g, " ", i), N: -(i % 2), Hook: hook, Lines: []addressLine{{Text: "a"}}}
				switch err := db.Create(&a).Error; {
				case a.N < 0 && !errors.Is(err, errByTrigger), a.N == 0 && err != nil:
					t.Error(err)
				case a.N < 0 && (a.ID != 0 || a.Ref != 0 || a.Lines[0].ID != 0):
					t.Errorf("a refused row has the key %d, and its line %d", a.ID, a.Lines[0].ID)
				case a.N == 0 && plugintest.Count(t, db, "addresses", "id = ?", a.ID) != 1:
					t.Errorf("the struct has the key %d, which no row has", a.ID)
				}
			}
		})
	}
	all.Wait()
}

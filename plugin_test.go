package uidplugin_test

import (
	"errors"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
	"gorm.io/gorm/utils/tests"
)

var must, saysAll = testkit.Must, testkit.SaysAll

// dbresolver opens each replica with a copy of the configuration, so GORM initializes its plugins again.
func TestPluginInitialize_APluginServesOneHandleAndItsReplicas(t *testing.T) {
	t.Parallel()

	path := filepath.Join(t.TempDir(), "test.db")
	db, other, s := plugintest.File(t, path, &gorm.Config{}), plugintest.Bare(t), &plugintest.Statements{}
	p := plugintest.Use(t, db, uidplugin.WithModels(&plugintest.Part{}))
	config := *db.Config
	config.Logger = s
	replica := plugintest.File(t, path, &config)
	if list := s.Take(); len(list) != 0 || replica.Plugins[p.Name()] != db.Plugins[p.Name()] || len(p.Stats().Tables) != 1 {
		t.Errorf("statements: %q; worker ids: %+v", list, p.Stats().Tables)
	}
	testkit.IsError(t, other.Use(p), uidplugin.ErrOption, "already in use", "New")
	plugintest.Unregistered(t, other)
}

// db.Use refuses a transaction, because it ends before the plugin does.
func TestPluginInitialize_ATransactionIsNoHandleToRegisterWith(t *testing.T) {
	t.Parallel()

	for _, options := range [][]uidplugin.Option{nil, {uidplugin.WithWorkerID(7)}} {
		db := plugintest.Bare(t)
		tx := db.Begin()
		defer tx.Rollback()
		testkit.IsError(t, tx.Use(uidplugin.New(options...)), nil, "transaction")
		plugintest.Unregistered(t, db)
	}
}

// Without a handle there is an error, even if the plugin serves another handle already.
func TestPluginInitialize_RefusesANilHandle(t *testing.T) {
	t.Parallel()

	for _, p := range []*uidplugin.Plugin{uidplugin.New(), plugintest.Use(t, plugintest.Bare(t))} {
		for _, db := range []*gorm.DB{nil, {}} {
			testkit.IsError(t, p.Initialize(db), uidplugin.ErrOption, "not connected")
		}
	}
}

// gorm.Open initializes it.
func TestPluginInitialize_APluginInTheConfiguration(t *testing.T) {
	t.Parallel()

	p := uidplugin.New(uidplugin.WithLogger(nil))
	db := plugintest.File(t, filepath.Join(t.TempDir(), "test.db"), &gorm.Config{Plugins: map[string]gorm.Plugin{p.Name(): p}})
	plugintest.Migrate(t, db, &plugintest.Part{})
	r := plugintest.Part{}
	must(t, db.Create(&r).Error)
	plugintest.IsOurs(t, db, "parts", r.ID)
}

func TestPluginInitialize_WithoutAPoolThereAreOnlyFixedWorkerIDs(t *testing.T) {
	t.Parallel()

	handle := func() *gorm.DB {
		db, err := gorm.Open(tests.DummyDialector{}, &gorm.Config{DryRun: true, Logger: logger.Discard})
		must(t, err)
		return db
	}
	testkit.IsError(t, handle().Use(uidplugin.New()), nil, "no connection pool")

	db := handle()
	plugintest.Use(t, db, uidplugin.WithWorkerID(7))
	r := plugintest.Part{}
	must(t, db.Session(&gorm.Session{SkipDefaultTransaction: true}).Create(&r).Error)
	if parts, err := uidplugin.From(db).Decode(uidplugin.ID(r.ID)); err != nil || parts.WorkerID != 7 {
		t.Errorf("%+v, %v", parts, err)
	}
}

// TestBadInput of integration/paths has the errors of other layouts and tables.
func TestPluginInitialize_UseWrapsTheErrorsOfThePackagesBelow(t *testing.T) {
	t.Parallel()

	tiny := generator.DefaultLayout()
	tiny.WorkerBits = 1
	db := plugintest.Bare(t)
	err := db.Use(uidplugin.New(uidplugin.WithoutMigration()))
	testkit.IsError(t, err, workernode.ErrTable, "WORKER_NODE", "sqlite.sql")
	err = db.Use(uidplugin.New(uidplugin.WithLayout(tiny), uidplugin.WithModels(&plugintest.Part{}, &plugintest.Article{})))
	testkit.IsError(t, err, workernode.ErrExhausted)
	testkit.IsError(t, db.Use(uidplugin.New()), workernode.ErrLayoutMismatch) // the failed start has begun an id space
	plugintest.Unregistered(t, db)

	err = plugintest.Bare(t).Use(uidplugin.New(uidplugin.WithModels(&plugintest.Ledger{}, nil, 5)))
	testkit.IsError(t, err, nil, "<nil>", "int")
}

func TestPluginInitialize_EveryMethodOfAMissingPluginSaysSo(t *testing.T) {
	t.Parallel()

	db := plugintest.Bare(t)
	for _, tt := range []struct {
		name   string
		plugin *uidplugin.Plugin
	}{
		{"handle without plugin", uidplugin.From(db)},
		{"no handle", uidplugin.From(nil)},
		{"empty handle", uidplugin.From(&gorm.DB{})},
		{"zero Plugin", &uidplugin.Plugin{}},
		{"no db.Use", uidplugin.New()},
	} {
		ctx, p := t.Context(), tt.plugin
		calls := map[string]func() error{
			"Register":    func() error { return p.Register(ctx, &plugintest.Part{}) },
			"AutoMigrate": func() error { return p.AutoMigrate(&plugintest.Part{}) },
			"NextID":      func() error { _, err := p.NextID(ctx, &plugintest.Part{}); return err },
			"Locate":      func() error { _, err := p.Locate(ctx, 1); return err },
			"Find":        func() error { _, err := p.Find(ctx, 1); return err },
			"FindAll":     func() error { _, err := p.FindAll(ctx, []uidplugin.ID{1, 2}); return err },
			"Health":      func() error { return p.Health() },
			"Decode":      func() error { _, err := p.Decode(1); return err },
			"Initialize":  func() error { return p.Initialize(db) },
		}
		if tt.name == "no db.Use" { // what needs no database
			delete(calls, "Decode")
			delete(calls, "Initialize")
		}
		for name, call := range calls {
			if err := call(); !errors.Is(err, uidplugin.ErrNotRegistered) {
				t.Errorf("%s, %s: %v", tt.name, name, err)
			}
		}
		must(t, p.Close(ctx)) // a function that closes any handle must get to its pool
		if p.Name() != "uidplugin" || !reflect.DeepEqual(p.Stats(), uidplugin.Stats{}) {
			t.Errorf("%s: Name %q, Stats %+v", tt.name, p.Name(), p.Stats())
		}
		if l := p.Layout(); tt.name != "no db.Use" && l != (generator.Layout{}) {
			t.Errorf("%s: Layout: %+v", tt.name, l)
		}
	}
}

func TestPluginInitialize_FromFindsThePluginOnEverySession(t *testing.T) {
	t.Parallel()

	db := plugintest.Open(t, uidplugin.WithModels(&plugintest.Part{}))
	tx := db.Begin()
	defer tx.Rollback()
	for _, handle := range []*gorm.DB{db, db.Session(&gorm.Session{NewDB: true}), db.Where("1 = 1"), tx, tx.WithContext(t.Context())} {
		if n := len(uidplugin.From(handle).Stats().Tables); n != 1 {
			t.Errorf("%d tables", n)
		}
	}
	if uidplugin.From(db).Layout() != generator.DefaultLayout() || !uidplugin.From(db).Stats().Expires.Equal(generator.DefaultLayout().Expires()) {
		t.Error("another layout")
	}
}

type (
	leftover struct {
		ID   int64 `gorm:"primaryKey;uid"`
		Name string
	}
	unmade struct {
		ID int64 `gorm:"primaryKey;uid:unmade"`
	}
)

// A program that goes on after db.Use has failed has no plugin. Formerly it inserted rows with the key 0, because GORM
// still expected the application to set the keys.
func TestPluginInitialize_LeavesGORMsSchemasAsTheyWereIfItFails(t *testing.T) {
	t.Parallel()

	db := plugintest.Bare(t)
	notReady := errors.New("not ready")
	p := uidplugin.New(uidplugin.WithLogger(nil), uidplugin.WithModels(&leftover{}, &unmade{}),
		uidplugin.WithGenerator("unmade", func(generator.Config) (generator.Renewable, error) { return nil, notReady }))
	testkit.IsError(t, db.Use(p), notReady, "uidplugin: ", "the generator unmade of table unmades cannot be made")
	plugintest.Unregistered(t, db)
	plugintest.Migrate(t, db, &leftover{})
	r := leftover{Name: "a"}
	must(t, db.Create(&r).Error)
	if r.ID != 1 {
		t.Errorf("the key is %d, and not the database's", r.ID)
	}
}

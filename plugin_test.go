package uidplugin_test

import (
	"errors"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
	"gorm.io/gorm/utils/tests"
)

func TestPluginInitialize_UseTwiceIsRefused(t *testing.T) {
	t.Parallel()

	db := bare(t)
	p := use(t, db)
	if err := db.Use(p); !errors.Is(err, gorm.ErrRegistered) {
		t.Errorf("the same plugin: %v", err)
	}
	if err := db.Use(uidplugin.New()); !errors.Is(err, gorm.ErrRegistered) {
		t.Errorf("another one: %v", err)
	}
	migrate(t, db, &part{})
	must(t, db.Create(&part{}).Error)
}

func TestPluginInitialize_APluginServesOneHandle(t *testing.T) {
	t.Parallel()

	db, other := bare(t), bare(t)
	p := use(t, db)
	err := other.Use(p)
	if !errors.Is(err, uidplugin.ErrOption) {
		t.Fatalf("the second handle: %v", err)
	}
	saysAll(t, err.Error(), "already in use", "New")
	unregistered(t, other)
	use(t, other)
	migrate(t, db, &part{})
	must(t, db.Create(&part{}).Error)
}

// db.Use refuses a transaction, because it ends before the plugin does.
func TestPluginInitialize_ATransactionIsNoHandleToRegisterWith(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		name    string
		options []uidplugin.Option
	}{
		{"worker ids from the database", nil},
		{"fixed worker id", []uidplugin.Option{uidplugin.WithWorkerID(7)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			db := bare(t)
			tx := db.Begin()
			defer tx.Rollback()
			err := tx.Use(uidplugin.New(tt.options...))
			if err == nil {
				t.Fatal("accepted")
			}
			saysAll(t, err.Error(), "transaction")
			unregistered(t, db)
		})
	}
}

// dbresolver opens each replica with a copy of the configuration, so GORM initializes its plugins again.
func TestPluginInitialize_InitializeAgainDoesNothing(t *testing.T) {
	t.Parallel()

	path := filepath.Join(t.TempDir(), "test.db")
	db := file(t, path, &gorm.Config{})
	use(t, db, uidplugin.WithModels(&part{}))
	migrate(t, db, &part{})

	config := *db.Config
	s := &statements{}
	config.Logger = s
	replica := file(t, path, &config)
	if list := s.take(); len(list) != 0 {
		t.Errorf("statements: %q", list)
	}
	if replica.Plugins[uidplugin.Name] != db.Plugins[uidplugin.Name] {
		t.Error("the replica has another plugin")
	}
	if tables := uidplugin.From(db).Stats().Tables; len(tables) != 1 {
		t.Errorf("worker ids: %+v", tables)
	}
	must(t, db.Create(&part{}).Error)
}

// TestPluginInitialize_APluginInTheConfiguration is initialized by gorm.Open.
func TestPluginInitialize_APluginInTheConfiguration(t *testing.T) {
	t.Parallel()

	p := uidplugin.New(uidplugin.WithLogger(nil))
	db := file(t, filepath.Join(t.TempDir(), "test.db"), &gorm.Config{Plugins: map[string]gorm.Plugin{uidplugin.Name: p}})
	migrate(t, db, &part{})
	r := part{}
	must(t, db.Create(&r).Error)
	isOurs(t, db, "parts", r.ID)
}

func TestPluginInitialize_WithoutAPoolThereAreOnlyFixedWorkerIDs(t *testing.T) {
	t.Parallel()

	handle := func() *gorm.DB {
		db, err := gorm.Open(tests.DummyDialector{}, &gorm.Config{DryRun: true, Logger: logger.Discard})
		must(t, err)
		return db
	}
	err := handle().Use(uidplugin.New())
	if err == nil {
		t.Fatal("accepted")
	}
	saysAll(t, err.Error(), "no connection pool")

	db := handle()
	use(t, db, uidplugin.WithWorkerID(7))
	r := part{}
	must(t, db.Session(&gorm.Session{SkipDefaultTransaction: true}).Create(&r).Error)
	if parts, err := uidplugin.From(db).Decode(uidplugin.ID(r.ID)); err != nil || parts.WorkerID != 7 {
		t.Errorf("%+v, %v", parts, err)
	}
}

func TestPluginInitialize_UseWrapsTheErrorsOfThePackagesBelow(t *testing.T) {
	t.Parallel()

	path := filepath.Join(t.TempDir(), "test.db")
	use(t, file(t, path, &gorm.Config{}))
	err := file(t, path, &gorm.Config{}).Use(uidplugin.New(uidplugin.WithLayout(generator.SnowflakeLayout())))
	if !errors.Is(err, workernode.ErrLayoutMismatch) {
		t.Errorf("another layout: %v", err)
	}

	empty := bare(t)
	err = empty.Use(uidplugin.New(uidplugin.WithoutMigration()))
	if !errors.Is(err, workernode.ErrTable) {
		t.Fatalf("no tables: %v", err)
	}
	saysAll(t, err.Error(), "WORKER_NODE", "sqlite.sql")

	foreign := bare(t)
	must(t, foreign.Exec(`CREATE TABLE "WORKER_NODE" (id integer, colour text)`).Error)
	err = foreign.Use(uidplugin.New())
	if !errors.Is(err, workernode.ErrTable) {
		t.Fatalf("another table: %v", err)
	}
	saysAll(t, err.Error(), "WORKER_NODE", "HOST_NAME", "colour", "rename")

	tiny := generator.DefaultLayout()
	tiny.WorkerBits = 1
	db := bare(t)
	err = db.Use(uidplugin.New(uidplugin.WithLayout(tiny), uidplugin.WithModels(&part{}, &article{})))
	if !errors.Is(err, workernode.ErrExhausted) {
		t.Errorf("exhausted: %v", err)
	}
	unregistered(t, db)

	err = bare(t).Use(uidplugin.New(uidplugin.WithModels(&ledger{}, nil, 5)))
	if err == nil {
		t.Fatal("values that are no models were accepted")
	}
	saysAll(t, err.Error(), "<nil>", "int")
}

// Without the plugin, each method returns an error that says so.
func TestPluginInitialize_EveryMethodOfAMissingPluginSaysSo(t *testing.T) {
	t.Parallel()

	db := bare(t)
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
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			ctx, p := t.Context(), tt.plugin
			calls := map[string]func() error{
				"Register":    func() error { return p.Register(ctx, &part{}) },
				"AutoMigrate": func() error { return p.AutoMigrate(&part{}) },
				"NextID":      func() error { _, err := p.NextID(ctx, &part{}); return err },
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
					t.Errorf("%s: %v", name, err)
				}
			}
			must(t, p.Close(ctx)) // a function that closes any handle must get to its pool
			if p.Name() != "uidplugin" || !reflect.DeepEqual(p.Stats(), uidplugin.Stats{}) {
				t.Errorf("Name %q, Stats %+v", p.Name(), p.Stats())
			}
			if l := p.Layout(); tt.name != "no db.Use" && l != (generator.Layout{}) {
				t.Errorf("Layout: %+v", l)
			}
		})
	}
}

func TestPluginInitialize_FromFindsThePluginOnEverySession(t *testing.T) {
	t.Parallel()

	db := open(t, uidplugin.WithModels(&part{}))
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

// A program that goes on after db.Use has failed has no plugin. It inserted rows with the key 0, because GORM still
// took the keys for ones that somebody sets.
func TestPluginInitialize_LeavesGORMsSchemasAsTheyWereIfItFails(t *testing.T) {
	t.Parallel()

	db := bare(t)
	notReady := errors.New("not ready")
	p := uidplugin.New(uidplugin.WithLogger(nil), uidplugin.WithModels(&leftover{}, &unmade{}),
		uidplugin.WithGenerator("unmade", func(uidplugin.GeneratorConfig) (generator.Renewable, error) { return nil, notReady }))
	err := db.Use(p)
	if !errors.Is(err, notReady) {
		t.Fatal(err)
	}
	saysAll(t, err.Error(), "uidplugin: ", "the generator unmade of table unmades cannot be made")
	unregistered(t, db)
	migrate(t, db, &leftover{})
	r := leftover{Name: "a"}
	must(t, db.Create(&r).Error)
	if r.ID != 1 {
		t.Errorf("the key is %d, and not the database's", r.ID)
	}
}

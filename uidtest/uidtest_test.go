package uidtest_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/uidtest"
	"gorm.io/gorm"
)

// An author has a book for each association; keys are of the kinds that applications have.
type (
	author struct {
		ID    uint `gorm:"primaryKey;uid"`
		Name  string
		Books []book
		Tags  []label `gorm:"many2many:author_labels"`
	}
	book struct {
		gorm.Model `gorm:"uid"`
		AuthorID   uint
		Title      string `gorm:"size:64;unique"`
	}
	label struct {
		ID   string `gorm:"primaryKey;uid"`
		Text string
	}
)

// numbers has keys of generators that its tags name.
type numbers struct {
	ID     int64 `gorm:"primaryKey;uid"`
	Small  int64 `gorm:"uid:segment"`
	Large  int64 `gorm:"uid:snowflake"`
	Own    int64 `gorm:"uid:mine"`
	Second int64 `gorm:"uid"`
}

// noon is the instant of the tests with a fixed clock.
var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// A newPlugin makes a plugin of the package.
type newPlugin func(options ...uidplugin.Option) gorm.Plugin

// plugins are those of the package.
var plugins = map[string]newPlugin{
	"Sequential": uidtest.Sequential,
	"Fixed": func(options ...uidplugin.Option) gorm.Plugin {
		return uidtest.Fixed(noon, options...)
	},
}

// eachPlugin runs a test in parallel with each of them.
func eachPlugin(t *testing.T, test func(t *testing.T, name string, make newPlugin)) {
	t.Parallel()
	for name, make := range plugins {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, name, make)
		})
	}
}

// open returns a new database with a plugin and the tables of models.
func open(tb testing.TB, p gorm.Plugin, models ...any) *gorm.DB {
	tb.Helper()
	return openOn(tb, testkit.SQLite{}.Open(tb), p, models...)
}

// openOn is open for a database that is open.
func openOn(tb testing.TB, db *gorm.DB, p gorm.Plugin, models ...any) *gorm.DB {
	tb.Helper()
	testkit.Must(tb, db.Use(p))
	testkit.Must(tb, db.AutoMigrate(models...))
	return db
}

// Formerly a test got the numbers that another test in the same process had left.
func TestPlugins_CountForThemselves(t *testing.T) {
	t.Parallel()

	for name, make := range plugins {
		var mu sync.Mutex
		seen := map[uint]int{}
		t.Run(name, func(t *testing.T) {
			for range 8 {
				t.Run("", func(t *testing.T) {
					t.Parallel()

					db := open(t, make(), &author{})
					for range 20 {
						row := author{}
						testkit.Must(t, db.Create(&row).Error)
						mu.Lock()
						seen[row.ID]++
						mu.Unlock()
					}
				})
			}
		})
		if len(seen) != 20 {
			t.Errorf("%s: %d different ids, want 20", name, len(seen))
		}
		for id, n := range seen {
			if n != 8 {
				t.Errorf("%s: %d databases have the id %d, want 8", name, n, id)
			}
		}
	}
}

// Formerly the generator of a table was opened like that of a source, which may need a second connection. So the first
// create in a transaction failed with ErrInTransaction on a pool of one, as SQLite in memory has.
func TestPlugins_FirstCreateInATransactionOfAPoolOfOne(t *testing.T) {
	eachPlugin(t, func(t *testing.T, _ string, make newPlugin) {
		for range 10 {
			db := testkit.SQLite{Pool: 1}.Open(t)
			testkit.Must(t, db.Use(make()))
			testkit.Must(t, db.AutoMigrate(&author{}, &book{}))
			testkit.Must(t, db.Transaction(func(tx *gorm.DB) error {
				return tx.Create(&author{Books: []book{{Title: "a"}}}).Error
			}))
			testkit.Must(t, uidplugin.From(db).Close(t.Context()))
		}
	})
}

// An application hands over the options of production. Those about worker ids exclude WithWorkerID.
func TestPlugins_IgnoreWhereIDsComeFrom(t *testing.T) {
	eachPlugin(t, func(t *testing.T, name string, make newPlugin) {
		registry := testkit.SQLite{}.Open(t)
		options := []uidplugin.Option{
			uidplugin.WithRegistry(registry), uidplugin.WithDatabaseName("shop"), uidplugin.WithOneWorkerID(),
			uidplugin.WithDisposable(), uidplugin.WithoutMigration(), uidplugin.WithLookupOnly(), uidplugin.WithWorkerID(7), uidplugin.WithRegion(1, 2), uidplugin.WithSchema("shop"),
			uidplugin.WithDefaultGenerator("snowflake"),
			uidplugin.WithClock(func() time.Time { return noon.Add(time.Hour) }), nil,
		}
		other, one := open(t, make(), &author{}), open(t, make(options...), &author{})
		var a, b author
		testkit.Must(t, errors.Join(one.Create(&a).Error, one.Create(&b).Error))
		if a.ID >= b.ID || name == "Sequential" && a.ID != 1 {
			t.Errorf("ids %d, %d", a.ID, b.ID)
		}
		parts, err := uidplugin.From(one).Decode(uidplugin.ID(a.ID))
		if name == "Fixed" && (err != nil || !parts.Time.Equal(noon)) {
			t.Errorf("the first id is of %v, %v", parts.Time, err)
		}
		testkit.Must(t, other.Create(&author{}).Error)
	})
	err := testkit.SQLite{}.Open(t).Use(uidtest.Sequential(uidplugin.WithTimeout(-1)))
	testkit.IsError(t, err, uidplugin.ErrOption, "WithTimeout")
}

// Close ends the making of ids, as in production.
func TestPlugins_Close(t *testing.T) {
	eachPlugin(t, func(t *testing.T, _ string, make newPlugin) {
		db := open(t, make(), &author{}, &book{})
		testkit.Must(t, db.Create(&author{}).Error)
		testkit.Must(t, uidplugin.From(db).Close(t.Context()))
		for _, row := range []any{&author{}, &[]author{{}, {}}, &book{}} {
			testkit.IsError(t, db.Create(row).Error, uidplugin.ErrClosed)
		}
		testkit.Must(t, uidplugin.From(db).Close(t.Context()))
	})
}

// The mock expects no statement but those of the application. The plugin must not send one of its own: not in db.Use,
// not with its first create, not in Close.
func TestPlugins_SendNoStatement(t *testing.T) {
	eachPlugin(t, func(t *testing.T, name string, make newPlugin) {
		db, mock := testkit.Mock(t, testkit.OnPostgres)
		testkit.Must(t, db.Use(make(uidplugin.WithModels(&author{}, &numbers{}), uidplugin.WithSource("mine", nothing))))
		mock.ExpectBegin()
		var id uidplugin.ID
		testkit.Must(t, db.Callback().Create().After("gorm:before_create").Register("test:id", func(tx *gorm.DB) {
			id = uidplugin.ID(tx.Statement.Dest.(*author).ID)
		}))
		mock.ExpectExec(`INSERT INTO "authors" ("id","name") VALUES ($1,$2)`).WillReturnResult(sqlmock.NewResult(0, 1))
		mock.ExpectCommit()
		row := author{Name: "a"}
		testkit.Must(t, db.Create(&row).Error)
		if row.ID == 0 || uidplugin.ID(row.ID) != id {
			t.Errorf("the row has the id %d, and had %d before the INSERT", row.ID, id)
		}
		testkit.Must(t, uidplugin.From(db).Health())
		testkit.Must(t, uidplugin.From(db).Close(t.Context()))
		testkit.Must(t, mock.ExpectationsWereMet())
	})
}

// nothing is the opener of a source that must not be opened.
func nothing(context.Context, *gorm.DB, string) (generator.Generator, error) {
	return nil, errors.New("must not be called")
}

package uidtest_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/uidtest"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
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

// plugins are those of the package.
var plugins = map[string]func(options ...uidplugin.Option) gorm.Plugin{
	"Sequential": uidtest.Sequential,
	"Fixed": func(options ...uidplugin.Option) gorm.Plugin {
		return uidtest.Fixed(noon, options...)
	},
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

// All tables shared one count, as they share the worker id with WithWorkerID.
func TestSequential_EachTableCountsFromOne(t *testing.T) {
	t.Parallel()

	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := openOn(t, d.Open(t, nil), uidtest.Sequential(), &author{}, &book{}, &label{})
		create := func(value any) {
			t.Helper()
			testkit.Must(t, db.Create(value).Error)
		}
		one := author{Books: []book{{Title: "a"}, {Title: "b"}}, Tags: []label{{}, {}}}
		create(&one)
		batch := []author{{}, {Books: []book{{Title: "c"}}}, {}}
		testkit.Must(t, db.CreateInBatches(&batch, 2).Error)
		fields := map[string]any{"name": "of a map"}
		testkit.Must(t, db.Model(&author{}).Create(&fields).Error)
		saved := author{Name: "saved"}
		testkit.Must(t, db.Save(&saved).Error)
		again := saved
		again.Name = "saved again"
		testkit.Must(t, db.Save(&again).Error)
		first := author{Name: "first or create"}
		testkit.Must(t, db.Where(author{Name: first.Name}).FirstOrCreate(&first).Error)

		got := fmt.Sprintln(one.ID, one.Books[0].ID, one.Books[1].ID, one.Books[1].AuthorID, one.Tags[0].ID, one.Tags[1].ID,
			"/", batch[0].ID, batch[1].ID, batch[1].Books[0].ID, batch[2].ID, "/", fields["id"], saved.ID, again.ID, first.ID)
		if want := "1 1 2 1 1 2 / 2 3 3 4 / 5 6 6 7\n"; got != want {
			t.Errorf("ids\n\t%s, want\n\t%s", got, want)
		}
		var ids []uint
		testkit.Must(t, db.Model(&author{}).Order("id").Pluck("id", &ids).Error)
		if !slices.Equal(ids, []uint{1, 2, 3, 4, 5, 6, 7}) {
			t.Errorf("the table has the ids %v", ids)
		}
	})
}

// Fixtures with keys of their own, and rows that the test creates after them: gotify's tests have both.
func TestSequential_ContinuesAboveKeysOfTheApplication(t *testing.T) {
	t.Parallel()

	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		mine := uidplugin.WithSource("mine", nothing)
		db := openOn(t, d.Open(t, nil), uidtest.Sequential(mine), &author{}, &book{}, &label{}, &numbers{})
		create := func(value any) {
			t.Helper()
			testkit.Must(t, db.Create(value).Error)
		}
		mixed := []author{{ID: 1}, {}, {ID: 5}, {}}
		create(&mixed)
		with := author{
			Books: []book{{Model: gorm.Model{ID: 7}, Title: "a"}, {Title: "b"}},
			Tags:  []label{{ID: "3"}, {}, {ID: "none"}},
		}
		create(&with)
		fields := map[string]any{"id": 20}
		testkit.Must(t, db.Model(&author{}).Create(&fields).Error)
		last := author{ID: 12}
		testkit.Must(t, db.Save(&last).Error)
		last.ID = 0
		create(&last)
		got := fmt.Sprintln(mixed[1].ID > 5, mixed[3].ID > mixed[1].ID, with.Books[1].ID, with.Tags[1].ID, last.ID)
		if want := "true true 8 4 21\n"; got != want {
			t.Errorf("ids\n\t%s, want\n\t%s", got, want)
		}

		create(&numbers{ID: 10, Small: 20})
		row := numbers{}
		create(&row)
		if row.ID <= 10 || row.Small != 21 || row.Large != 2 {
			t.Errorf("the row is %+v", row)
		}
	})
}

// The next ids were negative. AUTO_INCREMENT fails as well.
func TestSequential_NoIDAboveTheLargestKey(t *testing.T) {
	t.Parallel()

	type row struct {
		ID int64 `gorm:"primaryKey;uid"`
	}
	db := open(t, uidtest.Sequential(), &row{})
	testkit.Must(t, db.Create(&row{ID: math.MaxInt64 - 1}).Error)
	last := row{}
	testkit.Must(t, db.Create(&last).Error)
	if last.ID != math.MaxInt64 {
		t.Errorf("the last id is %d", last.ID)
	}
	for range 2 {
		testkit.IsError(t, db.Create(&row{}).Error, generator.ErrTimeExhausted, "rows has the largest key, 9223372036854775807")
	}
}

// As dbresolver opens its replicas. GORM initializes the plugins in any order then. So a key of the application was
// seen only after the other rows of its create had their ids.
func TestSequential_ACopyOfTheConfiguration(t *testing.T) {
	t.Parallel()

	for range 10 {
		p := uidtest.Sequential()
		db := open(t, p, &author{})
		testkit.Must(t, db.Create(&author{}).Error)
		testkit.IsError(t, db.Use(p), gorm.ErrRegistered)
		config := *db.Config
		config.ConnPool, config.Dialector = nil, nil
		copied := testkit.SQLite{Config: &config}.Open(t)
		testkit.Must(t, copied.AutoMigrate(&author{}))
		rows := []author{{ID: 7}, {}}
		testkit.Must(t, copied.Create(&rows).Error)
		if rows[1].ID <= 7 {
			t.Fatalf("the row after the one with the id 7 has the id %d", rows[1].ID)
		}
		testkit.IsError(t, testkit.SQLite{}.Open(t).Use(p), uidplugin.ErrOption, "already in use")
	}
}

// After a conflict the struct has the id of its row, and the next row does not get that of another one.
func TestSequential_Upserts(t *testing.T) {
	t.Parallel()

	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := openOn(t, d.Open(t, nil), uidtest.Sequential(), &book{})
		upsert := db.Clauses(clause.OnConflict{
			Columns:   []clause.Column{{Name: "title"}},
			DoUpdates: clause.AssignmentColumns([]string{"author_id"}),
		})
		for _, tt := range []struct {
			title string
			want  uint
		}{{"a", 1}, {"b", 2}, {"a", 1}, {"b", 2}, {"c", 5}} {
			b := book{Title: tt.title}
			testkit.Must(t, upsert.Session(&gorm.Session{}).Create(&b).Error)
			if b.ID != tt.want {
				t.Errorf("book %s has the id %d, want %d", tt.title, b.ID, tt.want)
			}
		}
	})
}

// A test got the numbers that another test in the same process had left.
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

// Creates of several goroutines, of one row and of many, get each number once.
func TestSequential_ConcurrentCreates(t *testing.T) {
	t.Parallel()

	const callers, rounds = 8, 15
	db := open(t, uidtest.Sequential(), &author{}, &book{})
	ids := make(chan uint, callers*rounds*3)
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range rounds {
				one, two := author{}, []author{{}, {}}
				if err := errors.Join(db.Create(&one).Error, db.Create(&two).Error); err != nil {
					t.Error(err)
					return
				}
				ids <- one.ID
				ids <- two[0].ID
				ids <- two[1].ID
			}
		})
	}
	wg.Wait()
	close(ids)
	var all []uint
	for id := range ids {
		all = append(all, id)
	}
	slices.Sort(all)
	for i, id := range all {
		if id != uint(i+1) {
			t.Fatalf("the id at position %d is %d", i, id)
		}
	}
	if len(all) != callers*rounds*3 {
		t.Errorf("%d ids", len(all))
	}
}

// The generator of a table was opened like that of a source, which may need a second connection. So the first create
// in a transaction failed with ErrInTransaction on a pool of one, as SQLite in memory has.
func TestPlugins_FirstCreateInATransactionOfAPoolOfOne(t *testing.T) {
	t.Parallel()

	for name, make := range plugins {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

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
}

// With WithWorkerID, a tag that names another generator is refused, and uid:segment needs a table.
func TestSequential_TagsMayNameGenerators(t *testing.T) {
	t.Parallel()

	own := uidplugin.WithGenerator("mine", func(uidplugin.GeneratorConfig) (generator.Renewable, error) {
		return nil, errors.New("must not be called")
	})
	db := open(t, uidtest.Sequential(own, uidplugin.WithModels(&numbers{})), &numbers{})
	for _, want := range []numbers{{1, 1, 1, 1, 2}, {3, 2, 2, 2, 4}} {
		var got numbers
		testkit.Must(t, db.Create(&got).Error)
		if got != want {
			t.Errorf("the row is %+v, want %+v", got, want)
		}
	}
	var tables []string
	testkit.Must(t, db.Raw("SELECT name FROM sqlite_master WHERE type = 'table'").Scan(&tables).Error)
	if !slices.Equal(tables, []string{"numbers"}) {
		t.Errorf("the database has the tables %v", tables)
	}
}

// An application hands over the options of production. Those about worker ids exclude WithWorkerID.
func TestPlugins_IgnoreWhereIDsComeFrom(t *testing.T) {
	t.Parallel()

	for name, make := range plugins {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			registry := testkit.SQLite{}.Open(t)
			options := []uidplugin.Option{
				uidplugin.WithRegistry(registry), uidplugin.WithDatabaseName("shop"), uidplugin.WithOneWorkerID(),
				uidplugin.WithDisposable(), uidplugin.WithoutMigration(), uidplugin.WithWorkerID(7),
				uidplugin.WithDefaultGenerator(uidplugin.Segment),
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
	}
	err := testkit.SQLite{}.Open(t).Use(uidtest.Sequential(uidplugin.WithTimeout(-1)))
	testkit.IsError(t, err, uidplugin.ErrOption, "WithTimeout")
}

// What the package comment says about ids that are looked up.
func TestPlugins_LookingUp(t *testing.T) {
	t.Parallel()

	decodes := map[string]error{"Sequential": uidplugin.ErrNotDecodable}
	locates := map[string]error{"Sequential": uidplugin.ErrNotDecodable, "Fixed": uidplugin.ErrUnknownID}
	for name, make := range plugins {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			db := open(t, make(uidplugin.WithModels(&author{})), &author{})
			row := author{}
			testkit.Must(t, db.Create(&row).Error)
			p, id := uidplugin.From(db), uidplugin.ID(row.ID)
			is := func(what string, err, want error) {
				t.Helper()
				if !errors.Is(err, want) || want != nil && !errors.Is(err, uidplugin.ErrNoSuchID) {
					t.Errorf("%s: %v, want %v", what, err, want)
				}
			}
			_, err := p.Decode(id)
			is("Decode", err, decodes[name])
			_, err = p.Locate(t.Context(), id)
			is("Locate", err, locates[name])
			_, err = p.Find(t.Context(), id)
			is("Find", err, locates[name])
			_, err = p.FindAll(t.Context(), []uidplugin.ID{id})
			is("FindAll", err, locates[name])
			next, err := p.NextID(t.Context(), &author{})
			testkit.Must(t, err)
			if next != id+1 {
				t.Errorf("NextID after %d returns %d", id, next)
			}
			err = db.Scopes(p.CreatedBetween(noon, noon.Add(time.Hour))).Find(&[]author{}).Error
			testkit.IsError(t, err, uidplugin.ErrNotDecodable)
			testkit.Must(t, p.Health())
		})
	}
}

// Close ends the making of ids, as in production.
func TestPlugins_Close(t *testing.T) {
	t.Parallel()

	for name, make := range plugins {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			db := open(t, make(), &author{}, &book{})
			testkit.Must(t, db.Create(&author{}).Error)
			testkit.Must(t, uidplugin.From(db).Close(t.Context()))
			for _, row := range []any{&author{}, &[]author{{}, {}}, &book{}} {
				testkit.IsError(t, db.Create(row).Error, uidplugin.ErrClosed)
			}
			testkit.Must(t, uidplugin.From(db).Close(t.Context()))
		})
	}
}

// Numbers that a file of a test suite may contain: a change of them breaks the suites of users.
func TestFixed_TheSameInEachRun(t *testing.T) {
	t.Parallel()

	want := map[string][]uint64{
		"authors": {1113799104923049104, 1113799104923049105, 1113799104923049106},
		"books":   {1113799104923715504, 1113799104923715505, 1113799104923715506},
	}
	for _, order := range []string{"aaabbb", "bababa", "bbbaaa"} {
		db := open(t, uidtest.Fixed(noon), &author{}, &book{})
		got := map[string][]uint64{}
		for i, r := range order {
			a, b := author{}, book{Title: fmt.Sprint(i)}
			if r == 'a' {
				testkit.Must(t, db.Create(&a).Error)
				got["authors"] = append(got["authors"], uint64(a.ID))
				continue
			}
			testkit.Must(t, db.Create(&b).Error)
			got["books"] = append(got["books"], uint64(b.ID))
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("creates in the order %s have the ids\n\t%v, want\n\t%v", order, got, want)
		}
	}
}

// A tick has 16 ids in the default layout. Those that follow are of the next ticks, up to the end of the layout.
func TestFixed_IDsAscend(t *testing.T) {
	t.Parallel()

	layout := generator.DefaultLayout()
	last := layout.TimeOf(layout.MaxTick() - 1)
	db := open(t, uidtest.Fixed(last, uidplugin.WithLogger(nil)), &author{})
	rows := make([]author, 32)
	testkit.Must(t, db.Create(&rows).Error)
	for i, row := range rows {
		parts, err := layout.Decompose(int64(row.ID))
		testkit.Must(t, err)
		if want := last.Add(time.Duration(i/16) * layout.Tick); !parts.Time.Equal(want) || parts.Sequence != int64(i%16) || parts.WorkerID == 0 {
			t.Errorf("id %d is %+v, want the time %v", i, parts, want)
		}
	}
	testkit.IsError(t, db.Create(&author{}).Error, generator.ErrTimeExhausted, "authors")

	for _, at := range []time.Time{{}, layout.Epoch.Add(-time.Second), layout.Expires()} {
		testkit.IsError(t, testkit.SQLite{}.Open(t).Use(uidtest.Fixed(at)), generator.ErrLayout)
	}
}

// The mock expects no statement but those of the application. The plugin must not send one of its own: not in db.Use,
// not with its first create, not in Close.
func TestPlugins_SendNoStatement(t *testing.T) {
	t.Parallel()

	for name, make := range plugins {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			db, mock := testkit.Mock(t, testkit.OnPostgres)
			testkit.Must(t, db.Use(make(uidplugin.WithModels(&author{}, &numbers{}), uidplugin.WithSource("mine", nothing))))
			mock.ExpectBegin()
			var id uidplugin.ID
			testkit.Must(t, db.Callback().Create().After("gorm:before_create").Register("test:id", func(tx *gorm.DB) {
				id = uidplugin.ID(tx.Statement.Dest.(*author).ID)
			}))
			mock.ExpectExec(`INSERT INTO "authors" ("id","name") VALUES ($1,$2)`).WillReturnResult(result{})
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
}

// nothing is the opener of a source that must not be opened.
func nothing(context.Context, *gorm.DB, string) (generator.Generator, error) {
	return nil, errors.New("must not be called")
}

// A result is that of an INSERT of one row.
type result struct{}

func (result) LastInsertId() (int64, error) { return 0, nil }
func (result) RowsAffected() (int64, error) { return 1, nil }

// After the largest key there is no next one: a negative id would be worse than an error.
func TestSequential_AfterTheLargestKeyIsAnError(t *testing.T) {
	t.Parallel()

	type last struct {
		ID int64 `gorm:"primaryKey;autoIncrement:false;uid"`
	}
	db := testkit.SQLite{}.Open(t)
	testkit.Must(t, db.Use(uidtest.Sequential()))
	testkit.Must(t, db.AutoMigrate(&last{}))
	testkit.Must(t, db.Create(&last{ID: math.MaxInt64}).Error)
	testkit.IsError(t, db.Create(&last{}).Error, generator.ErrTimeExhausted, "lasts")
}

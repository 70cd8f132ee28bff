package catalog_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

var must, saysAll = testkit.Must, testkit.SaysAll

func pointers[T plugintest.Row](rows []T) []*T {
	var list []*T
	for i := range rows {
		list = append(list, &rows[i])
	}
	return list
}

// A form is a way to create rows. It returns the keys that it finds in memory.
type form[T plugintest.Row] struct {
	name   string
	create func(*gorm.DB) ([]int64, error)
}

// one is a form of a single row.
func one[T plugintest.Row](name string, create func(db *gorm.DB, r *T) error) form[T] {
	return form[T]{name, func(db *gorm.DB) ([]int64, error) {
		var r T
		err := create(db, &r)
		return plugintest.Keys(r), err
	}}
}

// many is a form of five rows.
func many[T plugintest.Row](name string, create func(db *gorm.DB, r []T) error) form[T] {
	return form[T]{name, func(db *gorm.DB) ([]int64, error) {
		rows := make([]T, 5)
		err := create(db, rows)
		return plugintest.Keys(rows...), err
	}}
}

func forms[T plugintest.Row]() []form[T] {
	return []form[T]{
		one("pointer", func(db *gorm.DB, r *T) error { return db.Create(r).Error }),
		one("pointer to pointer", func(db *gorm.DB, r *T) error { return db.Create(&r).Error }),
		one("pointer to nil pointer", func(db *gorm.DB, r *T) error {
			var made *T // by GORM
			err := db.Create(&made).Error
			*r = *made
			return err
		}),
		one("Save", func(db *gorm.DB, r *T) error { return db.Save(r).Error }),
		one("FirstOrCreate", func(db *gorm.DB, r *T) error { return db.FirstOrCreate(r, "name = ?", "none").Error }),
		one("FirstOrInit and Save", func(db *gorm.DB, r *T) error {
			return errors.Join(db.FirstOrInit(r, "name = ?", "none").Error, db.Save(r).Error)
		}),
		one("Select", func(db *gorm.DB, r *T) error { return db.Select("Name").Create(r).Error }),
		one("Select of all", func(db *gorm.DB, r *T) error { return db.Select("*").Create(r).Error }),
		one("Omit", func(db *gorm.DB, r *T) error { return db.Omit("Name").Create(r).Error }),
		one("SkipHooks", func(db *gorm.DB, r *T) error { return db.Session(&gorm.Session{SkipHooks: true}).Create(r).Error }),
		one("SkipDefaultTransaction", func(db *gorm.DB, r *T) error {
			return db.Session(&gorm.Session{SkipDefaultTransaction: true}).Create(r).Error
		}),
		one("PrepareStmt", func(db *gorm.DB, r *T) error { return db.Session(&gorm.Session{PrepareStmt: true}).Create(r).Error }),
		one("Model", func(db *gorm.DB, r *T) error { return db.Model(new(T)).Create(r).Error }),
		one("ON CONFLICT", func(db *gorm.DB, r *T) error { return db.Clauses(clause.OnConflict{DoNothing: true}).Create(r).Error }),
		one("generics", func(db *gorm.DB, r *T) error { return gorm.G[T](db).Create(context.Background(), r) }),
		one("generics with Select", func(db *gorm.DB, r *T) error {
			return gorm.G[T](db).Select("Name").Create(context.Background(), r)
		}),
		one("savepoint", func(db *gorm.DB, r *T) error {
			return db.Connection(func(db *gorm.DB) error { // the first create needs no connection of the transaction's
				return db.Transaction(func(tx *gorm.DB) error {
					return tx.Transaction(func(tx *gorm.DB) error { return tx.Create(r).Error })
				})
			})
		}),

		many("pointer to slice", func(db *gorm.DB, r []T) error { return db.Create(&r).Error }),
		many("slice", func(db *gorm.DB, r []T) error { return db.Create(r).Error }),
		many("slice of pointers", func(db *gorm.DB, r []T) error { return db.Create(pointers(r)).Error }),
		many("pointer to slice of pointers", func(db *gorm.DB, r []T) error { p := pointers(r); return db.Create(&p).Error }),
		many("pointer to array", func(db *gorm.DB, r []T) error { return db.Create((*[5]T)(r)).Error }),
		many("array of pointers", func(db *gorm.DB, r []T) error { return db.Create([5]*T(pointers(r))).Error }),
		many("CreateInBatches", func(db *gorm.DB, r []T) error { return db.CreateInBatches(&r, 2).Error }),
		many("CreateInBatches of pointers", func(db *gorm.DB, r []T) error { return db.CreateInBatches(pointers(r), 2).Error }),
		many("CreateBatchSize", func(db *gorm.DB, r []T) error {
			return db.Session(&gorm.Session{CreateBatchSize: 2}).Create(&r).Error
		}),
		many("Save of slice", func(db *gorm.DB, r []T) error { return db.Save(&r).Error }),
		many("generics in batches", func(db *gorm.DB, r []T) error {
			return gorm.G[T](db).CreateInBatches(context.Background(), &r, 2)
		}),
		many("Select of slice", func(db *gorm.DB, r []T) error { return db.Select("Name").Create(&r).Error }),
	}
}

func testForms[T plugintest.Row](t *testing.T, table string) {
	for _, f := range forms[T]() {
		t.Run(table+"/"+f.name, func(t *testing.T) {
			t.Parallel()

			db := plugintest.Open(t, uidplugin.WithLogger(nil))
			plugintest.Migrate(t, db, new(T))
			created, err := f.create(db)
			must(t, err)
			var stored []int64
			must(t, db.Table(table).Order("id").Pluck("id", &stored).Error)
			if !slices.Equal(created, stored) {
				t.Fatalf("in memory are %d, in the table %d", created, stored)
			}
			for _, id := range stored {
				plugintest.IsOurs(t, db, table, id)
			}
		})
	}
}

func TestCreate_FillsAllFormsOfRows(t *testing.T) {
	t.Parallel()

	testForms[plugintest.Part](t, "parts")
	testForms[plugintest.Counter](t, "counters")
}

// One generator makes the ids of a model, whatever table its rows go to.
func TestCreate_KeysGoByTheModelNotByTheTable(t *testing.T) {
	t.Parallel()

	db := plugintest.Open(t)
	plugintest.Migrate(t, db, &plugintest.Part{})
	must(t, db.Table("spare_parts").AutoMigrate(&plugintest.Part{}))
	spare := plugintest.Part{Name: "spare"}
	must(t, db.Table("spare_parts").Create(&spare).Error)
	plugintest.IsOurs(t, db, "parts", spare.ID)
	if n := plugintest.Count(t, db, "spare_parts", "id = ?", spare.ID); n != 1 {
		t.Errorf("%d rows", n)
	}
	if tables := uidplugin.From(db).Stats().Tables; len(tables) != 1 {
		t.Errorf("generators: %+v", tables)
	}
}

func TestCreate_KeysThatAreSetStay(t *testing.T) {
	t.Parallel()

	db := plugintest.Open(t)
	plugintest.Migrate(t, db, &plugintest.Part{}, &plugintest.Counter{})
	p := plugintest.Part{ID: 5}
	must(t, db.Create(&p).Error)
	c := plugintest.Counter{ID: -6}
	must(t, db.Create(&c).Error)
	must(t, db.Create(plugintest.Part{ID: 4}).Error) // by value: nothing has to be set
	if p.ID != 5 || c.ID != -6 || plugintest.Count(t, db, "parts", "id = 5") != 1 || plugintest.Count(t, db, "counters", "id = -6") != 1 {
		t.Errorf("%v %v", p, c)
	}

	parts := []*plugintest.Part{{ID: 10}, {}, {ID: 11}, {}, {}}
	must(t, db.Create(&parts).Error)
	if parts[0].ID != 10 || parts[2].ID != 11 || !(0 < parts[1].ID && parts[1].ID < parts[3].ID && parts[3].ID < parts[4].ID) {
		t.Errorf("%v %v %v %v %v", parts[0], parts[1], parts[2], parts[3], parts[4])
	}
	counters := []plugintest.Counter{{}, {ID: 20}, {}}
	must(t, db.Create(&counters).Error)
	if counters[1].ID != 20 || counters[0].ID >= counters[2].ID {
		t.Errorf("%v", counters)
	}
	for _, id := range []int64{parts[1].ID, parts[3].ID, parts[4].ID} {
		plugintest.IsOurs(t, db, "parts", id)
	}
	plugintest.IsOurs(t, db, "counters", counters[0].ID)
	plugintest.IsOurs(t, db, "counters", counters[2].ID)
}

// TestCreate_ASliceLargerThanAReservation has ascending keys without a hole.
func TestCreate_ASliceLargerThanAReservation(t *testing.T) {
	t.Parallel()

	db := plugintest.Open(t)
	plugintest.Migrate(t, db, &plugintest.Part{})
	rows := make([]plugintest.Part, 1000)
	rows[300].ID = 1
	must(t, db.CreateInBatches(&rows, 500).Error)
	last := rows[0].ID
	for i, r := range rows[1:] {
		if i+1 == 300 {
			continue
		}
		if r.ID <= last {
			t.Fatalf("row %d has %d after %d", i+1, r.ID, last)
		}
		last = r.ID
	}
	if n := plugintest.Count(t, db, "parts"); n != 1000 {
		t.Errorf("%d rows", n)
	}
}

func TestCreate_OmitOfTheKeyLeavesItAlone(t *testing.T) {
	t.Parallel()

	db := plugintest.Nowhere(t, uidplugin.WithWorkerID(1))
	row := plugintest.Parcel{City: "Ely"}
	sql := db.Session(&gorm.Session{DryRun: true}).Omit("ID", "OrderID", "Status", "Weight", "Street").Create(&row).Statement.SQL.String()
	if row.ID != 0 || sql != "INSERT INTO `parcels` (`city`) VALUES (?)" {
		t.Errorf("%s with the key %d", sql, row.ID)
	}
}

// The plugin selects the key for this create only, not for later statements of the caller's handle.
func TestCreate_SelectDoesNotLeakIntoTheCallersStatement(t *testing.T) {
	t.Parallel()

	db := plugintest.Nowhere(t, uidplugin.WithWorkerID(1)).Session(&gorm.Session{DryRun: true})
	base := db.Select("City").Session(&gorm.Session{})
	for range 2 {
		row := plugintest.Parcel{City: "Ely"}
		stmt := base.Create(&row).Statement
		if sql := stmt.SQL.String(); sql != "INSERT INTO `parcels` (`id`,`city`) VALUES (?,?)" || row.ID == 0 {
			t.Errorf("%s with the key %d", sql, row.ID)
		}
	}
	if s := base.Statement.Selects; len(s) != 1 {
		t.Errorf("the selection became %v", s)
	}
}

package uidplugin_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/uidplugin/uidplugin"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// The key of part is a plain BIGINT. GORM assumes AUTO_INCREMENT for the key of counter.
type part struct {
	ID   int64 `gorm:"primaryKey;autoIncrement:false;uid"`
	Name string
}

type counter struct {
	ID   int64 `gorm:"primaryKey;uid"`
	Name string
}

func (p part) key() int64    { return p.ID }
func (c counter) key() int64 { return c.ID }

type row interface {
	part | counter
	key() int64
}

func keys[T row](rows ...T) (ids []int64) {
	for _, r := range rows {
		ids = append(ids, r.key())
	}
	return ids
}

func pointers[T row](rows []T) []*T {
	var list []*T
	for i := range rows {
		list = append(list, &rows[i])
	}
	return list
}

// A form is a way to create rows. It returns the keys that it finds in memory.
type form[T row] struct {
	name   string
	create func(*gorm.DB) ([]int64, error)
}

// one is a form of a single row.
func one[T row](name string, create func(db *gorm.DB, r *T) error) form[T] {
	return form[T]{name, func(db *gorm.DB) ([]int64, error) {
		var r T
		err := create(db, &r)
		return keys(r), err
	}}
}

// many is a form of five rows.
func many[T row](name string, create func(db *gorm.DB, r []T) error) form[T] {
	return form[T]{name, func(db *gorm.DB) ([]int64, error) {
		rows := make([]T, 5)
		err := create(db, rows)
		return keys(rows...), err
	}}
}

func forms[T row]() []form[T] {
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

func testForms[T row](t *testing.T, table string) {
	for _, f := range forms[T]() {
		t.Run(table+"/"+f.name, func(t *testing.T) {
			t.Parallel()

			db := open(t, uidplugin.WithLogger(nil))
			migrate(t, db, new(T))
			created, err := f.create(db)
			must(t, err)
			var stored []int64
			must(t, db.Table(table).Order("id").Pluck("id", &stored).Error)
			if !slices.Equal(created, stored) {
				t.Fatalf("in memory are %d, in the table %d", created, stored)
			}
			for _, id := range stored {
				isOurs(t, db, table, id)
			}
		})
	}
}

func TestCreate_FillsAllFormsOfRows(t *testing.T) {
	t.Parallel()

	testForms[part](t, "parts")
	testForms[counter](t, "counters")
}

// One generator makes the ids of a model, whatever table its rows go to.
func TestCreate_KeysGoByTheModelNotByTheTable(t *testing.T) {
	t.Parallel()

	db := open(t)
	migrate(t, db, &part{})
	must(t, db.Table("spare_parts").AutoMigrate(&part{}))
	spare := part{Name: "spare"}
	must(t, db.Table("spare_parts").Create(&spare).Error)
	isOurs(t, db, "parts", spare.ID)
	if n := count(t, db, "spare_parts", "id = ?", spare.ID); n != 1 {
		t.Errorf("%d rows", n)
	}
	if tables := uidplugin.From(db).Stats().Tables; len(tables) != 1 {
		t.Errorf("generators: %+v", tables)
	}
}

func TestCreate_KeysThatAreSetStay(t *testing.T) {
	t.Parallel()

	db := open(t)
	migrate(t, db, &part{}, &counter{})
	p := part{ID: 5}
	must(t, db.Create(&p).Error)
	c := counter{ID: -6}
	must(t, db.Create(&c).Error)
	must(t, db.Create(part{ID: 4}).Error) // by value: nothing has to be set
	if p.ID != 5 || c.ID != -6 || count(t, db, "parts", "id = 5") != 1 || count(t, db, "counters", "id = -6") != 1 {
		t.Errorf("%v %v", p, c)
	}

	parts := []*part{{ID: 10}, {}, {ID: 11}, {}, {}}
	must(t, db.Create(&parts).Error)
	if parts[0].ID != 10 || parts[2].ID != 11 || !(0 < parts[1].ID && parts[1].ID < parts[3].ID && parts[3].ID < parts[4].ID) {
		t.Errorf("%v %v %v %v %v", parts[0], parts[1], parts[2], parts[3], parts[4])
	}
	counters := []counter{{}, {ID: 20}, {}}
	must(t, db.Create(&counters).Error)
	if counters[1].ID != 20 || counters[0].ID >= counters[2].ID {
		t.Errorf("%v", counters)
	}
	for _, id := range []int64{parts[1].ID, parts[3].ID, parts[4].ID} {
		isOurs(t, db, "parts", id)
	}
	isOurs(t, db, "counters", counters[0].ID)
	isOurs(t, db, "counters", counters[2].ID)
}

// TestCreate_ASliceLargerThanAReservation has ascending keys without a hole.
func TestCreate_ASliceLargerThanAReservation(t *testing.T) {
	t.Parallel()

	db := open(t)
	migrate(t, db, &part{})
	rows := make([]part, 1000)
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
	if n := count(t, db, "parts"); n != 1000 {
		t.Errorf("%d rows", n)
	}
}

func TestCreate_OmitOfTheKeyLeavesItAlone(t *testing.T) {
	t.Parallel()

	db := nowhere(t, uidplugin.WithWorkerID(1))
	row := parcel{City: "Ely"}
	sql := db.Session(&gorm.Session{DryRun: true}).Omit("ID", "OrderID", "Status", "Weight", "Street").Create(&row).Statement.SQL.String()
	if row.ID != 0 || sql != "INSERT INTO `parcels` (`city`) VALUES (?)" {
		t.Errorf("%s with the key %d", sql, row.ID)
	}
}

// The plugin selects the key for this create only, not for later statements of the caller's handle.
func TestCreate_SelectDoesNotLeakIntoTheCallersStatement(t *testing.T) {
	t.Parallel()

	db := nowhere(t, uidplugin.WithWorkerID(1)).Session(&gorm.Session{DryRun: true})
	base := db.Select("City").Session(&gorm.Session{})
	for range 2 {
		row := parcel{City: "Ely"}
		stmt := base.Create(&row).Statement
		if sql := stmt.SQL.String(); sql != "INSERT INTO `parcels` (`city`,`id`) VALUES (?,?)" || row.ID == 0 {
			t.Errorf("%s with the key %d", sql, row.ID)
		}
	}
	if s := base.Statement.Selects; len(s) != 1 {
		t.Errorf("the selection became %v", s)
	}
}

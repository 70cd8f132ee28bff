package uidplugin_test

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"gorm.io/gorm"
)

// product can be deleted softly.
type product struct {
	uidplugin.Model
	Name string
}

func TestPluginFind_LoadsTheRowOfAnID(t *testing.T) {
	t.Parallel()

	db := open(t)
	must(t, uidplugin.From(db).AutoMigrate(&part{}, &product{}, &counter{}))
	a, b, c := part{Name: "nail"}, product{Name: "box"}, counter{Name: "till"}
	must(t, db.Create(&a).Error)
	must(t, db.Create(&b).Error)
	must(t, db.Create(&c).Error)
	p := uidplugin.From(db)
	if row, err := p.Find(t.Context(), uidplugin.ID(a.ID)); err != nil || *row.(*part) != a {
		t.Errorf("Find: %v, %v", row, err)
	}
	if row, err := p.Find(t.Context(), uidplugin.ID(b.ID.Int64())); err != nil || row.(*product).Name != "box" {
		t.Errorf("Find: %v, %v", row, err)
	}
	if row, err := p.Find(t.Context(), uidplugin.ID(c.ID)); err != nil || *row.(*counter) != c {
		t.Errorf("Find: %v, %v", row, err)
	}
}

func TestPluginFind_OfARowThatIsNotThere(t *testing.T) {
	t.Parallel()

	db := open(t)
	must(t, uidplugin.From(db).AutoMigrate(&product{}))
	r := product{}
	must(t, db.Create(&r).Error)
	p := uidplugin.From(db)
	id, err := p.NextID(t.Context(), &product{})
	must(t, err)
	_, err = p.Find(t.Context(), id)
	only(t, err, gorm.ErrRecordNotFound, "uidplugin: find")

	must(t, db.Delete(&r).Error)
	_, err = p.Find(t.Context(), uidplugin.ID(r.ID.Int64()))
	only(t, err, gorm.ErrRecordNotFound)
	isOurs(t, db, "products", r.ID.Int64())
}

// TestPluginFind_KnowsTheModelsThatAreRegistered: ids lead to a table, and only a model
// leads to its rows.
func TestPluginFind_KnowsTheModelsThatAreRegistered(t *testing.T) {
	t.Parallel()

	path := filepath.Join(t.TempDir(), "test.db")
	first := file(t, path, &gorm.Config{})
	use(t, first)
	migrate(t, first, &part{})
	r := part{Name: "nail"}
	must(t, first.Create(&r).Error)

	second := file(t, path, &gorm.Config{})
	p := use(t, second)
	_, err := p.Find(t.Context(), uidplugin.ID(r.ID))
	only(t, err, uidplugin.ErrNoModel, "parts")
	must(t, p.Register(t.Context(), &part{}))
	if row, err := p.Find(t.Context(), uidplugin.ID(r.ID)); err != nil || *row.(*part) != r {
		t.Errorf("Find: %v, %v", row, err)
	}
	third := file(t, path, &gorm.Config{})
	p = use(t, third, uidplugin.WithModels(&part{}))
	if row, err := p.Find(t.Context(), uidplugin.ID(r.ID)); err != nil || *row.(*part) != r {
		t.Errorf("Find: %v, %v", row, err)
	}
}

// A model is listed by WithModels, Register or AutoMigrate only. One that was merely used, or is associated with a
// listed one, was found as well: a caller that hands ids of clients to Find gave out rows of tables that nobody meant
// to be found.
func TestPluginFind_LoadsListedModelsOnly(t *testing.T) {
	t.Parallel()

	db := open(t)
	p := uidplugin.From(db)
	must(t, db.AutoMigrate(&crate{}, &slip{}, &part{}))
	row := crate{Slips: []slip{{}}}
	must(t, db.Create(&row).Error)
	for _, id := range []int64{row.ID, row.Slips[0].ID} {
		_, err := p.Find(t.Context(), uidplugin.ID(id))
		only(t, err, uidplugin.ErrNoModel, fmt.Sprint(id), "WithModels", "Register")
	}
	must(t, p.Register(t.Context(), &crate{}))
	if found, err := p.Find(t.Context(), uidplugin.ID(row.ID)); err != nil || found.(*crate).ID != row.ID {
		t.Errorf("Find of a listed model: %v, %v", found, err)
	}
	_, err := p.Find(t.Context(), uidplugin.ID(row.Slips[0].ID))
	only(t, err, uidplugin.ErrNoModel, "slips")
	must(t, p.AutoMigrate(&slip{}))
	if found, err := p.Find(t.Context(), uidplugin.ID(row.Slips[0].ID)); err != nil || found.(*slip).ID != row.Slips[0].ID {
		t.Errorf("Find of a migrated model: %v, %v", found, err)
	}
}

// A model that was refused is not listed: Find would read the whole table for it.
func TestPluginFind_DoesNotLoadAModelThatWasRefused(t *testing.T) {
	t.Parallel()

	type parcelled struct {
		ID    int64 `gorm:"primaryKey;autoIncrement:false;uid"`
		Trace int32 `gorm:"uid"`
	}
	db := open(t, uidplugin.WithClock(atNoon))
	if err := uidplugin.From(db).Register(t.Context(), &parcelled{}); !errors.Is(err, uidplugin.ErrField) {
		t.Fatalf("Register: %v", err)
	}
	addNode(t, db, elsewhere(50, "parcelleds"))
	_, err := uidplugin.From(db).Find(t.Context(), uidplugin.ID(at(t, 50, 0)))
	only(t, err, uidplugin.ErrNoModel, "parcelleds")
}

// TestPluginFind_TheRegisteredModelIsWhatFindLoads, not the one that was seen first.
func TestPluginFind_TheRegisteredModelIsWhatFindLoads(t *testing.T) {
	t.Parallel()

	db := open(t)
	must(t, uidplugin.From(db).AutoMigrate(&part{}))
	r := sketch{}
	must(t, db.Create(&r).Error)
	if row, err := uidplugin.From(db).Find(t.Context(), uidplugin.ID(r.ID)); err != nil || row.(*part).ID != r.ID {
		t.Errorf("Find: %v, %v", row, err)
	}
}

// sketch is another model of the table parts.
type sketch struct {
	ID int64 `gorm:"primaryKey;autoIncrement:false;uid"`
}

func (sketch) TableName() string { return "parts" }

func TestPluginFindAll_ReturnsTheGoodOnesAndAllErrors(t *testing.T) {
	t.Parallel()

	db := open(t)
	must(t, uidplugin.From(db).AutoMigrate(&part{}, &product{}))
	parts := []part{{Name: "a"}, {Name: "b"}, {Name: "c"}}
	products := []product{{Name: "d"}, {Name: "e"}}
	must(t, db.Create(&parts).Error)
	must(t, db.Create(&products).Error)
	must(t, db.Delete(&products[1]).Error)
	p := uidplugin.From(db)
	missing, err := p.NextID(t.Context(), &part{})
	must(t, err)

	unknown := at(t, 999, 0)
	ids := []int64{parts[0].ID, -1, products[0].ID.Int64(), unknown, parts[2].ID, int64(missing), parts[0].ID, products[1].ID.Int64(), -2, 1<<63 - 1}
	rows, err := p.FindAll(t.Context(), uidplugin.IDs(ids...))
	for _, kind := range []error{uidplugin.ErrNegativeID, uidplugin.ErrUnknownID, uidplugin.ErrFutureID} {
		if !errors.Is(err, kind) {
			t.Errorf("the errors\n%v\nlack %v", err, kind)
		}
	}
	saysAll(t, err.Error(), ": -1", ": -2", "999", "9223372036854775807")
	want := uidplugin.IDs(parts[0].ID, parts[2].ID, products[0].ID.Int64())
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(rows)); !slices.Equal(got, want) {
		t.Errorf("rows of %d, want %d", got, want)
	}

	if rows, err := p.FindAll(t.Context(), nil); len(rows) != 0 || err != nil {
		t.Errorf("FindAll of nothing: %v, %v", rows, err)
	}
	if rows, err := p.FindAll(t.Context(), []uidplugin.ID{missing}); len(rows) != 0 || err != nil {
		t.Errorf("FindAll of an id without a row: %v, %v", rows, err)
	}
}

func TestPluginFindAll_NamesEachIDThatLeadsNowhere(t *testing.T) {
	t.Parallel()

	path := filepath.Join(t.TempDir(), "test.db")
	first := file(t, path, &gorm.Config{})
	use(t, first)
	migrate(t, first, &part{})
	parts := make([]part, 3)
	must(t, first.Create(&parts).Error)

	p := use(t, file(t, path, &gorm.Config{}))
	_, err := p.FindAll(t.Context(), []uidplugin.ID{uidplugin.ID(parts[0].ID), uidplugin.ID(parts[1].ID), uidplugin.ID(parts[2].ID)})
	only(t, err, uidplugin.ErrNoModel)
	for _, r := range parts {
		saysAll(t, err.Error(), uidplugin.ID(r.ID).String())
	}
}

func TestPluginFindAll_ReadsManyRowsInChunks(t *testing.T) {
	t.Parallel()

	db := open(t)
	must(t, uidplugin.From(db).AutoMigrate(&part{}))
	rows := make([]part, 2500)
	must(t, db.CreateInBatches(&rows, 1000).Error)
	ids := keys(rows...)
	tx, s := recorded(db)
	found, err := uidplugin.From(tx).FindAll(t.Context(), uidplugin.IDs(ids...))
	must(t, err)
	if len(found) != len(ids) {
		t.Errorf("%d rows", len(found))
	}
	queries := slices.DeleteFunc(s.take(), func(sql string) bool { return !strings.Contains(sql, "`parts`") })
	if len(queries) != 3 {
		t.Errorf("%d queries", len(queries))
	}
}

func TestPluginFind_SeesWhatItsTransactionSees(t *testing.T) {
	t.Parallel()

	db := open(t, uidplugin.WithModels(&part{}))
	must(t, uidplugin.From(db).AutoMigrate(&part{}))
	tx := db.Begin()
	defer tx.Rollback()
	r := part{Name: "nail"}
	must(t, tx.Create(&r).Error)
	if row, err := uidplugin.From(tx).Find(t.Context(), uidplugin.ID(r.ID)); err != nil || *row.(*part) != r {
		t.Errorf("inside: %v, %v", row, err)
	}
	_, err := uidplugin.From(db).Find(t.Context(), uidplugin.ID(r.ID))
	only(t, err, gorm.ErrRecordNotFound)
	must(t, tx.Rollback().Error)
	_, err = uidplugin.From(db).Find(t.Context(), uidplugin.ID(r.ID))
	only(t, err, gorm.ErrRecordNotFound)
}

func TestPluginFind_QuotesNames(t *testing.T) {
	t.Parallel()

	db := open(t)
	must(t, uidplugin.From(db).AutoMigrate(&odd{}))
	r := odd{Select: "a"}
	must(t, db.Create(&r).Error)
	isOurs(t, db, "order", r.From)
	if row, err := uidplugin.From(db).Find(t.Context(), uidplugin.ID(r.From)); err != nil || *row.(*odd) != r {
		t.Errorf("Find: %v, %v", row, err)
	}
}

// odd has names that are words of SQL.
type odd struct {
	From   int64 `gorm:"primaryKey;autoIncrement:false;uid"`
	Select string
}

func (odd) TableName() string { return "order" }

// TestPluginFind_TheErrorOfFindAllUnwrapsToOneErrorPerID, wherever the id went astray.
func TestPluginFind_TheErrorOfFindAllUnwrapsToOneErrorPerID(t *testing.T) {
	t.Parallel()

	db := open(t, uidplugin.WithClock(atNoon))
	for _, worker := range []int64{50, 51} {
		addNode(t, db, elsewhere(worker, "elsewhere"))
	}
	want := map[int64]error{
		-1: uidplugin.ErrNegativeID, 1<<63 - 1: uidplugin.ErrFutureID, at(t, 999, 0): uidplugin.ErrUnknownID,
		at(t, 50, 0): uidplugin.ErrNoModel, at(t, 50, 1): uidplugin.ErrNoModel, at(t, 51, 0): uidplugin.ErrNoModel,
	}
	_, err := uidplugin.From(db).FindAll(t.Context(), uidplugin.IDs(slices.Collect(maps.Keys(want))...))
	list, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("the error is a %T: %v", err, err)
	}
	for _, e := range list.Unwrap() {
		id, ok := e.(*uidplugin.IDError)
		if !ok {
			t.Errorf("not the error of one id, but a %T: %v", e, e)
			continue
		}
		if !errors.Is(id, want[int64(id.ID)]) {
			t.Errorf("%d: %v", id.ID, id)
		}
		delete(want, int64(id.ID))
	}
	if len(want) != 0 {
		t.Errorf("no error of its own: %v", want)
	}
}

// The errors of ids are in the order of the ids. Those of queries are in the order of tables, and are alone: a caller
// that ignores [uidplugin.ErrNoSuchID] must not ignore them.
func TestPluginFind_TheErrorsOfFindAllAreInTheOrderOfTheIDs(t *testing.T) {
	t.Parallel()

	db := open(t, uidplugin.WithClock(atNoon))
	p := uidplugin.From(db)
	var rows []int64
	must(t, p.Register(t.Context(), &part{}, &counter{}, &product{})) // which have no tables
	for _, model := range []any{&part{}, &counter{}, &product{}} {
		id, err := p.NextID(t.Context(), model)
		must(t, err)
		rows = append(rows, int64(id))
	}
	for _, worker := range []int64{50, 51, 52} {
		addNode(t, db, elsewhere(worker, fmt.Sprint("elsewhere", worker)))
	}
	future, err := generator.DefaultLayout().Compose(generator.Parts{Time: noon.Add(time.Hour * 24), WorkerID: 52})
	must(t, err)
	ids := []int64{
		at(t, 999, 0), at(t, 50, 0), 1<<63 - 1, rows[0], -2, at(t, 51, 7), at(t, 50, 3), rows[1], future, at(t, 998, 5), -1,
		rows[2], at(t, 50, 1), at(t, 999, 1), at(t, 51, 2),
	}
	each := func(ids []int64) []error {
		_, err := p.FindAll(t.Context(), uidplugin.IDs(ids...))
		list, ok := err.(interface{ Unwrap() []error })
		if !ok {
			t.Fatalf("the error is a %T: %v", err, err)
		}
		return list.Unwrap()
	}
	withoutRows := slices.DeleteFunc(slices.Clone(ids), func(id int64) bool { return slices.Contains(rows, id) })
	for range 20 {
		var order []int64
		for _, e := range each(withoutRows) {
			order = append(order, int64(e.(*uidplugin.IDError).ID))
		}
		if order = slices.Compact(order); !slices.Equal(order, withoutRows) { // the one of the future has two
			t.Fatalf("errors of\n%d, want\n%d", order, withoutRows)
		}
		var tables []string
		for _, e := range each(ids) {
			if errors.Is(e, uidplugin.ErrNoSuchID) {
				t.Errorf("%v among the errors of tables", e)
			}
			_, table, _ := strings.Cut(e.Error(), "find in ")
			tables = append(tables, table[:strings.Index(table, ":")])
		}
		if want := []string{"counters", "parts", "products"}; !slices.Equal(tables, want) {
			t.Fatalf("errors of %v, want %v", tables, want)
		}
	}
}

func TestPluginLocate_ItsErrorTellsTheID(t *testing.T) {
	t.Parallel()

	var id *uidplugin.IDError
	_, err := uidplugin.From(open(t)).Locate(t.Context(), -5)
	if !errors.As(err, &id) || id.ID != -5 {
		t.Errorf("Locate: %v", err)
	}
}

// An endpoint that is given any id answers 404 to all of these, and 500 to the database's own errors.
func TestErrNoSuchID_IsWrappedByEveryErrorOfAnID(t *testing.T) {
	t.Parallel()

	db := open(t, uidplugin.WithModels(&part{}))
	p := uidplugin.From(db)
	migrate(t, db, &part{}, &article{})
	r, other := part{}, article{}
	must(t, errors.Join(db.Create(&r).Error, db.Create(&other).Error))
	must(t, db.Delete(&r).Error)
	future := at(t, 1, 0) | 1<<62
	for id, precise := range map[uidplugin.ID]error{
		-1: uidplugin.ErrNegativeID, uidplugin.ID(future): nil, 17: uidplugin.ErrNotDecodable,
		uidplugin.ID(r.ID): gorm.ErrRecordNotFound, other.ID: uidplugin.ErrNoModel,
	} {
		_, err := p.Find(t.Context(), id)
		var one *uidplugin.IDError
		if !errors.Is(err, uidplugin.ErrNoSuchID) || precise != nil && !errors.Is(err, precise) || !errors.As(err, &one) || one.ID != id {
			t.Errorf("Find(%d): %v", id, err)
		}
	}
	for _, id := range []uidplugin.ID{-1, 17, uidplugin.ID(future)} {
		if _, err := p.Locate(t.Context(), id); !errors.Is(err, uidplugin.ErrNoSuchID) {
			t.Errorf("Locate(%d): %v", id, err)
		}
	}
	if _, err := p.Decode(-1); !errors.Is(err, uidplugin.ErrNoSuchID) || !errors.Is(err, uidplugin.ErrNegativeID) {
		t.Errorf("Decode(-1): %v", err)
	}
	must(t, db.Migrator().DropTable(&part{}))
	if _, err := p.Find(t.Context(), uidplugin.ID(r.ID)); err == nil || errors.Is(err, uidplugin.ErrNoSuchID) {
		t.Errorf("without the table: %v", err)
	}
}

// The ids of a request may be wrong by the thousand: the error names 20, unwraps to all, and takes no quadratic time.
func TestPluginFindAll_ItsErrorListsTheFirstIDs(t *testing.T) {
	t.Parallel()

	db := open(t, uidplugin.WithModels(&part{}))
	migrate(t, db, &part{})
	last := at(t, 1, 0) | 1<<62
	ids := make([]uidplugin.ID, 100_000)
	for i := range ids {
		ids[i] = uidplugin.ID(last + int64(i))
	}
	_, err := uidplugin.From(db).FindAll(t.Context(), ids)
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != 21 || lines[20] != "and 99980 more" || !strings.Contains(lines[0], ids[0].String()) || !strings.Contains(lines[19], ids[19].String()) {
		t.Errorf("%d lines: %.300s ... %s", len(lines), err, lines[len(lines)-1])
	}
	if all := err.(interface{ Unwrap() []error }).Unwrap(); len(all) != len(ids) {
		t.Errorf("it unwraps to %d errors, the last: %v", len(all), all[len(all)-1])
	}
	if !errors.Is(err, uidplugin.ErrNoSuchID) {
		t.Error("it does not wrap ErrNoSuchID")
	}
}

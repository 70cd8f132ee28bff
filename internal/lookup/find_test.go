package lookup_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

var must, saysAll = testkit.Must, testkit.SaysAll

// product can be deleted softly.
type product struct {
	uidplugin.Model
	Name string
}

func TestPluginFind_OfARowThatIsNotThere(t *testing.T) {
	t.Parallel()

	db := plugintest.Open(t)
	must(t, uidplugin.From(db).AutoMigrate(&product{}))
	r := product{}
	must(t, db.Create(&r).Error)
	p := uidplugin.From(db)
	id, err := p.NextID(t.Context(), &product{})
	must(t, err)
	_, err = p.Find(t.Context(), id)
	plugintest.Only(t, err, gorm.ErrRecordNotFound, "uidplugin: find")

	must(t, db.Delete(&r).Error)
	_, err = p.Find(t.Context(), r.ID)
	plugintest.Only(t, err, gorm.ErrRecordNotFound)
	plugintest.IsOurs(t, db, "products", int64(r.ID))
}

// Find knows registered models only, because an id leads to a table, and the rows of the table can be read only with
// a model.
func TestPluginFind_KnowsTheModelsThatAreRegistered(t *testing.T) {
	t.Parallel()

	path := filepath.Join(t.TempDir(), "test.db")
	first := plugintest.File(t, path, nil)
	plugintest.Use(t, first)
	plugintest.Migrate(t, first, &plugintest.Part{})
	r := plugintest.Part{Name: "nail"}
	must(t, first.Create(&r).Error)

	second := plugintest.File(t, path, nil)
	p := plugintest.Use(t, second)
	_, err := p.Find(t.Context(), uidplugin.ID(r.ID))
	plugintest.Only(t, err, uidplugin.ErrNoModel, "parts")
	must(t, p.Register(t.Context(), &plugintest.Part{}))
	finds(t, p, r.ID, r)
	third := plugintest.File(t, path, nil)
	p = plugintest.Use(t, third, uidplugin.WithModels(&plugintest.Part{}))
	finds(t, p, r.ID, r)
}

// A model is listed by WithModels, Register or AutoMigrate only. One that was merely used, or is associated with a
// listed one, was found as well: a caller that hands ids of clients to Find gave out rows of tables that nobody meant
// to be found.
func TestPluginFind_LoadsListedModelsOnly(t *testing.T) {
	t.Parallel()

	db := plugintest.Open(t)
	p := uidplugin.From(db)
	must(t, db.AutoMigrate(&crate{}, &slip{}, &plugintest.Part{}))
	row := crate{Slips: []slip{{}}}
	must(t, db.Create(&row).Error)
	for _, id := range []int64{row.ID, row.Slips[0].ID} {
		_, err := p.Find(t.Context(), uidplugin.ID(id))
		plugintest.Only(t, err, uidplugin.ErrNoModel, fmt.Sprint(id), "uidplugin.New(uidplugin.WithModels(&")
	}
	must(t, p.Register(t.Context(), &crate{}))
	if found, err := p.Find(t.Context(), uidplugin.ID(row.ID)); err != nil || found.(*crate).ID != row.ID {
		t.Errorf("Find of a listed model: %v, %v", found, err)
	}
	_, err := p.Find(t.Context(), uidplugin.ID(row.Slips[0].ID))
	plugintest.Only(t, err, uidplugin.ErrNoModel, "slips")
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
	db := plugintest.Open(t, uidplugin.WithClock(plugintest.AtNoon))
	testkit.IsError(t, uidplugin.From(db).Register(t.Context(), &parcelled{}), uidplugin.ErrField)
	addNode(t, db, elsewhere(50, "parcelleds"))
	_, err := uidplugin.From(db).Find(t.Context(), uidplugin.ID(plugintest.At(t, 50, 0)))
	plugintest.Only(t, err, uidplugin.ErrNoModel, "parcelleds")
}

// Find loads the registered model of a table, not the first one that a statement used.
func TestPluginFind_TheRegisteredModelIsWhatFindLoads(t *testing.T) {
	t.Parallel()

	db, _ := openParts(t)
	r := sketch{}
	must(t, db.Create(&r).Error)
	if row, err := uidplugin.From(db).Find(t.Context(), uidplugin.ID(r.ID)); err != nil || row.(*plugintest.Part).ID != r.ID {
		t.Errorf("Find: %v, %v", row, err)
	}
}

// sketch is another model of the table parts.
type sketch struct {
	ID int64 `gorm:"primaryKey;autoIncrement:false;uid"`
}

func (sketch) TableName() string { return "parts" }

func TestPluginFind_SeesWhatItsTransactionSees(t *testing.T) {
	t.Parallel()

	db, _ := openParts(t, uidplugin.WithModels(&plugintest.Part{}))
	tx := db.Begin()
	defer tx.Rollback()
	r := plugintest.Part{Name: "nail"}
	must(t, tx.Create(&r).Error)
	if row, err := uidplugin.From(tx).Find(t.Context(), uidplugin.ID(r.ID)); err != nil || *row.(*plugintest.Part) != r {
		t.Errorf("inside: %v, %v", row, err)
	}
	_, err := uidplugin.From(db).Find(t.Context(), uidplugin.ID(r.ID))
	plugintest.Only(t, err, gorm.ErrRecordNotFound)
	must(t, tx.Rollback().Error)
	_, err = uidplugin.From(db).Find(t.Context(), uidplugin.ID(r.ID))
	plugintest.Only(t, err, gorm.ErrRecordNotFound)
}

// An endpoint that is given any id answers 404 to all of these, and 500 to the database's own errors.
func TestErrNoSuchID_IsWrappedByEveryErrorOfAnID(t *testing.T) {
	t.Parallel()

	db := plugintest.Open(t, uidplugin.WithModels(&plugintest.Part{}))
	p := uidplugin.From(db)
	plugintest.Migrate(t, db, &plugintest.Part{}, &plugintest.Article{})
	r, other := plugintest.Part{}, plugintest.Article{}
	must(t, errors.Join(db.Create(&r).Error, db.Create(&other).Error))
	must(t, db.Delete(&r).Error)
	future := plugintest.At(t, 1, 0) | 1<<62
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
	must(t, db.Migrator().DropTable(&plugintest.Part{}))
	if _, err := p.Find(t.Context(), uidplugin.ID(r.ID)); err == nil || errors.Is(err, uidplugin.ErrNoSuchID) {
		t.Errorf("without the table: %v", err)
	}
}

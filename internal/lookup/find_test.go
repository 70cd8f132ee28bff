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
	plugintest.Only(t, plugintest.Second(p.Find(t.Context(), uidplugin.ID(r.ID))), uidplugin.ErrNoModel, "parts")
	must(t, p.Register(t.Context(), &plugintest.Part{}))
	finds(t, p, r.ID, r)
	third := plugintest.File(t, path, nil)
	p = plugintest.Use(t, third, uidplugin.WithModels(&plugintest.Part{}))
	finds(t, p, r.ID, r)
}

// A model is listed by WithModels, Register or AutoMigrate only. Formerly one that was merely used, or is associated
// with a listed one, was listed as well. So a caller that passes ids of clients to Find gave out rows of tables that
// nobody meant to give out.
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
	findsCrate(t, p, row.ID, "")
	_, err := p.Find(t.Context(), uidplugin.ID(row.Slips[0].ID))
	plugintest.Only(t, err, uidplugin.ErrNoModel, "slips")
	must(t, p.AutoMigrate(&slip{}))
	finds(t, p, row.Slips[0].ID, row.Slips[0])
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
	finds(t, uidplugin.From(db), r.ID, plugintest.Part{ID: r.ID})
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
	finds(t, uidplugin.From(tx), r.ID, r)
	_, err := uidplugin.From(db).Find(t.Context(), uidplugin.ID(r.ID))
	plugintest.Only(t, err, gorm.ErrRecordNotFound)
	must(t, tx.Rollback().Error)
	_, err = uidplugin.From(db).Find(t.Context(), uidplugin.ID(r.ID))
	plugintest.Only(t, err, gorm.ErrRecordNotFound)
}

// An endpoint that is given any id answers 404 to all of these, and 500 to the database's own errors.
func TestErrNoSuchID_IsWrappedByEveryErrorOfAnID(t *testing.T) {
	t.Parallel()

	db := plugintest.Open(t, uidplugin.WithModels(&plugintest.Part{}, &product{}))
	p := uidplugin.From(db)
	plugintest.Migrate(t, db, &plugintest.Part{}, &plugintest.Article{}, &product{})
	r, soft, other := plugintest.Part{}, product{}, plugintest.Article{}
	must(t, errors.Join(db.Create(&r).Error, db.Create(&soft).Error, db.Create(&other).Error))
	must(t, errors.Join(db.Delete(&r).Error, db.Delete(&soft).Error))
	plugintest.IsOurs(t, db, "products", int64(soft.ID))
	unused, err := p.NextID(t.Context(), &product{})
	must(t, err)
	future := plugintest.At(t, 1, 0) | 1<<62
	for id, precise := range map[uidplugin.ID]error{
		-1: uidplugin.ErrNegativeID, uidplugin.ID(future): uidplugin.ErrFutureID, 17: uidplugin.ErrNotDecodable,
		uidplugin.ID(r.ID): gorm.ErrRecordNotFound, soft.ID: gorm.ErrRecordNotFound, unused: gorm.ErrRecordNotFound,
		other.ID: uidplugin.ErrNoModel,
	} {
		_, err := p.Find(t.Context(), id)
		plugintest.Only(t, err, precise, "uidplugin: ")
		var one *uidplugin.IDError
		if !errors.Is(err, uidplugin.ErrNoSuchID) || !errors.As(err, &one) || one.ID != id {
			t.Errorf("Find(%d): %v", id, err)
		}
	}
	for _, id := range []uidplugin.ID{-1, 17, uidplugin.ID(future)} {
		testkit.IsError(t, plugintest.Second(p.Locate(t.Context(), id)), uidplugin.ErrNoSuchID)
	}
	_, err = p.Decode(-1)
	testkit.IsError(t, err, uidplugin.ErrNoSuchID)
	testkit.IsError(t, err, uidplugin.ErrNegativeID)
	must(t, db.Migrator().DropTable(&plugintest.Part{}))
	if _, err := p.Find(t.Context(), uidplugin.ID(r.ID)); err == nil || errors.Is(err, uidplugin.ErrNoSuchID) {
		t.Errorf("without the table: %v", err)
	}
}

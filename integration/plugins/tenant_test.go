package plugins_test

import (
	"errors"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// tenant is a plugin that sets a column in every create and restricts every
// query, whatever the model.
type tenant struct {
	id       string
	column   string // its name for the column: of the field, or of the database
	position string // callback of a create before which it runs
}

func (tenant) Name() string { return "tenant" }

func (p tenant) Initialize(db *gorm.DB) error {
	return errors.Join(
		db.Callback().Create().Before(p.position).Register("tenant:create", func(db *gorm.DB) {
			db.Statement.SetColumn(p.column, p.id, true)
		}),
		db.Callback().Query().Before("gorm:query").Register("tenant:query", func(db *gorm.DB) {
			db.Statement.AddClause(clause.Where{Exprs: []clause.Expression{
				clause.Eq{Column: clause.Column{Table: clause.CurrentTable, Name: "tenant_id"}, Value: p.id},
			}})
		}),
	)
}

func TestTenant(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, e testkit.Engine) {
		for _, position := range []string{"*", "gorm:before_create", "gorm:create"} {
			for _, column := range []string{"TenantID", "tenant_id"} {
				t.Run(position+" "+column, func(t *testing.T) {
					ordered(t, func(t *testing.T, use func(*gorm.DB, gorm.Plugin, gorm.Plugin)) {
						d := e.New(t)
						db := d.Open(t, nil)
						p := plugin(t)
						use(db, p, tenant{"acme", column, position})
						must(t, p.AutoMigrate(shop...))
						createForTenant(t, d, db)
					})
				})
			}
		}
	})
}

// createForTenant creates customers in all forms and checks them.
func createForTenant(t *testing.T, d *testkit.Database, db *gorm.DB) {
	one := created(t, db, Customer{Name: "one", Orders: []Order{{}, {}}})
	several := created(t, db, []Customer{{Name: "a"}, {Name: "b"}})
	pointers := []*Customer{{Name: "c"}, {Name: "d"}}
	must(t, db.CreateInBatches(&pointers, 1).Error)
	m := map[string]any{"Name": "map"}
	must(t, db.Model(&Customer{}).Create(m).Error)
	maps := []map[string]any{{"name": "e"}, {"name": "f"}}
	must(t, db.Model(&Customer{}).Create(maps).Error)
	created(t, db.Clauses(clause.OnConflict{UpdateAll: true}), Customer{ID: one.ID, Name: "upserted"})

	names := map[int64]string{
		one.ID: "upserted", several[0].ID: "a", several[1].ID: "b", pointers[0].ID: "c", pointers[1].ID: "d",
		number(t, m): "map", number(t, maps[0]): "e", number(t, maps[1]): "f",
	}
	var rows []Customer
	must(t, d.Open(t, nil).Preload("Orders").Find(&rows).Error)
	if len(rows) != 8 || len(names) != 8 {
		t.Errorf("%d rows, ids %v", len(rows), names)
	}
	for _, row := range rows {
		if row.ID == 0 || row.TenantID != "acme" || names[row.ID] != row.Name {
			t.Errorf("row %+v, want the name %q", row, names[row.ID])
		}
		for _, o := range row.Orders {
			if o.TenantID != "acme" || o.ID != one.Orders[0].ID && o.ID != one.Orders[1].ID {
				t.Errorf("order %+v", o)
			}
		}
		located(t, db, row.ID, "customers")
		finds(t, db, row.ID, row.Name)
	}
	oneWorkerEach(t, d, "customers", "orders")

	// Find returns only this tenant's rows, like any query. Locate has no such restriction.
	other := Customer{TenantID: "other"}
	id, err := uidplugin.From(db).NextID(t.Context(), &other)
	must(t, err)
	other.ID = int64(id)
	must(t, d.Open(t, nil).Create(&other).Error)
	located(t, db, other.ID, "customers")
	if name, err := foundName(t, db, other.ID); !errors.Is(err, gorm.ErrRecordNotFound) {
		t.Errorf("Find of another tenant's row = %q, %v", name, err)
	}
}

func number(t *testing.T, m map[string]any) int64 {
	t.Helper()
	id, ok := m["id"].(int64)
	if !ok {
		t.Errorf("map %v", m)
	}
	return id
}

package plugins_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	"gorm.io/sharding"
)

const shards = 4

// primaryKeys adapts the plugin's NextID for sharding.Config. Sharding calls it for every row, inside the transaction
// of the create, and uses the id if the statement has none. So list the model with WithModels. An adapter cannot
// return an error; after 0 the database refuses the row without a key.
func primaryKeys(p *uidplugin.Plugin, model any) func(int64) int64 {
	return func(int64) int64 {
		id, err := p.NextID(context.Background(), model)
		if err != nil {
			return 0
		}
		return int64(id)
	}
}

// sharded returns a handle whose orders are in tables by key, and its plugin.
func sharded(t *testing.T, d *testkit.Database, key string, use func(*gorm.DB, gorm.Plugin, gorm.Plugin), options ...uidplugin.Option) (*gorm.DB, *uidplugin.Plugin) {
	t.Helper()
	db := d.Open(t, nil)
	p := plugin(t, options...)
	use(db, p, sharding.Register(sharding.Config{
		ShardingKey:                   key,
		NumberOfShards:                shards,
		PrimaryKeyGenerator:           sharding.PKCustom,
		PrimaryKeyGeneratorFn:         primaryKeys(p, &Parcel{}),
		ShardingAlgorithmByPrimaryKey: func(id int64) string { return fmt.Sprintf("_%d", id%shards) },
	}, &Parcel{}))
	must(t, db.AutoMigrate(&Customer{}, &Order{}, &Parcel{}))
	return db, p
}

type Parcel struct {
	ID         int64 `gorm:"primaryKey;autoIncrement:false;uid"`
	CustomerID int64
	Note       string
}

// parcels returns the parcels of all shards, by id, and the shard of each.
func parcels(t *testing.T, d *testkit.Database) (all map[int64]Parcel, shard map[int64]int64) {
	t.Helper()
	all, shard = map[int64]Parcel{}, map[int64]int64{}
	db := d.Open(t, nil)
	for i := range int64(shards) {
		var rows []Parcel
		must(t, db.Table(fmt.Sprintf("parcels_%d", i)).Find(&rows).Error)
		for _, row := range rows {
			if _, ok := all[row.ID]; ok || row.ID == 0 {
				t.Errorf("the id %d is zero, or twice", row.ID)
			}
			all[row.ID], shard[row.ID] = row, i
		}
	}
	return all, shard
}

func TestSharding_ByAColumn(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, e testkit.Engine) {
		ordered(t, func(t *testing.T, use func(*gorm.DB, gorm.Plugin, gorm.Plugin)) {
			d := e.New(t)
			db, _ := sharded(t, d, "customer_id", use, uidplugin.WithModels(&Parcel{}))
			ids := map[int64]bool{}
			for i := range int64(10) {
				one := created(t, db, Parcel{CustomerID: i})
				several := created(t, db, []Parcel{{CustomerID: i}, {CustomerID: i}})
				for _, id := range []int64{one.ID, several[0].ID, several[1].ID} {
					ids[id] = true
					located(t, db, id, "parcels")
				}
				// A row that is inserted without an id gets one from the adapter.
				must(t, db.Exec("INSERT INTO parcels (customer_id, note) VALUES (?, ?)", i, "raw").Error)
			}
			all, shard := parcels(t, d)
			if len(all) != 40 || len(ids) != 30 {
				t.Errorf("%d parcels, %d ids in structs", len(all), len(ids))
			}
			for id, row := range all {
				if shard[id] != row.CustomerID%shards || ids[id] == (row.Note == "raw") {
					t.Errorf("shard %d has %+v", shard[id], row)
				}
				located(t, db, id, "parcels")
			}
			// A table that is not sharded works as without sharding.
			c := created(t, db, Customer{Name: "whole", Orders: make([]Order, 2)})
			must(t, uidplugin.From(db).Register(t.Context(), &Customer{}))
			finds(t, db, c.ID, "whole")
			oneWorkerEach(t, d, "parcels", "customers", "orders")
		})
	})
}

// If rows are sharded by the key, an id also leads to its row.
func TestSharding_ByTheKey(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, e testkit.Engine) {
		ordered(t, func(t *testing.T, use func(*gorm.DB, gorm.Plugin, gorm.Plugin)) {
			d := e.New(t)
			db, p := sharded(t, d, "id", use, uidplugin.WithModels(&Parcel{}))
			for i := range 10 {
				row := created(t, db, Parcel{Note: fmt.Sprint(i)})
				found, err := p.Find(context.Background(), uidplugin.ID(row.ID))
				if got, ok := found.(*Parcel); !ok || got.Note != row.Note {
					t.Errorf("Find = %#v, %v", found, err)
				}
				located(t, db, row.ID, "parcels")
			}
			if all, _ := parcels(t, d); len(all) != 10 {
				t.Errorf("%d parcels", len(all))
			}
		})
	})
}

// Sharding's pool looks like a transaction in every statement, also outside of one.
func TestSharding_WithOneConnection(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, e testkit.Engine) {
		ordered(t, func(t *testing.T, use func(*gorm.DB, gorm.Plugin, gorm.Plugin)) {
			db, _ := sharded(t, e.New(t), "customer_id", use)
			pool, err := db.DB()
			must(t, err)
			pool.SetMaxOpenConns(1)
			c := created(t, db, Customer{Name: "first", Orders: make([]Order, 1)})
			located(t, db, c.ID, "customers")
			located(t, db, int64(c.Orders[0].ID), "orders")
		})
	})
}

package uidplugin_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// shardBits is how many of the lowest bits of an id are the shard.
const shardBits = 4

type shardKey struct{} // of a context: the shard of the rows to create

// sharded makes ids of a layout whose lowest bits are a shard. Its generator has a sequence that is shorter by these
// bits, so no two ids agree in front of the shard. Leases consist of ticks and worker ids, so Renew, Suspend and Close
// are the generator's own.
type sharded struct{ generator.Renewable }

func newSharded(c generator.Config) (generator.Renewable, error) {
	config := c.Cached()
	config.Layout.SequenceBits -= shardBits
	g, err := generator.NewCached(config)
	if err != nil {
		return nil, err // not a sharded with nothing in it
	}
	return sharded{g}, nil
}

// Next implements [generator.Generator]. ctx is the context of the create.
func (g sharded) Next(ctx context.Context) (int64, error) {
	ids := []int64{0}
	err := g.Fill(ctx, ids)
	return ids[0], err
}

// Fill implements [generator.Generator].
func (g sharded) Fill(ctx context.Context, ids []int64) error {
	shard, ok := ctx.Value(shardKey{}).(int64)
	if !ok {
		return errors.New("no shard in the context")
	}
	if err := g.Renewable.Fill(ctx, ids); err != nil {
		return err
	}
	for i := range ids {
		ids[i] = ids[i]<<shardBits | shard
	}
	return nil
}

// Usage implements [generator.Renewable]. The lease manager counts ids of the whole layout, and each id here takes up
// as many of them as there are shards. Without the shift the generator would get worker ids that it does not need.
func (g sharded) Usage() generator.Usage {
	u := g.Renewable.Usage()
	u.Left <<= shardBits
	return u
}

// A generator of one's own: the lowest bits of an id are the shard of its row, and the id still resolves to the row.
func ExampleWithGenerator() {
	db, done := openExample()
	defer done()
	type Parcel struct {
		ID int64 `gorm:"primaryKey;autoIncrement:false;uid:sharded"`
	}
	layout := generator.DefaultLayout()
	layout.WorkerBits, layout.SequenceBits = layout.WorkerBits-shardBits, layout.SequenceBits+shardBits
	plugin := uidplugin.New(
		uidplugin.WithLayout(layout),
		uidplugin.WithGenerator("sharded", newSharded),
		uidplugin.WithModels(&Parcel{}),
		uidplugin.WithLogger(nil),
	)
	if err := errors.Join(db.Use(plugin), db.AutoMigrate(&Parcel{})); err != nil {
		log.Fatal(err)
	}
	ctx := context.WithValue(context.Background(), shardKey{}, int64(7))
	parcels := make([]Parcel, 3)
	if err := db.WithContext(ctx).Create(&parcels).Error; err != nil {
		log.Fatal(err)
	}
	where, err := plugin.Locate(ctx, uidplugin.ID(parcels[2].ID))
	fmt.Println(parcels[2].ID%(1<<shardBits), where.Table, err)
	// Output: 7 parcels <nil>
}

// A source of one's own: short numbers of a table of the application, a hundred at a time. A rollback of the create does
// not undo the transaction of the source, so numbers are skipped then, and at a restart.
func ExampleWithSource() {
	db, done := openExample()
	defer done()
	type Counter struct {
		Name string `gorm:"primaryKey"`
		Next int64
	}
	type Ticket struct {
		ID     uidplugin.ID
		Number int64 `gorm:"uniqueIndex;uid:number"`
	}
	open := func(_ context.Context, db *gorm.DB, table string) (generator.Generator, error) {
		if err := db.Clauses(clause.OnConflict{DoNothing: true}).Create(&Counter{table, 10_000}).Error; err != nil {
			return nil, err
		}
		return generator.NewBuffered(generator.BufferedConfig{Size: 100, Source: func(ctx context.Context, n int64) (generator.Run, error) {
			c := Counter{Name: table}
			err := db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
				// The update comes first: until the commit, no other transaction gets past it.
				return errors.Join(tx.Model(&c).Update("next", gorm.Expr("next + ?", n)).Error, tx.Take(&c).Error)
			})
			return generator.Run{First: c.Next - n, N: n}, err
		}})
	}
	if err := db.AutoMigrate(&Counter{}); err != nil {
		log.Fatal(err)
	}
	plugin := uidplugin.New(uidplugin.WithSource("number", open), uidplugin.WithModels(&Ticket{}), uidplugin.WithLogger(nil))
	if err := errors.Join(db.Use(plugin), db.AutoMigrate(&Ticket{})); err != nil {
		log.Fatal(err)
	}
	tickets := make([]Ticket, 3)
	err := db.Create(&tickets).Error
	fmt.Println(tickets[0].Number, tickets[2].Number, err)
	// Output: 10000 10002 <nil>
}

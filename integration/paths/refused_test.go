package paths_test

import (
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

func refusedPaths[K key]() group[K] {
	// bad creates a row of a model that cannot be.
	bad := func(model any) func(c *cell[K]) {
		return func(c *cell[K]) {
			var n int64
			c.must(c.without.Raw("SELECT count(*) FROM orders").Scan(&n).Error)
			c.must(c.db.Table("orders").Create(model).Error)
		}
	}
	type (
		mNarrow struct {
			ID   int32 `gorm:"primaryKey;uid"`
			Name string
		}
		mFloat struct {
			ID   float64 `gorm:"primaryKey;uid"`
			Name string
		}
		mBytes struct {
			ID   []byte `gorm:"primaryKey;uid"`
			Name string
		}
		mShort struct {
			ID   string `gorm:"primaryKey;size:10;uid"`
			Name string
		}
		mSerialized struct {
			ID   int64 `gorm:"primaryKey;serializer:json;uid"`
			Name string
		}
		mUnknown struct {
			ID   int64 `gorm:"primaryKey;uid:nothing"`
			Name string
		}
	)
	return group[K]{"Refused", "Nothing is written, and the next create works.", []path[K]{
		{name: "`Create(struct)`, by value", alone: true, refuse: "pass a pointer", run: func(c *cell[K]) {
			c.must(c.db.Create(mOrder[K]{Name: "a"}).Error)
		}},
		{name: "array by value", alone: true, refuse: "pass a pointer", run: func(c *cell[K]) {
			c.must(c.db.Create([2]mOrder[K]{{Name: "a"}, {Name: "b"}}).Error)
		}},
		{name: "`Clauses(clause.OnConflict{...}).Create(struct)`, by value", alone: true, refuse: "pass a pointer", run: func(c *cell[K]) {
			c.must(c.db.Clauses(clause.OnConflict{DoNothing: true}).Create(mOrder[K]{Name: "a"}).Error)
		}},
		{name: "`Model(&A{}).Create(&B{})`, B of another type", alone: true, refuse: "is not the model", run: func(c *cell[K]) {
			o := struct {
				Name string
				ID   K
			}{Name: "a"}
			c.must(c.db.Model(&mOrder[K]{}).Create(&o).Error)
		}},
		{name: "by value in a transaction that goes on", run: func(c *cell[K]) {
			o := c.order("after")
			c.must(c.db.Transaction(func(tx *gorm.DB) error {
				if !c.reference {
					c.check(tx.Create(mOrder[K]{Name: "a"}).Error != nil, "no error")
				}
				return tx.Create(&o).Error
			}))
			c.right(&o)
		}},
		{name: "a struct type without a name", alone: true, refuse: "give the struct type a name", run: func(c *cell[K]) {
			rows := []struct {
				ID   K `gorm:"primaryKey;uid"`
				Name string
			}{{Name: "a"}}
			c.must(c.db.Table("orders").Create(&rows).Error)
		}},
		{name: "a field of 32 bits", only: once, alone: true, refuse: "an id needs an int64", run: bad(&mNarrow{})},
		{name: "a float", only: once, alone: true, refuse: "an id needs an int64", run: bad(&mFloat{})},
		{name: "bytes", only: once, alone: true, refuse: "an id needs an int64", run: bad(&mBytes{})},
		{name: "a string that is too short", only: once, alone: true, refuse: "an id needs an int64", run: bad(&mShort{})},
		{name: "a serializer on the field", only: once, alone: true, refuse: "an id needs an int64", run: bad(&mSerialized{})},
		{name: "an unknown generator in the tag", only: once, alone: true, refuse: "these exist: cached, paired", run: bad(&mUnknown{})},
	}}
}

package paths_test

import (
	"context"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

func genericsPaths[K key]() group[K] {
	ctx := context.Background()
	name := []clause.Column{{Name: "name"}}
	return group[K]{"Generics API, gorm.G[T]", "", []path[K]{
		{name: "`G[T](db).Create`", run: func(c *cell[K]) {
			o := c.order("a")
			c.must(gorm.G[mOrder[K]](c.db).Create(ctx, &o))
			c.right(&o)
		}},
		{name: "`Create` with associations", run: func(c *cell[K]) {
			u := c.user("u")
			u.Orders, u.Company = c.orders(2), c.company()
			c.must(gorm.G[mUser[K]](c.db).Create(ctx, &u))
			c.right(&u)
		}},
		{name: "`CreateInBatches`", run: func(c *cell[K]) {
			o := c.orders(5)
			c.must(gorm.G[mOrder[K]](c.db).CreateInBatches(ctx, &o, 2))
			c.right(o)
		}},
		{name: "`G[T](db, clause.OnConflict{...}).Create`", run: func(c *cell[K]) {
			old, same, other := c.uniques(1)[0], c.uniques(1)[0], c.uniques(1)[0]
			same.Name = old.Name
			g := gorm.G[mUnique[K]](c.db, clause.OnConflict{Columns: name, DoUpdates: clause.AssignmentColumns([]string{"value"})})
			c.must(g.Create(ctx, old))
			c.must(g.Create(ctx, same))
			c.must(g.Create(ctx, other))
			c.upserted(true, old, same, other)
		}},
		{name: "`G[T](db, clause.OnConflict{DoNothing: true}).CreateInBatches`", run: func(c *cell[K]) {
			rows := make([]mUnique[K], 5)
			for i, r := range c.uniques(5) {
				rows[i] = *r
			}
			old := *c.uniques(1)[0]
			c.must(gorm.G[mUnique[K]](c.db).Create(ctx, &old))
			rows[2].Name = old.Name
			c.must(gorm.G[mUnique[K]](c.db, clause.OnConflict{DoNothing: true}).CreateInBatches(ctx, &rows, 2))
			for i := range rows {
				c.upserted(i != 2, &rows[i])
			}
		}},
		{name: "`G[T](db, gorm.WithResult()).Create`", run: func(c *cell[K]) {
			result := gorm.WithResult()
			o := c.orders(2)
			c.must(gorm.G[mOrder[K]](c.db, result).CreateInBatches(ctx, &o, 5))
			c.note("%d", result.RowsAffected)
			c.right(o)
		}},
		{name: "`G[T](db, gorm.WithResult(), clause.OnConflict{...}).Create`", run: func(c *cell[K]) {
			result := gorm.WithResult()
			old, same := c.uniques(1)[0], c.uniques(1)[0]
			same.Name = old.Name
			c.must(gorm.G[mUnique[K]](c.db).Create(ctx, old))
			c.must(gorm.G[mUnique[K]](c.db, result, clause.OnConflict{Columns: name, DoUpdates: clause.AssignmentColumns([]string{"value"})}).Create(ctx, same))
			c.note("%d", result.RowsAffected)
			c.upserted(true, same)
		}},
		{name: "`Select(...).Create`, `Omit(...).Create`", run: func(c *cell[K]) {
			a, b := c.order("a"), c.order("b")
			a.Note, b.Note = "n", "n"
			if c.reference {
				c.must(gorm.G[mOrder[K]](c.db).Select("Name", "ID").Create(ctx, &a))
			} else {
				c.must(gorm.G[mOrder[K]](c.db).Select("Name").Create(ctx, &a))
			}
			c.must(gorm.G[mOrder[K]](c.db).Omit("Note").Create(ctx, &b))
			a.Note, b.Note = "", ""
			c.right(&a, &b)
		}},
		{name: "`Table(x).Create`", run: func(c *cell[K]) {
			o := c.order("a")
			c.must(gorm.G[mOrder[K]](c.db).Table("orders_2025").Create(ctx, &o))
			c.alone("orders_2025", &o)
		}},
		{name: "`Set(...).Create`", run: func(c *cell[K]) {
			set := []clause.Assigner{clause.Assignment{Column: clause.Column{Name: "name"}, Value: c.unique("set")}}
			if c.reference {
				set = append(set, clause.Assignment{Column: clause.Column{Name: "id"}, Value: c.ownValue()})
			}
			c.must(gorm.G[mOrder[K]](c.db).Set(set...).Create(ctx))
			if c.reference {
				return
			}
			got, err := c.read("orders", []string{"id"}, []clause.Expression{clause.Eq{Column: clause.Column{Name: "name"}, Value: set[0].(clause.Assignment).Value}})
			c.must(err)
			c.ours("the row", parsed(got[0]), "orders")
		}},
		{name: "in a transaction", run: func(c *cell[K]) {
			o := c.orders(5)
			c.must(c.db.Transaction(func(tx *gorm.DB) error { return gorm.G[mOrder[K]](tx).CreateInBatches(ctx, &o, 2) }))
			c.right(o)
		}},
		{name: "a cancelled context", asGORM: "=`context.Canceled`, and nothing is created", run: func(c *cell[K]) {
			ended, cancel := context.WithCancel(ctx)
			cancel()
			o := c.order("a")
			c.must(gorm.G[mOrder[K]](c.db).Create(ended, &o))
		}},
	}}
}

package paths_test

import (
	"errors"

	"github.com/uidplugin/uidplugin"
	"gorm.io/gorm"
)

var errRollback = errors.New("rollback")

func transactionPaths[K key]() group[K] {
	return group[K]{"Transactions", "", []path[K]{
		{name: "`Transaction`, committed", run: func(c *cell[K]) {
			u := c.user("u")
			u.Orders = c.orders(2)
			c.must(c.db.Transaction(func(tx *gorm.DB) error { return tx.Create(&u).Error }))
			c.right(&u)
		}},
		{name: "`Transaction`, rolled back; then created again", run: func(c *cell[K]) {
			u := c.user("u")
			u.Orders = c.orders(2)
			err := c.db.Transaction(func(tx *gorm.DB) error {
				c.do(tx.Create(&u))
				return errRollback
			})
			c.check(errors.Is(err, errRollback), "%v", err)
			c.do(c.db.Create(&u))
			c.right(&u)
		}},
		{name: "nested transactions, the inner one rolled back", run: func(c *cell[K]) {
			a, b, d := c.order("a"), c.order("b"), c.order("d")
			c.must(c.db.Transaction(func(tx *gorm.DB) error {
				c.do(tx.Create(&a))
				_ = tx.Transaction(func(inner *gorm.DB) error {
					c.do(inner.Create(&b))
					return errRollback
				})
				return tx.Transaction(func(inner *gorm.DB) error { return inner.Create(&d).Error })
			}))
			c.right(&a, &d)
		}},
		{name: "`Begin`, `SavePoint`, `RollbackTo`, `Commit`", run: func(c *cell[K]) {
			a, b, d := c.order("a"), c.order("b"), c.orders(2)
			tx := c.db.Begin()
			c.do(tx.Create(&a))
			c.must(tx.SavePoint("sp").Error)
			c.do(tx.Create(&b))
			c.must(tx.RollbackTo("sp").Error)
			c.do(tx.Create(&d))
			c.must(tx.Commit().Error)
			c.right(&a, d)
		}},
		{name: "`Begin`, `Rollback`", run: func(c *cell[K]) {
			o := c.order("a")
			tx := c.db.Begin()
			c.do(tx.Create(&o))
			c.must(tx.Rollback().Error)
		}},
		{name: "`Connection`", run: func(c *cell[K]) {
			o := c.orders(2)
			c.must(c.db.Connection(func(tx *gorm.DB) error { return tx.Create(&o).Error }))
			c.right(o)
		}},
		{name: "a duplicate key, then the next create", run: func(c *cell[K]) {
			old, rows := c.uniques(1)[0], c.uniques(3)
			c.do(c.db.Create(old))
			rows[1].Name = old.Name
			c.check(c.db.Create(&rows).Error != nil, "no error")
			rows[1].Name = c.unique("other")
			c.do(c.db.Create(&rows))
			c.right(rows)
		}},
		{name: "an association that fails takes the row with it (MySQL: adopts what exists)", run: func(c *cell[K]) {
			old := mLine[K]{ID: c.key(), Name: c.unique("line")}
			c.do(c.db.Create(&old))
			m := mComposite[K]{Tenant: 4, No: c.key(), Name: "c", Lines: []mLine[K]{{ID: c.key(), Name: c.unique("line")}, {ID: c.key(), Name: old.Name}}}
			err := c.db.Create(&m).Error
			c.check((err == nil) == c.IsMySQL(), "%v", err)
			if err == nil {
				id := number(m.Lines[1].ID)
				c.check(id == number(old.ID) || id == 0, "the line is %d, the struct says %d", number(old.ID), id)
				m.Lines[1].ID = old.ID
				c.right(&m)
			}
		}},
		{
			name:   "the first create of a table",
			only:   once,
			alone:  true,
			refuse: uidplugin.ErrInTransaction.Error(),
			run: func(c *cell[K]) {
				type First struct {
					ID   K `gorm:"primaryKey;uid"`
					Name string
				}
				c.must(c.without.AutoMigrate(&First{}))
				f := First{Name: "a"}
				c.must(c.db.Transaction(func(tx *gorm.DB) error { return tx.Create(&f).Error }))
				c.right(&f)
			},
		},
	}}
}

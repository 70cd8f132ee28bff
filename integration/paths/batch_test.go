package paths_test

import (
	"fmt"

	"gorm.io/gorm"
)

// uniques are new rows with names that no others have.
func (c *cell[K]) uniques(n int) []*mUnique[K] {
	rows := make([]*mUnique[K], n)
	for i := range rows {
		rows[i] = &mUnique[K]{ID: c.key(), Name: c.unique("unique"), Value: i}
	}
	return rows
}

// failing are three batches of two, of which the second fails.
func (c *cell[K]) failing() []*mUnique[K] {
	rows := c.uniques(6)
	rows[3].Name = rows[2].Name
	return rows
}

func batchPaths[K key]() group[K] {
	return group[K]{"Batches", "", []path[K]{
		{name: "`CreateInBatches(&slice, n)`", run: func(c *cell[K]) {
			o := c.orders(5)
			c.do(c.db.CreateInBatches(&o, 2))
			c.right(o)
		}},
		{name: "`CreateInBatches(slice, n)`", run: func(c *cell[K]) {
			o := c.orders(5)
			c.do(c.db.CreateInBatches(o, 2))
			c.right(o)
		}},
		{name: "`CreateInBatches` of pointers", run: func(c *cell[K]) {
			o := c.pointers(5)
			c.do(c.db.CreateInBatches(o, 2))
			c.right(o)
		}},
		{name: "one batch is enough", run: func(c *cell[K]) {
			o := c.orders(2)
			c.do(c.db.CreateInBatches(&o, 10))
			c.right(o)
		}},
		{name: "`CreateInBatches(&struct, n)`", run: func(c *cell[K]) {
			o := c.order("a")
			c.do(c.db.CreateInBatches(&o, 10))
			c.right(&o)
		}},
		{name: "`Session{CreateBatchSize: n}`", run: func(c *cell[K]) {
			o := c.orders(5)
			c.do(c.db.Session(&gorm.Session{CreateBatchSize: 2}).Create(&o))
			c.right(o)
		}},
		{name: "`CreateBatchSize`, associations in batches, too", run: func(c *cell[K]) {
			u := mUser[K]{ID: c.key(), Name: "u", Orders: c.orders(5)}
			c.do(c.db.Session(&gorm.Session{CreateBatchSize: 2}).Create(&u))
			c.right(&u)
		}},
		{name: "batches with associations", run: func(c *cell[K]) {
			users := make([]mUser[K], 3)
			for i := range users {
				users[i] = mUser[K]{ID: c.key(), Name: fmt.Sprint("user ", i), Orders: c.orders(2)}
			}
			c.do(c.db.CreateInBatches(&users, 2))
			c.right(users)
		}},
		{name: "in a transaction", run: func(c *cell[K]) {
			o := c.orders(5)
			c.must(c.db.Transaction(func(tx *gorm.DB) error {
				r := tx.CreateInBatches(&o, 2)
				c.do(r)
				return r.Error
			}))
			c.right(o)
		}},
		{name: "a failing middle batch", run: func(c *cell[K]) {
			rows := c.failing()
			tx := c.db.CreateInBatches(rows, 2)
			c.check(tx.Error != nil, "no error")
			c.note("%d", tx.RowsAffected)
			rows[3].Name = c.unique("other")
			c.do(c.db.CreateInBatches(rows, 2))
			c.right(rows)
		}},
		{name: "a failing middle batch, `SkipDefaultTransaction`", run: func(c *cell[K]) {
			rows := c.failing()
			tx := c.db.Session(&gorm.Session{SkipDefaultTransaction: true}).CreateInBatches(rows, 2)
			c.check(tx.Error != nil, "no error")
			c.note("%d", tx.RowsAffected)
			c.right(rows[:2])
		}},
		{name: "a failing middle batch in a transaction that goes on", run: func(c *cell[K]) {
			rows, o := c.failing(), c.order("after")
			c.must(c.db.Transaction(func(tx *gorm.DB) error {
				err := tx.CreateInBatches(rows, 2).Error
				c.check(err != nil, "no error")
				return tx.Create(&o).Error
			}))
			c.right(&o)
		}},
		{name: "a failing middle batch in a transaction that is rolled back", run: func(c *cell[K]) {
			rows, o := c.failing(), c.order("before")
			err := c.db.Transaction(func(tx *gorm.DB) error {
				c.must(tx.Create(&o).Error)
				return tx.CreateInBatches(rows, 2).Error
			})
			c.check(err != nil, "no error")
		}},
	}}
}

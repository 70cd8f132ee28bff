package paths_test

import (
	"fmt"
	"slices"
	"sync"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// order is a new order.
func (c *cell[K]) order(name string) mOrder[K] { return mOrder[K]{ID: c.key(), Name: name} }

// orders are n new orders.
func (c *cell[K]) orders(n int) []mOrder[K] {
	all := make([]mOrder[K], n)
	for i := range all {
		all[i] = c.order(fmt.Sprint("row ", i))
	}
	return all
}

// pointers are n new orders, by pointers.
func (c *cell[K]) pointers(n int) []*mOrder[K] {
	all := c.orders(n)
	p := make([]*mOrder[K], n)
	for i := range all {
		p[i] = &all[i]
	}
	return p
}

func createPaths[K key]() group[K] {
	return group[K]{"Structs", "", []path[K]{
		{name: "`Create(&struct)`", run: func(c *cell[K]) {
			o := c.order("a")
			c.do(c.db.Create(&o))
			c.right(&o)
		}},
		{name: "`Create(&struct)` with a key that is set", run: func(c *cell[K]) {
			o := mOrder[K]{ID: c.own(), Name: "own"}
			id := number(o.ID)
			c.do(c.db.Create(&o))
			c.check(number(o.ID) == id, "the key became %d", number(o.ID))
			c.right(&o)
		}},
		{name: "pointer to a pointer", run: func(c *cell[K]) {
			o := &mOrder[K]{ID: c.key(), Name: "a"}
			c.do(c.db.Create(&o))
			c.right(o)
		}},
		{name: "`Create(&slice)`", run: func(c *cell[K]) {
			o := c.orders(3)
			c.do(c.db.Create(&o))
			c.right(o)
		}},
		{name: "slice, some keys set", run: func(c *cell[K]) {
			o := c.orders(4)
			o[1].ID, o[3].ID = c.own(), c.own()
			was := []int64{number(o[1].ID), number(o[3].ID)}
			c.do(c.db.Create(&o))
			c.check(slices.Equal(was, []int64{number(o[1].ID), number(o[3].ID)}), "the keys became %d, %d", number(o[1].ID), number(o[3].ID))
			c.right(o)
		}},
		{name: "slice by value", run: func(c *cell[K]) {
			o := c.orders(2)
			c.do(c.db.Create(o))
			c.right(o)
		}},
		{name: "slice of pointers", run: func(c *cell[K]) {
			o := c.pointers(2)
			c.do(c.db.Create(o))
			c.right(o)
		}},
		{name: "pointer to a slice of pointers", run: func(c *cell[K]) {
			o := c.pointers(2)
			c.do(c.db.Create(&o))
			c.right(o)
		}},
		{name: "`Create(&array)`", run: func(c *cell[K]) {
			o := [2]mOrder[K]{c.order("a"), c.order("b")}
			c.do(c.db.Create(&o))
			c.right(&o)
		}},
		{name: "array of pointers, by value", run: func(c *cell[K]) {
			p := c.pointers(2)
			c.do(c.db.Create([2]*mOrder[K]{p[0], p[1]}))
			c.right(p)
		}},
		{name: "`Model(&T{}).Create(&struct)`", run: func(c *cell[K]) {
			o := c.order("a")
			c.do(c.db.Model(&mOrder[K]{}).Create(&o))
			c.right(&o)
		}},
		{name: "999 rows in one call", run: func(c *cell[K]) {
			rows := c.bulk(999)
			c.do(c.db.Create(&rows))
			c.rightBulk(rows)
		}},
		{
			name:   "65,000 rows in one call",
			asGORM: "more values than SQLite takes in one statement; use CreateInBatches",
			only: func(column matrixColumn, k keyKind) bool {
				return k.name == "int64, AUTO_INCREMENT" || k.name == "string"
			},
			run: func(c *cell[K]) {
				rows := c.bulk(65_000)
				c.do(c.db.Create(&rows))
				c.rightBulk(rows)
			},
		},
		{name: "16 goroutines at once", run: func(c *cell[K]) {
			var all [16][]*mOrder[K]
			for i := range all {
				all[i] = c.pointers(2)
			}
			errs := make([]error, len(all))
			var wait sync.WaitGroup
			for i := range all {
				wait.Go(func() { errs[i] = c.db.Create(all[i]).Error })
			}
			wait.Wait()
			for i := range all {
				c.must(errs[i])
			}
			c.right(all[0], all[7], all[15])
		}},
		{name: "the same pointer twice in a slice", asGORM: "=one key for two rows: the database's error", run: func(c *cell[K]) {
			o := c.order("a")
			c.do(c.db.Create([]*mOrder[K]{&o, &o}))
		}},
		{name: "`Clauses(clause.Returning{})`", run: func(c *cell[K]) {
			o, all := c.order("a"), c.orders(2)
			c.do(c.db.Clauses(clause.Returning{}).Create(&o))
			c.do(c.db.Clauses(clause.Returning{Columns: []clause.Column{{Name: "name"}}}).Create(&all))
			c.right(&o, all)
		}},
		{name: "`Clauses(clause.Insert{Modifier: \"IGNORE\"})`", only: func(column matrixColumn, _ keyKind) bool { return column.engine().IsMySQL() }, run: func(c *cell[K]) {
			o := c.order("a")
			c.do(c.db.Clauses(clause.Insert{Modifier: "IGNORE"}).Create(&o))
			c.right(&o)
			old, same := c.uniques(1), c.uniques(1)
			c.do(c.db.Create(&old))
			same[0].Name = old[0].Name
			c.do(c.db.Clauses(clause.Insert{Modifier: "IGNORE"}).Create(&same))
			c.upserted(false, same[0])
		}},
		{name: "a model without the tag", run: func(c *cell[K]) {
			rows := []mUntagged[K]{{Name: "a"}, {Name: "b"}}
			c.do(c.db.Create(&rows))
			c.check(rows[0].ID < 1<<35 || rows[0].ID > sentinel, "the plugin set a key: %d", rows[0].ID)
		}},
		{name: "`Create` of an empty slice", asGORM: "=GORM's error, empty slice found", run: func(c *cell[K]) {
			c.do(c.db.Create(&[]mOrder[K]{}))
		}},
		{name: "nil pointer in a slice", asGORM: "=GORM's error, slice data is invalid", run: func(c *cell[K]) {
			o := c.order("a")
			c.do(c.db.Create([]*mOrder[K]{&o, nil}))
		}},
		{name: "nil", asGORM: "=GORM's error for a nil pointer to a struct; for nil itself GORM panics", run: func(c *cell[K]) {
			var none *mOrder[K]
			db := c.db.Session(&gorm.Session{SkipDefaultTransaction: true})
			c.note("%v", db.Create(nil).Error)
			c.must(db.Create(none).Error)
		}},
		{name: "pointer to an interface", asGORM: "=GORM's error, unsupported data", run: func(c *cell[K]) {
			o := c.order("a")
			var any any = &o
			c.do(c.db.Session(&gorm.Session{SkipDefaultTransaction: true}).Create(&any))
		}},
		{name: "raw SQL, `Exec(\"INSERT ...\")`", asGORM: "=no model, no id: use `plugin.NextID`", run: func(c *cell[K]) {
			err := c.db.Exec("INSERT INTO orders (name) VALUES ('raw')").Error
			c.note("error: %t", err != nil)
		}},
	}}
}

// bulk are n rows that have nothing but a key.
func (c *cell[K]) bulk(n int) []mBulk[K] {
	rows := make([]mBulk[K], n)
	for i := range rows {
		rows[i].ID = c.key()
	}
	c.cleanup(func() {
		if err := c.without.Exec("DELETE FROM bulks").Error; err != nil {
			c.t.Fatal(err)
		}
	})
	return rows
}

// rightBulk checks many rows at once.
func (c *cell[K]) rightBulk(rows []mBulk[K]) {
	if c.reference {
		return
	}
	var there []K
	c.must(c.without.Model(&mBulk[K]{}).Where("id <> ?", keyFor[K](sentinel)).Pluck("id", &there).Error)
	ids := map[int64]bool{}
	for _, k := range there {
		ids[number(k)] = true
	}
	for i, r := range rows {
		id := number(r.ID)
		if !ids[id] {
			c.check(false, "no row has the id %d", id)
			return
		}
		if i > 0 {
			c.check(id > number(rows[i-1].ID), "id %d after %d", id, number(rows[i-1].ID))
		}
	}
	c.check(len(ids) == len(rows), "%d rows, want %d", len(ids), len(rows))
	c.ours("the first", number(rows[0].ID), "bulks")
	c.ours("the last", number(rows[len(rows)-1].ID), "bulks")
}

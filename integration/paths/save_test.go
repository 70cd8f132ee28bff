package paths_test

import (
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

func savePaths[K key]() group[K] {
	return group[K]{"Save, FirstOrCreate, Updates", "", []path[K]{
		{name: "`Save(&struct)`, no key", run: func(c *cell[K]) {
			o := c.order("a")
			c.do(c.db.Save(&o))
			c.right(&o)
		}},
		{name: "`Save(&struct)`, a row that is there", run: func(c *cell[K]) {
			o := c.order("a")
			c.do(c.db.Create(&o))
			o.Name = "b"
			c.do(c.db.Save(&o))
			c.right(&o)
		}},
		{name: "`Save(&struct)`, a key that is in no row", run: func(c *cell[K]) {
			o := mOrder[K]{ID: c.own(), Name: "own"}
			c.do(c.db.Save(&o))
			c.right(&o)
		}},
		{name: "`Save(&slice)`, no keys", run: func(c *cell[K]) {
			o := c.orders(3)
			c.do(c.db.Save(&o))
			c.right(o)
		}},
		{name: "`Save(&slice)`, some rows are there", run: func(c *cell[K]) {
			there := c.order("a")
			c.do(c.db.Create(&there))
			there.Name = "b"
			o := []mOrder[K]{c.order("new"), there, {ID: c.own(), Name: "own"}, c.order("new, too")}
			c.do(c.db.Save(&o))
			c.check(number(o[1].ID) == number(there.ID), "the key became %d", number(o[1].ID))
			c.right(o)
		}},
		{name: "`Save` of a slice of pointers", run: func(c *cell[K]) {
			o := c.pointers(3)
			c.do(c.db.Save(o))
			c.do(c.db.Save(&o))
			c.right(o)
		}},
		{name: "`Save` with associations, all new", run: func(c *cell[K]) {
			u := mUser[K]{ID: c.key(), Name: "u", Orders: c.orders(2), Company: &mCompany[K]{ID: c.key(), Name: c.unique("c")}}
			c.do(c.db.Save(&u))
			c.right(&u)
		}},
		{name: "`Save` of a row that is there, new associations", run: func(c *cell[K]) {
			u := mUser[K]{ID: c.key(), Name: "u"}
			c.do(c.db.Create(&u))
			u.Orders, u.Profile = c.orders(2), &mProfile[K]{ID: c.key(), Name: "p"}
			u.Company = c.company()
			c.do(c.db.Save(&u))
			c.right(&u)
		}},
		{name: "`Select(...).Save(&struct)`", alone: true, run: func(c *cell[K]) {
			o := c.order("a")
			c.do(c.db.Select("Name").Save(&o))
			c.check(c.trace[0] == "1", "%s rows", c.trace[0])
			c.right(&o)
		}},
		{name: "`Save` with a clause.OnConflict of one's own", run: func(c *cell[K]) {
			old := c.uniques(1)[0]
			c.do(c.db.Create(old))
			rows := []*mUnique[K]{c.uniques(1)[0], {ID: c.key(), Name: old.Name, Value: 7}}
			c.do(c.db.Clauses(clause.OnConflict{Columns: []clause.Column{{Name: "name"}}, DoUpdates: clause.AssignmentColumns([]string{"value"})}).Save(&rows))
			c.upserted(true, rows[0])
			c.upserted(false, rows[1])
		}},
		{name: "`FirstOrCreate`, by a struct", run: func(c *cell[K]) {
			name := c.unique("first")
			a, b := mOrder[K]{ID: c.key()}, mOrder[K]{}
			c.do(c.db.Where(mOrder[K]{Name: name}).FirstOrCreate(&a))
			c.do(c.db.Where(mOrder[K]{Name: name}).FirstOrCreate(&b))
			c.check(number(a.ID) == number(b.ID), "found %d, created %d", number(b.ID), number(a.ID))
			c.right(&a)
		}},
		{name: "`FirstOrCreate`, by a map, with `Attrs`", run: func(c *cell[K]) {
			name := c.unique("first")
			a := mOrder[K]{ID: c.key()}
			c.do(c.db.Where(map[string]any{"name": name}).Attrs(map[string]any{"note": "new"}).FirstOrCreate(&a))
			c.check(a.Note == "new" && a.Name == name, "created %+v", a)
			c.right(&a)
		}},
		{name: "`FirstOrCreate` with `Assign`", run: func(c *cell[K]) {
			name := c.unique("first")
			a, b := mOrder[K]{ID: c.key()}, mOrder[K]{}
			c.do(c.db.Where(mOrder[K]{Name: name}).Assign(mOrder[K]{Note: "1"}).FirstOrCreate(&a))
			c.do(c.db.Where(mOrder[K]{Name: name}).Assign(mOrder[K]{Note: "2"}).FirstOrCreate(&b))
			c.check(number(a.ID) == number(b.ID) && a.Note == "1" && b.Note == "2", "found %+v, created %+v", b, a)
			c.right(&b)
		}},
		{name: "`FirstOrCreate` with associations", run: func(c *cell[K]) {
			u := mUser[K]{ID: c.key(), Orders: c.orders(2)}
			c.do(c.db.Where("name = ?", c.unique("first")).FirstOrCreate(&u))
			c.right(&u)
		}},
		{name: "`FirstOrInit` makes no id, `Save` does", run: func(c *cell[K]) {
			a := mOrder[K]{}
			c.do(c.db.Where(mOrder[K]{Name: c.unique("init")}).Attrs(mOrder[K]{Note: "n"}).FirstOrInit(&a))
			c.check(number(a.ID) == 0, "FirstOrInit made the id %d", number(a.ID))
			a.ID = c.key()
			c.do(c.db.Save(&a))
			c.right(&a)
		}},
		{name: "`Updates(&struct)` with new associations", run: func(c *cell[K]) {
			u := mUser[K]{ID: c.key(), Name: "u"}
			c.do(c.db.Create(&u))
			u.Orders = c.orders(2)
			c.do(c.db.Updates(&u))
			c.right(&u)
		}},
		{name: "`FullSaveAssociations`, `Updates`, old and new associations", run: func(c *cell[K]) {
			u := mUser[K]{ID: c.key(), Name: "u", Orders: c.orders(1)}
			c.do(c.db.Create(&u))
			u.Orders[0].Note = "changed"
			u.Orders = append(u.Orders, c.order("new"))
			c.do(c.db.Session(&gorm.Session{FullSaveAssociations: true}).Updates(&u))
			c.right(&u)
		}},
		{name: "`Model(&struct).Update` makes no id", run: func(c *cell[K]) {
			o := c.order("a")
			c.do(c.db.Create(&o))
			c.do(c.db.Model(&o).Update("name", "b"))
			c.do(c.db.Model(&o).UpdateColumns(map[string]any{"note": "c"}))
			c.right(&o)
		}},
	}}
}

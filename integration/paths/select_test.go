package paths_test

import (
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// selecting selects columns. The reference without the plugin selects the key, too, because the plugin always does.
func (c *cell[K]) selecting(names ...string) *gorm.DB {
	if c.reference {
		names = append(names, "ID")
	}
	return c.db.Select(names)
}

func selectPaths[K key]() group[K] {
	// orders creates some orders, and forgets the notes, which are not selected.
	orders := func(c *cell[K], db *gorm.DB) {
		o, all := c.order("a"), c.orders(2)
		o.Note, all[0].Note, all[1].Note = "n", "n", "n"
		c.do(db.Create(&o))
		c.do(db.Create(&all))
		o.Note, all[0].Note, all[1].Note = "", "", ""
		c.right(&o, all)
	}
	note := "The key is always selected, because without it the database would assign another one. `Omit` of the key does omit it."
	return group[K]{"Select and Omit", note, []path[K]{
		{name: "`Select(\"Name\")`, `Select(\"name\")`", run: func(c *cell[K]) {
			orders(c, c.selecting("Name").Session(&gorm.Session{}))
			orders(c, c.selecting("name").Session(&gorm.Session{}))
		}},
		{name: "`Select(\"ID\", \"Name\")`", run: func(c *cell[K]) { orders(c, c.db.Select("ID", "Name").Session(&gorm.Session{})) }},
		{name: "`Select(\"*\")`", run: func(c *cell[K]) {
			o, all := c.order("a"), c.orders(2)
			c.do(c.db.Select("*").Create(&o))
			c.do(c.db.Select("*").Create(&all))
			c.right(&o, all)
		}},
		{name: "`Select(\"*\").Omit(\"Note\")`", run: func(c *cell[K]) { orders(c, c.db.Select("*").Omit("Note").Session(&gorm.Session{})) }},
		{name: "`Omit(\"Note\")`, `Omit(\"note\")`", run: func(c *cell[K]) {
			orders(c, c.db.Omit("Note").Session(&gorm.Session{}))
			orders(c, c.db.Omit("note").Session(&gorm.Session{}))
		}},
		{name: "`Select(\"Name\", \"Orders\")`, an association", run: func(c *cell[K]) {
			u := c.user("u")
			u.Orders, u.Company = c.orders(2), c.company()
			u.Orders[0].Items = c.items(1)
			c.do(c.selecting("Name", "Orders").Create(&u))
			u.Company = nil
			if !c.reference {
				c.check(number(u.Orders[0].Items[0].ID) == 0, "an item was created")
			}
			u.Orders[0].Items = nil
			c.right(&u)
		}},
		{name: "`Select(\"Orders\")`, only an association", run: func(c *cell[K]) {
			u := c.user("")
			u.Orders = c.orders(2)
			c.do(c.selecting("Orders").Create(&u))
			c.right(&u)
		}},
		{name: "`Select(\"Name\", \"Orders.Name\")`, fields of an association", run: func(c *cell[K]) {
			u := c.user("u")
			u.Orders = c.orders(2)
			u.Orders[0].Note = "not selected"
			names := []string{"Name", "Orders", "Orders.Name", "Orders.UserID"}
			if c.reference {
				names = append(names, "Orders.ID")
			}
			c.do(c.selecting(names...).Create(&u))
			u.Orders[0].Note = ""
			c.right(&u)
		}},
		{name: "`Select(clause.Associations)`", run: func(c *cell[K]) {
			u := c.user("")
			u.Orders, u.Company = c.orders(2), c.company()
			c.do(c.selecting(clause.Associations).Create(&u))
			u.Company = nil // its foreign key is not selected
			u.CompanyID = *new(K)
			c.right(&u)
		}},
		{name: "`Select(\"*\", clause.Associations)`", run: func(c *cell[K]) {
			u := c.user("u")
			u.Orders, u.Company = c.orders(2), c.company()
			c.do(c.db.Select("*", clause.Associations).Create(&u))
			c.right(&u)
		}},
		{name: "`Omit(clause.Associations)`", run: func(c *cell[K]) {
			u := c.user("u")
			u.Orders, u.Company = []mOrder[K]{{Name: "o"}}, &mCompany[K]{Name: "c"}
			c.do(c.db.Omit(clause.Associations).Create(&u))
			c.check(number(u.Orders[0].ID) == 0 && number(u.Company.ID) == 0, "ids without rows: %+v", u)
			c.alone("users", &u)
		}},
		{name: "`Omit(\"Orders\", \"Company\")`", run: func(c *cell[K]) {
			u := c.user("u")
			u.Orders, u.Company, u.Profile = []mOrder[K]{{Name: "o"}}, &mCompany[K]{Name: "c"}, &mProfile[K]{ID: c.key(), Name: "p"}
			c.do(c.db.Omit("Orders", "Company").Create(&u))
			c.check(number(u.Orders[0].ID) == 0 && number(u.Company.ID) == 0, "ids without rows: %+v", u)
			u.Orders, u.Company = nil, nil
			c.right(&u)
		}},
		{name: "`Omit(\"Orders.Note\")`", run: func(c *cell[K]) {
			u := c.user("u")
			u.Orders = c.orders(2)
			u.Orders[0].Note = "omitted"
			c.do(c.db.Omit("Orders.Note").Create(&u))
			u.Orders[0].Note = ""
			c.right(&u)
		}},
		{name: "`Omit(\"Roles.*\")`, roles that are there", run: func(c *cell[K]) {
			m := c.member("m")
			m.Roles = c.roles(2)
			c.do(c.db.Create(&m.Roles))
			c.do(c.db.Omit("Roles.*").Create(owner(m)))
			c.right(owner(m))
		}},
		{name: "`Omit(\"Roles.*\")`, roles without a key", asGORM: "=a join row without a role; the plugin invents no key for it", run: func(c *cell[K]) {
			m := c.member("m")
			m.Roles = []mRole[K]{{Name: "nowhere"}}
			err := c.db.Omit("Roles.*").Create(owner(m)).Error
			c.note("error: %t, role %d", err != nil, number(m.Roles[0].ID))
		}},
		{name: "`Omit(\"ID\")`", asGORM: "=an AUTO_INCREMENT column gets the database's id, a plain one is its error (SQLite makes a row id that the struct does not get)", run: func(c *cell[K]) {
			o := mOrder[K]{Name: "a"}
			err := c.db.Omit("ID").Create(&o).Error
			c.note("error: %t", err != nil)
			c.note("zero: %t", number(o.ID) == 0)
			if id := number(o.ID); id != 0 {
				c.check(id > sentinel, "the plugin made the id %d", id)
			}
			c.cleanup(func() { c.without.Where("id = ?", keyFor[K](0)).Or("id = ''").Delete(&mOrder[K]{}) })
		}},
	}}
}

package paths_test

import "gorm.io/gorm"

func (c *cell[K]) user(name string) mUser[K] { return mUser[K]{ID: c.key(), Name: name} }

func (c *cell[K]) company() *mCompany[K] { return &mCompany[K]{ID: c.key(), Name: c.unique("company")} }

func (c *cell[K]) items(n int) []*mItem[K] {
	all := make([]*mItem[K], n)
	for i := range all {
		all[i] = &mItem[K]{ID: c.key(), Name: c.unique("item")}
	}
	return all
}

func (c *cell[K]) member(name string) *mMember[K] { return &mMember[K]{ID: c.key(), Name: name} }

func (c *cell[K]) roles(n int) []mRole[K] {
	all := make([]mRole[K], n)
	for i := range all {
		all[i] = mRole[K]{ID: c.key(), Name: c.unique("role")}
	}
	return all
}

func (c *cell[K]) tags(n int) []*mTag[K] {
	all := make([]*mTag[K], n)
	for i := range all {
		all[i] = &mTag[K]{ID: c.key(), Name: c.unique("tag")}
	}
	return all
}

func associationPaths[K key]() group[K] {
	return group[K]{"Associations", "The test checks the whole graph: ids, foreign keys in the structs and in the rows, rows of join tables.", []path[K]{
		{name: "belongs to, two levels", run: func(c *cell[K]) {
			u := c.user("u")
			u.Company = c.company()
			u.Company.Country = &mCountry[K]{ID: c.key(), Name: "n"}
			c.do(c.db.Create(&u))
			c.right(&u)
		}},
		{name: "belongs to, one pointer in several rows", run: func(c *cell[K]) {
			users := []mUser[K]{c.user("a"), c.user("b")}
			company := c.company()
			users[0].Company, users[1].Company = company, company
			c.do(c.db.Create(&users))
			c.right(users)
			c.check(number(users[0].CompanyID) == number(users[1].CompanyID), "two companies")
		}},
		{name: "belongs to a row that is there", run: func(c *cell[K]) {
			company, u := c.company(), c.user("u")
			c.do(c.db.Create(company))
			u.Company = company
			c.do(c.db.Create(&u))
			c.right(&u)
		}},
		{name: "belongs to a row that is there under another id (a unique column)", run: func(c *cell[K]) {
			old, u := c.company(), c.user("u")
			c.do(c.db.Create(old))
			u.Company = &mCompany[K]{ID: c.key(), Name: old.Name}
			c.do(c.db.Create(&u))
			id := number(u.Company.ID)
			c.check(id == number(old.ID) || id == 0, "the company is %d, the struct says %d", number(old.ID), id)
			c.check(number(u.CompanyID) == id, "the foreign key is %d, the id of the company %d", number(u.CompanyID), id)
			u.Company = nil
			c.right(&u)
			if id == 0 && !c.reference {
				c.remark("the struct of a row that was there already has no id and an empty foreign key, which a constraint refuses, as without the plugin")
			}
		}},
		{name: "has one, two levels", run: func(c *cell[K]) {
			u := c.user("u")
			u.Profile = &mProfile[K]{ID: c.key(), Name: "p", Photo: mPhoto[K]{ID: c.key(), Name: "x"}}
			c.do(c.db.Create(&u))
			c.right(&u)
		}},
		{name: "has many, two levels", run: func(c *cell[K]) {
			u := c.user("u")
			u.Orders = c.orders(2)
			u.Orders[0].Items, u.Orders[1].Items = c.items(2), c.items(1)
			c.do(c.db.Create(&u))
			c.right(&u)
		}},
		{name: "has many of several rows, some children with keys", run: func(c *cell[K]) {
			users := []mUser[K]{c.user("a"), c.user("b")}
			users[0].Orders, users[1].Orders = c.orders(2), c.orders(2)
			users[1].Orders[0].ID = c.own()
			c.do(c.db.Create(&users))
			c.right(users)
		}},
		{name: "many to many", run: func(c *cell[K]) {
			m := c.member("m")
			m.Roles = c.roles(2)
			c.do(c.db.Create(owner(m)))
			c.right(owner(m))
		}},
		{name: "many to many, two levels", only: once, run: func(c *cell[K]) {
			id := func() int64 { return number(c.key()) }
			shared := &mSkill{ID: id(), Name: "s"}
			g := []mGuild{{ID: id(), Name: "g", Fighters: []mFighter{
				{ID: id(), Name: "a", Skills: []*mSkill{shared, {ID: id(), Name: "t"}}},
				{ID: id(), Name: "b", Skills: []*mSkill{shared}},
			}}, {ID: id(), Name: "h"}}
			c.do(c.db.Create(&g))
			c.right(g)
		}},
		{name: "many to many, the owner of a generic type", asGORM: "GORM panics: it makes a struct field of the type's name", run: func(c *cell[K]) {
			m := c.member("m")
			m.Roles = c.roles(1)
			c.do(c.db.Session(&gorm.Session{SkipDefaultTransaction: true}).Create(m))
		}},
		{name: "many to many, rows that are there and new ones", run: func(c *cell[K]) {
			old := c.roles(1)
			c.do(c.db.Create(&old))
			m := c.member("m")
			m.Roles = append(old, c.roles(1)...)
			c.do(c.db.Create(owner(m)))
			c.right(owner(m))
		}},
		{name: "many to many by `SetupJoinTable`, the join table with a key of its own", run: func(c *cell[K]) {
			m := c.member("a")
			m.Tags = c.tags(2)
			c.must(c.db.Create(owner(m)).Error)
			c.right(owner(m))
		}, alone: true},
		{name: "polymorphic, two levels", run: func(c *cell[K]) {
			u := c.user("u")
			u.Pets = []mPet[K]{{ID: c.key(), Name: "x", Toy: &mToy[K]{ID: c.key(), Name: "ball"}}, {ID: c.key(), Name: "y"}}
			c.do(c.db.Create(&u))
			c.right(&u)
		}},
		{name: "self reference, two levels", run: func(c *cell[K]) {
			u := c.user("boss")
			u.Team = []mUser[K]{c.user("w1"), c.user("w2")}
			u.Team[0].Team = []mUser[K]{c.user("w3")}
			c.do(c.db.Create(&u))
			c.right(&u)
		}},
		{name: "all kinds at once, several rows", run: func(c *cell[K]) {
			users := []*mUser[K]{{ID: c.key(), Name: "a"}, {ID: c.key(), Name: "b"}}
			for _, u := range users {
				u.Company, u.Orders = c.company(), c.orders(2)
				u.Orders[1].Items = c.items(2)
				u.Profile = &mProfile[K]{ID: c.key(), Name: "p"}
				u.Pets = []mPet[K]{{ID: c.key(), Name: "x"}}
			}
			c.do(c.db.Create(&users))
			c.right(users)
		}},
		{name: "a composite key as foreign key", run: func(c *cell[K]) {
			m := mComposite[K]{Tenant: 3, No: c.key(), Name: "c", Lines: []mLine[K]{{ID: c.key(), Name: c.unique("l")}, {ID: c.key(), Name: c.unique("l")}}}
			c.do(c.db.Create(&m))
			c.right(&m)
		}},
		{name: "`FullSaveAssociations`, `Create`", run: func(c *cell[K]) {
			old, u := c.company(), c.user("u")
			c.do(c.db.Create(old))
			u.Company, u.Orders, u.Profile = old, c.orders(2), &mProfile[K]{ID: c.key(), Name: "p"}
			u.Company.Country = &mCountry[K]{ID: c.key(), Name: "late"}
			c.do(c.db.Session(&gorm.Session{FullSaveAssociations: true}).Create(&u))
			c.right(&u)
		}},
	}}
}

// there is a user with a row in each association.
func (c *cell[K]) there() mUser[K] {
	u := c.user("there")
	u.Company, u.Orders, u.Profile = c.company(), c.orders(1), &mProfile[K]{ID: c.key(), Name: "p"}
	u.Pets = []mPet[K]{{ID: c.key(), Name: "x"}}
	c.do(c.db.Create(&u))
	return u
}

func associationModePaths[K key]() group[K] {
	type list struct {
		name string
		rows func(c *cell[K]) any
	}
	kinds := []list{
		{"Orders", func(c *cell[K]) any { o := c.order("new"); return &o }},
		{"Profile", func(c *cell[K]) any { return &mProfile[K]{ID: c.key(), Name: "new"} }},
		{"Company", func(c *cell[K]) any { return c.company() }},
		{"Pets", func(c *cell[K]) any { return &mPet[K]{ID: c.key(), Name: "new"} }},
	}
	// on runs a method of Association on all kinds of them.
	on := func(method func(a *gorm.Association, rows any) error) func(c *cell[K]) {
		return func(c *cell[K]) {
			for _, k := range kinds {
				u, rows := c.there(), k.rows(c)
				c.must(method(c.db.Model(&u).Association(k.name), rows))
				c.right(rows, &u)
			}
			m, roles := c.member("m"), c.roles(2)
			m.Roles = c.roles(1)
			c.do(c.db.Create(owner(m)))
			c.must(method(c.db.Model(owner(m)).Association("Roles"), &roles))
			c.right(roles, owner(m))
		}
	}
	return group[K]{"Association mode", "Each path is tried with has many, has one, belongs to, many to many and polymorphic.", []path[K]{
		{name: "`Association(x).Append`", run: on(func(a *gorm.Association, rows any) error { return a.Append(rows) })},
		{name: "`Association(x).Replace`", run: on(func(a *gorm.Association, rows any) error { return a.Replace(rows) })},
		{name: "`Association(x).Unscoped().Replace`", run: on(func(a *gorm.Association, rows any) error { return a.Unscoped().Replace(rows) })},
		{name: "`Append` of several values", run: func(c *cell[K]) {
			u, a, b := c.there(), c.order("a"), c.orders(2)
			c.must(c.db.Model(&u).Association("Orders").Append(&a, &b))
			c.right(&u, &a)
		}},
		{name: "`Append` for several owners", run: func(c *cell[K]) {
			users := []mUser[K]{c.user("a"), c.user("b")}
			c.do(c.db.Create(&users))
			a, b := c.order("a"), c.order("b")
			c.must(c.db.Model(&users).Association("Orders").Append(&a, &b))
			c.right(users, &a, &b)
		}},
		{name: "`Append` to a `SetupJoinTable` association", run: func(c *cell[K]) {
			m, tags := c.member("a"), c.tags(2)
			c.must(c.db.Create(owner(m)).Error)
			c.must(c.db.Model(owner(m)).Association("Tags").Append(tags))
			c.right(owner(m), tags)
		}, alone: true},
		{name: "`Select(\"Orders.Name\").Association(x).Append`", run: func(c *cell[K]) {
			u, o := c.user("u"), c.order("new")
			c.do(c.db.Create(&u))
			fields := []any{"Orders.UserID"}
			if c.reference {
				fields = append(fields, "Orders.ID")
			}
			c.must(c.db.Model(&u).Select("Orders.Name", fields...).Association("Orders").Append(&o))
			c.right(&u, &o)
		}},
		{name: "`Omit(\"Roles.*\").Association(x).Append`, roles that are there", run: func(c *cell[K]) {
			m, roles := c.member("m"), c.roles(2)
			c.do(c.db.Create(owner(m)))
			c.do(c.db.Create(&roles))
			c.must(c.db.Model(owner(m)).Omit("Roles.*").Association("Roles").Append(&roles))
			c.right(owner(m))
		}},
		{name: "in a transaction", run: func(c *cell[K]) {
			u, o := c.there(), c.order("new")
			c.must(c.db.Transaction(func(tx *gorm.DB) error { return tx.Model(&u).Association("Orders").Append(&o) }))
			c.right(&u, &o)
		}},
	}}
}

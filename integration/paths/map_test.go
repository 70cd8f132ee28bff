package paths_test

import (
	"fmt"
	"reflect"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// maps are n maps for new rows.
func (c *cell[K]) maps(n int) []map[string]any {
	all := make([]map[string]any, n)
	for i := range all {
		all[i] = c.m(map[string]any{"name": fmt.Sprint("map ", i)})
	}
	return all
}

// rightMaps checks maps whose key is "id".
func (c *cell[K]) rightMaps(n int, maps []map[string]any) {
	c.check(len(maps) == n, "the slice has %d maps now, had %d", len(maps), n)
	for _, m := range maps {
		c.rightMap(&mOrder[K]{}, "id", m)
	}
}

// rightMap checks a map that a row was created from. key is its spelling of the key.
func (c *cell[K]) rightMap(model any, key string, m map[string]any) {
	if c.reference {
		return
	}
	s := c.parse(reflect.ValueOf(model).Elem())
	id := parsed(written(m[key]))
	c.ours(s.Name, id, s.Table)
	other := map[string]string{"id": "ID", "ID": "id"}[key]
	_, twice := m[other]
	c.check(!twice, "the map has both %s and %s: %v", key, other, m)
	_, gorms := m["@id"] // where GORM puts what the database reports
	c.check(!gorms, "the map is %v", m)
	value := m["name"]
	if value == nil {
		value = m["Name"]
	}
	got, err := c.read(s.Table, []string{"name"}, []clause.Expression{clause.Eq{Column: clause.Column{Name: "id"}, Value: m[key]}})
	c.check(err == nil && got[0] == written(value), "the map is %v, the row %v: %v", m, got, err)
}

func mapPaths[K key]() group[K] {
	type maps = []map[string]any
	note := "The map gets the id under the name that it uses, column or field, otherwise under the column.\n" +
		"Its type is `int64`, or `uint64` or `string` for a field of that kind."
	model := func(c *cell[K]) *gorm.DB { return c.db.Model(&mOrder[K]{}) }
	return group[K]{"Maps", note, []path[K]{
		{name: "`Model(&T{}).Create(map)`", run: func(c *cell[K]) {
			m := c.maps(1)
			c.do(model(c).Create(m[0]))
			c.rightMaps(1, m)
		}},
		{name: "`Create(&map)`", run: func(c *cell[K]) {
			m := c.maps(1)
			c.do(model(c).Create(&m[0]))
			c.rightMaps(1, m)
		}},
		{name: "`Create([]map)`", run: func(c *cell[K]) {
			m := c.maps(3)
			c.do(model(c).Create(m))
			c.rightMaps(3, m)
		}},
		{name: "`Create(&[]map)`", run: func(c *cell[K]) {
			m := c.maps(3)
			c.do(model(c).Create(&m))
			c.rightMaps(3, m)
		}},
		{name: "`CreateInBatches([]map, n)`", run: func(c *cell[K]) {
			m := c.maps(5)
			// GORM panics for keys that are set, and a panic leaves its transaction open.
			c.do(c.db.Session(&gorm.Session{SkipDefaultTransaction: c.reference}).Model(&mOrder[K]{}).CreateInBatches(m, 2))
			c.rightMaps(5, m)
		}},
		{name: "`CreateInBatches(&[]map, n)`", run: func(c *cell[K]) {
			m := c.maps(5)
			c.do(c.db.Session(&gorm.Session{SkipDefaultTransaction: c.reference}).Model(&mOrder[K]{}).CreateInBatches(&m, 2))
			c.rightMaps(5, m)
		}},
		{name: "`Session{CreateBatchSize: n}`, `Create([]map)`", run: func(c *cell[K]) {
			m := c.maps(5)
			c.do(c.db.Session(&gorm.Session{CreateBatchSize: 2, SkipDefaultTransaction: c.reference}).Model(&mOrder[K]{}).Create(m))
			c.rightMaps(5, m)
		}},
		{name: "a key that is set, by its column", run: func(c *cell[K]) {
			for _, form := range []func(maps) any{func(m maps) any { return m[0] }, func(m maps) any { return &m[0] }} {
				m := maps{{"id": c.ownValue(), "name": "own"}}
				was := m[0]["id"]
				c.do(model(c).Create(form(m)))
				c.check(m[0]["id"] == was, "the map is %v, its key was %v", m[0], was)
				c.rightMaps(1, m)
			}
		}},
		{name: "keys that are set, by their column, in slices", run: func(c *cell[K]) {
			for _, form := range []func(*maps) any{func(m *maps) any { return *m }, func(m *maps) any { return m }} {
				m := maps{{"id": c.ownValue(), "name": "a"}, {"id": c.ownValue(), "name": "b"}, {"name": "c"}}
				if c.reference {
					m[2]["id"] = c.ownValue()
				}
				first, second := m[0]["id"], m[1]["id"]
				c.do(model(c).Create(form(&m)))
				c.check(m[0]["id"] == first && m[1]["id"] == second, "the maps are %v, the keys were %v and %v", m, first, second)
				c.rightMaps(3, m)
			}
		}},
		{name: "a key that is set, by its field", run: func(c *cell[K]) {
			m := map[string]any{"ID": c.ownValue(), "Name": "own"}
			was := m["ID"]
			c.do(model(c).Create(m))
			c.check(m["ID"] == was, "the map is %v, its key was %v", m, was)
			c.rightMap(&mOrder[K]{}, "ID", m)
		}},
		{name: "an empty key, by its field or its column", run: func(c *cell[K]) {
			for _, name := range []string{"id", "ID"} {
				for _, empty := range []any{nil, 0, ""} {
					m := map[string]any{name: empty, "name": "empty"}
					if c.reference {
						m[name] = c.ownValue()
					}
					c.do(model(c).Create(m))
					c.rightMap(&mOrder[K]{}, name, m)
				}
			}
		}},
		{name: "maps that name different columns", run: func(c *cell[K]) {
			m := c.maps(3)
			m[1]["note"] = "n"
			m[2]["Note"] = "n"
			c.do(model(c).Create(&m))
			c.rightMaps(3, m)
		}},
		{name: "`Select(\"name\").Create(map)`", run: func(c *cell[K]) {
			m := c.maps(2)
			m[0]["note"] = "n"
			c.do(model(c).Select("name", "id").Create(m[0]))
			if c.reference {
				c.do(model(c).Select("name", "id").Create(m[1]))
			} else {
				c.do(model(c).Select("name").Create(m[1]))
			}
			c.rightMaps(2, m)
		}},
		{name: "`Omit(\"note\").Create([]map)`", run: func(c *cell[K]) {
			m := c.maps(2)
			m[0]["note"] = "n"
			c.do(model(c).Omit("note").Create(m))
			c.rightMaps(2, m)
		}},
		{name: "`Table(x)` with `Model`", run: func(c *cell[K]) {
			m := c.maps(1)[0]
			c.do(model(c).Table("orders_2025").Create(m))
			if !c.reference {
				c.ours("the map", parsed(written(m["id"])), "orders")
			}
		}},
		{name: "several uid fields", run: func(c *cell[K]) {
			m := c.m(map[string]any{"name": "a", "f": 1})
			delete(m, "f")
			c.do(c.db.Model(&mSeveral[K]{}).Create(m))
			c.rightMap(&mSeveral[K]{}, "id", m)
			for _, name := range []string{"code", "ref", "text", "number", "public"} {
				if !c.reference {
					c.ours(name, parsed(written(m[name])), "severals")
				}
			}
		}},
		{name: "in a transaction, rolled back", run: func(c *cell[K]) {
			m := c.maps(2)
			tx := c.db.Begin()
			c.must(tx.Model(&mOrder[K]{}).Create(m[0]).Error)
			c.must(tx.Rollback().Error)
			c.do(model(c).Create(m[1]))
			c.rightMaps(1, m[1:])
		}},
		{name: "`Table(x).Create(map)` without a model", asGORM: "=no model, no id: add `Model(&T{})`, because a database that numbers the key takes the number after the largest, as the plugin may", run: func(c *cell[K]) {
			m := map[string]any{"name": "a"}
			err := c.db.Table("orders").Create(m).Error
			_, got := m["id"]
			c.note("error: %t, a key in the map: %t", err != nil, got)
		}},
	}}
}

package paths_test

import (
	"reflect"
	"time"
)

func modelPaths[K key]() group[K] {
	return group[K]{"Models", "", []path[K]{
		{name: "embedded struct with the key", run: func(c *cell[K]) {
			m := []mEmbedded[K]{{Name: "a"}, {Name: "b"}}
			m[0].ID, m[1].ID = c.key(), c.key()
			c.do(c.db.Create(&m))
			c.right(m)
		}},
		{name: "embedded pointer with the key, nil", run: func(c *cell[K]) {
			m := []*mEmbeddedPointer[K]{{Name: "a"}, {Name: "b", MKey: &MKey[K]{}}}
			for _, m := range m {
				if c.reference {
					m.MKey = &MKey[K]{c.key()}
				}
			}
			c.do(c.db.Create(&m))
			c.right(m)
		}},
		{name: "`embedded`, `embeddedPrefix`, by value and by pointer", run: func(c *cell[K]) {
			m := []mPrefixed[K]{{Name: "a"}, {Name: "b", Work: &MPart[K]{City: "x"}}}
			m[0].Key.ID, m[1].Key.ID = c.key(), c.key()
			c.do(c.db.Create(&m))
			c.right(m)
		}},
		{name: "a key next to `gorm.Model`", run: func(c *cell[K]) {
			m := mShadow[K]{ID: c.key(), Name: "a"}
			c.do(c.db.Create(&m))
			c.right(&m)
		}},
		{name: "`gorm.Model` with the tag", only: once, run: func(c *cell[K]) {
			m := []mGORMModel{{Name: "a"}, {Name: "b"}}
			if c.reference {
				m[0].ID, m[1].ID = uint(number(c.own())), uint(number(c.own()))
			}
			c.do(c.db.Create(&m))
			c.right(m)
			c.check(!m[0].DeletedAt.Valid && time.Since(m[0].CreatedAt) < time.Minute, "%+v", m[0])
		}},
		{name: "`uidplugin.Model`", only: once, run: func(c *cell[K]) {
			m := []mOurModel{{Name: "a"}, {Name: "b"}}
			if c.reference {
				m[0].ID, m[1].ID = 11_000+m[0].ID, 12_000+m[1].ID
			}
			c.do(c.db.Create(&m))
			c.right(m)
		}},
		{name: "composite key, one part a uid", run: func(c *cell[K]) {
			m := []mComposite[K]{{Tenant: 1, No: c.key(), Name: "a"}, {Tenant: 2, No: c.key(), Name: "b"}}
			c.do(c.db.Create(&m))
			one := mComposite[K]{Tenant: 3, No: c.key(), Name: "c"}
			c.do(c.db.Save(&one))
			one.Name = "d"
			c.do(c.db.Save(&one))
			c.right(m, &one)
		}},
		{name: "several uid fields, of several kinds", run: func(c *cell[K]) {
			ref := int64(77)
			c.set[77] = true
			m := []mSeveral[K]{{ID: c.key(), Name: "a"}, {ID: c.key(), Name: "b", Ref: &ref}}
			c.do(c.db.Create(&m))
			c.check(number(m[0].Code) != number(m[0].ID) || c.reference, "one id for two fields")
			c.check(*orZero(m[1].Ref) == 77 || c.reference, "a field that was set became %d", *orZero(m[1].Ref))
			c.right(m)
		}},
		{name: "a uid that is no key, next to a key of the database", run: func(c *cell[K]) {
			m := []mSecond[K]{{Name: "a"}, {Name: "b"}}
			c.do(c.db.Create(&m))
			one := mSecond[K]{Name: "c"}
			c.do(c.db.Create(&one))
			c.right(m, &one)
		}},
		{name: "a uid that is no key, next to a natural key", run: func(c *cell[K]) {
			m := []mNatural[K]{{Name: c.unique("n")}, {Name: c.unique("n")}}
			c.do(c.db.Create(&m))
			c.right(m)
		}},
		{name: "`gorm.DeletedAt`", run: func(c *cell[K]) {
			m := []mSoft[K]{{ID: c.key(), Name: "a"}, {ID: c.key(), Name: "b"}}
			c.do(c.db.Create(&m))
			c.do(c.db.Delete(&m[0]))
			c.must(c.db.Unscoped().Save(&m[1]).Error) // MySQL counts it if the clock moved on
			c.right(m)
		}},
		{name: "serializers and defaults elsewhere", run: func(c *cell[K]) {
			m := []mSerial[K]{{ID: c.key(), Name: "a", Labels: []string{"x"}, Extra: map[string]int{"y": 1}}, {ID: c.key(), Name: "b", Status: "old", Level: 4}}
			c.do(c.db.Create(&m))
			one := mSerial[K]{ID: c.key(), Name: "c", Labels: []string{"x"}}
			c.do(c.db.Create(&one))
			c.right(m, &one)
			c.check(one.Status == "new" && one.Level == 3, "defaults: %+v", one)
		}},
		{name: "a struct type declared in a function, with another column for the key", run: func(c *cell[K]) {
			type Local struct {
				Key  K `gorm:"column:id;primaryKey;uid"`
				Name string
			}
			m := Local{Key: c.key(), Name: "a"}
			c.do(c.db.Table("orders").Create(&m))
			if !c.reference {
				c.ours("Local.Key", number(m.Key), c.parse(reflect.ValueOf(m)).Table)
				c.set[number(m.Key)] = true
				c.right(&mOrder[K]{ID: m.Key, Name: "a"})
			}
		}},
		{name: "columns with odd names", run: func(c *cell[K]) {
			m := []mColumns[K]{{ID: c.key(), Name: "a"}, {ID: c.key(), Name: "b"}}
			c.do(c.db.Create(&m))
			c.right(m)
		}},
	}}
}

func orZero(p *int64) *int64 {
	if p == nil {
		p = new(int64)
	}
	return p
}

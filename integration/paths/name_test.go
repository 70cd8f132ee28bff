package paths_test

import (
	"fmt"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"gorm.io/gorm"
	"gorm.io/gorm/schema"
)

// quoted is a table name in the quotes of the engine.
func (l *lane[K]) quoted(name string) string {
	if l.Name == "postgres" {
		return `"` + name + `"`
	}
	return "`" + name + "`"
}

const quotedTable = "the SQLite driver does not know a table name in quotes: the row goes to the model's table"

// schemaName is the qualifier of the database's tables.
func (c *cell[K]) schemaName() string { return c.Current() }

// elsewhere is a handle of its own, with a naming strategy.
func (c *cell[K]) elsewhere(naming schema.NamingStrategy, models ...any) *gorm.DB {
	db := c.handle(c.t, &gorm.Config{NamingStrategy: naming})
	p := harness.Use(c.t, db)
	was := c.plugin
	c.plugin = p
	c.cleanup(func() { c.plugin = was })
	c.must(p.AutoMigrate(models...))
	c.cleanup(func() { c.must(db.Migrator().DropTable(models...)) })
	return db
}

func namePaths[K key]() group[K] {
	note := "An id resolves to the table of its model, also if `Table(...)` put the row into another one."
	// in puts rows into a table that is not the model's.
	in := func(table string, db func(c *cell[K]) *gorm.DB) func(c *cell[K]) {
		return func(c *cell[K]) {
			o, all := c.order("a"), c.orders(2)
			c.do(db(c).Create(&o))
			c.do(db(c).Create(&all))
			c.alone(table, &o, all)
		}
	}
	// named puts rows into the table that a naming strategy makes.
	named := func(naming func(c *cell[K]) schema.NamingStrategy) func(c *cell[K]) {
		return func(c *cell[K]) {
			db := c.elsewhere(naming(c), &mNamed[K]{})
			m := []mNamed[K]{{Name: "a"}, {Name: "b"}}
			one := mNamed[K]{Name: "c"}
			c.must(db.Create(&m).Error)
			c.must(db.Create(&one).Error)
			c.db = db
			c.right(m, &one)
			found, err := c.plugin.Find(c.t.Context(), uidplugin.ID(number(m[0].ID)))
			c.check(err == nil, "Find: %v", err)
			if row, ok := found.(*mNamed[K]); ok {
				c.check(row.Name == "a", "Find = %+v", row)
			}
		}
	}
	return group[K]{"Tables and names", note, []path[K]{
		{name: "`Tabler`, upper case", run: func(c *cell[K]) {
			m := []mCapitals[K]{{ID: c.key(), Name: "a"}, {ID: c.key(), Name: "b"}}
			c.do(c.db.Create(&m))
			c.right(m)
		}},
		{name: "`TablerWithNamer`", run: func(c *cell[K]) {
			m := mNamed[K]{ID: c.key(), Name: "a"}
			c.do(c.db.Create(&m))
			c.right(&m)
		}},
		{name: "`TablePrefix`", alone: true, run: named(func(*cell[K]) schema.NamingStrategy { return schema.NamingStrategy{TablePrefix: "shop_"} })},
		{name: "a schema, `TablePrefix: \"shop.\"`", alone: true, run: named(func(c *cell[K]) schema.NamingStrategy {
			return schema.NamingStrategy{TablePrefix: c.schemaName() + ".", SingularTable: true}
		})},
		{name: "`NoLowerCase`", alone: true, run: named(func(*cell[K]) schema.NamingStrategy {
			return schema.NamingStrategy{TablePrefix: "Shop_", NoLowerCase: true, SingularTable: true}
		})},
		{name: "`Table(x)`", run: in("orders_2025", func(c *cell[K]) *gorm.DB { return c.db.Table("orders_2025") })},
		{name: "`Table(x)`, quoted", asGORM: quotedTable, run: in("orders_2025", func(c *cell[K]) *gorm.DB { return c.db.Table(c.quoted("orders_2025")) })},
		{name: "`Table(x)`, quoted, upper case and a space", asGORM: quotedTable, run: in("Orders 2025", func(c *cell[K]) *gorm.DB { return c.db.Table(c.quoted("Orders 2025")) })},
		{name: "`Table(x)` with a schema", run: in("orders_2025", func(c *cell[K]) *gorm.DB { return c.db.Table(c.schemaName() + ".orders_2025") })},
		{name: "`Table(x)` with `Model`", run: in("orders_2025", func(c *cell[K]) *gorm.DB { return c.db.Model(&mOrder[K]{}).Table("orders_2025") })},
		{name: "`Scopes` that change the table", run: in("orders_2025", func(c *cell[K]) *gorm.DB {
			return c.db.Scopes(func(db *gorm.DB) *gorm.DB { return db.Table("orders_2025") })
		})},
		{name: "`Scopes` that change the table, with associations", run: func(c *cell[K]) {
			o := c.order("a")
			o.Items = c.items(2)
			c.do(c.db.Scopes(func(db *gorm.DB) *gorm.DB { return db.Table("orders_2025") }).Create(&o))
			for _, i := range o.Items {
				c.check(number(i.OrderID) == number(o.ID), "the foreign key is %d, the id %d", number(i.OrderID), number(o.ID))
			}
			c.alone("orders_2025", &o)
			c.right(o.Items)
		}},
		{name: "upsert into `Table(x)`", run: func(c *cell[K]) {
			o := c.orders(2)
			c.do(c.db.Table("orders_2025").Save(&o))
			c.do(c.db.Table("orders_2025").Save(&o))
			c.alone("orders_2025", o)
		}},
		{name: "batches into `Table(x)`", run: func(c *cell[K]) {
			o := c.orders(5)
			c.do(c.db.Table("orders_2025").CreateInBatches(&o, 2))
			c.alone("orders_2025", o)
		}},
		{name: "two models on one table", run: func(c *cell[K]) {
			o, h := c.order("a"), mHookRead[K]{ID: c.key()}
			c.do(c.db.Create(&o))
			c.do(c.db.Create(&h))
			c.right(&o, &h)
			c.check(fmt.Sprint(number(o.ID)) != fmt.Sprint(number(h.ID)), "one id for two rows")
		}},
	}}
}

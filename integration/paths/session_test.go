package paths_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"gorm.io/gorm"
)

func sessionPaths[K key]() group[K] {
	// session creates a few rows with associations in a session.
	session := func(s gorm.Session) func(c *cell[K]) {
		return func(c *cell[K]) {
			db := c.db.Session(&s)
			u, all := c.user("u"), c.orders(2)
			u.Orders, u.Company = c.orders(2), c.company()
			c.do(db.Create(&u))
			c.do(db.Create(&all))
			c.right(&u, all)
		}
	}
	return group[K]{"Sessions and contexts", "", []path[K]{
		{name: "`SkipHooks`", run: session(gorm.Session{SkipHooks: true})},
		{name: "`SkipDefaultTransaction`", run: session(gorm.Session{SkipDefaultTransaction: true})},
		{name: "`DisableNestedTransaction`", run: session(gorm.Session{DisableNestedTransaction: true})},
		{name: "`PrepareStmt`", run: func(c *cell[K]) {
			db := c.db.Session(&gorm.Session{PrepareStmt: true})
			for range 3 {
				o := c.order("a")
				c.do(db.Create(&o))
				c.right(&o)
			}
		}},
		{name: "`PrepareStmt` in a transaction", run: func(c *cell[K]) {
			u := c.user("u")
			u.Orders = c.orders(2)
			c.must(c.db.Session(&gorm.Session{PrepareStmt: true}).Transaction(func(tx *gorm.DB) error { return tx.Create(&u).Error }))
			c.right(&u)
		}},
		{name: "`NewDB`", run: func(c *cell[K]) {
			o := c.order("a")
			c.do(c.db.Where("1 = 0").Select("Note").Session(&gorm.Session{NewDB: true}).Create(&o))
			c.right(&o)
		}},
		{name: "`FullSaveAssociations`", run: session(gorm.Session{FullSaveAssociations: true})},
		{name: "`AllowGlobalUpdate`, `QueryFields`, `PropagateUnscoped`", run: session(gorm.Session{AllowGlobalUpdate: true, QueryFields: true, PropagateUnscoped: true})},
		{name: "`Unscoped()`, `Debug()`, `Set(k, v)`", run: func(c *cell[K]) {
			o := c.orders(3)
			c.do(c.db.Unscoped().Create(&o[0]))
			c.do(c.db.Session(&gorm.Session{Logger: c.db.Logger}).Create(&o[1]))
			c.do(c.db.Set("k", "v").InstanceSet("k", "v").Create(&o[2]))
			c.right(o)
		}},
		{name: "`DryRun`", run: func(c *cell[K]) {
			db := c.db.Session(&gorm.Session{DryRun: true})
			o, all := c.order("a"), c.orders(2)
			for _, dest := range []any{&o, &all} {
				tx := db.Create(dest)
				c.do(tx)
				c.note("%d", len(tx.Statement.Vars))
			}
			tx := db.Create(&all)
			for _, k := range all {
				c.check(number(k.ID) != 0 && strings.Contains(fmt.Sprint(writtenAll(tx.Statement.Vars)), fmt.Sprint(number(k.ID))), "the statement has %v, the struct %d", tx.Statement.Vars, number(k.ID))
			}
		}},
		{name: "`ToSQL`", run: func(c *cell[K]) {
			o := c.order("a")
			sql := c.db.ToSQL(func(tx *gorm.DB) *gorm.DB { return tx.Create(&o) })
			c.check(number(o.ID) != 0 && strings.Contains(sql, fmt.Sprint(number(o.ID))), "%s, the struct has %d", sql, number(o.ID))
		}},
		{name: "one statement used again", run: func(c *cell[K]) {
			db := c.db.Model(&mOrder[K]{}).Session(&gorm.Session{})
			o, all, m := c.order("a"), c.orders(2), c.maps(1)
			c.do(db.Create(&o))
			c.do(db.Create(&all))
			c.do(db.Create(m[0]))
			c.right(&o, all)
			c.rightMaps(1, m)
		}},
		{name: "a context with a value or a deadline far away", run: func(c *cell[K]) {
			type k struct{}
			ctx, cancel := context.WithTimeout(context.WithValue(context.Background(), k{}, 1), time.Minute)
			defer cancel()
			o := c.orders(2)
			c.do(c.db.WithContext(ctx).Create(&o))
			c.right(o)
		}},
		{name: "a cancelled context", asGORM: "=`context.Canceled`, and nothing is created", run: func(c *cell[K]) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			o := c.order("a")
			c.must(c.db.WithContext(ctx).Create(&o).Error)
		}},
		{name: "a context that ends before", asGORM: "=`context.DeadlineExceeded`, and nothing is created", run: func(c *cell[K]) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Nanosecond)
			defer cancel()
			<-ctx.Done()
			o := c.orders(3)
			c.must(c.db.WithContext(ctx).Create(&o).Error)
		}},
		{name: "a context that ends in a hook", asGORM: "=the context's error, and nothing is created", run: func(c *cell[K]) {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Millisecond)
			defer cancel()
			h := mHookWait[K]{ID: c.key(), Name: "a"}
			if err := c.db.WithContext(ctx).Create(&h).Error; err != nil {
				panic(stop{context.DeadlineExceeded}) // each driver says it in its own words
			}
		}},
	}}
}

func writtenAll(vars []any) (all []string) {
	for _, v := range vars {
		all = append(all, written(v))
	}
	return all
}

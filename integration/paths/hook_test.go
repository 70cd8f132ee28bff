package paths_test

import (
	"errors"
	"fmt"

	"gorm.io/gorm"
)

// Models with hooks, all on the table of orders.
type (
	mHookRead[K key] struct {
		ID   K `gorm:"primaryKey;uid"`
		Name string
	}
	mHookSet[K key] struct {
		ID   K `gorm:"primaryKey;uid"`
		Name string
	}
	mHookSave[K key] struct {
		ID   K `gorm:"primaryKey;uid"`
		Name string
	}
	mHookIfZero[K key] struct {
		ID   K `gorm:"primaryKey;uid"`
		Name string
	}
	mHookZero[K key] struct {
		ID   K `gorm:"primaryKey;uid"`
		Name string
	}
	mHookColumn[K key] struct {
		ID   K `gorm:"primaryKey;uid"`
		Name string
	}
	mHookMore[K key] struct {
		ID   K `gorm:"primaryKey;uid"`
		Name string
	}
	mHookAfter[K key] struct {
		ID   K `gorm:"primaryKey;uid"`
		Name string
		Seen K `gorm:"-"`
	}
	mHookFail[K key] struct {
		ID   K `gorm:"primaryKey;uid"`
		Name string
	}
	mHookWait[K key] struct {
		ID   K `gorm:"primaryKey;uid"`
		Name string
	}
)

func (mHookRead[K]) TableName() string   { return "orders" }
func (mHookSet[K]) TableName() string    { return "orders" }
func (mHookSave[K]) TableName() string   { return "orders" }
func (mHookIfZero[K]) TableName() string { return "orders" }
func (mHookZero[K]) TableName() string   { return "orders" }
func (mHookColumn[K]) TableName() string { return "orders" }
func (mHookMore[K]) TableName() string   { return "orders" }
func (mHookAfter[K]) TableName() string  { return "orders" }
func (mHookFail[K]) TableName() string   { return "orders" }
func (mHookWait[K]) TableName() string   { return "orders" }

// ownSetting is where a path leaves cell.own for hooks.
const ownSetting = "matrix:own"

func ownIn[K key](tx *gorm.DB) K {
	f, _ := tx.Get(ownSetting)
	return f.(func() K)()
}

func (h *mHookRead[K]) BeforeCreate(*gorm.DB) error {
	h.Name = fmt.Sprint(number(h.ID) != 0)
	return nil
}

func (h *mHookSet[K]) BeforeCreate(tx *gorm.DB) error {
	h.ID = ownIn[K](tx)
	return nil
}

func (h *mHookSave[K]) BeforeSave(tx *gorm.DB) error {
	h.ID = ownIn[K](tx)
	return nil
}

func (h *mHookIfZero[K]) BeforeCreate(tx *gorm.DB) error {
	if number(h.ID) == 0 {
		h.ID = ownIn[K](tx)
	}
	return nil
}

func (h *mHookZero[K]) BeforeCreate(*gorm.DB) error {
	h.ID = *new(K)
	return nil
}

func (h *mHookColumn[K]) BeforeCreate(tx *gorm.DB) error {
	tx.Statement.SetColumn("ID", ownIn[K](tx))
	return nil
}

func (h *mHookMore[K]) BeforeCreate(tx *gorm.DB) error {
	more, _ := tx.Get("matrix:more")
	return tx.Create(more).Error
}

func (h *mHookAfter[K]) AfterCreate(tx *gorm.DB) error {
	h.Seen = h.ID
	more, _ := tx.Get("matrix:more")
	return tx.Create(more).Error
}

var errHook = errors.New("the hook says no")

func (h *mHookFail[K]) BeforeCreate(*gorm.DB) error { return errHook }

func (h *mHookWait[K]) BeforeCreate(tx *gorm.DB) error {
	if done := tx.Statement.Context.Done(); done != nil {
		<-done
	}
	return nil
}

func hookPaths[K key]() group[K] {
	// own is a session whose hooks can set keys.
	own := func(c *cell[K]) *gorm.DB { return c.db.Set(ownSetting, c.own).Session(&gorm.Session{}) }
	note := "The id is set before the hooks run. A hook may set another one. If it leaves none, the row gets one."
	return group[K]{"Hooks", note, []path[K]{
		{name: "`BeforeCreate` reads the key", run: func(c *cell[K]) {
			h := []mHookRead[K]{{ID: c.key()}, {ID: c.key()}}
			one := mHookRead[K]{ID: c.key()}
			c.do(c.db.Create(&h))
			c.do(c.db.Create(&one))
			c.check(h[0].Name == "true" && h[1].Name == "true" && one.Name == "true", "the hook saw no id")
			c.right(h, &one)
		}},
		{name: "`BeforeCreate` sets the key", run: func(c *cell[K]) {
			h, one := []mHookSet[K]{{Name: "a"}, {Name: "b"}}, mHookSet[K]{Name: "c"}
			c.do(own(c).Create(&h))
			c.do(own(c).Create(&one))
			c.check(c.set[number(h[0].ID)] && c.set[number(h[1].ID)] && c.set[number(one.ID)], "the hook's keys were changed: %d, %d", number(h[0].ID), number(one.ID))
			c.right(h, &one)
		}},
		{name: "`BeforeSave` sets the key", run: func(c *cell[K]) {
			h := mHookSave[K]{Name: "a"}
			c.do(own(c).Create(&h))
			c.check(c.set[number(h.ID)], "the hook's key was changed: %d", number(h.ID))
			c.right(&h)
		}},
		{name: "`BeforeCreate` sets the key if it is zero", run: func(c *cell[K]) {
			h := []mHookIfZero[K]{{Name: "a"}, {Name: "b"}}
			c.do(own(c).Create(&h))
			c.check(!c.set[number(h[0].ID)], "the hook saw no id")
			c.right(h)
		}},
		{name: "`BeforeCreate` sets the key if it is zero, `SkipHooks`", run: func(c *cell[K]) {
			h := mHookIfZero[K]{ID: c.key(), Name: "a"}
			c.do(c.db.Session(&gorm.Session{SkipHooks: true}).Create(&h))
			c.right(&h)
		}},
		{name: "`BeforeCreate` zeroes the key", alone: true, run: func(c *cell[K]) {
			h, one := []mHookZero[K]{{Name: "a"}, {Name: "b"}}, mHookZero[K]{Name: "c"}
			c.do(c.db.Create(&h))
			c.do(c.db.Create(&one))
			c.right(h, &one)
		}},
		{name: "`SetColumn(\"ID\", ...)` in a hook", run: func(c *cell[K]) {
			h := []mHookColumn[K]{{Name: "a"}, {Name: "b"}}
			one := mHookColumn[K]{Name: "c"}
			c.do(own(c).Create(&h))
			c.do(own(c).Create(&one))
			c.check(c.set[number(h[0].ID)] && c.set[number(h[1].ID)] && c.set[number(one.ID)], "the hook's keys were changed: %d, %d", number(h[0].ID), number(one.ID))
			c.right(h, &one)
		}},
		{name: "`BeforeCreate` creates other rows", run: func(c *cell[K]) {
			more, h := c.orders(2), mHookMore[K]{ID: c.key(), Name: "a"}
			c.do(c.db.Set("matrix:more", &more).Create(&h))
			c.right(&h, more)
		}},
		{name: "`AfterCreate` sees the key and creates other rows", run: func(c *cell[K]) {
			more, h := c.orders(2), mHookAfter[K]{ID: c.key(), Name: "a"}
			c.do(c.db.Set("matrix:more", &more).Create(&h))
			c.check(number(h.Seen) == number(h.ID), "the hook saw %d, the id is %d", number(h.Seen), number(h.ID))
			c.right(&h, more)
		}},
		{name: "a hook that fails", asGORM: "=the hook's error, and nothing is created", run: func(c *cell[K]) {
			h := []mHookFail[K]{{ID: c.key(), Name: "a"}, {ID: c.key(), Name: "b"}}
			c.must(c.db.Create(&h).Error)
		}},
		{name: "hooks and upserts: `BeforeCreate` sets the key", run: func(c *cell[K]) {
			h := []mHookSet[K]{{Name: "a"}, {Name: "b"}}
			c.do(own(c).Save(&h))
			c.check(c.set[number(h[0].ID)] && c.set[number(h[1].ID)], "the hook's keys were changed: %d", number(h[0].ID))
			c.right(h)
		}},
		{name: "hooks and upserts: `BeforeCreate` zeroes the key", alone: true, run: func(c *cell[K]) {
			h := []mHookZero[K]{{Name: "a"}, {Name: "b"}}
			c.do(c.db.Save(&h))
			c.right(h)
		}},
	}}
}

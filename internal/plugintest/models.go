package plugintest

import (
	"bytes"
	"sync"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/publicid"
)

// Parcel is a model of usual size.
type Parcel struct {
	ID      int64 `gorm:"primaryKey;autoIncrement:false;uid"`
	OrderID int64
	Status  int
	Weight  int64
	Street  string
	City    string
}

// A Slogan can exist already, under another key.
type Slogan struct {
	ID   int64  `gorm:"primaryKey;autoIncrement:false;uid"`
	Text string `gorm:"size:50;uniqueIndex"`
	Uses int
}

// Ledger has no uid field.
type Ledger struct {
	ID   int64 `gorm:"primaryKey;autoIncrement:false"`
	Text string
}

// These are a shop, with all kinds of associations.
type (
	Customer struct {
		ID        int64 `gorm:"primaryKey;autoIncrement:false;uid"`
		Name      string
		Purchases []Purchase
		Profile   *Profile // has one
		Clubs     []Club   `gorm:"many2many:memberships"`
		ParentID  *int64
		Children  []Customer `gorm:"foreignKey:ParentID"`
		Labels    []Label    `gorm:"polymorphic:Owner"`
	}
	Purchase struct {
		ID         int64 `gorm:"primaryKey;autoIncrement:false;uid"`
		CustomerID int64
		Customer   *Customer
		Items      []*Item
	}
	Item struct {
		ID         int64 `gorm:"primaryKey;autoIncrement:false;uid"`
		PurchaseID int64
		Name       string
	}
	Profile struct {
		ID         int64 `gorm:"primaryKey;autoIncrement:false;uid"`
		CustomerID int64
	}
	Club struct {
		ID   int64 `gorm:"primaryKey;uid"` // GORM copies the tag to the join table
		Name string
	}
	Label struct {
		ID        int64 `gorm:"primaryKey;autoIncrement:false;uid"`
		OwnerID   int64
		OwnerType string
	}
)

// Part has a key that is a plain BIGINT.
type Part struct {
	ID   int64 `gorm:"primaryKey;autoIncrement:false;uid"`
	Name string
}

// Counter has a key for which GORM assumes AUTO_INCREMENT.
type Counter struct {
	ID   int64 `gorm:"primaryKey;uid"`
	Name string
}

func (p Part) key() int64    { return p.ID }
func (c Counter) key() int64 { return c.ID }

// A Row is one of a part or a counter.
type Row interface {
	Part | Counter
	key() int64
}

// Keys returns the ids of rows.
func Keys[T Row](rows ...T) (ids []int64) {
	for _, r := range rows {
		ids = append(ids, r.key())
	}
	return ids
}

// Twin has ids of a pair of worker ids.
type Twin struct {
	ID int64 `gorm:"primaryKey;autoIncrement:false;uid:paired"`
}

// A Composite has a key of two columns.
type Composite struct {
	Tenant int64 `gorm:"primaryKey;autoIncrement:false"`
	ID     int64 `gorm:"primaryKey;autoIncrement:false;uid"`
	Name   string
}

// Invoice is a model of mocked databases.
type Invoice struct {
	ID    int64 `gorm:"primaryKey;autoIncrement:false;uid"`
	Total int
}

// Article is a model of mocked databases.
type Article struct {
	ID   uidplugin.ID `gorm:"primaryKey;uid"`
	Name string
}

// Pass has a public key.
type Pass struct {
	ID     uidplugin.Public[Pass]
	Parent uidplugin.Public[Pass]
	Notes  []PassNote `json:",omitempty"`
}

// PublicPrefix implements [uidplugin.PublicType].
func (Pass) PublicPrefix() string { return "tkt" }

// PassNote belongs to a pass.
type PassNote struct {
	ID     uidplugin.Public[PassNote]
	PassID uidplugin.Public[Pass]
}

// PublicPrefix implements [uidplugin.PublicType].
func (PassNote) PublicPrefix() string { return "tkt_note" }

// TestKeys sets the keys of all tests of a package, and returns them. They can be set only once.
var TestKeys = sync.OnceValue(func() *publicid.Keys {
	keys, err := publicid.NewKeys(bytes.Repeat([]byte("0123456789abcdef"), 2))
	if err == nil {
		err = uidplugin.SetPublicKeys(keys)
	}
	if err != nil {
		panic(err)
	}
	return keys
})

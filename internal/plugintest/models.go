package plugintest

import "github.com/uidplugin/uidplugin"

// Parcel is a model of usual size.
type Parcel struct {
	ID      int64 `gorm:"primaryKey;autoIncrement:false;uid"`
	OrderID int64
	Status  int
	Weight  int64
	Street  string
	City    string
}

// A Slogan has a unique text, so a row with the text may already exist under another key.
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

// The models of a shop, with all kinds of associations.
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

// Twin gets its ids from the generator paired, which uses two worker ids.
type Twin struct {
	ID int64 `gorm:"primaryKey;autoIncrement:false;uid:paired"`
}

// A Composite has a key of two columns.
type Composite struct {
	Tenant int64 `gorm:"primaryKey;autoIncrement:false"`
	ID     int64 `gorm:"primaryKey;autoIncrement:false;uid"`
	Name   string
}

// Invoice is a model for tests with a mocked database.
type Invoice struct {
	ID    int64 `gorm:"primaryKey;autoIncrement:false;uid"`
	Total int
}

// Article is a model for tests with a mocked database.
type Article struct {
	ID   uidplugin.ID `gorm:"primaryKey;uid"`
	Name string
}

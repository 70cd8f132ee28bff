package fill_test

import (
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"gorm.io/gorm"
)

// shop returns a handle on the tables of a shop.
func shop(t *testing.T, options ...uidplugin.Option) *gorm.DB {
	t.Helper()
	db := plugintest.Open(t, options...)
	plugintest.Migrate(t, db, &plugintest.Customer{}, &plugintest.Purchase{}, &plugintest.Item{}, &plugintest.Profile{}, &plugintest.Club{}, &plugintest.Label{})
	return db
}

func TestAssociations_Many2ManyLeavesTheJoinTableToGORM(t *testing.T) {
	t.Parallel()

	db := shop(t)
	c := plugintest.Customer{Name: "Dot", Clubs: []plugintest.Club{{Name: "chess"}, {Name: "go"}}}
	must(t, db.Create(&c).Error)
	for _, k := range c.Clubs {
		plugintest.IsOurs(t, db, "clubs", k.ID)
		plugintest.Rows(t, 1, db, "memberships", "customer_id = ? AND club_id = ?", c.ID, k.ID)
	}
	for _, s := range uidplugin.From(db).Stats().Tables {
		if s.Table == "memberships" {
			t.Errorf("the join table has a worker id: %+v", s)
		}
	}
}

// The search for associations does not allocate an embedded pointer. Otherwise its columns would be zero and not
// NULL.
func TestAssociations_AnEmbeddedPointerStaysNil(t *testing.T) {
	t.Parallel()

	db := plugintest.Open(t)
	rows := []letter{{}, {Addressed: &addressed{Town: &town{}}}}
	filler(db)(statement(t, db, &rows))
	if rows[0].Addressed != nil {
		t.Errorf("%+v", rows[0].Addressed)
	}
}

// A join table that is set up late gets its worker id before the transaction, too, although db.Use and creates have seen
// the model before, and nothing else refers to the join table.
func TestAssociations_AJoinTableThatIsSetUpAfterUseIsReachable(t *testing.T) {
	t.Parallel()

	type spoke struct {
		ID int64 `gorm:"primaryKey;autoIncrement:false;uid"`
	}
	type axle struct {
		ID      int64 `gorm:"autoIncrement:false;uid"`
		WheelID int64 `gorm:"primaryKey"`
		SpokeID int64 `gorm:"primaryKey"`
	}
	type wheel struct {
		ID     int64   `gorm:"primaryKey;autoIncrement:false;uid"`
		Spokes []spoke `gorm:"many2many:axles"`
	}
	db := plugintest.Bare(t)
	plugintest.Migrate(t, db, &spoke{}, &axle{})
	plugintest.Migrate(t, db, &wheel{})
	plugintest.Use(t, db, uidplugin.WithModels(&wheel{}))
	must(t, db.Create(&wheel{Spokes: []spoke{}}).Error)
	must(t, db.SetupJoinTable(&wheel{}, "Spokes", &axle{}))
	plugintest.Single(t, db)
	row := wheel{Spokes: []spoke{{}}}
	must(t, db.Create(&row).Error)
	plugintest.IsOurs(t, db, "spokes", row.Spokes[0].ID)
	plugintest.Links(t, db, "axles", "spoke_id", "spokes", 1)
	var joined axle
	must(t, db.First(&joined).Error)
	plugintest.IsOurs(t, db, "axles", joined.ID)
	if p := uidplugin.From(db); len(p.Stats().Tables) != 3 {
		t.Errorf("%+v", p.Stats().Tables)
	}
}

// An update gets worker ids for its children before its transaction, because in the transaction a pool of one has no
// other connection.
func TestAssociations_AnUpdateGetsWorkerIDsForItsChildrenBeforeItsTransaction(t *testing.T) {
	t.Parallel()

	for _, update := range []func(db *gorm.DB, c *plugintest.Customer) error{
		func(db *gorm.DB, c *plugintest.Customer) error { return db.Updates(c).Error },
		func(db *gorm.DB, c *plugintest.Customer) error { return db.Model(c).Update("name", "Hal II").Error },
	} {
		db := shop(t)
		must(t, db.Exec("INSERT INTO customers (id, name) VALUES (5, 'Hal')").Error)
		plugintest.Single(t, db)
		c := plugintest.Customer{ID: 5, Purchases: []plugintest.Purchase{{Items: []*plugintest.Item{{Name: "nail"}}}}}
		must(t, update(db, &c))
		plugintest.IsOurs(t, db, "purchases", c.Purchases[0].ID)
		plugintest.IsOurs(t, db, "items", c.Purchases[0].Items[0].ID)
		plugintest.Links(t, db, "items", "purchase_id", "purchases", 1)
	}
}

func TestAssociations_AModelWithoutTagCreatesTaggedChildren(t *testing.T) {
	t.Parallel()

	type leg struct {
		ID      int64 `gorm:"primaryKey;autoIncrement:false;uid"`
		TableID uint
	}
	type table struct {
		ID   uint
		Legs []leg
	}
	db := plugintest.Open(t)
	plugintest.Migrate(t, db, &table{}, &leg{})
	plugintest.Single(t, db)
	row := table{Legs: make([]leg, 4)}
	must(t, db.Create(&row).Error)
	if row.ID != 1 {
		t.Errorf("the key is %d", row.ID)
	}
	plugintest.IsOurs(t, db, "legs", row.Legs[3].ID)
	plugintest.Links(t, db, "legs", "table_id", "tables", 4)
}

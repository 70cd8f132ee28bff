//go:build linux

package vitess_test

import (
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/follow"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm/clause"
)

// docs/distributed.md names these. If one of them works, correct the page.
func TestVitess_WhatDoesNotWork(t *testing.T) {
	v := need(t)
	s := v.open(t)
	o := Order{Customer: "Ada"}
	testkit.Must(t, s.db.Create(&o).Error)
	err := s.db.Clauses(clause.OnConflict{DoNothing: true}).Create(&Order{ID: o.ID}).Error
	testkit.IsError(t, err, nil, "VT12001")
	type Line struct {
		ID      uidplugin.ID
		OrderID uidplugin.ID
		Title   string
		Order   Order
	}
	testkit.IsError(t, s.db.Table("items").Create(&Line{Order: Order{Customer: "Bob"}}).Error, nil, "VT12001")
	testkit.IsError(t, follow.Enable(t.Context(), s.db, &Order{}), nil, "Vitess", "no triggers")

	type Migrated struct{ ID uidplugin.ID }
	m := v.open(t, uidplugin.WithModels(&Migrated{}))
	testkit.Must(t, m.db.Table("migrated").AutoMigrate(&Migrated{}))
	testkit.IsError(t, m.db.Table("migrated").AutoMigrate(&Migrated{}), nil, "exists")

	_, err = openShop(v.dsn("shop"), v.dsn("shop"))
	testkit.IsError(t, err, nil, "unsharded", "WithRegistry")
}

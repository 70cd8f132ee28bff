package main

import (
	"github.com/uidplugin/uidplugin"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// Invoice has a number without gaps, which only a consumer that misses no event and handles none twice can give.
type Invoice struct {
	Number   int `gorm:"primaryKey;autoIncrement:false"`
	EventID  uidplugin.ID
	Customer string
	Total    int
}

// Sale adds up the orders of a customer.
type Sale struct {
	Customer string `gorm:"primaryKey;size:40"`
	Orders   int
	Total    int
}

// consumers are those of this program.
var consumers = []consumer{{"invoices", invoice}, {"sales", sale}}

func invoice(tx *gorm.DB, e *Event) error {
	var last int
	if err := tx.Model(&Invoice{}).Select("COALESCE(MAX(number), 0)").Scan(&last).Error; err != nil {
		return err
	}
	return tx.Create(&Invoice{Number: last + 1, EventID: e.ID, Customer: e.Customer, Total: e.Total}).Error
}

func sale(tx *gorm.DB, e *Event) error {
	add := clause.Assignments(map[string]any{
		"orders": gorm.Expr("sales.orders + 1"),
		"total":  gorm.Expr("sales.total + ?", e.Total),
	})
	return tx.Clauses(clause.OnConflict{Columns: []clause.Column{{Name: "customer"}}, DoUpdates: add}).
		Create(&Sale{Customer: e.Customer, Orders: 1, Total: e.Total}).Error
}

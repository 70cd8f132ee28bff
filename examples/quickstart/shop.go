package main

import "github.com/uidplugin/uidplugin"

// Customer has the fields of gorm.Model, with a key that the plugin sets.
type Customer struct {
	uidplugin.Model
	Name   string
	Orders []Order
}

// Order has an integer for a key, and its customer's key in CustomerID.
type Order struct {
	ID         int64        `gorm:"primaryKey;uid"`
	CustomerID uidplugin.ID `gorm:"index"`
	Customer   *Customer
	Items      []Item
}

// Item has a uidplugin.ID for a key: in JSON a string of digits, which JavaScript
// does not round.
type Item struct {
	ID        uidplugin.ID `gorm:"primaryKey;uid"`
	OrderID   int64        `gorm:"index"`
	ProductID uidplugin.ID `gorm:"index"`
	Product   Product
	Quantity  int
}

// Product and Category have many of each other. GORM keeps the pairs in a table of
// their keys.
type Product struct {
	ID         uidplugin.ID `gorm:"primaryKey;uid"`
	Name       string
	Categories []Category `gorm:"many2many:product_categories"`
}

// Category is what a product is one of.
type Category struct {
	ID   uidplugin.ID `gorm:"primaryKey;uid"`
	Name string
}

var models = []any{&Customer{}, &Order{}, &Item{}, &Product{}, &Category{}}

// newCustomer returns a customer and all that she ordered. Nothing has an id yet.
func newCustomer() *Customer {
	tea := Product{Name: "tea", Categories: []Category{{Name: "drinks"}, {Name: "hot"}}}
	cake := Product{Name: "cake", Categories: []Category{{Name: "sweets"}}}
	return &Customer{Name: "Ada", Orders: []Order{
		{Items: []Item{{Quantity: 2, Product: tea}, {Quantity: 1, Product: cake}}},
		{Items: []Item{{Quantity: 7, Product: Product{Name: "cup"}}}},
	}}
}

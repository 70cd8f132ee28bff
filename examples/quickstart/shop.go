package main

import "github.com/uidplugin/uidplugin"

// Customer has the fields of gorm.Model, with a key set by the plugin.
type Customer struct {
	uidplugin.Model
	Name   string
	Orders []Order
}

// Order has an integer key. CustomerID is set from its customer's key.
type Order struct {
	ID         int64        `gorm:"primaryKey;uid"`
	CustomerID uidplugin.ID `gorm:"index"`
	Customer   *Customer
	Items      []Item
}

// Item has a uidplugin.ID as key. JSON contains it as a string of digits, because JavaScript would round the number.
type Item struct {
	ID        uidplugin.ID `gorm:"primaryKey;uid"`
	OrderID   int64        `gorm:"index"`
	ProductID uidplugin.ID `gorm:"index"`
	Product   Product
	Quantity  int
}

// Product has many categories, and a category many products. GORM keeps the pairs in a join table.
type Product struct {
	ID         uidplugin.ID `gorm:"primaryKey;uid"`
	Name       string
	Categories []Category `gorm:"many2many:product_categories"`
}

// Category groups products.
type Category struct {
	ID   uidplugin.ID `gorm:"primaryKey;uid"`
	Name string
}

var models = []any{&Customer{}, &Order{}, &Item{}, &Product{}, &Category{}}

// newCustomer returns a customer with orders. Nothing has an id yet.
func newCustomer() *Customer {
	tea := Product{Name: "tea", Categories: []Category{{Name: "drinks"}, {Name: "hot"}}}
	cake := Product{Name: "cake", Categories: []Category{{Name: "sweets"}}}
	return &Customer{Name: "Ada", Orders: []Order{
		{Items: []Item{{Quantity: 2, Product: tea}, {Quantity: 1, Product: cake}}},
		{Items: []Item{{Quantity: 7, Product: Product{Name: "cup"}}}},
	}}
}

package uidtest_test

import (
	"fmt"
	"log"
	"time"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/glebarez/sqlite"
	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/uidtest"
	"gorm.io/driver/mysql"
	"gorm.io/gorm"
)

// Order is a model of the application.
type Order struct {
	ID    uidplugin.ID `gorm:"primaryKey;uid"`
	Total int
	Lines []Line
}

// Line is another one, which belongs to an order.
type Line struct {
	ID      uidplugin.ID `gorm:"primaryKey;uid"`
	OrderID uidplugin.ID
	Item    string
}

// openExample opens an empty database in memory.
func openExample() *gorm.DB {
	db, err := gorm.Open(sqlite.Open(":memory:"), &gorm.Config{})
	if err != nil {
		log.Fatal(err)
	}
	pool, err := db.DB()
	if err != nil {
		log.Fatal(err)
	}
	pool.SetMaxOpenConns(1) // each connection would have a database of its own
	return db
}

// Each table counts from 1, as AUTO_INCREMENT does.
func ExampleSequential() {
	db := openExample()
	if err := db.Use(uidtest.Sequential()); err != nil {
		log.Fatal(err)
	}
	if err := db.AutoMigrate(&Order{}, &Line{}); err != nil {
		log.Fatal(err)
	}

	for range 2 {
		order := Order{Lines: []Line{{Item: "tea"}, {Item: "cup"}}}
		if err := db.Create(&order).Error; err != nil {
			log.Fatal(err)
		}
		fmt.Println(order.ID, order.Lines[0].ID, order.Lines[1].ID)
	}
	// Output:
	// 1 1 2
	// 2 3 4
}

// The ids look like those of production, and are the same in each run.
func ExampleFixed() {
	db := openExample()
	noon := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	if err := db.Use(uidtest.Fixed(noon)); err != nil {
		log.Fatal(err)
	}
	if err := db.AutoMigrate(&Order{}, &Line{}); err != nil {
		log.Fatal(err)
	}

	order := Order{Lines: []Line{{Item: "tea"}}}
	if err := db.Create(&order).Error; err != nil {
		log.Fatal(err)
	}
	fmt.Println(order.ID, order.Lines[0].ID)
	parts, err := uidplugin.From(db).Decode(order.ID)
	fmt.Println(parts.Time, err)
	// Output:
	// 1113799104923122896 1113799104922643536
	// 2026-06-01 12:00:00 +0000 UTC <nil>
}

// The mock expects the statements of the application, and no others. List the models as in production: otherwise GORM
// treats an int64 key as AUTO_INCREMENT and sends another INSERT.
func Example_sqlmock() {
	pool, mock, err := sqlmock.New()
	if err != nil {
		log.Fatal(err)
	}
	db, err := gorm.Open(mysql.New(mysql.Config{Conn: pool, SkipInitializeWithVersion: true}), &gorm.Config{})
	if err != nil {
		log.Fatal(err)
	}
	if err := db.Use(uidtest.Sequential(uidplugin.WithModels(&Order{}))); err != nil {
		log.Fatal(err)
	}

	mock.ExpectBegin()
	mock.ExpectExec("INSERT INTO `orders`").WithArgs(1, 42).WillReturnResult(sqlmock.NewResult(0, 1))
	mock.ExpectCommit()
	order := Order{Total: 42}
	fmt.Println(db.Create(&order).Error, order.ID, mock.ExpectationsWereMet())
	// Output: <nil> 1 <nil>
}

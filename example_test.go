package uidplugin_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/glebarez/sqlite"
	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// Order is a model like any other, but for the tag of its key.
type Order struct {
	ID    int64 `gorm:"primaryKey;autoIncrement:false;uid"`
	Total int
}

// openExample opens an empty database; done removes it.
func openExample() (db *gorm.DB, done func()) {
	dir, err := os.MkdirTemp("", "uidplugin")
	if err != nil {
		log.Fatal(err)
	}
	db, err = gorm.Open(sqlite.Open(filepath.Join(dir, "example.db")), &gorm.Config{})
	if err != nil {
		log.Fatal(err)
	}
	return db, func() {
		if pool, err := db.DB(); err == nil {
			_ = pool.Close()
		}
		_ = os.RemoveAll(dir)
	}
}

func ExampleNew() {
	db, done := openExample()
	defer done()

	plugin := uidplugin.New(
		uidplugin.WithModels(&Order{}),
		uidplugin.WithLogger(nil),
	)
	if err := db.Use(plugin); err != nil {
		log.Fatal(err)
	}
	if err := db.AutoMigrate(&Order{}); err != nil {
		log.Fatal(err)
	}

	orders := []Order{{Total: 10}, {Total: 20}, {ID: 5, Total: 30}}
	if err := db.Create(&orders).Error; err != nil {
		log.Fatal(err)
	}
	fmt.Println(orders[0].ID > 0, orders[1].ID > orders[0].ID, orders[2].ID)
	// Output: true true 5
}

func ExampleFrom() {
	db, done := openExample()
	defer done()
	if err := db.Use(uidplugin.New(uidplugin.WithModels(&Order{}), uidplugin.WithLogger(nil))); err != nil {
		log.Fatal(err)
	}

	// Anywhere in the application, the handle is enough.
	for _, table := range uidplugin.From(db).Stats().Tables {
		fmt.Println(table.Table, table.Generator, table.WorkerIDs[0])
	}
	// Output: orders cached 1025
}

func ExamplePlugin_Locate() {
	db, done := openExample()
	defer done()
	host := workernode.Host{Name: "web-1", Port: "8080", Kind: workernode.Container}
	if err := db.Use(uidplugin.New(uidplugin.WithHost(host), uidplugin.WithLogger(nil))); err != nil {
		log.Fatal(err)
	}
	if err := db.AutoMigrate(&Order{}); err != nil {
		log.Fatal(err)
	}
	order := Order{Total: 10}
	if err := db.Create(&order).Error; err != nil {
		log.Fatal(err)
	}

	where, err := uidplugin.From(db).Locate(context.Background(), uidplugin.ID(order.ID))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(where.Table, where.Session.Host, where.Session.Port, where.Session.Kind, where.WorkerID)

	_, err = uidplugin.From(db).Locate(context.Background(), -7)
	fmt.Println(err)
	// Output:
	// orders web-1 8080 CONTAINER 1025
	// uidplugin: negative id: -7
}

func ExamplePlugin_Find() {
	db, done := openExample()
	defer done()
	if err := db.Use(uidplugin.New(uidplugin.WithModels(&Order{}), uidplugin.WithLogger(nil))); err != nil {
		log.Fatal(err)
	}
	if err := db.AutoMigrate(&Order{}); err != nil {
		log.Fatal(err)
	}
	order := Order{Total: 10}
	if err := db.Create(&order).Error; err != nil {
		log.Fatal(err)
	}

	row, err := uidplugin.From(db).Find(context.Background(), uidplugin.ID(order.ID))
	if err != nil {
		log.Fatal(err)
	}
	switch row := row.(type) {
	case *Order:
		fmt.Println("an order of", row.Total)
	default:
		fmt.Printf("a %T\n", row)
	}
	// Output: an order of 10
}

func ExamplePlugin_Decode() {
	plugin := uidplugin.New(uidplugin.WithLayout(generator.DefaultLayout()))

	parts, err := plugin.Decode(1_113_799_104_921_619_749)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(parts.Time, parts.WorkerID, parts.Sequence)
	// Output: 2026-06-01 12:00:00 +0000 UTC 1234 5
}

func ExamplePlugin_NextID() {
	db, done := openExample()
	defer done()
	if err := db.Use(uidplugin.New(uidplugin.WithModels(&Order{}), uidplugin.WithLogger(nil))); err != nil {
		log.Fatal(err)
	}
	if err := db.AutoMigrate(&Order{}); err != nil {
		log.Fatal(err)
	}

	id, err := uidplugin.From(db).NextID(context.Background(), &Order{})
	if err != nil {
		log.Fatal(err)
	}
	order := Order{ID: int64(id), Total: 10}
	fmt.Println(db.Create(&order).Error, order.ID == int64(id))
	// Output: <nil> true
}

func ExampleID() {
	type order struct {
		ID    uidplugin.ID `json:"id" gorm:"primaryKey;uid"`
		Total int          `json:"total"`
	}
	text, err := json.Marshal(order{ID: 302914527191040001, Total: 10})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(text))

	var o order
	if err := json.Unmarshal([]byte(`{"id": 302914527191040001}`), &o); err != nil {
		log.Fatal(err)
	}
	fmt.Println(o.ID)
	// Output:
	// {"id":"302914527191040001","total":10}
	// 302914527191040001
}

func ExampleParseID() {
	id, err := uidplugin.ParseID("302914527191040001")
	fmt.Println(id, err)
	_, err = uidplugin.ParseID("ord_7")
	fmt.Println(err)
	// Output:
	// 302914527191040001 <nil>
	// uidplugin: not an id: "ord_7": invalid syntax
}

// The published 53-bit variant: ids that a JavaScript number holds, and a second worker id for a burst. The clock stands
// still here, so that the output is the same in each run.
func Example_fiftyThreeBits() {
	db, done := openExample()
	defer done()

	noon := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	plugin := uidplugin.New(
		uidplugin.WithLayout(generator.JSSafeLayout()),
		uidplugin.WithDefaultGenerator("paired"),
		uidplugin.WithWorkerID(3), // 0 to 15, each in one process only
		uidplugin.WithModels(&Order{}),
		uidplugin.WithClock(func() time.Time { return noon }),
	)
	if err := db.Use(plugin); err != nil {
		log.Fatal(err)
	}
	made := map[int64]int{} // by worker id
	for range 100_000 {
		id, err := plugin.NextID(context.Background(), &Order{})
		if err != nil || id >= 1<<53 {
			log.Fatal(id, err)
		}
		parts, err := plugin.Decode(id)
		if err != nil {
			log.Fatal(err)
		}
		made[parts.WorkerID]++
	}
	fmt.Println(made)
	// Output: map[3:65536 19:34464]
}

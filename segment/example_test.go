package segment_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/glebarez/sqlite"
	"github.com/uidplugin/uidplugin/segment"
	"gorm.io/gorm"
)

// A table has rows up to id 5000, and goes on from there.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "segment")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	db, err := gorm.Open(sqlite.Open(filepath.Join(dir, "shop.db")), &gorm.Config{})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	g, err := segment.Open(ctx, db, "orders", segment.Config{Start: 5001, Step: 1000, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	defer g.Close()

	one, err := g.Next(ctx)
	if err != nil {
		panic(err)
	}
	batch := make([]int64, 2500)
	if err := g.Fill(ctx, batch); err != nil {
		panic(err)
	}
	fmt.Println(one, batch[0], batch[2499])
	// Output: 5001 5002 7501
}

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

// A table has rows up to id 5000, and ids continue from there.
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

	// Another process has ranges of its own, so the ids of both together do not ascend. A process that ends leaves a
	// hole: the rest of its ranges.
	other, err := segment.Open(ctx, db, "orders", segment.Config{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	defer other.Close()
	theirs, err := other.Next(ctx)
	fmt.Println(theirs > 7501, err)
	// Output:
	// 5001 5002 7501
	// true <nil>
}

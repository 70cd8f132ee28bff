package migrations_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/glebarez/sqlite"
	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/migrations"
	"gorm.io/gorm"
)

// A job that has the right to create tables does so before the processes start.
func ExampleUp() {
	dir, err := os.MkdirTemp("", "migrations")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	db, err := gorm.Open(sqlite.Open(filepath.Join(dir, "shop.db")), &gorm.Config{})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	fmt.Println(errors.Is(migrations.Check(ctx, db), uidplugin.ErrTable))
	if err := migrations.Up(ctx, db); err != nil {
		panic(err)
	}
	fmt.Println(migrations.Check(ctx, db))
	// Output:
	// true
	// <nil>
}

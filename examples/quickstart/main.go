// Quickstart fills a small shop with rows, and shows the origin of their ids. It needs only Go, because the database is
// a SQLite file:
//
//	go run ./examples/quickstart        # one screen
//	go run ./examples/quickstart -tour  # all of it
//
// main.go opens the database, shop.go contains the models, and show.go prints the tour.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/glebarez/sqlite"
	"github.com/uidplugin/uidplugin"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
	"gorm.io/gorm/schema"
)

func main() {
	slog.SetLogLoggerLevel(slog.LevelWarn) // hide the log lines about worker ids, which -tour prints
	file := flag.String("file", filepath.Join(os.TempDir(), "uidplugin-quickstart.db"), "the SQLite file, created if it does not exist")
	long := flag.Bool("tour", false, "also show batches, errors, worker ids and statistics")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *file, *long, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

// run returns errors instead of exiting, so that deferred calls run.
func run(ctx context.Context, file string, long bool, out io.Writer) (err error) {
	// For another database, change only gorm.Open.
	db, err := gorm.Open(sqlite.Open(file+"?_pragma=foreign_keys(1)&_pragma=busy_timeout(5000)"), &gorm.Config{
		Logger:         logger.Discard, // errors are returned as well
		NamingStrategy: schema.NamingStrategy{TablePrefix: "shop_"},
	})
	if err != nil {
		return fmt.Errorf("open %s: %w; choose another file with -file", file, err)
	}
	pool, err := db.DB()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pool.Close()) }()
	db = db.WithContext(ctx)

	// The plugin needs only this. WithModels gets worker ids now instead of at the first create, and lets Find load
	// rows of these tables.
	plugin := uidplugin.New(uidplugin.WithModels(models...))
	if err := db.Use(plugin); err != nil {
		return fmt.Errorf("set up ids in %s: %w; choose another file with -file", file, err)
	}
	// Close releases the slot, so it should run before the pool is closed.
	defer func() { err = errors.Join(err, plugin.Close(context.WithoutCancel(ctx))) }()
	// Migrate after db.Use, so that keys become plain BIGINT instead of AUTO_INCREMENT.
	if err := db.AutoMigrate(models...); err != nil {
		return fmt.Errorf("create the tables of the shop: %w", err)
	}
	fmt.Fprintf(out, "A small shop in %s; to start afresh, delete this file.\n", file)
	if err := (&tour{out: out, long: long, db: db, plugin: plugin}).show(ctx); err != nil || long {
		return err
	}
	_, err = fmt.Fprintln(out, "\nWith -tour it also shows batches, errors, worker ids and statistics.")
	return err
}

// Quickstart fills a small shop with rows, and shows where their ids come from. It needs nothing but Go, as the
// database is an SQLite file:
//
//	go run ./examples/quickstart
//
// main.go opens the database, shop.go has the models, show.go what is shown.
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
	"strings"

	"github.com/glebarez/sqlite"
	"github.com/uidplugin/uidplugin"
	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
	"gorm.io/gorm/schema"
)

const usage = `Quickstart fills a small shop with rows and asks their ids where they came from.
Run it twice: the second run shows that ids go on ascending.

  -file FILE      the SQLite file, made if it is missing; if not given, this is
                  %s
  -dsn DSN        MySQL or MariaDB instead, such as
                  'user:password@tcp(127.0.0.1:3306)/test?parseTime=true'
  -postgres DSN   PostgreSQL instead, such as
                  'host=127.0.0.1 user=me password=secret dbname=test'

The rows stay there, in tables called shop_..., next to the plugin's tables
WORKER_.... On a server, take a database for trying things out.
`

func main() {
	slog.SetLogLoggerLevel(slog.LevelWarn) // not that worker ids were assigned: it is shown below
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

// run returns instead of exiting, so that what is open gets closed.
func run(ctx context.Context, args []string, out io.Writer) (err error) {
	d, err := choose(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(out, usage, defaultFile())
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w (-h explains the flags)", err)
	}
	db, err := gorm.Open(d.dialector, &gorm.Config{
		Logger:         logger.Discard, // errors are returned as well
		NamingStrategy: schema.NamingStrategy{TablePrefix: "shop_"},
	})
	if err != nil {
		return fmt.Errorf("cannot open the database: %w\n%s", err, d.advice)
	}
	pool, err := db.DB()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pool.Close()) }()
	db = db.WithContext(ctx)

	// This is all that the plugin needs. WithModels gets the worker ids now, not at
	// the first create, and lets Find load the rows of every table.
	plugin := uidplugin.New(uidplugin.WithModels(models...))
	if err := db.Use(plugin); err != nil {
		return fmt.Errorf("cannot set up ids: %w\n%s", err, d.advice)
	}
	// Releases the slot; before the pool is closed.
	defer func() { err = errors.Join(err, plugin.Close(context.WithoutCancel(ctx))) }()
	// After db.Use, so that keys become plain BIGINT, not AUTO_INCREMENT.
	if err := db.AutoMigrate(models...); err != nil {
		return fmt.Errorf("cannot create the tables of the shop: %w\n%s", err, d.advice)
	}
	fmt.Fprintf(out, "A small shop with uidplugin, in %s\nTo start afresh, %s.\n", d.name, d.afresh)
	return (&tour{out: out, db: db, plugin: plugin}).show(ctx)
}

func defaultFile() string { return filepath.Join(os.TempDir(), "uidplugin-quickstart.db") }

// A database is what the flags name.
type database struct {
	dialector    gorm.Dialector
	name, afresh string
	advice       string // if it does not work
}

func server(name string, d gorm.Dialector) database {
	return database{d, "the " + name + " server", "drop the tables shop_... and WORKER_...",
		"Does the server run, are address, user, password and database right, and may\n" +
			"the user create tables and write? Without flags no server is needed."}
}

func choose(args []string) (d database, err error) {
	flags := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // main says it
	file := flags.String("file", defaultFile(), "")
	mysqlDSN := flags.String("dsn", "", "")
	postgresDSN := flags.String("postgres", "", "")
	if err := flags.Parse(args); err != nil {
		return d, err
	}
	flags.Visit(func(f *flag.Flag) {
		if f.Value.String() == "" {
			err = fmt.Errorf("-%s is empty", f.Name)
		}
	})
	switch {
	case err != nil:
		return d, err
	case flags.NArg() > 0:
		return d, fmt.Errorf("%q is not a flag", flags.Arg(0))
	case flags.NFlag() > 1:
		return d, errors.New("-file, -dsn and -postgres exclude each other")
	case *mysqlDSN != "" && !strings.Contains(*mysqlDSN, "parseTime=true"):
		return d, errors.New("the DSN needs ?parseTime=true at its end, or GORM cannot read times")
	case *mysqlDSN != "":
		return server("MySQL or MariaDB", mysql.Open(*mysqlDSN)), nil
	case *postgresDSN != "":
		return server("PostgreSQL", postgres.Open(*postgresDSN)), nil
	}
	return database{sqlite.Open(*file + "?_pragma=foreign_keys(1)&_pragma=busy_timeout(5000)"), *file, "delete this file",
		"Is " + *file + " a file of SQLite, or can one be made there? -file FILE takes another."}, nil
}

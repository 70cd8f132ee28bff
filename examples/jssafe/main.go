// Jssafe sends ids through JSON into JavaScript and back, and shows what comes back: numbers of 63 bits, strings, and
// numbers of 53 bits. The JavaScript engine is written in Go, and the database is an SQLite file, so it needs nothing
// but Go:
//
//	go run ./examples/jssafe
//
// Because of the engine it is a module of its own. go.work ties it to the others. Without go.work, use go -C
// examples/jssafe run .
//
// main.go opens the databases, show.go has what is shown.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/dop251/goja"
	"github.com/glebarez/sqlite"
	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// Order has a number for a key, in JSON too.
type Order struct {
	ID    int64 `gorm:"primaryKey;uid" json:"id"`
	Total int   `json:"total"`
}

// Invoice has a key that is a string in JSON.
type Invoice struct {
	ID    uidplugin.ID `gorm:"primaryKey;uid" json:"id"`
	Total int          `json:"total"`
}

var models = []any{&Order{}, &Invoice{}}

func main() {
	slog.SetLogLoggerLevel(slog.LevelWarn) // not that worker ids were assigned
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "jssafe:", err)
		os.Exit(1)
	}
}

// run returns instead of exiting, so that what is open gets closed.
func run(ctx context.Context, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "uidplugin-jssafe")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s := show{ctx: ctx, out: out, js: goja.New()}

	// A database has one layout, which its first process pins there.
	for _, part := range []struct {
		file   string
		layout generator.Layout
		show   func() error
	}{
		{"default.db", generator.DefaultLayout(), func() error { return errors.Join(s.number(), s.text()) }},
		{"jssafe.db", generator.JSSafeTablesLayout(), s.safe},
	} {
		if err := s.with(filepath.Join(dir, part.file), part.layout, part.show); err != nil {
			return err
		}
	}
	return s.layouts()
}

// with opens a database whose ids have a layout, for as long as f runs.
func (s *show) with(file string, layout generator.Layout, f func() error) (err error) {
	db, err := gorm.Open(sqlite.Open(file+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)"),
		&gorm.Config{Logger: logger.Discard}) // errors are returned as well
	if err != nil {
		return err
	}
	pool, err := db.DB()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pool.Close()) }()
	s.db, s.ids = db.WithContext(s.ctx), uidplugin.New(uidplugin.WithLayout(layout), uidplugin.WithModels(models...))
	if err := s.db.Use(s.ids); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.ids.Close(context.WithoutCancel(s.ctx))) }()
	if err := s.db.AutoMigrate(models...); err != nil {
		return err
	}
	return f()
}

// Command mixed creates rows, and locates rows of all processes, until its input ends. TestPreviousBuild builds the
// command with the library of two commits, so it uses only functions that both commits have.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/glebarez/sqlite"
	"github.com/uidplugin/uidplugin"
	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

type (
	mixedA struct {
		ID int64 `gorm:"primaryKey;autoIncrement:false;uid"`
	}
	mixedB mixedA
	mixedC mixedA // not in WithModels, so in a transaction commit 50a12e8 gives it worker ids without a table
)

func (mixedA) TableName() string { return "mixed_a" }
func (mixedB) TableName() string { return "mixed_b" }
func (mixedC) TableName() string { return "mixed_c" }

var errPlace = errors.New("wrong table")

func main() {
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(engine, dsn string) error {
	dial := map[string]func(string) gorm.Dialector{"mysql": mysql.Open, "mariadb": mysql.Open, "postgres": postgres.Open, "sqlite": sqlite.Open}
	db, err := gorm.Open(dial[engine](dsn), &gorm.Config{Logger: logger.Discard, TranslateError: true})
	if err != nil {
		return err
	}
	pool, err := db.DB()
	if err != nil {
		return err
	}
	pool.SetMaxOpenConns(4)
	p := uidplugin.New(uidplugin.WithModels(&mixedA{}, &mixedB{}), uidplugin.WithLead(2*time.Second),
		uidplugin.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, nil))))
	if err := db.Use(p); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	var work sync.WaitGroup
	errs := make(chan error, 4)
	for _, do := range []func() error{
		func() error { return create[mixedA](db) },
		func() error { return create[mixedB](db) },
		func() error {
			if engine == "sqlite" { // SQLite cannot add a worker id during a transaction
				return create[mixedC](db)
			}
			return db.Transaction(create[mixedC])
		},
		func() error { return locate(ctx, db, p) },
	} {
		work.Go(func() {
			for ctx.Err() == nil {
				err := do()
				if errors.Is(err, gorm.ErrDuplicatedKey) || errors.Is(err, uidplugin.ErrUnknownID) || errors.Is(err, errPlace) {
					errs <- err
					stop()
					return
				}
				if err != nil { // such as a lease that expired on a busy machine
					fmt.Fprintln(os.Stderr, err)
				}
				time.Sleep(50 * time.Millisecond)
			}
		})
	}
	work.Wait()
	close(errs)
	closing, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := p.Close(closing); err != nil { // for example on SQLite, if other processes write for a long time
		fmt.Fprintln(os.Stderr, err)
	}
	return <-errs
}

func create[T any](db *gorm.DB) error {
	rows := make([]T, 20)
	if err := db.Create(&rows).Error; err != nil {
		return err
	}
	fmt.Println(len(rows))
	return nil
}

// locate locates the latest rows, most of which other processes have created. It leaves out mixed_c, whose worker
// ids may have no table yet.
func locate(ctx context.Context, db *gorm.DB, p *uidplugin.Plugin) error {
	for _, table := range []string{"mixed_a", "mixed_b"} {
		var ids []uidplugin.ID
		if err := db.Table(table).Order("id DESC").Limit(30).Pluck("id", &ids).Error; err != nil {
			return err
		}
		for _, id := range ids {
			l, err := p.Locate(ctx, id)
			if err != nil {
				return fmt.Errorf("locate a row of %s: %w", table, err)
			}
			if l.Table != table {
				return fmt.Errorf("%w: the id %d of %s is located in %q", errPlace, id, table, l.Table)
			}
		}
	}
	return nil
}

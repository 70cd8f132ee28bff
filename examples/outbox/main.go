// Outbox is a transactional outbox: orders and events are created in one transaction, and two consumers follow the
// events, each once and in the order of their ids. It needs only Go, because the database is a SQLite file:
//
//	go run ./examples/outbox
//	go run ./examples/outbox -mysql 'user:password@tcp(localhost:3306)/shop?parseTime=true'  # or MariaDB
//	go run ./examples/outbox -postgres postgres://user:password@localhost/shop
//
// outbox.go is what you need in a program of your own, consumers.go contains the two consumers, and main.go lets them
// run. Run it again, or in two terminals at once: the consumers continue where the others have stopped.
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
	"slices"
	"sync"
	"time"

	"github.com/glebarez/sqlite"
	"github.com/uidplugin/uidplugin"
	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

func main() {
	slog.SetLogLoggerLevel(slog.LevelWarn) // hide the assignment of worker ids
	file := flag.String("file", filepath.Join(os.TempDir(), "uidplugin-outbox.db"), "the SQLite file, created if it does not exist")
	mysqlDSN := flag.String("mysql", "", "a database of MySQL or MariaDB instead of the file")
	postgresDSN := flag.String("postgres", "", "a database of PostgreSQL instead of the file")
	flag.Parse()
	dialector := sqlite.Open(*file + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)")
	switch {
	case *mysqlDSN != "":
		dialector = mysql.Open(*mysqlDSN)
	case *postgresDSN != "":
		dialector = postgres.Open(*postgresDSN)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, dialector, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "outbox:", err)
		os.Exit(1)
	}
}

// run returns errors instead of exiting, so that deferred calls run.
func run(ctx context.Context, dialector gorm.Dialector, out io.Writer) (err error) {
	db, err := open(dialector)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeAll(db)) }()
	if err := migrate(ctx, db); err != nil {
		return err
	}

	following, stop := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	defer stop()
	for _, c := range consumers {
		c.handle = failOnce(c.handle)
		group.Go(func() { c.run(following, db) })
	}

	for i, customer := range []string{"Ada", "Bob", "Ada", "Cem", "Bob", "Ada"} {
		if err := place(ctx, db, customer, 10*(i+1)); err != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err := caughtUp(ctx, db); err != nil {
		return err
	}
	return report(db.WithContext(ctx), out)
}

// failOnce makes a consumer fail between the effect and the commit of its third event. The consumer then handles this
// event again.
func failOnce(handle func(*gorm.DB, *Event) error) func(*gorm.DB, *Event) error {
	n := 0
	return func(tx *gorm.DB, e *Event) error {
		err := handle(tx, e)
		if n++; err == nil && n == 3 {
			err = errors.New("a failure between effect and commit, to show that both are rolled back")
		}
		return err
	}
}

// open opens a database with the plugin.
func open(dialector gorm.Dialector) (*gorm.DB, error) {
	db, err := gorm.Open(dialector, &gorm.Config{Logger: logger.Discard}) // errors are returned as well
	if err != nil {
		return nil, err
	}
	if err := db.Use(uidplugin.New(uidplugin.WithModels(&Order{}, &Event{}))); err != nil {
		return nil, errors.Join(err, closePool(db))
	}
	return db, nil
}

// caughtUp waits until all consumers have handled the events that exist.
func caughtUp(ctx context.Context, db *gorm.DB) error {
	var last uidplugin.ID
	if err := db.WithContext(ctx).Model(&Event{}).Select("MAX(id)").Scan(&last).Error; err != nil {
		return err
	}
	for {
		var done int64
		err := db.WithContext(ctx).Model(&Cursor{}).Where("event_id >= ?", last).Count(&done).Error
		if err != nil || int(done) == len(consumers) {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// report prints the effects of the events.
func report(db *gorm.DB, out io.Writer) error {
	var events int64
	var last []Invoice
	var sales []Sale
	err := errors.Join(db.Model(&Event{}).Count(&events).Error,
		db.Order("number DESC").Limit(6).Find(&last).Error, db.Order("customer").Find(&sales).Error)
	fmt.Fprintf(out, "There are %d events. The last invoices:\n\n", events)
	for _, i := range slices.Backward(last) {
		fmt.Fprintf(out, "  invoice %d of the event %d: %s, %d\n", i.Number, i.EventID, i.Customer, i.Total)
	}
	fmt.Fprint(out, "\nAll sales:\n\n")
	for _, s := range sales {
		fmt.Fprintf(out, "  %s, orders: %d, total: %d\n", s.Customer, s.Orders, s.Total)
	}
	return err
}

// closeAll closes the plugin first, because that releases the slot, and then the pool.
func closeAll(db *gorm.DB) error {
	return errors.Join(uidplugin.From(db).Close(context.Background()), closePool(db))
}

func closePool(db *gorm.DB) error {
	pool, err := db.DB()
	if err != nil {
		return err
	}
	return pool.Close()
}

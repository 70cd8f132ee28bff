// Outbox is a transactional outbox: orders and events are created in one transaction, and two consumers each handle
// every event once, in the order of the ids. It needs only Go, because the database is a SQLite file:
//
//	go run ./examples/outbox
//	go run ./examples/outbox -dsn 'user:password@tcp(localhost:3306)/shop'  # MySQL or MariaDB
//	go run ./examples/outbox -dsn postgres://user:password@localhost/shop
//
// outbox.go is the application, and main.go runs it. Run it again, or in two terminals at once: the consumers
// continue where earlier ones have stopped.
package main

import (
	"cmp"
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
	"strings"
	"time"

	"github.com/glebarez/sqlite"
	"github.com/uidplugin/uidplugin"
	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

func main() {
	slog.SetLogLoggerLevel(slog.LevelWarn) // hide the log lines about worker ids
	dsn := flag.String("dsn", filepath.Join(os.TempDir(), "uidplugin-outbox.db"), "a database of MySQL, MariaDB or PostgreSQL, or a SQLite file")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, dialector(*dsn), os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "outbox:", err)
		os.Exit(1)
	}
}

func dialector(dsn string) gorm.Dialector {
	switch {
	case strings.HasPrefix(dsn, "postgres"):
		return postgres.Open(dsn)
	case strings.ContainsAny(dsn, "@("):
		return mysql.Open(dsn)
	}
	return sqlite.Open(dsn + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)")
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

	ctx, stop := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		stop(consume(ctx, db)) // ends placeSome, too, if the consumers fail, because nobody would handle its events
		close(ended)
	}()
	defer func() {
		stop(nil)
		<-ended
	}()
	if err := placeSome(ctx, db); err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	return report(db.WithContext(ctx), out)
}

// placeSome places orders, and waits until both consumers have handled all events.
func placeSome(ctx context.Context, db *gorm.DB) error {
	for i, customer := range []string{"Ada", "Bob", "Ada", "Cem", "Bob", "Ada"} {
		if err := place(ctx, db, customer, 10*(i+1)); err != nil {
			return err
		}
	}
	var events, invoices, sales int
	const count = "SELECT (SELECT COUNT(*) FROM events), (SELECT COUNT(*) FROM invoices), (SELECT COALESCE(SUM(orders), 0) FROM sales)"
	for {
		if err := db.WithContext(ctx).Raw(count).Row().Scan(&events, &invoices, &sales); err != nil || invoices >= events && sales >= events {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

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

// closeAll closes the plugin, which releases the slot through the pool, and then the pool.
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

// Node serves rows of three tables by their public ids. A caller gets the rows of its tenant, and the same 404 for
// any other id. It needs only Go:
//
//	go run ./examples/node                          # shows some requests
//	go run ./examples/node -listen 127.0.0.1:8080   # serves
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/glebarez/sqlite"
	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/publicid"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// The keys do not need tags, because their type marks them.
type (
	// Customer is a row of a tenant.
	Customer struct {
		ID     publicid.ID[Customer] `json:"id"`
		Tenant string                `json:"-" gorm:"size:20;index"`
		Name   string                `json:"name"`
	}
	// Order is a row of a tenant.
	Order struct {
		ID         publicid.ID[Order]    `json:"id"`
		Tenant     string                `json:"-" gorm:"size:20;index"`
		CustomerID publicid.ID[Customer] `json:"customer"`
		Items      []Item                `json:"-"`
	}
	// Item has the tenant of its order.
	Item struct {
		ID      publicid.ID[Item]  `json:"id"`
		OrderID publicid.ID[Order] `json:"order"`
		Article string             `json:"article"`
	}
	// Session is secret, so the handlers never serve it.
	Session struct {
		ID     publicid.ID[Session]
		Tenant string
		Secret string
	}
)

// PublicPrefix implements [publicid.Type].
func (Customer) PublicPrefix() string { return "cus" }

// PublicPrefix implements [publicid.Type].
func (Order) PublicPrefix() string { return "ord" }

// PublicPrefix implements [publicid.Type].
func (Item) PublicPrefix() string { return "itm" }

// PublicPrefix implements [publicid.Type].
func (Session) PublicPrefix() string { return "ses" }

func main() {
	slog.SetLogLoggerLevel(slog.LevelWarn) // hide the log lines about worker ids
	listen := flag.String("listen", "", "serve on this address, such as 127.0.0.1:8080, instead of showing some requests")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout, *listen)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "node:", err)
		os.Exit(1)
	}
}

// run returns errors instead of exiting, so that deferred calls run.
func run(ctx context.Context, out io.Writer, listen string) (err error) {
	dir, err := os.MkdirTemp("", "uidplugin-node")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	db, err := open(filepath.Join(dir, "node.db"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeAll(db)) }()
	ids, err := fill(db)
	if err != nil {
		return err
	}
	address := listen
	if address == "" {
		address = "127.0.0.1:0"
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler(db), ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	url := "http://" + listener.Addr().String()
	if listen == "" {
		err = show(ctx, out, url, ids)
	} else {
		fmt.Fprintf(out, "curl -H 'X-Tenant: red' %s/node/%s\n", url, ids[0])
		select {
		case <-ctx.Done():
		case err = <-served:
		}
	}
	stop, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return errors.Join(err, server.Shutdown(stop))
}

// open opens a SQLite file with the plugin, and creates the tables.
func open(path string) (*gorm.DB, error) {
	// An application should load its keys, 32 random bytes each, from its secret store.
	keys, err := publicid.NewKeys([]byte("an example's key of just 32 bytes"[:publicid.KeySize]))
	if err != nil {
		return nil, err
	}
	if err := publicid.SetKeys(keys); err != nil {
		return nil, err
	}
	dsn := path + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)"
	db, err := gorm.Open(sqlite.Open(dsn), &gorm.Config{Logger: logger.Default.LogMode(logger.Error)})
	if err != nil {
		return nil, err
	}
	models := []any{&Customer{}, &Order{}, &Item{}, &Session{}}
	if err := db.Use(uidplugin.New(uidplugin.WithModels(models...))); err != nil {
		return nil, errors.Join(err, closePool(db))
	}
	if err := db.AutoMigrate(models...); err != nil {
		return nil, errors.Join(err, closeAll(db))
	}
	return db, nil
}

// fill creates rows of two tenants, and returns the public ids that [show] requests.
func fill(db *gorm.DB) ([]string, error) {
	red, blue := Customer{Tenant: "red", Name: "Ada"}, Customer{Tenant: "blue", Name: "Bob"}
	session := Session{Tenant: "red", Secret: "swordfish"}
	if err := errors.Join(db.Create(&red).Error, db.Create(&blue).Error, db.Create(&session).Error); err != nil {
		return nil, err
	}
	order := Order{Tenant: "red", CustomerID: red.ID, Items: []Item{{Article: "a lamp"}}}
	if err := db.Create(&order).Error; err != nil {
		return nil, err
	}
	return []string{order.ID.String(), order.Items[0].ID.String(), blue.ID.String(), session.ID.String()}, nil
}

// show sends requests as the tenant red, and prints the answers.
func show(ctx context.Context, out io.Writer, url string, ids []string) error {
	get := func(path string) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+path, nil)
		if err != nil {
			return err
		}
		request.Header.Set("X-Tenant", "red")
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer func() { _ = answer.Body.Close() }()
		body, err := io.ReadAll(answer.Body)
		fmt.Fprintf(out, "GET %s\n  %s %s", path, answer.Status, body)
		return err
	}
	return errors.Join(
		get("/node/"+ids[0]), get("/node/"+ids[1]),
		get("/nodes?id="+ids[1]+"&id="+ids[2]+"&id="+ids[0]),
		get("/node/"+ids[2]), // of another tenant
		get("/node/"+ids[3]), // a Session
		get("/node/7"), get("/node/ord_00000000000000000000000000"),
	)
}

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

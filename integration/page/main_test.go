// Package page_test tests the page of package inspector in headless Chromium, on the database of the quickstart and on
// MariaDB with live processes. It is a module of its own, because users of uidplugin do not need a driver for browsers.
package page_test

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/inspector"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
	"gorm.io/gorm/schema"
)

// update makes TestScreenshots write the pictures of the documents.
var update = flag.Bool("update", false, "write docs/inspector-*.png")

// holdSlot is the role of a process that holds a slot.
const holdSlot = "hold a slot"

func TestMain(m *testing.M) {
	harness.Main(m, testkit.Roles{holdSlot: testkit.Role(hold)})
}

// The models of the quickstart, as far as the tests need them.
type (
	Customer struct {
		uidplugin.Model
		Name string
	}
	Order struct {
		ID         int64        `gorm:"primaryKey;uid"`
		CustomerID uidplugin.ID `gorm:"index"`
	}
	Item struct {
		ID        uidplugin.ID `gorm:"primaryKey;uid"`
		OrderID   int64        `gorm:"index"`
		ProductID uidplugin.ID `gorm:"index"`
		Quantity  int
	}
)

// A site is a page that a server serves below a prefix.
type site struct {
	db     *gorm.DB
	plugin *uidplugin.Plugin
	url    string // of the first page
}

const prefix = "/admin/uid"

// serve serves the page on a database that has the plugin.
func serve(t *testing.T, db *gorm.DB, p *uidplugin.Plugin, options ...inspector.Option) *site {
	t.Helper()
	quiet := inspector.WithLogger(slog.New(slog.DiscardHandler))
	h, err := inspector.New(db, append([]inspector.Option{inspector.WithPrefix(prefix), quiet}, options...)...)
	testkit.Must(t, err)
	mux := http.NewServeMux()
	mux.Handle(prefix+"/", h)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return &site{db, p, server.URL + prefix + "/"}
}

// A task is the work of a process.
type task struct {
	Database          *testkit.Database
	Application, Host string
	Rows              int
}

var shop = []any{&Customer{}, &Order{}, &Item{}}

// config has the names of the quickstart's tables.
func config() *gorm.Config {
	return &gorm.Config{NamingStrategy: schema.NamingStrategy{TablePrefix: "shop_"}}
}

// hold holds a slot until its input ends. It prints the id of an order for each line that it has created.
func hold(t task) error {
	ended := testkit.InputEnded()
	db, err := t.Database.Connect(config())
	if err != nil {
		return err
	}
	p := uidplugin.New(harness.Quiet, uidplugin.WithModels(shop...),
		uidplugin.WithHost(workernode.Host{Application: t.Application, Name: t.Host, Port: fmt.Sprint("pid-", os.Getpid())}))
	if err := db.Use(p); err != nil {
		return err
	}
	out := bufio.NewWriter(os.Stdout)
	for range t.Rows {
		customer := Customer{Name: "Ada"}
		if err := db.Create(&customer).Error; err != nil {
			return err
		}
		order := Order{CustomerID: customer.ID}
		if err := db.Create(&order).Error; err != nil {
			return err
		}
		fmt.Fprintln(out, order.ID)
	}
	if err := out.Flush(); err != nil {
		return err
	}
	<-ended
	return p.Close(context.Background())
}

// processes starts five processes on a database, and returns the id of an order of each.
func processes(t *testing.T, d *testkit.Database) (ids []string) {
	t.Helper()
	for i, application := range []string{"shop-api", "shop-api", "shop-api", "shop-worker", "shop-import"} {
		line := make(chan string, 1)
		host := fmt.Sprintf("node-%d.example.org", i+1)
		testkit.Start(t, holdSlot, task{d, application, host, 1}, func(text string) { line <- text })
		select {
		case id := <-line:
			ids = append(ids, id)
		case <-time.After(2 * time.Minute):
			t.Fatal("a process created no row")
		}
	}
	return ids
}

// live serves the page on a MariaDB database with five live processes.
func live(t *testing.T, options ...inspector.Option) (s *site, ids []string) {
	t.Helper()
	testkit.MariaDB().Need(t)
	d := testkit.MariaDB().New(t)
	db := d.Open(t, config())
	p := harness.Use(t, db, uidplugin.WithHost(workernode.Host{Application: "uid", Name: "ops.example.org", Port: "8080"}))
	testkit.Must(t, p.AutoMigrate(shop...))
	ids = processes(t, d)
	return serve(t, db, p, append([]inspector.Option{inspector.WithModels(shop...)}, options...)...), ids
}

// quickstart runs the quickstart twice, and serves the page on its database. It returns the keys of a customer and an
// order.
func quickstart(t *testing.T, options ...inspector.Option) (s *site, customer, order string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "shop.db")
	for range 2 {
		run := exec.Command("go", "run", "github.com/uidplugin/uidplugin/examples/quickstart", "-file", file)
		if out, err := run.CombinedOutput(); err != nil {
			t.Fatalf("the quickstart: %v\n%s", err, out)
		}
	}
	db := testkit.SQLite{Path: file, Config: config()}.Open(t)
	p := harness.Use(t, db, uidplugin.WithModels(shop...))
	testkit.Must(t, db.Raw("SELECT MAX(id) FROM shop_customers").Scan(&customer).Error)
	testkit.Must(t, db.Raw("SELECT MAX(id) FROM shop_orders").Scan(&order).Error)
	return serve(t, db, p, append([]inspector.Option{inspector.WithModels(shop...)}, options...)...), customer, order
}

// Statements that insert rows, without the rows.
const (
	insertSlot = `INSERT INTO WORKER_SLOT (ID, LAYOUT, REUSABLE, FENCE, VERSION, HOLDER, SEEN_TICK,
		APPLICATION, HOST_NAME, PORT) `
	insertSession = `INSERT INTO WORKER_SESSION (SLOT, START_TICK, BEFORE_TICK, APPLICATION, HOST_NAME, PORT, TYPE,
		LAUNCHED, HOLDER) `
)

// insertSlots inserts slots 1001 to 1000+n, each with a session.
func (s *site) insertSlots(t *testing.T, n int, host string) {
	t.Helper()
	layout := s.plugin.Layout()
	now := layout.TickAt(time.Now())
	for i := 1; i <= n; i++ {
		start := now - int64(i)*60_000
		testkit.Must(t, s.db.Exec(insertSlot+`VALUES (?, ?, 1, ?, 1, '', ?, 'batch', ?, ?)`,
			1000+i, layout.String(), start+50_000, start+40_000, host, fmt.Sprint("pid-", i)).Error)
		s.insertSession(t, int64(1000+i), start, 0, "batch", host)
	}
}

// insertSession inserts a session. before is the last tick of the one before.
func (s *site) insertSession(t *testing.T, slot, start, before int64, application, host string) {
	t.Helper()
	testkit.Must(t, s.db.Exec(insertSession+`VALUES (?, ?, ?, ?, ?, 'pid-17', 1, ?, 'x')`,
		slot, start, before, application, host, s.plugin.Layout().TimeOf(start).UTC()).Error)
}

// pages are the addresses of all kinds of pages, relative to the first one.
func pages(ids ...string) []string {
	all := []string{
		"", "tables", "slots", "slots?after=999999", "sessions", "sessions?slot=1", "id?id=x", "id?id=42", "nowhere",
	}
	for _, id := range ids {
		all = append(all, "id?id="+strings.TrimSpace(id))
	}
	return all
}

package regions_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// A customer is created with its orders, and these with their items. Notes are created in batches.
type (
	customer struct {
		ID     uidplugin.ID
		Orders []order
	}
	order struct {
		ID         uidplugin.ID
		CustomerID uidplugin.ID
		Items      []item
	}
	item struct {
		ID      uidplugin.ID
		OrderID uidplugin.ID
	}
	note struct {
		ID   uint64 `gorm:"primaryKey;uid"`
		Text string
	}
)

// models has a referenced table before those that refer to it.
var (
	models    = []any{&customer{}, &order{}, &item{}, &note{}}
	appTables = []string{"customers", "orders", "items", "notes"}
)

// A writerTask is the work of a process.
type writerTask struct {
	Database *testkit.Database
	Region   [2]int // for WithRegion, unless [0 0]
	Port     string
	Pause    time.Duration // after each customer; 80 ms if it is 0
	Patient  bool          // goes on after an error, because its server restarts
}

// lead is short, so that a slot can be reclaimed soon after its process was killed.
const lead = time.Second

func (t writerTask) options() []uidplugin.Option {
	options := []uidplugin.Option{harness.Quiet, uidplugin.WithLead(lead), uidplugin.WithModels(models...),
		uidplugin.WithHost(workernode.Host{Application: "regions", Name: "host", Port: t.Port})}
	if t.Region != [2]int{} {
		options = append(options, uidplugin.WithRegion(t.Region[0], t.Region[1]))
	}
	return options
}

// write is the process: it creates rows until its input ends, and prints the table and the ids of those that were
// committed.
func write(t writerTask) error {
	db, err := t.Database.Connect(nil)
	if err == nil {
		err = db.Use(uidplugin.New(t.options()...))
	}
	if err == nil {
		err = db.AutoMigrate(models...)
	}
	if err != nil {
		return err
	}
	for ended := testkit.InputEnded(); ; {
		lines, err := createRows(db)
		switch {
		case err == nil:
			fmt.Print(lines)
		case !t.Patient && !errors.Is(err, generator.ErrLeaseExpired): // the short lease may end on a busy machine
			return err
		}
		select {
		case <-ended:
			for range 10 { // a statement may take too long on a busy machine
				if err = uidplugin.From(db).Close(context.Background()); err == nil {
					break
				}
			}
			return err
		case <-time.After(cmp.Or(t.Pause, 80*time.Millisecond)):
		}
	}
}

// createRows creates a customer with two orders of two items, and five notes.
func createRows(db *gorm.DB) (lines string, err error) {
	c := customer{Orders: []order{{Items: make([]item, 2)}, {Items: make([]item, 2)}}}
	if err := db.Create(&c).Error; err != nil {
		return "", err
	}
	lines = fmt.Sprintln("customers", int64(c.ID))
	for _, o := range c.Orders {
		lines += fmt.Sprintln("orders", int64(o.ID)) + fmt.Sprintln("items", int64(o.Items[0].ID), int64(o.Items[1].ID))
	}
	notes := make([]note, 5)
	if err := db.Create(&notes).Error; err != nil {
		return "", err
	}
	for _, n := range notes {
		lines += fmt.Sprintln("notes", n.ID)
	}
	return lines, nil
}

type writer struct {
	*testkit.Process
	region *region
	port   string
}

// start starts a process in a region, and returns when it has created a row. Its port begins with a letter for each
// region.
func (r *region) start(t *testing.T, ledger *testkit.Ledger, task writerTask) *writer {
	t.Helper()
	r.started++
	w := &writer{region: r, port: fmt.Sprintf("%s-%d", r.name, r.started)}
	task.Database, task.Port = r.Database(), w.port
	first := make(chan struct{}, 1)
	w.Process = testkit.Start(t, "writer", task, func(text string) {
		record(ledger, w.port, text)
		select {
		case first <- struct{}{}:
		default:
		}
	})
	select {
	case <-first:
	case <-w.Done():
		t.Fatal(w.port, w.Wait())
	case <-time.After(time.Minute):
		t.Fatal(w.port, "creates no row: ", w.Stderr())
	}
	return w
}

// record notes a line of createRows.
func record(ledger *testkit.Ledger, port, line string) {
	table, ids, _ := strings.Cut(line, " ")
	for field := range strings.FieldsSeq(ids) {
		id, _ := strconv.ParseInt(field, 10, 64)
		ledger.Add(table+" "+port, id)
	}
}

// free frees the slot of a process that was killed. Otherwise it is reclaimed after a minute.
func (w *writer) free(t *testing.T) {
	t.Helper()
	harness.Exec(t, w.region.db, `UPDATE "WORKER_SLOT" SET "HOLDER" = '', "VERSION" = "VERSION" + 1000 WHERE "PORT" = ? AND "HOLDER" <> ''`, w.port)
}

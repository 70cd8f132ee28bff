package partitions_test

import (
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/partition"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/migrations"
	"gorm.io/gorm"
)

func TestMain(m *testing.M) { harness.Main(m, nil) }

var servers = []string{"mariadb", "mysql", "postgres"}

type customer struct {
	ID   uidplugin.ID
	Name string
}

type order struct {
	ID         uidplugin.ID
	CustomerID uidplugin.ID `gorm:"index"`
	Customer   *customer
	Note       string `gorm:"check:note <> 'bad'"`
}

type item struct {
	ID      uidplugin.ID
	OrderID uidplugin.ID
	Order   *order
}

// A shop has a row of each model, and an old order with the key 5.
type shop struct {
	*testing.T
	d     *testkit.Database
	db    *gorm.DB
	p     *uidplugin.Plugin
	first order
}

func newShop(t *testing.T, d *testkit.Database) *shop {
	t.Helper()
	s := &shop{T: t, d: d, db: d.Open(t, nil)}
	s.p = harness.Use(t, s.db, uidplugin.WithModels(&customer{}, &order{}, &item{}))
	testkit.Must(t, s.db.AutoMigrate(&customer{}, &order{}, &item{}))
	s.first = order{Customer: &customer{Name: "first"}}
	testkit.Must(t, s.db.Create(&s.first).Error)
	testkit.Must(t, s.db.Create(&order{ID: 5, CustomerID: s.first.CustomerID}).Error)
	testkit.Must(t, s.db.Create(&[]item{{OrderID: s.first.ID}, {OrderID: 5}}).Error)
	return s
}

func (s *shop) run(statements ...string) {
	s.Helper()
	for _, statement := range statements {
		if err := s.db.Exec(statement).Error; err != nil {
			s.Fatalf("%s\n%v", statement, err)
		}
	}
}

// convert partitions orders. On MySQL it drops the foreign keys first, by the statements in the error.
func (s *shop) convert() {
	s.Helper()
	statements, err := migrations.PartitionStatements(s.Context(), s.db, s.p.Layout(), "orders", "month", 3, 0)
	if s.d.IsMySQL() {
		_, drop, ok := strings.Cut(err.Error(), "drop them first: ")
		if !ok {
			s.Fatal(err)
		}
		s.run(strings.Split(drop, "; ")...)
		statements, err = migrations.PartitionStatements(s.Context(), s.db, s.p.Layout(), "orders", "month", 3, 0)
	}
	testkit.Must(s, err)
	s.run(statements...)
}

// monthly is a request for orders. A zero time means the database's clock.
func monthly(ahead, keep int, now time.Time) partition.Request {
	return partition.Request{Table: "orders", Every: "month", Ahead: ahead, Keep: keep, Now: now}
}

// steps returns the changes.
func (s *shop) steps(r partition.Request) ([]partition.Step, error) {
	s.Helper()
	conn, err := sqldb.Open(s.db, time.Minute)
	testkit.Must(s, err)
	return partition.Steps(s.Context(), conn, s.p.Layout(), r)
}

func (s *shop) change(r partition.Request) {
	s.Helper()
	list, err := s.steps(r)
	testkit.Must(s, err)
	for _, step := range list {
		s.run(step.Statements()...)
	}
}

// rows returns the number of orders in a partition.
func (s *shop) rows(partition string) (n int64) {
	s.Helper()
	query := "SELECT count(*) FROM orders PARTITION (" + partition + ")"
	if s.d.Name == "postgres" {
		query = "SELECT count(*) FROM orders_" + partition
	}
	testkit.Must(s, s.db.Raw(query).Scan(&n).Error)
	return n
}

// idAt returns an id with a time.
func (s *shop) idAt(year int, month time.Month, day int) uidplugin.ID {
	s.Helper()
	at := time.Date(year, month, day, 12, 0, 0, 0, time.UTC)
	id, err := s.p.Layout().Compose(generator.Parts{Time: at, WorkerID: 1})
	testkit.Must(s, err)
	return uidplugin.ID(id)
}

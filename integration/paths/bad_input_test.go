package paths_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

func TestBadInput_UnreachableDatabase(t *testing.T) {
	t.Parallel()
	// A port that nobody listens on.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	address := l.Addr().(*net.TCPAddr)
	_ = l.Close()

	for name, dialector := range map[string]gorm.Dialector{
		"mysql":    mysql.New(mysql.Config{DSN: "u:p@tcp(" + address.String() + ")/x", SkipInitializeWithVersion: true}),
		"postgres": postgres.Open("host=127.0.0.1 port=" + address.String()[strings.LastIndex(address.String(), ":")+1:] + " user=u dbname=x sslmode=disable"),
	} {
		db, err := gorm.Open(dialector, &gorm.Config{DisableAutomaticPing: true, Logger: logger.Discard})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		testkit.IsError(t, db.Use(uidplugin.New(harness.Quiet)), nil, "uidplugin: ", "WORKER_REGISTRY", address.String()[strings.LastIndex(address.String(), ":")+1:])
		if db.Callback().Create().Get("uidplugin:fill") != nil {
			t.Errorf("%s: a callback was registered all the same", name)
		}
	}
}

// A server that takes connections and never answers.
func TestBadInput_SilentDatabase(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	defer func() { _ = l.Close() }()
	db, err := gorm.Open(mysql.New(mysql.Config{DSN: "u:p@tcp(" + l.Addr().String() + ")/x", SkipInitializeWithVersion: true}),
		&gorm.Config{DisableAutomaticPing: true, Logger: logger.Discard})
	testkit.Must(t, err)
	testkit.IsError(t, db.Use(uidplugin.New(harness.Quiet, uidplugin.WithTimeout(50*time.Millisecond))), context.DeadlineExceeded, "uidplugin: ")
}

// A user without rights gets an error that names the failed step. If the tables exist and the user has rights on
// them, no right to create is needed.
func TestBadInput_UserWithFewRights(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		admin := d.Open(t, nil)
		u := harness.NewUser(t, d)
		u.Grant("SELECT")
		testkit.IsError(t, u.Open().Use(uidplugin.New(harness.Quiet)), workernode.ErrTable, "WORKER_NODE", "created", ".sql")
		testkit.IsError(t, u.Open().Use(uidplugin.New(harness.Quiet, uidplugin.WithoutMigration())), workernode.ErrTable, "WORKER_NODE", ".sql")

		harness.Migrate(t, admin, d.SQLFile())
		u.Grant("SELECT") // on the tables that exist now
		testkit.IsError(t, u.Open().Use(uidplugin.New(harness.Quiet, uidplugin.WithModels(&harness.T1{}))), nil, "WORKER_REGISTRY", "denied")

		u.Grant("INSERT, UPDATE", "WORKER_NODE", "WORKER_SLOT", "WORKER_SESSION", "WORKER_REGISTRY")
		harness.Use(t, u.Open(), uidplugin.WithModels(&harness.T1{}))
	}, "mariadb", "mysql", "postgres")
}

func TestBadInput_ForeignWorkerNodeTable(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		q := `"`
		if d.IsMySQL() {
			q = "`"
		}
		testkit.Must(t, db.Exec("CREATE TABLE "+q+"WORKER_NODE"+q+" (node_key INT, label VARCHAR(10))").Error)
		testkit.IsError(t, db.Use(uidplugin.New(harness.Quiet)), workernode.ErrTable, "HOST_NAME", "node_key, label", "rename")
		if got := harness.Columns(t, db, "WORKER_NODE"); len(got) != 2 {
			t.Errorf("the table was changed: %s", got)
		}
	})
}

// With autocommit off, a worker id would be in use while its row waits for a
// COMMIT that never comes.
func TestBadInput_AutocommitOff(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		testkit.IsError(t, d.Open(t, nil, "autocommit=0").Use(uidplugin.New(harness.Quiet)), nil, "autocommit is off")
		// After a COMMIT, a renewal would be part of another transaction.
		testkit.IsError(t, d.Open(t, nil, "completion_type=1").Use(uidplugin.New(harness.Quiet)), nil, "completion_type is CHAIN")
	}, "mariadb", "mysql")
}

func TestBadInput_LayoutMismatch(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		p := harness.Use(t, d.Open(t, nil), uidplugin.WithModels(&harness.T1{}))
		later := generator.DefaultLayout()
		later.Epoch = later.Epoch.Add(24 * time.Hour)
		for _, other := range []generator.Layout{generator.SnowflakeLayout(), later} {
			err := d.Open(t, nil).Use(uidplugin.New(harness.Quiet, uidplugin.WithLayout(other)))
			testkit.IsError(t, err, workernode.ErrLayoutMismatch, generator.DefaultLayout().String(), other.String())
		}
		if _, err := harness.NextID(p); err != nil {
			t.Errorf("the process that is there: %v", err)
		}
	})
}

func TestBadInput_BadModelsAndCreates(t *testing.T) {
	t.Parallel()
	type (
		Narrow struct {
			ID int32 `gorm:"uid"`
		}
		Float struct {
			ID float64 `gorm:"primaryKey;uid"`
		}
		Nowhere struct {
			ID int64 `gorm:"uid:nowhere"`
		}
	)
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		p := harness.Use(t, db)
		testkit.Must(t, p.AutoMigrate(&Customer{}))
		testkit.IsError(t, db.Create(&Narrow{}).Error, uidplugin.ErrField, "Narrow.ID", "int32", "32 bits")
		testkit.IsError(t, db.Create(&Float{}).Error, uidplugin.ErrField, "Float.ID", "float64")
		testkit.IsError(t, db.Create(&Nowhere{}).Error, uidplugin.ErrField, `"nowhere"`, "cached, paired")
		testkit.IsError(t, db.Create(Customer{}).Error, gorm.ErrInvalidValue, "pointer")
		testkit.IsError(t, d.Open(t, nil).Use(uidplugin.New(harness.Quiet, uidplugin.WithModels(&Narrow{}))), uidplugin.ErrField, "Narrow.ID")

		ended, cancel := context.WithCancel(context.Background())
		cancel()
		testkit.IsError(t, db.WithContext(ended).Create(&Tag{}).Error, context.Canceled)
		testkit.IsError(t, db.WithContext(ended).Create(&Customer{}).Error, context.Canceled)
		var n int64
		if err := db.Model(&Customer{}).Count(&n).Error; err != nil || n != 0 {
			t.Errorf("%d rows, %v; want none", n, err)
		}
	})
}

// The first create of a table inside a transaction that has the only
// connection fails at once instead of waiting for itself; the next one works.
func TestBadInput_PoolOfOne(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		pool, err := db.DB()
		testkit.Must(t, err)
		pool.SetMaxOpenConns(1)
		harness.Use(t, db)
		testkit.Must(t, db.AutoMigrate(&harness.T1{}, &harness.T2{}))
		// Outside a transaction there is a connection: GORM's own comes later.
		testkit.Must(t, db.Create(&harness.T1{}).Error)
		err = db.Transaction(func(tx *gorm.DB) error {
			if err := tx.Create(&harness.T1{}).Error; err != nil {
				t.Error(err)
			}
			return tx.Create(&harness.T2{}).Error
		})
		testkit.IsError(t, err, uidplugin.ErrInTransaction, "WithModels")
		if err := db.Create(&harness.T2{}).Error; err != nil {
			t.Error(err)
		}
		if err := db.Transaction(func(tx *gorm.DB) error { return tx.Create(&harness.T2{}).Error }); err != nil {
			t.Error(err)
		}
	})
}

// Worker ids are not part of the application's transactions, so a rollback keeps them.
func TestBadInput_RollbackKeepsWorkerIDs(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		p := harness.Use(t, db)
		testkit.Must(t, db.AutoMigrate(&harness.T1{}))
		var row harness.T1
		rollback := errors.New("rollback")
		err := db.Transaction(func(tx *gorm.DB) error {
			if err := tx.Create(&row).Error; err != nil {
				return err
			}
			return rollback
		})
		testkit.IsError(t, err, rollback)
		where, err := p.Locate(context.Background(), row.ID)
		if err != nil || where.Table != "t1" {
			t.Errorf("Locate = %+v, %v", where, err)
		}
	}, "mariadb", "mysql", "postgres")
}

// Without parseTime the driver returns dates as text.
func TestBadInput_MySQLWithoutParseTime(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil, "parseTime=false", "clientFoundRows=true")
		p := harness.Use(t, db, uidplugin.WithModels(&harness.T2{}))
		id, err := p.NextID(context.Background(), &harness.T2{})
		testkit.Must(t, err)
		if where, err := p.Locate(context.Background(), id); err != nil || where.Table != "t2" {
			t.Errorf("Locate = %+v, %v", where, err)
		}
	}, "mariadb", "mysql")
}

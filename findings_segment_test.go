package uidplugin_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"gorm.io/gorm"
)

type zpool struct {
	gorm.ConnPool
	fail atomic.Bool
}

func (p *zpool) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if strings.Contains(query, "sqlite_master") && p.fail.Load() {
		gone, cancel := context.WithCancel(ctx)
		cancel()
		return p.ConnPool.QueryRowContext(gone, query, args...) // the connection breaks
	}
	return p.ConnPool.QueryRowContext(ctx, query, args...)
}

type zseg struct {
	ID   int64 `gorm:"primaryKey;autoIncrement:false;uid:segment"`
	Ref  int64
	Text string
}

// The question whether there is the table fails.
func TestSegmentHasTableFails(t *testing.T) {
	db := bare(t)
	must(t, db.AutoMigrate(&zseg{}))
	for i := range 5 {
		must(t, db.Exec("INSERT INTO zsegs (id, ref) VALUES (?, ?)", 100+i, 200+i).Error)
		must(t, db.Exec("INSERT INTO zsegs (id, ref) VALUES (?, ?)", 1+i, 1+i).Error)
	}
	p := &zpool{ConnPool: db.Config.ConnPool}
	db.Config.ConnPool = p
	db.Statement.ConnPool = p
	use(t, db)
	p.fail.Store(true)
	row := zseg{}
	err := db.Create(&row).Error
	t.Logf("%+v, %v", row, err)
	if err != nil || row.ID < 105 {
		t.Error("ids do not begin above the largest key")
	}
}

type zupper struct {
	ID int64 `gorm:"primaryKey;autoIncrement:false;uid:segment"`
}

func (zupper) TableName() string { return "ORDERS" }

func TestSegmentCase(t *testing.T) {
	db := open(t)
	must(t, db.Exec("CREATE TABLE orders (id BIGINT PRIMARY KEY)").Error)
	must(t, db.Exec("INSERT INTO orders VALUES (1), (2), (7)").Error)
	if err := db.Create(&zupper{}).Error; err != nil {
		t.Error(err)
	}
}

type zsegA struct {
	ID int64 `gorm:"primaryKey;autoIncrement:false;uid:segment"`
}
type zsegB struct {
	ID  int64 `gorm:"primaryKey;autoIncrement:false;uid:segment"`
	Ref int64 `gorm:"uid:segment"`
}

func (zsegA) TableName() string { return "both" }
func (zsegB) TableName() string { return "both" }

// A second model of the table has a field more.
func TestSegmentSecondModel(t *testing.T) {
	db := open(t)
	must(t, db.Exec("CREATE TABLE both (id BIGINT PRIMARY KEY, ref BIGINT UNIQUE)").Error)
	must(t, db.Exec("INSERT INTO both VALUES (1, 5), (2, 6), (3, 7)").Error)
	must(t, db.Create(&zsegA{}).Error)
	var err error
	for range 4 {
		err = errors.Join(err, db.Create(&zsegB{}).Error)
	}
	if err != nil {
		t.Error(err)
	}
}

// An opener that ignores its context holds up the worker ids of other tables in the same statement, and db.Use.
type zboth struct {
	ID  int64 `gorm:"primaryKey;autoIncrement:false;uid"`
	Src int64 `gorm:"uid:src"`
}

func TestOpenerBlocks(t *testing.T) {
	db := bare(t)
	block := make(chan struct{})
	defer close(block)
	p := uidplugin.New(uidplugin.WithLogger(nil), uidplugin.WithTimeout(time.Second), uidplugin.WithModels(&zboth{}), uidplugin.WithSource("src", func(ctx context.Context, db *gorm.DB, table string) (generator.Generator, error) {
		<-block
		return nil, nil
	}))
	done := make(chan error, 1)
	go func() { done <- db.Use(p) }()
	select {
	case err := <-done:
		t.Log(err)
	case <-time.After(4 * time.Second):
		t.Error("db.Use hangs, WithTimeout is a second")
	}
}

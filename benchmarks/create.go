package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"path/filepath"
	"time"

	"github.com/bwmarrin/snowflake"
	gofrs "github.com/gofrs/uuid/v5"
	"github.com/google/uuid"
	"github.com/muyo/sno"
	"github.com/oklog/ulid/v2"
	"github.com/rs/xid"
	"github.com/segmentio/ksuid"
	"github.com/sony/sonyflake/v2"
	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/yitter/idgenerator-go/idgen"
	"gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// Created is the cost of a whole db.Create with one kind of key, on a pool that does nothing.
type Created struct {
	Name      string
	One, Many Figure // microseconds for a create of one row, and for one of 1,000 rows
}

const manyRows = 1000

// nothing is a pool that accepts every statement and ignores it.
type nothing struct{}

// done is the result of each statement on nothing.
type done struct{}

func (done) LastInsertId() (int64, error) { return 1, nil }
func (done) RowsAffected() (int64, error) { return 1, nil }

func (nothing) PrepareContext(context.Context, string) (*sql.Stmt, error) { return nil, driver.ErrSkip }
func (nothing) ExecContext(context.Context, string, ...any) (sql.Result, error) {
	return done{}, nil
}
func (nothing) QueryContext(context.Context, string, ...any) (*sql.Rows, error) {
	return nil, driver.ErrSkip
}
func (nothing) QueryRowContext(context.Context, string, ...any) *sql.Row { return nil }

// Content has the other columns of the rows.
type Content struct {
	OrderID int64
	Status  int
	Weight  int64
	Street  string
	City    string
}

type (
	autoParcel struct {
		ID int64 `gorm:"primaryKey"`
		Content
	}
	uidParcel struct {
		ID int64 `gorm:"primaryKey;autoIncrement:false;uid"`
		Content
	}
	presetParcel struct {
		ID int64 `gorm:"primaryKey;autoIncrement:false"`
		Content
	}
	// hookParcel has a key that a hook sets, as applications do with a generator of their choice.
	hookParcel[K any] struct {
		ID K `gorm:"primaryKey;autoIncrement:false"`
		Content
		make func() K
	}
)

// TableName implements GORM's Tabler. Without it, each statement would have the long name of the generic type.
func (hookParcel[K]) TableName() string { return "parcels" }

// BeforeCreate is GORM's hook.
func (p *hookParcel[K]) BeforeCreate(*gorm.DB) error {
	p.ID = p.make()
	return nil
}

// A way creates rows with one kind of key.
type way struct {
	name      string
	one, many func() error
}

// wayOf returns a way whose rows have the model T. The function reset makes a row new again before its create.
func wayOf[T any](name string, db *gorm.DB, reset func(*T)) way {
	row, rows := new(T), make([]T, manyRows)
	return way{name: name, one: func() error {
		reset(row)
		return db.Create(row).Error
	}, many: func() error {
		for i := range rows {
			reset(&rows[i])
		}
		return db.Create(&rows).Error
	}}
}

// hooked returns a way whose keys come from the function make.
func hooked[K any](name string, db *gorm.DB, make func() K) way {
	return wayOf(name, db, func(p *hookParcel[K]) {
		var zero K
		p.ID, p.make = zero, make
	})
}

// nowhere returns a handle on a pool that does nothing.
func nowhere() (*gorm.DB, error) {
	return gorm.Open(mysql.New(mysql.Config{Conn: nothing{}, SkipInitializeWithVersion: true}),
		&gorm.Config{SkipDefaultTransaction: true, Logger: logger.Discard})
}

func ways() ([]way, error) {
	db, err := nowhere()
	if err != nil {
		return nil, err
	}
	with, err := nowhere()
	if err != nil {
		return nil, err
	}
	// Without a real database, creates come so fast that they would wait for the clock. Wide sequences prevent that.
	layout := generator.DefaultLayout()
	layout.WorkerBits, layout.SequenceBits = 2, 20
	err = with.Use(uidplugin.New(uidplugin.WithWorkerID(0), uidplugin.WithLayout(layout), uidplugin.WithLogger(nil)))
	if err != nil {
		return nil, err
	}
	node, err := snowflake.NewNode(1)
	if err != nil {
		return nil, err
	}
	flake, err := sonyflake.New(sonyflake.Settings{BitsSequence: 15, BitsMachineID: 8, TimeUnit: time.Millisecond,
		MachineID: func() (int, error) { return 1, nil }})
	if err != nil {
		return nil, err
	}
	drifting := idgen.NewIdGeneratorOptions(1)
	drifting.SeqBitLength = 14
	drift := idgen.NewDefaultIdGenerator(drifting)
	return []way{
		wayOf("a key set before", db, func(p *presetParcel) { p.ID = 1 }),
		wayOf("AUTO_INCREMENT", db, func(p *autoParcel) { p.ID = 0 }),
		wayOf("uidplugin", with, func(p *uidParcel) { p.ID = 0 }),
		hooked("bwmarrin/snowflake", db, func() int64 { return node.Generate().Int64() }),
		hooked("sony/sonyflake v2", db, func() int64 { id, _ := flake.NextID(); return id }),
		hooked("yitter/idgenerator", db, drift.NewLong),
		hooked("google/uuid v4", db, uuid.New),
		hooked("google/uuid v7", db, func() uuid.UUID { id, _ := uuid.NewV7(); return id }),
		hooked("gofrs/uuid v7", db, func() gofrs.UUID { id, _ := gofrs.NewV7(); return id }),
		hooked("oklog/ulid", db, ulid.Make),
		hooked("rs/xid", db, xid.New),
		hooked("segmentio/ksuid", db, ksuid.New),
		hooked("muyo/sno", db, func() sno.ID { return sno.New(0) }),
	}, nil
}

func measureCreating(ctx context.Context, l *Lab) (created []Created, err error) {
	all, err := ways()
	if err != nil {
		return nil, err
	}
	var contestants []contestant
	for _, w := range all {
		contestants = append(contestants, watched(timed(min(40, 2*l.Rounds), w.one)), watched(timed(1, w.many)))
	}
	rounds := max(3, l.Rounds/2)
	l.Say("create: %d ways, %d rounds", len(all), rounds)
	figures, err := interleave(ctx, rounds, contestants, func(round int) {
		l.Tick("create: round %d of %d", round, rounds)
	})
	if err != nil {
		return nil, err
	}
	for i, w := range all {
		created = append(created, Created{w.name, figures[2*i], figures[2*i+1]})
	}
	return created, err
}

func drawCreate(all []Created, folder string) error {
	var names []string
	one, many := series{name: "1 row"}, series{name: "1,000 rows, divided by 1,000"}
	for _, c := range all {
		names = append(names, c.Name)
		one.add(c.One)
		many.add(Figure{Median: c.Many.Median / manyRows, Low: c.Many.Low / manyRows, High: c.Many.High / manyRows})
	}
	return dots(filepath.Join(folder, "create.svg"), "db.Create on a pool that does nothing", "µs for a row", names, one,
		many)
}

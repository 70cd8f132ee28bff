package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"log/slog"
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

// Creating is what a whole db.Create costs, on a pool that does nothing.
type Creating struct {
	Ways []CreatedWay
}

// CreatedWay is what it costs with one kind of key.
type CreatedWay struct {
	Name                string
	One, Many           Figure // us for a create of one row, and of manyRows
	OneAllocs           float64
	ManyAllocs          float64
	OneBytes, ManyBytes float64
}

const manyRows = 1000

// nothing is a pool that accepts every statement and does nothing.
type nothing struct{}

// done is what its statements return.
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

// Content is what the rows have next to their keys.
type Content struct {
	OrderID int64
	Status  int
	Weight  int64
	Street  string
	City    string
}

type (
	// autoParcel has a key that the database numbers.
	autoParcel struct {
		ID int64 `gorm:"primaryKey"`
		Content
	}
	// uidParcel has a key from the plugin.
	uidParcel struct {
		ID int64 `gorm:"primaryKey;autoIncrement:false;uid"`
		Content
	}
	// presetParcel has a key that the caller sets.
	presetParcel struct {
		ID int64 `gorm:"primaryKey;autoIncrement:false"`
		Content
	}
	// hookParcel has a key that a hook sets, as people do with a generator of their choice.
	hookParcel[K any, M maker[K]] struct {
		ID K `gorm:"primaryKey;autoIncrement:false"`
		Content
	}
)

// A maker makes keys of type K. Its zero value is ready.
type maker[K any] interface{ make() K }

// TableName implements GORM's Tabler.
func (hookParcel[K, M]) TableName() string { return "parcels" }

// BeforeCreate is GORM's hook.
func (p *hookParcel[K, M]) BeforeCreate(*gorm.DB) error {
	var m M
	p.ID = m.make()
	return nil
}

// Generators for the hooks.
var (
	node, _  = snowflake.NewNode(1)
	flake, _ = sonyflake.New(sonyflake.Settings{
		// As wide as it may be, so that no create waits for the next tick.
		BitsSequence: 15, BitsMachineID: 8, TimeUnit: time.Millisecond,
		MachineID: func() (int, error) { return 1, nil },
	})
	drift = func() *idgen.DefaultIdGenerator {
		o := idgen.NewIdGeneratorOptions(1)
		o.SeqBitLength = 14 // for the same reason
		return idgen.NewDefaultIdGenerator(o)
	}()
)

type (
	byNode     struct{}
	bySony     struct{}
	byYitter   struct{}
	byGoogleV4 struct{}
	byGoogleV7 struct{}
	byGofrs    struct{}
	byULID     struct{}
	byXID      struct{}
	byKSUID    struct{}
	bySno      struct{}
)

func (byNode) make() int64         { return node.Generate().Int64() }
func (bySony) make() int64         { id, _ := flake.NextID(); return id }
func (byYitter) make() int64       { return drift.NewLong() }
func (byGoogleV4) make() uuid.UUID { return uuid.New() }
func (byGoogleV7) make() uuid.UUID { id, _ := uuid.NewV7(); return id }
func (byGofrs) make() gofrs.UUID   { id, _ := gofrs.NewV7(); return id }
func (byULID) make() ulid.ULID     { return ulid.Make() }
func (byXID) make() xid.ID         { return xid.New() }
func (byKSUID) make() ksuid.KSUID  { return ksuid.New() }
func (bySno) make() sno.ID         { return sno.New(0) }

// The names of the ways that the document compares.
const (
	wayAuto   = "AUTO_INCREMENT"
	wayPreset = "a key set before"
	wayUID    = "uidplugin"
)

// A way creates rows with one kind of key.
type way struct {
	name      string
	one, many func(n int) error // n creates
}

// wayOf returns a way whose rows have the model T. Reset makes a row as if it had never been created.
func wayOf[T any](name string, db *gorm.DB, reset func(*T)) way {
	row, rows := new(T), make([]T, manyRows)
	return way{name: name, one: func(n int) error {
		for range n {
			reset(row)
			if err := db.Create(row).Error; err != nil {
				return err
			}
		}
		return nil
	}, many: func(n int) error {
		for range n {
			for i := range rows {
				reset(&rows[i])
			}
			if err := db.Create(&rows).Error; err != nil {
				return err
			}
		}
		return nil
	}}
}

// hooked is wayOf for a generator in a hook.
func hooked[K any, M maker[K]](name string, db *gorm.DB) way {
	var zero K
	return wayOf(name, db, func(p *hookParcel[K, M]) { p.ID = zero })
}

// nowhere returns a handle on a pool that does nothing.
func nowhere() (*gorm.DB, error) {
	return gorm.Open(mysql.New(mysql.Config{Conn: nothing{}, SkipInitializeWithVersion: true}),
		&gorm.Config{SkipDefaultTransaction: true, Logger: logger.Discard})
}

// ways returns what is compared.
func ways() ([]way, error) {
	db, err := nowhere()
	if err != nil {
		return nil, err
	}
	with, err := nowhere()
	if err != nil {
		return nil, err
	}
	// So many ids a second that no create waits, as the database would never take that many.
	layout := generator.DefaultLayout()
	layout.WorkerBits, layout.SequenceBits = 2, 20
	err = with.Use(uidplugin.New(uidplugin.WithWorkerID(1), uidplugin.WithLayout(layout),
		uidplugin.WithLogger(slog.New(slog.DiscardHandler))))
	return []way{
		wayOf(wayPreset, db, func(p *presetParcel) { p.ID = 1 }),
		wayOf(wayAuto, db, func(p *autoParcel) { p.ID = 0 }),
		wayOf(wayUID, with, func(p *uidParcel) { p.ID = 0 }),
		hooked[int64, byNode]("bwmarrin/snowflake", db),
		hooked[int64, bySony]("sony/sonyflake v2", db),
		hooked[int64, byYitter]("yitter/idgenerator", db),
		hooked[uuid.UUID, byGoogleV4]("google/uuid v4", db),
		hooked[uuid.UUID, byGoogleV7]("google/uuid v7", db),
		hooked[gofrs.UUID, byGofrs]("gofrs/uuid v7", db),
		hooked[ulid.ULID, byULID]("oklog/ulid", db),
		hooked[xid.ID, byXID]("rs/xid", db),
		hooked[ksuid.KSUID, byKSUID]("segmentio/ksuid", db),
		hooked[sno.ID, bySno]("muyo/sno", db),
	}, err
}

// measureCreating measures all ways, interleaved.
func measureCreating(ctx context.Context, l *Lab) (*Creating, error) {
	all, err := ways()
	if err != nil {
		return nil, err
	}
	var contestants []func() (sample, error)
	timed := func(n int, f func(int) error) func() (sample, error) {
		return func() (sample, error) {
			before, begin := preempted(), time.Now()
			err := f(n)
			return sample{float64(time.Since(begin).Nanoseconds()) / 1000 / float64(n), preempted() != before}, err
		}
	}
	ones := min(40, 2*l.Rounds) // creates of one row in a slice
	for _, w := range all {
		contestants = append(contestants, timed(ones, w.one), timed(1, w.many))
	}
	rounds := max(3, l.Rounds/2)
	l.Say("create: %d ways, %d rounds", len(all), rounds)
	figures, err := interleave(ctx, rounds, contestants, func(round int) {
		l.Tick("create: round %d of %d", round, rounds)
	})
	if err != nil {
		return nil, err
	}
	c := &Creating{}
	for i, w := range all {
		made := CreatedWay{Name: w.name, One: figures[2*i], Many: figures[2*i+1]}
		made.OneAllocs, made.OneBytes = allocations(min(100, l.Rounds), func(n int) { _ = w.one(n) })
		made.ManyAllocs, made.ManyBytes = allocations(min(3, max(1, l.Rounds/10)), func(n int) { _ = w.many(n) })
		c.Ways = append(c.Ways, made)
	}
	return c, nil
}

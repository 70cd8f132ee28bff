package main

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	"gorm.io/gorm/schema"
)

// Inserted is the cost of the rows of one table in a real database.
type Inserted struct {
	Engine    string
	Kind      string // of key
	Rows      int    // fewer than wanted if the time was over
	Chunk     int
	Curve     []float64 // rows a second, chunk by chunk
	LastRate  Figure    // of the last quarter of the chunks
	Log       float64   // bytes of redo log or WAL for a row
	PagesRead float64   // for 1,000 rows
	TableMB   float64   // with the primary key, except on PostgreSQL
	IndexMB   float64   // secondary indexes; the primary key, too, on PostgreSQL
	Join      Figure    // microseconds for the rows of a customer, joined with their parents
}

// measureRows measures all engines, with little memory for pages, and a redo log of usual size.
func measureRows(ctx context.Context, l *Lab) (all []Inserted, err error) {
	options := func(engine string) []string {
		pool := fmt.Sprintf("--innodb-buffer-pool-size=%dM", l.PoolMB)
		switch engine {
		case "mariadb":
			return []string{pool, "--innodb-log-file-size=96M", "--innodb-flush-method=O_DIRECT"}
		case "mysql":
			return []string{pool, "--innodb-redo-log-capacity=100M", "--innodb-flush-method=O_DIRECT"}
		}
		return []string{"-c", fmt.Sprintf("shared_buffers=%dMB", l.PoolMB), "-c", "max_wal_size=1GB"}
	}
	return all, l.eachServer(ctx, "rows", os.TempDir(), options, func(s *Server) error {
		return s.with(func(d *testkit.Database, db *gorm.DB) error {
			kinds, err := insertInto(ctx, l, s, d, db)
			all = append(all, kinds...)
			return err
		})
	})
}

// insertInto inserts rows of all kinds into one server, and then measures sizes and joins.
func insertInto(ctx context.Context, l *Lab, s *Server, d *testkit.Database, db *gorm.DB) (all []Inserted, err error) {
	v7 := func() uuid.UUID { return uuid.Must(uuid.NewV7()) }
	tables := []*keyed{
		newKeyed[uidplugin.ID, uid](l, d, "uidplugin", nil),
		newKeyed[int64, auto](l, d, "AUTO_INCREMENT", nil),
		newKeyed[binaryKey, v7Binary](l, d, "UUIDv7 in 16 bytes", func() binaryKey { return binaryKey(v7()) }),
		newKeyed[binaryKey, v4Binary](l, d, "UUIDv4 in 16 bytes", func() binaryKey { return binaryKey(uuid.New()) }),
		newKeyed[textKey, v7Text](l, d, "UUIDv7 as text", func() textKey { return textKey(v7().String()) }),
		newKeyed[textKey, v4Text](l, d, "UUIDv4 as text", func() textKey { return textKey(uuid.NewString()) }),
	}
	for _, t := range tables {
		defer func() { err = errors.Join(err, t.close()) }()
		all = append(all, Inserted{Engine: s.Title, Kind: t.kind, Chunk: l.Chunk})
		if t.err != nil {
			return nil, fmt.Errorf("%s: %w", t.kind, t.err)
		}
	}
	if err := insertChunks(ctx, l, s, db, tables, all); err != nil {
		return nil, err
	}
	const rounds = 10
	var contestants []contestant
	for i, t := range tables {
		k := &all[i]
		k.LastRate = figureOf(k.Curve[len(k.Curve)*3/4:])
		if k.TableMB, k.IndexMB, err = s.sizes(db, t.table); err != nil {
			return nil, fmt.Errorf("%s: %w", t.kind, err)
		}
		contestants = append(contestants, timed(max(1, l.Joins/rounds), t.join))
	}
	figures, err := interleave(ctx, rounds, contestants, func(int) { l.Tick("rows: %s, joins", s.Title) })
	for i := range figures {
		all[i].Join = figures[i]
	}
	return all, err
}

// insertChunks inserts the rows. The tables take turns, because a server becomes slower while they grow.
func insertChunks(ctx context.Context, l *Lab, s *Server, db *gorm.DB, tables []*keyed, all []Inserted) error {
	done := make([]Counters, len(tables))
	begun, next := time.Now(), turns(len(tables))
	for rows := 0; rows < l.Rows && time.Since(begun) < l.RowsFor; rows += l.Chunk {
		for _, i := range next() {
			if err := ctx.Err(); err != nil {
				return err
			}
			before, err := s.counters(db)
			if err != nil {
				return err
			}
			begin := time.Now()
			if err := tables[i].insert(l.Chunk); err != nil {
				return fmt.Errorf("%s: %w", tables[i].kind, err)
			}
			took := time.Since(begin).Seconds()
			after, err := s.counters(db)
			if err != nil {
				return err
			}
			after = after.since(before, 1)
			done[i].Log += after.Log
			done[i].PagesRead += after.PagesRead
			all[i].Rows += l.Chunk
			all[i].Curve = append(all[i].Curve, math.Round(float64(l.Chunk)/took))
			l.Tick("rows: %s, %d of %d rows in each table", s.Title, rows, l.Rows)
		}
	}
	for i := range all {
		k, rows := &all[i], float64(all[i].Rows)
		k.Log, k.PagesRead = done[i].Log/rows, done[i].PagesRead/rows*1000
	}
	return nil
}

// sizes returns the megabytes of a table and of its indexes, as TableMB and IndexMB.
func (s *Server) sizes(db *gorm.DB, table string) (data, index float64, err error) {
	const mb = 1 << 20
	switch s.Name {
	case "sqlite":
		return 0, 0, nil
	case "postgres":
		err = db.Raw("SELECT pg_table_size(?::regclass)::float8, pg_indexes_size(?::regclass)::float8", table,
			table).Row().Scan(&data, &index)
	default:
		if err = db.Exec("ANALYZE TABLE " + table).Error; err != nil {
			return 0, 0, err
		}
		hint := "" // MySQL remembers sizes for a day otherwise
		if s.Name == "mysql" {
			hint = "/*+ SET_VAR(information_schema_stats_expiry=0) */ "
		}
		err = db.Raw("SELECT "+hint+"DATA_LENGTH, INDEX_LENGTH FROM information_schema.TABLES"+
			" WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ?", table).Row().Scan(&data, &index)
	}
	return data / mb, index / mb, err
}

// A binaryKey is a UUID in 16 bytes: binary(16), or PostgreSQL's uuid.
type binaryKey uuid.UUID

// GormDBDataType implements GORM's GormDBDataTypeInterface.
func (binaryKey) GormDBDataType(db *gorm.DB, _ *schema.Field) string {
	switch db.Name() {
	case "postgres":
		return "uuid"
	case "sqlite":
		return "blob"
	}
	return "binary(16)"
}

// Value implements driver.Valuer.
func (k binaryKey) Value() (driver.Value, error) { return k[:], nil }

// Scan implements sql.Scanner.
func (k *binaryKey) Scan(from any) error { return (*uuid.UUID)(k).Scan(from) }

// A textKey is a UUID as text.
type textKey string

// GormDataType implements GORM's GormDataTypeInterface.
func (textKey) GormDataType() string { return "char(36)" }

// Each table is named after one of these types, such as rows_uid.
type (
	auto     struct{}
	uid      struct{}
	v7Binary struct{}
	v4Binary struct{}
	v7Text   struct{}
	v4Text   struct{}
)

// A shipment is a row of the table that T names. ParentID is the key of a row of the batch before.
type shipment[K comparable, T any] struct {
	ID         K     `gorm:"primaryKey"`
	CustomerID int64 `gorm:"index"`
	ParentID   K     `gorm:"index"`
	Status     int
	Weight     int64
	Street     string `gorm:"size:64"`
	City       string `gorm:"size:64"`
	CreatedAt  time.Time
}

// TableName implements GORM's Tabler.
func (shipment[K, T]) TableName() string {
	return "rows_" + strings.ToLower(reflect.TypeFor[T]().Name())
}

// A keyed is a table with one kind of key.
type keyed struct {
	kind, table string
	insert      func(n int) error // n rows, in batches
	join        func() error      // the rows of a random customer
	close       func() error
	err         error // why it cannot be used
}

const (
	batchSize   = 1000
	perCustomer = 30
)

// newKeyed creates the table that T names. If key is nil, the plugin or the database makes the keys.
func newKeyed[K comparable, T any](l *Lab, d *testkit.Database, kind string, key func() K) *keyed {
	t := &keyed{kind: kind, table: shipment[K, T]{}.TableName(), close: func() error { return nil }}
	db, err := d.Connect(nil)
	if err != nil {
		t.err = err
		return t
	}
	t.close = func() error { return testkit.Close(db) }
	if kind == "uidplugin" {
		plugin, err := use(db, uidplugin.WithModels(new(shipment[K, T])))
		t.close = func() error { return errors.Join(closePlugin(plugin), testkit.Close(db)) }
		t.err = err
	}
	t.err = errors.Join(t.err, db.AutoMigrate(new(shipment[K, T])))
	random := rand.New(rand.NewPCG(1, 2))
	batch := make([]shipment[K, T], min(batchSize, l.Chunk))
	rows := 0
	var last []K // keys of the last batch
	t.insert = func(n int) error {
		cities := []string{"Ely", "Lincoln", "York", "Salisbury", "Truro"}
		for ; n > 0; n -= len(batch) {
			for i := range batch {
				row := shipment[K, T]{
					CustomerID: random.Int64N(int64(rows/perCustomer + 100)), Status: i % 5, Weight: random.Int64N(5000),
					Street: fmt.Sprintf("%d Long Lane, building %d", random.IntN(500), i%9), City: cities[i%len(cities)],
				}
				if key != nil {
					row.ID = key()
				}
				row.ParentID = row.ID
				if len(last) > 0 {
					row.ParentID = last[random.IntN(len(last))]
				}
				batch[i] = row
			}
			if err := db.Create(&batch).Error; err != nil {
				return err
			}
			last = last[:0]
			for _, row := range batch {
				last = append(last, row.ID)
			}
			rows += len(batch)
		}
		return nil
	}
	t.join = func() error {
		var count, weight int64
		return db.Raw("SELECT COUNT(*), COALESCE(SUM(p.weight), 0) FROM "+t.table+" c JOIN "+t.table+
			" p ON p.id = c.parent_id WHERE c.customer_id = ?", random.IntN(max(1, rows/perCustomer))).
			Row().Scan(&count, &weight)
	}
	return t
}

func rowsTable(all []Inserted) string {
	t := table{{"", "rows/s, last quarter", "log, B a row", "MB with indexes", "join, µs", "pages read for 1,000 rows"}}
	for _, engine := range groups(all, func(i Inserted) string { return i.Engine }) {
		t.add("**" + engine[0].Engine + "**")
		for _, k := range engine {
			if strings.HasSuffix(k.Kind, " as text") {
				continue // only in the charts and results
			}
			pages := "–"
			if k.PagesRead > 0 {
				pages = number(k.PagesRead)
			}
			t.add(k.Kind, k.LastRate.String(), number(k.Log), number(k.TableMB+k.IndexMB), k.Join.median(), pages)
		}
	}
	return t.String()
}

func drawRows(all []Inserted, folder string) error {
	for _, engine := range groups(all, func(i Inserted) string { return i.Engine }) {
		var lines []series
		for i, k := range engine {
			s := series{name: k.Kind, colour: i, dash: i >= 4}
			if s.dash {
				s.colour -= 2 // texts have the colours of the same UUIDs in 16 bytes
			}
			for i := range k.Curve {
				// The median of three chunks, because a checkpoint of the server slows down any chunk.
				near := k.Curve[max(0, i-1):min(len(k.Curve), i+2)]
				s.x, s.y = append(s.x, float64((i+1)*k.Chunk)), append(s.y, quantile(near, 0.5))
			}
			lines = append(lines, s)
		}
		name, _, _ := strings.Cut(strings.ToLower(engine[0].Engine), " ")
		if err := curves(filepath.Join(folder, "rows_"+name+".svg"), engine[0].Engine, "rows in the table",
			"rows a second", false, lines...); err != nil {
			return err
		}
	}
	return nil
}

package main

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"
	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	"gorm.io/gorm/schema"
)

// The kinds of keys that are inserted.
const (
	kindAuto   = "AUTO_INCREMENT"
	kindUID    = "uidplugin"
	kindV7     = "UUIDv7, 16 bytes"
	kindV4     = "UUIDv4, 16 bytes"
	kindV7Text = "UUIDv7, char(36)"
	kindV4Text = "UUIDv4, char(36)"
)

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
func (k *binaryKey) Scan(from any) error {
	if b, ok := from.([]byte); ok && len(b) == len(k) {
		copy(k[:], b)
		return nil
	}
	return (*uuid.UUID)(k).Scan(from)
}

// A textKey is a UUID as text.
type textKey string

// GormDataType implements GORM's GormDataTypeInterface.
func (textKey) GormDataType() string { return "char(36)" }

// A label names a table, in a type.
type label interface{ table() string }

type (
	autoTable   struct{}
	uidTable    struct{}
	v7Table     struct{}
	v4Table     struct{}
	v7TextTable struct{}
	v4TextTable struct{}
)

func (autoTable) table() string   { return "rows_auto" }
func (uidTable) table() string    { return "rows_uid" }
func (v7Table) table() string     { return "rows_v7" }
func (v4Table) table() string     { return "rows_v4" }
func (v7TextTable) table() string { return "rows_v7_text" }
func (v4TextTable) table() string { return "rows_v4_text" }

// A shipment is a row. ParentID is the key of an earlier row.
type shipment[K comparable, T label] struct {
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
func (shipment[K, T]) TableName() string { var t T; return t.table() }

// keyedTables returns a table for each kind of key.
func keyedTables() []keyed {
	v7 := func() uuid.UUID { id, _ := uuid.NewV7(); return id }
	return []keyed{
		&shipments[int64, autoTable]{kind: kindAuto},
		&shipments[uidplugin.ID, uidTable]{kind: kindUID},
		&shipments[binaryKey, v7Table]{kind: kindV7, key: func() binaryKey { return binaryKey(v7()) }},
		&shipments[binaryKey, v4Table]{kind: kindV4, key: func() binaryKey { return binaryKey(uuid.New()) }},
		&shipments[textKey, v7TextTable]{kind: kindV7Text, key: func() textKey { return textKey(v7().String()) }},
		&shipments[textKey, v4TextTable]{kind: kindV4Text, key: func() textKey { return textKey(uuid.NewString()) }},
	}
}

// shipments is a table with keys of type K.
type shipments[K comparable, T label] struct {
	kind   string
	key    func() K // nil: the database, or the plugin, makes keys
	db     *gorm.DB
	plugin *uidplugin.Plugin
	batch  []shipment[K, T]
	known  []K // keys of rows, each of the same probability
	last   []K // keys of the last batch
	rows   int
	random *rand.Rand
}

const (
	batchSize   = 1000
	perCustomer = 30
)

func (s *shipments[K, T]) name() string  { return s.kind }
func (s *shipments[K, T]) table() string { var t T; return t.table() }

func (s *shipments[K, T]) open(l *Lab, d *testkit.Database) (err error) {
	if s.db, err = connect(d); err != nil {
		return err
	}
	if s.kind == kindUID {
		if s.plugin, err = use(s.db, uidplugin.WithModels(new(shipment[K, T]))); err != nil {
			return err
		}
	}
	s.random = rand.New(rand.NewPCG(1, 2))
	s.batch = make([]shipment[K, T], min(batchSize, l.Chunk))
	return s.db.AutoMigrate(new(shipment[K, T]))
}

func (s *shipments[K, T]) insert(n int) error {
	cities := []string{"Ely", "Lincoln", "York", "Salisbury", "Truro"}
	for ; n > 0; n -= len(s.batch) {
		for i := range s.batch {
			row := shipment[K, T]{
				CustomerID: s.random.Int64N(int64(s.rows/perCustomer + 100)), Status: i % 5,
				Weight: s.random.Int64N(5000),
				Street: fmt.Sprintf("%d Long Lane, building %d", s.random.IntN(500), i%9), City: cities[i%len(cities)],
			}
			if s.key != nil {
				row.ID = s.key()
			}
			row.ParentID = row.ID
			if len(s.last) > 0 {
				row.ParentID = s.last[s.random.IntN(len(s.last))]
			}
			s.batch[i] = row
		}
		if err := s.db.Create(&s.batch).Error; err != nil {
			return err
		}
		s.last = s.last[:0]
		for i, row := range s.batch {
			s.last = append(s.last, row.ID)
			if i%50 == 0 {
				s.known = append(s.known, row.ID)
			}
		}
		s.rows += len(s.batch)
	}
	return nil
}

func (s *shipments[K, T]) lookup() error {
	var row shipment[K, T]
	key := s.known[s.random.IntN(len(s.known))]
	if err := s.db.Where("id = ?", key).Take(&row).Error; err != nil {
		return err
	}
	if row.ID != key {
		return fmt.Errorf("the row of %v has the key %v", key, row.ID)
	}
	return nil
}

func (s *shipments[K, T]) join(rows int) error {
	var count, weight int64
	table := s.table()
	return s.db.Raw("SELECT COUNT(*), COALESCE(SUM(p.weight), 0) FROM "+table+" c JOIN "+table+
		" p ON p.id = c.parent_id WHERE c.customer_id = ?",
		s.random.IntN(max(1, rows/perCustomer))).Row().Scan(&count, &weight)
}

func (s *shipments[K, T]) close() (err error) {
	if s.plugin != nil {
		err = closePlugin(s.plugin)
	}
	if s.db != nil {
		err = errors.Join(err, testkit.Close(s.db))
	}
	return err
}

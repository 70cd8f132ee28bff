package segment_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/segment"
	"gorm.io/gorm"
)

// A leafServer makes ids as a Leaf service in segment mode: it holds up to two ranges of a row in memory, and fetches
// the second one when a tenth of the first is used up. A program that uses it inserts rows with them.
type leafServer struct {
	db         *gorm.DB // that has leaf_alloc
	table, tag string
	ranges     [][]int64
	used, size int // of the first range
}

// leafFetches fetches a range by Leaf's statements, and returns its ids.
func leafFetches(db *gorm.DB, table, tag string) (ids []int64, err error) {
	var row struct{ MaxID, Step int64 }
	err = db.Transaction(func(tx *gorm.DB) error {
		if err := tx.Exec("UPDATE "+table+" SET max_id = max_id + step WHERE biz_tag = ?", tag).Error; err != nil {
			return err
		}
		return tx.Raw("SELECT biz_tag, max_id, step FROM "+table+" WHERE biz_tag = ?", tag).Scan(&row).Error
	})
	for id := row.MaxID - row.Step; err == nil && id < row.MaxID; id++ {
		ids = append(ids, id)
	}
	return ids, err
}

func (l *leafServer) next() (int64, error) {
	if len(l.ranges) > 0 && len(l.ranges[0]) == 0 {
		l.ranges, l.used = l.ranges[1:], 0
	}
	if len(l.ranges) == 0 || len(l.ranges) == 1 && l.used*10 >= l.size {
		ids, err := leafFetches(l.db, l.table, l.tag)
		if err == nil {
			l.ranges = append(l.ranges, ids)
		} else if len(l.ranges) == 0 || !strings.Contains(err.Error(), "1213") {
			return 0, err
		}
	}
	if l.used == 0 {
		l.size = len(l.ranges[0])
	}
	id := l.ranges[0][0]
	l.ranges[0], l.used = l.ranges[0][1:], l.used+1
	return id, nil
}

// insert inserts n rows with ids of the server, and adds the ids to the ledger.
func (l *leafServer) insert(db *gorm.DB, n int, ids *testkit.Ledger) error {
	for range n {
		id, err := l.next()
		if err != nil {
			return err
		}
		if err := db.Exec("INSERT INTO orders (id) VALUES (?)", id).Error; err != nil {
			return err
		}
		ids.Add("Leaf", id)
	}
	return nil
}

// A leafOrder has the key of a Leaf service, whose tag has another name than the table; a newOrder has it with a tag
// of the plugin's.
type (
	leafOrder struct {
		ID int64 `gorm:"primaryKey;autoIncrement:false;uid:segment:order-service"`
	}
	newOrder struct {
		ID int64 `gorm:"primaryKey;autoIncrement:false;uid:segment"`
	}
)

func (leafOrder) TableName() string { return "orders" }
func (newOrder) TableName() string  { return "orders" }

// The steps of docs/from-leaf.md: services insert by way of Leaf. Processes with the plugin join them at once, next to
// Leaf, which holds ranges in memory all the time. Then Leaf ends. Formerly, with a tag of its own, the plugin began
// inside the ranges that Leaf held, and both made the same keys.
func TestSegment_FromLeaf(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		if !d.IsMySQL() {
			return // Leaf runs on MySQL
		}
		for name, table := range map[string]string{"in one database": "leaf_alloc", "Leaf in a database of its own": d.New(t).Schema + ".leaf_alloc"} {
			t.Run(name, func(t *testing.T) { fromLeaf(t, d.New(t), table) })
		}
	})
}

func fromLeaf(t *testing.T, d *testkit.Database, table string) {
	admin, ids := d.Open(t, nil), testkit.NewLedger(t)
	harness.Exec(t, admin, strings.Replace(leafScript, "`leaf_alloc`", table, 1))
	harness.Exec(t, admin, "CREATE TABLE orders (id BIGINT PRIMARY KEY)")
	harness.Exec(t, admin, "INSERT INTO "+table+" (biz_tag, max_id, step) VALUES ('order-service', 1, 20)")
	leaf := &leafServer{db: admin, table: table, tag: "order-service"}
	testkit.Must(t, leaf.insert(admin, 50, ids))
	if held := len(leaf.ranges); held == 0 {
		t.Fatal("the Leaf service holds no range")
	}
	segments := uidplugin.WithSegments(segment.Config{Table: table, MaxStep: 40})
	database, _, other := strings.Cut(table, ".")
	if !other {
		database = d.Schema
	}

	// A tag of another name is refused in all processes, and leaves no row.
	var wg sync.WaitGroup
	for range 3 {
		db := d.Open(t, nil)
		wg.Go(func() {
			err := db.Use(uidplugin.New(harness.Quiet, segments, uidplugin.WithModels(&newOrder{})))
			if !errors.Is(err, segment.ErrRow) || !strings.Contains(err.Error(), `the tag "orders" of `+table+" is new") ||
				!strings.Contains(err.Error(), `this one is in the database "`+database+`"`) {
				t.Errorf("db.Use: %v", err)
			}
		})
	}
	wg.Wait()

	// Leaf's own tag: all insert at once.
	use := func(m any) (*gorm.DB, *uidplugin.Plugin) {
		db := d.Open(t, nil)
		p := harness.Use(t, db, segments, uidplugin.WithModels(m))
		return db, p
	}
	var plugins []*uidplugin.Plugin
	for range 3 {
		db, p := use(&leafOrder{})
		plugins = append(plugins, p)
		wg.Go(func() {
			for range 150 {
				row := leafOrder{}
				if err := db.Create(&row).Error; err != nil {
					t.Errorf("with the plugin: %v", err)
					return
				}
				ids.Add("plugin", row.ID)
			}
		})
	}
	wg.Go(func() {
		if err := leaf.insert(admin, 200, ids); err != nil {
			t.Errorf("by Leaf: %v", err)
		}
	})
	wg.Wait()

	// Leaf and the processes that share its row have ended. Then the table may get a tag of its own.
	for _, p := range plugins {
		harness.Close(t, p)
	}
	err := d.Open(t, nil).Use(uidplugin.New(harness.Quiet, segments, uidplugin.WithModels(&newOrder{})))
	testkit.IsError(t, err, segment.ErrRow)
	_, statement, _ := strings.Cut(err.Error(), "or run ")
	harness.Exec(t, admin, statement)
	db, p := use(&newOrder{})
	for range 50 {
		row := newOrder{}
		testkit.Must(t, db.Create(&row).Error)
		ids.Add("plugin", row.ID)
	}
	testkit.Must(t, p.Health())
	var rows int
	testkit.Must(t, admin.Raw("SELECT COUNT(*) FROM orders").Scan(&rows).Error)
	if want := 50 + 3*150 + 200 + 50; rows != want || ids.Len() != want || ids.Twice() > 0 {
		t.Errorf("%d rows, %d ids, %d twice, want %d", rows, ids.Len(), ids.Twice(), want)
	}
}

// A sourceOrder has a key of a source, as for a Leaf service on another server.
type sourceOrder struct {
	ID int64 `gorm:"primaryKey;autoIncrement:false;uid:order-service"`
}

func (sourceOrder) TableName() string { return "orders" }

// If the max_id of a tag that a model or a source names is not above the keys of the table, the tag is another
// column's, or leaf_alloc was restored. Formerly ids then began above the largest key, in a range that a Leaf service
// held in memory.
func TestSegment_NamedTagBehindTheColumnIsRefused(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		g, err := segment.Open(t.Context(), db, "order-service", segment.Config{Step: 10, Start: 100})
		testkit.Must(t, err)
		g.Close()
		harness.Exec(t, db, "CREATE TABLE orders (id BIGINT PRIMARY KEY)")
		harness.Exec(t, db, "INSERT INTO orders VALUES (110)") // max_id is 110: the next id

		err = d.Open(t, nil).Use(uidplugin.New(harness.Quiet, uidplugin.WithModels(&leafOrder{})))
		testkit.IsError(t, err, segment.ErrRow, `the tag "order-service" of leaf_alloc`, "has max_id 110, but the column has numbers up to 110")

		// As in docs/from-leaf.md.
		leafDB := d.Open(t, nil)
		open := func(ctx context.Context, db *gorm.DB, table string) (generator.Generator, error) {
			var used int64
			if err := db.WithContext(ctx).Table(table).Select("COALESCE(MAX(id), 0)").Scan(&used).Error; err != nil {
				return nil, err
			}
			return segment.Open(ctx, leafDB, "order-service", segment.Config{Used: used})
		}
		source := d.Open(t, nil)
		harness.Use(t, source, uidplugin.WithSource("order-service", open), uidplugin.WithModels(&sourceOrder{}))
		testkit.IsError(t, source.Create(&sourceOrder{}).Error, segment.ErrRow, "has max_id 110")

		_, statement, _ := strings.Cut(err.Error(), "then run ")
		harness.Exec(t, db, statement)
		row, other := sourceOrder{}, leafOrder{}
		testkit.Must(t, source.Create(&row).Error)
		named := d.Open(t, nil)
		harness.Use(t, named, uidplugin.WithModels(&leafOrder{}))
		testkit.Must(t, named.Create(&other).Error)
		if row.ID != 111 || other.ID != 121 {
			t.Errorf("the keys are %d and %d", row.ID, other.ID)
		}
	})
}

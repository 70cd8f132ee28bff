package paths_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// These are the models of a small shop. The keys are of three kinds, and GORM would make one column AUTO_INCREMENT.
type (
	Customer struct {
		ID     int64 `gorm:"primaryKey;uid"`
		Name   string
		Orders []Order
	}
	Order struct {
		uidplugin.Model
		CustomerID int64
		Items      []Item
		Tags       []Tag `gorm:"many2many:order_tags"`
	}
	Item struct {
		ID      string `gorm:"primaryKey;uid;size:20"`
		OrderID uidplugin.ID
		Title   string
	}
	Tag struct {
		ID   uint64 `gorm:"primaryKey;autoIncrement:false;uid"`
		Name string
	}
)

var shop = []any{&Customer{}, &Order{}, &Item{}, &Tag{}}

func TestMainJob(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		ctx := context.Background()
		db := d.Open(t, nil)
		p := harness.Use(t, db)
		testkit.Must(t, p.AutoMigrate(shop...))

		c := Customer{Name: "Ada", Orders: []Order{
			{Items: []Item{{Title: "pen"}, {Title: "ink"}}, Tags: []Tag{{Name: "gift"}}},
			{},
		}}
		testkit.Must(t, db.Create(&c).Error)
		many := make([]Customer, 2500)
		testkit.Must(t, db.CreateInBatches(&many, 1000).Error)
		last := c.ID
		for i, m := range many {
			if m.ID <= last {
				t.Fatalf("customer %d has id %d after %d", i, m.ID, last)
			}
			last = m.ID
		}

		// The rows exist with these ids, and the foreign keys agree.
		var back Customer
		testkit.Must(t, db.Preload("Orders.Items").Preload("Orders.Tags").First(&back, "id = ?", c.ID).Error)
		if len(back.Orders) != 2 || len(back.Orders[0].Items) != 2 || back.Orders[0].Tags[0].ID != c.Orders[0].Tags[0].ID {
			t.Fatalf("read back %+v, created %+v", back, c)
		}

		// Each id leads to its table, in this process and in another.
		other := d.Open(t, nil)
		elsewhere := harness.Use(t, other, uidplugin.WithModels(shop...))
		var item int64
		if _, err := fmt.Sscan(c.Orders[0].Items[0].ID, &item); err != nil {
			t.Fatal(err)
		}
		ids := map[int64]string{
			c.ID: "customers", int64(c.Orders[1].ID): "orders", item: "items", int64(c.Orders[0].Tags[0].ID): "tags",
		}
		for _, p := range []*uidplugin.Plugin{p, elsewhere} {
			for id, table := range ids {
				where, err := p.Locate(ctx, uidplugin.ID(id))
				if err != nil || where.Table != table {
					t.Errorf("Locate(%d) = %+v, %v; want table %s", id, where, err, table)
				}
				if age := time.Since(where.Time); age < -time.Hour || age > 10*time.Minute {
					t.Errorf("Locate(%d).Time = %v, %v ago", id, where.Time, age)
				}
				if s := where.Session; s.Launched.After(where.Time.Add(time.Second)) || s.Host == "" || s.Port == "" || s.Application == "" {
					t.Errorf("Locate(%d) = %+v", id, where)
				}
				if _, err := p.Find(ctx, uidplugin.ID(id)); err != nil {
					t.Errorf("Find(%d): %v", id, err)
				}
			}
		}
		row, err := elsewhere.Find(ctx, uidplugin.ID(c.ID))
		if got, ok := row.(*Customer); !ok || got.Name != "Ada" {
			t.Errorf("Find = %#v, %v", row, err)
		}
		testkit.Must(t, db.Delete(&Order{}, c.Orders[1].ID).Error)
		if _, err := p.Find(ctx, c.Orders[1].ID); !errors.Is(err, gorm.ErrRecordNotFound) {
			t.Errorf("Find of a deleted row: %v", err)
		}
	})
}

// Keys of models that the plugin migrates are plain columns. So an INSERT without a key fails instead of using the
// plugin's next id.
func TestMainJob_PlainKeys(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		p := harness.Use(t, db)
		testkit.Must(t, p.AutoMigrate(shop...))
		if err := db.Exec("INSERT INTO customers (name) VALUES ('manually')").Error; err == nil {
			t.Error("an INSERT without a key went through")
		}
		columns, err := db.Migrator().ColumnTypes(&Customer{})
		testkit.Must(t, err)
		for _, c := range columns {
			if auto, ok := c.AutoIncrement(); c.Name() == "id" && ok && auto {
				t.Error("customers.id is AUTO_INCREMENT")
			}
		}
		// A second migration finds nothing to change.
		if err := p.AutoMigrate(shop...); err != nil {
			t.Error(err)
		}
	}, "mariadb", "mysql", "postgres") // SQLite assigns a row id to every integer key
}

// A key that GORM's own AutoMigrate made AUTO_INCREMENT works all the same.
func TestMainJob_AutoIncrementKeyStillWorks(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		type Legacy struct {
			ID   int64 `gorm:"uid"`
			Name string
		}
		db := d.Open(t, nil)
		p := harness.Use(t, db)
		testkit.Must(t, db.AutoMigrate(&Legacy{}))
		testkit.Must(t, p.Register(t.Context(), &Legacy{}))
		rows := []Legacy{{Name: "a"}, {Name: "b"}}
		testkit.Must(t, db.Create(&rows).Error)
		maps := []map[string]any{{"name": "c"}, {"name": "d"}}
		testkit.Must(t, db.Model(&Legacy{}).Create(&maps).Error)
		ids := []int64{rows[0].ID, rows[1].ID, maps[0]["id"].(int64), maps[1]["id"].(int64)}
		for _, id := range ids {
			if _, err := p.Find(context.Background(), uidplugin.ID(id)); err != nil {
				t.Errorf("Find(%d): %v", id, err)
			}
		}
	})
}

// If the key of an existing table does not fit, the log says so when its model is registered, because neither GORM
// nor the plugin changes the column.
func TestMainJob_TablesThatDoNotFitAreToldOf(t *testing.T) {
	t.Parallel()
	type Adopted struct {
		ID   int64 `gorm:"primaryKey;uid"`
		Name string
	}
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		create := "CREATE TABLE adopteds (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, name TEXT)"
		if d.Name == "postgres" {
			create = "CREATE TABLE adopteds (id BIGSERIAL PRIMARY KEY, name TEXT)"
		}
		testkit.Must(t, db.Exec(create).Error)
		var log testkit.Log
		p := uidplugin.New(uidplugin.WithModels(&Adopted{}), uidplugin.WithLogger(log.Logger()))
		testkit.Must(t, db.Use(p))
		if text := log.String(); !strings.Contains(text, "adopteds") || !strings.Contains(text, "numbers keys too") {
			t.Errorf("logged %s", text)
		}
		before := len(log.Lines("WARN"))
		testkit.Must(t, db.Exec("DROP TABLE adopteds").Error)
		testkit.Must(t, p.AutoMigrate(&Adopted{}))
		if n := len(log.Lines("WARN")); n != before {
			t.Errorf("logged %s", log.String())
		}
		testkit.Must(t, db.Exec("DROP TABLE adopteds").Error)
		testkit.Must(t, db.Exec("CREATE TABLE adopteds (id INT NOT NULL PRIMARY KEY)").Error)
		if err := p.Register(context.Background(), &Adopted{}); err != nil || !strings.Contains(log.String(), "too narrow") {
			t.Errorf("%v, logged %s", err, log.String())
		}
	}, "mariadb", "mysql", "postgres")
}

// An application lists its main models. The tables of their associations are created along with them, and need the same
// warnings.
func TestMainJob_TablesOfAssociatedModelsAreToldOf(t *testing.T) {
	t.Parallel()
	type Piece struct {
		ID      int64 `gorm:"primaryKey;uid"`
		WholeID int64
	}
	type Whole struct {
		ID     int64 `gorm:"primaryKey;uid"`
		Pieces []Piece
	}
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		key := "BIGINT NOT NULL AUTO_INCREMENT"
		if d.Name == "postgres" {
			key = "BIGSERIAL"
		}
		testkit.Must(t, db.Exec("CREATE TABLE pieces (id "+key+" PRIMARY KEY, whole_id BIGINT NOT NULL)").Error)
		var log testkit.Log
		harness.Use(t, db, uidplugin.WithModels(&Whole{}), uidplugin.WithLogger(log.Logger()))
		if lines := log.Lines("numbers keys too"); len(lines) != 1 || !strings.Contains(lines[0], "columns=pieces.id") {
			t.Errorf("logged %q", lines)
		}
	}, "mariadb", "mysql", "postgres")
}

// The warning about numbers among the ids has the statement that changes the table: it is run as it is logged, and then
// there is no warning, and an INSERT without a key fails. Formerly it had none for an IDENTITY column of PostgreSQL.
func TestMainJob_TheStatementOfTheWarningMakesAKeyPlain(t *testing.T) {
	t.Parallel()
	type Adopted struct {
		ID   int64 `gorm:"primaryKey;uid"`
		Name string
	}
	logged := regexp.MustCompile(`statement=("(?:[^"\\]|\\.)*")`)
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		keys := []string{"BIGINT NOT NULL AUTO_INCREMENT", "BIGINT UNSIGNED NOT NULL AUTO_INCREMENT"}
		if d.Name == "postgres" {
			keys = []string{"BIGSERIAL", "BIGINT GENERATED BY DEFAULT AS IDENTITY"}
		}
		for _, key := range keys {
			db := d.New(t).Open(t, nil)
			testkit.Must(t, db.Exec("CREATE TABLE adopteds (id "+key+" PRIMARY KEY, name TEXT)").Error)
			var log testkit.Log
			p := harness.Use(t, db, uidplugin.WithModels(&Adopted{}), uidplugin.WithLogger(log.Logger()))
			testkit.Must(t, db.Create(&Adopted{}).Error)
			if d.Name == "postgres" {
				testkit.Must(t, db.Exec("SELECT setval('adopteds_id_seq', (SELECT MAX(id) FROM adopteds))").Error)
			}
			for range 16 { // the last has the next worker id
				testkit.Must(t, db.Exec("INSERT INTO adopteds (name) VALUES ('manually')").Error)
			}
			testkit.Must(t, p.Register(t.Context(), &Adopted{}))
			found := logged.FindStringSubmatch(log.String())
			if found == nil {
				t.Fatalf("%s: logged %s", key, log.String())
			}
			statement, err := strconv.Unquote(found[1])
			testkit.Must(t, err)
			testkit.Must(t, db.Exec(statement).Error)
			before := len(log.Lines("WARN"))
			testkit.Must(t, p.Register(t.Context(), &Adopted{}))
			if n := len(log.Lines("WARN")); n != before {
				t.Errorf("%s: logged %s", key, log.String())
			}
			if err := db.Exec("INSERT INTO adopteds (name) VALUES ('manually')").Error; err == nil {
				t.Errorf("%s: an INSERT without a key went through", key)
			}
			testkit.Must(t, db.Create(&Adopted{}).Error)
		}
	}, "mariadb", "mysql", "postgres")
}

// A key that is GENERATED ALWAYS refuses all ids. The error of db.Use has the statement after which creates work; then
// the warning about a key that the database numbers follows.
func TestMainJob_AKeyThatIsAlwaysGeneratedIsToldOf(t *testing.T) {
	t.Parallel()
	type Adopted struct {
		ID   int64 `gorm:"primaryKey;uid"`
		Name string
	}
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		testkit.Must(t, db.Exec("CREATE TABLE adopteds (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name TEXT)").Error)
		var log testkit.Log
		p := harness.Use(t, db, uidplugin.WithModels(&Adopted{}), uidplugin.WithLogger(log.Logger()))
		if err := db.Create(&Adopted{}).Error; err == nil || !strings.Contains(err.Error(), "428C9") {
			t.Fatalf("create: %v", err)
		}
		found := regexp.MustCompile(`creates fail.*statement=("(?:[^"\\]|\\.)*")`).FindStringSubmatch(strings.Join(log.Lines("ERROR"), "\n"))
		if found == nil {
			t.Fatalf("logged %s", log.String())
		}
		statement, err := strconv.Unquote(found[1])
		testkit.Must(t, err)
		testkit.Must(t, db.Exec(statement).Error)
		testkit.Must(t, p.AutoMigrate(&Adopted{}))
		testkit.Must(t, db.Create(&Adopted{}).Error)
		if lines := log.Lines("numbers keys too"); len(lines) != 1 {
			t.Errorf("logged %s", log.String())
		}
	}, "postgres")
}

// A table that db.Table names has a plain key too. GORM's own AutoMigrate leaves it to the database to number the key.
// The plugin's AutoMigrate and Register then log that once.
func TestMainJob_TablesThatTableNamesHavePlainKeys(t *testing.T) {
	t.Parallel()
	type Archived struct {
		ID   int64 `gorm:"primaryKey;uid"`
		Name string
	}
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		var log testkit.Log
		harness.Use(t, db, uidplugin.WithModels(&Archived{}), uidplugin.WithLogger(log.Logger()))
		plain := func(table string) bool {
			return db.Exec("INSERT INTO "+table+" (name) VALUES ('manually')").Error != nil
		}
		testkit.Must(t, uidplugin.From(db.Table("ours")).AutoMigrate(&Archived{}))
		if warnings := log.Lines("WARN"); !plain("ours") || len(warnings) > 0 {
			t.Errorf("the key of ours: plain is %v, warnings are %q", plain("ours"), warnings)
		}
		testkit.Must(t, db.Table("theirs").AutoMigrate(&Archived{}))
		testkit.Must(t, uidplugin.From(db.Table("theirs")).AutoMigrate(&Archived{}))
		if lines := log.Lines("columns=theirs.id"); plain("theirs") || len(lines) != 1 {
			t.Fatalf("the key of theirs: plain is %v, lines are %q", plain("theirs"), lines)
		}
		for range 2 {
			testkit.Must(t, uidplugin.From(db.Table("theirs")).AutoMigrate(&Archived{}))
			testkit.Must(t, uidplugin.From(db.Table("theirs")).Register(t.Context(), &Archived{}))
		}
		if n := len(log.Lines("columns=theirs.id")); n != 1 {
			t.Errorf("%d lines: %s", n, log.String())
		}
		testkit.Must(t, db.Table("theirs").Create(&Archived{}).Error)
	}, "mariadb", "mysql", "postgres") // the root folder has one for SQLite, which numbers every integer key
}

func TestMainJob_AscendingOverRestarts(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		var last int64
		for start := range 5 {
			db := d.Open(t, nil)
			p := harness.Use(t, db)
			testkit.Must(t, p.AutoMigrate(&Customer{}))
			for range 20 {
				c := Customer{}
				testkit.Must(t, db.Create(&c).Error)
				if c.ID <= last {
					t.Fatalf("start %d: id %d after %d", start, c.ID, last)
				}
				last = c.ID
			}
		}
	})
}

// Names that need quotes, and names in a schema of their own.
func TestMainJob_NamesThatNeedQuotes(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		p := harness.Use(t, db)
		testkit.Must(t, p.AutoMigrate(&Select{}))
		s := Select{From: "here"}
		testkit.Must(t, db.Create(&s).Error)
		where, err := p.Locate(context.Background(), uidplugin.ID(s.Key))
		if err != nil || where.Table != s.TableName() {
			t.Errorf("Locate = %+v, %v", where, err)
		}
		row, err := p.Find(context.Background(), uidplugin.ID(s.Key))
		if err != nil || row.(*Select).From != "here" {
			t.Errorf("Find = %+v, %v", row, err)
		}
	})
}

// Select is a model whose names are all reserved words or worse.
type Select struct {
	Key  int64  `gorm:"column:order;primaryKey;uid"`
	From string `gorm:"column:from"`
}

// TableName implements GORM's Tabler.
func (Select) TableName() string { return "group by 数" }

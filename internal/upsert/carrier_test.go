package upsert

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/uidplugin/uidplugin/internal/model"
	"github.com/uidplugin/uidplugin/internal/testkit"
	driver "gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/logger"
)

type (
	// Shipment is UpdateAll's common case, with a column for the shard.
	Shipment struct {
		ID        int64 `gorm:"primaryKey;autoIncrement:false;uid"`
		Tenant    int64
		Code      string `gorm:"uniqueIndex"`
		Name      string
		UpdatedAt time.Time
	}
	// Numbered has a schema with AUTO_INCREMENT, so GORM wants RETURNING.
	Numbered struct {
		ID   int64  `gorm:"primaryKey;uid"`
		Code string `gorm:"uniqueIndex"`
		Name string
	}
	// Natural has nothing but a key of the application and a uid.
	Natural struct {
		Code string `gorm:"primaryKey"`
		Ref  int64  `gorm:"uid"`
	}
	// Pair has a key of two columns, neither of which is first.
	Pair struct {
		Name  string
		Shop  string `gorm:"primaryKey"`
		Place string `gorm:"primaryKey"`
		Ref   int64  `gorm:"uid"`
	}
	// Beside has a uid next to a key that the database numbers.
	Beside struct {
		ID   int64
		Ref  int64  `gorm:"uid"`
		Code string `gorm:"uniqueIndex"`
	}
)

// rewritten returns a handle whose creates are rewritten as the plugin does it, with ids from 1000.
func rewritten(tb testing.TB, db *gorm.DB) *gorm.DB {
	tb.Helper()
	testkit.Must(tb, db.Callback().Create().Before("gorm:create").Register("rewrite", func(db *gorm.DB) {
		stmt := db.Statement
		m, err := model.New(db, stmt.Schema, model.Target{Largest: 1<<62 - 1, Dialect: "mysql"})
		testkit.Must(tb, err)
		t := TrackerOf(stmt)
		for _, f := range m.Fields {
			for i, r := range model.RowsOf(stmt.ReflectValue, m.Schema.ModelType) {
				testkit.Must(tb, r.Set(stmt.Context, f, int64(1000+i)))
				t.Note(f, int64(1000+i))
			}
		}
		Rewrite(stmt, m)
	}))
	return db
}

var assignment = regexp.MustCompile("`(\\w+)`=")

// assigned returns the columns that the update part of a statement assigns.
func assigned(tb testing.TB, db *gorm.DB) []string {
	tb.Helper()
	_, update, found := strings.Cut(db.Statement.SQL.String(), "ON DUPLICATE KEY UPDATE ")
	if !found || db.Error != nil {
		tb.Errorf("%s: %v", db.Statement.SQL.String(), db.Error)
	}
	columns := map[string]bool{}
	for _, match := range assignment.FindAllStringSubmatch(update, -1) {
		columns[match[1]] = true
	}
	return slices.Sorted(maps.Keys(columns))
}

// An assignment of a key may be refused although it changes nothing, as by Vitess for the columns that choose a shard.
func TestRewrite_AssignsNoKeyThatGORMAloneWouldNot(t *testing.T) {
	t.Parallel()

	code := []clause.Column{{Name: "code"}}
	conflicts := map[string]clause.OnConflict{
		"nothing":             {DoNothing: true},
		"nothing at":          {Columns: code, DoNothing: true},
		"update":              {Columns: code, DoUpdates: clause.AssignmentColumns([]string{"name"})},
		"update of the index": {Columns: code, DoUpdates: clause.AssignmentColumns([]string{"code"})},
		"update of ids":       {Columns: code, DoUpdates: clause.AssignmentColumns([]string{"ref"})},
		"update of the key":   {Columns: code, DoUpdates: clause.AssignmentColumns([]string{"id"})},
		"unknown column":      {DoUpdates: clause.Assignments(map[string]any{"hits": gorm.Expr("hits + 1")})},
		"all":                 {UpdateAll: true},
		"all at":              {Columns: code, UpdateAll: true},
		"all and nothing":     {UpdateAll: true, DoNothing: true},
		"neither":             {},
	}
	dests := map[string]func() any{
		"Shipment":  func() any { return &Shipment{Code: "a"} },
		"Shipments": func() any { return &[]Shipment{{Code: "a"}, {Code: "b"}} },
		"Numbered":  func() any { return &Numbered{Code: "a"} },
		"Numbereds": func() any { return &[]Numbered{{Code: "a"}, {Code: "b"}} },
		"Natural":   func() any { return &Natural{Code: "a"} },
		"Naturals":  func() any { return &[]Natural{{Code: "a"}, {Code: "b"}} },
		"Pair":      func() any { return &Pair{Shop: "a", Place: "a"} },
		"Pairs":     func() any { return &[]Pair{{Shop: "a", Place: "a"}, {Shop: "b", Place: "a"}} },
		"Beside":    func() any { return &Beside{Code: "a"} },
		"Besides":   func() any { return &[]Beside{{Code: "a"}, {Code: "b"}} },
	}
	uses := map[string]func(*gorm.DB) *gorm.DB{
		"":               func(db *gorm.DB) *gorm.DB { return db },
		"with a result":  func(db *gorm.DB) *gorm.DB { return db.Clauses(gorm.WithResult()) },
		"omitting Name":  func(db *gorm.DB) *gorm.DB { return db.Omit("Name") },
		"selecting Code": func(db *gorm.DB) *gorm.DB { return db.Select("Code") },
	}
	keys := []string{"id", "shop", "place"}
	for _, version := range []string{"8.4.0", "10.11.0-MariaDB"} {
		plain, changed := dryMySQL(t, version), rewritten(t, dryMySQL(t, version))
		for name, conflict := range conflicts {
			for what, dest := range dests {
				for how, use := range uses {
					alone := assigned(t, use(plain.Clauses(conflict)).Create(dest()))
					tx := use(changed.Clauses(conflict)).Create(dest())
					for _, column := range assigned(t, tx) {
						isKey := slices.Contains(keys, column) || column == "code" && strings.HasPrefix(what, "Natural")
						if isKey && !slices.Contains(alone, column) {
							t.Errorf("%s, %s, %s %s: %s; GORM alone assigns %v", version, name, what, how, tx.Statement.SQL.String(), alone)
						}
					}
				}
			}
		}
	}
}

// GORM saves the children of a row with an update of their foreign key. On Vitess it may be the column that chooses the
// shard, which a statement may set to VALUES of itself only.
func TestRewrite_LeavesForeignKeysAsGORMAssignsThem(t *testing.T) {
	t.Parallel()

	type Part struct {
		ID         int64 `gorm:"primaryKey;autoIncrement:false;uid"`
		ShipmentID int64
		Title      string
		Size       int
		CreatedAt  time.Time
	}
	type Bare struct {
		ID         int64 `gorm:"primaryKey;autoIncrement:false;uid"`
		ShipmentID int64
	}
	update := func(columns ...string) clause.OnConflict {
		return clause.OnConflict{Columns: []clause.Column{{Name: "id"}}, DoUpdates: clause.AssignmentColumns(columns)}
	}
	const id = "IF(LAST_INSERT_ID(IF(`id` BETWEEN 2 AND 9223372036854775807,`id`,1))=0,"
	for _, c := range []struct {
		dest     any
		conflict clause.OnConflict
		want     string
	}{
		{&Part{Title: "lid"}, update("shipment_id"), "`shipment_id`=VALUES(`shipment_id`),`size`=" + id + "`size`,`size`)"},
		{&Part{Title: "lid"}, update("title", "shipment_id"), "`title`=" + id + "VALUES(`title`),VALUES(`title`)),`title`=VALUES(`title`),`shipment_id`=VALUES(`shipment_id`)"},
		// There is no other column.
		{&Bare{}, update("shipment_id"), "`shipment_id`=" + id + "VALUES(`shipment_id`),VALUES(`shipment_id`)),`shipment_id`=VALUES(`shipment_id`)"},
	} {
		tx := rewritten(t, dryMySQL(t, "8.4.6-Vitess")).Clauses(c.conflict).Create(c.dest)
		_, got, _ := strings.Cut(tx.Statement.SQL.String(), "ON DUPLICATE KEY UPDATE ")
		if tx.Error != nil || got != c.want {
			t.Errorf("%T: %s, %v\nwant %s", c.dest, got, tx.Error, c.want)
		}
	}
}

// dryMySQL returns a handle that builds the statements for a version of MySQL or MariaDB and sends nothing.
func dryMySQL(tb testing.TB, version string) *gorm.DB {
	tb.Helper()
	pool, mock, err := sqlmock.New(sqlmock.QueryMatcherOption(sqlmock.QueryMatcherEqual))
	testkit.Must(tb, err)
	tb.Cleanup(func() { _ = pool.Close() })
	mock.ExpectQuery("SELECT VERSION()").WillReturnRows(sqlmock.NewRows([]string{"version"}).AddRow(version))
	db, err := gorm.Open(driver.New(driver.Config{Conn: pool}), &gorm.Config{DryRun: true, SkipDefaultTransaction: true, Logger: logger.Discard})
	testkit.Must(tb, err)
	return db
}

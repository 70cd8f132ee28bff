package upsert_test

import (
	"database/sql/driver"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

type (
	// TypedRow has a conflict column of a type that the test chooses.
	TypedRow[V any] struct {
		ID   int64 `gorm:"primaryKey;autoIncrement:false;uid"`
		Val  V
		Note string        `gorm:"size:50"`
		Kids []TypedKid[V] `gorm:"foreignKey:RowID;references:ID"`
	}
	TypedKid[V any] struct {
		ID    int64 `gorm:"primaryKey;autoIncrement:false;uid"`
		RowID int64
	}
	// Celsius is a number with a type of its own.
	Celsius struct{ Milli int64 }
	// Tags are stored as JSON.
	Tags struct{ A, B int }
)

func (TypedRow[V]) TableName() string { return typedTable[V]("typed_rows_") }
func (TypedKid[V]) TableName() string { return typedTable[V]("typed_kids_") }

var notWord = regexp.MustCompile(`\W`)

// typedTable returns the name of a table of its own, because the plugin notes the columns of a table.
func typedTable[V any](prefix string) string {
	return prefix + strings.ToLower(notWord.ReplaceAllString(reflect.TypeFor[V]().String(), ""))
}

func (c Celsius) Value() (driver.Value, error) { return float64(c.Milli) / 1000, nil }

func (c *Celsius) Scan(v any) error {
	_, err := fmt.Sscan(fmt.Sprintf("%s", v), &c.Milli)
	return err
}

func (v Tags) Value() (driver.Value, error) { return fmt.Sprintf(`{"b":%d, "a":%d}`, v.B, v.A), nil }

func (v *Tags) Scan(any) error { return nil }

// A typedCase is a column, values of which the column keeps the same, and how to make others.
type typedCase struct {
	column string // its type; "UNIQUE" follows
	unique string // INDEX with what follows the name of the column in it, if there is one instead of UNIQUE
	create func(t *testing.T, db *gorm.DB, c typedCase, constraint bool)
}

// typed returns a case. twice are values that meet the row of the first; other makes further values, or is nil.
func typed[V any](column string, other func(i int) V, twice ...V) typedCase {
	return typedCase{column: column, create: func(t *testing.T, db *gorm.DB, c typedCase, constraint bool) {
		t.Helper()
		createTyped(t, db, c, constraint, other, twice)
	}}
}

func (c typedCase) with(unique string) typedCase {
	c.unique = unique
	return c
}

var (
	moment = time.Date(2026, 11, 26, 12, 34, 56, 123456e3, time.UTC)
	val    = []clause.Column{{Name: "val"}}
)

// days returns a time on another day, with parts of a second.
func days(i int) time.Time { return moment.AddDate(0, 0, i+1) }

func texts(i int) string { return fmt.Sprintf("t%03d", i) }

// everywhere are the cases that all engines know, under names that each understands.
var everywhere = []typedCase{
	typed("VARCHAR(50)", texts, "Abc", "Abc"),
	typed("CHAR(10)", texts, "abc", "abc"),
	typed("DECIMAL(10,2)", func(i int) float64 { return 100.126 + float64(i) }, 1.005, 1.005),
	typed("DECIMAL(10,2)", func(i int) string { return fmt.Sprint(100+i) + ".126" }, "12.345", "12.345"),
	typed("DECIMAL(10,2)", func(i int) Celsius { return Celsius{int64(1000 * i)} }, Celsius{-2345}, Celsius{-2345}),
	typed("DATE", days, moment, moment),
	typed("BIGINT", func(i int) int64 { return int64(i) }, -5, int64(-5)),
	typed("BIGINT", func(i int) int64 { return math.MaxInt64 - 1 - int64(i) }, math.MaxInt64, int64(math.MaxInt64)),
	typed("SMALLINT", func(i int) int8 { return int8(i) }, -5, int8(-5)),
	typed("REAL", func(i int) float32 { return float32(i) + 0.3 }, -0.1, float32(-0.1)),
	typed("DOUBLE PRECISION", func(i int) float64 { return float64(i) + 0.3 }, -0.1, float64(-0.1)),
	typed[bool]("BOOLEAN", nil, true, true),
	typed("VARCHAR(50)", func(i int) *string { return ptr(texts(i)) }, ptr("x"), ptr("x")),
}

var onMySQL = []typedCase{
	typed("DATE", days, moment, moment.Add(3*time.Hour)),
	typed("DATETIME(0)", days, moment, moment.Add(30*time.Microsecond)),
	typed("DATETIME(3)", days, moment, moment.Add(30*time.Microsecond)),
	typed("DATETIME(6)", days, moment, moment.Add(200*time.Nanosecond)),
	typed("TIMESTAMP(3)", days, moment, moment.Add(30*time.Microsecond)),
	typed("TIME(1)", func(i int) string { return fmt.Sprintf("%02d:00:00.26", i) }, "-12:34:56.123", "-12:34:56.123"),
	typed("DECIMAL(20,0)", func(i int) uint64 { return math.MaxUint64 - uint64(i) - 1 }, math.MaxUint64, uint64(math.MaxUint64)),
	typed("YEAR", func(i int) int { return 1950 + i }, 2077, 2077),
	typed("FLOAT", func(i int) float64 { return float64(i) + 0.3 }, -0.1, float64(-0.1)),
	typed("FLOAT(10,2)", func(i int) float64 { return float64(i) + 0.126 }, -0.126, float64(-0.126)),
	typed("DOUBLE(10,2)", func(i int) float64 { return float64(i) + 0.126 }, -0.126, float64(-0.126)),
	typed("INT", func(i int) float64 { return float64(i) + 0.3 }, -7.6, float64(-7.6)),
	typed("INT", func(i int) string { return fmt.Sprintf("%d.6", i+10) }, "-7.6", "-7.6"),
	typed("BIGINT UNSIGNED", func(i int) uint64 { return math.MaxUint64 - 1 - uint64(i) }, math.MaxUint64, uint64(math.MaxUint64)),
	typed("VARCHAR(50) COLLATE utf8mb4_unicode_ci", texts, "Straße", "STRASSE"),
	typed("VARCHAR(50) COLLATE utf8mb4_general_ci", texts, "É", "e", "e  "),
	typed("VARCHAR(50) COLLATE utf8mb4_bin", texts, "e", "e", "e  "),
	typed("CHAR(10) COLLATE utf8mb4_general_ci", texts, "é", "E", "e  "),
	typed("VARCHAR(3)", func(i int) string { return fmt.Sprintf("%03d", i) }, "ab ", "ab     "),
	typed("VARCHAR(20)", func(i int) int { return i }, -5, -5),
	typed("VARCHAR(20) CHARACTER SET latin1", texts, "é", "é"),
	typed("VARCHAR(200)", func(i int) string { return fmt.Sprintf("%03d_and more", i) }, "50%_|x and this", "50%_|X and that").with("INDEX(5)"),
	typed("TEXT", func(i int) string { return fmt.Sprintf("%03d_and more", i) }, "ab", "AB").with("INDEX(5)"),
	typed("BLOB", func(i int) []byte { return fmt.Appendf(nil, "%03d_and more", i) }, []byte{255, 1, 2, 3, 4, 5}, []byte{255, 1, 2, 3, 4, 6}).with("INDEX(5)"),
	typed("BINARY(6)", func(i int) []byte { return fmt.Appendf(nil, "%03d", i) }, []byte("ab"), []byte("ab\x00")),
	typed("VARBINARY(20)", func(i int) []byte { return fmt.Appendf(nil, "%03d", i) }, []byte{255}, []byte{255}),
	typed("BIT(16)", func(i int) int { return i }, 40000, 40000),
	typed[string]("ENUM('a','b')", nil, "a", "A"),
	typed[int]("ENUM('a','b')", nil, 1, 1),
	typed[string]("SET('a','b','c')", nil, "a,c", "A,C"),
	typed[int]("TINYINT(1)", nil, 1, 1),
}

var onMySQL9 = []typedCase{
	typed("CHAR(10) COLLATE utf8mb4_0900_ai_ci", texts, "é", "E", "e  "), // which does not pad
	typed("CHAR(10) COLLATE utf8mb4_0900_as_cs", texts, "é", "é  "),
}

var onMariaDB = []typedCase{
	typed("CHAR(10) COLLATE utf8mb4_nopad_bin", texts, "é", "é  "),
	typed("UUID", func(i int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012x", i) },
		"f0000000-0000-4000-8000-00000000000a", "F0000000-0000-4000-8000-00000000000A"),
	typed("INET6", func(i int) string { return fmt.Sprintf("2001:db8::%x", i+1) }, "::1", "0:0:0:0:0:0:0:1"),
	typed("TEXT", texts, "Abc", "abc"), // unique by a hash
}

var onPostgres = []typedCase{
	typed("DATE", days, moment, moment.Add(3*time.Hour)),
	typed("TIMESTAMP(3)", days, moment, moment.Add(30*time.Microsecond)),
	typed("TIMESTAMPTZ(3)", days, moment, moment.Add(30*time.Microsecond)),
	typed("TIMESTAMPTZ(0)", days, moment, moment.In(time.FixedZone("", 3600))),
	typed("TIMESTAMPTZ", days, moment, moment.Add(200*time.Nanosecond)),
	typed("TIME(1)", func(i int) string { return fmt.Sprintf("00:%02d:%02d.26", i/60, i%60) }, "12:34:56.123", "12:34:56.123"),
	typed("INTERVAL(1)", func(i int) string { return fmt.Sprintf("%d.26 seconds", i) }, "12:34:56.123", "12:34:56.123"),
	typed("NUMERIC", func(i int) float64 { return float64(i) + 0.3 }, -0.1, float64(-0.1)),
	typed("REAL", func(i int) float64 { return float64(i) + 0.3 }, -0.1, float64(-0.1)),
	typed("CHAR(10)", texts, "e", "e  "),
	typed("VARCHAR(3)", func(i int) string { return fmt.Sprintf("%03d", i) }, "ab ", "ab     "),
	typed("TEXT", texts, "e", "e"),
	typed("CITEXT", texts, "E", "e"),
	typed("PRICE", func(i int) float64 { return 100.126 + float64(i) }, 1.005, 1.005),
	typed("TEXT COLLATE anycase", texts, "e", "E"),
	typed("BYTEA", func(i int) []byte { return fmt.Appendf(nil, "%03d", i) }, []byte{255, 0}, []byte{255, 0}),
	typed("BIT(4)", nil, "1010", "1010"),
	typed("VARBIT(20)", func(i int) string { return fmt.Sprintf("%b", i) }, "0001010", "0001010"),
	typed("UUID", func(i int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012x", i) },
		"f0000000-0000-4000-8000-00000000000a", "F0000000-0000-4000-8000-00000000000A"),
	typed("MOOD", nil, "sad", "sad"),
	typed("INET", func(i int) string { return fmt.Sprintf("2001:db8::%x", i+1) }, "::1", "0:0:0:0:0:0:0:1"),
	typed("JSONB", func(i int) Tags { return Tags{i, 1} }, Tags{1, 2}, Tags{1, 2}),
	typed("TEXT[]", func(i int) string { return fmt.Sprintf("{a,%d}", i) }, `{a,b}`, `{ a, "b" }`),
}

var onSQLite = []typedCase{
	typed("DATETIME", days, moment, moment),
	typed("TEXT", func(i int) int { return i }, -5, -5),
	typed("NUMERIC", func(i int) string { return fmt.Sprint(i) + ".0" }, "-5", "-5.0"),
	typed("INTEGER", func(i int) float64 { return float64(i) }, -5, float64(-5)),
	typed("BLOB", func(i int) []byte { return fmt.Appendf(nil, "%03d", i) }, []byte{255}, []byte{255}),
	typed("TEXT COLLATE NOCASE", texts, "e", "E"),
	typed("TEXT", texts, "e", "E").with("INDEX COLLATE NOCASE"),
	typed("TEXT", texts, "e", "e  ").with("INDEX COLLATE RTRIM"),
}

// A struct has the id of its row after an upsert, and its children refer to it, whatever type the conflict column has.
func TestUpsert_OfAColumnOfAnyType(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		if d.Name == "postgres" { // whose driver remembers the types of columns
			db = d.Open(t, nil, "default_query_exec_mode=describe_exec")
		}
		harness.Use(t, db)
		cases := everywhere
		switch d.Name {
		case "sqlite":
			cases = append(cases[:len(cases):len(cases)], onSQLite...)
		case "mysql":
			cases = append(append(cases[:len(cases):len(cases)], onMySQL...), onMySQL9...)
		case "mariadb":
			cases = append(append(cases[:len(cases):len(cases)], onMySQL...), onMariaDB...)
		case "postgres":
			cases = append(cases[:len(cases):len(cases)], onPostgres...)
			testkit.Must(t, db.Exec("CREATE EXTENSION citext").Error)
			testkit.Must(t, db.Exec("CREATE DOMAIN price AS NUMERIC(10,2)").Error)
			testkit.Must(t, db.Exec("CREATE TYPE mood AS ENUM ('sad', 'happy')").Error)
			testkit.Must(t, db.Exec("CREATE COLLATION anycase (provider = icu, locale = 'und-u-ks-level2', deterministic = false)").Error)
		}
		for _, c := range cases {
			for _, constraint := range []bool{true, false} {
				c.create(t, db, c, constraint)
			}
		}
	})
}

func createTypedTables[V any](t *testing.T, db *gorm.DB, c typedCase, constraint bool) {
	t.Helper()
	rows, kids := TypedRow[V]{}.TableName(), TypedKid[V]{}.TableName()
	column, index, reference := c.column+" NULL UNIQUE", "", ""
	if rest, ok := strings.CutPrefix(c.unique, "INDEX"); ok {
		column, index = c.column+" NULL", "CREATE UNIQUE INDEX x"+rows+" ON "+rows+" (val"+rest+")"
	}
	if constraint {
		reference = ", FOREIGN KEY (row_id) REFERENCES " + rows + " (id)"
	}
	for _, statement := range []string{
		"DROP TABLE IF EXISTS " + kids, "DROP TABLE IF EXISTS " + rows,
		"CREATE TABLE " + rows + " (id BIGINT NOT NULL PRIMARY KEY, val " + column + ", note VARCHAR(50))", index,
		"CREATE TABLE " + kids + " (id BIGINT NOT NULL PRIMARY KEY, row_id BIGINT" + reference + ")",
	} {
		if statement != "" {
			testkit.Must(t, db.Exec(statement).Error)
		}
	}
}

// createTyped creates the first of twice, and batches of the others with new rows.
func createTyped[V any](t *testing.T, db *gorm.DB, c typedCase, constraint bool, other func(int) V, twice []V) {
	t.Helper()
	type row = TypedRow[V]
	type kid = TypedKid[V]
	rows, kids := row{}.TableName(), kid{}.TableName()
	createTypedTables[V](t, db, c, constraint)
	text := "CONCAT(note, ' ', id)"
	if db.Dialector.Name() == "sqlite" {
		text = "note || ' ' || id"
	}
	if constraint && db.Dialector.Name() == "sqlite" {
		testkit.Must(t, db.Exec("PRAGMA foreign_keys = ON").Error)
	}
	for name, conflict := range map[string]clause.OnConflict{
		"nothing": {Columns: val, DoNothing: true}, "all": {Columns: val, UpdateAll: true},
		"update": {Columns: val, DoUpdates: clause.AssignmentColumns([]string{"note"})},
	} {
		sizes := []int{1, 100}
		if constraint {
			sizes = []int{2}
		}
		if other == nil {
			sizes = []int{1}
		}
		for _, size := range sizes {
			label := fmt.Sprintf("%T in %s %s, constraint %v, %s of %d", twice[0], c.column, c.unique, constraint, name, size)
			testkit.Must(t, db.Exec("DELETE FROM "+kids).Error)
			testkit.Must(t, db.Exec("DELETE FROM "+rows).Error)
			old := created(t, db, row{Val: twice[0], Note: "old"})
			for i, again := range twice[1:] {
				one := created(t, db.Clauses(conflict), row{Val: again, Note: "one", Kids: []kid{{}, {}}})
				batch := []row{{Val: again, Note: "again", Kids: []kid{{}}}}
				for n := 1; n < size; n++ {
					batch = append(batch, row{Val: other(100*i + n), Note: fmt.Sprint(n), Kids: []kid{{}}})
				}
				if err := db.Clauses(conflict).Create(&batch).Error; err != nil {
					t.Errorf("%s: %v", label, err)
					continue
				}
				if one.ID != old.ID || batch[0].ID != old.ID {
					t.Errorf("%s: the row has %d, the structs %d and %d", label, old.ID, one.ID, batch[0].ID)
				}
				there := map[string]bool{}
				for _, row := range queried[[]string](t, db, "SELECT "+text+" FROM "+rows) {
					there[row] = true
				}
				for _, r := range batch[1:] {
					if !there[fmt.Sprint(r.Note, " ", r.ID)] {
						t.Fatalf("%s: the struct of the new row %s has %d", label, r.Note, r.ID)
					}
				}
			}
			if n := queried[int](t, db, "SELECT COUNT(*) FROM "+kids+" WHERE row_id NOT IN (SELECT id FROM "+rows+")"); n > 0 {
				t.Errorf("%s: %d children have no parent", label, n)
			}
		}
	}
}

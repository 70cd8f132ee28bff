package tables_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/migrations"
	"gorm.io/gorm"
)

// installed returns the views and functions of the database, sorted.
func installed(t *testing.T, d *testkit.Database, db *gorm.DB) (names []string) {
	t.Helper()
	query := map[string]string{
		"sqlite": "SELECT name FROM sqlite_master WHERE type = 'view'",
		"postgres": "SELECT proname FROM pg_proc WHERE pronamespace = current_schema()::regnamespace" +
			" UNION SELECT table_name FROM information_schema.views WHERE table_schema = current_schema()",
	}[d.Name]
	if d.IsMySQL() {
		query = "SELECT routine_name FROM information_schema.routines WHERE routine_schema = DATABASE()" +
			" UNION SELECT table_name FROM information_schema.views WHERE table_schema = DATABASE()"
	}
	testkit.Must(t, db.Raw(query).Scan(&names).Error)
	slices.Sort(names)
	return names
}

// all are the names that an engine gets.
func all(d *testkit.Database) []string {
	if d.Name == "sqlite" {
		return []string{"uid_origin"}
	}
	return []string{"uid_origin", "uid_table", "uid_time", "uid_worker"}
}

// run sends statements that end with a semicolon, and returns how many rows each has.
func run(t *testing.T, db *gorm.DB, text string) (counts []int) {
	t.Helper()
	for statement := range strings.SplitSeq(text, ";\n") {
		if strings.TrimSpace(statement) == "" {
			continue
		}
		rows, err := db.Statement.ConnPool.QueryContext(t.Context(), statement)
		if err != nil {
			t.Fatalf("%s\n%v", statement, err)
		}
		n := 0
		for rows.Next() {
			n++
		}
		testkit.Must(t, rows.Err())
		testkit.Must(t, rows.Close())
		counts = append(counts, n)
	}
	return counts
}

// blocks returns the SQL in docs/sql.md that is for an engine. A block that names no engine is for those with
// functions.
func blocks(t *testing.T, d *testkit.Database) (texts []string) {
	t.Helper()
	document, err := os.ReadFile("../../docs/sql.md")
	testkit.Must(t, err)
	for _, m := range regexp.MustCompile("(?s)```sql\n(-- ([^\n]*)\n)?(.*?)```").FindAllStringSubmatch(string(document), -1) {
		engines := strings.ToLower(m[2])
		if engines == "" && d.Name != "sqlite" || strings.Contains(engines, d.Name) {
			texts = append(texts, m[3])
		}
	}
	return texts
}

// Each query of the documentation finds rows, and after the last one no function is left.
func TestFunctions_ExamplesOfTheDocument(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		type Order struct {
			ID   int64 `gorm:"primaryKey;uid"`
			Name string
		}
		type Change struct {
			RowID int64
		}
		db := d.Open(t, nil)
		p := harness.Use(t, db, uidplugin.WithModels(&Order{}))
		testkit.Must(t, db.AutoMigrate(&Order{}, &Change{}))
		order := Order{}
		testkit.Must(t, db.Create(&order).Error)
		testkit.Must(t, db.Create(&Change{order.ID}).Error)
		testkit.Must(t, migrations.CreateFunctions(t.Context(), db))
		l, err := p.Locate(t.Context(), uidplugin.ID(order.ID))
		testkit.Must(t, err)
		own := strings.NewReplacer("1176816959799427126", uidplugin.ID(order.ID).String(),
			"'2026-11-20'", l.Time.Add(-48*time.Hour).Format("'2006-01-02'"),
			"'2026-11-21'", l.Time.Add(48*time.Hour).Format("'2006-01-02'"))
		queries := 0
		for _, text := range blocks(t, d) {
			text = own.Replace(text)
			for i, rows := range run(t, db, text) {
				if strings.HasPrefix(text, "SELECT") {
					queries++
					if rows == 0 {
						t.Errorf("query %d finds nothing:\n%s", i+1, text)
					}
				}
			}
		}
		want := 6
		if d.Name == "sqlite" {
			want = 2
			run(t, db, "DROP VIEW uid_origin;\n")
		}
		if left := installed(t, d, db); queries != want || len(left) > 0 {
			t.Errorf("%d queries, want %d; %q are left", queries, want, left)
		}
	})
}

// db.Use and Up install no functions. The text does what CreateFunctions does, any number of times.
func TestFunctions_OnRequestOnly(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		harness.Use(t, db)
		testkit.Must(t, migrations.Up(t.Context(), db))
		text, err := migrations.FunctionStatements(t.Context(), db)
		testkit.Must(t, err)
		if got := installed(t, d, db); len(got) > 0 {
			t.Errorf("nobody asked for %q", got)
		}
		for range 2 {
			run(t, db, text)
			if got := installed(t, d, db); !slices.Equal(got, all(d)) {
				t.Errorf("the text creates %q", got)
			}
		}
		for range 2 {
			testkit.Must(t, migrations.CreateFunctions(t.Context(), db))
		}
		testkit.Must(t, migrations.Check(t.Context(), db))
	})
}

// A person is rarely in the schema, or the database, of the tables.
func TestFunctions_FromElsewhere(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		p := harness.Use(t, db, uidplugin.WithModels(&harness.T1{}))
		id, err := harness.NextID(p)
		testkit.Must(t, err)
		testkit.Must(t, migrations.CreateFunctions(t.Context(), db))
		in, elsewhere := d.Current()+".", d.Elsewhere(t).Open(t, nil)
		var table string
		testkit.Must(t, elsewhere.Raw("SELECT "+in+"uid_table(?)", id).Scan(&table).Error)
		if table != "t1" {
			t.Errorf("table %q", table)
		}
		table = ""
		testkit.Must(t, elsewhere.Raw("SELECT table_name FROM "+in+"uid_origin WHERE worker_id = "+in+"uid_worker(?)"+
			" AND ? BETWEEN first_id AND last_id", id, id).Scan(&table).Error)
		if table != "t1" {
			t.Errorf("table %q", table)
		}
	}, "mariadb", "mysql", "postgres")
}

// The user of an application may often create tables, and no functions.
func TestCreateFunctions_WithoutTheRight(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		admin := d.Open(t, nil)
		harness.Use(t, admin)
		rights, want := "SELECT", []string{"permission denied", "CREATE on the schema"}
		if d.IsMySQL() {
			rights = "SELECT, CREATE VIEW, DROP"
			want = []string{"uid_time", "denied", "CREATE ROUTINE", "log_bin_trust_function_creators"}
		}
		u := harness.NewUser(t, d)
		u.Grant(rights)
		db := u.Open()
		testkit.IsError(t, migrations.CreateFunctions(t.Context(), db), nil, append(want, "migrations: ", "FunctionStatements")...)
		var left []string
		if d.IsMySQL() {
			left = []string{"uid_origin"}
		}
		if got := installed(t, d, admin); !slices.Equal(got, left) {
			t.Errorf("%q are there", got)
		}
		if _, err := migrations.FunctionStatements(t.Context(), db); err != nil {
			t.Error(err) // who may only read can show the text to somebody else
		}
	}, "mariadb", "mysql", "postgres")
}

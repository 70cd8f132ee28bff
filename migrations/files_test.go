package migrations_test

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/migrations"
)

var dialects = []string{"mysql", "postgres", "sqlite"}

// Processes on all engines share one protocol, and so its columns.
func TestFiles_HaveTheSameTablesAndColumns(t *testing.T) {
	t.Parallel()

	want := []struct {
		name    string
		columns []string
	}{
		{"WORKER_NODE", []string{"ID", "HOST_NAME", "PORT", "TYPE", "LAUNCH_DATE", "MODIFIED", "CREATED", "SLOT", "DATABASE_NAME", "TABLE_NAME", "LAYOUT", "START_TICK"}},
		{"WORKER_SLOT", []string{"ID", "LAYOUT", "REUSABLE", "FENCE", "VERSION", "HOLDER", "SEEN_TICK", "APPLICATION", "HOST_NAME", "PORT", "MODIFIED", "REGION"}},
		{"WORKER_SESSION", []string{"SLOT", "START_TICK", "BEFORE_TICK", "APPLICATION", "HOST_NAME", "PORT", "TYPE", "LAUNCHED", "HOLDER"}},
		{"WORKER_REGISTRY", []string{"NAME", "ID_SPACE", "LAYOUT", "LEAD_TICKS", "NEXT_ID", "NEXT_SLOT", "FLOOR_TICK", "SCHEMA_VERSION", "STRIDE", "REMAINDER", "FIRST_ID"}},
	}
	for _, dialect := range dialects {
		tables, err := migrations.Parse(dialect)
		must(t, err)
		if len(tables) != len(want) {
			t.Fatalf("%s: %+v", dialect, tables)
		}
		for i, w := range want {
			if tables[i].Name != w.name || !slices.Equal(tables[i].Columns, w.columns) {
				t.Errorf("%s: %s %q", dialect, tables[i].Name, tables[i].Columns)
			}
		}
		for _, table := range tables {
			if len(table.Define) != len(table.Columns) {
				t.Errorf("%s: %d columns, %d definitions", dialect, len(table.Columns), len(table.Define))
			}
			for name, define := range table.Define {
				if !regexp.MustCompile("^[`\"]"+name+"[`\"] [A-Z]").MatchString(define) || strings.HasSuffix(define, ",") {
					t.Errorf("%s: %s", dialect, define)
				}
			}
			if !strings.HasPrefix(table.Create, "CREATE TABLE IF NOT EXISTS ") || strings.HasSuffix(table.Create, ";") || strings.Contains(table.Create, "--") {
				t.Errorf("%s: %s", dialect, table.Create)
			}
		}
	}
}

// spelled are the words of the dialects, without what only one of them has.
var spelled = regexp.MustCompile("[`\"]|(?i) COMMENT '[^']*'| CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")

// plain returns a definition as all dialects should have it.
func plain(define string) string {
	define = spelled.ReplaceAllString(define, "")
	for _, milliseconds := range []string{" DATETIME(3)", " TIMESTAMP(3)"} { // SQLite keeps text as it is
		define = strings.ReplaceAll(define, milliseconds, " DATETIME")
	}
	return define
}

// A column that is wider in one dialect would truncate, or refuse, what another keeps.
func TestFiles_DefineColumnsAlike(t *testing.T) {
	t.Parallel()

	want, err := migrations.Parse("mysql")
	must(t, err)
	for _, dialect := range dialects[1:] {
		tables, err := migrations.Parse(dialect)
		must(t, err)
		for i, table := range tables {
			for name, define := range table.Define {
				if got, want := plain(define), plain(want[i].Define[name]); got != want {
					t.Errorf("%s has %s, and MySQL %s", dialect, got, want)
				}
			}
		}
	}
}

// Added columns have defaults, so that the INSERT of UidGenerator still works.
func TestFiles_GiveAddedColumnsDefaults(t *testing.T) {
	t.Parallel()

	for _, dialect := range dialects {
		tables, err := migrations.Parse(dialect)
		must(t, err)
		for _, name := range tables[0].Columns[7:] {
			if define := tables[0].Define[name]; !strings.Contains(define, " NOT NULL DEFAULT ") && !strings.HasSuffix(plain(define), " NULL") {
				t.Errorf("%s: %s", dialect, define)
			}
		}
	}
}

// A restart reads the worker ids of a slot, which would read the whole table without the index.
func TestFiles_HaveTheIndex(t *testing.T) {
	t.Parallel()

	for _, dialect := range dialects {
		tables, err := migrations.Parse(dialect)
		must(t, err)
		index := tables[0].Index + tables[0].Key
		for _, word := range []string{"IDX_WORKER_NODE_SLOT", "SLOT"} {
			if !strings.Contains(index, word) {
				t.Errorf("%s: %q", dialect, index)
			}
		}
		for _, table := range tables[1:] { // each has its primary key, and every statement finds its row by that
			if table.Index+table.Key != "" || !strings.Contains(table.Create, "PRIMARY KEY") {
				t.Errorf("%s: %s has the index %q", dialect, table.Name, table.Index+table.Key)
			}
		}
	}
}

// The file for UidGenerator adds the same columns as mysql.sql has, in the same order, and the index.
func TestFiles_ForUidGeneratorAddTheSameColumns(t *testing.T) {
	t.Parallel()

	text, err := migrations.Files.ReadFile("mysql_uidgenerator.sql")
	must(t, err)
	var added []string
	for line := range strings.Lines(string(text)) {
		if add, ok := strings.CutPrefix(strings.TrimSpace(line), "ADD "); ok {
			added = append(added, strings.TrimSuffix(strings.TrimSuffix(add, ","), ";"))
		}
	}
	tables, err := migrations.Parse("mysql")
	must(t, err)
	var want []string
	for _, name := range tables[0].Columns[7:] {
		want = append(want, "COLUMN "+tables[0].Define[name])
	}
	if want = append(want, tables[0].Key); !slices.Equal(added, want) {
		t.Errorf("the file adds\n\t%s\nand mysql.sql has\n\t%s", strings.Join(added, "\n\t"), strings.Join(want, "\n\t"))
	}
	for _, word := range []string{"DROP", "MODIFY COLUMN", "CHANGE"} {
		if regexp.MustCompile(`(?m)^[^-]*\b` + word + `\b`).MatchString(strings.ReplaceAll(string(text), "'", "")) {
			t.Errorf("the file has the word %s", word)
		}
	}
}

// The error must name the way out, or a user of another dialect is stuck.
func TestFiles_OfAnUnknownDialectAreRefused(t *testing.T) {
	t.Parallel()

	_, err := migrations.Parse("oracle")
	testkit.IsError(t, err, errors.ErrUnsupported, `"oracle"`, "sqlite.sql", "WithoutMigration")
}

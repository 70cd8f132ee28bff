package migrations_test

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/uidplugin/uidplugin/migrations"
)

var dialects = []string{"mysql", "postgres", "sqlite"}

func TestTheFilesHaveTheSameTablesAndColumns(t *testing.T) {
	t.Parallel()

	for _, dialect := range dialects {
		tables, err := migrations.Parse(dialect)
		must(t, err)
		if len(tables) != 2 || tables[0].Name != "WORKER_NODE" || tables[1].Name != "WORKER_REGISTRY" {
			t.Fatalf("%s: %+v", dialect, tables)
		}
		if got := tables[0].Columns; !slices.Equal(got, []string{"ID", "HOST_NAME", "PORT", "TYPE", "LAUNCH_DATE", "MODIFIED", "CREATED",
			"TABLE_NAME", "LAYOUT", "REUSABLE", "START_SECOND", "HELD_SECOND", "FENCE", "HOLDER"}) {
			t.Errorf("%s: %q", dialect, got)
		}
		if got := tables[1].Columns; !slices.Equal(got, []string{"NAME", "LAYOUT", "NEXT_ID", "FLOOR_SECOND"}) {
			t.Errorf("%s: %q", dialect, got)
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

func TestTheFilesDefineColumnsAlike(t *testing.T) {
	t.Parallel()

	want, err := migrations.Parse("mysql")
	must(t, err)
	for _, dialect := range dialects[1:] {
		tables, err := migrations.Parse(dialect)
		must(t, err)
		for i, table := range tables {
			for name, define := range table.Define {
				if got, want := spelled.ReplaceAllString(define, ""), spelled.ReplaceAllString(want[i].Define[name], ""); got != want {
					t.Errorf("%s has %s, and MySQL %s", dialect, got, want)
				}
			}
		}
	}
}

// TestAddedColumnsHaveDefaults, so that the INSERT of UidGenerator goes on working.
func TestAddedColumnsHaveDefaults(t *testing.T) {
	t.Parallel()

	for _, dialect := range dialects {
		tables, err := migrations.Parse(dialect)
		must(t, err)
		for _, name := range tables[0].Columns[7:] {
			if define := tables[0].Define[name]; !strings.Contains(define, " NOT NULL DEFAULT ") {
				t.Errorf("%s: %s", dialect, define)
			}
		}
	}
}

func TestEachFileHasTheIndex(t *testing.T) {
	t.Parallel()

	for _, dialect := range dialects {
		tables, err := migrations.Parse(dialect)
		must(t, err)
		index := tables[0].Index + tables[0].Key
		for _, word := range []string{"IDX_WORKER_NODE_TABLE", "TABLE_NAME", "FENCE"} {
			if !strings.Contains(index, word) {
				t.Errorf("%s: %q", dialect, index)
			}
		}
		if tables[1].Index+tables[1].Key != "" {
			t.Errorf("%s: the registry has the index %q", dialect, tables[1].Index+tables[1].Key)
		}
	}
}

// TestTheFileForUidGeneratorAddsTheSameColumns as mysql.sql has, in their order,
// and the index.
func TestTheFileForUidGeneratorAddsTheSameColumns(t *testing.T) {
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

func TestADialectWithoutFile(t *testing.T) {
	t.Parallel()

	_, err := migrations.Parse("oracle")
	if !errors.Is(err, errors.ErrUnsupported) {
		t.Fatal(err)
	}
	saysAll(t, err.Error(), `"oracle"`, "sqlite.sql", "WithoutMigration")
}

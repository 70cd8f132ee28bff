package tables_test

import (
	"strings"
	"testing"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/migrations"
)

func TestFunctionStatementsFor_AreThoseOfADatabase(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		testkit.Must(t, migrations.Up(t.Context(), db))
		dialect := db.Dialector.Name()
		for _, l := range []generator.Layout{generator.DefaultLayout(), generator.JSSafeLayout()} {
			setLayout(t, db, l.String())
			want, err := migrations.FunctionStatements(t.Context(), db)
			testkit.Must(t, err)
			got, err := migrations.FunctionStatementsFor(dialect, "", l)
			testkit.Must(t, err)
			if dialect == "mysql" { // the database may be restored under another name
				want = strings.ReplaceAll(want, "`"+d.Schema+"`.", "")
			}
			if dialect == "sqlite" { // GORM's quotes, and those of the standard
				want, got = backticks(want), backticks(got)
			}
			if got != want {
				t.Errorf("%s:\n%s\nwant\n%s", l, got, want)
			}
		}
	})
}

func backticks(text string) string { return strings.ReplaceAll(text, `"`, "`") }

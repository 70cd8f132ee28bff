package migrations_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/migrations"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// begin inserts the row of WORKER_REGISTRY, with a layout.
func begin(t *testing.T, db *gorm.DB, layout string) {
	t.Helper()
	must(t, db.Exec(`DELETE FROM "WORKER_REGISTRY"`).Error)
	must(t, db.Exec(`INSERT INTO "WORKER_REGISTRY" VALUES ('default', 'space', ?, 10000, 1, 1, 0, 1, 1, 0, 1)`, layout).Error)
}

func TestCreateFunctions_SaysWhatIsMissing(t *testing.T) {
	t.Parallel()

	db, d, p := open(t)
	refused := func(words ...string) {
		t.Helper()
		testkit.IsError(t, migrations.CreateFunctions(t.Context(), d), workernode.ErrTable, append(words, "migrations: ", "WORKER_REGISTRY")...)
		text, err := migrations.FunctionStatements(t.Context(), d)
		testkit.IsError(t, err, workernode.ErrTable, words...)
		if text != "" {
			t.Errorf("the text is %q", text)
		}
	}
	refused("no such table", "WithRegistry")
	must(t, migrations.Up(t.Context(), d))
	refused("no row", "db.Use")
	begin(t, db, "1-41-18-4/1ms")
	refused(`"1-41-18-4/1ms"`, generator.DefaultLayout().String())
	begin(t, db, generator.DefaultLayout().String())
	must(t, migrations.CreateFunctions(t.Context(), d))

	full := errors.New("the disk is full")
	p.fail = func(s string) error {
		if strings.HasPrefix(s, "CREATE VIEW") {
			return full
		}
		return nil
	}
	testkit.IsError(t, migrations.CreateFunctions(t.Context(), d), full, "migrations: uid_origin", "FunctionStatements")
}

func TestCreateFunctions_RefusesATransaction(t *testing.T) {
	t.Parallel()

	_, d, _ := open(t)
	must(t, d.Transaction(func(tx *gorm.DB) error {
		testkit.IsError(t, migrations.CreateFunctions(t.Context(), tx), nil, "migrations: ", "transaction")
		return nil
	}))
}

func TestFunctionStatementsFor_RefusesWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()

	_, err := migrations.FunctionStatementsFor("oracle", "", generator.DefaultLayout())
	testkit.IsError(t, err, errors.ErrUnsupported, `"oracle"`)
	_, err = migrations.FunctionStatementsFor("mysql", "", generator.Layout{})
	testkit.IsError(t, err, generator.ErrLayout)
	text, err := migrations.FunctionStatementsFor("postgres", `my "shop"`, generator.DefaultLayout())
	must(t, err)
	testkit.SaysAll(t, text, `VIEW "my ""shop""".uid_origin`)
	text, err = migrations.FunctionStatementsFor("postgres", "", generator.DefaultLayout())
	must(t, err)
	testkit.SaysAll(t, text, `FUNCTION "public".uid_table`, "END\n$$;\n")
}

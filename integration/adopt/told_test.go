package adopt_test

import (
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// The log warns of a key that the database numbers once a row has such a number: a create of the plugin can then meet
// one. The statement of the warning ends the numbering.
func TestNumbered_AWarningFollowsTheFirstNumberAmongTheIDs(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		testkit.Must(t, db.Exec("CREATE TABLE orders (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, name TEXT)").Error)
		insert := func(rows int) {
			t.Helper()
			for range rows {
				testkit.Must(t, db.Exec("INSERT INTO orders (name) VALUES ('no id')").Error)
			}
		}
		var log testkit.Log
		p := harness.Use(t, db, uidplugin.WithLogger(log.Logger()))
		check := func(what string, want int) {
			t.Helper()
			testkit.Must(t, p.Register(t.Context(), &Order{}))
			if lines := log.Lines("WARN"); len(lines) != want {
				t.Errorf("%s: logged %q", what, lines)
			}
		}
		insert(1)
		check("a row from before", 0)
		for range 10 {
			testkit.Must(t, db.Create(&[]Order{{}, {}}).Error)
		}
		check("ids", 0)
		insert(15)
		check("numbers with the worker id of the table", 0)
		insert(1)
		check("a number with another worker id", 1)
		check("the same again", 1)
		testkit.SaysAll(t, log.Lines("WARN")[0], "column=orders.id", "duplicate key", "ALTER TABLE", "docs/from-auto-increment.md")
		told(t, &log, "numbers keys too", "level=INFO")
	}, "mariadb", "mysql")
}

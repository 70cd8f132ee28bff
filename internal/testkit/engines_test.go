package testkit_test

import (
	"testing"

	"github.com/uidplugin/uidplugin/internal/testkit"
)

// Each database of Each is empty and goes when its test ends.
func TestEach_GivesEveryTestItsOwnDatabase(t *testing.T) {
	t.Parallel()

	for range 2 {
		testkit.Each(t, func(t *testing.T, d *testkit.Database) {
			db := d.Open(t, nil)
			testkit.Must(t, db.Exec("CREATE TABLE only_here (id INT)").Error)
			testkit.Must(t, d.Open(t, nil).Exec("INSERT INTO only_here VALUES (1)").Error)
		})
	}
}

// Package adopt_test tests tables whose key the database numbers, and that other programs insert into without the
// plugin.
package adopt_test

import (
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

func TestMain(m *testing.M) { harness.Main(m, nil) }

// An Order is a row of a table that existed before the plugin.
type Order struct {
	ID   int64 `gorm:"primaryKey;uid"`
	Name string
}

// servers are the engines that have such tables and serve several programs.
var servers = []string{"mariadb", "mysql", "postgres"}

// adopted returns a handle on a new table of orders that has a row, and one for another program.
func adopted(t *testing.T, d *testkit.Database) (db, other *gorm.DB) {
	t.Helper()
	db, other = d.Open(t, nil), d.Open(t, nil)
	create := "CREATE TABLE orders (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, name TEXT)"
	if d.Name == "postgres" {
		create = "CREATE TABLE orders (id BIGSERIAL PRIMARY KEY, name TEXT)"
	}
	testkit.Must(t, db.Exec(create).Error)
	testkit.Must(t, insert(other))
	return db, other
}

// insert inserts a row as a program without the plugin does.
func insert(db *gorm.DB) error {
	return db.Exec("INSERT INTO orders (name) VALUES ('of another program')").Error
}

// process opens one more process with the plugin.
func process(t *testing.T, d *testkit.Database, options ...uidplugin.Option) (*gorm.DB, *uidplugin.Plugin) {
	t.Helper()
	db := d.Open(t, nil)
	return db, harness.Use(t, db, append(options, uidplugin.WithModels(&Order{}))...)
}

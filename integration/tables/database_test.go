package tables_test

import (
	"strings"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// Programs connect without a database first, to create it. The plugin belongs on the connection after that.
func TestUse_WithoutADatabaseSaysWhichConnectionItNeeds(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		address, params, _ := strings.Cut(d.DSN(), "?")
		dsn := address[:strings.LastIndexByte(address, '/')+1] + "?" + params
		db, err := gorm.Open(mysql.Open(dsn), &gorm.Config{Logger: logger.Discard})
		testkit.Must(t, err)
		defer func() { testkit.Must(t, testkit.Close(db)) }()
		testkit.IsError(t, db.Use(uidplugin.New(harness.Quiet)), nil, "No database selected", "call db.Use on a connection")
	}, "mariadb", "mysql")
}

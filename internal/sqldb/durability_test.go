package sqldb_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/glebarez/sqlite"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// A server that loses acknowledged commits may give a range of ids out twice, so the application is told.
func TestDBDurabilityRisk_IsASettingThatLosesCommits(t *testing.T) {
	t.Parallel()

	const (
		mysql    = `SHOW VARIABLES WHERE VARIABLE_NAME = 'innodb_flush_log_at_trx_commit'`
		postgres = `SELECT name, setting FROM pg_settings WHERE name = 'synchronous_commit'`
	)
	for _, tt := range []struct {
		dial                   func(gorm.ConnPool) gorm.Dialector
		statement, name, value string
		says                   string // "": none
	}{
		{testkit.OnMySQL, mysql, "innodb_flush_log_at_trx_commit", "0",
			"innodb_flush_log_at_trx_commit = 0 loses up to a second"},
		{testkit.OnMySQL, mysql, "innodb_flush_log_at_trx_commit", "1", ""},
		{testkit.OnMySQL, mysql, "innodb_flush_log_at_trx_commit", "2", ""}, // only a crash of the machine loses commits
		{testkit.OnPostgres, postgres, "synchronous_commit", "off", "synchronous_commit = off loses up to three times"},
		{testkit.OnPostgres, postgres, "synchronous_commit", "local", ""},
		{testkit.OnPostgres, postgres, "synchronous_commit", "on", ""},
	} {
		db, mock := testkit.Mock(t, tt.dial)
		mock.ExpectQuery(tt.statement).WillReturnRows(sqlmock.NewRows([]string{"name", "value"}).AddRow(tt.name, tt.value))
		mock.ExpectQuery(tt.statement).WillReturnError(errors.New("no right to"))
		risk := open(t, db).DurabilityRisk(t.Context())
		if (risk != "") != (tt.says != "") || !strings.Contains(risk, tt.says) {
			t.Errorf("%s = %s: %q", tt.name, tt.value, risk)
		}
		if risk := open(t, db).DurabilityRisk(t.Context()); risk != "" {
			t.Errorf("although it cannot be read: %q", risk)
		}
	}
	if risk := open(t, testkit.SQLite{}.Open(t)).DurabilityRisk(t.Context()); risk != "" {
		t.Errorf("SQLite: %q", risk)
	}
}

// If each connection has its own database, tables exist on some connections only.
func TestDBOneDatabase_RefusesAnInMemoryDatabaseOfEachConnection(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		name, dsn string
		most      int
		wrong     bool
	}{
		{"memory", ":memory:", 0, true},
		{"memory and two connections", ":memory:", 2, true},
		{"memory and one connection", ":memory:", 1, false},
		{"shared memory", "file:one-database?mode=memory&cache=shared", 0, false},
		{"a file", testkit.SQLitePath(t), 0, false},
	} {
		db, err := gorm.Open(sqlite.Open(tt.dsn), &gorm.Config{Logger: logger.Discard})
		must(t, err)
		t.Cleanup(func() { _ = testkit.Close(db) })
		pool, err := db.DB()
		must(t, err)
		pool.SetMaxOpenConns(tt.most)
		run(t, db, `CREATE TABLE "T" ("A" INT)`)
		err = open(t, db).OneDatabase(t.Context(), "T")
		if !tt.wrong {
			if err != nil {
				t.Errorf("%s: %v", tt.name, err)
			}
			continue
		}
		testkit.IsError(t, err, nil, "each connection of this pool has its own in-memory database", "no such table",
			"SetMaxOpenConns(1)", "file::memory:?cache=shared")
		if n := pool.Stats().InUse; n != 0 {
			t.Errorf("%s: %d connections are kept", tt.name, n)
		}
	}
	must(t, mocked(t, testkit.OnMySQL).OneDatabase(t.Context(), "T"))
}

package follow

import (
	"errors"
	"fmt"
	stdlog "log"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

func TestRefusals_OfSettings(t *testing.T) {
	t.Parallel()
	const mode = "group_replication_single_primary_mode"
	for _, tt := range []struct {
		settings settings
		word     string
	}{
		{settings{}, ""},
		{settings{"wsrep_on": "ON", "wsrep_provider": "/usr/lib/galera/libgalera_smm.so"}, "wsrep_on"},
		{settings{"wsrep_on": "OFF", "wsrep_provider": "/usr/lib/galera/libgalera_smm.so"}, ""},
		{settings{"wsrep_on": "ON", "wsrep_provider": "none"}, ""},
		{settings{mode: "OFF", "members": "3"}, mode},
		{settings{mode: "OFF", "members": "0"}, ""}, // not started
		{settings{mode: "OFF"}, "GRANT SELECT"},     // the members cannot be seen
		{settings{mode: "ON", "members": "3"}, ""},
		{settings{"read_only": "ON"}, "read_only is ON"},
		{settings{"read_only": "NO_LOCK_NO_ADMIN"}, "read_only is NO_LOCK"}, // MariaDB 12
		{settings{"read_only": "OFF", "innodb_read_only": "ON"}, "innodb_read_only"},
		{settings{"read_only": "OFF", "innodb_read_only": "OFF", mode: "ON"}, ""},
		{settings{"log_bin": "ON", "binlog_format": "ROW", "global": "ROW"}, ""},
		{settings{"log_bin": "ON", "binlog_format": "MIXED", "global": "MIXED"}, ""},
		{settings{"log_bin": "ON", "binlog_format": "STATEMENT", "global": "ROW"}, "SET SESSION binlog_format"},
		{settings{"log_bin": "1", "binlog_format": "ROW", "global": "statement"}, "SET GLOBAL binlog_format"},
		{settings{"log_bin": "OFF", "binlog_format": "STATEMENT", "global": "STATEMENT"}, ""},
	} {
		err := errors.Join(tt.settings.clusterRefusal(), tt.settings.binlogRefusal(tt.settings["global"]))
		if tt.word == "" && err != nil || tt.word != "" && !errors.Is(err, ErrRefused) {
			t.Errorf("%v: %v", tt.settings, err)
		} else if err != nil {
			testkit.SaysAll(t, err.Error(), tt.word)
		}
	}
}

// Nothing is installed for a table that is refused. PostgreSQL and SQLite would take a trigger for a missing column.
func TestEnable_RefusesTables(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		conn, err := sqldb.Open(db, time.Minute)
		testkit.Must(t, err)
		engine := ""
		if d.IsMySQL() {
			engine = " ENGINE=MyISAM"
		}
		testkit.Must(t, db.Exec("CREATE TABLE events (id BIGINT PRIMARY KEY, name VARCHAR(20))").Error)
		testkit.Must(t, db.Exec("CREATE TABLE old (id BIGINT PRIMARY KEY)"+engine).Error)
		for _, tt := range []struct{ table, key, word string }{
			{"events", "name", "events.name is "},
			{"events", "number", `no column "number"`},
			{"old", "id", "its engine is MyISAM"},
		} {
			err := Enable(t.Context(), conn, Table{Name: tt.table, Key: tt.key, Slack: time.Second})
			if tt.table == "old" && engine == "" {
				testkit.Must(t, err)
				continue
			}
			if !errors.Is(err, ErrRefused) {
				t.Errorf("%+v: %v", tt, err)
				continue
			}
			testkit.SaysAll(t, err.Error(), tt.word)
		}
		testkit.Must(t, db.Exec("INSERT INTO events VALUES (1, 'a')").Error)
		testkit.Must(t, Enable(t.Context(), conn, Table{Name: "events", Key: "id", Slack: time.Second}))
		if d.IsMySQL() || d.Name == "sqlite" { // names of columns are not case-sensitive
			testkit.Must(t, Enable(t.Context(), conn, Table{Name: "events", Key: "ID", Slack: time.Second}))
		}
	})
}

// The program that calls Enable gets the error. GORM's logger would show the statements, with the whole trigger.
func TestEnable_CreatesNothingForAMissingTable(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		var log strings.Builder
		db := d.Open(t, &gorm.Config{Logger: logger.New(stdlog.New(&log, "", 0), logger.Config{LogLevel: logger.Error})})
		conn, err := sqldb.Open(db, time.Minute)
		testkit.Must(t, err)
		err = Enable(t.Context(), conn, Table{Name: "missing", Key: "id", Slack: time.Second})
		if errors.Is(err, ErrRefused) || log.Len() > 0 || db.Migrator().HasTable(markTable) {
			t.Errorf("error %v, log %q; UID_FOLLOW was created: %v", err, log.String(), db.Migrator().HasTable(markTable))
		}
		testkit.SaysAll(t, fmt.Sprint(err), "missing: the table does not exist", "as with AutoMigrate")

		testkit.Must(t, db.Exec("CREATE TABLE events (id BIGINT PRIMARY KEY)").Error)
		testkit.Must(t, db.Exec("CREATE TABLE "+conn.Quoted(sqldb.Name{Table: markTable})+" (id BIGINT PRIMARY KEY)").Error)
		if err := Enable(t.Context(), conn, Table{Name: "events", Key: "id", Slack: time.Second}); err == nil || log.Len() > 0 {
			t.Errorf("a wrong table UID_FOLLOW: error %v, log %q", err, log.String())
		}
	})
}

// A table that moves to another schema keeps its trigger, but UID_FOLLOW and the mark stay.
func TestEnable_RefusesATableWhoseTriggerIsOfAnotherSchema(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db, elsewhere := d.Open(t, nil), d.Elsewhere(t)
		testkit.Must(t, db.Exec("CREATE TABLE events (id BIGINT PRIMARY KEY)").Error)
		conn, err := sqldb.Open(db, time.Minute)
		testkit.Must(t, err)
		table := Table{Name: "events", Key: "id", Slack: time.Second}
		testkit.Must(t, Enable(t.Context(), conn, table))
		testkit.Must(t, db.Exec("ALTER TABLE events SET SCHEMA "+elsewhere.Current()).Error)
		there, err := sqldb.Open(elsewhere.Open(t, nil), time.Minute)
		testkit.Must(t, err)
		statement := "DROP TRIGGER " + namesOf("events").trigger + ` ON "` + elsewhere.Current() + `"."events"`
		testkit.IsError(t, Enable(t.Context(), there, table), ErrRefused, "not in the schema of the table", statement)
		testkit.Must(t, db.Exec(statement).Error)
		testkit.Must(t, Enable(t.Context(), there, table))
	}, "postgres")
}

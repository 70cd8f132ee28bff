package follow

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// A database without triggers is recognized by its version, before anything is created.
func TestEnable_RefusesDatabasesWithoutTriggers(t *testing.T) {
	t.Parallel()
	for version, name := range map[string]string{
		"8.0.30-Vitess": "Vitess", "8.0.34-PlanetScale": "PlanetScale", "8.0.11-TiDB-v7.5.1": "TiDB", "5.7.25-TiDB-v6.1.0": "TiDB",
	} {
		db, mock := testkit.Mock(t, testkit.OnMySQL)
		mock.ExpectQuery("SELECT VERSION()").WillReturnRows(sqlmock.NewRows([]string{"v"}).AddRow(version))
		conn, err := sqldb.Open(db, time.Minute)
		testkit.Must(t, err)
		err = Enable(t.Context(), conn, Table{Name: "events", Key: "id", Slack: time.Second})
		testkit.IsError(t, err, ErrRefused, name, version, "no triggers")
	}
}

// These databases speak the protocol of PostgreSQL, but their advisory locks do nothing, or do not hold on all nodes.
func TestEnable_RefusesDatabasesWithoutAdvisoryLocks(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"CockroachDB CCL v24.3.1 (x86_64-pc-linux-gnu)", "PostgreSQL 11.2-YB-2.18.0.0-b0 on x86_64"} {
		db, mock := testkit.Mock(t, testkit.OnPostgres)
		mock.ExpectQuery("SELECT version(), pg_is_in_recovery()").WillReturnRows(sqlmock.NewRows([]string{"v", "r"}).AddRow(version, false))
		conn, err := sqldb.Open(db, time.Minute)
		testkit.Must(t, err)
		err = Enable(t.Context(), conn, Table{Name: "events", Schema: "public", Key: "id", Slack: time.Second})
		testkit.IsError(t, err, ErrRefused, version)
	}
}

// A server can join a group while its connections stay open, so a process asks again after a minute, and after errors.
func TestServerCheck_IsRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, mock := testkit.Mock(t, testkit.OnMySQL)
		conn, err := sqldb.Open(db, time.Minute)
		testkit.Must(t, err)
		s, check := newStatements(MySQL, Table{Name: "events"}), serverCheck{}
		const variables = "SHOW GLOBAL VARIABLES WHERE Variable_name IN" +
			" ('wsrep_on', 'wsrep_provider', 'group_replication_single_primary_mode', 'read_only', 'innodb_read_only')"
		answer := func(name, value string) {
			mock.ExpectQuery(variables).WillReturnRows(sqlmock.NewRows([]string{"n", "v"}).AddRow(name, value))
		}
		refuses := func(want bool) {
			t.Helper()
			if err := check.run(t.Context(), conn, s); errors.Is(err, ErrRefused) != want || !want && err != nil {
				t.Fatal(err)
			}
		}
		answer("read_only", "OFF")
		refuses(false)
		refuses(false) // sends no statement
		time.Sleep(time.Minute)
		answer("read_only", "ON")
		refuses(true)
		answer("read_only", "OFF")
		refuses(false)
		check.again()
		mock.ExpectQuery(variables).WillReturnError(errors.New("Error 1142 (42000): SELECT command denied"))
		refuses(false) // an account that may not see the variables can go on
		refuses(false)
	})
}

// The errors of all servers about a table that does not exist; the last one is vtgate's, about a keyspace with shards.
func TestNoTable_MatchesTheErrorsOfAllServers(t *testing.T) {
	for text, want := range map[string]bool{
		"Error 1146 (42S02): Table 'shop.UID_FOLLOW' doesn't exist":             true,
		"ERROR: relation \"UID_FOLLOW\" does not exist (SQLSTATE 42P01)":        true,
		"SQL logic error: no such table: UID_FOLLOW (1)":                        true,
		"Error 1105 (HY000): table UID_FOLLOW not found":                        true,
		"Error 1105 (HY000): target: shop.80-.primary: no healthy tablet found": false,
	} {
		if got := noTable.MatchString(text); got != want {
			t.Errorf("noTable matches %q: %v", text, got)
		}
	}
}

package sqldb_test

import (
	"strings"
	"testing"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// A schema may have any name. Only the plugin's tables get it, and quoted texts and names stay as they are.
func TestDBTranslate_NamesTheSchemaOfThePluginsTables(t *testing.T) {
	t.Parallel()

	const query = `SELECT "N"."ID", 'is "WORKER_NODE" it?' FROM "WORKER_NODE" "N" JOIN "WORKER_SLOT" ON "wOrker" = ? -- "ID"?`
	my := mocked(t, testkit.OnMySQL).In("it`s a.b?")
	pg := mocked(t, testkit.OnPostgres).In(`it's "a.b"?`)
	lite := open(t, testkit.SQLite{}.Open(t)).In("main")
	for _, tt := range []struct {
		db   *sqldb.DB
		want string
	}{
		{my, "SELECT `N`.`ID`, 'is \"WORKER_NODE\" it?' FROM `it``s a.b?`.`WORKER_NODE` `N` JOIN `it``s a.b?`.`WORKER_SLOT` ON \"wOrker\" = ? -- \"ID\"?"},
		{pg, `SELECT "N"."ID", 'is "WORKER_NODE" it?' FROM "it's ""a.b""?"."WORKER_NODE" "N" JOIN "it's ""a.b""?"."WORKER_SLOT" ON "wOrker" = $1 -- "ID"?`},
		{lite, "SELECT `N`.`ID`, 'is \"WORKER_NODE\" it?' FROM `main`.`WORKER_NODE` `N` JOIN `main`.`WORKER_SLOT` ON \"wOrker\" = ? -- \"ID\"?"},
	} {
		if got := tt.db.Translate(query); got != tt.want {
			t.Errorf("%s:\n%s\nwant\n%s", tt.db.Dialect(), got, tt.want)
		}
	}
}

// On Vitess a keyspace is not a schema, so statements leave it to the routing rules. The catalog is not read either.
func TestDBLocate_OnVitessNamesStayAsTheyAre(t *testing.T) {
	t.Parallel()

	db, mock := testkit.Mock(t, testkit.OnMySQL)
	mock.ExpectQuery("SELECT COALESCE(DATABASE(), ''), VERSION(), @@lower_case_table_names").
		WillReturnRows(sqlmock.NewRows([]string{"a", "b", "c"}).AddRow("commerce", "8.0.30-Vitess", 0))
	d, err := open(t, db).Locate(t.Context(), "", "WithSchema")
	must(t, err)
	if got := d.Translate(`SELECT 1 FROM "WORKER_NODE"`); got != "SELECT 1 FROM `WORKER_NODE`" {
		t.Error(got)
	}
}

// A server that does not ignore the case of names is asked for the other spellings.
func TestDBLocate_RefusesAnotherSpellingOnMySQL(t *testing.T) {
	t.Parallel()

	for found, refused := range map[string]bool{"": false, "worker_node": true, "Worker_Registry": true} {
		db, mock := testkit.Mock(t, testkit.OnMySQL)
		mock.MatchExpectationsInOrder(true)
		mock.ExpectQuery("SELECT COALESCE(DATABASE(), ''), VERSION(), @@lower_case_table_names").
			WillReturnRows(sqlmock.NewRows([]string{"a", "b", "c"}).AddRow("shop", "8.4.0", 0))
		mock.ExpectQuery("SELECT MIN(c.table_name) FROM information_schema.tables t JOIN information_schema.columns c" +
			" ON c.table_schema = t.table_schema AND c.table_name = t.table_name WHERE t.table_schema = ?" +
			" AND LOWER(t.table_name) IN ('worker_registry', 'worker_node') AND (LOWER(c.table_name), LOWER(c.column_name))" +
			" IN (('worker_registry', 'id_space'), ('worker_node', 'launch_date'))" +
			" AND CAST(c.table_name AS BINARY) NOT IN ('WORKER_REGISTRY', 'WORKER_NODE')").WithArgs("shop").
			WillReturnRows(sqlmock.NewRows([]string{"name"}).AddRow(found))
		_, err := open(t, db).Locate(t.Context(), "", "WithSchema")
		if !refused {
			must(t, err)
			continue
		}
		testkit.IsError(t, err, sqldb.ErrElsewhere, found, "ALTER TABLE `shop`.`"+found+"` RENAME TO `shop`.`"+strings.ToUpper(found)+"`")
	}
}

// A renamed schema is the likely reason if a table is missing that was there at the start.
func TestDBQuery_AdvisesARestartIfTheSchemaIsGone(t *testing.T) {
	t.Parallel()

	db, mock := testkit.Mock(t, testkit.OnPostgres)
	mock.ExpectQuery(`SELECT 1 FROM "shop"."WORKER_SLOT"`).WillReturnError(testkit.SQLState("42P01"))
	mock.ExpectQuery(`SELECT 1 FROM orders`).WillReturnError(testkit.SQLState("42P01"))
	d := open(t, db).In("shop")
	testkit.IsError(t, d.Query(t.Context(), nil, `SELECT 1 FROM "WORKER_SLOT"`), testkit.SQLState("42P01"), `"shop"`, "renamed, restart the process")
	if err := d.Query(t.Context(), nil, `SELECT 1 FROM orders`); err == nil || strings.Contains(err.Error(), "restart") {
		t.Errorf("of another table: %v", err)
	}
}

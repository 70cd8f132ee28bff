package follow

import "testing"

// A handler whose statement is refused fails for ever, and one whose statement ends the transaction commits effects
// one by one.
func TestGuard_RefusesStatementsThatEndTheTransaction(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]string{
		"COMMIT": "all", "commit;": "all", "COMMIT/* a */": "all", "END": "all", "END TRANSACTION": "all", "ABORT WORK": "all",
		"BEGIN": "all", "BEGIN IMMEDIATE": "all", "START TRANSACTION READ ONLY": "all", ";COMMIT": "all",
		"ROLLBACK": "all", "ROLLBACK;": "all", "ROLLBACK -- a": "all", "ROLLBACK/* a */": "all", "ROLLBACK WORK AND CHAIN": "all",
		"ROLLBACK TRANSACTION AND NO CHAIN": "all", "ROLLBACK RELEASE": "all", "ROLLBACK PREPARED 'a'": "all",
		"# a\nCOMMIT": "all", "TRUNCATE t": "mysql", "CREATE TABLE t (n int)": "mysql", "CREATE OR REPLACE VIEW v AS SELECT 1": "mysql",
		"SET @@session.autocommit=1": "mysql", "SET LOCAL autocommit = 1": "mysql", "ANALYZE TABLE t": "mysql", "CREATE TEMPORARY SEQUENCE s": "mysql",
		"ANALYZE NO_WRITE_TO_BINLOG TABLE t": "mysql", "DROP TABLE t": "mysql", "DROP PROCEDURE p": "mysql",

		"ROLLBACK TO a": "", "ROLLBACK TO SAVEPOINT a": "", "ROLLBACK WORK TO a": "", "ROLLBACK TRANSACTION TO SAVEPOINT a": "",
		"BEGIN NOT ATOMIC INSERT INTO t VALUES (1); END": "", "CREATE OR REPLACE TEMPORARY TABLE t (n int)": "",
		"CREATE TEMPORARY TABLE t (n int)": "", "DROP TEMPORARY TABLE t": "", "DROP  TEMPORARY TABLE t": "", "ANALYZE SELECT 1": "",
		"ANALYZE FORMAT=JSON SELECT 1": "", "DROP PREPARE p": "", "INSERT INTO t VALUES ('; COMMIT')": "", "CALL p()": "",
		"/* a */ SELECT CASE n WHEN 1 THEN 2 /* b */ END FROM t": "", "/* a */ SELECT 1 FROM t /* b */ LOCK IN SHARE MODE": "",
		"/** a **/COMMIT": "all", "/**//*/ a */ COMMIT": "all", "/*+ COMMIT */ SELECT 1": "", "DO $$ BEGIN NULL; END $$": "", "SET @autocommit = 1": "", "(SELECT 1)": "",
		"REPLACE INTO t VALUES (1)": "", "WITH a AS (SELECT 1) SELECT 1": "", "SAVEPOINT commit": "", "RELEASE SAVEPOINT a": "",
	} {
		got := ""
		if (&guard{}).refuse(query) != nil {
			got = "all"
		} else if (&guard{mysql: true}).refuse(query) != nil {
			got = "mysql"
		}
		if got != want {
			t.Errorf("%s is refused on %q instead of %q", query, got, want)
		}
	}
}

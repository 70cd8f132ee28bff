package catalog

import "testing"

// Without it a cheaper check could miss a migration, and the database could number rows among the ids.
func TestMayMigrate_MissesNoMigration(t *testing.T) {
	t.Parallel()

	for query, want := range map[string]bool{
		"ALTER TABLE orders ADD n INT":                              true,
		"create temporary table x (n INT)":                          true,
		"\r\n\t RENAME TABLE x TO y":                                true,
		"-- a comment\nALTER SEQUENCE orders_id_seq RESTART WITH 5": true,
		"# a comment\n/* and\nanother */ CREATE TABLE x (n INT)":    true,
		"SELECT setval('orders_id_seq', 5)":                         true,
		"select\n\tpg_catalog.SETVAL('orders_id_seq', 5)":           true,
		"/* a comment */ SELECT setval('orders_id_seq', 5)":         true,
		"SELECT * FROM orders WHERE name = 'setval'":                false,
		"WITH o AS (SELECT * FROM orders) SELECT * FROM o":          false,
		"INSERT INTO orders (id) VALUES (1) RETURNING id":           false,
		"UPDATE orders SET name = 'ALTER TABLE x'":                  false, "S": false, "  ": false, "": false,
	} {
		if got := mayMigrate(query) && migration.MatchString(query); got != want {
			t.Errorf("%t for %q", got, query)
		}
		if mayMigrate(query) != want {
			t.Errorf("mayMigrate: %t for %q", !want, query)
		}
	}
}

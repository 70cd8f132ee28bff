package follow

import "testing"

// With two cursors for one table, a consumer would handle all rows twice. These databases need not be asked.
func TestStatements_ATableIsTheSameInWhateverCaseItsSchemaIsWritten(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		flavor   Flavor
		one, two Table
		want     bool
	}{
		{SQLite, Table{Name: "Main.Events"}, Table{Name: "events"}, true},
		{SQLite, Table{Name: "Logs.events"}, Table{Name: "logs.events"}, true},
		{SQLite, Table{Name: "logs.events"}, Table{Name: "events"}, false},
		{Postgres, Table{Name: "shop.events"}, Table{Name: "events", Schema: "shop"}, true},
		{Postgres, Table{Name: "Shop.events"}, Table{Name: "events", Schema: "shop"}, false},
		{MySQL, Table{Name: "shop.events"}, Table{Name: "events", Schema: "shop"}, true},
		{MariaDB, Table{Name: "logs.events"}, Table{Name: "events", Schema: "shop"}, false},
	} {
		got, err := newStatements(c.flavor, c.two).isSame(t.Context(), nil, c.one)
		if got != c.want || err != nil {
			t.Errorf("%s: %v is %v: %t, %v", c.flavor, c.one, c.two, got, err)
		}
	}
}

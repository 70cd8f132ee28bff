package follow_test

import (
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/follow"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// A trigger for each statement does not fire for rows that are inserted into a partition directly.
func TestEnable_GuardsEveryWayIntoAPartitionedTable(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		run := func(query string, args ...any) error { return db.Exec(query, args...).Error }
		testkit.Must(t, run("CREATE TABLE events (id bigint PRIMARY KEY, writer bigint, n bigint) PARTITION BY RANGE (id)"))
		testkit.Must(t, run("CREATE TABLE low PARTITION OF events FOR VALUES FROM (0) TO (1000)"))
		testkit.Must(t, run("CREATE TABLE high PARTITION OF events FOR VALUES FROM (1000) TO (9000000000000000000) PARTITION BY RANGE (id)"))
		testkit.Must(t, run("CREATE TABLE deep PARTITION OF high DEFAULT"))
		for name, into := range map[string][]string{"events": {"events", "high", "deep"}, "deep": {"deep", "high", "events"}} {
			conn, err := sqldb.Open(db, 5*time.Second)
			testkit.Must(t, err)
			table := follow.Table{Name: name, Key: "id", Slack: time.Second}
			for range 2 {
				testkit.Must(t, follow.Enable(t.Context(), conn, table))
			}
			m := follow.NewMark(conn, table, generator.DefaultLayout(), time.Now)
			published, err := m.Advance(t.Context())
			testkit.Must(t, err)
			for i, target := range into {
				query := "INSERT INTO " + target + " (id) VALUES (?)"
				if err := run(query, published-1); err == nil || !strings.Contains(err.Error(), "uid_follow: too late") {
					t.Errorf("%s: a row below the mark, into %s: %v", name, target, err)
				}
				testkit.Must(t, run(query, published+int64(i)))
			}
			if name == "events" { // a partition that comes later
				testkit.Must(t, run("ALTER TABLE events DETACH PARTITION low"))
				testkit.Must(t, run("CREATE TABLE late PARTITION OF events FOR VALUES FROM (0) TO (1000)"))
				if err := run("INSERT INTO late (id) VALUES (1)"); err == nil || !strings.Contains(err.Error(), "uid_follow: too late") {
					t.Errorf("a row below the mark, into a new partition: %v", err)
				}
				testkit.Must(t, run("INSERT INTO low (id) VALUES (1)")) // it does not belong to the table any more
			}
			testkit.Must(t, follow.Disable(t.Context(), conn, table))
			testkit.Must(t, run("INSERT INTO deep (id) VALUES (?)", published-1))
			testkit.Must(t, run("DELETE FROM events WHERE id >= 1000"))
		}
	}, "postgres")
}

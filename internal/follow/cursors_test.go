package follow_test

import (
	"testing"

	"github.com/uidplugin/uidplugin/internal/follow"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// A table that was enabled by an earlier version has no UID_CURSOR beside it.
func TestEnable_AddsTheTableOfCursors(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		e := enable(t, d)
		for range 2 {
			insert := e.db.Exec(e.quoted("INSERT INTO UID_CURSOR (CONSUMER, SPACE, TABLE_NAME, LAST_ID) VALUES ('mails', '', 'events', 1)"))
			testkit.Must(t, insert.Error)
			testkit.Must(t, e.db.Exec(e.quoted("DROP TABLE UID_CURSOR")).Error)
			testkit.Must(t, follow.Enable(t.Context(), e.conn, e.table))
		}
		testkit.Must(t, follow.Disable(t.Context(), e.conn, e.table))
		if !e.db.Migrator().HasTable(follow.CursorTable) {
			t.Error("Disable has dropped the cursors")
		}
	})
}

package consume_test

import (
	"context"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/follow"
	"github.com/uidplugin/uidplugin/generator"
	engine "github.com/uidplugin/uidplugin/internal/follow"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// An operator sets the cursor to now, which is above the mark because of the slack, and another consumer begins there.
func TestConsume_ACursorOfNowWaitsForTheMark(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := shop(t, d, nil)
		r := start(t, func(ctx context.Context) error { return follow.Consume(ctx, db, "mails", write("mails")) })
		place(t, db, 1, "Ulm")
		finished(t, db, "mails")

		now, err := engine.MarkAt(generator.DefaultLayout(), time.Now().Add(2*time.Second))
		testkit.Must(t, err)
		conn, err := sqldb.Open(db, time.Minute)
		testkit.Must(t, err)
		testkit.Must(t, engine.ResetConsumer(t.Context(), conn, engine.ConsumerKey{Consumer: "mails", Table: "orders"}, now))
		late := start(t, func(ctx context.Context) error {
			return follow.Consume(ctx, db, "late", write("late"), follow.From(uidplugin.ID(now)))
		})
		place(t, db, 1, "passed over")
		time.Sleep(2 * time.Second)
		eventually(t, "ids are above the cursor", func() bool { return int64(place(t, db, 1, "Bonn")[0].ID) > now })
		eventually(t, "the row after the cursor has its effects", func() bool {
			return len(effects(t, db, "mails")) > 1 && len(effects(t, db, "late")) > 0
		})
		r.stop(t)
		late.stop(t)
	})
}

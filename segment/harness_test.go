package segment_test

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/segment"
	"gorm.io/gorm"
)

const tag = "orders"

var must, file = testkit.Must, testkit.SQLitePath

var quiet = slog.New(slog.DiscardHandler)

// handle returns a handle on a SQLite file with a pool of its own.
func handle(tb testing.TB, path string) *gorm.DB {
	tb.Helper()
	return testkit.SQLite{Path: path, Params: []string{"_txlock=immediate"}}.Open(tb)
}

// open returns a generator, which is closed when the test ends.
func open(tb testing.TB, db *gorm.DB, c segment.Config) *segment.Generator {
	tb.Helper()
	if c.Log == nil {
		c.Log = quiet
	}
	c.Timeout = time.Minute
	g, err := segment.Open(tb.Context(), db, tag, c)
	must(tb, err)
	tb.Cleanup(g.Close)
	return g
}

// next takes one id.
func next(tb testing.TB, g *segment.Generator) int64 {
	tb.Helper()
	id, err := g.Next(tb.Context())
	must(tb, err)
	return id
}

// fails checks that there is no id, for the reason want.
func fails(tb testing.TB, g *segment.Generator, want error, words ...string) {
	tb.Helper()
	id, err := g.Next(tb.Context())
	if testkit.IsError(tb, err, want, words...); id != 0 {
		tb.Errorf("next to the error there is the id %d", id)
	}
}

// above checks that ids ascend from last on, and returns the largest.
func above(tb testing.TB, last int64, ids ...int64) int64 {
	tb.Helper()
	for _, id := range ids {
		if id <= last {
			tb.Fatalf("id %d after %d", id, last)
		}
		last = id
	}
	return last
}

// gapless checks that ids are first and those that follow it.
func gapless(tb testing.TB, first int64, ids ...int64) {
	tb.Helper()
	for i, id := range ids {
		if want := first + int64(i); id != want {
			tb.Fatalf("id %d, want %d", id, want)
		}
	}
}

// fill takes n ids.
func fill(tb testing.TB, g *segment.Generator, n int64) []int64 {
	tb.Helper()
	ids := make([]int64, n)
	must(tb, g.Fill(tb.Context(), ids))
	return ids
}

// run executes a statement past everything that is tested.
func run(tb testing.TB, db *gorm.DB, query string, args ...any) {
	tb.Helper()
	must(tb, db.Exec(query, args...).Error)
}

// stored returns max_id and step of the row.
func stored(tb testing.TB, db *gorm.DB) (maxID, step int64) {
	tb.Helper()
	must(tb, db.Raw("SELECT max_id, step FROM leaf_alloc WHERE biz_tag = ?", tag).Row().Scan(&maxID, &step))
	return maxID, step
}

// leaf makes the table with a row, as Leaf's operator does.
func leaf(tb testing.TB, db *gorm.DB, maxID, step int64) {
	tb.Helper()
	run(tb, db, "CREATE TABLE `leaf_alloc` (`biz_tag` varchar(128) NOT NULL DEFAULT '', `max_id` bigint(20) NOT NULL DEFAULT '1', `step` int(11) NOT NULL,"+
		" `description` varchar(256) DEFAULT NULL, `update_time` timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP, PRIMARY KEY (`biz_tag`))")
	run(tb, db, "insert into leaf_alloc(biz_tag, max_id, step, description) values(?, ?, ?, 'Test leaf Segment Mode Get Id')", tag, maxID, step)
}

// eventually waits until f is true.
func eventually(tb testing.TB, what string, f func() bool) {
	tb.Helper()
	testkit.Eventually(tb, what, time.Minute, f)
}

// bubble runs a test in a bubble of synctest.
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, test)
}

// wired returns a handle on a new SQLite file, and the wire that its statements pass.
func wired(tb testing.TB) (*gorm.DB, *testkit.Wire) {
	tb.Helper()
	wire := &testkit.Wire{}
	return wire.Open(tb, testkit.SQLite{Params: []string{"_txlock=immediate"}}), wire
}

// begun returns a generator on a wire that has made an id, and fetched its second range.
func begun(t *testing.T, c segment.Config) (*segment.Generator, *gorm.DB, *testkit.Wire) {
	t.Helper()
	db, wire := wired(t)
	g := open(t, db, c)
	next(t, g)
	synctest.Wait()
	return g, db, wire
}

package segment_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/segment"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// Each is refused before the database is touched; a bad tag or table would end up in it.
func TestOpen_RefusesSettingsThatMakeNoSense(t *testing.T) {
	t.Parallel()

	db := handle(t, file(t))
	for name, tt := range map[string]struct {
		db  *gorm.DB
		tag string
		c   segment.Config
	}{
		"no database":      {nil, tag, segment.Config{}},
		"no tag":           {db, "", segment.Config{}},
		"long tag":         {db, strings.Repeat("ö", 129), segment.Config{}},
		"no UTF-8":         {db, "\xff", segment.Config{}},
		"NUL":              {db, "a\x00", segment.Config{}},
		"table":            {db, tag, segment.Config{Table: `a"b`}},
		"table of three":   {db, tag, segment.Config{Table: `a.b.c`}},
		"step":             {db, tag, segment.Config{Step: -1}},
		"large step":       {db, tag, segment.Config{Step: 1 << 31}},
		"max step":         {db, tag, segment.Config{MaxStep: -1}},
		"large max step":   {db, tag, segment.Config{MaxStep: 1 << 31}},
		"max wait":         {db, tag, segment.Config{MaxWait: -1}},
		"start":            {db, tag, segment.Config{Start: -1}},
		"start at the end": {db, tag, segment.Config{Start: math.MaxInt64}},
		"used at the end":  {db, tag, segment.Config{Used: math.MaxInt64 - 1}},
		"description":      {db, tag, segment.Config{Description: strings.Repeat("x", 257)}},
	} {
		if g, err := segment.Open(t.Context(), tt.db, tt.tag, tt.c); g != nil || !errors.Is(err, segment.ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
	g, err := segment.Open(t.Context(), db, strings.Repeat("ö", 128), segment.Config{Table: "main.Other_Alloc", Log: quiet})
	must(t, err)
	defer g.Close()
	next(t, g)
	if !db.Migrator().HasTable("Other_Alloc") || db.Migrator().HasTable("leaf_alloc") {
		t.Error("another name of the table does not count")
	}
}

// The error says what is wrong with the database, so that an operator can fix it.
func TestOpen_ReturnsWhatIsWrong(t *testing.T) {
	t.Parallel()

	refused := func(ctx context.Context, db *gorm.DB, want error, words ...string) {
		t.Helper()
		_, err := segment.Open(ctx, db, tag, segment.Config{Log: quiet})
		testkit.IsError(t, err, want, words...)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	refused(ctx, handle(t, file(t)), context.Canceled)
	// A table of this name without its columns.
	db := handle(t, file(t))
	run(t, db, "CREATE TABLE leaf_alloc (id INT)")
	refused(t.Context(), db, nil, "max_id")
	// A file that may only be read.
	path := file(t)
	handle(t, path)
	readOnly := testkit.SQLite{Path: path, Params: []string{"mode=ro"}}.Open(t)
	refused(t.Context(), readOnly, workernode.ErrTable, "segment/sqlite.sql")
	// The row exists twice.
	db = handle(t, file(t))
	run(t, db, "CREATE TABLE leaf_alloc (biz_tag TEXT, max_id INT, step INT, description TEXT, update_time TIMESTAMP)")
	for range 2 {
		run(t, db, "INSERT INTO leaf_alloc VALUES (?, 1, 10, NULL, NULL)", tag)
	}
	refused(t.Context(), db, segment.ErrRow)
}

// Any number of generators open an empty database at once.
func TestOpen_WorksForManyAtOnce(t *testing.T) {
	t.Parallel()

	path := file(t)
	handle(t, path) // makes the file
	var wg sync.WaitGroup
	for range 8 {
		db := handle(t, path)
		wg.Go(func() {
			g, err := segment.Open(t.Context(), db, tag, segment.Config{Log: quiet})
			if err == nil {
				defer g.Close()
				_, err = g.Next(t.Context())
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if maxID, step := stored(t, handle(t, path)); maxID != 1+8*2000 || step != 2000 {
		t.Errorf("max_id %d, step %d", maxID, step)
	}
}

// Formerly, without a first range, the first create in a transaction on a pool of one waited for a connection that
// could not come.
func TestOpen_FetchesTheFirstRange(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db, wire := wired(t)
		g := open(t, db, segment.Config{Step: 10, MaxStep: 1})
		wire.Set(func(*testkit.Crossing) error { return errors.New("connection refused") })
		for want := int64(1); want <= 10; want++ {
			gapless(t, want, next(t, g))
		}
	})
}

// A Leaf service that numbers the column by another tag holds larger numbers in memory. Formerly a new tag, and one
// with a max_id below the column's numbers, began right above the largest of them.
func TestOpen_RefusesATagThatIsNewToTheColumnOrBehindIt(t *testing.T) {
	t.Parallel()

	const used = 70_000
	isNew := []string{`the tag "orders" of leaf_alloc is new`, "70000", "docs/from-leaf.md", "set Start"}
	for name, tt := range map[string]struct {
		maxID int64 // of the row; 0 is none
		start int64 // which is of no help
		says  []string
	}{
		"no row":                  {0, used, isNew},
		"a row as Leaf's example": {1, used, isNew},
		"a row behind the column": {used, used + 1, []string{
			`the tag "orders" of leaf_alloc`, "has max_id 70000", "numbers up to 70000", "Correct the tag", "stop all programs",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			db := handle(t, file(t))
			if tt.maxID > 0 {
				leaf(t, db, tt.maxID, 500)
			}
			var err error
			for _, start := range []int64{0, tt.start} {
				_, err = segment.Open(t.Context(), db, tag, segment.Config{Used: used, Start: start, Log: quiet})
				testkit.IsError(t, err, segment.ErrRow, tt.says...)
			}
			if tt.maxID > 0 {
				if maxID, _ := stored(t, db); maxID != tt.maxID {
					t.Errorf("the refused row has max_id %d", maxID)
				}
			}
			// The error advises this.
			_, statement, _ := strings.Cut(err.Error(), " run ")
			run(t, db, statement)
			if id := next(t, open(t, db, segment.Config{Used: used})); id != used+1 {
				t.Errorf("after %s the first id is %d", statement, id)
			}
		})
	}
	gapless(t, used+1, next(t, open(t, handle(t, file(t)), segment.Config{Used: used, Start: used + 1})))
}

// With Lift a row that somebody has fetched from is lifted above numbers that came from elsewhere, such as one that an
// operator inserted. The log says so.
func TestOpen_LiftsATagAboveTheColumn(t *testing.T) {
	t.Parallel()

	db := handle(t, file(t))
	leaf(t, db, 5, 10)
	log := &testkit.Log{}
	g := open(t, db, segment.Config{Used: 300, Lift: true, Log: log.Logger()})
	if id := next(t, g); id != 301 || len(log.Lines("larger numbers than max_id")) != 1 {
		t.Errorf("id %d, log %q", id, log.Lines(""))
	}
	if id := next(t, open(t, db, segment.Config{Used: 301, Lift: true, Log: log.Logger()})); id != 311 || len(log.Lines("larger")) != 1 {
		t.Errorf("id %d, log %q", id, log.Lines(""))
	}
}

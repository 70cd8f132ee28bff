package segment_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

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
	if has := db.Migrator().HasTable("leaf_alloc"); has {
		t.Error("the table was created all the same")
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

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := segment.Open(ctx, handle(t, file(t)), tag, segment.Config{Log: quiet}); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
	// A table of this name without its columns.
	db := handle(t, file(t))
	run(t, db, "CREATE TABLE leaf_alloc (id INT)")
	if _, err := segment.Open(t.Context(), db, tag, segment.Config{Log: quiet}); err == nil || !strings.Contains(err.Error(), "biz_tag") && !strings.Contains(err.Error(), "max_id") {
		t.Errorf("with another table: %v", err)
	}
	// A file that may only be read.
	path := file(t)
	handle(t, path)
	readOnly := testkit.SQLite{Path: path, Params: []string{"mode=ro"}}.Open(t)
	if _, err := segment.Open(t.Context(), readOnly, tag, segment.Config{Log: quiet}); !errors.Is(err, workernode.ErrTable) || !strings.Contains(err.Error(), "segment/sqlite.sql") {
		t.Errorf("where no table can be created: %v", err)
	}
	// The row exists twice.
	db = handle(t, file(t))
	run(t, db, "CREATE TABLE leaf_alloc (biz_tag TEXT, max_id INT, step INT, description TEXT, update_time TIMESTAMP)")
	for range 2 {
		run(t, db, "INSERT INTO leaf_alloc VALUES (?, 1, 10, NULL, NULL)", tag)
	}
	if _, err := segment.Open(t.Context(), db, tag, segment.Config{Log: quiet}); !errors.Is(err, segment.ErrRow) {
		t.Errorf("with two rows: %v", err)
	}
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
			if err != nil {
				t.Error(err)
				return
			}
			defer g.Close()
			if _, err := g.Next(t.Context()); err != nil {
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
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, p := meddled(handle(t, file(t)))
		g := open(t, db, segment.Config{Step: 10, MaxStep: 1})
		p.set(func(string, func() error) error { return errors.New("connection refused") })
		for want := int64(1); want <= 10; want++ {
			if id := next(t, g); id != want {
				t.Fatalf("id %d, want %d", id, want)
			}
		}
	})
}

// A new tag began with the largest number plus one. A Leaf service that numbers the column by another tag holds numbers
// above that one in memory.
func TestOpen_RefusesANewTagOfAColumnWithNumbers(t *testing.T) {
	t.Parallel()

	const used = 70_000
	for name, make := range map[string]func(db *gorm.DB){
		"no row":                  func(*gorm.DB) {},
		"a row as Leaf's example": func(db *gorm.DB) { leaf(t, db, 1, 500) },
	} {
		t.Run(name, func(t *testing.T) {
			db := handle(t, file(t))
			make(db)
			_, err := segment.Open(t.Context(), db, tag, segment.Config{Used: used, Log: quiet})
			testkit.IsError(t, err, segment.ErrRow, `the tag "orders" of leaf_alloc is new`, "70000", "docs/from-leaf.md", "set Start")
			_, err = segment.Open(t.Context(), db, tag, segment.Config{Used: used, Start: used, Log: quiet})
			testkit.IsError(t, err, segment.ErrRow)

			// The error advises this.
			_, statement, _ := strings.Cut(err.Error(), "or run ")
			if statement == "" {
				t.Fatal(err)
			}
			run(t, db, statement)
			if id := next(t, open(t, db, segment.Config{Used: used})); id != used+1 {
				t.Errorf("after %s the first id is %d", statement, id)
			}
		})
	}
	db := handle(t, file(t))
	if id := next(t, open(t, db, segment.Config{Used: used, Start: used + 1})); id != used+1 {
		t.Errorf("with Start the first id is %d", id)
	}
}

// A named tag with a max_id below the column's numbers began above the largest of them. That is a range which a Leaf
// service may hold in memory, because it numbers the column by another tag, or leaf_alloc was restored.
func TestOpen_RefusesATagThatIsBehindTheColumn(t *testing.T) {
	t.Parallel()

	const used = 70_000
	db := handle(t, file(t))
	leaf(t, db, used, 500)
	for _, c := range []segment.Config{{Used: used, Log: quiet}, {Used: used, Start: used + 1, Log: quiet}} {
		_, err := segment.Open(t.Context(), db, tag, c)
		testkit.IsError(t, err, segment.ErrRow, `the tag "orders" of leaf_alloc`, "has max_id 70000", "numbers up to 70000", "Correct the tag", "stop all programs")
		if maxID, _ := stored(t, db); maxID != used {
			t.Errorf("the refused row has max_id %d", maxID)
		}
	}
	_, err := segment.Open(t.Context(), db, tag, segment.Config{Used: used, Log: quiet})
	_, statement, _ := strings.Cut(err.Error(), "then run ")
	run(t, db, statement)
	if id := next(t, open(t, db, segment.Config{Used: used})); id != used+1 {
		t.Errorf("after %s the first id is %d", statement, id)
	}
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

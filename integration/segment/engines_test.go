package segment_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/segment"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// openSegment returns a generator of the tag "orders", which is closed when the test ends.
func openSegment(t *testing.T, db *gorm.DB, c segment.Config) *segment.Generator {
	t.Helper()
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	g, err := segment.Open(t.Context(), db, "orders", c)
	testkit.Must(t, err)
	t.Cleanup(g.Close)
	return g
}

// leafScript is how Leaf's operators make the table.
const leafScript = "CREATE TABLE `leaf_alloc` (" +
	"`biz_tag` varchar(128)  NOT NULL DEFAULT ''," +
	"`max_id` bigint(20) NOT NULL DEFAULT '1'," +
	"`step` int(11) NOT NULL," +
	"`description` varchar(256)  DEFAULT NULL," +
	"`update_time` timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP," +
	"PRIMARY KEY (`biz_tag`)) ENGINE=InnoDB"

// Several generators and a Leaf service start at once on an empty database, or on Leaf's table. Each generator has a
// pool of its own, with other connection settings. All ids differ.
func TestSegment_NextToLeaf(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		var params []string
		switch {
		case d.IsMySQL():
			params = []string{"clientFoundRows=true", "clientFoundRows=false", "interpolateParams=true",
				"transaction_isolation='SERIALIZABLE'", "sql_mode=ANSI_QUOTES"}
			if d.Name == "mariadb" {
				params[3] = "tx_isolation='SERIALIZABLE'"
			}
			harness.Exec(t, d.Open(t, nil), leafScript)
			harness.Exec(t, d.Open(t, nil), "insert into leaf_alloc(biz_tag, max_id, step, description) values('orders', 1, 20, 'Test leaf Segment Mode Get Id')")
		case d.Name == "postgres":
			params = []string{"application_name=a", "default_transaction_isolation=serializable", "default_transaction_isolation='repeatable read'", "default_query_exec_mode=simple_protocol"}
		default:
			params = []string{"", "", ""}
		}
		var ids testkit.Ledger
		var wg sync.WaitGroup
		for _, param := range params {
			db := d.Open(t, nil, param)
			wg.Go(func() {
				g, err := segment.Open(t.Context(), db, "orders", segment.Config{Step: 20, MaxStep: 40, Log: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Errorf("%s: %v", param, err)
					return
				}
				defer g.Close()
				var callers sync.WaitGroup
				for range 4 {
					callers.Go(func() {
						batch := make([]int64, 7)
						for range 40 {
							if err := g.Fill(t.Context(), batch); err != nil {
								t.Errorf("%s: %v", param, err)
								return
							}
							ids.Add("orders", batch...)
						}
					})
				}
				callers.Wait()
			})
		}
		if d.IsMySQL() {
			leaf := d.Open(t, nil)
			wg.Go(func() {
				for range 40 {
					batch, err := leafFetches(leaf, "leaf_alloc", "orders")
					if err != nil {
						if strings.Contains(err.Error(), "1213") { // Leaf does not try again either
							continue
						}
						t.Error(err)
						return
					}
					ids.Add("orders", batch...)
				}
			})
		}
		wg.Wait()
		want := len(params) * 4 * 40 * 7
		if ids.Twice() > 0 || ids.Len() < want {
			t.Errorf("%d ids, %d of them twice; want %d at least", ids.Len(), ids.Twice(), want)
		}
		if ids.Tables()[0] != "" {
			t.Error("0 was handed out")
		}
	})
}

// The table has the columns of Leaf's own.
func TestSegment_Table(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		openSegment(t, db, segment.Config{})
		ours := harness.Columns(t, db, "leaf_alloc")
		if d.IsMySQL() {
			other := d.New(t).Open(t, nil)
			harness.Exec(t, other, leafScript)
			if leafs := harness.Columns(t, other, "leaf_alloc"); !slices.Equal(ours, leafs) {
				t.Errorf("ours:\n%s\nLeaf's:\n%s", strings.Join(ours, "\n"), strings.Join(leafs, "\n"))
			}
		}
		if len(ours) != 5 {
			t.Errorf("%q", ours)
		}
		// Leaf's statement for a new tag.
		harness.Exec(t, db, "insert into leaf_alloc(biz_tag, max_id, step, description) values('leaf-segment-test', 1, 2000, 'Test leaf Segment Mode Get Id')")

		// By hand, with the file of the package.
		byHand := d.New(t).Open(t, nil)
		file := d.SQLFile()
		text, err := segment.Files.ReadFile(file)
		testkit.Must(t, err)
		for range 2 {
			harness.Exec(t, byHand, string(text))
		}
		if hand := harness.Columns(t, byHand, "leaf_alloc"); !slices.Equal(hand, ours) {
			t.Errorf("manually:\n%q\nby the package:\n%q", hand, ours)
		}
		openSegment(t, byHand, segment.Config{})
	})
}

// Names that differ only in case are two tables if the server says so. A name may contain its schema.
func TestSegment_TableNames(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		a := openSegment(t, db, segment.Config{Table: "LEAF_ALLOC", Start: 1000})
		b := openSegment(t, db, segment.Config{})
		schema := d.Current()
		c := openSegment(t, db, segment.Config{Table: schema + ".third_alloc", Start: 3000})
		for _, tt := range []struct {
			g    *segment.Generator
			want int64
		}{{a, 1000}, {b, 1}, {c, 3000}} {
			id, err := tt.g.Next(t.Context())
			testkit.Must(t, err)
			if id != tt.want && d.Name != "sqlite" {
				t.Errorf("id %d, want %d", id, tt.want)
			}
		}
		again := openSegment(t, db, segment.Config{Table: schema + ".third_alloc"})
		if id, err := again.Next(t.Context()); err != nil || id <= 3000 {
			t.Errorf("%d, %v", id, err)
		}
	})
}

// Connections with autocommit off would keep no range, so they are refused.
func TestSegment_WithoutAutocommit(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		openSegment(t, d.Open(t, nil), segment.Config{})
		if _, err := segment.Open(t.Context(), d.Open(t, nil, "autocommit=0"), "orders", segment.Config{}); err == nil || !strings.Contains(err.Error(), "autocommit") {
			t.Errorf("%v", err)
		}
	}, "mariadb", "mysql")
}

// A database that keeps a smaller max_id than it acknowledges would give two processes the same numbers: both stop below
// the first number that may be given twice, and name the column.
func TestSegment_MaxIDThatIsNotKept(t *testing.T) {
	t.Parallel()
	lowers := map[string][]string{
		"a trigger of MySQL": {"CREATE TRIGGER lowers BEFORE UPDATE ON leaf_alloc FOR EACH ROW SET NEW.max_id = LEAST(NEW.max_id, 9999)"},
		"a narrow column":    {"ALTER TABLE leaf_alloc MODIFY max_id DECIMAL(4, 0) NOT NULL"},
		"a trigger of PostgreSQL": {
			"CREATE FUNCTION lowers() RETURNS trigger AS $$ BEGIN NEW.max_id = LEAST(NEW.max_id, 9999); RETURN NEW; END $$ LANGUAGE plpgsql",
			"CREATE TRIGGER lowers BEFORE UPDATE ON leaf_alloc FOR EACH ROW EXECUTE FUNCTION lowers()",
		},
	}
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		for name, statements := range lowers {
			if d.IsMySQL() == strings.Contains(name, "PostgreSQL") {
				continue
			}
			d := d.New(t)
			var params []string
			if d.IsMySQL() {
				params = []string{"sql_mode=''"}
			}
			db := d.Open(t, nil, params...)
			c := segment.Config{Step: 1000, MaxStep: 1}
			g := []*segment.Generator{openSegment(t, db, c), openSegment(t, d.Open(t, nil, params...), c)}
			for _, statement := range statements {
				harness.Exec(t, db, statement)
			}
			seen, failed := map[int64]bool{}, 0
			for i := 0; failed < 4 && i < 40_000; i++ {
				id, err := g[i%2].Next(t.Context())
				if err != nil {
					failed++
					testkit.IsError(t, err, workernode.ErrTable, "did not keep max_id")
				} else if seen[id] || id >= 9999 {
					t.Fatalf("%s: id %d", name, id)
				}
				seen[id] = true
			}
			if failed < 4 || len(seen) < 5000 {
				t.Errorf("%s: %d failures, %d ids", name, failed, len(seen))
			}
		}
	}, "mariadb", "mysql", "postgres")
}

// Ids are fetched outside of the application's transaction, which may hold locks and may be rolled back.
func TestSegment_InsideTransactions(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		harness.Exec(t, db, "CREATE TABLE things (id BIGINT PRIMARY KEY)")
		g := openSegment(t, db, segment.Config{Step: 5, MaxStep: 1})
		last := int64(0)
		for range 5 {
			errBack := errors.New("back")
			err := db.Transaction(func(tx *gorm.DB) error {
				for range 20 {
					id, err := g.Next(t.Context())
					if err != nil || id <= last {
						return fmt.Errorf("id %d after %d: %w", id, last, err)
					}
					last = id
					if err := tx.Exec("INSERT INTO things VALUES (?)", id).Error; err != nil {
						return err
					}
				}
				return errBack
			})
			if err != errBack {
				t.Fatal(err)
			}
		}
	}, "mariadb", "mysql", "postgres") // SQLite has one writer
}

// While the server is unreachable, the remaining ids are handed out. Then callers get an error, or that of their
// context. Once the server is back, ids are made without further action.
func TestSegment_Outage(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db, away, back := testkit.OpenBreakable(t, d)
		g := openSegment(t, db, segment.Config{Step: 1000, MaxStep: 1})
		ids := make([]int64, 200)
		testkit.Must(t, g.Fill(t.Context(), ids))
		testkit.Eventually(t, "second range", time.Minute, func() bool { return g.State().Ranges == 2 })
		last := ids[199]
		away()
		for range 1800 {
			id, err := g.Next(t.Context())
			if err != nil || id != last+1 {
				t.Fatalf("%d after %d, %v", id, last, err)
			}
			last = id
		}
		for range 3 {
			if id, err := g.Next(t.Context()); id != 0 || !errors.Is(err, generator.ErrSource) {
				t.Fatalf("%d, %v", id, err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if _, err := g.Next(ctx); err == nil {
			t.Error("no error while the server is unreachable")
		}
		back()
		begin := time.Now()
		testkit.Eventually(t, "id after the outage", time.Minute, func() bool {
			id, err := g.Next(t.Context())
			return err == nil && id > last
		})
		t.Logf("ids again %v after the server's return", time.Since(begin).Round(time.Millisecond))
		if err := g.State().LastError; err != nil {
			t.Error(err)
		}
	}, "mariadb", "mysql", "postgres")
}

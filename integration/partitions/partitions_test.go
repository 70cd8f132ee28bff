// Package partitions_test partitions tables by the time of their ids.
package partitions_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/follow"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/partition"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/migrations"
	"gorm.io/gorm"
)

func TestConvert_KeepsRowsIndexesAndForeignKeys(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		s := newShop(t, d)
		s.convert()
		again, err := migrations.PartitionStatements(t.Context(), s.db, s.p.Layout(), "orders", "month", 3, 0)
		if err != nil || len(again) > 0 {
			t.Errorf("after the conversion: %q, %v", again, err)
		}
		created := order{CustomerID: s.first.CustomerID}
		testkit.Must(t, s.db.Create(&created).Error)
		testkit.Must(t, s.db.Create(&item{OrderID: created.ID}).Error)
		if n := s.rows("p_first"); n != 3 {
			t.Errorf("the first partition has %d rows, want those from before and the new one", n)
		}
		var found order
		testkit.Must(t, s.db.First(&found, 5).Error)
		if !s.db.Migrator().HasIndex(&order{}, "CustomerID") {
			t.Error("the index has another name, so AutoMigrate would create it again")
		}
		if err := s.db.Create(&order{CustomerID: s.first.CustomerID, Note: "bad"}).Error; err == nil {
			t.Error("the CHECK constraint of the table is gone")
		}
		db := s.db
		if d.IsMySQL() {
			db = d.Open(t, &gorm.Config{DisableForeignKeyConstraintWhenMigrating: true})
		}
		testkit.Must(t, db.AutoMigrate(&customer{}, &order{}, &item{}))
	}, servers...)
}

// Foreign keys of the table and to it refuse wrong rows in the old partition and in a new one.
func TestConvert_ForeignKeysStayOnPostgreSQL(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		s := newShop(t, d)
		s.run("ALTER TABLE orders ADD parent_id bigint CONSTRAINT fk_parent REFERENCES orders")
		s.run("UPDATE orders SET parent_id = 5")
		s.convert()
		later := s.idAt(time.Now().Year(), time.Now().Month()+3, 1)
		for _, id := range []uidplugin.ID{6, later} {
			testkit.Must(t, s.db.Create(&order{ID: id, CustomerID: s.first.CustomerID}).Error)
			testkit.Must(t, s.db.Create(&item{OrderID: id}).Error)
			s.run("UPDATE orders SET parent_id = " + id.String() + " WHERE id = 5")
			for _, wrong := range []string{
				"UPDATE orders SET customer_id = 404 WHERE id = " + id.String(),
				"UPDATE orders SET parent_id = 404 WHERE id = " + id.String(),
				"DELETE FROM orders WHERE id = " + id.String(),
				"UPDATE items SET order_id = 404 WHERE order_id = " + id.String(),
			} {
				if err := s.db.Exec(wrong).Error; err == nil || !strings.Contains(err.Error(), "foreign key") {
					t.Errorf("%s: %v", wrong, err)
				}
			}
		}
		var unvalidated int64
		testkit.Must(t, s.db.Raw("SELECT count(*) FROM pg_constraint WHERE NOT convalidated AND conparentid = 0 AND "+
			"connamespace = current_schema()::regnamespace").Scan(&unvalidated).Error)
		if unvalidated > 0 {
			t.Errorf("%d constraints are not validated", unvalidated)
		}
	}, "postgres")
}

// Reading all rows while the table is locked would stop the application.
func TestConvert_DoesNotReadTheRowsWhileItLocksOnPostgreSQL(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		s := newShop(t, d)
		list, err := s.steps(monthly(1, 0, time.Time{}))
		testkit.Must(t, err)
		convert := list[0].SQL
		s.run(convert[:2]...) // the CHECK constraint, and its validation
		testkit.Must(t, s.db.Transaction(func(tx *gorm.DB) error {
			scans := func() (n int64) {
				testkit.Must(t, tx.Raw("SELECT sum(seq_scan) FROM pg_stat_xact_user_tables").Scan(&n).Error)
				return n
			}
			before := scans() // of transactions that ended less than a second ago, too
			err := tx.Exec(convert[2]).Error
			if err == nil && scans() != before {
				t.Errorf("%d scans of tables", scans()-before)
			}
			return err
		}))
	}, "postgres")
}

// The owner, privileges and sequence of the old table belong to the new one, so the old rows can be dropped.
func TestConvert_KeepsPrivilegesAndSequencesOnPostgreSQL(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		s := newShop(t, d)
		s.run("DROP TABLE items", "CREATE SEQUENCE numbers OWNED BY orders.id",
			"ALTER TABLE orders ALTER id SET DEFAULT nextval('numbers')",
			"GRANT SELECT, INSERT ON orders TO PUBLIC", "COMMENT ON TABLE orders IS 'it''s $$'")
		s.convert()
		var kept bool
		testkit.Must(t, s.db.Raw("SELECT has_table_privilege('public', 'orders', 'SELECT') AND "+
			"has_table_privilege('public', 'orders', 'INSERT') AND NOT has_table_privilege('public', 'orders', 'DELETE') AND "+
			"obj_description('orders'::regclass) = 'it''s $$' AND pg_get_serial_sequence('orders', 'id') LIKE '%numbers'").
			Scan(&kept).Error)
		if !kept {
			t.Error("privileges, the comment or the sequence are lost")
		}
		s.change(monthly(1, 1, time.Now().AddDate(0, 4, 0)))
		if n := harness.Count(t, s.db, "orders"); n != 0 {
			t.Errorf("%d rows are left", n)
		}
	}, "postgres")
}

// PostgreSQL finds these by the table's oid, so they would stay with the old rows without an error: a function that counts
// them, a policy of another table, or subscribers that do not know the partition. Row level security would be off.
func TestConvert_RefusesWhatWouldStayWithTheOldRowsOnPostgreSQL(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		s := newShop(t, d)
		schema := ""
		testkit.Must(t, s.db.Raw("SELECT current_schema()").Scan(&schema).Error)
		for _, tt := range []struct {
			make       []string
			drop, want string
			since      int
		}{
			{[]string{"CREATE FUNCTION f() RETURNS bigint BEGIN ATOMIC SELECT count(*) FROM orders; END"}, "DROP FUNCTION f", "function f()", 14},
			{[]string{"CREATE FUNCTION f(o orders[]) RETURNS bigint LANGUAGE sql AS 'SELECT o[1].id'"}, "DROP FUNCTION f", "function f(orders[])", 12},
			{[]string{"CREATE TABLE archive (o orders)"}, "DROP TABLE archive", "column o of archive", 12},
			{[]string{"CREATE POLICY p ON items USING (EXISTS (SELECT 1 FROM orders))"}, "DROP POLICY p ON items", "policy p of items", 12},
			{[]string{"ALTER TABLE orders ENABLE ROW LEVEL SECURITY"}, "ALTER TABLE orders DISABLE ROW LEVEL SECURITY", "row level security", 12},
			{[]string{"CREATE TABLE parent (note text)", "ALTER TABLE orders INHERIT parent"}, "ALTER TABLE orders NO INHERIT parent", "inheritance from parent", 12},
			{[]string{"CREATE PUBLICATION " + schema + " FOR TABLES IN SCHEMA " + schema}, "DROP PUBLICATION " + schema, "publication " + schema + " without publish_via_partition_root", 15},
		} {
			if !s.since(tt.since) {
				continue
			}
			s.run(tt.make...)
			if _, err := s.steps(monthly(1, 0, time.Time{})); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%q: %v", tt.make, err)
			}
			s.run(tt.drop)
		}
		s.convert()
	}, "postgres")
}

// since reports whether the server is PostgreSQL of a version or later.
func (s *shop) since(major int) (ok bool) {
	testkit.Must(s, s.db.Raw("SELECT current_setting('server_version_num')::int >= ?", major*10_000).Scan(&ok).Error)
	return ok
}

// Formerly such a table was converted, and then never got another partition.
func TestConvert_AKeyWithABacktick(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		s := newShop(t, d)
		s.run("CREATE TABLE `a``b` (`i``d` BIGINT PRIMARY KEY)")
		r := partition.Request{Table: "a`b", Every: "week", Ahead: 2}
		s.change(r)
		if list, err := s.steps(r); err != nil || len(list) > 0 {
			t.Error(list, err)
		}
	}, "mariadb", "mysql")
}

// Nobody may read the new table who could not read the old one.
func TestConvert_GivesNoDefaultPrivilegesOnPostgreSQL(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		s := newShop(t, d)
		schema, may := "", true
		testkit.Must(t, s.db.Raw("SELECT current_schema()").Scan(&schema).Error)
		s.run("ALTER DEFAULT PRIVILEGES IN SCHEMA "+schema+" GRANT ALL ON TABLES TO PUBLIC", "GRANT INSERT ON orders TO PUBLIC")
		s.convert()
		testkit.Must(t, s.db.Raw("SELECT has_table_privilege('public', 'orders', 'SELECT') OR NOT has_table_privilege('public', 'orders', 'INSERT')").Scan(&may).Error)
		if may {
			t.Error("everybody may read the table, or nobody may insert")
		}
	}, "postgres")
}

// A partition is created while a transaction is open that writes the table.
func TestCreate_DoesNotWaitForTransactionsOnPostgreSQL(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		s := newShop(t, d)
		s.run("DROP TABLE items")
		s.convert()
		testkit.Must(t, s.db.Transaction(func(tx *gorm.DB) error {
			err := tx.Exec("UPDATE orders SET note = 'open' WHERE id = 5").Error
			if err == nil { // it would fail after 5 s
				s.change(monthly(5, 0, time.Time{}))
			}
			return err
		}))
	}, "postgres")
}

// explain returns the plan of a query.
func (s *shop) explain(scope func(*gorm.DB) *gorm.DB) (plan string) {
	s.Helper()
	query := s.db.ToSQL(func(tx *gorm.DB) *gorm.DB { return tx.Scopes(scope).Find(&[]order{}) })
	how := map[string]string{"mariadb": "PARTITIONS ", "mysql": "FORMAT=TRADITIONAL "}[s.d.Name]
	rows, err := s.db.Raw("EXPLAIN " + how + query).Rows()
	testkit.Must(s, err)
	defer func() { testkit.Must(s, rows.Close()) }()
	for rows.Next() {
		values := map[string]any{}
		testkit.Must(s, s.db.ScanRows(rows, &values))
		for _, name := range []string{"QUERY PLAN", "partitions"} {
			switch v := values[name].(type) {
			case string:
				plan += v + "\n"
			case []byte:
				plan += string(v) + "\n"
			}
		}
	}
	return plan
}

// Databases read only the partitions whose rows can have a time between the two.
func TestCreatedBetween_ReadsOnlyThePartitionsOfItsTime(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		s := newShop(t, d)
		s.run("DROP TABLE items", "DELETE FROM orders")
		if d.IsMySQL() {
			s.run("ALTER TABLE orders DROP FOREIGN KEY fk_orders_customer")
		}
		s.change(monthly(4, 0, time.Date(2025, 1, 15, 0, 0, 0, 0, time.UTC)))
		for _, q := range []struct {
			from, to time.Time
			want     string
		}{
			{time.Date(2025, 4, 1, 0, 0, 0, 0, time.UTC), time.Date(2025, 5, 1, 0, 0, 0, 0, time.UTC), "p2025_04"},
			{time.Date(2025, 3, 31, 23, 0, 0, 0, time.UTC), time.Date(2025, 4, 1, 0, 0, 0, 1e6, time.UTC), "p2025_03 p2025_04"},
			{time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2024, 2, 1, 0, 0, 0, 0, time.UTC), "p_first"},
		} {
			plan := s.explain(s.p.CreatedBetween(q.from, q.to))
			var read []string
			for _, name := range []string{"p_first", "p2025_03", "p2025_04", "p2025_05"} {
				if strings.Contains(plan, name) {
					read = append(read, name)
				}
			}
			if got := strings.Join(read, " "); got != q.want {
				t.Errorf("between %s and %s it reads %q, want %q:\n%s", q.from, q.to, got, q.want, plan)
			}
		}
	}, servers...)
}

// Old partitions are dropped by their time, not earlier, and rows beyond the last one are refused.
func TestDrop_RemovesOnlyOldRows(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		s := newShop(t, d)
		s.run("DELETE FROM items", "DELETE FROM orders")
		if d.IsMySQL() {
			s.run("ALTER TABLE orders DROP FOREIGN KEY fk_orders_customer",
				"ALTER TABLE items DROP FOREIGN KEY fk_items_order")
		}
		s.change(monthly(4, 0, time.Date(2025, 1, 15, 0, 0, 0, 0, time.UTC)))
		create := func(id uidplugin.ID) error {
			return s.db.Create(&order{ID: id, CustomerID: s.first.CustomerID}).Error
		}
		made := []uidplugin.ID{7, s.idAt(2025, 2, 28), s.idAt(2025, 3, 1), s.idAt(2025, 4, 1), s.idAt(2025, 5, 31)}
		for _, id := range made {
			testkit.Must(t, create(id))
		}
		if err := create(s.idAt(2025, 6, 1)); err == nil || !strings.Contains(err.Error(), "partition") {
			t.Errorf("a row beyond the last partition: %v", err)
		}
		s.change(monthly(1, 2, time.Date(2025, 5, 31, 23, 59, 0, 0, time.UTC)))
		var left []uidplugin.ID
		testkit.Must(t, s.db.Model(&order{}).Order("id").Pluck("id", &left).Error)
		if len(left) != 3 || left[0] != s.idAt(2025, 3, 1) {
			t.Errorf("these rows are left: %v, want those since March", left)
		}
		testkit.Must(t, create(s.idAt(2025, 6, 30)))
		if s.rows("p2025_06") != 1 || s.rows("p2025_03") != 1 {
			t.Error("a row is in another partition than that of its month")
		}
	}, servers...)
}

// Dropping rows to which others refer would break a foreign key.
func TestDrop_FailsWhileRowsAreReferredTo(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		s := newShop(t, d)
		s.convert()
		r := monthly(1, 1, time.Now().AddDate(0, 4, 0))
		list, err := s.steps(r)
		testkit.Must(t, err)
		isDrop := func(s partition.Step) bool { return s.Action == partition.Drop }
		detach := list[slices.IndexFunc(list, isDrop)].SQL[0]
		if err := s.db.Exec(detach).Error; err == nil || !strings.Contains(err.Error(), "foreign key") {
			t.Errorf("%s: %v", detach, err)
		}
		s.run("DELETE FROM items")
		s.change(r)
		if n := harness.Count(t, s.db, "orders"); n != 0 {
			t.Errorf("%d rows are left", n)
		}
		id := s.idAt(r.Now.Year(), r.Now.Month(), 1)
		testkit.Must(t, s.db.Create(&order{ID: id, CustomerID: s.first.CustomerID}).Error)
	}, "postgres")
}

// After the conversion a followed table has to be enabled again on PostgreSQL. Then followers see each row, also those
// in new partitions, and old ids are refused.
func TestConvert_ATableThatIsFollowed(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		s := newShop(t, d)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		next := func(after uidplugin.ID) *order {
			t.Helper()
			for o, err := range follow.Rows[order](ctx, s.db, after) {
				testkit.Must(t, err)
				return o
			}
			return nil
		}
		testkit.Must(t, follow.Enable(ctx, s.db, &order{}))
		last := next(5)
		s.convert()
		if d.Name == "postgres" {
			for _, err := range follow.Rows[order](ctx, s.db, last.ID) {
				testkit.IsError(t, err, follow.ErrNotEnabled)
				break
			}
		}
		for range 2 {
			testkit.Must(t, follow.Enable(ctx, s.db, &order{}))
		}
		created := order{CustomerID: s.first.CustomerID}
		testkit.Must(t, s.db.Create(&created).Error)
		if got := next(last.ID); got == nil || got.ID != created.ID {
			t.Errorf("the follower got %v, want %v", got, created)
		}
		s.change(monthly(8, 0, time.Time{}))
		err := s.db.Create(&order{ID: s.idAt(2025, 1, 1), CustomerID: s.first.CustomerID}).Error
		testkit.IsError(t, err, follow.ErrTooLate)
	}, servers...)
}

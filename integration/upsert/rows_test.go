package upsert_test

import (
	"database/sql"
	"testing"

	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

type (
	// MetOrder has a foreign key to the uid of a part.
	MetOrder struct {
		ID      int64 `gorm:"primaryKey;autoIncrement:false;uid"`
		PartRef int64
		Part    *MetPart `gorm:"foreignKey:PartRef;references:Ref;constraint:-"`
	}
	// MetConstraint has a second unique constraint, which is no index of the model.
	MetConstraint struct {
		Code  string  `gorm:"primaryKey;size:20"`
		Name  *string `gorm:"size:50;unique"`
		Ref   int64   `gorm:"uid"`
		Value int
	}
	MetAccount struct {
		ID    int64   `gorm:"primaryKey;autoIncrement:false;uid"`
		Email string  `gorm:"size:50;uniqueIndex"`
		Name  *string `gorm:"size:50;uniqueIndex"`
		Value int
	}
	// MetHidden has a key that no SELECT reads.
	MetHidden struct {
		ID    int64  `gorm:"primaryKey;autoIncrement:false;uid;->:false;<-:create"`
		Name  string `gorm:"size:50;uniqueIndex"`
		Value int
	}
	// MetComputed has a key that the database computes.
	MetComputed struct {
		Code  string `gorm:"primaryKey;size:20;->"`
		Name  string `gorm:"size:20"`
		Ref   int64  `gorm:"uid"`
		Value int
	}
	// MetLine has a key of two columns, and MetOffer a uid that is no key.
	MetLine struct {
		ID     int64  `gorm:"primaryKey;autoIncrement:false;uid"`
		Tenant int64  `gorm:"primaryKey;autoIncrement:false"`
		Name   string `gorm:"size:50;uniqueIndex"`
		Value  int
	}
	MetOffer struct {
		Name  string `gorm:"primaryKey;size:50"`
		ID    int64  `gorm:"uid;index"`
		Value int
	}
	MetDecimal struct {
		ID    int64  `gorm:"primaryKey;autoIncrement:false;uid;type:decimal(25,2)"`
		Name  string `gorm:"size:50;uniqueIndex"`
		Value int
	}
)

// byName are upserts that name the column of a second unique index.
var byName = map[string]clause.OnConflict{
	"nothing": {Columns: []clause.Column{{Name: "name"}}, DoNothing: true},
	"update":  {Columns: []clause.Column{{Name: "name"}}, DoUpdates: clause.AssignmentColumns([]string{"value"})},
}

func ptr[T any](v T) *T { return &v }

// A transaction of MySQL reads from a snapshot, but its INSERT sees the present rows. So a struct gets the id of the
// existing row, not of a deleted one.
func TestUpsert_InAnOldSnapshot(t *testing.T) {
	t.Parallel()
	eachVariant(t, func(t *testing.T, d *testkit.Database, variant string, db *gorm.DB) {
		testkit.Must(t, db.AutoMigrate(&UniqueB{}, &MetPart{}, &MetOrder{}))
		for name, conflict := range byName {
			for _, table := range []string{"unique_bs", "met_parts", "met_orders"} {
				testkit.Must(t, db.Exec("DELETE FROM "+table).Error)
			}
			deleted, part := []UniqueB{{Name: "a"}, {Name: "b"}}, MetPart{Code: "p"}
			create(t, db, &deleted, &part)
			var rows []UniqueB
			var one UniqueB
			var order MetOrder
			there, thereToo, others := []UniqueB{{Name: "a"}, {Name: "b"}}, MetPart{Code: "p"}, MetPart{Code: "q"}
			orders := []MetOrder{{Part: &MetPart{Code: "p"}}, {Part: &MetPart{Code: "q"}}}
			testkit.Must(t, db.Transaction(func(tx *gorm.DB) error {
				if d.Name == "mariadb" { // whose newer versions refuse such an INSERT
					_ = tx.Exec("SET SESSION innodb_snapshot_isolation = OFF").Error
				}
				if n := queried[int](t, tx, "SELECT COUNT(*) FROM unique_bs"); n != 2 {
					t.Errorf("%d rows", n)
				}
				testkit.Must(t, db.Delete(&deleted).Error)
				testkit.Must(t, db.Delete(&MetPart{Code: "p"}).Error)
				create(t, db, &there, &[]*MetPart{&thereToo, &others})

				rows, one = []UniqueB{{Name: "a", Value: 3}, {Name: "c", Value: 3}}, UniqueB{Name: "b", Value: 3}
				create(t, tx.Clauses(conflict), &rows, &one)
				order = MetOrder{Part: &MetPart{Code: "p"}}
				create(t, tx, &order, &orders)
				return nil
			}, &sql.TxOptions{Isolation: sql.LevelRepeatableRead}))
			if rows[0].ID != there[0].ID || one.ID != there[1].ID {
				t.Errorf("%s%s: the rows have %d and %d, the structs %d and %d; deleted rows had %d and %d",
					name, variant, there[0].ID, there[1].ID, rows[0].ID, one.ID, deleted[0].ID, deleted[1].ID)
			}
			for _, o := range append(orders, order) {
				want := thereToo.Ref
				if o.Part.Code == "q" {
					want = others.Ref
				}
				if got := queried[int64](t, db, "SELECT part_ref FROM met_orders WHERE id = ?", o.ID); got != want || o.PartRef != want || o.Part.Ref != want {
					t.Errorf("%s%s: the part %s has %d, the foreign key is %d, in the structs %d and %d; a deleted row had %d",
						name, variant, o.Part.Code, want, got, o.PartRef, o.Part.Ref, part.Ref)
				}
			}
		}
	}, "mariadb", "mysql")
}

// Some associations were loaded without their uids, and one has a uid that the application has set.
func TestUpsert_OfAssociationsWithoutTheirUids(t *testing.T) {
	t.Parallel()
	eachVariant(t, func(t *testing.T, d *testkit.Database, variant string, db *gorm.DB) {
		empty(t, db, &MetOwner{}, &MetPet{})
		first := created(t, db, MetOwner{Code: "o", Pets: []MetPet{{Name: "p1"}, {Name: "p2"}}})
		var loaded MetOwner
		testkit.Must(t, db.Preload("Pets", func(tx *gorm.DB) *gorm.DB { return tx.Select("id", "name", "owner_code").Order("name") }).Take(&loaded).Error)
		loaded.Pets[0].Name = "p1 renamed"
		loaded.Pets = append(loaded.Pets, MetPet{Name: "p3", Ref: 33}, MetPet{Name: "p4"})
		testkit.Must(t, db.Session(&gorm.Session{FullSaveAssociations: true}).Updates(&loaded).Error)
		want := []int64{first.Pets[0].Ref, first.Pets[1].Ref, 33, loaded.Pets[3].Ref}
		for i, p := range loaded.Pets {
			var there MetPet
			testkit.Must(t, db.Take(&there, p.ID).Error)
			if there != p || there.Ref != want[i] || there.Ref == 0 {
				t.Errorf("%s: the row is %+v, the struct %+v, the uid is to be %d", variant, there, p, want[i])
			}
		}
	})
}

// A conflict with a named constraint is not one with the primary key.
func TestUpsert_OnAConstraint(t *testing.T) {
	t.Parallel()
	eachVariant(t, func(t *testing.T, d *testkit.Database, variant string, db *gorm.DB) {
		testkit.Must(t, db.AutoMigrate(&MetConstraint{}))
		for name, conflict := range byName {
			testkit.Must(t, db.Exec("DELETE FROM met_constraints").Error)
			conflict.Columns, conflict.OnConstraint = nil, "uni_met_constraints_name"
			a, b := MetConstraint{Code: "a", Name: ptr("name of a")}, MetConstraint{Code: "b", Name: ptr("name of b")}
			create(t, db, &a, &b)
			one := created(t, db.Clauses(conflict), MetConstraint{Code: "b", Name: ptr("name of a"), Value: 2})
			batch := []MetConstraint{{Code: "b", Name: ptr("name of a"), Value: 3}, {Code: "c", Name: ptr("name of c")}}
			testkit.Must(t, db.Clauses(conflict).Create(&batch).Error)
			m := map[string]any{"code": "b", "name": "name of a"}
			testkit.Must(t, db.Model(&MetConstraint{}).Clauses(conflict).Create(&m).Error)
			mapped, _ := m["ref"].(int64)
			for i, ref := range []int64{one.Ref, batch[0].Ref, mapped} {
				if ref != a.Ref && ref != 0 {
					t.Errorf("%s %d: the row that was met has %d, another %d, the struct got %d", name, i, a.Ref, b.Ref, ref)
				}
			}
			if got := queried[int64](t, db, "SELECT ref FROM met_constraints WHERE code = 'c'"); got != batch[1].Ref || got == 0 {
				t.Errorf("%s: the new row has %d, the struct %d", name, got, batch[1].Ref)
			}
		}
	}, "postgres")
}

// On MySQL a conflict in any unique index counts, whatever index the statement names.
func TestUpsert_ThatMeetARowByAnotherIndex(t *testing.T) {
	t.Parallel()
	eachVariant(t, func(t *testing.T, d *testkit.Database, variant string, db *gorm.DB) {
		testkit.Must(t, db.AutoMigrate(&MetAccount{}, &MetConstraint{}))
		for name, conflict := range byName {
			testkit.Must(t, db.Exec("DELETE FROM met_accounts").Error)
			a, nameless := MetAccount{Email: "a@", Name: ptr("a")}, MetAccount{Email: "nameless@"}
			create(t, db, &a, &nameless)
			one, batch := MetAccount{Email: "a@"}, []MetAccount{{Email: "a@"}, {Email: "c@", Name: ptr("c")}, {Email: "a@", Name: ptr("unknown")}}
			create(t, db.Clauses(conflict), &one, &batch)
			for i, r := range []MetAccount{one, batch[0], batch[2]} {
				if r.ID != a.ID && r.ID != 0 {
					t.Errorf("%s%s %d: the row that was met has %d, one without a name %d, the struct got %d", name, variant, i, a.ID, nameless.ID, r.ID)
				}
			}
			if got := queried[int64](t, db, "SELECT id FROM met_accounts WHERE email = 'c@'"); got != batch[1].ID {
				t.Errorf("%s%s: the new row has %d, the struct %d", name, variant, got, batch[1].ID)
			}

			testkit.Must(t, db.Exec("DELETE FROM met_constraints").Error)
			x, y := MetConstraint{Code: "x", Name: ptr("name of x")}, MetConstraint{Code: "y", Name: ptr("name of y")}
			create(t, db, &x, &y)
			for i, rows := range [][]MetConstraint{
				{{Code: "y", Name: ptr("name of x"), Value: 9}},
				{{Code: "y", Name: ptr("name of x"), Value: 9}, {Code: "z", Value: 8}},
			} {
				testkit.Must(t, db.Clauses(conflict).Create(&rows).Error)
				met := y.Ref // by the primary key, which comes first
				if name == "update" {
					met = queried[int64](t, db, "SELECT ref FROM met_constraints WHERE value = 9")
				}
				if rows[0].Ref != met && rows[0].Ref != 0 {
					t.Errorf("%s%s %d: the row that was met has %d, x %d, y %d, the struct got %d", name, variant, i, met, x.Ref, y.Ref, rows[0].Ref)
				}
			}
		}
	}, "mariadb", "mysql")
}

// If a trigger skips rows, no statement returns them, and their structs get no id of the other rows.
func TestUpsert_OfRowsThatATriggerLeavesAlone(t *testing.T) {
	t.Parallel()
	eachVariant(t, func(t *testing.T, d *testkit.Database, variant string, db *gorm.DB) {
		testkit.Must(t, db.AutoMigrate(&UniqueB{}, &MetPart{}))
		triggers := []string{
			"CREATE TRIGGER b_update BEFORE UPDATE ON unique_bs WHEN NEW.value = OLD.value BEGIN SELECT RAISE(IGNORE); END",
			"CREATE TRIGGER b_insert BEFORE INSERT ON unique_bs WHEN NEW.name = 'refused' BEGIN SELECT RAISE(IGNORE); END",
			"CREATE TRIGGER part BEFORE UPDATE ON met_parts WHEN NEW.unit_price = OLD.unit_price BEGIN SELECT RAISE(IGNORE); END",
		}
		if d.Name == "postgres" {
			triggers = []string{
				"CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
				"CREATE TRIGGER b_update BEFORE UPDATE ON unique_bs FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
				"CREATE TRIGGER b_insert BEFORE INSERT ON unique_bs FOR EACH ROW WHEN (NEW.name = 'refused') EXECUTE FUNCTION refuse()",
				"CREATE TRIGGER part BEFORE UPDATE ON met_parts FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
			}
		}
		for _, trigger := range triggers {
			testkit.Must(t, db.Exec(trigger).Error)
		}
		old := created(t, db, []UniqueB{{Name: "a", Value: 1}, {Name: "b", Value: 1}, {Name: "c", Value: 1}})
		ids := map[string]int64{"refused": 0}
		for _, r := range old {
			ids[r.Name] = r.ID
		}
		for i, rows := range [][]UniqueB{
			{{Name: "a", Value: 1}, {Name: "b", Value: 2}, {Name: "c", Value: 1}},
			{{Name: "refused"}, {Name: "new"}, {Name: "c", Value: 1}, {Name: "a", Value: 4}},
			{{Name: "a", Value: 4}, {Name: "c", Value: 1}},
			{{Name: "a", Value: 4}},
			{{Name: "refused"}},
		} {
			testkit.Must(t, db.Clauses(byName["update"]).Create(&rows).Error)
			if i == 1 {
				ids["new"] = queried[int64](t, db, "SELECT id FROM unique_bs WHERE name = 'new'")
			}
			for _, r := range rows {
				if r.ID != ids[r.Name] {
					t.Errorf("%d: %s has the id %d in the struct and %d in the row", i, r.Name, r.ID, ids[r.Name])
				}
			}
		}

		parts := created(t, db, []MetPart{{Code: "a", UnitPrice: 1}, {Code: "b", UnitPrice: 1}})
		batch := []MetPart{{Code: "a", UnitPrice: 1}, {Code: "b", UnitPrice: 2}, {Code: "c", UnitPrice: 1}}
		testkit.Must(t, db.Clauses(updateAll).Create(&batch).Error)
		for _, r := range batch {
			if got := queried[int64](t, db, "SELECT ref FROM met_parts WHERE code = ?", r.Code); r.Ref != got || got == 0 {
				t.Errorf("%s has the uid %d in the struct and %d in the row", r.Code, r.Ref, got)
			}
		}
		if batch[0].Ref != parts[0].Ref || batch[1].Ref != parts[1].Ref {
			t.Errorf("rows that were there had %v, now %v", parts, batch)
		}
	}, "sqlite", "postgres")
}

// A trigger for updates hides the conflicts of MySQL and MariaDB: an existing row that stays as it is counts as 0, and one
// that changes as 2, so the count of a batch may be that of new rows. With clientFoundRows each counts as 1. The trigger
// may change rows that the statement leaves alone, too.
func TestUpsert_OfABatchIntoATableWithATrigger(t *testing.T) {
	t.Parallel()
	eachVariant(t, func(t *testing.T, d *testkit.Database, variant string, db *gorm.DB) {
		empty(t, db, &UniqueB{})
		testkit.Must(t, db.Exec("DROP TRIGGER IF EXISTS b_update").Error)
		testkit.Must(t, db.Exec("CREATE TRIGGER b_update BEFORE UPDATE ON unique_bs FOR EACH ROW SET NEW.value = NEW.value + (NEW.name = 'a')").Error)
		created(t, db, []UniqueB{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "d"}})
		all := []string{"ab", "abx", "ayc", "dcba", "z"}
		if variant == "/found rows" {
			all = all[:4] // the answer to a single row does not tell
		}
		for i, names := range all {
			for name, conflict := range byName {
				var rows []UniqueB
				for n, r := range names {
					rows = append(rows, UniqueB{Name: string(r), Value: n % 2 * (i + 1)})
				}
				testkit.Must(t, db.Clauses(conflict).Create(&rows).Error)
				for _, r := range rows {
					if id := queried[int64](t, db, "SELECT id FROM unique_bs WHERE name = ?", r.Name); r.ID != id {
						t.Errorf("%s, %s, %s: %s has the id %d in the struct and %d in the row", variant, names, name, r.Name, r.ID, id)
					}
				}
			}
		}
	}, "mariadb", "mysql")
}

// A trigger for INSERTs hides the conflicts of the rows before an inserted one.
func TestUpsert_OfABatchThatATriggerSees(t *testing.T) {
	t.Parallel()
	eachVariant(t, func(t *testing.T, d *testkit.Database, variant string, db *gorm.DB) {
		empty(t, db, &MetLine{}, &MetOffer{})
		for _, table := range []string{"met_lines", "met_offers"} {
			testkit.Must(t, db.Exec("DROP TRIGGER IF EXISTS see_"+table).Error)
			testkit.Must(t, db.Exec("CREATE TRIGGER see_"+table+" AFTER INSERT ON "+table+" FOR EACH ROW SET @seen = NEW.id").Error)
		}
		created(t, db, []MetLine{{Name: "a"}, {Name: "b"}})
		for _, r := range created(t, db.Clauses(byName["update"]), []MetLine{{Name: "a", Value: 1}, {Name: "b"}, {Name: "c"}}) {
			if id := queried[int64](t, db, "SELECT id FROM met_lines WHERE name = ?", r.Name); r.ID != id {
				t.Errorf("%s: %s has the id %d in the struct and %d in the row", variant, r.Name, r.ID, id)
			}
		}
		created(t, db, []MetOffer{{Name: "a"}, {Name: "b"}})
		for _, r := range created(t, db.Clauses(byName["update"]), []MetOffer{{Name: "a", Value: 1}, {Name: "b"}, {Name: "c"}}) {
			if id := queried[int64](t, db, "SELECT id FROM met_offers WHERE name = ?", r.Name); r.ID != id {
				t.Errorf("%s: %s has the uid %d in the struct and %d in the row", variant, r.Name, r.ID, id)
			}
		}
	}, "mariadb", "mysql")
}

// The first id of a segment is 1, like the last insert id that shows a conflict. Each of two rows exists: one changes, which
// MySQL counts as 2, and one stays, which it counts as 0.
func TestUpsert_OfABatchWithTheIDOne(t *testing.T) {
	t.Parallel()
	type Stamp struct {
		Code   string `gorm:"primaryKey;size:9"`
		Number int64  `gorm:"autoIncrement:false;uid:segment"`
		Value  int
	}
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		harness.Use(t, db)
		testkit.Must(t, db.AutoMigrate(&Stamp{}))
		testkit.Must(t, db.Exec("INSERT INTO stamps (code, number, value) VALUES ('a', 0, 0), ('b', 0, 0)").Error)
		rows := []Stamp{{Code: "a", Value: 1}, {Code: "b"}}
		testkit.Must(t, db.Clauses(clause.OnConflict{DoUpdates: clause.AssignmentColumns([]string{"value"})}).Create(&rows).Error)
		for _, r := range rows {
			if r.Number != 0 {
				t.Errorf("%s has the number %d in the struct and 0 in the row", r.Code, r.Number)
			}
		}
	}, "mariadb", "mysql")
}

// INSERT OR IGNORE with an update part: a conflict in an index that it does not name leaves the row unchanged, and no
// id moves to another row.
func TestUpsert_InsertOrIgnoreThatUpdates(t *testing.T) {
	t.Parallel()
	eachVariant(t, func(t *testing.T, d *testkit.Database, variant string, db *gorm.DB) {
		testkit.Must(t, db.AutoMigrate(&MetAccount{}))
		created(t, db, MetAccount{Email: "a@", Name: ptr("a")})
		ignore, conflict := clause.Insert{Modifier: "OR IGNORE"}, byName["update"]
		batch := []MetAccount{{Email: "a@", Name: ptr("x")}, {Email: "c@", Name: ptr("c")}, {Email: "d@", Name: ptr("d")}}
		testkit.Must(t, db.Clauses(ignore, conflict).Create(&batch).Error)
		one := created(t, db.Clauses(ignore, conflict), MetAccount{Email: "a@", Name: ptr("x")})
		for _, r := range append(batch, one) {
			got := queried[int64](t, db, "SELECT id FROM met_accounts WHERE email = ?", r.Email)
			if r.ID != got && (r.ID != 0 || r.Email != "a@") {
				t.Errorf("%s has the id %d in the struct and %d in the row", r.Email, r.ID, got)
			}
		}
	}, "sqlite")
}

// A uid next to a key that the database computes, to which nothing can be assigned.
func TestUpsert_NextToAComputedKey(t *testing.T) {
	t.Parallel()
	eachVariant(t, func(t *testing.T, d *testkit.Database, variant string, db *gorm.DB) {
		testkit.Must(t, db.Exec("DROP TABLE IF EXISTS met_computeds").Error)
		testkit.Must(t, db.Exec("CREATE TABLE met_computeds (code VARCHAR(20) GENERATED ALWAYS AS (UPPER(name)) STORED PRIMARY KEY, name VARCHAR(20), ref BIGINT, value INT)").Error)
		update := clause.OnConflict{DoUpdates: clause.AssignmentColumns([]string{"value"})}
		old, again := MetComputed{Name: "a", Value: 1}, MetComputed{Name: "a", Value: 2}
		create(t, db.Clauses(update), &old, &again)
		batch := created(t, db.Clauses(update), []MetComputed{{Name: "a", Value: 3}, {Name: "b", Value: 3}})
		for _, r := range append(batch, again, old) {
			got := queried[int64](t, db, "SELECT ref FROM met_computeds WHERE name = ? AND value = 3", r.Name)
			if r.Ref != got && (r.Ref != 0 || r.Name != "a") || got == 0 {
				t.Errorf("%s: %s has the uid %d in the struct and %d in the row", variant, r.Name, r.Ref, got)
			}
		}
		if got := queried[int64](t, db, "SELECT ref FROM met_computeds WHERE name = 'a'"); got != old.Ref {
			t.Errorf("%s: the row had the uid %d, now %d", variant, old.Ref, got)
		}
	}, "mysql") // MariaDB has no such keys
}

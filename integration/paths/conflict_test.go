package paths_test

import (
	"slices"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// upserted checks rows after an upsert: each struct has the id of the existing row, or none. Where known says so, it
// must have the id.
func (c *cell[K]) upserted(known bool, rows ...*mUnique[K]) {
	for _, r := range rows {
		got, err := c.read("uniques", []string{"id"}, []clause.Expression{clause.Eq{Column: clause.Column{Name: "name"}, Value: r.Name}})
		c.check(err == nil, "there is no %s: %v", r.Name, err)
		if c.reference || err != nil {
			continue
		}
		id := number(r.ID)
		c.ours(r.Name, parsed(got[0]), "uniques")
		c.check(id == parsed(got[0]) || id == 0 && !known, "%s has the id %d in the struct and %s in the row", r.Name, id, got[0])
		if id == 0 {
			c.remark("the struct of a row that was there already has no id")
		}
	}
}

func conflictPaths[K key]() group[K] {
	name := []clause.Column{{Name: "name"}}
	value := clause.AssignmentColumns([]string{"value"})
	never := clause.Where{Exprs: []clause.Expression{clause.Expr{SQL: "1 = 0"}}}
	smaller := clause.Where{Exprs: []clause.Expression{clause.Expr{SQL: "uniques.value < excluded.value"}}}

	// single upserts a new row and an existing one.
	single := func(conflict clause.OnConflict, known func(c *cell[K]) bool) func(c *cell[K]) {
		return func(c *cell[K]) {
			old, rows := c.uniques(1)[0], c.uniques(2)
			c.do(c.db.Create(old))
			rows[1].Name = old.Name
			rows[1].Value = 100
			c.do(c.db.Clauses(conflict).Create(rows[0]))
			c.do(c.db.Clauses(conflict).Create(rows[1]))
			c.upserted(true, rows[0])
			c.upserted(known(c), rows[1])
		}
	}
	// batch upserts rows of which some exist.
	batch := func(conflict clause.OnConflict, known func(c *cell[K]) bool) func(c *cell[K]) {
		return func(c *cell[K]) {
			old, rows := c.uniques(2), c.uniques(5)
			c.do(c.db.Create(old))
			rows[1].Name, rows[3].Name = old[1].Name, old[0].Name
			rows[1].Value, rows[3].Value = 100, 100
			c.do(c.db.Clauses(conflict).Create(&rows))
			c.upserted(true, rows[0], rows[2], rows[4])
			c.upserted(known(c), rows[1], rows[3])
			if conflict.DoNothing || conflict.Where.Exprs != nil {
				return
			}
			again := slices.Clone(rows)
			for i, r := range rows {
				again[i] = &mUnique[K]{ID: c.key(), Name: r.Name, Value: 200}
			}
			c.do(c.db.Clauses(conflict).Create(&again))
			c.upserted(known(c), again...)
		}
	}
	mysql := func(c *cell[K]) bool { return c.IsMySQL() }
	returning := func(c *cell[K]) bool {
		return !c.IsMySQL() || c.Name == "mariadb" && !c.column.noReturning && c.kind.auto
	}
	always := func(*cell[K]) bool { return true }
	never1 := func(*cell[K]) bool { return false }
	postgres := func(column matrixColumn, _ keyKind) bool { return column.name == "postgres" }
	notMySQL := func(column matrixColumn, _ keyKind) bool { return !column.engine().IsMySQL() }
	note := "After an upsert a struct has the id of the existing row, or none if nothing says which row that is (name the `Columns`).\nIt never has an id that no row has."
	return group[K]{"Upserts", note, []path[K]{
		{name: "`DoNothing`, one row", run: single(clause.OnConflict{DoNothing: true}, mysql)},
		{name: "`DoNothing`, a batch", run: batch(clause.OnConflict{DoNothing: true}, never1)},
		{name: "`Columns`, `DoNothing`, one row", run: single(clause.OnConflict{Columns: name, DoNothing: true}, mysql)},
		{name: "`Columns`, `DoNothing`, a batch", run: batch(clause.OnConflict{Columns: name, DoNothing: true}, never1)},
		{name: "`DoUpdates`, one row", run: single(clause.OnConflict{Columns: name, DoUpdates: value}, always)},
		{name: "`DoUpdates`, a batch", run: batch(clause.OnConflict{Columns: name, DoUpdates: value}, returning)},
		{name: "`UpdateAll`, one row", run: single(clause.OnConflict{Columns: name, UpdateAll: true}, always)},
		{name: "`UpdateAll`, a batch", run: batch(clause.OnConflict{Columns: name, UpdateAll: true}, returning)},
		{name: "`UpdateAll` on the primary key, rows with ids", run: func(c *cell[K]) {
			rows := c.uniques(3)
			c.do(c.db.Create(&rows))
			for _, r := range rows {
				r.Value = 50
			}
			rows = append(rows, c.uniques(1)...)
			c.do(c.db.Clauses(clause.OnConflict{UpdateAll: true}).Create(&rows))
			c.upserted(true, rows...)
			c.right(rows)
		}},
		{name: "`DoUpdates` that assigns values", run: single(clause.OnConflict{Columns: name, DoUpdates: clause.Assignments(map[string]any{"value": 9})}, always)},
		{name: "`DoUpdates` that changes nothing, one row", run: single(clause.OnConflict{Columns: name, DoUpdates: clause.AssignmentColumns([]string{"name"})}, always)},
		{name: "`DoUpdates` that changes nothing, a batch", run: batch(clause.OnConflict{Columns: name, DoUpdates: clause.AssignmentColumns([]string{"name"})}, returning)},
		{name: "`Where` that no row meets, one row", run: single(clause.OnConflict{Columns: name, DoUpdates: value, Where: never}, mysql)},
		{name: "`Where` that no row meets, a batch", run: batch(clause.OnConflict{Columns: name, DoUpdates: value, Where: never}, never1)},
		{name: "`Where` that rows meet, one row", only: notMySQL, run: single(clause.OnConflict{Columns: name, DoUpdates: value, Where: smaller}, always)},
		{name: "`Where` that rows meet, a batch", only: notMySQL, run: batch(clause.OnConflict{Columns: name, DoUpdates: value, Where: smaller}, never1)},
		{name: "`OnConstraint`, one row", only: postgres, run: single(clause.OnConflict{OnConstraint: "uni_uniques_name", DoUpdates: value}, always)},
		{name: "`OnConstraint`, a batch, `UpdateAll`", only: postgres, run: batch(clause.OnConflict{OnConstraint: "uni_uniques_name", UpdateAll: true}, always)},
		{name: "`OnConstraint`, a batch, `DoNothing`", only: postgres, run: batch(clause.OnConflict{OnConstraint: "uni_uniques_name", DoNothing: true}, never1)},
		{name: "`TargetWhere` of a partial index", run: func(c *cell[K]) {
			conflict := clause.OnConflict{Columns: name, DoUpdates: value,
				TargetWhere: clause.Where{Exprs: []clause.Expression{clause.Expr{SQL: "value > 0"}}}}
			old := mPartial[K]{ID: c.key(), Name: c.unique("partial"), Value: 1}
			c.do(c.db.Create(&old))
			same, other := mPartial[K]{ID: c.key(), Name: old.Name, Value: 2}, mPartial[K]{ID: c.key(), Name: c.unique("partial"), Value: 2}
			c.do(c.db.Clauses(conflict).Create(&same))
			c.do(c.db.Clauses(conflict).Create(&other))
			c.check(number(same.ID) == number(old.ID), "the row is %d, the struct has %d", number(old.ID), number(same.ID))
			c.right(&same, &other)
		}},
		{name: "`DoNothing`, a slice by value and in batches", run: func(c *cell[K]) {
			old := c.uniques(1)
			c.do(c.db.Create(&old))
			rows := make([]mUnique[K], 5)
			for i, r := range c.uniques(5) {
				rows[i] = *r
			}
			rows[3].Name = old[0].Name
			c.do(c.db.Clauses(clause.OnConflict{DoNothing: true}).CreateInBatches(rows, 2))
			for i := range rows {
				c.upserted(i != 3, &rows[i])
			}
		}},
		{name: "the same new row twice in a batch, `DoNothing`", run: func(c *cell[K]) {
			rows := c.uniques(3)
			rows[2].Name = rows[0].Name
			c.do(c.db.Clauses(clause.OnConflict{DoNothing: true}).Create(&rows))
			c.upserted(true, rows[:2]...)
			c.upserted(false, rows[2])
		}},
		{name: "all rows there, `DoNothing`", run: func(c *cell[K]) {
			old, rows := c.uniques(2), c.uniques(2)
			c.do(c.db.Create(&old))
			rows[0].Name, rows[1].Name = old[0].Name, old[1].Name
			c.do(c.db.Clauses(clause.OnConflict{DoNothing: true}).Create(&rows))
			c.upserted(false, rows...)
		}},
		{name: "maps, `DoNothing` and `DoUpdates`", run: func(c *cell[K]) {
			for _, conflict := range []clause.OnConflict{{DoNothing: true}, {Columns: name, DoUpdates: value}} {
				old := c.uniques(1)[0]
				c.do(c.db.Create(old))
				maps := []map[string]any{c.m(map[string]any{"name": c.unique("map"), "value": 1}), c.m(map[string]any{"name": old.Name, "value": 2})}
				c.do(c.db.Model(&mUnique[K]{}).Clauses(conflict).Create(maps))
				one := c.m(map[string]any{"name": old.Name, "value": 3})
				c.do(c.db.Model(&mUnique[K]{}).Clauses(conflict).Create(one))
				c.rightMap(&mUnique[K]{}, "id", maps[0])
				for _, m := range []map[string]any{maps[1], one} {
					id, ok := m["id"]
					c.check(!ok || parsed(written(id)) == number(old.ID), "the map is %v, the row has %d", m, number(old.ID))
					if !ok && !c.reference {
						c.remark("the map of a row that was there already has no id")
					}
				}
			}
		}},
		{name: "several uid fields", run: func(c *cell[K]) {
			old := mSeveral[K]{ID: c.key(), Name: "old"}
			c.do(c.db.Create(&old))
			same := mSeveral[K]{ID: old.ID, Name: "new"}
			c.do(c.db.Clauses(clause.OnConflict{UpdateAll: true}).Create(&same))
			c.right(&same)
		}},
		{name: "a natural key, a uid next to it", run: func(c *cell[K]) {
			code := func() (k K) { // a reference without it would have nothing to update
				if c.reference {
					k = c.own()
				}
				return k
			}
			old := mNatural[K]{Name: c.unique("natural"), Code: code()}
			c.do(c.db.Create(&old))
			for _, conflict := range []clause.OnConflict{{DoNothing: true}, {UpdateAll: true}} {
				rows := []*mNatural[K]{{Name: old.Name, Code: code(), Uses: 1}, {Name: c.unique("natural"), Code: code(), Uses: 1}}
				c.do(c.db.Clauses(conflict).Create(&rows))
				c.right(rows[1])
				got, err := c.read("naturals", []string{"code"}, []clause.Expression{clause.Eq{Column: clause.Column{Name: "name"}, Value: old.Name}})
				c.must(err)
				c.check(c.reference || parsed(got[0]) == number(old.Code), "the row that was there had %v, now %s", old.Code, got[0])
				c.check(c.reference || number(rows[0].Code) == number(old.Code), "the row has %s, the struct %v", got[0], rows[0].Code)
			}
		}},
		{name: "in a transaction", run: func(c *cell[K]) {
			c.must(c.db.Transaction(func(tx *gorm.DB) error {
				old, same := c.uniques(1)[0], c.uniques(1)[0]
				c.do(tx.Create(old))
				same.Name = old.Name
				c.do(tx.Clauses(clause.OnConflict{Columns: name, DoUpdates: value}).Create(same))
				c.check(number(old.ID) == number(same.ID), "the row has %d, the struct %d", number(old.ID), number(same.ID))
				return nil
			}))
		}},
	}}
}

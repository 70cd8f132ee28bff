package follow

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/uidplugin/uidplugin/internal/sqldb"
)

// checkRenamed returns an error if the consumer has a cursor for this table under another name, such as a former one.
// With a second cursor the consumer would handle all rows again. A name is taken for a former one if no table has it
// any more, even if a view has it.
func (c *cursorRow) checkRenamed(ctx context.Context, s *statements) error {
	followed, err := c.mark.statements(ctx)
	if err != nil {
		return err
	}
	database, withSchema := c.spaces(followed)
	var others []ConsumerKey
	err = c.db.Query(ctx, func(r *sql.Rows) error {
		k := ConsumerKey{Consumer: c.key.Consumer}
		err := r.Scan(&k.Space, &k.Table)
		others = append(others, k)
		return err
	}, "SELECT "+s.flavor.columns("SPACE, TABLE_NAME")+" FROM "+s.cursors()+" WHERE "+s.flavor.equal("CONSUMER")+
		" AND "+s.flavor.quote("SPACE")+" IN (?, ?)", c.key.Consumer, database, withSchema)
	if err != nil {
		return err
	}
	for _, k := range others {
		if k.Space == c.key.Space && k.Table == c.key.Table { // another process was faster
			continue
		}
		t, err := c.tableOf(ctx, followed, k, database)
		if err != nil {
			return err
		}
		set := "set TABLE_NAME of this row of UID_CURSOR to " + c.key.Table
		if k.Space != c.key.Space {
			set = fmt.Sprintf("set SPACE and TABLE_NAME of this row of UID_CURSOR to %s and %s", c.key.Space, c.key.Table)
		}
		if same, err := followed.isSame(ctx, c.mark.db, t); err != nil {
			return err
		} else if same {
			return fmt.Errorf("it has a cursor for %[1]s, which is the same table as %[2]s: let TableName return %[1]s; or end all its processes,"+
				" and %[3]s", k.Table, c.key.Table, set)
		}
		if exists, err := followed.flavor.isTable(ctx, c.mark.db, t); err != nil {
			return fmt.Errorf("check whether the table %s, for which it has a cursor, exists: %w", k.TableName(), err)
		} else if !exists {
			// With another SPACE, or another schema in the name, the command does not change the cursor.
			if c.key.Space == "" && inSchemaOf(k.Table, "") == inSchemaOf(c.key.Table, "") {
				set = "run uid tables rename " + k.Table + " " + c.key.Table
			}
			return fmt.Errorf("it has a cursor for %[2]s, which is not a table any more: if it was renamed to %[3]s, %[4]s;"+
				" otherwise uid follow consumers remove %[1]s --table %[2]s", k.Consumer, k.TableName(), c.key.TableName(), set)
		}
	}
	return nil
}

// checkHidden returns an error if the consumer has its cursor in another schema of the search path. With the option
// Into, UID_CURSOR is found by this path. A UID_CURSOR that is created later, as by [Enable], may hide the other.
func (c *cursorRow) checkHidden(ctx context.Context, s *statements) error {
	if c.key.Space == "" || s.flavor != Postgres {
		return nil
	}
	var schemas []string
	err := c.db.Query(ctx, func(r *sql.Rows) error {
		schemas = append(schemas, "")
		return r.Scan(&schemas[len(schemas)-1])
	}, "SELECT nspname FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace WHERE relkind IN ('r', 'p')"+
		" AND relname = ? AND nspname = ANY(current_schemas(false)) AND nspname <> ?", CursorTable, s.table.Schema)
	if err != nil {
		return err
	}
	for _, schema := range schemas {
		found, other := false, newStatements(Postgres, Table{Name: CursorTable, Schema: schema})
		err := c.db.Query(ctx, func(*sql.Rows) error { found = true; return nil },
			"SELECT 1 FROM "+other.cursors()+c.where(other), c.args()...)
		if err != nil && !notAllowed.MatchString(err.Error()) {
			return err
		}
		if found {
			return fmt.Errorf("its cursor is in the schema %s, but now the search path leads to UID_CURSOR of %s: end all its"+
				" processes, and move this row there, or delete it if the consumer is to begin anew", schema, s.table.Schema)
		}
	}
	return nil
}

// spaces returns the SPACE without and with the schema of the followed table, because models may have named the
// schema before, or name it only now. Only PostgreSQL has schemas in SPACE: elsewhere the two are equal.
func (c *cursorRow) spaces(followed *statements) (database, withSchema string) {
	if c.key.Space == "" || followed.flavor != Postgres {
		return c.key.Space, c.key.Space
	}
	schema := "." + followed.table.schema()
	database = c.key.Space
	if followed.table.Schema != "" && followed.table.Schema != "public" {
		database = strings.TrimSuffix(database, schema)
	}
	return database, database + schema
}

// tableOf returns the table of another cursor of the consumer, which may not exist. If SPACE is only the database, the
// table is in public on PostgreSQL, unless its name has a schema. If public has no such table, it may have moved
// to the schema of the followed table, as that one did, so the result is the name in this schema.
func (c *cursorRow) tableOf(ctx context.Context, followed *statements, k ConsumerKey, database string) (Table, error) {
	inSchema := Table{Schema: followed.table.Schema, Name: inSchemaOf(followed.table.Name, bare(k.Table))}
	if database == "" || k.Space != database {
		return inSchema, nil
	}
	t, f := Table{Name: k.Table}, followed.flavor
	if f == Postgres {
		t.Schema = "public"
	}
	t, _, err := f.located(ctx, c.mark.db, t)
	if err != nil || f != Postgres || strings.Contains(k.Table, ".") || k.Table == bare(followed.table.Name) {
		return t, err
	}
	if exists, err := f.isTable(ctx, c.mark.db, t); exists || err != nil {
		return t, err
	}
	return inSchema, nil
}

// isSame reports whether t, a table that was located, is the followed table.
func (s *statements) isSame(ctx context.Context, db *sqldb.DB, t Table) (same bool, err error) {
	a, b := t.schema()+"."+bare(t.Name), s.table.schema()+"."+bare(s.table.Name)
	switch {
	case a == b || !strings.EqualFold(a, b):
		return a == b, nil
	case s.flavor == MySQL || s.flavor == MariaDB:
		err = db.Query(ctx, func(r *sql.Rows) error { return r.Scan(&same) }, "SELECT @@lower_case_table_names <> 0")
		return same, err
	}
	return s.flavor == SQLite, nil
}

// schema returns the schema of a table that was located.
func (t Table) schema() string {
	if i := strings.LastIndexByte(t.Name, '.'); i >= 0 {
		return t.Name[:i]
	}
	return cmp.Or(t.Schema, "main") // of SQLite
}

package follow

import (
	"context"
	"database/sql"
	"strings"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/sqldb"
)

// A Left is what stays in a schema of PostgreSQL after ALTER TABLE .. SET SCHEMA. The trigger moves with the table,
// but still calls the function in the former schema.
type Left struct {
	Schema  string
	Trigger string // the table that has the trigger; empty if the trigger was dropped
	Remedy  string // the statements that remove what stays
}

// leftBehind returns a status with what a table has left in its former schema, t.Schema, or nil for nothing.
// elsewhere reports whether the search path finds the table in another schema.
func (f Flavor) leftBehind(
	ctx context.Context, db *sqldb.DB, layout generator.Layout, t Table,
) (status *Status, elsewhere bool, err error) {
	if f != Postgres || strings.Contains(t.Name, ".") {
		return nil, false, nil
	}
	s, left, gone := newStatements(f, t), Left{Schema: t.Schema}, false
	schema := "to_regnamespace(" + f.text(f.quote(t.Schema)) + ")"
	err = db.Query(ctx, func(r *sql.Rows) error { gone = true; return r.Scan(&left.Trigger) },
		"SELECT COALESCE((SELECT "+qualified+" FROM pg_trigger t WHERE "+notCloned+" AND t.tgfoid = "+s.function()+
			" AND (SELECT relnamespace FROM pg_class WHERE oid = t.tgrelid) <> "+schema+" LIMIT 1), '') WHERE "+s.class()+" IS NULL")
	if err != nil || !gone {
		return nil, false, err
	}
	now, exists, err := f.located(ctx, db, Table{Name: t.Name})
	elsewhere = exists && now.Schema != t.Schema
	if err != nil || left.Trigger == "" && !elsewhere {
		return nil, false, err
	}
	left.Remedy = "DROP FUNCTION IF EXISTS " + f.in(t, s.names.function) + "() CASCADE; DROP SEQUENCE IF EXISTS " +
		f.in(t, s.names.mark) + "; DELETE FROM " + s.marks() + s.row()
	status = &Status{layout: layout, Left: &left}
	if err = s.status(ctx, db.Quiet(), status); err != nil || status.Table == "" {
		return nil, false, err // it was disabled meanwhile
	}
	return status, elsewhere, nil
}

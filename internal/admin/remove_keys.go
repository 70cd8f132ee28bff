package admin

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/uidplugin/uidplugin/workernode"
)

// planKeys lets the database number the keys of tables: those in WORKER_NODE, those of segments, and the named ones.
func (d *DB) planKeys(ctx context.Context, known []workernode.Table, named []string) (steps []RemovalStep, err error) {
	free, err := d.firstFree(ctx)
	if err != nil {
		return nil, err
	}
	seen := map[workernode.Table]bool{}
	add := func(of workernode.Table, free int64) error {
		if seen[of] {
			return nil
		}
		seen[of] = true
		s, err := d.planKey(ctx, of, free)
		steps = append(steps, s)
		return err
	}
	for _, of := range known {
		if err := add(of, free); err != nil {
			return nil, err
		}
	}
	for _, name := range named {
		of := workernode.Table{}
		of.Database, _, of.Name = d.named(ctx, name)
		if err := add(of, free); err != nil {
			return nil, err
		}
	}
	err = d.eachSegment(ctx, add) // wing: segment
	if err != nil {
		return nil, err
	}
	others, err := d.planUnknown(ctx, seen)
	return append(steps, others...), err
}

// firstFree returns the first id above all that were ever made with a slot, or 0 if there is no room for it. Numbers
// from it on are not those of rows that were deleted.
func (d *DB) firstFree(ctx context.Context) (int64, error) {
	if !d.hasSpace() {
		return 0, nil
	}
	fence := int64(0)
	err := d.SQL.Query(ctx, func(rows *sql.Rows) error { return rows.Scan(&fence) },
		`SELECT COALESCE(MAX("FENCE"), 0) FROM "WORKER_SLOT"`)
	if err != nil && noTable.MatchString(err.Error()) || fence <= 0 || fence >= d.Layout.MaxTick() {
		return 0, nil
	}
	return (fence + 1) << (d.Layout.WorkerBits + d.Layout.SequenceBits), err
}

// planKey lets the database number the key of a table, from free on or above the largest key.
func (d *DB) planKey(ctx context.Context, of workernode.Table, free int64) (s RemovalStep, err error) {
	on := d
	if of.Database != "" {
		on = d.Others[of.Database]
	}
	s = RemovalStep{Database: of.Database, on: on}
	t, err := on.table(ctx, of.Name)
	key, ok := keyOf(t.columns)
	switch {
	case err != nil:
		return s, err
	case len(t.columns) == 0:
		s.Text, s.Left = fmt.Sprintf("%s does not exist in this database, or this user may not see it. If it was renamed, "+
			"pass its new name as --table.", of), true
		return s, nil
	case !ok:
		s.Text, s.Left = fmt.Sprintf("%s does not have a single integer as its primary key, so the database cannot number "+
			"it: the application has to set the key.", of), true
		return s, nil
	case key.isText():
		s.Text, s.Left = fmt.Sprintf("%s.%s is a text, which the database cannot number: the application has to set it.",
			of, key.Name), true
		return s, nil
	}
	largest, err := on.largest(ctx, t, key)
	if err != nil {
		return s, err
	}
	isID := func(n int64) bool { return n>>(d.Layout.WorkerBits+d.Layout.SequenceBits) > 0 }
	if isID(free) && (key.isNarrow(on.SQL.Dialect()) || largest.Valid && !isID(largest.Int64)) {
		free = 0 // the keys are small numbers
	}
	s.Text = fmt.Sprintf("Let the database number %s.%s, above the largest key %d.", of, key.Name, largest.Int64)
	err = on.number(ctx, &s, t, key, free)
	return s, err
}

// number sets the statements and the text for a key.
func (d *DB) number(ctx context.Context, s *RemovalStep, t table, key column, free int64) error {
	switch d.SQL.Dialect() {
	case mysql:
		return d.numberMySQL(ctx, s, t, key, free)
	case postgres:
		return d.numberPostgres(ctx, s, t, key, free)
	}
	return d.numberSQLite(ctx, s, t, key)
}

func (d *DB) numberMySQL(ctx context.Context, s *RemovalStep, t table, key column, free int64) error {
	if key.Auto {
		s.Text = fmt.Sprintf("%s.%s is AUTO_INCREMENT, and continues above the largest key.", t.name, key.Name)
		return nil
	}
	comment, extra := "", ""
	err := d.SQL.Query(ctx, func(rows *sql.Rows) error { return rows.Scan(&comment, &extra) },
		`SELECT column_comment, extra FROM information_schema.columns WHERE table_schema = COALESCE(NULLIF(?, ''), DATABASE())
		AND table_name = ? AND column_name = ?`, t.schema, t.bare, key.Name)
	if err != nil {
		return fmt.Errorf("read the comment of %s.%s: %w", t.name, key.Name, err)
	}
	alter := "ALTER TABLE " + t.quoted + " MODIFY " + d.identifier(key.Name) + " " + key.Type + " NOT NULL AUTO_INCREMENT"
	if strings.Contains(strings.ToUpper(extra), "INVISIBLE") {
		alter += " INVISIBLE"
	}
	if comment != "" {
		alter += " COMMENT " + d.literal(comment)
	}
	if free > 0 {
		alter += fmt.Sprintf(", AUTO_INCREMENT = %d", free)
	}
	// Foreign keys refer to the column, and its type stays the same.
	s.SQL = []string{"SET FOREIGN_KEY_CHECKS = 0", alter, "SET FOREIGN_KEY_CHECKS = 1"}
	return nil
}

// sequenceName matches the sequence in the default of a column.
var sequenceName = regexp.MustCompile(`nextval\(('(?:[^']|'')*')`)

func (d *DB) numberPostgres(ctx context.Context, s *RemovalStep, t table, key column, free int64) error {
	k := d.identifier(key.Name)
	next := fmt.Sprintf("GREATEST(COALESCE(MAX(%s), 0) + 1, %d)", k, max(free, 1))
	if !key.Auto {
		start := ""
		if free > 0 {
			start = " (START WITH " + strconv.FormatInt(free, 10) + ")"
		}
		s.SQL = []string{
			"ALTER TABLE " + t.quoted + " ALTER COLUMN " + k + " ADD GENERATED BY DEFAULT AS IDENTITY" + start,
			fmt.Sprintf("SELECT setval(pg_get_serial_sequence(%s, %s), %s, false) FROM %s",
				d.literal(t.quoted), d.literal(key.Name), next, t.quoted),
		}
		return nil
	}
	var serial sql.NullString
	standard := ""
	err := d.SQL.Query(ctx, func(rows *sql.Rows) error { return rows.Scan(&serial, &standard) },
		`SELECT pg_get_serial_sequence(?, ?), COALESCE((SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef f JOIN pg_attribute a
		ON a.attrelid = f.adrelid AND a.attnum = f.adnum WHERE f.adrelid = to_regclass(?) AND a.attname = ?), '')`,
		t.quoted, key.Name, t.quoted, key.Name)
	if err != nil {
		return fmt.Errorf("look for the sequence of %s.%s: %w", t.name, key.Name, err)
	}
	sequence := d.literal(serial.String)
	if m := sequenceName.FindStringSubmatch(standard); m != nil {
		sequence = m[1]
	} else if !serial.Valid {
		s.Text, s.Left = fmt.Sprintf("%s.%s has the default %s. Let its sequence continue above the largest key.",
			t.name, key.Name, standard), true
		return nil
	}
	// Other tables may use the sequence, so it never goes back.
	s.SQL = []string{fmt.Sprintf("SELECT setval(%[1]s, k.next, false) FROM (SELECT %s AS next FROM %s) k "+
		"WHERE k.next > COALESCE(pg_sequence_last_value(%[1]s::regclass), 0)", sequence, next, t.quoted)}
	return nil
}

func (d *DB) numberSQLite(ctx context.Context, s *RemovalStep, t table, key column) error {
	indexes := 0
	err := d.SQL.Query(ctx, func(rows *sql.Rows) error { return rows.Scan(&indexes) },
		"SELECT COUNT(*) FROM pragma_index_list(?) WHERE origin = 'pk'", t.name)
	if err != nil {
		return fmt.Errorf("read the indexes of %s: %w", t.name, err)
	}
	s.Text = fmt.Sprintf("SQLite numbers %s.%s itself, above the largest key.", t.name, key.Name)
	if indexes > 0 {
		s.Text, s.Left = fmt.Sprintf("SQLite does not number %s.%s, because its type is %s and not INTEGER: create the table "+
			"again, as docs/removing.md describes.", t.name, key.Name, key.Type), true
	}
	return nil
}

// unnumbered are queries for tables whose primary key is a single BIGINT that the database does not number. On SQLite
// there are no such tables, except those that people have made.
var unnumbered = map[string]string{
	mysql: `SELECT c.table_name FROM information_schema.columns c JOIN information_schema.tables t
		ON t.table_schema = c.table_schema AND t.table_name = c.table_name AND t.table_type = 'BASE TABLE'
		WHERE c.table_schema = DATABASE() AND c.column_key = 'PRI' AND c.data_type = 'bigint'
		AND c.extra NOT LIKE '%auto_increment%' AND 1 = (SELECT COUNT(*) FROM information_schema.columns o
		WHERE o.table_schema = c.table_schema AND o.table_name = c.table_name AND o.column_key = 'PRI') ORDER BY c.table_name`,
	postgres: `SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
		JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0]
		WHERE i.indisprimary AND i.indnatts = 1 AND a.atttypid = 'bigint'::regtype AND a.attidentity = '' AND NOT a.atthasdef
		AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relnamespace = current_schema()::regnamespace
		ORDER BY c.relname`,
}

// planUnknown names other tables with keys as the plugin fills them. A table without rows is not in WORKER_NODE.
func (d *DB) planUnknown(ctx context.Context, seen map[workernode.Table]bool) (steps []RemovalStep, err error) {
	names, on := d.databases()
	for _, database := range names {
		query := unnumbered[on[database].SQL.Dialect()]
		if query == "" {
			continue
		}
		var tables []string
		err := on[database].SQL.Query(ctx, func(rows *sql.Rows) error {
			var name string
			err := rows.Scan(&name)
			of := workernode.Table{Database: database, Name: name}
			if !seen[of] && !strings.HasPrefix(name, "WORKER_") && !strings.HasPrefix(name, "UID_FOLLOW") && name != "UID_CURSOR" {
				tables = append(tables, of.String())
			}
			return err
		}, query)
		if err != nil {
			return nil, fmt.Errorf("look for tables whose keys nobody numbers: %w", err)
		}
		if len(tables) > 0 {
			steps = append(steps, RemovalStep{Database: database,
				Text: "The keys of these tables are not numbered, and not in WORKER_NODE. Pass --table for each whose ids the " +
					"plugin would have made: " + strings.Join(tables, ", ")})
		}
	}
	return steps, nil
}

package partition

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin/internal/sqldb"
)

// mysql is a server of MySQL or MariaDB.
type mysql struct{ *sqldb.DB }

func (m *mysql) find(ctx context.Context, schema, name string) (t *table, err error) {
	err = m.Query(ctx, func(rows *sql.Rows) error {
		var kind, engine string
		var now int64
		if err := rows.Scan(&kind, &engine, &now); err != nil {
			return err
		}
		if kind != "BASE TABLE" || !strings.EqualFold(engine, "InnoDB") {
			return fmt.Errorf("it is a %s of the engine %q, not a table of InnoDB", strings.ToLower(kind), engine)
		}
		t = &table{schema: schema, name: name, now: time.UnixMilli(now)}
		return nil
	}, `SELECT TABLE_TYPE, COALESCE(ENGINE, ''), TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000 FROM information_schema.TABLES
		WHERE TABLE_SCHEMA = COALESCE(NULLIF(?, ''), DATABASE()) AND TABLE_NAME = ?`, schema, name)
	return t, err
}

func (m *mysql) read(ctx context.Context, t *table) error {
	const ofTable = " WHERE TABLE_SCHEMA = COALESCE(NULLIF(?, ''), DATABASE()) AND TABLE_NAME = ?"
	err := m.Query(ctx, func(rows *sql.Rows) error {
		var c column
		err := rows.Scan(&c.name, &c.kind)
		t.key = append(t.key, c)
		return err
	}, `SELECT COLUMN_NAME, COLUMN_TYPE FROM information_schema.COLUMNS`+ofTable+` AND COLUMN_KEY = 'PRI'
		ORDER BY ORDINAL_POSITION`, t.schema, t.name)
	if err != nil {
		return err
	}
	from := int64(minValue)
	err = m.Query(ctx, func(rows *sql.Rows) error {
		var p part
		var below string
		if err := rows.Scan(&p.name, &t.by, &below); err != nil {
			return err
		}
		p.quoted, p.from, p.below = m.identifier(p.name), from, maxValue
		if n, err := strconv.ParseInt(below, 10, 64); err == nil {
			p.below = n
		}
		from = p.below
		t.parts = append(t.parts, p)
		return nil
	}, `SELECT PARTITION_NAME, CONCAT(PARTITION_METHOD, ' (', COALESCE(PARTITION_EXPRESSION, ''), ')'),
		COALESCE(PARTITION_DESCRIPTION, '') FROM (SELECT DISTINCT PARTITION_NAME, PARTITION_METHOD, PARTITION_EXPRESSION,
		PARTITION_DESCRIPTION, PARTITION_ORDINAL_POSITION FROM information_schema.PARTITIONS`+ofTable+
		` AND PARTITION_NAME IS NOT NULL) AS p ORDER BY PARTITION_ORDINAL_POSITION`, t.schema, t.name)
	if err != nil || len(t.key) != 1 {
		return err
	}
	return m.Query(ctx, func(rows *sql.Rows) error {
		var text sql.NullString
		if err := rows.Scan(&text); err != nil || !text.Valid {
			return err
		}
		n, err := strconv.ParseInt(text.String, 10, 64)
		t.largest = sql.NullInt64{Int64: n, Valid: err == nil}
		return nil
	}, "SELECT CAST(MAX("+m.identifier(t.key[0].name)+") AS CHAR) FROM "+m.quote(t))
}

func (m *mysql) isBy(t *table) bool {
	method, expression, _ := strings.Cut(strings.ReplaceAll(t.by, "`", ""), " (")
	return len(t.key) == 1 && (method == "RANGE" || method == "RANGE COLUMNS") &&
		strings.EqualFold(expression, strings.ReplaceAll(t.key[0].name, "`", "")+")")
}

func (m *mysql) identifier(name string) string {
	return "`" + strings.ReplaceAll(name, "`", "``") + "`"
}

func (m *mysql) quote(t *table) string {
	if t.schema != "" {
		return m.identifier(t.schema) + "." + m.identifier(t.name)
	}
	return m.identifier(t.name)
}

func (m *mysql) definition(s *Step) string {
	return "(PARTITION " + m.identifier(s.Partition) + " VALUES LESS THAN (" + strconv.FormatInt(s.Below, 10) + "))"
}

// convert makes the ALTER TABLE that partitions t. It refuses t if foreign keys or unique indexes prevent that.
func (m *mysql) convert(ctx context.Context, t *table, s *Step) error {
	var problems []string
	err := m.Query(ctx, func(rows *sql.Rows) error {
		var kind, schema, table, name string
		err := rows.Scan(&kind, &schema, &table, &name)
		problems = append(problems, fmt.Sprintf("ALTER TABLE %s.%s DROP %s %s",
			m.identifier(schema), m.identifier(table), kind, m.identifier(name)))
		return err
	}, `SELECT DISTINCT 'FOREIGN KEY', TABLE_SCHEMA, TABLE_NAME, CONSTRAINT_NAME FROM information_schema.KEY_COLUMN_USAGE
		WHERE REFERENCED_TABLE_NAME IS NOT NULL AND TABLE_SCHEMA = COALESCE(NULLIF(?, ''), DATABASE()) AND TABLE_NAME = ?
		UNION SELECT 'FOREIGN KEY', TABLE_SCHEMA, TABLE_NAME, CONSTRAINT_NAME FROM information_schema.KEY_COLUMN_USAGE
		WHERE REFERENCED_TABLE_SCHEMA = COALESCE(NULLIF(?, ''), DATABASE()) AND REFERENCED_TABLE_NAME = ?
		UNION SELECT 'INDEX', TABLE_SCHEMA, TABLE_NAME, INDEX_NAME FROM information_schema.STATISTICS
		WHERE NON_UNIQUE = 0 AND TABLE_SCHEMA = COALESCE(NULLIF(?, ''), DATABASE()) AND TABLE_NAME = ?
		GROUP BY TABLE_SCHEMA, TABLE_NAME, INDEX_NAME HAVING SUM(COALESCE(COLUMN_NAME, '') = ?) = 0`,
		t.schema, t.name, t.schema, t.name, t.schema, t.name, t.key[0].name)
	if err != nil {
		return err
	}
	if len(problems) > 0 {
		return fmt.Errorf("MySQL and MariaDB allow a partitioned table no foreign keys from it or to it, and no unique indexes"+
			" that lack its primary key; if the application can do without them, drop them first: %s", strings.Join(problems, "; "))
	}
	s.Notes = []string{"This copies the table, and INSERTs wait until it is done."}
	clause := " PARTITION BY RANGE (" + m.identifier(t.key[0].name) + ") "
	s.SQL = []string{"ALTER TABLE " + m.quote(t) + clause + m.definition(s)}
	return nil
}

func (m *mysql) create(t *table, s *Step) {
	s.SQL = []string{"ALTER TABLE " + m.quote(t) + " ADD PARTITION " + m.definition(s)}
}

func (m *mysql) drop(t *table, p part, s *Step) {
	s.SQL = []string{"ALTER TABLE " + m.quote(t) + " DROP PARTITION " + p.quoted}
}

package partition

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin/internal/sqldb"
)

// mostName is the greatest length of PostgreSQL's names in bytes.
const mostName = 63

type postgres struct{ *sqldb.DB }

func (p *postgres) find(ctx context.Context, schema, name string) (t *table, err error) {
	given := p.identifier(name)
	if schema != "" {
		given = p.identifier(schema) + "." + given
	}
	err = p.Query(ctx, func(rows *sql.Rows) error {
		var kind string
		var part bool
		var now int64
		t = &table{}
		if err := rows.Scan(&t.id, &t.schema, &t.name, &kind, &part, &t.by, &t.version, &now); err != nil {
			return err
		}
		t.now = time.UnixMilli(now)
		switch {
		case part:
			return errors.New("it is a partition; name the partitioned table")
		case kind != "r" && kind != "p":
			return errors.New("it is not a table")
		}
		return nil
	}, `SELECT c.oid::bigint, n.nspname, c.relname, c.relkind::text, c.relispartition,
		COALESCE(pg_get_partkeydef(c.oid), ''), current_setting('server_version_num')::int,
		floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass(?)`, given)
	return t, err
}

// bounds matches the bounds of a partition by ranges of one column.
var bounds = regexp.MustCompile(`^FOR VALUES FROM \((MINVALUE|'?(-?\d+)'?)\) TO \((MAXVALUE|'?(-?\d+)'?)\)$`)

func (p *postgres) read(ctx context.Context, t *table) error {
	err := p.Query(ctx, func(rows *sql.Rows) error {
		var c column
		err := rows.Scan(&c.name, &c.kind)
		t.key = append(t.key, c)
		return err
	}, `SELECT a.attname, format_type(COALESCE(NULLIF(y.typbasetype, 0), y.oid), NULL)
		FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
		JOIN pg_type y ON y.oid = a.atttypid WHERE i.indrelid = ? AND i.indisprimary ORDER BY a.attnum`, t.id)
	if err != nil || len(t.key) != 1 || t.by != "" && !p.isBy(t) {
		return err
	}
	// The query reads inhdetachpending by to_jsonb, because the column exists only since PostgreSQL 14.
	err = p.Query(ctx, func(rows *sql.Rows) error {
		var a part
		var schema, bound string
		if err := rows.Scan(&schema, &a.name, &bound, &a.detaching); err != nil {
			return err
		}
		m := bounds.FindStringSubmatch(bound)
		if m == nil {
			return fmt.Errorf("its partition %s is %s, but all partitions must have bounds; detach it", a.name, bound)
		}
		a.quoted, a.from, a.below = p.identifier(schema)+"."+p.identifier(a.name), minValue, maxValue
		for _, b := range []struct {
			text string
			into *int64
		}{{m[2], &a.from}, {m[4], &a.below}} {
			if b.text != "" {
				if *b.into, err = strconv.ParseInt(b.text, 10, 64); err != nil {
					return err
				}
			}
		}
		t.parts = append(t.parts, a)
		return nil
	}, `SELECT n.nspname, c.relname, COALESCE(pg_get_expr(c.relpartbound, c.oid), ''),
		COALESCE((to_jsonb(i) ->> 'inhdetachpending')::boolean, false)
		FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE i.inhparent = ? AND c.relispartition`, t.id)
	if err != nil || t.key[0].kind != "bigint" {
		return err
	}
	return p.Query(ctx, func(rows *sql.Rows) error { return rows.Scan(&t.largest) },
		"SELECT max("+p.identifier(t.key[0].name)+") FROM "+p.quote(t))
}

// isBy ignores quotes, because PostgreSQL quotes only unusual names.
func (p *postgres) isBy(t *table) bool {
	return len(t.key) == 1 && strings.ReplaceAll(t.by, `"`, "") == "RANGE ("+strings.ReplaceAll(t.key[0].name, `"`, "")+")"
}

func (p *postgres) identifier(name string) string {
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}

func (p *postgres) quote(t *table) string { return p.identifier(t.schema) + "." + p.identifier(t.name) }

func (p *postgres) text(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

func (p *postgres) attach(t *table, s *Step) string {
	from := "MINVALUE"
	if s.From != 0 {
		from = strconv.FormatInt(s.From, 10)
	}
	return fmt.Sprintf("ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM (%s) TO (%d)",
		p.quote(t), p.partition(t, s), from, s.Below)
}

func (p *postgres) partition(t *table, s *Step) string {
	return p.identifier(t.schema) + "." + p.identifier(s.Partition)
}

// create attaches a new table, because CREATE TABLE ... PARTITION OF would wait for all readers, and later
// statements would wait for it. ATTACH still waits for writers of tables that foreign keys connect with this one.
func (p *postgres) create(t *table, s *Step) {
	like := "CREATE TABLE " + p.partition(t, s) + " (LIKE " + p.quote(t) + " INCLUDING ALL EXCLUDING IDENTITY)"
	s.SQL = []string{block(like, p.attach(t, s))}
}

func (p *postgres) drop(t *table, a part, s *Step) {
	how := ""
	switch {
	case a.detaching:
		how = " FINALIZE"
	case t.version >= 140000:
		how = " CONCURRENTLY" // not in a transaction
	}
	s.SQL = []string{"ALTER TABLE " + p.quote(t) + " DETACH PARTITION " + a.quoted + how, "DROP TABLE " + a.quoted}
	s.Notes = []string{"Keep the DROP until it has succeeded, because it is not printed again."}
}

//go:embed convert.sql
var convertSQL string

// convert renames the table and attaches it to a new partitioned table. An earlier statement validates a
// constraint, so the rows are not read while the table is locked.
func (p *postgres) convert(ctx context.Context, t *table, s *Step) error {
	if t.version < 120000 {
		return errors.New("before PostgreSQL 12 no foreign key can refer to a partitioned table; upgrade first")
	}
	do, path := map[string][]string{}, ""
	err := p.Query(ctx, func(rows *sql.Rows) error {
		var phase, text string
		err := rows.Scan(&phase, &text)
		do[phase] = append(do[phase], text)
		return err
	}, fmt.Sprintf(convertSQL, t.id, p.text(t.key[0].name), p.text(p.quote(t))))
	if err == nil {
		err = p.Query(ctx, func(rows *sql.Rows) error { return rows.Scan(&path) }, "SELECT current_setting('search_path')")
	}
	if err != nil {
		return err
	}
	if len(do["refuse"]) > 0 {
		return fmt.Errorf("the conversion would lose these: %s; drop them before it, and create them again after it"+
			" if a partitioned table can have them", strings.Join(do["refuse"], ", "))
	}
	table, old, key := p.quote(t), p.partition(t, s), p.identifier(t.key[0].name)
	checked := p.identifier(s.Partition + "_check")
	body := []string{"PERFORM set_config('search_path', " + p.text(path) + ", true)"}
	body = append(append(body, do["follow"]...), do["unlink"]...)
	body = append(body, "ALTER TABLE "+table+" RENAME TO "+p.identifier(s.Partition))
	body = append(body, do["rename"]...)
	body = append(body,
		"CREATE TABLE "+table+" (LIKE "+old+" INCLUDING ALL EXCLUDING INDEXES) PARTITION BY RANGE ("+key+")",
		"ALTER TABLE "+table+" DROP CONSTRAINT "+checked)
	body = append(append(body, do["define"]...), do["refer"]...)
	body = append(body, p.attach(t, s), "ALTER TABLE "+old+" DROP CONSTRAINT "+checked)
	for _, phase := range []string{"owner", "own", "revoke", "grant", "link"} {
		body = append(body, do[phase]...)
	}
	s.SQL = []string{
		block(fmt.Sprintf("ALTER TABLE %s DROP CONSTRAINT IF EXISTS %s, ADD CONSTRAINT %[2]s CHECK (%s < %d) NOT VALID",
			table, checked, key, s.Below)),
		"ALTER TABLE " + table + " VALIDATE CONSTRAINT " + checked,
		block(body...),
	}
	s.SQL = append(s.SQL, do["validate"]...)
	s.Notes = []string{"Finish before " + s.End.Format(time.DateTime) +
		" UTC, because the CHECK constraint refuses rows from then on."}
	if len(do["validate"]) > 0 {
		s.Notes = append(s.Notes, "Keep each last VALIDATE until it has succeeded, because it is not printed again.")
	}
	if len(do["follow"]) > 0 {
		s.Notes = append(s.Notes, `The table is followed. Afterwards call follow.Enable again, or "uid follow enable".`)
	}
	return nil
}

// block combines statements into one, which changes all or nothing. It waits only five seconds for a lock, because
// other statements wait behind it.
func block(statements ...string) string {
	lines := append([]string{"PERFORM set_config('lock_timeout', '5s', true)"}, statements...)
	return "DO " + sqldb.DollarQuoted("\nBEGIN\n  "+strings.Join(lines, ";\n  ")+";\nEND ")
}

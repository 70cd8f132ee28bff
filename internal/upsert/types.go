package upsert

import (
	"cmp"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"
)

// A column may store less than the value that was sent: the day of a time, two decimal places of a number, or ten
// characters of a text. So a row that is not found by the sent value is looked up by the value that would be stored.

// A comparison describes how to compare a column with a value that was sent.
type comparison struct {
	column    string // the column's type, as the database writes it; if empty, the value is compared unchanged
	collation string // of the index on SQLite, which may differ from the column's
	prefix    int    // on MySQL, how many characters of the column are in the index; 0 means all
}

// comparisons has a comparison for each column of the keys.
type comparisons struct {
	of []map[string]comparison // by index of the key, then by column

	// complete is true if each conflicting row must be found: on MySQL, where triggers skip no rows, if only the
	// indexes in the keys can have caused the conflict.
	complete bool
}

// at returns the comparison of a field in a key.
func (c comparisons) at(key int, f *schema.Field) comparison {
	if key >= len(c.of) {
		return comparison{}
	}
	return c.of[key][f.DBName]
}

func (t *Tracker) readComparisons(stmt *gorm.Statement, keys [][]*schema.Field) (comparisons, error) {
	c := comparisons{of: make([]map[string]comparison, len(keys))}
	for k := range keys {
		c.of[k] = map[string]comparison{}
	}
	switch stmt.Dialector.Name() {
	case "mysql":
		err := c.readMySQL(stmt, keys, t.tracks)
		return c, err
	case "postgres":
		return c, each(stmt, func(row map[string]sql.NullString) {
			for _, of := range c.of {
				of[row["name"].String] = comparison{column: row["type"].String}
			}
		}, "SELECT attname AS name, format_type(atttypid, atttypmod) AS type FROM pg_attribute"+
			" WHERE attrelid = to_regclass(?) AND attnum > 0 AND NOT attisdropped", stmt.Quote(stmt.Table))
	case "sqlite":
		err := c.readSQLite(stmt, keys)
		return c, err
	}
	return c, nil
}

// each runs a query on the connection of stmt, and passes each row to the function found, as a map by the column
// names in lower case.
func each(stmt *gorm.Statement, found func(map[string]sql.NullString), text string, vars ...any) (err error) {
	q := newQuery(stmt)
	clause.Expr{SQL: text, Vars: vars}.Build(q)
	rows, err := q.ConnPool.QueryContext(q.Context, q.SQL.String(), q.Vars...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	names, err := rows.Columns()
	if err != nil {
		return err
	}
	values, scan := make([]sql.NullString, len(names)), make([]any, len(names))
	for i := range values {
		scan[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(scan...); err != nil {
			return err
		}
		row := map[string]sql.NullString{}
		for i, name := range names {
			row[strings.ToLower(name)] = values[i]
		}
		found(row)
	}
	return rows.Err()
}

// An index is a unique index. An expression in it is a column without a name.
type index struct {
	columns []string
	parts   []comparison
}

func (x *index) consistsOf(columns []*schema.Field) bool {
	return len(x.columns) == len(columns) && !slices.ContainsFunc(columns, func(f *schema.Field) bool {
		return !slices.ContainsFunc(x.columns, func(name string) bool { return strings.EqualFold(name, f.DBName) })
	})
}

// indexes are unique indexes by name.
type indexes map[string]*index

func (byName indexes) add(name, column string, part comparison) {
	if byName[name] == nil {
		byName[name] = &index{}
	}
	x := byName[name]
	x.columns, x.parts = append(x.columns, column), append(x.parts, part)
}

// readMySQL reads the types of columns, and how many characters of them are in indexes. isNew reports whether the
// values of a field are ids made for the statement, which cannot be in conflict.
func (c *comparisons) readMySQL(stmt *gorm.Statement, keys [][]*schema.Field, isNew func(*schema.Field) bool) error {
	types, unique := map[string]string{}, indexes{}
	err := each(stmt, func(row map[string]sql.NullString) {
		types[strings.ToLower(row["field"].String)] = strings.ToLower(row["type"].String)
	}, "SHOW COLUMNS FROM ?", clause.Table{Name: stmt.Table})
	if err != nil {
		return err
	}
	err = each(stmt, func(row map[string]sql.NullString) {
		if row["non_unique"].String == "0" {
			var part comparison
			_, _ = fmt.Sscan(row["sub_part"].String, &part.prefix)
			unique.add(row["key_name"].String, row["column_name"].String, part)
		}
	}, "SHOW INDEX FROM ?", clause.Table{Name: stmt.Table})
	for k, fields := range keys {
		for _, f := range fields {
			c.of[k][f.DBName] = comparison{column: types[strings.ToLower(f.DBName)]}
		}
	}
	c.complete = true
	for _, x := range unique {
		known := c.add(stmt, keys, x) || slices.ContainsFunc(x.columns, func(name string) bool {
			f := stmt.Schema.LookUpField(name)
			return f != nil && isNew(f)
		})
		c.complete = c.complete && known
	}
	return err
}

// readSQLite reads the collations of indexes.
func (c *comparisons) readSQLite(stmt *gorm.Statement, keys [][]*schema.Field) error {
	unique := indexes{}
	err := each(stmt, func(row map[string]sql.NullString) {
		unique.add(row["index"].String, row["column"].String, comparison{collation: row["collation"].String})
	}, `SELECT l.name AS "index", x.name AS "column", x.coll AS "collation" FROM pragma_index_list(?) l, pragma_index_xinfo(l.name) x`+
		` WHERE l."unique" AND x.key`, stmt.Table)
	for _, x := range unique {
		c.add(stmt, keys, x)
	}
	return err
}

// add reports whether an index has the columns of one of the keys. If so, it records how the index compares them.
func (c *comparisons) add(stmt *gorm.Statement, keys [][]*schema.Field, x *index) (known bool) {
	for k, fields := range keys {
		if !x.consistsOf(fields) {
			continue
		}
		known = true
		for i, name := range x.columns {
			if f := stmt.Schema.LookUpField(name); f != nil {
				compare := c.of[k][f.DBName]
				compare.collation = cmp.Or(x.parts[i].collation, compare.collation)
				if n := x.parts[i].prefix; n > 0 && (compare.prefix == 0 || n < compare.prefix) {
					compare.prefix = n
				}
				c.of[k][f.DBName] = compare
			}
		}
	}
	return known
}

func (c comparison) condition(stmt *gorm.Statement, f *schema.Field, v any) clause.Expression {
	column := clause.Column{Name: f.DBName}
	if c.column == "" && c.collation == "" {
		return clause.Eq{Column: column, Value: v}
	}
	sent := v
	if converted, err := driver.DefaultParameterConverter.ConvertValue(v); err == nil {
		sent = converted
	}
	v = clause.Expr{SQL: "?", Vars: []any{v}} // so that GORM does not expand a []byte in parentheses to a list
	if c.collation != "" {
		return clause.Expr{SQL: `? COLLATE "` + strings.ReplaceAll(c.collation, `"`, `""`) + `" = ?`, Vars: []any{column, v}}
	}
	if stmt.Dialector.Name() == "postgres" {
		return clause.Expr{SQL: "? = CAST(? AS " + c.column + ")", Vars: []any{column, v}}
	}
	if start, ok := c.start(sent); ok {
		return clause.Expr{SQL: "? LIKE ? ESCAPE '|'", Vars: []any{column, likeEscaper.Replace(start) + "%"}}
	}
	return clause.Expr{SQL: "? = " + c.stored(sent), Vars: []any{column, v}}
}

var likeEscaper = strings.NewReplacer("|", "||", "%", "|%", "_", "|_")

// start returns the part of a value that is in the index, if the index has only the first characters of it.
func (c comparison) start(value any) (string, bool) {
	switch v := value.(type) {
	case []byte:
		return string(v[:min(c.prefix, len(v))]), c.prefix > 0 && len(v) >= c.prefix
	case string:
		if c.prefix == 0 || utf8.RuneCountInString(v) < c.prefix {
			return "", false
		}
		return string([]rune(v)[:c.prefix]), true
	}
	return "", false
}

// mysqlType matches a column type, such as decimal(10,2) unsigned.
var mysqlType = regexp.MustCompile(`^(\w+)(?:\((\d+)(?:,(\d+))?\))?`)

// stored returns SQL that turns the parameter "?" into the value that a column of MySQL would store. MySQL has no
// cast to the type of a column.
func (c comparison) stored(value any) string {
	m := mysqlType.FindStringSubmatch(c.column)
	if m == nil {
		return "?"
	}
	name, length, places := m[1], m[2], m[3]
	if t, ok := value.(time.Time); ok && t.IsZero() {
		return "?" // 0000-00-00, which a cast may refuse
	}
	switch name {
	case "date":
		return "CAST(? AS DATE)"
	case "datetime", "timestamp":
		return "CAST(? AS DATETIME(" + cmp.Or(length, "0") + "))"
	case "time":
		return "CAST(? AS TIME(" + cmp.Or(length, "0") + "))"
	case "decimal":
		return "CAST(? AS DECIMAL(" + length + "," + cmp.Or(places, "0") + "))"
	case "float":
		if places != "" {
			return "CAST(ROUND(?," + places + ") AS FLOAT)"
		}
		return "CAST(? AS FLOAT)"
	case "double":
		if places != "" {
			return "ROUND(?," + places + ")"
		}
	case "char":
		return "TRIM(TRAILING ' ' FROM LEFT(?," + length + "))"
	case "varchar":
		return "LEFT(?," + length + ")"
	case "binary":
		return "CAST(? AS BINARY(" + length + "))"
	case "varbinary":
		return "LEFT(CAST(? AS BINARY)," + length + ")"
	case "tinyint", "smallint", "mediumint", "int", "bigint":
		switch value.(type) {
		case float64:
			return "ROUND(?)"
		case string, []byte:
			return "CAST(? AS DECIMAL(65,0))"
		}
	}
	return "?"
}

package supply

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin/internal/sqldb"
	"gorm.io/gorm"
)

// A naming finds the canonical name of a table, which is equal for all spellings of one table on one connection.
type naming struct {
	dialector gorm.Dialector
	current   string // schema or database of unqualified names; "" if none is selected
	catalog   string // PostgreSQL's database
	fold      bool   // the server ignores the case of tables
}

// newNaming reads how the database resolves names on its connections.
func newNaming(ctx context.Context, db *gorm.DB, timeout time.Duration) (n naming, err error) {
	dialector := db.Dialector
	n.dialector = dialector
	query, lower := "", 0
	into := []any{&n.current}
	switch dialector.Name() {
	case "mysql":
		query, into = `SELECT COALESCE(DATABASE(), ''), @@lower_case_table_names`, append(into, &lower)
	case "postgres":
		query, into = `SELECT COALESCE(CURRENT_SCHEMA(), ''), CURRENT_DATABASE()`, append(into, &n.catalog)
	case "sqlite":
		n.current, n.fold = "main", true
		return n, nil
	default:
		return n, nil
	}
	d, err := sqldb.Open(db, timeout)
	if err != nil {
		return n, err
	}
	err = d.Query(ctx, func(rows *sql.Rows) error { return rows.Scan(into...) }, query)
	if err != nil {
		return n, fmt.Errorf("uidplugin: read the current schema, on which table names depend: %w", err)
	}
	n.fold = lower != 0
	return n, nil
}

// TableName returns the canonical name of a table on the connections of db, as in WORKER_NODE. The name leaves out
// quotes and the current schema. It is in lower case where the server ignores case.
func TableName(ctx context.Context, db *gorm.DB, timeout time.Duration, name string) (string, error) {
	n, err := newNaming(ctx, db, timeout)
	return n.table(name), err
}

// ColumnName returns the canonical name of a table, followed by a column unless it is empty. The column is in lower
// case except on PostgreSQL, because only there columns are case-sensitive.
func (s *Supply) ColumnName(ctx context.Context, table, column string) (string, error) {
	n, err := newNaming(ctx, s.DB, s.Timeout)
	if err != nil {
		return "", err
	}
	n.current = cmp.Or(s.Current, n.current) // the application may have selected another schema on this connection
	if n.dialector.Name() != "postgres" {
		column = strings.ToLower(column)
	}
	return strings.TrimSuffix(n.table(table)+"."+column, "."), nil
}

// DatabaseName returns the name by which a registry knows db's database. It is the current database of MySQL, the
// file of SQLite without its folder, and the database of PostgreSQL with the current schema unless that is public.
func DatabaseName(ctx context.Context, db *gorm.DB, timeout time.Duration) (name string, err error) {
	n, err := newNaming(ctx, db, timeout)
	if err != nil {
		return "", err
	}
	switch {
	case db.Dialector.Name() == "sqlite":
		name, err = sqliteFile(ctx, db, timeout)
	case n.catalog != "" && n.current != "public":
		name = n.catalog + "." + n.current
	default:
		name = cmp.Or(n.catalog, n.current)
	}
	if err == nil && name == "" {
		err = fmt.Errorf("%w: WithRegistry: the handle has no current database, so the registry cannot name the database of the tables; connect to a database, or set WithDatabaseName", ErrOption)
	}
	return name, err
}

// sqliteFile returns the file name of a SQLite database, or "" for one in memory.
func sqliteFile(ctx context.Context, db *gorm.DB, timeout time.Duration) (name string, err error) {
	d, err := sqldb.Open(db, timeout)
	if err != nil {
		return "", err
	}
	err = d.Query(ctx, func(rows *sql.Rows) error {
		var file sql.NullString
		err := rows.Scan(&file)
		if file.String != "" {
			name = filepath.Base(file.String)
		}
		return err
	}, "SELECT file FROM pragma_database_list WHERE name = 'main'")
	return name, err
}

// table returns the canonical name of a table. A name in an unknown dialect stays unchanged.
func (n naming) table(name string) string {
	current := n.current
	parts, ok := n.split(name)
	if !ok {
		return name
	}
	if n.fold {
		current = strings.ToLower(current)
		for i := range parts {
			parts[i] = strings.ToLower(parts[i])
		}
	}
	if len(parts) == 3 && n.catalog != "" && parts[0] == n.catalog {
		parts = parts[1:]
	}
	if len(parts) == 2 && current != "" && parts[0] == current {
		parts = parts[1:]
	}
	return strings.Join(parts, ".")
}

// split returns the parts, without quotes, of a name as GORM writes it in statements.
func (n naming) split(name string) (parts []string, ok bool) {
	quote := `"`
	switch n.dialector.Name() {
	case "mysql", "sqlite":
		quote = "`"
	case "postgres":
	default:
		return nil, false
	}
	rest := sqldb.Quoted(n.dialector, name)
	if !strings.Contains(rest, quote) { // PostgreSQL without quotes, where the server reads names in lower case
		return strings.Split(strings.ToLower(rest), "."), true
	}
	for {
		var part string
		if part, rest, ok = unquote(rest, quote); !ok {
			return nil, false
		}
		parts = append(parts, part)
		if rest == "" {
			return parts, true
		}
		if rest, ok = strings.CutPrefix(rest, "."); !ok {
			return nil, false
		}
	}
}

// unquote returns the quoted name at the beginning of s, and the rest.
func unquote(s, quote string) (name, rest string, ok bool) {
	s, ok = strings.CutPrefix(s, quote)
	if !ok {
		return "", "", false
	}
	for {
		part, after, found := strings.Cut(s, quote)
		name += part
		if !found {
			return "", "", false
		}
		if s, ok = strings.CutPrefix(after, quote); !ok { // one quote ends the name; two are a quote in the name
			return name, after, name != ""
		}
		name += quote
	}
}

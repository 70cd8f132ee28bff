package follow

import (
	"cmp"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/uidplugin/uidplugin/internal/sqldb"
)

// The names of this package's own tables. On PostgreSQL there is no gateTable.
const (
	markTable   = "UID_FOLLOW"
	gateTable   = "UID_FOLLOW_GATE"
	CursorTable = "UID_CURSOR"
)

// A Flavor is a kind of database.
type Flavor string

// The flavors.
const (
	MySQL    Flavor = "mysql"
	MariaDB  Flavor = "mariadb"
	Postgres Flavor = "postgres"
	SQLite   Flavor = "sqlite"
)

// A Table is a table whose rows are followed.
type Table struct {
	Name   string // as in the model, with or without a schema
	Schema string // of the table, if Name has none; empty means that of the connection, or public on PostgreSQL
	Key    string // column of the ids
	Slack  time.Duration

	Regional bool // followers leave out rows that other regions may replicate to the table
}

// in returns the quoted name of an object with the schema of the table. The schema is needed, because the trigger
// has a fixed search path, and the application may leave another search path on connections.
func (f Flavor) in(t Table, name string) string {
	switch {
	case strings.Contains(t.Name, "."):
		return f.quote(inSchemaOf(t.Name, name))
	case t.Schema != "":
		return sqldb.QuotePart(f.dialect(), t.Schema) + "." + f.quote(name)
	}
	return f.quote(name)
}

func (f Flavor) dialect() string {
	if f == MariaDB {
		f = MySQL
	}
	return string(f)
}

// located returns the table with its schema, because connections may have different search paths. It reports false
// if it looked for the table, and the table does not exist.
func (f Flavor) located(ctx context.Context, db *sqldb.DB, t Table) (Table, bool, error) {
	if f == SQLite || strings.Contains(t.Name, ".") || t.Schema != "" {
		return t, true, nil
	}
	schema, exists, err := db.SchemaOf(ctx, t.Name, markTable)
	t.Schema = schema
	return t, exists, err
}

type names struct {
	mark, trigger, function string // sequence of the mark; trigger and its function
	lock                    string // how the name of divert's lock begins, on MySQL and MariaDB
	gate                    int64  // the keys of the gates on MySQL and MariaDB are gate + 1 and gate + 2
}

var unusual = regexp.MustCompile(`[^a-z0-9_]+`)

// namesOf derives names from the name of the table, so that statements can be printed without asking a database.
func namesOf(table string) names {
	sum := sha256.Sum256([]byte(table))
	short := unusual.ReplaceAllString(strings.ToLower(table), "_")
	name := "uid_follow_" + short[:min(len(short), 30)] + "_" + hex.EncodeToString(sum[:3])
	return names{
		mark: name + "_mark", trigger: name, function: name, lock: "uid_follow_" + short[:min(len(short), 20)] + "_" + hex.EncodeToString(sum[:3]) + "_",
		gate: int64(binary.BigEndian.Uint64(sum[:8])>>1) &^ 3,
	}
}

func (f Flavor) quote(name string) string {
	q := `"`
	if f == MySQL || f == MariaDB {
		q = "`"
	}
	parts := strings.Split(name, ".")
	for i, p := range parts {
		parts[i] = q + strings.ReplaceAll(p, q, q+q) + q
	}
	return strings.Join(parts, ".")
}

// advisory returns an expression for the number of an advisory lock. The number contains the oid of the mark's
// sequence, because other schemas may have a table of this name. advisoryBase avoids the locks of other programs.
func advisory(sequence string, lock int) string {
	return fmt.Sprintf("(%d + 4 * %s::regclass::oid::bigint)", advisoryBase+int64(lock), Postgres.text(sequence))
}

// The advisory locks of a table are raiseLock, installLock and its gates, usedGate and idleGate.
const (
	advisoryBase = 0x7569 << 48
	raiseLock    = 0
	installLock  = 3
)

// userLock names a user-level lock. The name has the schema, because all databases of a server share these locks.
func (f Flavor) userLock(t Table) string {
	return "CONCAT(" + f.text(namesOf(t.Name).lock) + ", CRC32(" + f.schema(t) + "))"
}

func (f Flavor) text(s string) string {
	if f == MySQL || f == MariaDB {
		s = strings.ReplaceAll(s, `\`, `\\`)
	}
	return "'" + strings.ReplaceAll(s, "'", "''") + "'"
}

// inSchemaOf adds to name the schema that the name of the table has, if it has one.
func inSchemaOf(table, name string) string {
	if i := strings.LastIndexByte(table, '.'); i >= 0 {
		return table[:i+1] + name
	}
	return name
}

//go:embed sql/*.sql
var sqlFiles embed.FS

// Install returns the statements that make a table followed, in order. The INSERT into UID_FOLLOW is the last,
// because it stores which trigger has been installed.
func (f Flavor) Install(t Table) []string {
	n, file := namesOf(t.Name), f
	if f == Postgres {
		t.Schema = cmp.Or(t.Schema, "public")
	}
	// Except on PostgreSQL, a trigger finds names without a schema in its own schema, so a dump suits any schema.
	inside := Table{Name: bare(t.Name)}
	values := map[string]any{
		"Bare": bare(t.Name),
		"Name": t.Name, "Table": f.in(t, bare(t.Name)), "KeyName": t.Key, "Key": f.quote(t.Key), "Slack": t.Slack.Milliseconds(),
		"Marks": f.in(t, markTable), "Gates": f.in(inside, gateTable), "GatesTable": f.in(t, gateTable),
		"Mark": f.in(inside, n.mark), "MarkSequence": f.in(t, n.mark), "Trigger": f.quote(n.trigger), "TriggerName": n.trigger,
		"Lock": f.userLock(Table{Name: t.Name}), "Schema": f.schema(t), "MariaDB": f == MariaDB,
		"Patience": lockPatience.Milliseconds(), "Remedy": remedy, "TooLate": "uid_follow: too late: the id is below the mark of " + t.Name + "; " + remedy,
	}
	switch f {
	case Postgres:
		mark := f.in(t, n.mark)
		values["Mark"], values["Function"] = mark, f.in(t, n.function)
		values["Gate1"], values["Gate2"], values["InstallLock"] = advisory(mark, usedGate), advisory(mark, idleGate), advisory(mark, installLock)
	case MariaDB, MySQL:
		values["Trigger"], file = f.in(t, n.trigger), MySQL
		values["GateIDs"] = []int64{n.gate + usedGate, n.gate + idleGate}
	}
	text := template.Must(template.New(string(file)+".sql").Funcs(template.FuncMap{"text": f.text}).ParseFS(sqlFiles, "sql/"+string(file)+".sql"))
	var out strings.Builder
	if err := text.Execute(&out, values); err != nil {
		panic(err) // the files are part of the program
	}
	statements := strings.Split(strings.TrimSpace(out.String()), "\n---\n")
	statements = slices.Insert(statements, 1, f.CreateCursors(t))
	if f == Postgres { // before CREATE TRIGGER, drop triggers that call the function but are not intact
		function := f.in(t, n.function)
		misplaced := dropCalling(function, "NOT ("+newStatements(f, t).intact()+")")
		statements = slices.Insert(statements, len(statements)-2, misplaced)
	}
	return statements
}

// CreateCursors returns the statement that creates UID_CURSOR in the schema of a table.
func (f Flavor) CreateCursors(t Table) string {
	text, err := sqlFiles.ReadFile("sql/cursor_" + f.dialect() + ".sql")
	if err != nil {
		panic(err) // the files are part of the program
	}
	return strings.Replace(strings.TrimSpace(string(text)), "{{.Cursors}}", f.in(t, CursorTable), 1)
}

// lockPatience is how long PostgreSQL waits to create or drop a trigger. It is short; see [statements.install].
const lockPatience = 500 * time.Millisecond

// remedy is part of the trigger's message. A program without the plugin shows only this message.
const remedy = "create it again with a new id"

func bare(table string) string { return table[strings.LastIndexByte(table, '.')+1:] }

func (f Flavor) schema(t Table) string {
	if i := strings.LastIndexByte(t.Name, '.'); i >= 0 {
		return f.text(bare(t.Name[:i])) // PostgreSQL accepts the database before the schema
	}
	if t.Schema != "" {
		return f.text(t.Schema)
	}
	if f == Postgres {
		return "current_schema()"
	}
	return "DATABASE()"
}

var columnName = regexp.MustCompile(`[A-Z_]{2,}`)

// columns quotes the names in a list, because PostgreSQL folds unquoted names to lower case.
func (f Flavor) columns(list string) string { return columnName.ReplaceAllStringFunc(list, f.quote) }

// Uninstall returns the statements that undo [Flavor.Install]. The plugin's tables stay, with the cursors of
// consumers. The trigger comes first, so nothing has changed if its statement fails. It is dropped from whatever
// table has it, because it stays with a table that is renamed.
func (f Flavor) Uninstall(t Table) []string {
	if f == Postgres {
		t.Schema = cmp.Or(t.Schema, "public")
	}
	n, marks := namesOf(t.Name), f.in(t, markTable)
	where := " WHERE " + f.quote("TABLE_NAME") + " = " + f.text(t.Name)
	forget := "DELETE FROM " + marks + where
	if f == Postgres {
		function := f.in(t, n.function)
		return []string{dropCalling(function, "true",
			"  IF to_regclass("+f.text(marks)+") IS NOT NULL THEN\n    "+forget+";\n  END IF;\n",
			"  DROP FUNCTION IF EXISTS "+function+"();\n",
			"  DROP SEQUENCE IF EXISTS "+f.in(t, n.mark)+";\n")}
	}
	statements := []string{"DROP TRIGGER IF EXISTS " + f.in(t, n.trigger), forget}
	if f == MariaDB {
		statements = append(statements, "DROP SEQUENCE IF EXISTS "+f.in(t, n.mark))
	}
	if f != SQLite { // by ID, the primary key, because otherwise InnoDB would lock every row of the table
		where = fmt.Sprintf(" WHERE ID IN (%d, %d)", n.gate+usedGate, n.gate+idleGate)
	}
	return append(statements, "DELETE FROM "+f.in(t, gateTable)+where)
}

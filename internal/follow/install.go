package follow

import (
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
	"text/template"
	"time"
)

// The tables of followed tables. GateTable exists on MySQL, MariaDB and SQLite.
const (
	MarkTable = "UID_FOLLOW"
	GateTable = "UID_FOLLOW_GATE"
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
	Schema string // of the installation on PostgreSQL, if Name has none; empty means public
	Key    string // column of the ids
	Slack  time.Duration
}

// qualified returns a name in the schema of the table, which the trigger needs because its search path is fixed.
func (t Table) qualified(name string) string {
	if strings.Contains(t.Name, ".") {
		return beside(t.Name, name)
	}
	return cmp.Or(t.Schema, "public") + "." + name
}

// names are the names of what belongs to a table.
type names struct {
	mark, trigger, function string // sequence of the mark; trigger and its function
	lock                    string // user-level lock of MySQL, which chooses the gate; the beginning of its name
	gate                    int64  // the keys of the gates on MySQL and MariaDB are the next two
}

var unusual = regexp.MustCompile(`[^a-z0-9_]+`)

// namesOf derives names from the table's, so that statements can be printed without asking a database.
func namesOf(table string) names {
	sum := sha256.Sum256([]byte(table))
	short := unusual.ReplaceAllString(strings.ToLower(table), "_")
	name := "uid_follow_" + short[:min(len(short), 30)] + "_" + hex.EncodeToString(sum[:3])
	return names{
		mark: name + "_mark", trigger: name, function: name, lock: "uid_follow_" + short[:min(len(short), 20)] + "_" + hex.EncodeToString(sum[:3]) + "_",
		gate: int64(binary.BigEndian.Uint64(sum[:8])>>1) &^ 3,
	}
}

// quote quotes a name, with or without a schema.
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

// join is an expression for concatenated texts and numbers.
func (f Flavor) join(parts ...string) string {
	if f == MySQL || f == MariaDB {
		return "CONCAT(" + strings.Join(parts, ", ") + ")"
	}
	return strings.Join(parts, " || ")
}

// advisory is an expression for an advisory lock of PostgreSQL. sequence is the quoted name of the mark; its oid makes the
// lock the table's own, because other schemas of the database may have tables of the same name. A constant above keeps it
// apart from the locks of other programs.
func advisory(sequence string, lock int) string {
	return fmt.Sprintf("(%d + 4 * %s::regclass::oid::bigint)", advisoryBase+int64(lock), Postgres.text(sequence))
}

// The advisory locks of a table are its gates and these.
const (
	advisoryBase = 0x7569 << 48
	raiseLock    = 0
	installLock  = 3
)

// userLock is an expression for the name of a user-level lock. All databases of a server share these locks.
func (f Flavor) userLock(t Table) string {
	return "CONCAT(" + f.text(namesOf(t.Name).lock) + ", CRC32(" + f.schema(t.Name) + "))"
}

// text quotes a text.
func (f Flavor) text(s string) string {
	if f == MySQL || f == MariaDB {
		s = strings.ReplaceAll(s, `\`, `\\`)
	}
	return "'" + strings.ReplaceAll(s, "'", "''") + "'"
}

// beside returns name in the schema of the table.
func beside(table, name string) string {
	if i := strings.LastIndexByte(table, '.'); i >= 0 {
		return table[:i+1] + name
	}
	return name
}

//go:embed sql/*.sql
var sqlFiles embed.FS

// Install returns the statements that make a table followed. They must run in this order. The INSERT into UID_FOLLOW is
// the last, because it stores which trigger has been installed.
func (f Flavor) Install(t Table) []string {
	n, file := namesOf(t.Name), f
	values := map[string]any{
		"Bare": bare(t.Name),
		"Name": t.Name, "Table": f.quote(t.Name), "KeyName": t.Key, "Key": f.quote(t.Key), "Slack": t.Slack.Milliseconds(),
		"Marks": f.quote(beside(t.Name, MarkTable)), "Gates": f.quote(beside(t.Name, GateTable)),
		"Mark": f.quote(beside(t.Name, n.mark)), "Trigger": f.quote(n.trigger), "TriggerName": n.trigger,
		"Lock": f.userLock(t), "Schema": f.schema(t.Name), "MariaDB": f == MariaDB,
		"Patience": lockPatience.Milliseconds(), "Remedy": remedy, "TooLate": "uid_follow: too late: the id is below the mark of " + t.Name + "; " + remedy,
	}
	switch f {
	case Postgres:
		mark := f.quote(t.qualified(n.mark))
		values["Mark"], values["Function"] = mark, f.quote(t.qualified(n.function))
		values["Gate1"], values["Gate2"], values["InstallLock"] = advisory(mark, usedGate), advisory(mark, idleGate), advisory(mark, installLock)
	case MariaDB, MySQL:
		values["Trigger"], file = f.quote(beside(t.Name, n.trigger)), MySQL
		values["Gate1"], values["Gate2"] = n.gate+usedGate, n.gate+idleGate
	}
	text := template.Must(template.New(string(file)+".sql").Funcs(template.FuncMap{"text": f.text}).ParseFS(sqlFiles, "sql/"+string(file)+".sql"))
	var out strings.Builder
	if err := text.Execute(&out, values); err != nil {
		panic(err) // the files are part of the program
	}
	return strings.Split(strings.TrimSpace(out.String()), "\n---\n")
}

// lockPatience is how long a statement of PostgreSQL that creates or drops a trigger waits for the transactions that use
// the table, because everybody else queues up behind it.
const lockPatience = 500 * time.Millisecond

// remedy is part of the message of a refused row, which a program without the plugin shows.
const remedy = "create it again with a new id"

// bare returns the name of a table without its schema.
func bare(table string) string { return table[strings.LastIndexByte(table, '.')+1:] }

// schema returns an expression for the schema of a table.
func (f Flavor) schema(table string) string {
	if i := strings.LastIndexByte(table, '.'); i >= 0 {
		return f.text(table[:i])
	}
	return "DATABASE()"
}

var columnName = regexp.MustCompile(`[A-Z_]{2,}`)

// columns quotes the names in a list, because PostgreSQL folds those without quotes to lower case.
func (f Flavor) columns(list string) string { return columnName.ReplaceAllStringFunc(list, f.quote) }

// Uninstall returns the statements that undo [Flavor.Install]. The tables stay.
func (f Flavor) Uninstall(t Table) []string {
	n := namesOf(t.Name)
	where := " WHERE " + f.quote("TABLE_NAME") + " = " + f.text(t.Name)
	statements := []string{"DELETE FROM " + f.quote(beside(t.Name, MarkTable)) + where}
	switch f {
	case Postgres:
		return append(statements, dropFunction(f.quote(beside(t.Name, n.function))),
			"DROP SEQUENCE IF EXISTS "+f.quote(beside(t.Name, n.mark)))
	case MariaDB:
		statements = append(statements, "DROP TRIGGER IF EXISTS "+f.quote(beside(t.Name, n.trigger)),
			"DROP SEQUENCE IF EXISTS "+f.quote(beside(t.Name, n.mark)))
	default:
		statements = append(statements, "DROP TRIGGER IF EXISTS "+f.quote(beside(t.Name, n.trigger)))
	}
	if f != SQLite { // by the key, because InnoDB would lock every row that the statement reads
		where = fmt.Sprintf(" WHERE ID IN (%d, %d)", n.gate+usedGate, n.gate+idleGate)
	}
	return append(statements, "DELETE FROM "+f.quote(beside(t.Name, GateTable))+where)
}

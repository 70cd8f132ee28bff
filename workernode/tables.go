package workernode

import (
	"fmt"
	"regexp"
	"time"
)

// The names of the tables. GORM's naming strategies and prefixes do not change them, so all applications of a database
// share the same tables.
const (
	NodeTable     = "WORKER_NODE"
	SlotTable     = "WORKER_SLOT"
	SessionTable  = "WORKER_SESSION"
	RegistryTable = "WORKER_REGISTRY"
)

// MaxTableName is the length of the longest name of a table or database that fits into WORKER_NODE, in characters.
const MaxTableName = 128

// AllTables is the table name of a worker id that serves all tables.
const AllTables = "*"

// A Table names a table of the application.
type Table struct {
	Database string // empty for the registry's database
	Name     string // [AllTables] stands for all tables
}

// String returns the name, prefixed with the database if it differs from the registry's.
func (t Table) String() string {
	if t.Database == "" {
		return t.Name
	}
	return t.Database + "." + t.Name
}

// The columns of the tables, in the order in which this package writes and reads them.
const (
	slotColumns    = `"ID", "LAYOUT", "REUSABLE", "FENCE", "VERSION", "HOLDER", "SEEN_TICK", "APPLICATION", "HOST_NAME", "PORT", "MODIFIED", "REGION"`
	sessionColumns = `"SLOT", "START_TICK", "BEFORE_TICK", "APPLICATION", "HOST_NAME", "PORT", "TYPE", "LAUNCHED", "HOLDER"`
	nodeColumns    = `"ID", "HOST_NAME", "PORT", "TYPE", "LAUNCH_DATE", "MODIFIED", "CREATED", "SLOT", "DATABASE_NAME", "TABLE_NAME", "LAYOUT", "START_TICK"`
)

// maxText limits the characters of a text in lists of nodes, sessions and slots. Only other programs write longer
// texts, and only into SQLite, which does not enforce the width of a column.
const maxText = 200

// cut returns SQL with the columns, in which each text column is limited to maxText characters.
func cut(columns string) string {
	return textColumn.ReplaceAllString(columns, fmt.Sprintf(`SUBSTR($0, 1, %d) AS $0`, maxText))
}

var textColumn = regexp.MustCompile(`"(LAYOUT|HOLDER|APPLICATION|HOST_NAME|PORT|DATABASE_NAME|TABLE_NAME)"`)

// latestTime is the latest time that [time.Time] can write as JSON.
var latestTime = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

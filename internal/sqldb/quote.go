package sqldb

import (
	"fmt"
	"strings"

	"gorm.io/gorm"
)

// Quoted quotes a name as GORM does: a dot separates its parts.
func Quoted(dialector gorm.Dialector, name string) string {
	var quoted strings.Builder
	dialector.QuoteTo(&quoted, name)
	return quoted.String()
}

// DollarQuoted puts a text between dollar quotes of PostgreSQL that do not occur in the text.
func DollarQuoted(text string) string {
	tag := "$$"
	for n := 1; strings.Contains(text, tag); n++ {
		tag = fmt.Sprintf("$uid%d$", n)
	}
	return tag + text + tag
}

// Mod returns SQL for the remainder of an expression divided by n. MariaDB lacks the operator % with
// sql_mode=ORACLE, and SQLite may lack the function MOD.
func (d *DB) Mod(expression string, n int64) string {
	if d.Dialect() == "sqlite" {
		return fmt.Sprintf("%s %% %d", expression, n)
	}
	return fmt.Sprintf("MOD(%s, %d)", expression, n)
}

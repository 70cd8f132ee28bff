package catalog

import (
	"fmt"
	"regexp"

	"github.com/uidplugin/uidplugin/internal/model"
	"gorm.io/gorm"
)

// mostValues are the values that databases take in one statement.
var mostValues = map[string]int{"mysql": 65535, "postgres": 65535, "sqlite": 32766}

// tooMany matches the errors of databases and drivers about too many values.
var tooMany = regexp.MustCompile(`too many (?:placeholders|SQL variables)|limited to 65535 parameters`)

// explainSize explains the error of an INSERT that has too many values because of its ids. Without the plugin an
// AUTO_INCREMENT key is not sent, so a size of batches that worked may be too large.
func (c *Catalog) explainSize(db *gorm.DB) {
	stmt := db.Statement
	most, sent := mostValues[stmt.Dialector.Name()], len(stmt.Vars)
	if db.Error == nil || stmt.Schema == nil || most == 0 || sent <= most || !tooMany.MatchString(db.Error.Error()) {
		return
	}
	rows := len(model.RowsOf(stmt.ReflectValue, stmt.Schema.ModelType))
	if fields := len(c.Plan(stmt.Schema).Fields); rows > 1 && sent-rows*fields <= most {
		db.Error = fmt.Errorf("uidplugin: an INSERT into %s has %d values in %d rows, but the database takes %d: the id is one more"+
			" for each row, so use CreateInBatches with at most %d rows (docs/from-auto-increment.md#batches): %w",
			stmt.Table, sent, rows, most, most/((sent+rows-1)/rows), db.Error)
	}
}

package catalog

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/uidplugin/uidplugin/internal/follow"
	"gorm.io/gorm"
)

// ErrTooLate reports that a followed table has refused a row, because the row's id is older than the slack allows.
var ErrTooLate = errors.New("uidplugin: too late")

// ExplainTooLate explains the error of a statement if a followed table has refused a row.
func (c *Catalog) ExplainTooLate(db *gorm.DB) {
	if db.Error != nil {
		db.Error = c.tooLate(db.Statement, db.Error)
	}
}

// tooLate returns an error that wraps ErrTooLate if a followed table has refused a row. It then moves the clock to the
// database's, because the table would refuse the next ids as well if this process's clock is behind.
func (c *Catalog) tooLate(stmt *gorm.Statement, err error) error {
	at, ok := follow.TooLate(err)
	if !ok || errors.Is(err, ErrTooLate) {
		return err
	}
	table := cmp.Or(stmt.Table, "the table") // which is unknown for Exec
	if stmt.Schema != nil && strings.HasSuffix(stmt.Schema.Table, "."+stmt.Table) {
		table = stmt.Schema.Table // GORM leaves the name of the table's schema out, and followers have it
	}
	if stmt.Table != "" {
		c.mu.Lock()
		c.refused[table]++
		c.mu.Unlock()
	}
	c.supply.ReachClock(at)
	return fmt.Errorf("%w: %s is followed, and the id of a row is older than its slack allows; create the rows again, in a transaction"+
		" from its beginning, and with new ids where the application, or an earlier statement or batch, has set them: %w", ErrTooLate, table, err)
}

// TooLate returns the number of refused creates by table.
func (c *Catalog) TooLate() map[string]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.refused)
}

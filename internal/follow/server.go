package follow

import (
	"context"
	"errors"
	"time"

	"github.com/uidplugin/uidplugin/internal/sqldb"
)

// A serverCheck remembers when run last found that this server takes all writes to the table.
type serverCheck struct{ passed time.Time }

// checkAgainAfter is how long a check is valid. A server can join a group of servers while connections stay open.
const checkAgainAfter = time.Minute

// run returns an error wrapping ErrRefused if rows could be missed. It ignores most settings that it may not read.
func (c *serverCheck) run(ctx context.Context, conn *sqldb.DB, s *statements) error {
	if !c.passed.IsZero() && time.Since(c.passed) < checkAgainAfter {
		return nil
	}
	if err := refuseServer(ctx, conn.Quiet(), s.flavor, s.table); errors.Is(err, ErrRefused) || ctx.Err() != nil {
		return errors.Join(ctx.Err(), err)
	}
	c.passed = time.Now()
	return nil
}

// again makes the next run check the server. Call it after an error, as the server may be a standby now.
func (c *serverCheck) again() { c.passed = time.Time{} }

package follow

import (
	"fmt"
	"time"

	"github.com/uidplugin/uidplugin"
	engine "github.com/uidplugin/uidplugin/internal/follow"
)

// An EnableOption changes [Enable].
type EnableOption func(*enableOptions)

type enableOptions struct {
	slack time.Duration
}

// WithSlack sets how old an id may be when its INSERT arrives; older ids are refused with [ErrTooLate]. Followers
// see each row only after this time. The default is 1 s and the least 20 ms, but both are at least a tick of the
// layout. Choose more than the time from making an id to its INSERT, including differences between clocks.
func WithSlack(d time.Duration) EnableOption {
	return func(o *enableOptions) { o.slack = d }
}

// slackOf returns the slack that the options set, for a layout with this tick.
func slackOf(tick time.Duration, options []EnableOption) (time.Duration, error) {
	var o enableOptions
	for _, option := range options {
		if option != nil {
			option(&o)
		}
	}
	minimum := max(engine.MinSlack, tick)
	switch {
	case o.slack == 0:
		return max(time.Second, tick), nil
	case o.slack < minimum || o.slack > engine.MaxSlack:
		return 0, fmt.Errorf("%w: WithSlack(%v): it must be from %v to %v", uidplugin.ErrOption, o.slack, minimum, engine.MaxSlack)
	}
	return o.slack, nil
}

// A RowsOption changes [Rows], [Consume] and [ConsumeBatch].
type RowsOption func(*rowsOptions)

type rowsOptions struct {
	rewind bool
	locked bool
}

// WithRewind makes [Rows] and [Consume] go back if the database has lost commits, as after the failover to a replica
// that was behind. Rows that were returned may then be gone, and rows may be inserted below the cursor. A call of
// Rows that is running when commits are lost goes back to the mark that the database still has. So it misses no row
// that survives, but returns some rows again.
func WithRewind() RowsOption {
	return func(o *rowsOptions) { o.rewind = true }
}

// WithRowLocks makes [Rows] and [Consume] read with shared locks on MySQL and MariaDB, so they wait for prepared XA
// transactions. Without this option followers notice a transaction by another lock, and can miss rows of a prepared
// one, because InnoDB forgets this lock: MariaDB at XA PREPARE, MySQL when the server crashes.
func WithRowLocks() RowsOption {
	return func(o *rowsOptions) { o.locked = true }
}

func rowsOptionsOf(options []RowsOption) (o rowsOptions) {
	for _, option := range options {
		if option != nil {
			option(&o)
		}
	}
	return o
}

package workernode

import (
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/workernode/internal/lease"
)

const (
	// DefaultLead is the default of Config.Lead.
	DefaultLead = 10 * time.Second
	// defaultLeadSQLite is the default on SQLite. It is longer because transactions of the application block the
	// lease manager's writes. This is safe because an SQLite file has no failover that loses commits.
	defaultLeadSQLite = 10 * time.Minute

	// skew is the assumed difference between the clocks of two processes.
	skew = time.Second
	// grace is how long after FENCE other processes leave a held slot alone.
	grace = time.Minute
	// rereadAfter is the time between two checks of the rows of the slot's worker ids.
	rereadAfter = 10 * time.Minute
	// idleAfter is how long renewals continue after the last id.
	idleAfter = 10 * time.Minute
	// A statement of the lease manager may take a quarter of Lead, a transaction half of Lead, within these bounds.
	minStatement   = 500 * time.Millisecond
	maxStatement   = 2 * time.Second
	maxTransaction = 5 * time.Second
	// wakePause is the shortest time between two wake-ups by generators that the lease manager serves.
	wakePause = 25 * time.Millisecond
	// minPause is the shortest time between renewals that generators cause; a short Lead lowers it. maxPause limits
	// the pause before the lease manager repeats a failed attempt.
	minPause = 250 * time.Millisecond
	maxPause = 500 * time.Millisecond
)

// minLeadTicks is the shortest lead. A renewal comes after a third of the lead, and a third must be a tick or more.
const minLeadTicks = 3

// ticks converts a duration to ticks of a layout, rounded up.
func ticks(layout generator.Layout, d time.Duration) int64 {
	return int64((d + layout.Tick - 1) / layout.Tick)
}

func paramsOf(layout generator.Layout, lead time.Duration, leadTicks int64, dialect string) lease.Params {
	// Lost commits may have granted ticks up to Lead ahead without a trace in the row. So nobody reclaims a free
	// slot before Lead has passed. An SQLite file does not fail over, and a wait for its default Lead of 10 minutes
	// would make each restarted process take another slot.
	settle := ticks(layout, lead+skew) + 1
	if dialect == "sqlite" {
		settle = ticks(layout, skew)
	}
	p := lease.Params{Lead: leadTicks, Settle: settle, Grace: max(settle, ticks(layout, grace)), Last: layout.MaxTick()}
	p.Quiet = max(p.Grace, ticks(layout, lead+skew)+1)
	return p
}

package workernode

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/sqldb"
)

// A Slot is a reusable process identity. It owns worker ids permanently, and at most one process holds it at a time.
type Slot struct {
	ID       int64
	Held     bool      // by a process that runs, or that ended without releasing the slot
	Reusable bool      // false with WithDisposable, because other processes never reclaim it
	Region   int64     // only processes of this region hold it; 0 without WithRegion
	Remote   bool      // of another region than the registry; the row is replicated, and may be old
	Fence    time.Time // no process has stamped a later time with the slot
	Seen     time.Time // the last holder's clock at its last statement

	// The last holder.
	Application string
	Host        string
	Port        string
}

// State returns the state of a slot at the present time, now:
//
//   - live: a process holds it and may stamp ids
//   - idle: a process holds it and has made no ids for minutes
//   - overdue: a statement is missing, because the process ended, is paused, cannot reach the database, or has a
//     clock that is behind
//   - expired: the last statement and FENCE are over a minute ago, so another process may reclaim the slot
//   - free: released
//   - retired: from WithDisposable, and never used again
//   - remote: of another region; ask its database for the state
//
// After a process ends without Close, its slot stays live until the fence has passed or two renewals are missing: up to
// 10 s with the default lead.
func (s Slot) State(now time.Time) string {
	const missing = 45 * time.Second // because an idle process sends a statement every 30 s
	granted := s.Fence.Sub(s.Seen)   // for how long the last statement granted; negative if an idle process sent it
	silent := now.Sub(s.Seen)
	switch overdue := silent > max(granted-granted/3, missing) || granted >= 0 && !s.Fence.After(now); {
	case s.Remote:
		return "remote"
	case s.Held && !overdue && s.Fence.After(now):
		return "live"
	case s.Held && !overdue:
		return "idle"
	case s.Held && min(silent, now.Sub(s.Fence)) < grace:
		return "overdue"
	case !s.Reusable:
		return "retired"
	case s.Held:
		return "expired"
	}
	return "free"
}

// Slots returns up to limit slots with an ID above previous, in ascending order.
func (d *DB) Slots(ctx context.Context, layout generator.Layout, previous int64, limit int) (slots []Slot, err error) {
	err = d.sql.Query(ctx, func(rows *sql.Rows) error {
		var s Slot
		var reusable int
		var holder string
		var fence, seen int64
		err := sqldb.Scan(rows, SlotTable, 1, &s.ID, &reusable, &fence, &holder, &seen, &s.Application, &s.Host, &s.Port, &s.Region, &s.Remote)
		s.Held, s.Reusable, s.Fence, s.Seen = holder != "", reusable != 0, TimeOf(layout, fence), TimeOf(layout, seen)
		slots = append(slots, s)
		return err
	}, cut(`SELECT "ID", "REUSABLE", "FENCE", "HOLDER", "SEEN_TICK", "APPLICATION", "HOST_NAME", "PORT", "REGION",`)+
		` EXISTS (SELECT 1 FROM "WORKER_REGISTRY" WHERE "REMAINDER" <> "REGION") FROM "WORKER_SLOT"`+
		fmt.Sprintf(` WHERE "ID" > ? ORDER BY "ID" LIMIT %d`, limit), previous)
	if err != nil {
		return nil, fmt.Errorf("workernode: list slots: %w", err)
	}
	return slots, nil
}

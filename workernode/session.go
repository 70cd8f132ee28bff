package workernode

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/sqldb"
)

// TimeOf returns the start of any tick read from a table, limited to the layout's epoch and end. It returns no time
// after the year 9999, because [time.Time] cannot write one as JSON. The layout must be valid.
func TimeOf(l generator.Layout, tick int64) time.Time {
	t := l.TimeOf(min(max(tick, 0), l.MaxTick()+1))
	if t.After(latestTime) {
		return latestTime
	}
	return t
}

// A Slot is a row of WORKER_SLOT: a reusable process identity.
type Slot struct {
	ID       int64
	Layout   string
	Reusable bool   // false for a disposable one, which is never reclaimed
	Fence    int64  // FENCE: no process stamps a later tick with the slot's worker ids until it is raised
	Version  int64  // VERSION changes with every statement
	Holder   string // HOLDER: a random token of a process start; empty if free
	Seen     int64  // SEEN_TICK: the holder's clock at its last statement
	Region   int64  // REGION: only processes of this region hold the slot
	Remote   bool   // of another region than the registry; the row is replicated, and may be old

	// The last holder.
	Application, Host, Port string
	Modified                time.Time // by the database's clock
}

// A Session is a row of WORKER_SESSION: a process held a slot from Start on.
type Session struct {
	Slot   int64
	Start  int64 // START_TICK: the last tick before the session
	Before int64 // BEFORE_TICK: earlier sessions of the slot stamped no later tick

	Application, Host, Port string
	Kind                    Kind
	Launched                time.Time // start of the process, by its clock, in UTC
	Holder                  string    // empty if pruned
}

// Pruned reports whether the session stands for sessions that [DB.PruneSessions] has removed. Their processes are
// unknown.
func (s Session) Pruned() bool { return s.Holder == "" }

// setLaunched sets Launched, unless the session was pruned, because the column is then meaningless.
func (s *Session) setLaunched(launched date) {
	if !s.Pruned() {
		s.Launched = launched.Time
	}
}

// Slots returns up to limit slots with an ID above after, in ascending order.
func (d *DB) Slots(ctx context.Context, after int64, limit int) (slots []Slot, err error) {
	err = d.sql.Query(ctx, func(rows *sql.Rows) error {
		var s Slot
		var modified date
		var reusable int
		err := sqldb.Scan(rows, SlotTable, 1, &s.ID, &s.Layout, &reusable, &s.Fence, &s.Version, &s.Holder, &s.Seen, &s.Application, &s.Host, &s.Port, &modified, &s.Region, &s.Remote)
		s.Reusable, s.Modified = reusable != 0, modified.Time
		slots = append(slots, s)
		return err
	}, `SELECT `+cut(slotColumns)+`, EXISTS (SELECT 1 FROM "WORKER_REGISTRY" WHERE "REMAINDER" <> "REGION")`+
		fmt.Sprintf(` FROM "WORKER_SLOT" WHERE "ID" > ? ORDER BY "ID" LIMIT %d`, limit), after)
	if err != nil {
		return nil, fmt.Errorf("workernode: list slots: %w", err)
	}
	return slots, nil
}

// Sessions returns up to limit sessions that began before the tick before, the latest first. It reads only those of
// slot, unless slot is 0. For all slots the database sorts all sessions, and Until and Last are -1.
//
// Of later sessions, only the next one limits Last.
func (d *DB) Sessions(ctx context.Context, slot, before int64, limit int) (sessions []Origin, err error) {
	where, args := `"X"."START_TICK" < ?`, []any{before}
	fence, next, end := "NULL", "NULL", "NULL"
	if slot != 0 {
		// The subselects have no column of X, so they run once, by the key. With one, MariaDB reads all sessions of the
		// slot.
		const following = ` FROM "WORKER_SESSION" WHERE "SLOT" = ? AND "START_TICK" >= ? ORDER BY "START_TICK" LIMIT 1)`
		fence = `(SELECT "FENCE" FROM "WORKER_SLOT" WHERE "ID" = ?)`
		next, end = `(SELECT "START_TICK"`+following, `(SELECT "BEFORE_TICK"`+following
		where, args = where+` AND "X"."SLOT" = ?`, []any{slot, slot, before, slot, before, before, slot}
	}
	err = d.sql.Query(ctx, func(rows *sql.Rows) error {
		var r originRow
		err := sqldb.Scan(rows, SessionTable, 2, r.into()...)
		o := r.origin()
		if n := len(sessions); slot != 0 && n > 0 {
			later := sessions[n-1]
			o.Until, o.Last = later.Start, min(o.Last, later.Before)
		}
		sessions = append(sessions, o)
		return err
	}, `SELECT `+cut(sessionColumns)+`, `+fence+`, `+next+`, `+end+` FROM "WORKER_SESSION" "X" WHERE `+where+
		fmt.Sprintf(` ORDER BY "X"."START_TICK" DESC, "X"."SLOT" DESC LIMIT %d`, limit), args...)
	if err != nil {
		return nil, fmt.Errorf("workernode: list sessions: %w", err)
	}
	return sessions, nil
}

// An Origin is the session that stamped an id's tick.
type Origin struct {
	Session
	Until int64 // START_TICK of the slot's next session; -1 if none followed
	Last  int64 // no process stamped a later tick in the session; -1 if the slot has no row
}

// Origin returns the session in which a tick of a slot was stamped. ok is false if no process can have stamped it,
// because no session had begun or the fence was below.
func (d *DB) Origin(ctx context.Context, slot, tick int64) (o Origin, ok bool, err error) {
	found, err := d.origins(ctx, tick, `"S"."ID" = ?`, slot)
	if err != nil {
		return o, false, fmt.Errorf("workernode: look up the sessions of slot %d: %w", slot, err)
	}
	if len(found) == 0 {
		return Origin{Until: -1}, false, nil
	}
	return found[0], tick <= found[0].Last, nil
}

// Origins returns the sessions of all slots in which a tick may have been stamped, ordered by slot. It omits idle
// processes that had not renewed their leases up to the tick.
func (d *DB) Origins(ctx context.Context, tick int64) ([]Origin, error) {
	found, err := d.origins(ctx, tick, `"S"."FENCE" >= ? ORDER BY "S"."ID"`, tick)
	if err != nil {
		return nil, fmt.Errorf("workernode: look up the sessions of a time: %w", err)
	}
	return slices.DeleteFunc(found, func(o Origin) bool { return o.Last < tick }), nil
}

// Trace returns the node of a worker id, and the session in which a tick of it was stamped. It uses one SELECT, so both
// fit together even if the database has lost commits. The node is nil if the worker id does not exist. ok is false if
// no process can have stamped the tick.
func (d *DB) Trace(ctx context.Context, worker, tick int64) (n *Node, o Origin, ok bool, err error) {
	o.Until = -1
	err = d.sql.Query(ctx, func(rows *sql.Rows) error {
		var node nodeRow
		var origin originRow
		err := sqldb.Scan(rows, NodeTable, 1, slices.Concat(node.into(), origin.into())...)
		n = node.node()
		if origin.slot.Valid {
			o = origin.origin()
			ok = tick <= o.Last
		}
		return err
	}, `SELECT `+nodeFields+`, `+originFields+` FROM "WORKER_NODE" "N" LEFT JOIN "WORKER_SLOT" "S" ON "S"."ID" = "N"."SLOT"`+
		` LEFT JOIN `+latestSession+` WHERE "N"."ID" = ?`, tick, tick, tick, worker)
	if err != nil {
		return nil, o, false, fmt.Errorf("workernode: look up the worker id %d: %w", worker, err)
	}
	return n, o, ok, nil
}

// The columns of the latest session of slot "S" before a tick, which is the value of each question mark.
const (
	originFields = `"X"."SLOT", "X"."START_TICK", "X"."BEFORE_TICK", "X"."APPLICATION", "X"."HOST_NAME", "X"."PORT", "X"."TYPE", "X"."LAUNCHED", "X"."HOLDER", "S"."FENCE",` +
		` (SELECT MIN("START_TICK") FROM "WORKER_SESSION" WHERE "SLOT" = "S"."ID" AND "START_TICK" >= ?),` +
		` (SELECT MIN("BEFORE_TICK") FROM "WORKER_SESSION" WHERE "SLOT" = "S"."ID" AND "START_TICK" >= ?)`
	latestSession = `"WORKER_SESSION" "X" ON "X"."SLOT" = "S"."ID"` +
		` AND "X"."START_TICK" = (SELECT MAX("START_TICK") FROM "WORKER_SESSION" WHERE "SLOT" = "S"."ID" AND "START_TICK" < ?)`
)

// An originRow is a row of originFields, with NULLs if no session exists.
type originRow struct {
	slot, start, before, kind, fence, next, end sql.NullInt64
	application, host, port, holder             sql.NullString
	launched                                    date
}

func (r *originRow) into() []any {
	return []any{&r.slot, &r.start, &r.before, &r.application, &r.host, &r.port, &r.kind, &r.launched, &r.holder, &r.fence, &r.next, &r.end}
}

func (r *originRow) origin() Origin {
	o := Origin{Session: Session{
		Slot: r.slot.Int64, Start: r.start.Int64, Before: r.before.Int64, Application: r.application.String, Host: r.host.String,
		Port: r.port.String, Kind: Kind(r.kind.Int64), Holder: r.holder.String,
	}, Until: -1, Last: -1}
	o.setLaunched(r.launched)
	if r.next.Valid {
		o.Until = r.next.Int64
	}
	if r.fence.Valid {
		o.Last = r.fence.Int64
	}
	if r.end.Valid {
		o.Last = min(o.Last, r.end.Int64)
	}
	return o
}

// origins returns each slot's latest session before a tick. where is a condition with one value.
func (d *DB) origins(ctx context.Context, tick int64, where string, value int64) (found []Origin, err error) {
	// One SELECT, so the result is consistent.
	err = d.sql.Query(ctx, func(rows *sql.Rows) error {
		var r originRow
		err := sqldb.Scan(rows, SessionTable, 2, r.into()...)
		found = append(found, r.origin())
		return err
	}, `SELECT `+originFields+` FROM "WORKER_SLOT" "S" JOIN `+latestSession+` WHERE `+where, tick, tick, tick, value)
	return found, err
}

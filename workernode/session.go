package workernode

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/sqldb"
)

// TimeOf returns the start of any tick read from a table, limited to the time from the layout's epoch to its end. It
// returns no time after the year 9999, because [time.Time] cannot write one as JSON. The layout must be valid.
func TimeOf(l generator.Layout, tick int64) time.Time {
	t := l.TimeOf(min(max(tick, 0), l.MaxTick()+1))
	if t.After(latestTime) {
		return latestTime
	}
	return t
}

// A Session is the time during which one process held a slot. Only this process used the slot's worker ids between From
// and the slot's next session.
type Session struct {
	Slot        int64     `json:"slot,omitempty"`
	Application string    `json:"application"` // name of the executable, or Host.Application
	Host        string    `json:"host"`
	Port        string    `json:"port"`
	Kind        Kind      `json:"kind,omitempty"`
	Launched    time.Time `json:"launched,omitzero"` // start of the process, by its clock
	From        time.Time `json:"from,omitzero"`     // no id of the session has an earlier time
	Until       time.Time `json:"until,omitzero"`    // start of the slot's next session; zero if none followed
	Last        time.Time `json:"last,omitzero"`     // no id of the session has a later time; it may be up to Lead after the end of the process; zero in a Location
}

// Pruned reports whether "uid sessions prune" removed the session, so the process is unknown. In a list such a
// session represents all removed sessions of its slot.
func (s Session) Pruned() bool {
	return s.Application == "" && s.Host == "" && s.Port == "" && s.Kind == 0
}

// An origin is a row of WORKER_SESSION, with the end of the session.
type origin struct {
	Slot   int64
	Start  int64 // START_TICK: the last tick before the session
	Before int64 // BEFORE_TICK: earlier sessions of the slot stamped no later tick

	Application, Host, Port string
	Kind                    Kind
	Launched                time.Time
	Holder                  string // empty if pruned; then the process is unknown

	Until int64 // START_TICK of the slot's next session; -1 if none followed, or if not read
	Last  int64 // no process stamped a later tick in the session; -1 if the slot has no row, or if not read
}

func (o origin) session(layout generator.Layout) Session {
	s := Session{Slot: o.Slot, From: TimeOf(layout, o.Start+1)}
	if o.Holder != "" {
		s.Application, s.Host, s.Port, s.Kind, s.Launched = o.Application, o.Host, o.Port, o.Kind, o.Launched
	}
	if o.Until >= 0 {
		s.Until = TimeOf(layout, o.Until+1)
	}
	if o.Last >= 0 {
		s.Last = TimeOf(layout, o.Last)
	}
	return s
}

func sessionsOf(found []origin, layout generator.Layout) []Session {
	sessions := make([]Session, len(found))
	for i, o := range found {
		sessions[i] = o.session(layout)
	}
	return sessions
}

// Sessions returns up to limit sessions that began before the time end, the latest first; a zero end means all. If
// slot is 0, it returns sessions of all slots: then the database sorts all sessions, and Until and Last are zero.
func (d *DB) Sessions(ctx context.Context, layout generator.Layout, slot int64, end time.Time, limit int) ([]Session, error) {
	latest := int64(math.MaxInt64)
	if !end.IsZero() {
		latest = layout.TickAt(end)
		if !TimeOf(layout, latest).Before(end) {
			latest-- // because a session begins one tick after START_TICK
		}
	}
	found, err := d.latestOrigins(ctx, slot, latest, limit)
	return sessionsOf(found, layout), err
}

// latestOrigins returns up to limit sessions of one slot, or of all slots if slot is 0, whose START_TICK is below
// tick. For one slot, FENCE and BEFORE_TICK of the next session limit Last.
func (d *DB) latestOrigins(ctx context.Context, slot, tick int64, limit int) (sessions []origin, err error) {
	where, args := `"X"."START_TICK" < ?`, []any{tick}
	fence, next, end := "NULL", "NULL", "NULL"
	if slot != 0 {
		// The subselects use no column of X, so each runs once, by the key. Otherwise MariaDB would read all
		// sessions of the slot.
		const following = ` FROM "WORKER_SESSION" WHERE "SLOT" = ? AND "START_TICK" >= ? ORDER BY "START_TICK" LIMIT 1)`
		fence = `(SELECT "FENCE" FROM "WORKER_SLOT" WHERE "ID" = ?)`
		next, end = `(SELECT "START_TICK"`+following, `(SELECT "BEFORE_TICK"`+following
		where, args = where+` AND "X"."SLOT" = ?`, []any{slot, slot, tick, slot, tick, tick, slot}
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

// SessionsAt returns the sessions of all slots in which a tick may have been stamped, ordered by slot. It omits idle
// processes that had not renewed their leases up to the tick.
func (d *DB) SessionsAt(ctx context.Context, layout generator.Layout, tick int64) ([]Session, error) {
	found, err := d.originsAt(ctx, tick, `"S"."FENCE" >= ? ORDER BY "S"."ID"`, tick)
	return sessionsOf(slices.DeleteFunc(found, func(o origin) bool { return o.Last < tick }), layout), err
}

// Trace returns the node of a worker id, and the session in which a tick was stamped with it, without Last. It uses
// one SELECT, so both fit together even if the database has lost commits. The node is nil if the worker id does not
// exist. ok is false if no process can have stamped the tick, for example because FENCE is below it.
func (d *DB) Trace(ctx context.Context, layout generator.Layout, worker, tick int64) (n *Node, s Session, ok bool, err error) {
	err = d.sql.Query(ctx, func(rows *sql.Rows) error {
		var node nodeRow
		var r originRow
		err := sqldb.Scan(rows, NodeTable, 1, slices.Concat(node.into(), r.into())...)
		n = node.node()
		if r.slot.Valid {
			o := r.origin()
			ok, o.Last = tick <= o.Last, -1
			s = o.session(layout)
		}
		return err
	}, `SELECT `+nodeFields+`, `+originFields+` FROM "WORKER_NODE" "N" LEFT JOIN "WORKER_SLOT" "S" ON "S"."ID" = "N"."SLOT"`+
		` LEFT JOIN `+latestSession+` WHERE "N"."ID" = ?`, tick, tick, tick, worker)
	if err != nil {
		return nil, s, false, fmt.Errorf("workernode: look up the worker id %d: %w", worker, err)
	}
	return n, s, ok, nil
}

// The columns of the latest session of slot "S" whose START_TICK is below a tick. Each question mark is that tick.
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

func (r *originRow) origin() origin {
	o := origin{
		Slot: r.slot.Int64, Start: r.start.Int64, Before: r.before.Int64, Application: r.application.String, Host: r.host.String,
		Port: r.port.String, Kind: Kind(r.kind.Int64), Holder: r.holder.String, Until: -1, Last: -1,
	}
	if o.Holder != "" { // LAUNCHED is meaningless in a pruned session
		o.Launched = r.launched.Time
	}
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

// originsAt returns each slot's latest session whose START_TICK is below tick. where is a condition with one value.
func (d *DB) originsAt(ctx context.Context, tick int64, where string, value int64) (found []origin, err error) {
	// One SELECT, so the result is consistent.
	err = d.sql.Query(ctx, func(rows *sql.Rows) error {
		var r originRow
		err := sqldb.Scan(rows, SessionTable, 2, r.into()...)
		found = append(found, r.origin())
		return err
	}, `SELECT `+originFields+` FROM "WORKER_SLOT" "S" JOIN `+latestSession+` WHERE `+where, tick, tick, tick, value)
	if err != nil {
		return nil, fmt.Errorf("workernode: look up the sessions of a time: %w", err)
	}
	return found, nil
}

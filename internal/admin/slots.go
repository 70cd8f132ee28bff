package admin

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/workernode"
)

// A Slot is a slot with its last holder.
type Slot struct {
	Slot        int64     `json:"slot"`
	State       string    `json:"state"`
	Application string    `json:"application"`
	Host        string    `json:"host"`
	Port        string    `json:"port"`
	Region      int64     `json:"region"` // only processes of this region hold it
	WorkerIDs   int64     `json:"worker_ids"`
	Since       time.Time `json:"since,omitzero"` // when the last holder got it
	Fence       time.Time `json:"fence"`          // no id of the slot has a later time
	Seen        time.Time `json:"seen"`           // clock of the last holder at its last statement
}

// Slots returns up to limit slots whose numbers are above the parameter last. An empty state means all states. The
// filter's time selects slots by the field Seen.
func (d *DB) Slots(ctx context.Context, state string, f Filter, last int64, limit int) (list []Slot, err error) {
	now, err := d.clock(ctx)
	if err != nil {
		return nil, err
	}
	where, args := d.maybe(state, now)
	if !f.From.IsZero() {
		where, args = where+` AND "SEEN_TICK" > ?`, append(args, d.tickFrom(f.From))
	}
	if !f.To.IsZero() {
		where, args = where+` AND "SEEN_TICK" <= ?`, append(args, d.tickFrom(f.To))
	}
	if f.Table != "" {
		condition, names := f.ofTable()
		where, args = where+` AND "ID" IN (SELECT "SLOT" FROM "WORKER_NODE" WHERE `+condition+")", append(args, names...)
	}
	for chunk := max(limit, 1000); len(list) < limit; {
		n := 0
		err := d.eachSlot(ctx, func(s workernode.Slot) {
			n, last = n+1, s.ID
			u := Slot{
				Slot: s.ID, Region: s.Region, State: s.State(now), Application: s.Application, Host: s.Host, Port: s.Port,
				Fence: s.Fence, Seen: s.Seen,
			}
			if (state == "" || u.State == state) && len(list) < limit {
				list = append(list, u)
			}
		}, where+fmt.Sprintf(` AND "ID" > ? ORDER BY "ID" LIMIT %d`, chunk), append(slices.Clone(args), last)...)
		if err != nil {
			return nil, err
		}
		if n < chunk {
			break
		}
	}
	return list, d.complete(ctx, list)
}

// recently is longer than Lead and any pause between two statements of a process. So a held slot is expired if its
// last statement and the end of its lease are longer ago than that.
const recently = 25 * time.Hour

// maybe returns a condition that is true for all slots in a state, and may be true for others.
func (d *DB) maybe(state string, now time.Time) (condition string, args []any) {
	own := fmt.Sprintf(`"REGION" = %d AND `, d.Registry.Region.N)
	switch state {
	case "":
		return "1 = 1", nil
	case "remote":
		return fmt.Sprintf(`"REGION" <> %d`, d.Registry.Region.N), nil
	case "free":
		return own + `"HOLDER" = ''`, nil
	case "retired":
		return own + `"REUSABLE" = 0`, nil
	case "expired":
		return own + `"HOLDER" <> ''`, nil
	}
	tick := max(d.Layout.TickAt(now.Add(-recently)), 0)
	return own + `"HOLDER" <> '' AND ("FENCE" > ? OR "SEEN_TICK" > ?)`, []any{tick, tick}
}

func (d *DB) eachSlot(ctx context.Context, f func(s workernode.Slot), where string, args ...any) error {
	err := d.SQL.Query(ctx, func(rows *sql.Rows) error {
		var s workernode.Slot
		var holder string
		var reusable, fence, seen int64
		if err := sqldb.Scan(rows, workernode.SlotTable, 1, &s.ID, &reusable, &fence, &holder, &seen, &s.Application, &s.Host,
			&s.Port, &s.Region); err != nil {
			return err
		}
		s.Held, s.Reusable, s.Fence, s.Seen = holder != "", reusable != 0, d.timeOf(fence), d.timeOf(seen)
		s.Remote = s.Region != d.Registry.Region.N
		f(s)
		return nil
	}, `SELECT "ID", "REUSABLE", "FENCE", "HOLDER", "SEEN_TICK", "APPLICATION", "HOST_NAME", "PORT", "REGION"
		FROM "WORKER_SLOT" WHERE `+where, args...)
	if err != nil {
		return fmt.Errorf("list slots: %w", err)
	}
	return nil
}

// complete sets WorkerIDs and Since of the slots in a list.
func (d *DB) complete(ctx context.Context, list []Slot) error {
	if len(list) == 0 {
		return nil
	}
	byID := map[int64]*Slot{}
	ids := make([]any, len(list))
	for i := range list {
		byID[list[i].Slot], ids[i] = &list[i], list[i].Slot
	}
	for _, q := range []struct {
		value, table string
		set          func(s *Slot, n int64)
	}{
		{"COUNT(*)", workernode.NodeTable, func(s *Slot, n int64) { s.WorkerIDs = n }},
		{`MAX("START_TICK")`, workernode.SessionTable, func(s *Slot, n int64) { s.Since = d.timeOf(n + 1) }},
	} {
		err := d.SQL.Query(ctx, func(rows *sql.Rows) error {
			var slot, n int64
			if err := sqldb.Scan(rows, q.table, 1, &slot, &n); err != nil {
				return err
			}
			q.set(byID[slot], n)
			return nil
		}, `SELECT "SLOT", `+q.value+` FROM "`+q.table+`" WHERE "SLOT" IN (?`+strings.Repeat(", ?", len(ids)-1)+`)
			GROUP BY "SLOT"`, ids...)
		if err != nil {
			return fmt.Errorf("list slots: %w", err)
		}
	}
	return nil
}

// countSlots counts slots by state. The database counts those not held recently, in groups of one state each.
func (d *DB) countSlots(ctx context.Context, now time.Time) (map[string]int64, error) {
	n := map[string]int64{}
	recent, ticks := d.maybe("live", now)
	err := d.eachSlot(ctx, func(s workernode.Slot) { n[s.State(now)]++ }, recent, ticks...)
	if err != nil {
		return nil, err
	}
	err = d.SQL.Query(ctx, func(rows *sql.Rows) error {
		var s workernode.Slot
		var reusable, held, slots, fence, seen int64
		err := rows.Scan(&reusable, &held, &s.Remote, &slots, &fence, &seen)
		s.Reusable, s.Held, s.Fence, s.Seen = reusable != 0, held != 0, d.timeOf(fence), d.timeOf(seen)
		n[s.State(now)] += slots
		return err
	}, `SELECT "R", "H", "O", COUNT(*), MAX("F"), MAX("T") FROM (SELECT "FENCE" AS "F", "SEEN_TICK" AS "T",
		CASE WHEN "REUSABLE" <> 0 THEN 1 ELSE 0 END AS "R", CASE WHEN "HOLDER" <> '' THEN 1 ELSE 0 END AS "H",
		"REGION" <> `+fmt.Sprint(d.Registry.Region.N)+` AS "O"
		FROM "WORKER_SLOT" WHERE NOT (`+recent+`)) "X" GROUP BY "R", "H", "O"`, ticks...)
	if err != nil {
		return nil, fmt.Errorf("count slots: %w", err)
	}
	return n, nil
}

package main

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/workernode"
)

// states lists the states of [uidplugin.Slot.State].
var states = []string{"live", "idle", "overdue", "expired", "free", "retired"}

// A slotUse is a slot with its last holder.
type slotUse struct {
	Slot        int64     `json:"slot"`
	State       string    `json:"state"`
	Application string    `json:"application"`
	Host        string    `json:"host"`
	Port        string    `json:"port"`
	WorkerIDs   int64     `json:"worker_ids"`
	Since       time.Time `json:"since,omitzero"` // when the last holder got it
	Fence       time.Time `json:"fence"`          // no id of the slot has a later time
	Seen        time.Time `json:"seen"`           // clock of the last holder at its last statement
}

func (a *app) slotsCommand() *cobra.Command {
	var after int64
	var limit int
	var state string
	var f filter
	c := &cobra.Command{
		Use:   "slots",
		Short: "List the slots: who holds them, and since when",
		Long: `slots lists the slots in the order of their numbers.

  live      a process holds it and may stamp ids
  idle      a process holds it, and has made no ids for minutes
  overdue   its process should have renewed it and has not: it has ended, is paused, cannot
            reach the database, or its clock is behind; SEEN is its last statement
  expired   the same for more than a minute, so another process may reclaim it
  free      its process released it
  retired   it is one of WithDisposable, and nobody will use it again`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkLimit(limit); err != nil {
				return err
			}
			if state != "" && !slices.Contains(states, state) {
				return fmt.Errorf("--state %q is none of %s", state, strings.Join(states, ", "))
			}
			if err := f.read(a); err != nil {
				return err
			}
			d, err := a.open(c.Context(), reads)
			if err != nil {
				return err
			}
			defer d.close()
			list, err := a.slots(c.Context(), d, state, f, after, limit+1)
			if err != nil {
				return err
			}
			return a.writeSlots(list, state, f, limit)
		},
	}
	limitFlag(c, &limit)
	filterFlags(c, &f, "slots whose last holder sent its last statement (SEEN)")
	c.Flags().Int64Var(&after, "after", 0, "only slots with a larger number")
	c.Flags().StringVar(&state, "state", "", "only slots of a state: "+strings.Join(states, ", "))
	_ = c.RegisterFlagCompletionFunc(
		"state",
		cobra.FixedCompletions(states, cobra.ShellCompDirectiveNoFileComp),
	)
	return c
}

// slots returns up to limit slots above a slot. An empty state means all.
func (a *app) slots(
	ctx context.Context,
	d *database,
	state string,
	f filter,
	after int64,
	limit int,
) (list []slotUse, err error) {
	now, err := d.now(ctx, a)
	if err != nil {
		return nil, err
	}
	where, args := d.maybe(state, now)
	if !f.from.IsZero() {
		where, args = where+` AND "SEEN_TICK" > ?`, append(args, d.tickFrom(f.from))
	}
	if !f.to.IsZero() {
		where, args = where+` AND "SEEN_TICK" <= ?`, append(args, d.tickFrom(f.to))
	}
	if f.table != "" {
		of, names := f.ofTable()
		where, args = where+` AND "ID" IN (SELECT "SLOT" FROM "WORKER_NODE" WHERE `+of+")", append(args, names...)
	}
	for chunk := max(limit, 1000); len(list) < limit; {
		n := 0
		err := d.eachSlot(ctx, func(s uidplugin.Slot) {
			n, after = n+1, s.ID
			u := slotUse{
				Slot: s.ID, State: s.State(now), Application: s.Application, Host: s.Host, Port: s.Port,
				Fence: s.Fence, Seen: s.Seen,
			}
			if (state == "" || u.State == state) && len(list) < limit {
				list = append(list, u)
			}
		}, where+fmt.Sprintf(` AND "ID" > ? ORDER BY "ID" LIMIT %d`, chunk), append(slices.Clone(args), after)...)
		if err != nil {
			return nil, err
		}
		if n < chunk {
			break
		}
	}
	return list, d.complete(ctx, list)
}

// recently is longer than Lead, and longer than a process goes without a statement. So a held slot without a statement
// and a lease for as long is expired.
const recently = 25 * time.Hour

// maybe returns a necessary condition for a state, so that few other slots are read. [uidplugin.Slot.State] decides.
func (d *database) maybe(state string, now time.Time) (condition string, args []any) {
	switch state {
	case "":
		return "1 = 1", nil
	case "free":
		return `"HOLDER" = ''`, nil
	case "retired":
		return `"REUSABLE" = 0`, nil
	case "expired":
		return `"HOLDER" <> ''`, nil
	}
	tick := max(d.layout.TickAt(now.Add(-recently)), 0)
	return `"HOLDER" <> '' AND ("FENCE" > ? OR "SEEN_TICK" > ?)`, []any{tick, tick}
}

// eachSlot calls f for each matching slot.
func (d *database) eachSlot(ctx context.Context, f func(s uidplugin.Slot), where string, args ...any) error {
	err := d.list(ctx, func(rows *sql.Rows) error {
		var s uidplugin.Slot
		var holder string
		var reusable, fence, seen int64
		if err := sqldb.Scan(rows, workernode.SlotTable, 1, &s.ID, &reusable, &fence, &holder, &seen, &s.Application, &s.Host,
			&s.Port); err != nil {
			return err
		}
		s.Held, s.Reusable, s.Fence, s.Seen = holder != "", reusable != 0, d.timeOf(fence), d.timeOf(seen)
		f(s)
		return nil
	}, `SELECT "ID", "REUSABLE", "FENCE", "HOLDER", "SEEN_TICK", "APPLICATION", "HOST_NAME", "PORT" FROM "WORKER_SLOT" WHERE `+
		where, args...)
	if err != nil {
		return fmt.Errorf("list slots: %w", err)
	}
	return nil
}

// complete sets the number of worker ids of slots, and when they were acquired.
func (d *database) complete(ctx context.Context, list []slotUse) error {
	if len(list) == 0 {
		return nil
	}
	byID := map[int64]*slotUse{}
	ids := make([]any, len(list))
	for i := range list {
		byID[list[i].Slot], ids[i] = &list[i], list[i].Slot
	}
	of := " WHERE " + d.quote("SLOT") + " IN (?" + strings.Repeat(", ?", len(ids)-1) + ") GROUP BY " + d.quote("SLOT")
	for _, q := range []struct {
		value, table string
		set          func(s *slotUse, n int64)
	}{
		{"COUNT(*)", workernode.NodeTable, func(s *slotUse, n int64) { s.WorkerIDs = n }},
		{
			"MAX(" + d.quote("START_TICK") + ")", workernode.SessionTable,
			func(s *slotUse, n int64) { s.Since = d.timeOf(n + 1) },
		},
	} {
		err := d.query(ctx, func(rows *sql.Rows) error {
			var slot, n int64
			if err := sqldb.Scan(rows, q.table, 1, &slot, &n); err != nil {
				return err
			}
			q.set(byID[slot], n)
			return nil
		}, "SELECT "+d.quote("SLOT")+", "+q.value+" FROM "+d.quote(q.table)+of, ids...)
		if err != nil {
			return fmt.Errorf("list slots: %w", err)
		}
	}
	return nil
}

// writeSlots writes a page. An extra slot at the end of list means that there are more.
func (a *app) writeSlots(list []slotUse, state string, f filter, limit int) error {
	more := len(list) > limit
	list = list[:min(len(list), limit)]
	g := newGrid(a.out, "SLOT", "STATE", "APPLICATION", "HOST", "PORT", "WORKER IDS", "SINCE", "SEEN", "FENCE")
	for _, s := range list {
		if a.json {
			if err := writeJSON(a.out, s); err != nil {
				return err
			}
			continue
		}
		g.add(
			strconv.FormatInt(s.Slot, 10),
			s.State, s.Application, s.Host, s.Port,
			strconv.FormatInt(s.WorkerIDs, 10),
			at(s.Since), at(s.Seen), at(s.Fence),
		)
	}
	if more {
		only := ""
		if state != "" {
			only = " --state " + state
		}
		only += f.args("since", "until", "table")
		defer a.more("uid slots --after %d%s", list[len(list)-1].Slot, only)
	}
	if a.json {
		return nil
	}
	return g.flush()
}

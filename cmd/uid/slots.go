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
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/workernode"
)

// states are those of [uidplugin.Slot.State].
var states = []string{"live", "idle", "overdue", "expired", "free", "retired"}

// A slotUse is a slot, and who has it.
type slotUse struct {
	Slot        int64     `json:"slot"`
	State       string    `json:"state"`
	Application string    `json:"application"` // of the last holder
	Host        string    `json:"host"`
	Port        string    `json:"port"`
	WorkerIDs   int64     `json:"worker_ids"`
	Since       time.Time `json:"since,omitzero"` // when the last holder got it
	Fence       time.Time `json:"fence"`          // nobody has stamped a later time with a worker id of the slot
	Seen        time.Time `json:"seen"`           // clock of the last holder at its last statement
}

func (a *app) slotsCommand() *cobra.Command {
	var after int64
	var limit int
	var state string
	c := &cobra.Command{
		Use:   "slots",
		Short: "List the slots: who holds them, and since when",
		Long: `slots lists the slots in the order of their numbers.

  live      a process holds it and may stamp ids
  idle      a process holds it, and has made no ids for minutes
  overdue   its process should have renewed it and has not: it has ended, is paused, or cannot
            reach the database; SEEN is its last statement
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
			d, err := a.open(c.Context(), reads)
			if err != nil {
				return err
			}
			defer d.close()
			list, err := a.slots(c.Context(), d, state, after, limit+1)
			if err != nil {
				return err
			}
			return a.writeSlots(list, state, limit)
		},
	}
	limitFlag(c, &limit)
	c.Flags().Int64Var(&after, "after", 0, "only slots with a larger number")
	c.Flags().StringVar(&state, "state", "", "only slots of a state: "+strings.Join(states, ", "))
	_ = c.RegisterFlagCompletionFunc(
		"state",
		cobra.FixedCompletions(states, cobra.ShellCompDirectiveNoFileComp),
	)
	return c
}

// slots returns up to limit slots after one, of a state or, for an empty text, of all.
func (a *app) slots(
	ctx context.Context,
	d *database,
	state string,
	after int64,
	limit int,
) (list []slotUse, err error) {
	p, err := d.plugin(a)
	if err != nil {
		return nil, err
	}
	now, err := d.now(ctx, a)
	if err != nil {
		return nil, err
	}
	for len(list) < limit {
		rows, err := p.Slots(ctx, after, min(limit, 1000))
		if err != nil {
			return nil, err
		}
		if len(rows) == 0 {
			return list, nil
		}
		after = rows[len(rows)-1].ID
		var found []slotUse
		for _, r := range rows {
			u := slotUse{
				Slot: r.ID, State: r.State(now), Application: r.Application, Host: r.Host, Port: r.Port,
				Fence: r.Fence, Seen: r.Seen,
			}
			if (state == "" || u.State == state) && len(list)+len(found) < limit {
				found = append(found, u)
			}
		}
		if err := d.complete(ctx, found); err != nil {
			return nil, err
		}
		list = append(list, found...)
	}
	return list, nil
}

// complete sets how many worker ids slots have, and since when they are held.
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

// writeSlots writes a page. The last slot of list shows that there are more.
func (a *app) writeSlots(list []slotUse, state string, limit int) error {
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
		defer a.more("uid slots --after %d%s", list[len(list)-1].Slot, only)
	}
	if a.json {
		return nil
	}
	return g.flush()
}

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/uidplugin/uidplugin"
)

func (a *app) sessionsCommand() *cobra.Command {
	var slot int64
	var limit int
	var when string
	var f filter
	c := &cobra.Command{
		Use:   "sessions",
		Short: "List which process held which slot when, the latest first",
		Long: `sessions lists which process held which slot from when on, the latest first. With --slot it also says
when the next process had the slot; "-" if none followed. "uid slots" says who holds a slot now.

With --at it lists the processes that may have made ids at a time. LAST is the time after which a process
made none, up to 10 s (Lead) after its end. A process that made no ids after the time is missing.

A session without a process stands for those that "uid sessions prune" has removed.`,
		Example: `  uid sessions --slot 7
  uid sessions --since 24h --table orders
  uid sessions --at "2026-11-22 15:04:05"`,
		Args: onlyCommands,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if when != "" {
				return a.present(c.Context(), when)
			}
			if err := errors.Join(f.read(a), checkLimit(limit)); err != nil {
				return err
			}
			d, err := a.open(c.Context(), reads)
			if err != nil {
				return err
			}
			defer d.close()
			p, err := d.plugin(a)
			if err != nil {
				return err
			}
			list, more, err := d.sessions(c.Context(), p, slot, f, limit)
			if err != nil {
				return err
			}
			return a.writeSessions(list, slot, f, more)
		},
	}
	limitFlag(c, &limit)
	c.Flags().Int64Var(&slot, "slot", 0, "only sessions of this slot")
	filterFlags(c, &f, "sessions that began")
	c.Flags().StringVar(&when, "at", "", "only processes that may have made ids at this time; all of them")
	for _, other := range []string{"slot", "since", "until", "table", "limit"} {
		c.MarkFlagsMutuallyExclusive("at", other)
	}
	c.AddCommand(a.pruneCommand())
	return c
}

// sessions returns up to limit sessions, and whether there are more. A page may be longer, because sessions that began
// at the same instant stay together.
func (d *database) sessions(
	ctx context.Context,
	p *uidplugin.Plugin,
	slot int64,
	f filter,
	limit int,
) (list []uidplugin.Session, more bool, err error) {
	of, size := map[int64]bool{}, limit
	if f.table != "" {
		size = maxPage // many sessions may belong to other tables
		where, args := f.ofTable()
		err := d.list(ctx, func(rows *sql.Rows) error {
			var slot int64
			err := rows.Scan(&slot)
			of[slot] = true
			return err
		}, `SELECT DISTINCT "SLOT" FROM "WORKER_NODE" WHERE "SLOT" IS NOT NULL AND `+where, args...)
		if err != nil {
			return nil, false, fmt.Errorf("list the slots of %s: %w", f.table, err)
		}
	}
	more = true
	for before := f.to; more && len(list) <= limit; {
		var page []uidplugin.Session
		page, more, err = sessionsBefore(ctx, p, slot, before, size)
		if err != nil {
			return nil, false, err
		}
		for _, s := range page {
			before = s.From
			if s.From.Before(f.from) {
				more = false
			} else if f.table == "" || of[s.Slot] {
				list = append(list, s)
			}
		}
	}
	if len(list) <= limit {
		return list, more, nil
	}
	end := limit
	for end < len(list) && list[end].From.Equal(list[end-1].From) {
		end++
	}
	return list[:end], more || end < len(list), nil
}

// sessionsBefore returns up to limit sessions that began before an instant, and whether there are more. It adds all
// that began at the same instant as the last one.
func sessionsBefore(
	ctx context.Context,
	p *uidplugin.Plugin,
	slot int64,
	before time.Time,
	limit int,
) (list []uidplugin.Session, more bool, err error) {
	for n := limit; ; n *= 2 {
		list, err = p.Sessions(ctx, slot, before, n+1)
		if err != nil || len(list) <= n {
			return list, false, err
		}
		next := list[n].From
		for end := n; end > 0; end-- {
			if !list[end-1].From.Equal(next) {
				return list[:end], true, nil
			}
		}
	}
}

// processCells returns the cells of a process in a list.
func processCells(s uidplugin.Session) []string {
	if s.Pruned() {
		return []string{"(pruned)", "-", "-", "-", "-"}
	}
	return []string{s.Application, s.Host, s.Port, kind(s.Kind), at(s.Launched)}
}

func (a *app) writeSessions(list []uidplugin.Session, slot int64, f filter, more bool) error {
	columns := []string{"SLOT", "FROM", "UNTIL", "APPLICATION", "HOST", "PORT", "KIND", "LAUNCHED"}
	if slot == 0 {
		columns = slices.Delete(columns, 2, 3) // unknown
	}
	g := newGrid(a.out, columns...)
	for _, s := range list {
		if a.json {
			if err := writeJSON(a.out, s); err != nil {
				return err
			}
			continue
		}
		cells := []string{strconv.FormatInt(s.Slot, 10), at(s.From)}
		if slot != 0 {
			cells = append(cells, at(s.Until))
		}
		g.add(append(cells, processCells(s)...)...)
	}
	if more {
		only := ""
		if slot != 0 {
			only = fmt.Sprintf(" --slot %d", slot)
		}
		only += f.args("since", "table")
		defer a.more("uid sessions --until %s%s", list[len(list)-1].From.Format(time.RFC3339Nano), only)
	}
	if a.json {
		return nil
	}
	return g.flush()
}

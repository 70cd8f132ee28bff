package admin

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/uidplugin/uidplugin/workernode"
)

// MaxPage is the maximum length of a list, because all rows of one statement are in memory at once.
const MaxPage = 10_000

// Sessions returns up to limit sessions of one slot, or of all slots if slot is 0, and whether there are more. The
// filter's time selects sessions by when they began. The list may be longer than limit, because sessions that began
// at the same instant stay together.
func (d *DB) Sessions(
	ctx context.Context, slot int64, f Filter, limit int,
) (list []workernode.Session, more bool, err error) {
	of, size := map[int64]bool{}, limit
	if f.Table != "" {
		size = MaxPage // many sessions may be of slots without worker ids of the table
		where, args := f.ofTable()
		err := d.SQL.Query(ctx, func(rows *sql.Rows) error {
			var slot int64
			err := rows.Scan(&slot)
			of[slot] = true
			return err
		}, `SELECT DISTINCT "SLOT" FROM "WORKER_NODE" WHERE "SLOT" IS NOT NULL AND `+where, args...)
		if err != nil {
			return nil, false, fmt.Errorf("list the slots of %s: %w", f.Table, err)
		}
	}
	more = true
	for before := f.To; more && len(list) <= limit; {
		var page []workernode.Session
		var err error
		page, more, err = d.sessionsBefore(ctx, slot, before, size)
		if err != nil {
			return nil, false, err
		}
		for _, s := range page {
			before = s.From
			if s.From.Before(f.From) {
				more = false
			} else if f.Table == "" || of[s.Slot] {
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

// sessionsBefore returns up to limit sessions, or more if too many of them began at the same instant.
func (d *DB) sessionsBefore(
	ctx context.Context, slot int64, before time.Time, limit int,
) (list []workernode.Session, more bool, err error) {
	for n := limit; ; n *= 2 {
		list, err = d.Nodes.Sessions(ctx, d.Layout, slot, before, n+1)
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

// SessionsAt returns the sessions that may have made ids at the time t, ordered by slot.
func (d *DB) SessionsAt(ctx context.Context, t time.Time) (list []workernode.Session, err error) {
	tick := d.Layout.TickAt(t)
	if tick < 0 || tick > d.Layout.MaxTick() {
		return nil, fmt.Errorf("--at %s is outside of the layout, whose ids have times from %s to %s",
			Time(t), Time(d.Layout.Epoch), Time(d.Layout.Expires()))
	}
	return d.Nodes.SessionsAt(ctx, d.Layout, tick)
}

package main

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/workernode"
)

const (
	// endSoon is the remaining time below which a layout is a finding.
	endSoon = 365 * 24 * time.Hour

	// unheld is the time after which a slot without a holder is a finding.
	unheld = 7 * 24 * time.Hour
)

// checkLayout checks the remaining time and worker ids of the layout.
func (d doctor) checkLayout(context.Context) (list []finding, err error) {
	if left := d.layout.Expires().Sub(d.app.now()); left < endSoon {
		text := fmt.Sprintf("the layout %s ends at %s UTC, in %d days: then no id can be "+
			"made", d.layout, at(d.layout.Expires()), int(left.Hours()/24))
		if left <= 0 {
			text = fmt.Sprintf("the layout %s ended at %s UTC: no id can be made", d.layout, at(d.layout.Expires()))
		}
		list = append(list, finding{Code: codeLayoutEnd, Text: text,
			Advice: "Begin a new id space, with a layout whose ids are above the present ones: docs/migrating.md, " +
				"and generator.Layout.Above."})
	}
	given, all := d.registry.NextID-1, d.layout.MaxWorkerID()
	if given > all/2 {
		text := fmt.Sprintf("%d of %d worker ids were given out, more than half, so busy tables get no further "+
			"ones (lanes)", given, all)
		if given >= all {
			text = fmt.Sprintf("all %d worker ids were given out: a table or process without one gets no ids", all)
		}
		list = append(list, finding{
			Code: codeWorkerIDs,
			Text: text,
			Advice: `"uid tables" and "uid slots" say who has them. Fewer processes at once need fewer, ` +
				`and slots of former applications can be handed on (slot-unheld). ` +
				`Otherwise begin a new id space with more worker bits: "uid plan".`,
		})
	}
	return list, nil
}

// standstill returns a finding if all held slots are late. states counts slots by state.
func standstill(states map[string]int64) []finding {
	late := states["overdue"] + states["expired"]
	if late == 0 || states["live"]+states["idle"] > 0 {
		return nil
	}
	return []finding{{
		Code: codeNoSlotLive,
		Text: fmt.Sprintf("processes hold %s and renew none (%d overdue, %d expired): they cannot write to the "+
			"database, or all have ended without Close", count(late, "slot", "slots"), states["overdue"], states["expired"]),
		Advice: `If they run, their logs have the reason, and creates fail until the database accepts their statements ` +
			`again. "uid slots" has their last statements.`,
	}}
}

// checkSlots looks for a standstill of all processes, and for slots without a holder for a long time whose applications
// hold no others.
func (d doctor) checkSlots(ctx context.Context) (list []finding, err error) {
	now, err := d.now(ctx, d.app)
	if err != nil {
		return nil, err
	}
	states, err := d.slotStates(ctx, now)
	if err != nil {
		return nil, err
	}
	list = standstill(states)
	tick := max(d.layout.TickAt(now.Add(-unheld)), 0)
	q := d.quote
	application, idle := q("S.APPLICATION"), q("S.FENCE")+" < ? AND ("+q("S.HOLDER")+" = '' OR "+q("S.SEEN_TICK")+" < ?)"
	err = d.query(ctx, func(rows *sql.Rows) error {
		var name string
		var slots, workers, fence int64
		if err := sqldb.Scan(rows, workernode.SlotTable, 1, &name, &slots, &workers, &fence); err != nil {
			return err
		}
		list = append(list, finding{
			Code: codeSlotUnheld,
			Text: fmt.Sprintf("nobody has held any of the %s of the application %q since %s UTC; with them come "+
				"%s, which no other application gets while there are new "+
				"ones", count(slots, "slot", "slots"), name, at(d.timeOf(fence)), count(workers, "worker id", "worker ids")),
			Advice: "If the application has another name now, the statement lets it have them. If it is gone for " +
				"good, nothing needs to be done while there are worker ids left.",
			Fix: fmt.Sprintf("UPDATE %s SET %[2]s = 'NEW NAME' WHERE %[2]s = %[3]s",
				q(workernode.SlotTable), q("APPLICATION"), d.literal(name)),
		})
		return nil
	}, fmt.Sprintf(
		`SELECT %[1]s, COUNT(*), COALESCE(SUM(%[2]s), 0), MAX(%[3]s) FROM %[4]s %[5]s LEFT JOIN
		(SELECT %[6]s, COUNT(*) AS %[7]s FROM %[8]s GROUP BY %[6]s) %[9]s ON %[10]s = %[11]s
		WHERE %[12]s = 1 GROUP BY %[1]s HAVING COUNT(*) = SUM(CASE WHEN %[13]s THEN 1 ELSE 0 END) ORDER BY %[1]s LIMIT 100`,
		application, q("N.WORKERS"), q("S.FENCE"), q(workernode.SlotTable), q("S"), q("SLOT"), q("WORKERS"),
		q(workernode.NodeTable), q("N"), q("N.SLOT"), q("S.ID"), q("S.REUSABLE"), idle,
	), tick, tick)
	return list, err
}

// checkSessions looks for held slots without a session.
func (d doctor) checkSessions(ctx context.Context) (list []finding, err error) {
	q := d.quote
	err = d.query(ctx, func(rows *sql.Rows) error {
		var slot int64
		err := rows.Scan(&slot)
		list = append(list, finding{
			Code:   codeSessionDeleted,
			Text:   fmt.Sprintf("the session of the process that holds the slot %d was deleted from WORKER_SESSION: its ids resolve to another process, or to none", slot),
			Advice: `Restore the row from a backup. Only "uid sessions prune" may remove sessions. A restart of the process begins a new one.`,
		})
		return err
	}, fmt.Sprintf(`SELECT %s FROM %s %s LEFT JOIN %s %s ON %[6]s = %[1]s AND %[7]s = %[8]s WHERE %[8]s <> '' AND %[6]s IS NULL
		ORDER BY %[1]s LIMIT 100`, q("S.ID"), q(workernode.SlotTable), q("S"), q(workernode.SessionTable), q("X"),
		q("X.SLOT"), q("X.HOLDER"), q("S.HOLDER")))
	return list, err
}

// literal returns an SQL literal for a statement that people run.
func (d doctor) literal(text string) string {
	text = strings.ReplaceAll(text, "'", "''")
	if d.dialect == mysqlDialect {
		text = strings.ReplaceAll(text, `\`, `\\`)
	}
	return "'" + text + "'"
}

// checkNodes looks for rows of WORKER_NODE whose ids cannot be located.
func (d doctor) checkNodes(ctx context.Context) (list []finding, err error) {
	q := d.quote
	ours := q("SLOT") + " IS NOT NULL AND " + q("SLOT") + " <> 0"
	inside := fmt.Sprintf("%s BETWEEN 1 AND %d", q("ID"), d.layout.MaxWorkerID())
	node := q(workernode.NodeTable)
	for _, kind := range []struct {
		finding
		where string
	}{
		{finding{Code: codeNodeForeign, Text: "%s of WORKER_NODE: inserted by another program, such as " +
			"UidGenerator: its ids do not resolve, and its worker ids are never given out here",
			Advice: "Nothing needs to be done, even if it goes on: see docs/migrating.md. The rows may " +
				"stay."}, "NOT (" + ours + ") AND " + inside},
		{finding{Code: codeNodeOutside, Text: "%s of WORKER_NODE: the ID is no worker id of the layout, which has " +
			"1 to " + fmt.Sprint(d.layout.MaxWorkerID()) + ", and is never used",
			Advice: "Delete them, if no row has an id with such a worker id.",
			Fix:    "DELETE FROM " + node + " WHERE NOT (" + inside + ")"}, "NOT (" + inside + ")"},
		{finding{Code: codeNodeLayout, Text: "%s of WORKER_NODE: of another layout than " +
			"" + d.layout.String() + ", so ids do not resolve",
			Advice: "They are of another id space, as after a copy of rows. Keep them apart: docs/several-databases.md."},
			ours + " AND " + inside + " AND " + q("LAYOUT") + " <> " + d.literal(d.layout.String())},
		{finding{Code: codeNodeSlot, Text: "%s of WORKER_NODE: of a slot that WORKER_SLOT does not have, so ids do " +
			"not resolve, as after a restore of some tables only",
			Advice: "Restore WORKER_SLOT and WORKER_SESSION of the same moment: docs/failures.md, on databases that " +
				"lose commits."},
			ours + " AND " + inside + " AND " + q("X") + " IS NULL"},
	} {
		from := node
		if kind.Code == codeNodeSlot { // a join, because NOT EXISTS takes ten times as long on MariaDB
			from += fmt.Sprintf(" LEFT JOIN (SELECT %s AS %s FROM %s) %s ON %[2]s = %[5]s", q("ID"), q("X"),
				q(workernode.SlotTable), q("S"), q("SLOT"))
		}
		var n int64
		err := d.query(ctx, func(rows *sql.Rows) error { return rows.Scan(&n) }, "SELECT COUNT(*) FROM "+from+" WHERE "+kind.where)
		if err != nil {
			return list, err
		}
		if n > 0 {
			kind.Text = fmt.Sprintf(kind.Text, count(n, "row", "rows"))
			list = append(list, kind.finding)
		}
	}
	return list, nil
}

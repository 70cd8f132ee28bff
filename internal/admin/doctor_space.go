package admin

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/workernode"
)

const (
	// endSoon is the time left below which the doctor reports a layout.
	endSoon = 365 * 24 * time.Hour

	// unheld is the time without a holder of any slot, after which the doctor reports an application.
	unheld = 7 * 24 * time.Hour
)

// checkLayout checks the remaining time and worker ids of the layout.
func (d *DB) checkLayout(context.Context) (list []Finding, err error) {
	if left := d.Layout.Expires().Sub(d.Now()); left < endSoon {
		text := fmt.Sprintf("the layout %s ends at %s UTC, in %d days: after that no ids can be "+
			"made", d.Layout, Time(d.Layout.Expires()), int(left.Hours()/24))
		if left <= 0 {
			text = fmt.Sprintf("the layout %s ended at %s UTC: no ids can be made", d.Layout, Time(d.Layout.Expires()))
		}
		list = append(list, Finding{Code: CodeLayoutEnd, Text: text,
			Advice: "Begin a new id space, with a layout whose ids are above the present ones; see docs/migrating.md " +
				"and generator.Layout.Above."})
	}
	given, all := d.given()
	if given > all/2 {
		ids := "worker ids"
		if r := d.Region(); r.Divided() {
			ids += " of " + r.String()
		}
		text := fmt.Sprintf("%d of %d %s were given out, more than half, so busy tables get no further "+
			"ones (lanes)", given, all, ids)
		if given >= all {
			text = fmt.Sprintf("all %d %s were given out: a table or process without one gets no ids", all, ids)
		}
		list = append(list, Finding{
			Code: CodeWorkerIDs,
			Text: text,
			Advice: `"uid tables" and "uid slots" list the owners. Run fewer processes at once, or reuse the slots of ` +
				`former applications (slot-unheld). ` +
				`Otherwise begin a new id space with more worker bits; see "uid plan".`,
		})
	}
	return list, nil
}

// standstill returns a finding if all held slots are overdue or expired.
func standstill(states map[string]int64) []Finding {
	late := states["overdue"] + states["expired"]
	if late == 0 || states["live"]+states["idle"] > 0 {
		return nil
	}
	return []Finding{{
		Code: CodeNoSlotLive,
		Text: fmt.Sprintf("processes hold %s but have not renewed any (%d overdue, %d expired): they cannot write to the "+
			"database, or all have ended without Close", Count(late, "slot", "slots"), states["overdue"], states["expired"]),
		Advice: `If they run, see their logs for the reason; creates fail until the database accepts their statements ` +
			`again. "uid slots" lists the times of their last statements.`,
	}}
}

// checkSlots looks for a standstill of all processes, and for applications whose slots nobody has held for long.
func (d *DB) checkSlots(ctx context.Context) (list []Finding, err error) {
	now, err := d.clock(ctx)
	if err != nil {
		return nil, err
	}
	states, err := d.countSlots(ctx, now)
	if err != nil {
		return nil, err
	}
	list = standstill(states)
	own := "" // the doctor examines slots of another region in that region
	if r := d.Registry.Region; r != workernode.Whole || states["remote"] > 0 {
		own = fmt.Sprintf(`"REGION" = %d AND `, r.N)
	}
	tick := max(d.Layout.TickAt(now.Add(-unheld)), 0)
	err = d.SQL.Query(ctx, func(rows *sql.Rows) error {
		var name string
		var slots, workers, fence int64
		if err := sqldb.Scan(rows, workernode.SlotTable, 1, &name, &slots, &workers, &fence); err != nil {
			return err
		}
		list = append(list, Finding{
			Code: CodeSlotUnheld,
			Text: fmt.Sprintf("no process of the application %q has held its %s since %s UTC; other applications get "+
				"its %s only when no new worker ids are left",
				name, Count(slots, "slot", "slots"), Time(d.timeOf(fence)), Count(workers, "worker id", "worker ids")),
			Advice: "If the application has a new name, run the statement with that name. If it no longer exists, do " +
				"nothing until worker ids run out.",
			Fix: d.SQL.Translate(`UPDATE "WORKER_SLOT" SET "APPLICATION" = 'NEW NAME' WHERE `+own+`"APPLICATION" = `) +
				d.literal(name),
		})
		return nil
	}, `SELECT "S"."APPLICATION", COUNT(*), COALESCE(SUM("N"."WORKERS"), 0), MAX("S"."FENCE") FROM "WORKER_SLOT" "S"
		LEFT JOIN (SELECT "SLOT", COUNT(*) AS "WORKERS" FROM "WORKER_NODE" GROUP BY "SLOT") "N" ON "N"."SLOT" = "S"."ID"
		WHERE `+own+`"S"."REUSABLE" = 1 GROUP BY "S"."APPLICATION" HAVING COUNT(*) = SUM(CASE WHEN "S"."FENCE" < ? AND
		("S"."HOLDER" = '' OR "S"."SEEN_TICK" < ?) THEN 1 ELSE 0 END) ORDER BY "S"."APPLICATION" LIMIT 100`, tick, tick)
	return list, err
}

// checkSessions looks for held slots of this region without sessions. Other regions may send their sessions later.
func (d *DB) checkSessions(ctx context.Context) (list []Finding, err error) {
	err = d.SQL.Query(ctx, func(rows *sql.Rows) error {
		var slot int64
		err := rows.Scan(&slot)
		list = append(list, Finding{
			Code: CodeSessionDeleted,
			Text: fmt.Sprintf("the session of the process that holds slot %d was deleted from WORKER_SESSION, so its ids "+
				"resolve to another process, or to none", slot),
			Advice: `Restore the row from a backup. Only "uid sessions prune" may remove sessions. ` +
				"A restart of the process begins a new one.",
		})
		return err
	}, `SELECT "S"."ID" FROM "WORKER_SLOT" "S" LEFT JOIN "WORKER_SESSION" "X" ON "X"."SLOT" = "S"."ID" AND
		"X"."HOLDER" = "S"."HOLDER" WHERE "S"."HOLDER" <> '' AND "X"."SLOT" IS NULL AND "S"."REGION" = ?
		ORDER BY "S"."ID" LIMIT 100`, d.Registry.Region.N)
	return list, err
}

// literal returns an SQL literal for a statement that people run.
func (d *DB) literal(text string) string {
	text = strings.ReplaceAll(text, "'", "''")
	if d.SQL.Dialect() == mysql {
		text = strings.ReplaceAll(text, `\`, `\\`)
	}
	return "'" + text + "'"
}

// ours is the condition for rows of WORKER_NODE that this library has inserted.
const ours = `"SLOT" IS NOT NULL AND "SLOT" <> 0`

// checkMissing looks for a WORKER_NODE that has lost all rows of this library.
func (d *DB) checkMissing(ctx context.Context) (list []Finding, err error) {
	given, _ := d.given()
	if given == 0 {
		return nil, nil
	}
	missing := false
	err = d.SQL.Query(ctx, func(rows *sql.Rows) error { return rows.Scan(&missing) },
		fmt.Sprintf(`SELECT EXISTS (SELECT 1 FROM "WORKER_SLOT" WHERE "REGION" = %d) AND NOT EXISTS (SELECT 1 FROM "WORKER_NODE" WHERE `+
			ours+`)`, d.Registry.Region.N)) // without slots, only rows of other programs may have raised NEXT_ID
	if !missing {
		return nil, err
	}
	f := Finding{Code: CodeNodeMissing,
		Text: fmt.Sprintf("WORKER_NODE has no row of this library, although WORKER_REGISTRY has given out %s: somebody has emptied "+
			"or replaced the table, so ids do not resolve", Count(given, "worker id", "worker ids")),
		Advice: "Restore the rows from a backup. Running processes go on, and insert rows only for further worker ids."}
	if d.Registry.Shared {
		f.Advice = fmt.Sprintf("UidGenerator may give out worker ids of running processes, so end the Java services first. Restore the "+
			"rows, and run ALTER TABLE WORKER_NODE AUTO_INCREMENT = %d.", d.Registry.NextID)
	}
	return []Finding{f}, err
}

// checkNodes looks for rows of WORKER_NODE whose ids cannot be located, or may be made twice.
func (d *DB) checkNodes(ctx context.Context) (list []Finding, err error) {
	list, err = d.checkMissing(ctx)
	if err != nil {
		return list, err
	}
	inside := fmt.Sprintf(`"ID" BETWEEN 1 AND %d`, d.Layout.MaxWorkerID())
	outside, remove := "Delete them if no row has an id with such a worker id.", d.SQL.Translate(`DELETE FROM "WORKER_NODE" WHERE NOT (`+inside+")")
	if d.Registry.Shared {
		outside, remove = "If the rows are of Java services with UidGenerator, keep them: those services have another layout; see "+
			"docs/from-uidgenerator.md.", ""
	}
	for _, kind := range []struct {
		Finding
		where string
	}{
		{Finding{Code: CodeNodeForeign, Text: "%s of WORKER_NODE from another program, such as UidGenerator: " +
			"its ids do not resolve, and processes of this library never use its worker ids",
			Advice: "Keep the rows. Nothing needs to be done, even if the program inserts more; see " +
				"docs/migrating.md."}, "NOT (" + ours + ") AND " + inside},
		{Finding{Code: CodeNodeOutside, Text: "%s of WORKER_NODE with an ID outside of the layout's worker ids, 1 to " +
			fmt.Sprint(d.Layout.MaxWorkerID()) + ": such an ID is never used",
			Advice: outside, Fix: remove}, "NOT (" + inside + ")"},
		{Finding{Code: CodeNodeByHand, Text: "%s of WORKER_NODE with an ID below FIRST_ID of WORKER_REGISTRY, " +
			fmt.Sprint(d.Registry.FirstID) + ", so processes may have been given it by hand (WithWorkerID), and two rows could " +
			"get the same id", Advice: "Stop the processes with such numbers and set FIRST_ID back; see docs/layouts.md."},
			fmt.Sprintf(ours+` AND "ID" BETWEEN 1 AND %d`, d.Registry.FirstID-1)},
		{Finding{Code: CodeNodeLayout, Text: "%s of WORKER_NODE with another layout than " +
			d.Layout.String() + ", so their ids do not resolve",
			Advice: "They belong to another id space, perhaps because rows were copied. Keep id spaces apart; see " +
				"docs/several-databases.md."},
			ours + " AND " + inside + ` AND "LAYOUT" <> ` + d.literal(d.Layout.String())},
		{Finding{Code: CodeNodeSlot, Text: "%s of WORKER_NODE with a slot that is missing from WORKER_SLOT, so their ids " +
			"do not resolve; perhaps only some tables were restored, or replicated from another region",
			Advice: "Restore or replicate WORKER_SLOT and WORKER_SESSION from the same moment; see docs/failures.md about " +
				"databases that lose commits."},
			ours + " AND " + inside + ` AND "X" IS NULL`},
	} {
		from := `"WORKER_NODE"`
		if kind.Code == CodeNodeSlot { // a join, because NOT EXISTS takes ten times as long on MariaDB
			from += ` LEFT JOIN (SELECT "ID" AS "X" FROM "WORKER_SLOT") "S" ON "X" = "SLOT"`
		}
		var n int64
		err := d.SQL.Query(ctx, func(rows *sql.Rows) error { return rows.Scan(&n) },
			"SELECT COUNT(*) FROM "+from+" WHERE "+kind.where)
		if err != nil {
			return list, err
		}
		if n > 0 {
			kind.Text = fmt.Sprintf(kind.Text, Count(n, "row", "rows"))
			list = append(list, kind.Finding)
		}
	}
	return list, nil
}

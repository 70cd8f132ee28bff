package main

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/workernode"
)

// A tableUse is what worker ids there are of a table.
type tableUse struct {
	Database  string    `json:"database,omitempty"` // empty for the database of WORKER_NODE
	Table     string    `json:"table"`              // "*" for all tables; empty for spares
	WorkerIDs int64     `json:"worker_ids"`
	Slots     int64     `json:"slots"`
	Held      int64     `json:"held"`             // slots that a process holds, or ended without releasing
	Since     time.Time `json:"since,omitzero"`   // no id of the table is older
	Until     time.Time `json:"until,omitzero"`   // no id of the table is newer; zero for a row without a slot
	Foreign   bool      `json:"foreign,omitzero"` // rows of another program, such as UidGenerator
}

// A tablePage says which tables are listed: the first ones, or those after a name.
type tablePage struct {
	after           bool
	database, table string
	limit           int
}

func (a *app) tablesCommand() *cobra.Command {
	var p tablePage
	c := &cobra.Command{
		Use:   "tables",
		Short: "List the tables that have worker ids",
		Long: `tables lists the tables that have worker ids, in the order of their names: how many worker ids, of how
many slots, how many of these a process holds, and between which times ids of the table can lie.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkLimit(p.limit); err != nil {
				return err
			}
			d, err := a.open(c.Context(), reads)
			if err != nil {
				return err
			}
			defer d.close()
			p.after = c.Flags().Changed("after") || c.Flags().Changed("after-database")
			list, err := d.tables(c.Context(), p)
			if err != nil {
				return err
			}
			more := len(list) > p.limit
			list = list[:min(len(list), p.limit)]
			if !p.after {
				others, err := d.otherNodes(c.Context())
				if err != nil {
					return err
				}
				list = append(others, list...)
			}
			return a.writeTables(list, more)
		},
	}
	limitFlag(c, &p.limit)
	c.Flags().StringVar(&p.table, "after", "", "only tables after this one")
	c.Flags().StringVar(&p.database, "after-database", "", "with --after: the database of that table")
	return c
}

// tables returns a page of tables, and one table more if there are more. The database counts.
func (d *database) tables(ctx context.Context, p tablePage) (list []tableUse, err error) {
	q := d.quote
	name, table := q("N.DATABASE_NAME"), q("N.TABLE_NAME")
	after, args := "", []any(nil)
	if p.after {
		after = " AND (" + name + " > ? OR " + name + " = ? AND " + table + " > ?)"
		args = []any{p.database, p.database, p.table}
	}
	err = d.query(ctx, func(rows *sql.Rows) error {
		var t tableUse
		var start int64
		var fence sql.NullInt64
		if err := sqldb.Scan(rows, workernode.NodeTable+" or "+workernode.SlotTable, 2, &t.Database, &t.Table, &t.WorkerIDs, &t.Slots, &t.Held, &start, &fence); err != nil {
			return err
		}
		t.Since = d.timeOf(start + 1)
		if fence.Valid {
			t.Until = d.timeOf(fence.Int64)
		}
		list = append(list, t)
		return nil
	}, fmt.Sprintf(`SELECT %[1]s, %[2]s, COUNT(*), COUNT(DISTINCT %[3]s),
		COUNT(DISTINCT CASE WHEN %[4]s <> '' THEN %[3]s END), MIN(%[5]s), MAX(%[6]s)
		FROM %[7]s %[8]s LEFT JOIN %[9]s %[10]s ON %[11]s = %[3]s WHERE %[3]s IS NOT NULL%[12]s
		GROUP BY %[1]s, %[2]s ORDER BY %[1]s, %[2]s LIMIT %[13]d`,
		name, table, q("N.SLOT"), q("S.HOLDER"), q("N.START_TICK"), q("S.FENCE"), q(workernode.NodeTable), q("N"),
		q(workernode.SlotTable), q("S"), q("S.ID"), after, p.limit+1), args...)
	if err != nil {
		return nil, fmt.Errorf("list tables: %w", err)
	}
	return list, nil
}

// otherNodes returns the rows of another program, if there are any: they have no table.
func (d *database) otherNodes(ctx context.Context) ([]tableUse, error) {
	t := tableUse{Foreign: true}
	err := d.query(ctx, func(rows *sql.Rows) error { return rows.Scan(&t.WorkerIDs) },
		"SELECT COUNT(*) FROM "+d.quote(workernode.NodeTable)+" WHERE "+d.quote("SLOT")+" IS NULL")
	if err != nil || t.WorkerIDs == 0 {
		return nil, err
	}
	return []tableUse{t}, nil
}

// writeTables writes a page.
func (a *app) writeTables(list []tableUse, more bool) error {
	g := newGrid(a.out, "TABLE", "WORKER IDS", "SLOTS", "HELD", "SINCE", "UNTIL")
	for _, t := range list {
		if a.json {
			if err := writeJSON(a.out, t); err != nil {
				return err
			}
			continue
		}
		n := func(i int64) string { return strconv.FormatInt(i, 10) }
		g.add(t.name(), n(t.WorkerIDs), n(t.Slots), n(t.Held), at(t.Since), at(t.Until))
	}
	if more {
		last := list[len(list)-1]
		database := ""
		if last.Database != "" {
			database = fmt.Sprintf(" --after-database %q", last.Database)
		}
		defer a.more("uid tables --after %q%s", last.Table, database)
	}
	if a.json {
		return nil
	}
	return g.flush()
}

// name returns the name of the table for people.
func (t tableUse) name() string {
	switch {
	case t.Foreign:
		return "(another program)"
	case t.Table == "":
		return "(spare)"
	case t.Table == workernode.AllTables:
		return "(all tables)"
	}
	return workernode.Table{Database: t.Database, Name: t.Table}.String()
}

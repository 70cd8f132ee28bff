package main

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/workernode"
)

// A tableUse describes the worker ids of a table.
type tableUse struct {
	Database  string    `json:"database,omitempty"` // empty for the registry's
	Table     string    `json:"table"`              // "*" for all tables; empty in a row of another program
	WorkerIDs int64     `json:"worker_ids"`
	Slots     int64     `json:"slots"`
	Held      int64     `json:"held"`             // slots that a process holds, or has not released
	Since     time.Time `json:"since,omitzero"`   // no id of the table is older
	Until     time.Time `json:"until,omitzero"`   // no id of the table is newer; zero without a slot
	Foreign   bool      `json:"foreign,omitzero"` // rows of another program, such as UidGenerator
}

// A tablePage selects tables: the first ones, or those after a name.
type tablePage struct {
	after           bool
	database, table string
	limit           int
	only            filter
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
			if err := p.only.read(a); err != nil {
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
			if !p.after && p.only == (filter{}) {
				others, err := d.otherNodes(c.Context())
				if err != nil {
					return err
				}
				list = append(others, list...)
			}
			return a.writeTables(list, p.only, more)
		},
	}
	limitFlag(c, &p.limit)
	filterFlags(c, &p.only, "tables that may have ids")
	c.Flags().StringVar(&p.table, "after", "", "only tables after this one")
	c.Flags().StringVar(&p.database, "after-database", "", "with --after: the database of that table")
	return c
}

// tables returns a page of tables, and one more if there are more. It reads all worker ids and counts here, because
// MariaDB takes a minute, and temporary files, to count the distinct slots of a million worker ids.
func (d *database) tables(ctx context.Context, p tablePage) ([]tableUse, error) {
	type key struct {
		of   *tableUse
		slot int64
	}
	uses, known := map[workernode.Table]*tableUse{}, map[key]bool{}
	where, args := p.only.ofTable()
	err := d.list(ctx, func(rows *sql.Rows) error {
		var of workernode.Table
		var slot, start int64
		var held bool
		var fence sql.NullInt64
		if err := sqldb.Scan(rows, workernode.NodeTable+" or "+workernode.SlotTable, 2, &of.Database, &of.Name, &slot, &start,
			&held, &fence); err != nil {
			return err
		}
		t := uses[of]
		if t == nil {
			t = &tableUse{Database: of.Database, Table: of.Name, Since: d.timeOf(start + 1)}
			uses[of] = t
		}
		t.WorkerIDs++
		if since := d.timeOf(start + 1); since.Before(t.Since) {
			t.Since = since
		}
		if until := d.timeOf(fence.Int64); fence.Valid && until.After(t.Until) {
			t.Until = until
		}
		if k := (key{t, slot}); !known[k] {
			known[k] = true
			t.Slots++
			if held {
				t.Held++
			}
		}
		return nil
	}, `SELECT "DATABASE_NAME", "TABLE_NAME", "SLOT", "START_TICK", "S"."HOLDER" <> '' AND "S"."HOLDER" IS NOT NULL, "S"."FENCE"
		FROM "WORKER_NODE" LEFT JOIN "WORKER_SLOT" "S" ON "S"."ID" = "SLOT" WHERE "SLOT" IS NOT NULL AND `+where, args...)
	if err != nil {
		return nil, fmt.Errorf("list tables: %w", err)
	}
	var list []tableUse
	for _, t := range uses {
		after := !p.after || t.Database > p.database || t.Database == p.database && t.Table > p.table
		ended := !p.only.from.IsZero() && t.Until.Before(p.only.from)
		begun := p.only.to.IsZero() || t.Since.Before(p.only.to)
		if after && !ended && begun {
			list = append(list, *t)
		}
	}
	slices.SortFunc(list, func(a, b tableUse) int {
		return cmp.Or(strings.Compare(a.Database, b.Database), strings.Compare(a.Table, b.Table))
	})
	return list[:min(len(list), p.limit+1)], nil
}

// otherNodes returns the rows of other programs, which do not have a table.
func (d *database) otherNodes(ctx context.Context) ([]tableUse, error) {
	t := tableUse{Foreign: true}
	err := d.query(ctx, func(rows *sql.Rows) error { return rows.Scan(&t.WorkerIDs) },
		"SELECT COUNT(*) FROM "+d.quote(workernode.NodeTable)+" WHERE "+d.quote("SLOT")+" IS NULL")
	if err != nil || t.WorkerIDs == 0 {
		return nil, err
	}
	return []tableUse{t}, nil
}

func (a *app) writeTables(list []tableUse, f filter, more bool) error {
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
		defer a.more("uid tables --after %q%s%s", last.Table, database, f.args("since", "until", "table"))
	}
	if a.json {
		return nil
	}
	return g.flush()
}

func (t tableUse) name() string {
	switch {
	case t.Foreign:
		return "(another program)"
	case t.Table == "":
		return "(no table)"
	case t.Table == workernode.AllTables:
		return "(all tables)"
	}
	return workernode.Table{Database: t.Database, Name: t.Table}.String()
}

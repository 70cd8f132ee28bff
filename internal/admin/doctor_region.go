package admin

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/workernode"
)

// checkRegions looks for worker ids and slots that two registries give out.
func (d *DB) checkRegions(ctx context.Context) (list []Finding, err error) {
	ahead, err := d.findAhead(ctx, d)
	if err != nil {
		return nil, err
	}
	if ahead.any() {
		list = append(list, Finding{
			Code: CodeRegionShared,
			Text: fmt.Sprintf("the tables have %s, which this registry has not given out (%s): another registry gives "+
				"out the same numbers, or a restore has lowered the counter, so two rows could get the same id",
				ahead, ahead.counters()),
			Advice: "Look for another registry first: a clone of this database, or a database of the same region, may have one, " +
				`and "uid doctor --region DSN" compares it. If there is none, run the statement.`,
			Fix: d.SQL.Translate(ahead.raise()),
		})
	}
	for _, other := range d.Regions {
		found, err := d.compare(ctx, other)
		list = append(list, found...)
		if err != nil {
			return list, fmt.Errorf("compare with %s: %w", other.registryName(), err)
		}
	}
	return list, nil
}

// registryName returns a text such as "region 1 of 2, id space q2xw7mzkd5t4a".
func (d *DB) registryName() string {
	return d.Registry.Region.String() + ", id space " + d.Registry.Space
}

func (d *DB) compare(ctx context.Context, other *DB) (list []Finding, err error) {
	a, b, name := d.Registry, other.Registry, other.registryName()
	found := func(advice, format string, args ...any) {
		list = append(list, Finding{Code: CodeRegionShared, Text: fmt.Sprintf(format, args...), Advice: advice})
	}
	switch {
	case a.Space == b.Space:
		found("Pass the database of another region. If it is a clone whose processes make ids, stop them, and begin a "+
			"region there; see docs/regions.md.",
			"the database of --region has this registry (id space %s), so it is the same database, a replica or a clone: "+
				"if processes make ids in a clone, two rows could get the same id", a.Space)
		return list, nil
	case a.Layout != b.Layout:
		found("Use one layout in all regions: begin one of the registries again, with the layout of the other.",
			"the registry of --region (%s) has the layout %s and this one %s, so two rows could get the same id",
			name, b.Layout, a.Layout)
		return list, nil
	case meet(a.Region, b.Region):
		found(`Stop the processes of one of the two databases. Divide the other registry with "uid region split", and `+
			"begin a new region in the database without processes; see docs/regions.md.",
			"the registry of --region (%s) and this one (%s) give out the same numbers, so two rows could get the same id",
			name, a.Region)
	default:
		for _, pair := range []struct {
			in, of    *DB
			inThis    string
			whose, at string
		}{
			{other, d, "the database of --region (" + name + ")", "this registry", "in this database"},
			{d, other, "this database", "the registry of --region (" + name + ")", "in that database"},
		} {
			ahead, err := pair.in.findAhead(ctx, pair.of)
			if err != nil {
				return list, err
			}
			if ahead.any() {
				found("A region began below the numbers that another one had given out before it was divided, or NEXT_ID and "+
					"NEXT_SLOT were lowered by a restore. Run "+pair.at+": "+pair.of.SQL.Translate(ahead.raise())+";",
					"%s has %s, which %s will give out again: %s", pair.inThis, ahead, pair.whose, ahead.counters())
			}
		}
	}
	n, first, err := d.sharedNodes(ctx, other)
	if n > 0 {
		found("Their tables may have rows with the same ids, which merging or replicating them would lose. Stop the "+
			"processes of the region that began too low, and begin it again above these numbers; see docs/regions.md.",
			"%s (the first is %d) belong to other slots or tables in the database of --region (%s) than in this one: two "+
				"rows may have the same id", Count(n, "worker id", "worker ids"), first, name)
	}
	return list, err
}

// meet reports whether two regions have numbers in common.
func meet(a, b workernode.Region) bool {
	divisor := a.Of // becomes the greatest common divisor
	for rest := b.Of; rest != 0; {
		divisor, rest = rest, divisor%rest
	}
	return a.N%divisor == b.N%divisor
}

// numbersAhead are worker ids and slots in use that a registry has not given out yet.
type numbersAhead struct {
	workers, slots []int64 // the largest first
	of             workernode.Registry
}

func (a numbersAhead) any() bool { return len(a.workers)+len(a.slots) > 0 }

// findAhead returns the worker ids and slots in d's tables that the registry of the database original has not given
// out yet. It reads the counters after the rows, because a process raises a counter before it inserts a row. A
// replicated row of another region causes no false alarm: if its number now belongs to original's region, the other
// region gave it out before a division, and original's counters began above it.
func (d *DB) findAhead(ctx context.Context, original *DB) (a numbersAhead, err error) {
	r := original.Registry.Region
	gives := fmt.Sprintf(`("REGION" = %d OR %s = %d)`, r.N, d.SQL.Mod(`"N"."ID"`, r.Of), r.N)
	for _, q := range []struct {
		least int64
		from  string
		list  *[]int64
	}{
		{original.Registry.NextID, `"WORKER_NODE" "N" JOIN "WORKER_SLOT" "S" ON "S"."ID" = "N"."SLOT"`, &a.workers},
		{original.Registry.NextSlot, `"WORKER_SLOT" "N"`, &a.slots},
	} {
		most := ""
		if q.list == &a.workers { // checkNodes reports larger worker ids
			most = fmt.Sprintf(` AND "N"."ID" <= %d`, d.Layout.MaxWorkerID())
		}
		err := d.SQL.Query(ctx, func(rows *sql.Rows) error {
			var n int64
			err := rows.Scan(&n)
			*q.list = append(*q.list, n)
			return err
		}, `SELECT "N"."ID" FROM `+q.from+` WHERE "N"."ID" >= ? AND `+gives+most+` ORDER BY "N"."ID" DESC`, q.least)
		if err != nil {
			return a, fmt.Errorf("look for numbers above those of the registry: %w", err)
		}
	}
	if a.of, err = original.Nodes.Registry(ctx); err != nil {
		return a, err
	}
	a.workers = slices.DeleteFunc(a.workers, func(n int64) bool { return n < a.of.NextID })
	a.slots = slices.DeleteFunc(a.slots, func(n int64) bool { return n < a.of.NextSlot })
	return a, nil
}

// String returns a text such as "2 worker ids up to 17 and 1 slot up to 3".
func (a numbersAhead) String() string {
	var texts []string
	add := func(list []int64, one, more string) {
		if len(list) > 0 {
			texts = append(texts, fmt.Sprintf("%s up to %d", Count(int64(len(list)), one, more), list[0]))
		}
	}
	add(a.workers, "worker id", "worker ids")
	add(a.slots, "slot", "slots")
	return strings.Join(texts, " and ")
}

func (a numbersAhead) counters() string {
	var texts []string
	if len(a.workers) > 0 {
		texts = append(texts, fmt.Sprintf("NEXT_ID is %d", a.of.NextID))
	}
	if len(a.slots) > 0 {
		texts = append(texts, fmt.Sprintf("NEXT_SLOT is %d", a.of.NextSlot))
	}
	return strings.Join(texts, " and ")
}

func (a numbersAhead) raise() string {
	var set []string
	add := func(counter string, list []int64) {
		if len(list) > 0 {
			set = append(set, fmt.Sprintf(`"%[1]s" = CASE WHEN "%[1]s" > %[2]d THEN "%[1]s" ELSE %[3]d END`,
				counter, list[0], list[0]+1))
		}
	}
	add("NEXT_ID", a.workers)
	add("NEXT_SLOT", a.slots)
	return `UPDATE "WORKER_REGISTRY" SET ` + strings.Join(set, ", ") + ` WHERE "NAME" = 'default'`
}

// An owner is the slot and the table that a worker id belongs to.
type owner struct {
	slot   int64
	region sql.NullInt64 // of the slot; NULL if the row of the slot is not replicated yet
	table  workernode.Table
}

// isOther reports whether o and p are different owners. A region or table is compared only if both are known.
func (o owner) isOther(p owner) bool {
	return o.slot != p.slot || o.region.Valid && p.region.Valid && o.region != p.region ||
		o.table != p.table && o.table.Name != "" && p.table.Name != ""
}

// sharedNodes counts the worker ids that have another owner in the other database, and returns the smallest.
func (d *DB) sharedNodes(ctx context.Context, other *DB) (n, first int64, err error) {
	here, err := d.owners(ctx)
	if err != nil {
		return 0, 0, err
	}
	there, err := other.owners(ctx)
	for worker, o := range there {
		if mine, ok := here[worker]; ok && mine.isOther(o) {
			if n++; n == 1 || worker < first {
				first = worker
			}
		}
	}
	return n, first, err
}

func (d *DB) owners(ctx context.Context) (map[int64]owner, error) {
	all := map[int64]owner{}
	err := d.SQL.Query(ctx, func(rows *sql.Rows) error {
		var worker int64
		var o owner
		err := sqldb.Scan(rows, workernode.NodeTable, 1, &worker, &o.slot, &o.region, &o.table.Database, &o.table.Name)
		all[worker] = o
		return err
	}, `SELECT "N"."ID", "SLOT", "REGION", "DATABASE_NAME", "TABLE_NAME" FROM "WORKER_NODE" "N"
		LEFT JOIN "WORKER_SLOT" "S" ON "S"."ID" = "SLOT" WHERE "SLOT" IS NOT NULL AND "SLOT" <> 0`)
	if err != nil {
		return nil, fmt.Errorf("list the owners of worker ids: %w", err)
	}
	return all, nil
}

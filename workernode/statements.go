package workernode

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/workernode/internal/lease"
)

// The statements of the lease protocol, which doc.go describes. Each UPDATE compares the values that it changes, so
// it is harmless if executed twice or late. It finds its row by ID, so InnoDB locks no other row.

// statements sends these statements for one start of a process. Only the lease manager uses it, never concurrently.
type statements struct {
	db         *DB
	layout     generator.Layout
	space      string // ID_SPACE
	region     Region // as last read
	host       Host
	launched   time.Time
	disposable bool
}

type newNode struct {
	worker int64
	table  Table
}

// hold makes all statements share one connection until release is called.
func (s *statements) hold() (release func()) {
	pool := s.db
	held, giveBack := pool.sql.Hold()
	s.db = &DB{held}
	return func() {
		giveBack()
		s.db = pool
	}
}

// maxCandidates bounds the slots to choose from, and the tables to look for.
const maxCandidates = 200

func (s *statements) candidatesOfApplication(ctx context.Context, p lease.Params, now int64) ([]lease.Row, error) {
	return s.candidates(ctx, p, now, `"APPLICATION" = ?`, s.host.Application)
}

// candidatesWithTables returns reclaimable slots, of any application, that own worker ids for one of the tables.
// Pass at least one table.
func (s *statements) candidatesWithTables(ctx context.Context, p lease.Params, now int64, tables []Table) ([]lease.Row,
	error) {
	tables = tables[:min(len(tables), maxCandidates)]
	var names []any
	for _, t := range tables {
		names = append(names, t.Name)
	}
	values := "?" + strings.Repeat(", ?", len(tables)-1)
	return s.candidates(ctx, p, now,
		`"ID" IN (SELECT "SLOT" FROM "WORKER_NODE" WHERE "TABLE_NAME" IN (`+values+`))`, names...)
}

// candidates returns reclaimable slots that match a condition, whose values are args.
func (s *statements) candidates(ctx context.Context, p lease.Params, now int64, where string, args ...any) (rows []lease.Row,
	err error) {
	args = append(args, s.layout.String(), s.region.N, now-p.Settle, now-p.Grace, now-p.Quiet)
	err = s.db.sql.Query(ctx, func(found *sql.Rows) error {
		var r lease.Row
		var application, host, port string
		if found.Scan(&r.ID, &r.Fence, &r.Version, &r.Holder, &r.Seen, &r.Region, &application, &host, &port) != nil {
			return nil // SQLite may have anything in a column; no process should use such a slot
		}
		r.Near = s.host.near(application, host, port)
		if p.Usable(r, now) {
			rows = append(rows, r)
		}
		return nil
	}, `SELECT "ID", "FENCE", "VERSION", "HOLDER", "SEEN_TICK", "REGION", "APPLICATION", "HOST_NAME", "PORT" FROM "WORKER_SLOT" WHERE `+where+
		` AND "LAYOUT" = ? AND "REGION" = ? AND "REUSABLE" = 1 AND ("HOLDER" = '' AND "FENCE" < ? OR "HOLDER" <> '' AND "FENCE" < ? AND "SEEN_TICK" < ?)`+
		` ORDER BY "FENCE", "ID" LIMIT `+strconv.Itoa(maxCandidates), args...)
	if err != nil {
		return nil, fmt.Errorf("workernode: look for a free slot: %w", err)
	}
	return rows, nil
}

// read reads a slot's row, and FLOOR_TICK. A row with invalid values counts as missing.
func (s *statements) read(ctx context.Context, slot int64) (r lease.Row, found bool, floor int64, err error) {
	err = s.db.sql.Query(ctx, func(rows *sql.Rows) error {
		found = rows.Scan(&r.ID, &r.Fence, &r.Version, &r.Holder, &r.Seen) == nil // as in candidates
		return nil
	}, `SELECT "ID", "FENCE", "VERSION", "HOLDER", "SEEN_TICK" FROM "WORKER_SLOT" WHERE "ID" = ?`, slot)
	if err == nil {
		floor, err = s.db.floor(ctx, s.space)
	}
	if err != nil {
		return r, false, 0, fmt.Errorf("workernode: read slot %d: %w", slot, err)
	}
	return r, found, floor, nil
}

// whereAsExpected finds a row that has the expected values of a change.
const whereAsExpected = ` WHERE "ID" = ? AND "HOLDER" = ? AND "VERSION" = ? AND "FENCE" = ?`

func expected(c lease.Change) []any { return []any{c.Slot, c.Holder, c.Version, c.Fence} }

// update executes c, such as a renewal or a keep-alive. It reports false if the row was not as expected.
func (s *statements) update(ctx context.Context, c lease.Change, now int64) (bool, error) {
	n, err := s.db.sql.Exec(ctx, `UPDATE "WORKER_SLOT" SET "FENCE" = ?, "VERSION" = ?, "HOLDER" = ?, "SEEN_TICK" = ?, "MODIFIED" = CURRENT_TIMESTAMP`+
		whereAsExpected, append([]any{c.NewFence, c.NewVersion, c.NewHolder, now}, expected(c)...)...)
	if err != nil {
		return false, fmt.Errorf("workernode: update slot %d: %w", c.Slot, err)
	}
	return n == 1, nil
}

// release executes c, which frees a slot. It reads the row back, because no later statement would notice a changed
// value.
func (s *statements) release(ctx context.Context, c lease.Change, now int64) (ok bool, err error) {
	err = s.db.transact(ctx, func(ctx context.Context, tx *DB) error {
		t := statements{db: tx}
		if ok, err = t.update(ctx, c, now); !ok || err != nil {
			return err
		}
		_, err = s.kept(ctx, tx, c)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("workernode: release slot %d: %w", c.Slot, err)
	}
	return ok, nil
}

// beginSession executes c and begins its session in one transaction, and sets c.First. ok is false, and nothing is
// changed, if the row was not as expected or no tick is left to grant.
func (s *statements) beginSession(ctx context.Context, c *lease.Change, clock func() int64) (nodes []*Node, floor int64, ok bool, err error) {
	err = s.db.transact(ctx, func(ctx context.Context, tx *DB) error {
		now := clock()
		if err := s.claim(ctx, tx, *c, now); err != nil {
			return err
		}
		if floor, err = s.kept(ctx, tx, *c); err != nil {
			return err
		}
		if !c.SetFirst(clock(), floor) {
			return errRefused
		}
		err := inserted(1)(tx.sql.Exec(ctx, `INSERT INTO "WORKER_SESSION" (`+sessionColumns+`) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			c.Slot, c.First-1, c.Before, s.host.Application, s.host.Name, s.host.Port, int(s.host.Kind),
			s.launched.UTC().Format(timestampFormat), c.NewHolder))
		if err != nil {
			return err
		}
		nodes, err = tx.nodesOf(ctx, c.Slot)
		return err
	})
	switch {
	case err == errRefused:
		return nil, floor, false, nil
	case err != nil && c.Insert && s.db.sql.IsDuplicate(err):
		return nil, floor, false, fmt.Errorf("workernode: insert slot %d: %w: %w", c.Slot, errTaken, err)
	case err != nil:
		return nil, floor, false, fmt.Errorf("workernode: begin a session of slot %d: %w", c.Slot, err)
	}
	return nodes, floor, true, nil
}

// kept reads a change back in its transaction, and returns FLOOR_TICK. It returns an error if the slot's row does
// not have the new values, or if the registry belongs to another id space. A slot may be released in any id space.
func (s *statements) kept(ctx context.Context, tx *DB, c lease.Change) (floor int64, err error) {
	ok, space := false, ""
	err = tx.sql.Query(ctx, func(rows *sql.Rows) error { ok = true; return rows.Scan(&floor, &space) },
		`SELECT COALESCE("R"."FLOOR_TICK", 0), COALESCE("R"."ID_SPACE", '') FROM "WORKER_SLOT" "S" LEFT JOIN "WORKER_REGISTRY" "R" ON "R"."NAME" = ?`+
			` WHERE "S"."ID" = ? AND "S"."HOLDER" = ? AND "S"."VERSION" = ? AND "S"."FENCE" = ?`,
		registryName, c.Slot, c.NewHolder, c.NewVersion, c.NewFence)
	switch {
	case err == nil && !ok:
		err = errFence(c.Slot, c.NewFence)
	case err == nil && space != "" && c.NewHolder != "":
		err = sameSpace(space, s.space)
	}
	return floor, err
}

func errFence(slot, fence int64) error {
	return errNotKept("FENCE", fence, "slot", slot, SlotTable, "two processes could make the same ids")
}

// errNotKept is the error for a row whose value differs from the acknowledged one.
func errNotKept(column string, value any, row string, id int64, table, effect string) error {
	return fmt.Errorf("%w: the database did not keep %s = %#v of %s %d in %s although it reported no error, so %s:"+
		" remove the trigger that changes it, or widen the column if it is too narrow (docs/failures.md)",
		ErrTable, column, value, row, id, table, effect)
}

// claim writes the slot's row with the new holder, to begin a session. A new row is inserted with FENCE 0 and then
// updated as by a renewal, so [statements.kept] detects a database that does not keep the values of renewals.
func (s *statements) claim(ctx context.Context, tx *DB, c lease.Change, now int64) error {
	host := []any{s.host.Application, s.host.Name, s.host.Port}
	if c.Insert {
		c.Holder, c.Version, c.Fence = c.NewHolder, c.NewVersion-1, 0
		err := inserted(1)(tx.sql.Exec(ctx, `INSERT INTO "WORKER_SLOT" (`+slotColumns+`) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, CURRENT_TIMESTAMP, ?)`,
			append(append([]any{c.Slot, s.layout.String(), boolInt(!s.disposable), c.Fence, c.Version, c.Holder, now}, host...), s.region.N)...))
		if err != nil {
			return err
		}
		t := statements{db: tx}
		_, err = t.update(ctx, c, now)
		return err
	}
	args := append([]any{c.NewFence, c.NewVersion, c.NewHolder, now}, host...)
	n, err := tx.sql.Exec(ctx, `UPDATE "WORKER_SLOT" SET "FENCE" = ?, "VERSION" = ?, "HOLDER" = ?, "SEEN_TICK" = ?, "APPLICATION" = ?, "HOST_NAME" = ?, "PORT" = ?,`+
		` "MODIFIED" = CURRENT_TIMESTAMP`+whereAsExpected, append(args, expected(c)...)...)
	if err == nil && n != 1 {
		err = errRefused
	}
	return err
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// add executes c and inserts worker ids in one transaction, and returns their START_TICK. ok is false, and nothing
// is changed, if the row was not as expected or FLOOR_TICK leaves no tick.
func (s *statements) add(ctx context.Context, c lease.Change, nodes []newNode, clock func() int64) (start int64, ok bool, err error) {
	err = s.db.transact(ctx, func(ctx context.Context, tx *DB) error {
		t := statements{db: tx}
		switch ok, err := t.update(ctx, c, clock()); {
		case err != nil:
			return err
		case !ok:
			return errRefused
		}
		floor, err := s.kept(ctx, tx, c)
		if err != nil {
			return err
		}
		if floor >= c.NewFence {
			return errRefused // beginning the next session returns an error about FLOOR_TICK
		}
		start = lease.StartOf(clock(), floor)
		for part := range slices.Chunk(nodes, insertChunk) {
			if err := s.insert(ctx, tx, c, part, start); err != nil {
				return err
			}
		}
		return s.nodesKept(ctx, tx, c.Slot, nodes, start)
	})
	switch {
	case err == errRefused:
		return 0, false, nil
	case err != nil && s.db.sql.IsDuplicate(err):
		return 0, false, fmt.Errorf("%w: %w", errTaken, err)
	case err != nil:
		return 0, false, fmt.Errorf("workernode: add worker ids to slot %d: %w", c.Slot, err)
	}
	return start, true, nil
}

// nodesKept reads the inserted worker ids back. Ids would resolve to another table if a trigger or a narrow column
// changed the name of the table.
func (s *statements) nodesKept(ctx context.Context, tx *DB, slot int64, nodes []newNode, start int64) error {
	ids := make([]int64, len(nodes))
	for i, n := range nodes {
		ids[i] = n.worker
	}
	rows, err := tx.Lookup(ctx, ids...)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		r := cmp.Or(rows[n.worker], &Node{})
		for _, v := range []struct {
			column      string
			wrote, kept any
		}{
			{"ID", n.worker, r.WorkerID}, {"SLOT", slot, r.Slot}, {"DATABASE_NAME", n.table.Database, r.Table.Database}, {"TABLE_NAME", n.table.Name, r.Table.Name},
			{"LAYOUT", s.layout.String(), r.Layout}, {"START_TICK", start, r.Start},
		} {
			if v.wrote != v.kept {
				return errNotKept(v.column, v.wrote, "worker id", n.worker, NodeTable, "its ids could not be located")
			}
		}
	}
	return nil
}

// errTaken reports that a worker id or slot exists already.
var errTaken = errors.New("workernode: taken by another program")

// insertChunk keeps a statement below SQLite's limit of 500 SELECTs joined by UNION.
const insertChunk = 250

// insert inserts worker ids if the slot's row is as c left it, which it may not be if a proxy has split the
// transaction.
func (s *statements) insert(ctx context.Context, tx *DB, c lease.Change, nodes []newNode, start int64) error {
	var list strings.Builder
	args := []any{s.host.Name, s.host.Port}
	for i, n := range nodes {
		// Numbers are literals, because PostgreSQL takes a placeholder in a SELECT list for text. SUBSTR(?, 1) is the
		// whole text; MariaDB takes a plain ? for CHAR, which sql_mode=PAD_CHAR_TO_FULL_LENGTH pads.
		if i == 0 {
			fmt.Fprintf(&list, `SELECT %d AS "ID", SUBSTR(?, 1) AS "DATABASE_NAME", SUBSTR(?, 1) AS "TABLE_NAME"`, n.worker)
		} else {
			fmt.Fprintf(&list, ` UNION ALL SELECT %d, SUBSTR(?, 1), SUBSTR(?, 1)`, n.worker)
		}
		args = append(args, n.table.Database, n.table.Name)
	}
	args = append(args, c.Slot, c.NewHolder, c.NewVersion)
	query := fmt.Sprintf(`INSERT INTO "WORKER_NODE" (`+nodeColumns+`) SELECT "N"."ID", ?, ?, %d, CURRENT_DATE, CURRENT_TIMESTAMP, CURRENT_TIMESTAMP,`+
		` "S"."ID", "N"."DATABASE_NAME", "N"."TABLE_NAME", "S"."LAYOUT", %d FROM "WORKER_SLOT" "S" CROSS JOIN (%s) "N"`+
		` WHERE "S"."ID" = ? AND "S"."HOLDER" = ? AND "S"."VERSION" = ?`, int(s.host.Kind), start, list.String())
	return inserted(len(nodes))(tx.sql.Exec(ctx, query, args...))
}

// inserted returns a function that checks the outcome of inserting n rows.
func inserted(n int) func(int64, error) error {
	return func(rows int64, err error) error {
		if err == nil && rows != int64(n) {
			err = fmt.Errorf("the database reports %d new rows, not %d", rows, n)
		}
		return err
	}
}

// owners lists the tables with the most worker ids.
func (s *statements) owners(ctx context.Context) (string, error) {
	var owners []string
	err := s.db.sql.Query(ctx, func(found *sql.Rows) error {
		var table string
		var all int64
		if err := found.Scan(&table, &all); err != nil {
			return err
		}
		if table == "" {
			table = "another program's"
		}
		owners = append(owners, fmt.Sprintf("%s %d", printable(table), all))
		return nil
	}, `SELECT "TABLE_NAME", COUNT(*) FROM "WORKER_NODE" GROUP BY "TABLE_NAME" ORDER BY COUNT(*) DESC, "TABLE_NAME" LIMIT 5`)
	return strings.Join(owners, ", "), err
}

package workernode

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin/generator"
)

// The statements of the lease protocol. Each compares what it changes, is harmless if it is
// executed twice or late, and is judged by the number of rows that it changed. doc.go has
// the protocol.
//
// Every statement finds its row by ID, so InnoDB locks no other row.

// statements sends them for one start of a process. Only the lease manager calls it, one
// statement at a time.
type statements struct {
	db         *DB
	layout     generator.Layout
	host       Host
	launched   time.Time
	disposable bool
}

// A newNode is a worker id to be inserted.
type newNode struct {
	worker int64
	table  Table
}

const (
	slotColumns    = `"ID", "LAYOUT", "REUSABLE", "FENCE", "VERSION", "HOLDER", "SEEN_TICK", "APPLICATION", "HOST_NAME", "PORT", "MODIFIED"`
	sessionColumns = `"SLOT", "START_TICK", "BEFORE_TICK", "APPLICATION", "HOST_NAME", "PORT", "TYPE", "LAUNCHED", "HOLDER"`
	nodeColumns    = `"ID", "HOST_NAME", "PORT", "TYPE", "LAUNCH_DATE", "MODIFIED", "CREATED", "SLOT", "DATABASE_NAME", "TABLE_NAME", "LAYOUT", "START_TICK"`
)

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

// maxCandidates bounds the slots that are read to choose one from, and the tables by which they are looked for.
const maxCandidates = 200

// candidatesOfApplication returns slots of this application that may be reclaimed.
func (s *statements) candidatesOfApplication(ctx context.Context, p leaseParams, now int64) ([]slotRow, error) {
	return s.candidates(ctx, p, now, `"APPLICATION" = ?`, s.host.Application)
}

// candidatesWithTables returns slots of any application that may be reclaimed and own a worker id of one of tables.
// There must be at least one table; those beyond maxCandidates are ignored.
func (s *statements) candidatesWithTables(ctx context.Context, p leaseParams, now int64, tables []Table) ([]slotRow,
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

// candidates returns slots that may be reclaimed and meet a condition, whose values are args.
func (s *statements) candidates(ctx context.Context, p leaseParams, now int64, where string, args ...any) (rows []slotRow,
	err error) {
	args = append(args, s.layout.String(), now-p.settle, now-p.grace, now-p.quiet)
	err = s.db.sql.Query(ctx, func(found *sql.Rows) error {
		var r slotRow
		var application, host, port string
		if found.Scan(&r.id, &r.fence, &r.version, &r.holder, &r.seen, &application, &host, &port) != nil {
			return nil // SQLite may have anything in a column; no process uses such a slot
		}
		r.near = s.host.near(application, host, port)
		if p.usable(r, now) {
			rows = append(rows, r)
		}
		return nil
	}, `SELECT "ID", "FENCE", "VERSION", "HOLDER", "SEEN_TICK", "APPLICATION", "HOST_NAME", "PORT" FROM "WORKER_SLOT" WHERE `+where+
		` AND "LAYOUT" = ? AND "REUSABLE" = 1 AND ("HOLDER" = '' AND "FENCE" < ? OR "HOLDER" <> '' AND "FENCE" < ? AND "SEEN_TICK" < ?)`+
		` ORDER BY "FENCE", "ID" LIMIT `+strconv.Itoa(maxCandidates), args...)
	if err != nil {
		return nil, fmt.Errorf("workernode: look for a free slot: %w", err)
	}
	return rows, nil
}

// read reads a slot's row, and FLOOR_TICK. A row whose values no slot can have counts as missing.
func (s *statements) read(ctx context.Context, slot int64) (r slotRow, found bool, floor int64, err error) {
	err = s.db.sql.Query(ctx, func(rows *sql.Rows) error {
		found = rows.Scan(&r.id, &r.fence, &r.version, &r.holder, &r.seen) == nil // as in candidates
		return nil
	}, `SELECT "ID", "FENCE", "VERSION", "HOLDER", "SEEN_TICK" FROM "WORKER_SLOT" WHERE "ID" = ?`, slot)
	if err == nil {
		floor, err = s.db.floor(ctx)
	}
	if err != nil {
		return r, false, 0, fmt.Errorf("workernode: read slot %d: %w", slot, err)
	}
	return r, found, floor, nil
}

// whereAsCompared finds the row of a change if it is as the change compares. Its values are those of [change.compared].
const whereAsCompared = ` WHERE "ID" = ? AND "HOLDER" = ? AND "VERSION" = ? AND "FENCE" = ?`

// compared returns the values of whereAsCompared.
func (c *change) compared() []any { return []any{c.slot, c.holder, c.version, c.fence} }

// update executes c. It reports false if the row was not as c compares.
func (s *statements) update(ctx context.Context, c change, now int64) (bool, error) {
	n, err := s.db.sql.Exec(ctx, `UPDATE "WORKER_SLOT" SET "FENCE" = ?, "VERSION" = ?, "HOLDER" = ?, "SEEN_TICK" = ?, "MODIFIED" = CURRENT_TIMESTAMP`+
		whereAsCompared, append([]any{c.newFence, c.newVersion, c.newHolder, now}, c.compared()...)...)
	if err != nil {
		return false, fmt.Errorf("workernode: update slot %d: %w", c.slot, err)
	}
	return n == 1, nil
}

// beginSession executes c and begins a session with it, in one transaction. It reports false, and leaves everything
// unchanged, if the row was not as c compares or has no tick to grant. It sets c.first. It returns the worker ids of
// the slot and FLOOR_TICK.
func (s *statements) beginSession(ctx context.Context, c *change, clock func() int64) (nodes []*Node, floor int64, ok bool, err error) {
	err = s.db.transact(ctx, func(ctx context.Context, tx *DB) error {
		now := clock()
		if err := s.claim(ctx, tx, *c, now); err != nil {
			return err
		}
		if floor, err = tx.kept(ctx, *c); err != nil {
			return err
		}
		if !c.setFirst(clock(), floor) {
			return errRefused
		}
		err := inserted(1)(tx.sql.Exec(ctx, `INSERT INTO "WORKER_SESSION" (`+sessionColumns+`) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			c.slot, c.first-1, c.before, s.host.Application, s.host.Name, s.host.Port, int(s.host.Kind),
			s.launched.UTC().Format(timestampFormat), c.newHolder))
		if err != nil {
			return err
		}
		nodes, err = tx.nodesOf(ctx, c.slot)
		return err
	})
	switch {
	case err == errRefused:
		return nil, floor, false, nil
	case err != nil && c.insert && s.db.sql.IsDuplicate(err):
		return nil, floor, false, fmt.Errorf("workernode: insert slot %d: %w: %w", c.slot, errTaken, err)
	case err != nil:
		return nil, floor, false, fmt.Errorf("workernode: begin a session of slot %d: %w", c.slot, err)
	}
	return nodes, floor, true, nil
}

// kept reads back, in its transaction, what a change has written. It returns FLOOR_TICK, and an error if the row of the
// slot is not as the change sets it.
func (d *DB) kept(ctx context.Context, c change) (floor int64, err error) {
	ok := false
	err = d.sql.Query(ctx, func(rows *sql.Rows) error { ok = true; return rows.Scan(&floor) },
		`SELECT COALESCE("R"."FLOOR_TICK", 0) FROM "WORKER_SLOT" "S" LEFT JOIN "WORKER_REGISTRY" "R" ON "R"."NAME" = ?`+
			` WHERE "S"."ID" = ? AND "S"."HOLDER" = ? AND "S"."VERSION" = ? AND "S"."FENCE" = ?`,
		registryName, c.slot, c.newHolder, c.newVersion, c.newFence)
	if err == nil && !ok {
		err = errNotKept(c.slot, "FENCE", c.newFence)
	}
	return floor, err
}

// errNotKept is the error of a row of WORKER_SLOT that has another value than the database has acknowledged.
func errNotKept(slot int64, column string, value int64) error {
	return fmt.Errorf("%w: the database did not keep %s = %d of slot %d in %s although it reported no error, so two processes could make the same ids:"+
		" a trigger changes it, or a column is too narrow; remove the trigger, or compare the columns with those of package migrations",
		ErrTable, column, value, slot, SlotTable)
}

// claim begins a session: it writes the row of the slot, with the new holder. A new row is inserted with no tick, and
// then changed as by a renewal. So [DB.kept] finds a database that does not keep what a renewal writes.
func (s *statements) claim(ctx context.Context, tx *DB, c change, now int64) error {
	host := []any{s.host.Application, s.host.Name, s.host.Port}
	if c.insert {
		c.holder, c.version, c.fence = c.newHolder, c.newVersion-1, 0
		err := inserted(1)(tx.sql.Exec(ctx, `INSERT INTO "WORKER_SLOT" (`+slotColumns+`) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, CURRENT_TIMESTAMP)`,
			append([]any{c.slot, s.layout.String(), boolInt(!s.disposable), c.fence, c.version, c.holder, now}, host...)...))
		if err != nil {
			return err
		}
		t := statements{db: tx}
		_, err = t.update(ctx, c, now)
		return err
	}
	args := append([]any{c.newFence, c.newVersion, c.newHolder, now}, host...)
	n, err := tx.sql.Exec(ctx, `UPDATE "WORKER_SLOT" SET "FENCE" = ?, "VERSION" = ?, "HOLDER" = ?, "SEEN_TICK" = ?, "APPLICATION" = ?, "HOST_NAME" = ?, "PORT" = ?,`+
		` "MODIFIED" = CURRENT_TIMESTAMP`+whereAsCompared, append(args, c.compared()...)...)
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

// add executes c and inserts worker ids, in one transaction. It reports false, and leaves
// everything unchanged, if the row was not as c compares. The error wraps errTaken if another
// program has inserted one of the worker ids. start is their START_TICK.
func (s *statements) add(ctx context.Context, c change, nodes []newNode, clock func() int64) (start int64, ok bool, err error) {
	err = s.db.transact(ctx, func(ctx context.Context, tx *DB) error {
		t := statements{db: tx}
		switch ok, err := t.update(ctx, c, clock()); {
		case err != nil:
			return err
		case !ok:
			return errRefused
		}
		floor, err := tx.kept(ctx, c)
		if err != nil {
			return err
		}
		if floor >= c.newFence {
			return errRefused // a session, which follows, says so
		}
		start = startOf(clock(), floor)
		for len(nodes) > 0 {
			part := nodes[:min(len(nodes), insertChunk)]
			nodes = nodes[len(part):]
			if err := s.insert(ctx, tx, c, part, start); err != nil {
				return err
			}
		}
		return nil
	})
	switch {
	case err == errRefused:
		return 0, false, nil
	case err != nil && s.db.sql.IsDuplicate(err):
		return 0, false, fmt.Errorf("%w: %w", errTaken, err)
	case err != nil:
		return 0, false, fmt.Errorf("workernode: add worker ids to slot %d: %w", c.slot, err)
	}
	return start, true, nil
}

// errTaken reports a worker id, or a slot, that exists already.
var errTaken = errors.New("workernode: taken by another program")

// insertChunk keeps a statement below the number of SELECTs that SQLite joins by UNION (500).
const insertChunk = 250

// insert inserts worker ids as long as the slot's row is as c left it. If something between this process and the
// database has split the transaction, nothing is inserted.
func (s *statements) insert(ctx context.Context, tx *DB, c change, nodes []newNode, start int64) error {
	var list strings.Builder
	args := []any{s.host.Name, s.host.Port}
	for i, n := range nodes {
		// Numbers are written out, as PostgreSQL takes a bare value in a SELECT for text.
		if i == 0 {
			fmt.Fprintf(&list, `SELECT %d AS "ID", ? AS "DATABASE_NAME", ? AS "TABLE_NAME"`, n.worker)
		} else {
			fmt.Fprintf(&list, ` UNION ALL SELECT %d, ?, ?`, n.worker)
		}
		args = append(args, n.table.Database, n.table.Name)
	}
	args = append(args, c.slot, c.newHolder, c.newVersion)
	query := fmt.Sprintf(`INSERT INTO "WORKER_NODE" (`+nodeColumns+`) SELECT "N"."ID", ?, ?, %d, CURRENT_DATE, CURRENT_TIMESTAMP, CURRENT_TIMESTAMP,`+
		` "S"."ID", "N"."DATABASE_NAME", "N"."TABLE_NAME", "S"."LAYOUT", %d FROM "WORKER_SLOT" "S" CROSS JOIN (%s) "N"`+
		` WHERE "S"."ID" = ? AND "S"."HOLDER" = ? AND "S"."VERSION" = ?`, int(s.host.Kind), start, list.String())
	return inserted(len(nodes))(tx.sql.Exec(ctx, query, args...))
}

// inserted returns a function that checks the outcome of an INSERT of n rows.
func inserted(n int) func(int64, error) error {
	return func(rows int64, err error) error {
		if err == nil && rows != int64(n) {
			err = fmt.Errorf("the database reports %d new rows, not %d", rows, n)
		}
		return err
	}
}

// A spareUse is a spare worker id that a table uses.
type spareUse struct {
	worker int64
	table  Table
}

// bind executes c and writes the tables of spares, in one transaction. start is START_TICK of the current session.
// latest is the last clock with which that session continues. It reports false, and leaves everything unchanged, if the
// row was not as c compares or the clock is above latest. It returns the spares that another table has.
func (s *statements) bind(ctx context.Context, c change, uses []spareUse, start, latest int64, clock func() int64) (gone []int64, ok bool, err error) {
	err = s.db.transact(ctx, func(ctx context.Context, tx *DB) error {
		t := statements{db: tx}
		if ok, err := t.update(ctx, c, clock()); err != nil {
			return err
		} else if !ok || clock() > latest {
			return errRefused
		}
		for _, u := range uses {
			ok, err := tx.bindOne(ctx, c.slot, u, start)
			if err != nil {
				return err
			}
			if !ok {
				gone = append(gone, u.worker)
			}
		}
		return nil
	})
	switch {
	case err == errRefused:
		return nil, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("workernode: write the tables of spare worker ids of slot %d: %w", c.slot, err)
	}
	return gone, true, nil
}

// bindOne writes the table of one spare. It reports false if the row has another table.
func (d *DB) bindOne(ctx context.Context, slot int64, u spareUse, start int64) (bool, error) {
	n, err := d.sql.Exec(ctx, `UPDATE "WORKER_NODE" SET "DATABASE_NAME" = ?, "TABLE_NAME" = ?, "START_TICK" = CASE WHEN "START_TICK" > ? THEN "START_TICK" ELSE ? END,`+
		` "MODIFIED" = CURRENT_TIMESTAMP WHERE "ID" = ? AND "SLOT" = ? AND "TABLE_NAME" = ''`,
		u.table.Database, u.table.Name, start, start, u.worker, slot)
	if err != nil || n == 1 {
		return n == 1, err
	}
	nodes, err := d.Lookup(ctx, u.worker) // an earlier attempt may have written it
	node := nodes[u.worker]
	if node != nil && node.Slot == slot && node.Table == (Table{}) {
		return false, fmt.Errorf("the database changed no row for the worker id %d, and reports no error", u.worker)
	}
	return err == nil && node != nil && node.Slot == slot && node.Table == u.table, err
}

// owners says which tables have the most worker ids.
func (s *statements) owners(ctx context.Context) (string, error) {
	var owners []string
	err := s.db.sql.Query(ctx, func(found *sql.Rows) error {
		var table string
		var all int64
		if err := found.Scan(&table, &all); err != nil {
			return err
		}
		if table == "" {
			table = "spare or another program's"
		}
		owners = append(owners, fmt.Sprintf("%s %d", printable(table), all))
		return nil
	}, `SELECT "TABLE_NAME", COUNT(*) FROM "WORKER_NODE" GROUP BY "TABLE_NAME" ORDER BY COUNT(*) DESC, "TABLE_NAME" LIMIT 5`)
	return strings.Join(owners, ", "), err
}

// printable quotes text from a table that could mislead a reader.
func printable(s string) string {
	if q := strconv.Quote(s); q != `"`+s+`"` || strings.ContainsAny(s, " ,;") {
		return q
	}
	return s
}

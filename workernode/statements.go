package workernode

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/uidplugin/uidplugin/generator"
)

// The statements of the lease protocol. Each is a transaction of its own, is
// harmless if it is executed twice or late, and is judged by the number of rows
// that it changed. doc.go has the protocol.
//
// None says WHERE HOLDER = ? alone: without an index InnoDB would lock every row
// that it looks at, all processes' rows.

// chunk bounds the rows of one statement: SQLite takes 32,766 values, a row has up
// to 9 of them.
const chunk = 1000

// statements sends them for one start of a process.
type statements struct {
	db     *DB
	layout generator.Layout
	host   Host
	holder string // a token that nobody else has
}

func newStatements(db *DB, layout generator.Layout, host Host) statements {
	return statements{db: db, layout: layout, holder: rand.Text(),
		host: Host{Name: fit(host.Name, maxHost), Port: fit(host.Port, maxHost), Kind: host.Kind}}
}

// marks returns n question marks.
func marks(n int) string { return strings.Repeat(", ?", n)[2:] }

// candidates returns rows of tables that may be taken over, the longest unused
// first, at most limit for each 1000 tables. With sticky those of this host and port come
// before.
func (s statements) candidates(ctx context.Context, t terms, now int64, sticky bool, limit int, tables ...string) (rows []row, err error) {
	own, order := `0`, ``
	if sticky {
		own, order = `CASE WHEN "HOST_NAME" = ? AND "PORT" = ? THEN 1 ELSE 0 END`, `5 DESC, `
	}
	for part := range slices.Chunk(tables, chunk) {
		args := make([]any, 0, len(part)+6)
		if sticky {
			args = append(args, s.host.Name, s.host.Port)
		}
		for _, table := range part {
			args = append(args, table)
		}
		args = append(args, s.layout.String(), now, now-t.grace)
		err := s.db.Query(ctx, func(found *sql.Rows) error {
			var r row
			if err := found.Scan(&r.worker, &r.table, &r.fence, &r.holder, &r.own); err != nil {
				return err
			}
			// Databases compare text in their own ways: MySQL takes "Users " for "users".
			if slices.Contains(part, r.table) && t.takeable(r, now) {
				rows = append(rows, r)
			}
			return nil
		}, `SELECT "ID", "TABLE_NAME", "FENCE", "HOLDER", `+own+` FROM "WORKER_NODE" WHERE "TABLE_NAME" IN (`+marks(len(part))+`)`+
			` AND "REUSABLE" = 1 AND "LAYOUT" = ? AND "FENCE" <= ? AND ("HOLDER" = '' OR "FENCE" < ?)`+
			fmt.Sprintf(` ORDER BY %s"FENCE", "ID" LIMIT %d`, order, limit), args...)
		if err != nil {
			return nil, fmt.Errorf("workernode: look for free worker ids: %w", err)
		}
	}
	return rows, nil
}

// inParts splits rows into parts that one take can take: spares apart; and rows that
// one process has given back have the same fence, and SQLite takes 1000 levels of an
// expression.
func inParts(rows []row) (parts [][]row) {
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(min(1, len(a.table)), min(1, len(b.table))), cmp.Compare(a.fence, b.fence))
	})
	const most = 200 // different fences
	begin, fences := 0, 0
	for i := range rows {
		apart := i > 0 && (rows[i].table == "") != (rows[i-1].table == "")
		if i == 0 || rows[i].fence != rows[i-1].fence || apart {
			fences++
		}
		if i-begin == chunk || fences > most || apart {
			parts, begin, fences = append(parts, rows[begin:i]), i, 1
		}
	}
	if begin < len(rows) {
		parts = append(parts, rows[begin:])
	}
	return parts
}

// take takes rows over, which inParts has split: it moves their fences to fence if
// they are what was read. It returns how many it has moved. held is the least that
// [terms.held] gives.
func (s statements) take(ctx context.Context, held, fence int64, rows []row) (int64, error) {
	const later = `CASE WHEN "FENCE" > ? THEN "FENCE" ELSE ? END`
	set, where := `"HELD_SECOND" = `+later, ``
	args := []any{held, held}
	if rows[0].table == "" {
		// Its process may be about to write a table into it.
		set, where = `"START_SECOND" = `+later+`, `+set, ` AND "TABLE_NAME" = ''`
		args = append(args, held, held)
	}
	args = append(args, fence, s.holder, s.host.Name, s.host.Port, int(s.host.Kind))
	var or []string
	for len(rows) > 0 {
		n := 1
		for n < len(rows) && rows[n].fence == rows[0].fence {
			n++
		}
		or, args = append(or, `"FENCE" = ? AND "ID" IN (`+marks(n)+`)`), append(args, rows[0].fence)
		for _, r := range rows[:n] {
			args = append(args, r.worker)
		}
		rows = rows[n:]
	}
	// MySQL assigns from left to right, so what FENCE was comes first.
	changed, err := s.db.Exec(ctx, `UPDATE "WORKER_NODE" SET `+set+`, "FENCE" = ?, "HOLDER" = ?, "HOST_NAME" = ?, "PORT" = ?, "TYPE" = ?,`+
		` "LAUNCH_DATE" = CURRENT_DATE, "MODIFIED" = CURRENT_TIMESTAMP WHERE "REUSABLE" = 1`+where+` AND (`+
		strings.Join(or, " OR ")+`)`, args...)
	if err != nil {
		return 0, fmt.Errorf("workernode: take worker ids over: %w", err)
	}
	return changed, nil
}

// extend moves the fences of rows of this process from one tick to another. It
// returns how many it has moved.
func (s statements) extend(ctx context.Context, from, to int64, workers []int64) (int64, error) {
	args := []any{to}
	for _, w := range workers {
		args = append(args, w)
	}
	changed, err := s.db.Exec(ctx, `UPDATE "WORKER_NODE" SET "FENCE" = ?, "MODIFIED" = CURRENT_TIMESTAMP WHERE "ID" IN (`+
		marks(len(workers))+`) AND "HOLDER" = ? AND "FENCE" = ?`, append(args, s.holder, from)...)
	if err != nil {
		return 0, fmt.Errorf("workernode: renew worker ids: %w", err)
	}
	return changed, nil
}

// read reads rows by their worker ids.
func (s statements) read(ctx context.Context, workers []int64) (map[int64]row, error) {
	rows := make(map[int64]row, len(workers))
	for part := range slices.Chunk(workers, chunk) {
		args := make([]any, len(part))
		for i, w := range part {
			args[i] = w
		}
		err := s.db.Query(ctx, func(found *sql.Rows) error {
			var r row
			err := found.Scan(&r.worker, &r.table, &r.fence, &r.holder)
			rows[r.worker] = r
			return err
		}, `SELECT "ID", "TABLE_NAME", "FENCE", "HOLDER" FROM "WORKER_NODE" WHERE "ID" IN (`+marks(len(part))+`)`, args...)
		if err != nil {
			return nil, fmt.Errorf("workernode: read worker ids: %w", err)
		}
	}
	return rows, nil
}

// owners says which tables have the most worker ids, at most most of them.
func (s statements) owners(ctx context.Context, most int) (string, error) {
	var owners []string
	err := s.db.Query(ctx, func(found *sql.Rows) error {
		var table string
		var all, held int64
		if err := found.Scan(&table, &all, &held); err != nil {
			return err
		}
		if table == "" {
			table = "spare or another program's"
		}
		owners = append(owners, fmt.Sprintf("%s %d, of which %d are held", table, all, held))
		return nil
	}, `SELECT "TABLE_NAME", COUNT(*), SUM(CASE WHEN "HOLDER" = '' THEN 0 ELSE 1 END) FROM "WORKER_NODE"`+
		` GROUP BY "TABLE_NAME" ORDER BY COUNT(*) DESC, "TABLE_NAME" `+fmt.Sprintf("LIMIT %d", most))
	if err != nil {
		return "", fmt.Errorf("workernode: count worker ids: %w", err)
	}
	return strings.Join(owners, "; "), nil
}

// earliestFence returns the least fence of rows of tables that nobody holds; -1 if there
// are none.
func (s statements) earliestFence(ctx context.Context, tables []string) (fence int64, err error) {
	tables = tables[:min(len(tables), chunk)]
	args := make([]any, len(tables))
	for i, t := range tables {
		args[i] = t
	}
	err = s.db.Query(ctx, func(found *sql.Rows) error { return found.Scan(&fence) },
		`SELECT COALESCE(MIN("FENCE"), -1) FROM "WORKER_NODE" WHERE "TABLE_NAME" IN (`+marks(len(tables))+`) AND "REUSABLE" = 1 AND "HOLDER" = ''`, args...)
	return fence, err
}

// giveBack empties the holder of rows of this process. Their fences stay: nothing
// lowers a fence.
func (s statements) giveBack(ctx context.Context, workers []int64) error {
	for part := range slices.Chunk(workers, chunk) {
		args := make([]any, 0, len(part)+1)
		for _, w := range part {
			args = append(args, w)
		}
		_, err := s.db.Exec(ctx, `UPDATE "WORKER_NODE" SET "HOLDER" = '', "MODIFIED" = CURRENT_TIMESTAMP WHERE "ID" IN (`+
			marks(len(part))+`) AND "HOLDER" = ?`, append(args, s.holder)...)
		if err != nil {
			return fmt.Errorf("workernode: give worker ids back: %w", err)
		}
	}
	return nil
}

// bind writes the table of a spare worker id. It may be repeated. It reports false if
// the row is not this process's any more.
func (s statements) bind(ctx context.Context, worker int64, table string) (bool, error) {
	changed, err := s.db.Exec(ctx, `UPDATE "WORKER_NODE" SET "TABLE_NAME" = ?, "MODIFIED" = CURRENT_TIMESTAMP`+
		` WHERE "ID" = ? AND "TABLE_NAME" = '' AND "HOLDER" = ?`, table, worker, s.holder)
	if err != nil {
		return false, fmt.Errorf("workernode: write the table %s of worker id %d: %w", table, worker, err)
	}
	if changed == 1 {
		return true, nil
	}
	rows, err := s.read(ctx, []int64{worker}) // an earlier attempt may have written it
	return rows[worker].table == table && rows[worker].holder == s.holder, err
}

// A newNode is a row to be inserted.
type newNode struct {
	worker       int64
	table        string
	reusable     bool
	start, fence int64
}

// insert inserts rows, all or none of each 1000. Its error wraps errTaken if
// somebody else has inserted one of the worker ids.
func (s statements) insert(ctx context.Context, nodes []newNode) error {
	const columns = `INSERT INTO "WORKER_NODE" ("ID", "HOST_NAME", "PORT", "TYPE", "LAUNCH_DATE", "MODIFIED", "CREATED",` +
		` "TABLE_NAME", "LAYOUT", "REUSABLE", "START_SECOND", "HELD_SECOND", "FENCE", "HOLDER") VALUES `
	const values = `(?, ?, ?, ?, CURRENT_DATE, CURRENT_TIMESTAMP, CURRENT_TIMESTAMP, ?, ?, ?, ?, ?, ?, ?)`
	for part := range slices.Chunk(nodes, chunk) {
		var args []any
		for _, n := range part {
			reusable := 0
			if n.reusable {
				reusable = 1
			}
			args = append(args, n.worker, s.host.Name, s.host.Port, int(s.host.Kind), n.table, s.layout.String(), reusable, n.start, n.start, n.fence, s.holder)
		}
		changed, err := s.db.Exec(ctx, columns+strings.Repeat(", "+values, len(part))[2:], args...)
		switch {
		case err != nil && s.db.duplicate(err):
			return fmt.Errorf("%w: %w", errTaken, err)
		case err != nil:
			return fmt.Errorf("workernode: insert worker nodes: %w", err)
		case changed != int64(len(part)):
			return fmt.Errorf("workernode: insert worker nodes: the database reports %d new rows, not %d", changed, len(part))
		}
	}
	return nil
}

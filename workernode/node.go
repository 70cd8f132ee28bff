package workernode

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin/internal/sqldb"
)

// MarshalText returns the text of [Kind.String] in lower case.
func (k Kind) MarshalText() ([]byte, error) { return []byte(strings.ToLower(k.String())), nil }

// A Node is a row of WORKER_NODE: one worker id with its slot and table. Only "uid tables rename" changes the table.
type Node struct {
	WorkerID int64  // ID
	Slot     int64  // SLOT: the slot that owns it; 0 in UidGenerator's rows
	Table    Table  // DATABASE_NAME and TABLE_NAME; the name is empty in UidGenerator's rows
	Layout   string // LAYOUT, as [generator.Layout.String]; empty in UidGenerator's rows
	Start    int64  // START_TICK: ids of Table with this worker id have later ticks

	LaunchDate time.Time // the day on which the row was inserted
}

const nodeFields = `"N"."ID", "N"."SLOT", "N"."DATABASE_NAME", "N"."TABLE_NAME", "N"."LAYOUT", "N"."START_TICK", "N"."LAUNCH_DATE"`

const selectNodes = `SELECT "ID", "SLOT", "DATABASE_NAME", "TABLE_NAME", "LAYOUT", "START_TICK", "LAUNCH_DATE" FROM "WORKER_NODE"`

// lookupChunk keeps statements below the limits on bound values; SQLite's is 32,766.
const lookupChunk = 1000

// Lookup returns the nodes of those worker ids that exist.
func (d *DB) Lookup(ctx context.Context, workers ...int64) (map[int64]*Node, error) {
	nodes := make(map[int64]*Node, len(workers))
	err := inChunks(workers, func(marks string, args []any) error {
		found, err := d.nodes(ctx, ` WHERE "ID" IN (`+marks+`)`, args...)
		for _, n := range found {
			nodes[n.WorkerID] = n
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("workernode: look up worker ids: %w", err)
	}
	return nodes, nil
}

// inChunks calls f for each chunk of the workers, with its question marks and its values.
func inChunks(workers []int64, f func(marks string, args []any) error) error {
	for chunk := range slices.Chunk(workers, lookupChunk) {
		args := make([]any, len(chunk))
		for i, w := range chunk {
			args[i] = w
		}
		if err := f("?"+strings.Repeat(", ?", len(args)-1), args); err != nil {
			return err
		}
	}
	return nil
}

// Nodes returns up to limit nodes with worker ids above previous, in ascending order.
func (d *DB) Nodes(ctx context.Context, previous int64, limit int) ([]*Node, error) {
	nodes, err := d.query(ctx, cut(selectNodes)+fmt.Sprintf(` WHERE "ID" > ? ORDER BY "ID" LIMIT %d`, limit), previous)
	if err != nil {
		return nil, fmt.Errorf("workernode: list worker nodes: %w", err)
	}
	return nodes, nil
}

// nodesOf returns the nodes of a slot, in ascending order of worker ids.
func (d *DB) nodesOf(ctx context.Context, slot int64) ([]*Node, error) {
	nodes, err := d.nodes(ctx, ` WHERE "SLOT" = ? ORDER BY "ID"`, slot)
	if err != nil {
		return nil, fmt.Errorf("workernode: read the worker ids of slot %d: %w", slot, err)
	}
	return nodes, nil
}

// nodesAt returns the nodes of a slot. ok is false if the slot does not have the given holder and version any more.
func (d *DB) nodesAt(ctx context.Context, slot int64, holder string, version int64) (nodes []*Node, ok bool, err error) {
	// A row of NULLs means that the slot matches but owns no worker id.
	err = d.sql.Query(ctx, func(rows *sql.Rows) error {
		ok = true
		n, err := scanNode(rows)
		if err == nil && n != nil {
			nodes = append(nodes, n)
		}
		return err
	}, `SELECT `+nodeFields+` FROM "WORKER_SLOT" "S" LEFT JOIN "WORKER_NODE" "N" ON "N"."SLOT" = "S"."ID" WHERE "S"."ID" = ? AND "S"."HOLDER" = ? AND "S"."VERSION" = ? ORDER BY "N"."ID"`,
		slot, holder, version)
	if err != nil {
		return nil, false, fmt.Errorf("workernode: read the worker ids of slot %d: %w", slot, err)
	}
	return nodes, ok, nil
}

func (d *DB) nodes(ctx context.Context, where string, args ...any) ([]*Node, error) {
	return d.query(ctx, selectNodes+where, args...)
}

func (d *DB) query(ctx context.Context, query string, args ...any) (nodes []*Node, err error) {
	err = d.sql.Query(ctx, func(rows *sql.Rows) error {
		n, err := scanNode(rows)
		if err == nil && n != nil {
			nodes = append(nodes, n)
		}
		return err
	}, query, args...)
	return nodes, err
}

// scanNode reads a node, or nil from a row of NULLs.
func scanNode(rows *sql.Rows) (*Node, error) {
	var r nodeRow
	err := sqldb.Scan(rows, NodeTable, 1, r.into()...)
	if err != nil {
		return nil, err
	}
	return r.node(), nil
}

type nodeRow struct {
	id, slot, start         sql.NullInt64
	database, table, layout sql.NullString
	launched                date
}

func (r *nodeRow) into() []any {
	return []any{&r.id, &r.slot, &r.database, &r.table, &r.layout, &r.start, &r.launched}
}

func (r *nodeRow) node() *Node {
	if !r.id.Valid {
		return nil
	}
	return &Node{
		WorkerID: r.id.Int64, Slot: r.slot.Int64, Table: Table{r.database.String, r.table.String}, Layout: r.layout.String, Start: r.start.Int64,
		LaunchDate: r.launched.Time,
	}
}

// date reads a DATE or a DATETIME that people will see. The driver returns a time or, with parseTime=false of
// MySQL, text. The digits are UTC, whatever zone the driver adds. Other values leave the date zero: a word on
// SQLite, infinity on PostgreSQL, or a year that JSON cannot represent.
type date struct{ time.Time }

// timestampFormat is the format of a DATETIME, with milliseconds.
const timestampFormat = "2006-01-02 15:04:05.000"

// Scan implements [sql.Scanner].
func (d *date) Scan(v any) error {
	var text string
	switch v := v.(type) {
	case time.Time:
		d.set(time.Date(v.Year(), v.Month(), v.Day(), v.Hour(), v.Minute(), v.Second(), v.Nanosecond(), time.UTC))
	case []byte:
		text = string(v)
	case string:
		text = v
	}
	for _, format := range [...]string{time.DateTime, time.DateOnly, time.RFC3339} {
		if t, err := time.Parse(format, text); err == nil { // fractions of a second are read as well
			d.set(t.UTC())
		}
	}
	return nil
}

func (d *date) set(t time.Time) {
	if t.Year() >= 0 && !t.After(latestTime) {
		d.Time = t
	}
}

package workernode

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"
)

// The names of the tables. GORM's naming strategies and prefixes do not touch
// them, so that every application of a database finds the same.
const (
	NodeTable     = "WORKER_NODE"
	RegistryTable = "WORKER_REGISTRY"
)

// MaxTableName is the longest name of a table, in characters, that a worker node
// can bear.
const MaxTableName = 128

// A Kind says where a process runs: column TYPE, with UidGenerator's values.
type Kind int

// The kinds of UidGenerator's WorkerNodeType.
const (
	Container Kind = 1
	Actual    Kind = 2 // a machine, physical or virtual
)

// String returns UidGenerator's name of the kind.
func (k Kind) String() string {
	switch k {
	case Container:
		return "CONTAINER"
	case Actual:
		return "ACTUAL"
	}
	return fmt.Sprintf("Kind(%d)", int(k))
}

// A Node is a row of WORKER_NODE: one worker id and what it stands for.
type Node struct {
	WorkerID int64  // ID
	Table    string // TABLE_NAME; empty in a row that UidGenerator made
	Layout   string // LAYOUT, as [generator.Layout.String]; empty as Table

	Host       string // HOST_NAME
	Port       string // PORT
	Kind       Kind   // TYPE
	LaunchDate time.Time

	Start  int64 // START_SECOND: no id of Table bears this worker id with this tick or an earlier one
	Held   int64 // HELD_SECOND: ids up to this tick are of an earlier holder than the one named here
	Fence  int64 // FENCE: nobody stamps a later tick than this one, until it is moved
	Holder string
}

const selectNodes = `SELECT "ID", "TABLE_NAME", "LAYOUT", "HOST_NAME", "PORT", "TYPE", "LAUNCH_DATE", "START_SECOND", "HELD_SECOND", "FENCE", "HOLDER" FROM "WORKER_NODE"`

// lookupChunk keeps a statement below the number of values that SQLite (32,766)
// and the others take.
const lookupChunk = 1000

// Lookup returns the nodes of worker ids, those that exist.
func (d *DB) Lookup(ctx context.Context, workers ...int64) (map[int64]*Node, error) {
	nodes := make(map[int64]*Node, len(workers))
	for len(workers) > 0 {
		chunk := workers[:min(len(workers), lookupChunk)]
		workers = workers[len(chunk):]
		args := make([]any, len(chunk))
		for i, w := range chunk {
			args[i] = w
		}
		err := d.Query(ctx, func(rows *sql.Rows) error {
			n, err := scanNode(rows)
			if err == nil {
				nodes[n.WorkerID] = n
			}
			return err
		}, selectNodes+` WHERE "ID" IN (?`+strings.Repeat(", ?", len(args)-1)+`)`, args...)
		if err != nil {
			return nil, fmt.Errorf("workernode: look up worker ids: %w", err)
		}
	}
	return nodes, nil
}

// Nodes returns up to limit nodes with worker ids above after, in ascending
// order.
func (d *DB) Nodes(ctx context.Context, after int64, limit int) ([]*Node, error) {
	var nodes []*Node
	err := d.Query(ctx, func(rows *sql.Rows) error {
		n, err := scanNode(rows)
		nodes = append(nodes, n)
		return err
	}, selectNodes+fmt.Sprintf(` WHERE "ID" > ? ORDER BY "ID" LIMIT %d`, limit), after)
	if err != nil {
		return nil, fmt.Errorf("workernode: list worker nodes: %w", err)
	}
	return nodes, nil
}

func scanNode(rows *sql.Rows) (*Node, error) {
	n, launched := &Node{}, date{}
	err := rows.Scan(&n.WorkerID, &n.Table, &n.Layout, &n.Host, &n.Port, &n.Kind, &launched, &n.Start, &n.Held, &n.Fence, &n.Holder)
	n.LaunchDate = launched.Time
	return n, err
}

// date reads a DATE from whatever the driver makes of it: a time, or, with
// MySQL's parseTime=false, text.
type date struct{ time.Time }

// Scan implements [sql.Scanner].
func (d *date) Scan(v any) error {
	var text string
	switch v := v.(type) {
	case time.Time:
		d.Time = v
		return nil
	case []byte:
		text = string(v)
	case string:
		text = v
	default:
		return fmt.Errorf("workernode: column LAUNCH_DATE holds a %T", v)
	}
	if strings.HasPrefix(text, "0000-00-00") {
		return nil // MySQL's word for no date
	}
	t, err := time.Parse(time.DateOnly, text[:min(len(text), len(time.DateOnly))])
	if err != nil {
		return fmt.Errorf("workernode: column LAUNCH_DATE holds %q", text)
	}
	d.Time = t
	return nil
}

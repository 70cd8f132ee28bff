package workernode

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/uidplugin/uidplugin/generator"
)

// Disposable gives each process a new worker id for each of its tables, at each
// start, and never gives one out again: UidGenerator's policy (its
// DisposableWorkerIdAssigner), with a table's name in the row. It needs no
// statement after the start.
//
// It may be used concurrently.
type Disposable struct {
	db     *DB
	layout generator.Layout
	host   Host
	holder string
	now    func() time.Time
}

// NewDisposable returns the policy for one start of a process.
func NewDisposable(db *DB, layout generator.Layout, host Host, now func() time.Time) *Disposable {
	return &Disposable{db: db, layout: layout, holder: rand.Text(), now: now,
		host: Host{Name: fit(host.Name, maxHost), Port: fit(host.Port, maxHost), Kind: host.Kind}}
}

// insertChunk keeps a statement below the number of values that SQLite (32,766)
// takes, with room for columns to come.
const insertChunk = 1000

// Assign returns one lease for each of tables, in their order, in a number of
// statements that does not depend on how many they are (up to 1,000). A table may
// be given twice; then it gets two worker ids.
//
// ctx should not be the one of a single request: when it ends in the middle, worker
// ids are lost, though never used twice.
func (a *Disposable) Assign(ctx context.Context, tables ...string) ([]generator.Lease, error) {
	for _, t := range tables {
		if t == "" || utf8.RuneCountInString(t) > MaxTableName {
			return nil, fmt.Errorf("%w: the table name %q has not 1 to %d characters", ErrTable, t, MaxTableName)
		}
	}
	if len(tables) == 0 {
		return nil, nil
	}
	var atLeast int64
	for try := 0; ; try++ {
		leases, err := a.assign(ctx, tables, atLeast)
		if err == nil {
			return leases, nil
		}
		switch {
		case try >= maxTries:
			return nil, err
		case errors.Is(err, errTaken):
			// UidGenerator inserts into the same table. Its ids come from
			// AUTO_INCREMENT, so go where that is.
			largest, e := a.db.largest(ctx, a.layout)
			if e != nil {
				return nil, fmt.Errorf("workernode: %w", e)
			}
			if largest+int64(len(tables)) <= a.layout.MaxWorkerID() {
				atLeast = largest + 1
			}
		case passing(err):
			if err := pause(ctx, try); err != nil {
				return nil, fmt.Errorf("workernode: insert worker nodes: %w", err)
			}
		default:
			return nil, err
		}
	}
}

func (a *Disposable) assign(ctx context.Context, tables []string, atLeast int64) ([]generator.Lease, error) {
	first, floor, err := a.db.reserve(ctx, a.layout, int64(len(tables)), atLeast)
	if err != nil {
		return nil, err
	}
	now := a.now()
	if err := a.layout.ValidAt(now); err != nil {
		return nil, err
	}
	from := max(a.layout.TickAt(now), floor+1)
	if from > a.layout.MaxTick() {
		return nil, fmt.Errorf("%w: FLOOR_SECOND in %s is %d, and the last tick of the layout is %d", generator.ErrTimeExhausted, RegistryTable, floor, a.layout.MaxTick())
	}
	leases := make([]generator.Lease, len(tables))
	for i := range leases {
		leases[i] = generator.Lease{WorkerID: first + int64(i), From: from, Until: a.layout.MaxTick()}
	}
	for i := 0; i < len(leases); i += insertChunk {
		end := min(i+insertChunk, len(leases))
		if err := a.insert(ctx, tables[i:end], leases[i:end]); err != nil {
			return nil, err
		}
	}
	return leases, nil
}

const (
	insertNodes = `INSERT INTO "WORKER_NODE" ("ID", "HOST_NAME", "PORT", "TYPE", "LAUNCH_DATE", "MODIFIED", "CREATED",` +
		` "TABLE_NAME", "LAYOUT", "REUSABLE", "START_SECOND", "FENCE", "HOLDER") VALUES `
	insertValues = `(?, ?, ?, ?, CURRENT_DATE, CURRENT_TIMESTAMP, CURRENT_TIMESTAMP, ?, ?, 0, ?, ?, ?)`
)

// insert writes the rows of leases, all or none.
func (a *Disposable) insert(ctx context.Context, tables []string, leases []generator.Lease) error {
	values := make([]string, len(leases))
	var args []any
	for i, l := range leases {
		values[i] = insertValues
		args = append(args, l.WorkerID, a.host.Name, a.host.Port, int(a.host.Kind), tables[i], a.layout.String(), l.From-1, l.Until, a.holder)
	}
	changed, err := a.db.Exec(ctx, insertNodes+strings.Join(values, ", "), args...)
	switch {
	case err == nil && changed == int64(len(leases)):
		return nil
	case err == nil:
		return fmt.Errorf("workernode: insert worker nodes: the database reports %d new rows, not %d", changed, len(leases))
	case a.db.duplicate(err):
		return fmt.Errorf("%w: %w", errTaken, err)
	}
	return fmt.Errorf("workernode: insert worker nodes: %w", err)
}

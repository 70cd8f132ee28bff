package workernode

import (
	"context"
	"errors"
	"fmt"
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
	statements
	now func() time.Time
}

// NewDisposable returns the policy for one start of a process.
func NewDisposable(db *DB, layout generator.Layout, host Host, now func() time.Time) *Disposable {
	return &Disposable{statements: newStatements(db, layout, host), now: now}
}

// Assign returns one lease for each of tables, in their order, in a number of
// statements that does not depend on how many they are (up to 1,000). A table may
// be given twice; then it gets two worker ids.
//
// ctx should not be the one of a single request: when it ends in the middle, worker
// ids are lost, though never used twice.
func (a *Disposable) Assign(ctx context.Context, tables ...string) ([]generator.Lease, error) {
	if err := checkTables(tables); err != nil {
		return nil, err
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
		case Passing(err):
			if err := pause(ctx, try); err != nil {
				return nil, fmt.Errorf("workernode: insert worker nodes: %w", err)
			}
		default:
			return nil, err
		}
	}
}

func checkTables(tables []string) error {
	for _, t := range tables {
		if t == "" || utf8.RuneCountInString(t) > MaxTableName {
			return fmt.Errorf("%w: the table name %q has not 1 to %d characters", ErrTable, t, MaxTableName)
		}
	}
	return nil
}

func (a *Disposable) assign(ctx context.Context, tables []string, atLeast int64) ([]generator.Lease, error) {
	r, err := a.db.Join(ctx, a.layout)
	if err != nil {
		return nil, err
	}
	block, err := a.db.reserve(ctx, a.layout, r, int64(len(tables)), atLeast)
	if errors.Is(err, ErrExhausted) {
		return nil, fmt.Errorf("%w; each start of a process takes one for each table it writes, and none is given out again, for worker ids are disposable:"+
			" take a layout with more worker bits for a new id space, write to fewer tables, or let worker ids be leased", err)
	}
	if err != nil {
		return nil, err
	}
	now := a.now()
	if err := a.layout.ValidAt(now); err != nil {
		return nil, err
	}
	from := max(a.layout.TickAt(now), r.Floor+1)
	if from > a.layout.MaxTick() {
		return nil, fmt.Errorf("%w: FLOOR_SECOND in %s is %d, and the last tick of the layout is %d", generator.ErrTimeExhausted, RegistryTable, r.Floor, a.layout.MaxTick())
	}
	leases := make([]generator.Lease, len(tables))
	for i := range leases {
		leases[i] = generator.Lease{WorkerID: block.worker(i), From: from, Until: a.layout.MaxTick()}
	}
	nodes := make([]newNode, len(leases))
	for i, l := range leases {
		nodes[i] = newNode{worker: l.WorkerID, table: tables[i], start: l.From - 1, fence: l.Until}
	}
	return leases, a.insert(ctx, nodes)
}

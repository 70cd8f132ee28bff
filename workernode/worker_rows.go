package workernode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/uidplugin/uidplugin/workernode/internal/lease"
)

// workerRows reserves worker ids for the slot, and reads their rows again. Only the Manager's goroutine uses it.
type workerRows struct {
	store *statements

	mayInsert  bool      // the right to insert was checked
	unclaimed  []int64   // worker ids that were reserved but not inserted
	leastID    int64     // the smallest worker id to reserve
	taken      int       // consecutive adds whose worker ids another program had inserted
	mustReread bool      // worker ids were added with an unknown outcome: read them after the next acknowledgement
	lastRead   time.Time // when the rows of the slot's worker ids were last read
}

// reserve returns a worker id for each entry of tables. It reuses worker ids that were reserved for failed adds.
func (r *workerRows) reserve(ctx context.Context, tables []Table) ([]newNode, error) {
	if !r.mayInsert {
		if err := r.store.db.mayInsert(ctx); err != nil {
			return nil, err
		}
		r.mayInsert = true
	}
	if n := len(tables) - len(r.unclaimed); n > 0 {
		b, err := r.store.reserve(ctx, int64(n), r.leastID)
		if errors.Is(err, ErrExhausted) {
			return nil, err
		}
		if err != nil {
			return nil, fmt.Errorf("workernode: reserve worker ids: %w", err)
		}
		for i := range n {
			r.unclaimed = append(r.unclaimed, b.worker(i))
		}
	}
	nodes := make([]newNode, len(tables))
	for i, t := range tables {
		nodes[i] = newNode{r.unclaimed[i], t}
	}
	return nodes, nil
}

func (r *workerRows) noteAdded(nodes []newNode) {
	r.unclaimed, r.taken = r.unclaimed[len(nodes):], 0
}

// noteTaken records that another program has inserted the reserved worker ids. It reports whether to try other
// worker ids, and waits briefly before that.
func (r *workerRows) noteTaken(ctx context.Context) (retry bool, err error) {
	largest, err := r.store.db.largest(ctx, r.store.layout, r.store.region)
	if err != nil {
		return false, err
	}
	r.unclaimed, r.leastID = nil, largest+1
	r.taken++
	if r.taken <= 2*lease.MaxRefused {
		return true, pause(ctx, r.taken)
	}
	r.taken = 0
	return false, nil
}

// noteRead records that the rows of all worker ids of the slot were read.
func (r *workerRows) noteRead(nodes []*Node) {
	r.mustReread, r.lastRead = false, time.Now()
	r.unclaimed = slices.DeleteFunc(r.unclaimed, func(id int64) bool {
		return slices.ContainsFunc(nodes, func(n *Node) bool { return n.WorkerID == id })
	})
}

// due reports whether to read the rows: every ten minutes, because somebody may have deleted rows, and after an add
// with an unknown outcome.
func (r *workerRows) due(l *lease.Slot) bool {
	return (r.mustReread || time.Since(r.lastRead) > rereadAfter) &&
		l.Held && !l.InDoubt && !l.Regressed && l.Version == l.AckedVersion
}

// reread reads the rows of the slot's worker ids. If ok is false, even without an error, they must be read again.
func (r *workerRows) reread(ctx context.Context, l *lease.Slot, me string) (nodes []*Node, ok bool, err error) {
	// nodesAt also compares VERSION of the slot. It differs if a statement was committed late, or if a server that
	// lacks the latest commits has taken over.
	nodes, ok, err = r.store.db.nodesAt(ctx, l.ID, me, l.AckedVersion)
	if err == nil {
		_, err = r.store.db.floor(ctx, r.store.space)
	}
	if err == nil && ok {
		r.noteRead(nodes)
		return nodes, true, nil
	}
	if !r.mustReread && !errors.Is(err, errSpace) {
		r.lastRead, err = time.Now(), nil
	}
	return nil, false, err
}

package workernode

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/uidplugin/uidplugin/generator"
)

// registryName is the key of the one row of WORKER_REGISTRY.
const registryName = "default"

// A Registry is the row of WORKER_REGISTRY: one id space.
type Registry struct {
	Layout string // LAYOUT, as [generator.Layout.String]
	NextID int64  // NEXT_ID: no worker id from this one on was ever given out
	Floor  int64  // FLOOR_SECOND: set by an operator after a restore; no tick up to this one is stamped
}

// Join reads the registry, and begins it if there is none: then layout is pinned
// for ever. It returns an error that wraps [ErrLayoutMismatch] if another layout
// was pinned.
func (d *DB) Join(ctx context.Context, layout generator.Layout) (Registry, error) {
	for try := 0; ; try++ {
		r, ok, err := d.registry(ctx)
		if err != nil {
			return r, fmt.Errorf("workernode: read the registry: %w", err)
		}
		if ok {
			if r.Layout != layout.String() {
				return r, fmt.Errorf("%w: this process is set to %s, the database was begun with %s;"+
					" with both, two rows could get one id: give this process the database's layout, or a database of its own",
					ErrLayoutMismatch, layout, r.Layout)
			}
			return r, nil
		}
		largest, err := d.largest(ctx, layout)
		if err != nil {
			return r, fmt.Errorf("workernode: begin the registry: %w", err)
		}
		_, err = d.Exec(ctx, `INSERT INTO "WORKER_REGISTRY" ("NAME", "LAYOUT", "NEXT_ID", "FLOOR_SECOND") VALUES (?, ?, ?, 0)`,
			registryName, layout.String(), largest+1)
		if err == nil || d.duplicate(err) {
			continue // read what was written, by whomever
		}
		if !passing(err) || try >= maxTries {
			return r, fmt.Errorf("workernode: begin the registry: %w", err)
		}
		if err := pause(ctx, try); err != nil {
			return r, fmt.Errorf("workernode: begin the registry: %w", err)
		}
	}
}

func (d *DB) registry(ctx context.Context) (r Registry, ok bool, err error) {
	columns, autocommit := `"LAYOUT", "NEXT_ID", "FLOOR_SECOND"`, true
	into := []any{&r.Layout, &r.NextID, &r.Floor}
	if d.Dialect() == "mysql" {
		columns += `, @@autocommit`
		into = append(into, &autocommit)
	}
	err = d.Query(ctx, func(rows *sql.Rows) error {
		ok = true
		return rows.Scan(into...)
	}, `SELECT `+columns+` FROM "WORKER_REGISTRY" WHERE "NAME" = ?`, registryName)
	if !autocommit {
		// A worker id would be in use while its row waits for a COMMIT that never
		// comes, and is given to another process when the connection closes.
		return r, ok, errors.New("workernode: autocommit is off on the connections of this pool, so no worker id would be kept: turn it on (in the DSN or the server's init_connect)")
	}
	return r, ok, err
}

// largest returns the largest worker id in the table that fits the layout; 0 if
// there is none. One that does not fit is nobody's worker id here, and must not
// use up the layout.
func (d *DB) largest(ctx context.Context, layout generator.Layout) (id int64, err error) {
	err = d.Query(ctx, func(rows *sql.Rows) error { return rows.Scan(&id) },
		`SELECT COALESCE(MAX("ID"), 0) FROM "WORKER_NODE" WHERE "ID" <= ?`, layout.MaxWorkerID())
	return max(id, 0), err
}

// reserve takes n consecutive worker ids that nobody ever had, from at least
// atLeast on, and returns the first.
func (d *DB) reserve(ctx context.Context, layout generator.Layout, n, atLeast int64) (first int64, floor int64, err error) {
	for try := 0; ; try++ {
		r, err := d.Join(ctx, layout)
		if err != nil {
			return 0, 0, err
		}
		first = max(r.NextID, atLeast)
		if first < 1 || first+n-1 > layout.MaxWorkerID() {
			return 0, 0, fmt.Errorf("%w: %d more are wanted from %d on, and %d bits hold 1 to %d;"+
				" each start of a process takes one for each table it writes: take a layout with more worker bits for a new id space, or write to fewer tables",
				ErrExhausted, n, first, layout.WorkerBits, layout.MaxWorkerID())
		}
		changed, err := d.Exec(ctx, `UPDATE "WORKER_REGISTRY" SET "NEXT_ID" = ? WHERE "NAME" = ? AND "NEXT_ID" = ?`,
			first+n, registryName, r.NextID)
		switch {
		case err == nil && changed == 1:
			return first, r.Floor, nil
		case err != nil && !passing(err):
			return 0, 0, fmt.Errorf("workernode: reserve worker ids: %w", err)
		}
		// Another process has taken the ids, or stands in the way.
		if err := pause(ctx, try); err != nil {
			return 0, 0, fmt.Errorf("workernode: reserve worker ids: %w", err)
		}
	}
}

// maxTries bounds attempts that cannot be told from hopeless ones.
const maxTries = 20

// pause waits before attempt try+1: a random time that doubles from 4 ms up to
// 256 ms at most, so that processes that start together do not meet again.
func pause(ctx context.Context, try int) error {
	timer := time.NewTimer(rand.N(4 * time.Millisecond << min(try, 6)))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return fmt.Errorf("other processes were always faster: %w", ctx.Err())
	case <-timer.C:
		return nil
	}
}

// errTaken reports worker ids that somebody else has inserted meanwhile.
var errTaken = errors.New("workernode: worker id taken by another program")

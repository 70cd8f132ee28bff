package workernode

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
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

	// Shared tells that WORKER_NODE.ID is AUTO_INCREMENT: UidGenerator made the table,
	// and may insert into it.
	Shared bool
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
		if !Passing(err) || try >= maxTries {
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
		columns += `, @@autocommit, EXISTS (SELECT * FROM information_schema.columns WHERE table_schema = DATABASE()` +
			` AND table_name = '` + NodeTable + `' AND column_name = 'ID' AND extra LIKE '%auto_increment%')`
		into = append(into, &autocommit, &r.Shared)
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

// A block is worker ids that nobody ever had: first, first+step and so on.
type block struct{ first, step int64 }

func (b block) worker(i int) int64 { return b.first + int64(i)*b.step }

// reserve takes n worker ids that nobody ever had, from at least atLeast on. r is the
// registry as it was read a moment ago.
func (d *DB) reserve(ctx context.Context, layout generator.Layout, r Registry, n, atLeast int64) (b block, err error) {
	for try := 0; ; try++ {
		b, ok, err := d.reserveOnce(ctx, layout, r, n, max(atLeast, 1))
		if ok || err != nil && !Passing(err) {
			return b, err
		}
		// Another process has taken the ids, or stands in the way.
		if err := pause(ctx, try); err != nil {
			return b, fmt.Errorf("workernode: reserve worker ids: %w", err)
		}
		if r, err = d.Join(ctx, layout); err != nil {
			return b, err
		}
	}
}

func (d *DB) reserveOnce(ctx context.Context, layout generator.Layout, r Registry, n, atLeast int64) (b block, ok bool, err error) {
	last := layout.MaxWorkerID() - n + 1 // the last first one that there is room for
	shared := r.Shared
	if shared { // do not draw what could not be used, nor leave nothing to UidGenerator
		largest, err := d.largest(ctx, layout)
		if err != nil {
			return b, false, fmt.Errorf("workernode: reserve worker ids: %w", err)
		}
		atLeast = max(atLeast, largest+1)
		shared = max(r.NextID, atLeast) <= last
	}
	if shared {
		drawn, err := d.draw(ctx, n)
		if err != nil {
			return b, false, fmt.Errorf("workernode: draw worker ids from the AUTO_INCREMENT of %s, which UidGenerator uses too: %w", NodeTable, err)
		}
		// Below NEXT_ID it may be a reissue, for AUTO_INCREMENT forgets, and a row that is
		// nobody's worker id may have lifted it beyond the layout.
		if end := drawn.worker(int(n)); drawn.first >= max(r.NextID, atLeast) && end-1 <= layout.MaxWorkerID() {
			// They are nobody else's; NEXT_ID only has to be above them.
			_, err := d.Exec(ctx, `UPDATE "WORKER_REGISTRY" SET "NEXT_ID" = ? WHERE "NAME" = ? AND "NEXT_ID" < ?`, end, registryName, end)
			if err != nil {
				return b, false, fmt.Errorf("workernode: reserve worker ids: %w", err)
			}
			return drawn, true, nil
		}
	}
	if first := max(r.NextID, atLeast); first > last {
		return b, false, fmt.Errorf("%w: %d more are wanted from %d on, and %d bits hold 1 to %d",
			ErrExhausted, n, first, layout.WorkerBits, layout.MaxWorkerID())
	}
	b = block{first: max(r.NextID, atLeast), step: 1}
	// One statement that adds and tells what there was: processes that start at once then
	// wait in line, and do not have to try again and again. (On SQLite they wait anyway.)
	add, args := `CASE WHEN "NEXT_ID" > ? THEN "NEXT_ID" ELSE ? END`, []any{atLeast, atLeast, n, registryName, last}
	const where = ` WHERE "NAME" = ? AND "NEXT_ID" <= ?`
	switch d.Dialect() {
	case "mysql":
		b.first, ok, err = d.execID(ctx, `UPDATE "WORKER_REGISTRY" SET "NEXT_ID" = LAST_INSERT_ID(`+add+`) + ?`+where, args...)
	case "postgres":
		err = d.Query(ctx, func(rows *sql.Rows) error {
			ok = true
			return rows.Scan(&b.first)
		}, `UPDATE "WORKER_REGISTRY" SET "NEXT_ID" = `+add+` + ?`+where+` RETURNING "NEXT_ID"`, args...)
		b.first -= n
	default:
		var changed int64
		changed, err = d.Exec(ctx, `UPDATE "WORKER_REGISTRY" SET "NEXT_ID" = ? WHERE "NAME" = ? AND "NEXT_ID" = ?`, b.first+n, registryName, r.NextID)
		ok = changed == 1
	}
	if err != nil {
		return b, false, fmt.Errorf("workernode: reserve worker ids: %w", err)
	}
	return b, ok, nil
}

// draw takes n numbers from the AUTO_INCREMENT of WORKER_NODE, by an INSERT that is
// rolled back: InnoDB does not give numbers back. UidGenerator, which may have drawn
// a number and be about to insert it, never gets one of these, nor we one of its.
func (d *DB) draw(ctx context.Context, n int64) (b block, err error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	tx, err := d.beginTx(ctx)
	if err != nil {
		return b, err
	}
	defer func() { err = errors.Join(err, tx.Rollback()) }()
	if err := tx.QueryRowContext(ctx, `SELECT @@auto_increment_increment`).Scan(&b.step); err != nil {
		return b, err
	}
	query := d.translate(`INSERT INTO "WORKER_NODE" ("HOST_NAME", "PORT", "TYPE", "LAUNCH_DATE", "MODIFIED", "CREATED") VALUES ` +
		strings.Repeat(`, ('', '', 0, CURRENT_DATE, CURRENT_TIMESTAMP, CURRENT_TIMESTAMP)`, int(n))[2:])
	begin := time.Now()
	result, err := tx.ExecContext(ctx, query)
	d.trace(ctx, begin, query, nil, 0, err)
	if err == nil {
		b.first, err = result.LastInsertId()
	}
	return b, err
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

// persist calls f again, up to maxTries times, as long as its errors are passing.
func persist(ctx context.Context, f func() error) (err error) {
	for try := 0; ; try++ {
		if err = f(); !Passing(err) || try >= maxTries || pause(ctx, try) != nil {
			return err
		}
	}
}

// errTaken reports worker ids that somebody else has inserted meanwhile.
var errTaken = errors.New("workernode: worker id taken by another program")

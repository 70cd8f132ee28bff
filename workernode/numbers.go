package workernode

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/sqldb"
)

// nextSlot takes a slot number that was never given out, and that is at least low.
func (s *statements) nextSlot(ctx context.Context, low int64) (int64, error) {
	r, err := s.reread(ctx)
	if err != nil {
		return 0, err
	}
	return s.db.advance(ctx, r, "NEXT_SLOT", low, 1)
}

// reserve takes n worker ids that were never given out, none of them below low.
func (s *statements) reserve(ctx context.Context, n, low int64) (b block, err error) {
	r, err := s.reread(ctx)
	if err == nil {
		err = refuseRegion(r.Region, r.Shared)
	}
	if err != nil {
		return b, err
	}
	return s.db.reserveFrom(ctx, s.layout, r, n, low)
}

// reread reads the registry again, and notes its present region.
func (s *statements) reread(ctx context.Context) (Registry, error) {
	r, err := s.db.reread(ctx, s.space, s.region)
	if err == nil {
		s.region = r.Region
	}
	return r, err
}

func (d *DB) reserveFrom(ctx context.Context, layout generator.Layout, r Registry, n, low int64) (b block, err error) {
	if r.Shared {
		largest, err := d.largest(ctx, layout, Whole)
		if err != nil {
			return b, err
		}
		low = max(low, largest+1)
	}
	low = max(low, r.NextID, r.FirstID)
	exhausted := func(first int64) error {
		return fmt.Errorf("%w: %d more are needed from %d on, but the layout's %d bits only hold 1 to %d%s%s",
			ErrExhausted, n, first, layout.WorkerBits, layout.MaxWorkerID(), r.Region.share(), r.byHand(layout))
	}
	if first := r.Region.From(low); !room(layout, r.Region, first, n) {
		return b, exhausted(first)
	}
	if r.Shared {
		if b, err = d.draw(ctx, n); err != nil {
			return b, fmt.Errorf("draw worker ids from the AUTO_INCREMENT of %s, which UidGenerator uses too: %w", NodeTable, err)
		}
		// A number below NEXT_ID may have been given out before, because AUTO_INCREMENT can go back. A row whose ID
		// is no worker id may have moved the counter beyond the layout.
		if b.first >= low && b.worker(int(n-1)) <= layout.MaxWorkerID() {
			_, err := d.sql.Exec(ctx, `UPDATE "WORKER_REGISTRY" SET "NEXT_ID" = ? WHERE "NAME" = ? AND "NEXT_ID" < ?`,
				b.worker(int(n)), registryName, b.worker(int(n)))
			if err == nil { // if the registry was divided meanwhile, other regions may begin below these numbers
				var now Registry
				if now, err = d.reread(ctx, r.Space, r.Region); err == nil && now.Region != r.Region {
					err = errDivided
				}
			}
			return b, err
		}
	}
	first, err := d.advance(ctx, r, "NEXT_ID", low, n)
	if err == nil && !room(layout, r.Region, first, n) {
		err = exhausted(first)
	}
	return block{first: first, step: r.Region.Of}, err
}

// A block is a series of worker ids that were never given out: first, first+step and so on.
type block struct{ first, step int64 }

func (b block) worker(i int) int64 { return b.first + int64(i)*b.step }

// room reports whether a layout has n worker ids of a region from first on.
func room(layout generator.Layout, region Region, first, n int64) bool {
	return first > 0 && first <= layout.MaxWorkerID()-(n-1)*region.Of
}

// draw takes n numbers from the AUTO_INCREMENT of WORKER_NODE by an INSERT that is rolled back. Unless the counter
// goes back, InnoDB gives these numbers to nobody else later. Nor does this process get a number that UidGenerator
// has drawn but not yet inserted.
func (d *DB) draw(ctx context.Context, n int64) (b block, err error) {
	err = d.transact(ctx, func(ctx context.Context, tx *DB) error {
		_, err := tx.sql.Exec(ctx, `INSERT INTO "WORKER_NODE" ("HOST_NAME", "PORT", "TYPE", "LAUNCH_DATE", "MODIFIED", "CREATED") VALUES `+
			strings.Repeat(`, ('', '', 0, CURRENT_DATE, CURRENT_TIMESTAMP, CURRENT_TIMESTAMP)`, int(n))[2:])
		if err != nil {
			return err
		}
		// Query LAST_INSERT_ID, because a trigger changes the id that the driver reports.
		err = tx.sql.Query(ctx, func(rows *sql.Rows) error { return rows.Scan(&b.first, &b.step) },
			`SELECT LAST_INSERT_ID(), @@auto_increment_increment`)
		return cmp.Or(err, errRefused)
	})
	if err == errRefused {
		err = nil
	}
	return b, err
}

// advance takes n numbers of r's region from a counter of the registry, none of them below low, and returns the
// first. It uses no transaction, because a process that vanishes must not lock a row that all processes need.
func (d *DB) advance(ctx context.Context, r Registry, counter string, low, n int64) (first int64, err error) {
	found := false
	scan := func(rows *sql.Rows) error { found = true; return rows.Scan(&first) }
	low, n = r.Region.From(max(low, 1)), n*r.Region.Of
	next := d.nextNumber(r.Region, counter) + ` + ?`
	args := []any{low, low, n, registryName, r.Space, r.Region.Of, r.Region.N}
	where := ` WHERE "NAME" = ? AND "ID_SPACE" = ? AND "STRIDE" = ? AND "REMAINDER" = ?`
	if d.sql.Dialect() == "mysql" {
		err = d.sql.Together(ctx, func(ctx context.Context, conn *sqldb.DB) error {
			changed, err := conn.Exec(ctx, `UPDATE "WORKER_REGISTRY" SET "`+counter+`" = LAST_INSERT_ID(`+next+`)`+where, args...)
			if err != nil || changed != 1 {
				return err
			}
			return conn.Query(ctx, scan, `SELECT LAST_INSERT_ID()`)
		})
	} else {
		err = d.sql.Query(ctx, scan, `UPDATE "WORKER_REGISTRY" SET "`+counter+`" = `+next+where+` RETURNING "`+counter+`"`, args...)
	}
	switch {
	case err != nil:
		return 0, err
	case !found:
		if now, err := d.reread(ctx, r.Space, r.Region); err != nil || now.Region == r.Region {
			return 0, cmp.Or(err, errors.New("the database changed no row, and reports no error"))
		}
		return 0, errDivided
	case first-n < low:
		return 0, fmt.Errorf("%w: the database reports that it has set %s in %s to %d, which is less than %d: check whether a proxy runs the statements of one connection on several",
			ErrTable, counter, RegistryTable, first, low+n)
	}
	return first - n, nil
}

// nextNumber returns SQL for the first number of the region that is not below the counter, nor below a given number
// of the region. Both question marks in the SQL are for the given number.
func (d *DB) nextNumber(r Region, counter string) string {
	aligned := `"` + counter + `"`
	if r != Whole {
		above := d.sql.Mod(`"`+counter+`"`, r.Of)
		aligned += ` + ` + d.sql.Mod(fmt.Sprintf(`(%d - %s)`, r.N+r.Of, above), r.Of)
	}
	return `CASE WHEN "` + counter + `" > ? THEN ` + aligned + ` ELSE ? END`
}

// largest returns the largest worker id of the region in WORKER_NODE, or 0. It ignores numbers beyond the layout,
// because they are not worker ids and would use up the layout.
func (d *DB) largest(ctx context.Context, layout generator.Layout, region Region) (id int64, err error) {
	where := ` WHERE "ID" <= ?`
	if region != Whole { // not for Whole: without this condition the database reads only the end of the index
		where += fmt.Sprintf(` AND %s = %d`, d.sql.Mod(`"ID"`, region.Of), region.N)
	}
	err = d.sql.Query(ctx, func(rows *sql.Rows) error { return rows.Scan(&id) },
		`SELECT COALESCE(MAX("ID"), 0) FROM "WORKER_NODE"`+where, layout.MaxWorkerID())
	return max(id, 0), err
}

// reread reads the registry again before a process takes a number, and refuses it if another registry may give out
// the same number. region is what the process last read; the registry may have been divided since.
func (d *DB) reread(ctx context.Context, space string, region Region) (r Registry, err error) {
	r, ok, err := d.registry(ctx)
	switch {
	case err != nil:
	case !ok:
		err = fmt.Errorf("%w: the row %q of %s is missing: restore it, or, if all four tables were emptied, restart this process",
			ErrTable, registryName, RegistryTable)
	case r.Space != space:
		err = sameSpace(r.Space, space)
	case !r.Region.Valid() || !r.Region.DividedFrom(region):
		err = fmt.Errorf("%w: %s is %s, but was %s when this process read it, so another registry may give out the same numbers:"+
			" if a backup was restored, run uid region split again", ErrRegion, RegistryTable, r.Region, region)
	default:
		err = d.refuseOverlap(ctx, r.Region)
	}
	return r, err
}

// refuseOverlap returns an error if a slot shows that another region gives out numbers of r. Then r is from a
// backup that is older than a division, or the other region began with another number of regions.
func (d *DB) refuseOverlap(ctx context.Context, r Region) error {
	var other sql.NullInt64
	err := d.sql.Query(ctx, func(rows *sql.Rows) error { return rows.Scan(&other) },
		fmt.Sprintf(`SELECT MIN("REGION") FROM "WORKER_SLOT" WHERE "REGION" <> %d AND %s = %d`, r.N, d.sql.Mod(`"REGION"`, r.Of), r.N))
	switch {
	case err != nil:
		return fmt.Errorf("workernode: look for slots of other regions: %w", err)
	case other.Valid:
		return fmt.Errorf("%w: %s is %s, but %s has rows of region %d, whose registry gives out the same numbers:"+
			" if a backup was restored, run uid region split again", ErrRegion, RegistryTable, r, SlotTable, other.Int64)
	}
	return nil
}

// errDivided reports that the registry was divided while a number was taken.
var errDivided = errors.New(RegistryTable + " was divided a moment ago: try again")

// mayInsert returns an error if this user may not insert worker ids. Call it before worker ids are reserved,
// because a failing process must not use them up.
func (d *DB) mayInsert(ctx context.Context) error {
	_, err := d.sql.Exec(ctx, `INSERT INTO "WORKER_NODE" (`+nodeColumns+`) SELECT `+nodeColumns+` FROM "WORKER_NODE" WHERE 1 = 0`)
	if err != nil {
		return fmt.Errorf("workernode: check the INSERT privilege on %s: %w", NodeTable, err)
	}
	return nil
}

// maxTries bounds retries that may be hopeless.
const maxTries = 20

// pause waits for a random time, so that processes that start together spread out. The longest wait doubles with
// each try, from 4 ms to 256 ms.
func pause(ctx context.Context, try int) error {
	timer := time.NewTimer(mathrand.N(4 * time.Millisecond << min(try, 6)))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return fmt.Errorf("the time ran out between two attempts: %w", ctx.Err())
	case <-timer.C:
		return nil
	}
}

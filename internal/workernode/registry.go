package workernode

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/sqldb"
)

// registryName is the key of the only row of WORKER_REGISTRY.
const registryName = "default"

// SchemaVersion is SCHEMA_VERSION of the tables that this program creates: the release that last changed them, as
// major * 1000 + minor. Within a major version, changes only add columns with defaults, so that older programs continue.
const SchemaVersion = 1

// A Registry is the row of WORKER_REGISTRY: one id space.
type Registry struct {
	Space     string // ID_SPACE: the random name of the id space
	Layout    string // LAYOUT, as [generator.Layout.String]
	LeadTicks int64  // LEAD_TICKS: how far ahead of the clock a fence is set
	NextID    int64  // NEXT_ID: this worker id, and those above, were never given out
	NextSlot  int64  // NEXT_SLOT: the same for slots
	Floor     int64  // FLOOR_TICK: set by an operator after a restore; no tick up to it is stamped
	Region    Region // STRIDE and REMAINDER: which worker ids and slots the registry gives out
	FirstID   int64  // FIRST_ID: worker ids below it are given by hand, and never by the registry

	// Shared reports whether WORKER_NODE.ID is AUTO_INCREMENT. Then UidGenerator made the table, and may insert into
	// it.
	Shared bool
}

// Registry reads the registry and changes nothing. The error wraps [ErrTable] if the table cannot be read, or is
// [ErrNotBegun] if it is empty.
func (d *DB) Registry(ctx context.Context) (Registry, error) {
	r, ok, err := d.registry(ctx)
	switch {
	case err != nil && sqldb.IsUnreachable(err):
		return r, fmt.Errorf("workernode: read %s: the database cannot be reached: %w", RegistryTable, err)
	case err != nil:
		return r, fmt.Errorf("%w: %s cannot be read: %w", ErrTable, RegistryTable, err)
	case !ok:
		return r, ErrNotBegun
	}
	return r, nil
}

// ErrNotBegun reports an empty registry. It wraps [ErrTable].
var ErrNotBegun = fmt.Errorf("%w: %s has no row: no process has begun the id space yet; start one that makes ids, or let a"+
	" migration job leave WithLookupOnly out", ErrTable, RegistryTable)

// OpenRegistry reads the registry. The first process inserts it, which pins its layout, lead and region. The zero Region
// accepts a registry of any region, and begins one that is not divided. The error wraps [ErrLayoutMismatch] if another layout is pinned,
// [ErrRegion] if another region is, and [ErrTable] if the row was deleted.
func (d *DB) OpenRegistry(ctx context.Context, layout generator.Layout, lead time.Duration, region Region) (Registry, error) {
	r, _, err := d.openRegistry(ctx, layout, lead, region)
	return r, err
}

// openRegistry also reports whether it has inserted the row.
func (d *DB) openRegistry(ctx context.Context, layout generator.Layout, lead time.Duration, region Region) (r Registry, begun bool, err error) {
	if err := d.commits(ctx); err != nil {
		return r, false, err
	}
	for try := 0; ; try++ {
		r, ok, err := d.registry(ctx)
		if err != nil {
			return r, false, fmt.Errorf("workernode: read %s: %w", RegistryTable, err)
		}
		if ok {
			return r, begun, r.check(layout, region)
		}
		begins := cmp.Or(region, Whole)
		if err := d.refuseShared(ctx, begins); err != nil {
			return r, false, err
		}
		if err := d.mayBegin(ctx, begins); err != nil {
			return r, false, err
		}
		first, next, err := d.firstIDs(ctx, layout, begins)
		if err == nil {
			_, err = d.sql.Quiet().Exec(ctx, insertRegistry, registryName, newSpace(), layout.String(), ticks(layout, lead),
				next, begins.From(1), SchemaVersion, begins.Of, begins.N, first)
			begun = err == nil
		}
		if (err == nil || d.sql.IsDuplicate(err)) && try < maxTries {
			continue // read what this process, or another one, has inserted
		}
		if !sqldb.IsTransient(err) || try >= maxTries {
			return r, false, fmt.Errorf("workernode: insert the row of %s: %w", RegistryTable, err)
		}
		if err := pause(ctx, try); err != nil {
			return r, false, fmt.Errorf("workernode: insert the row of %s: %w", RegistryTable, err)
		}
	}
}

// MayChange returns an error if [DB.OpenRegistry] would refuse the registry, whose tables may be missing or of an
// earlier version. Call it before they are created or extended, so that a process that cannot start leaves nothing
// behind.
func (d *DB) MayChange(ctx context.Context, layout generator.Layout, region Region) error {
	if err := d.commits(ctx); err != nil {
		return err
	}
	if err := d.refuseShared(ctx, cmp.Or(region, Whole)); err != nil {
		return err
	}
	columns, err := d.sql.Columns(ctx, RegistryTable)
	has := func(names ...string) bool { // another process may be adding columns, on SQLite one at a time
		return !slices.ContainsFunc(names, func(name string) bool {
			return !slices.ContainsFunc(columns, func(c sqldb.Column) bool { return strings.EqualFold(c.Name, name) })
		})
	}
	r, ok := Registry{LeadTicks: minLeadTicks, NextID: 1, NextSlot: 1, FirstID: 1, Region: Whole}, false
	switch {
	case err != nil || !has("LAYOUT"):
		return nil // it is created, or refused with the reason
	case has(registryFields...):
		r, ok, err = d.registry(ctx)
	default:
		err = d.sql.Query(ctx, func(rows *sql.Rows) error { ok = true; return rows.Scan(&r.Layout) },
			`SELECT "LAYOUT" FROM "WORKER_REGISTRY" WHERE "NAME" = ?`, registryName)
	}
	if err != nil || !ok {
		return err
	}
	return r.check(layout, region)
}

// refuseShared returns an error if a registry of one of several regions cannot begin, because UidGenerator shares
// WORKER_NODE.
func (d *DB) refuseShared(ctx context.Context, region Region) error {
	if region == Whole || d.sql.Dialect() != "mysql" {
		return nil
	}
	shared := false
	condition, args := d.sharedNodes()
	err := d.sql.Query(ctx, func(rows *sql.Rows) error { return rows.Scan(&shared) }, `SELECT `+condition, args...)
	if err != nil {
		return fmt.Errorf("workernode: look for UidGenerator: %w", err)
	}
	return refuseRegion(region, shared)
}

const (
	registryColumns = `"NAME", "ID_SPACE", "LAYOUT", "LEAD_TICKS", "NEXT_ID", "NEXT_SLOT", "FLOOR_TICK", "SCHEMA_VERSION", "STRIDE", "REMAINDER", "FIRST_ID"`
	insertRegistry  = `INSERT INTO "WORKER_REGISTRY" (` + registryColumns + `) VALUES (?, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?)`
)

// newSpace returns a random ID_SPACE.
func newSpace() string { return strings.ToLower(rand.Text()[:13]) }

// check compares the registry with the options of this process. The zero Region stands for any.
func (r Registry) check(layout generator.Layout, region Region) error {
	switch {
	case r.Layout != layout.String():
		return fmt.Errorf("%w: this process uses %s, but the database was begun with %s;"+
			" with both, two rows could get the same id: give this process the database's layout (WithLayout), or a database of its own",
			ErrLayoutMismatch, layout, r.Layout)
	case r.LeadTicks < minLeadTicks || r.LeadTicks > max(ticks(layout, 24*time.Hour), minLeadTicks):
		return fmt.Errorf("%w: LEAD_TICKS in %s is %d; it must be at least %d ticks of %v, and at most a day", ErrTable, RegistryTable, r.LeadTicks, minLeadTicks, layout.Tick)
	case r.NextID < 1 || r.NextSlot < 1 || r.FirstID < 1:
		return fmt.Errorf("%w: in %s NEXT_ID is %d, NEXT_SLOT is %d and FIRST_ID is %d; each must be at least 1", ErrTable, RegistryTable, r.NextID, r.NextSlot, r.FirstID)
	}
	return cmp.Or(r.Region.Check(), r.CheckRegion(region), refuseRegion(r.Region, r.Shared))
}

// CheckRegion returns an error that wraps [ErrRegion] if the registry is neither of a region nor of what remains of it
// after it was divided again, because then processes restart before they get the new number. The zero Region stands for
// any.
func (r Registry) CheckRegion(region Region) error {
	if region == (Region{}) || r.Region.DividedFrom(region) {
		return nil
	}
	return fmt.Errorf("%w: this process uses WithRegion(%d, %d), but the registry of this database is %s; docs/regions.md describes how to divide a registry",
		ErrRegion, region.N, region.Of, r.Region)
}

// registryFields are the columns of a [Registry].
var registryFields = []string{"ID_SPACE", "LAYOUT", "LEAD_TICKS", "NEXT_ID", "NEXT_SLOT", "FLOOR_TICK", "STRIDE", "REMAINDER", "FIRST_ID"}

func (d *DB) registry(ctx context.Context) (r Registry, ok bool, err error) {
	columns := `"` + strings.Join(registryFields, `", "`) + `"`
	into := []any{&r.Space, &r.Layout, &r.LeadTicks, &r.NextID, &r.NextSlot, &r.Floor, &r.Region.Of, &r.Region.N, &r.FirstID}
	var args []any
	if d.sql.Dialect() == "mysql" {
		shared, schema := d.sharedNodes()
		columns, args, into = columns+", "+shared, schema, append(into, &r.Shared)
	}
	err = d.sql.Query(ctx, func(rows *sql.Rows) error {
		ok = true
		return rows.Scan(into...)
	}, `SELECT `+columns+` FROM "WORKER_REGISTRY" WHERE "NAME" = ?`, append(args, registryName)...)
	return r, ok, err
}

// sharedNodes returns a condition of MySQL for [Registry.Shared], with its values.
func (d *DB) sharedNodes() (condition string, args []any) {
	schema := "DATABASE()"
	if s := d.sql.Schema(); s != "" {
		schema, args = "?", []any{s}
	}
	return `EXISTS (SELECT * FROM information_schema.columns WHERE table_schema = ` + schema +
		` AND table_name = '` + NodeTable + `' AND column_name = 'ID' AND extra LIKE '%auto_increment%')`, args
}

// commits returns an error if statements outside of transactions are not committed at once. Otherwise renewals would
// wait for a COMMIT that never comes, and be undone when the connection closes.
func (d *DB) commits(ctx context.Context) error {
	if d.sql.Dialect() != "mysql" {
		return nil
	}
	ok := false
	err := d.sql.Query(ctx, func(rows *sql.Rows) error { return rows.Scan(&ok) }, `SELECT @@autocommit = 1 AND @@completion_type <> 'CHAIN'`)
	if err == nil && !ok {
		err = errors.New("workernode: on the connections of this pool autocommit is off, or completion_type is CHAIN, so no lease would be kept: set autocommit=1 and completion_type=NO_CHAIN (in the DSN or the server's configuration)")
	}
	return err
}

// floor reads FLOOR_TICK. The error wraps [errSpace] if the registry belongs to another id space.
func (d *DB) floor(ctx context.Context, space string) (floor int64, err error) {
	err = d.sql.Query(ctx, func(rows *sql.Rows) error {
		var there string
		if err := rows.Scan(&floor, &there); err != nil {
			return err
		}
		return sameSpace(there, space)
	}, `SELECT "FLOOR_TICK", "ID_SPACE" FROM "WORKER_REGISTRY" WHERE "NAME" = ?`, registryName)
	return floor, err
}

// errSpace reports that another registry was begun, or restored, while this process ran.
var errSpace = fmt.Errorf("%w: %s belongs to another id space than this process", ErrTable, RegistryTable)

// sameSpace returns an error that wraps errSpace if the ID_SPACE there differs from this process's.
func sameSpace(there, space string) error {
	if there == space {
		return nil
	}
	return fmt.Errorf("%w: ID_SPACE is %s, but was %s when it started, so it can make no more ids: restart this process",
		errSpace, printable(there), space)
}

// firstIDs returns FIRST_ID and NEXT_ID for a registry that begins. It leaves the lowest numbers to those who give worker
// ids by hand. If WORKER_NODE has such numbers, or UidGenerator may insert them, they are not free, and FIRST_ID is 1.
func (d *DB) firstIDs(ctx context.Context, layout generator.Layout, region Region) (first, next int64, err error) {
	largest, err := d.largest(ctx, layout, region)
	if err != nil {
		return 0, 0, err
	}
	taken, shared, err := d.lowest(ctx, layout)
	if err != nil || taken || shared {
		return 1, region.From(largest + 1), err
	}
	first = layout.MaxFixedWorkerID() + 1
	return first, region.From(max(largest+1, first)), nil
}

// lowest reports whether WORKER_NODE has one of the numbers that a registry leaves to those who give worker ids by hand,
// and whether UidGenerator may insert them.
func (d *DB) lowest(ctx context.Context, layout generator.Layout) (taken, shared bool, err error) {
	columns, args := `EXISTS (SELECT 1 FROM "WORKER_NODE" WHERE "ID" BETWEEN 1 AND ?)`, []any{layout.MaxFixedWorkerID()}
	into := []any{&taken}
	if d.sql.Dialect() == "mysql" {
		condition, schema := d.sharedNodes()
		columns, args, into = columns+`, `+condition, append(args, schema...), append(into, &shared)
	}
	err = d.sql.Query(ctx, func(rows *sql.Rows) error { return rows.Scan(into...) }, `SELECT `+columns, args...)
	return taken, shared, err
}

// largest returns the largest worker id of a region in the table that fits the layout, or 0. We ignore larger numbers,
// because they are not worker ids and would use up the layout.
func (d *DB) largest(ctx context.Context, layout generator.Layout, region Region) (id int64, err error) {
	where := ` WHERE "ID" <= ?`
	if region != Whole { // without this condition the database reads only the end of the index
		where += fmt.Sprintf(` AND %s = %d`, d.sql.Mod(`"ID"`, region.Of), region.N)
	}
	err = d.sql.Query(ctx, func(rows *sql.Rows) error { return rows.Scan(&id) },
		`SELECT COALESCE(MAX("ID"), 0) FROM "WORKER_NODE"`+where, layout.MaxWorkerID())
	return max(id, 0), err
}

// nextSlot advances NEXT_SLOT and returns a slot that was never given out, none below least. It also returns the
// registry's region.
func (d *DB) nextSlot(ctx context.Context, space string, region Region, least int64) (int64, Region, error) {
	r, err := d.reread(ctx, space, region)
	if err != nil {
		return 0, region, err
	}
	slot, err := d.advance(ctx, r, "NEXT_SLOT", least, 1)
	return slot, r.Region, err
}

// advance takes n numbers of r's region from a counter of the registry, none below least, and returns the first. It uses
// one statement outside of a transaction, because a process that vanishes must not lock a row that all need. The error
// wraps [errSpace] if the registry belongs to another id space than r.
func (d *DB) advance(ctx context.Context, r Registry, counter string, least, n int64) (first int64, err error) {
	found := false
	scan := func(rows *sql.Rows) error { found = true; return rows.Scan(&first) }
	least, n = r.Region.From(max(least, 1)), n*r.Region.Of
	next := d.nextNumber(r.Region, counter) + ` + ?`
	args := []any{least, least, n, registryName, r.Space, r.Region.Of, r.Region.N}
	where := ` WHERE "NAME" = ? AND "ID_SPACE" = ? AND "STRIDE" = ? AND "REMAINDER" = ?`
	if d.sql.Dialect() == "mysql" {
		err = d.sql.Together(ctx, func(ctx context.Context, conn *sqldb.DB) error {
			changed, err := conn.Exec(ctx, `UPDATE "WORKER_REGISTRY" SET "`+counter+`" = LAST_INSERT_ID(`+next+`)`+where, args...)
			if err != nil || changed != 1 {
				return err
			}
			// Query the function, because a trigger changes the driver's answer.
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
	case first-n < least:
		return 0, fmt.Errorf("%w: the database reports that it has set %s in %s to %d, which is less than %d: check whether a proxy runs the statements of one connection on several",
			ErrTable, counter, RegistryTable, first, least+n)
	}
	return first - n, nil
}

// errDivided reports that the registry was divided while a number was taken.
var errDivided = errors.New(RegistryTable + " was divided a moment ago: try again")

// mayInsert returns an error if this user lacks the privilege to insert worker ids. Check it first, so that a failing
// process does not use up worker ids.
func (d *DB) mayInsert(ctx context.Context) error {
	_, err := d.sql.Exec(ctx, `INSERT INTO "WORKER_NODE" (`+nodeColumns+`) SELECT `+nodeColumns+` FROM "WORKER_NODE" WHERE 1 = 0`)
	if err != nil {
		return fmt.Errorf("workernode: check the INSERT privilege on %s: %w", NodeTable, err)
	}
	return nil
}

// A block is a series of worker ids that were never given out: first, first+step and so on.
type block struct{ first, step int64 }

func (b block) worker(i int) int64 { return b.first + int64(i)*b.step }

// reserve takes n worker ids that were never given out, none below atLeast, and returns the registry's region. The error
// wraps [ErrExhausted] if the layout has too few left.
func (d *DB) reserve(ctx context.Context, layout generator.Layout, space string, region Region, n, atLeast int64) (b block, _ Region, err error) {
	r, err := d.reread(ctx, space, region)
	if err == nil {
		err = refuseRegion(r.Region, r.Shared)
	}
	if err != nil {
		return b, region, err
	}
	b, err = d.reserveFrom(ctx, layout, r, n, atLeast)
	return b, r.Region, err
}

func (d *DB) reserveFrom(ctx context.Context, layout generator.Layout, r Registry, n, atLeast int64) (b block, err error) {
	if r.Shared {
		largest, err := d.largest(ctx, layout, Whole)
		if err != nil {
			return b, err
		}
		atLeast = max(atLeast, largest+1)
	}
	atLeast = max(atLeast, r.NextID, r.FirstID)
	exhausted := func(first int64) error {
		return fmt.Errorf("%w: %d more are needed from %d on, but the layout's %d bits only hold 1 to %d%s%s",
			ErrExhausted, n, first, layout.WorkerBits, layout.MaxWorkerID(), r.Region.share(), r.byHand(layout))
	}
	if first := r.Region.From(atLeast); !room(layout, r.Region, first, n) {
		return b, exhausted(first)
	}
	if r.Shared {
		if b, err = d.draw(ctx, n); err != nil {
			return b, fmt.Errorf("draw worker ids from the AUTO_INCREMENT of %s, which UidGenerator uses too: %w", NodeTable, err)
		}
		// A number below NEXT_ID may have been given out before, because AUTO_INCREMENT can go back. A row that is not
		// a worker id may have moved the counter beyond the layout.
		if b.first >= atLeast && b.worker(int(n-1)) <= layout.MaxWorkerID() {
			_, err := d.sql.Exec(ctx, `UPDATE "WORKER_REGISTRY" SET "NEXT_ID" = ? WHERE "NAME" = ? AND "NEXT_ID" < ?`,
				b.worker(int(n)), registryName, b.worker(int(n)))
			if err == nil { // somebody may have removed AUTO_INCREMENT and divided the registry meanwhile, below these numbers
				var now Registry
				if now, err = d.reread(ctx, r.Space, r.Region); err == nil && now.Region != r.Region {
					err = errDivided
				}
			}
			return b, err
		}
	}
	first, err := d.advance(ctx, r, "NEXT_ID", atLeast, n)
	if err == nil && !room(layout, r.Region, first, n) {
		err = exhausted(first)
	}
	return block{first: first, step: r.Region.Of}, err
}

// room reports whether a layout has n worker ids of a region from first on.
func room(layout generator.Layout, region Region, first, n int64) bool {
	return first > 0 && first <= layout.MaxWorkerID()-(n-1)*region.Of
}

// draw takes n numbers from the AUTO_INCREMENT of WORKER_NODE by an INSERT that is rolled back, because InnoDB does not
// reuse them. So neither this process nor UidGenerator, which may have drawn numbers without inserting them yet, ever
// gets a number of the other.
func (d *DB) draw(ctx context.Context, n int64) (b block, err error) {
	err = d.transact(ctx, func(ctx context.Context, tx *DB) error {
		_, err := tx.sql.Exec(ctx, `INSERT INTO "WORKER_NODE" ("HOST_NAME", "PORT", "TYPE", "LAUNCH_DATE", "MODIFIED", "CREATED") VALUES `+
			strings.Repeat(`, ('', '', 0, CURRENT_DATE, CURRENT_TIMESTAMP, CURRENT_TIMESTAMP)`, int(n))[2:])
		if err != nil {
			return err
		}
		// Query the function, because a trigger changes the driver's answer.
		err = tx.sql.Query(ctx, func(rows *sql.Rows) error { return rows.Scan(&b.first, &b.step) },
			`SELECT LAST_INSERT_ID(), @@auto_increment_increment`)
		return cmp.Or(err, errRefused)
	})
	if err == errRefused {
		err = nil
	}
	return b, err
}

// maxTries bounds retries that may be hopeless.
const maxTries = 20

// pause waits before attempt try+1. The time is random, so that processes that start together spread out. Its bound
// doubles from 4 ms to 256 ms.
func pause(ctx context.Context, try int) error {
	timer := time.NewTimer(mathrand.N(4 * time.Millisecond << min(try, 6)))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return fmt.Errorf("lost every race: %w", ctx.Err())
	case <-timer.C:
		return nil
	}
}

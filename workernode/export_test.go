package workernode

import (
	"context"
	"io/fs"
	"log/slog"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/sqldb"
)

var Fit = fit

const LookupChunk = lookupChunk

// Detect is DetectHost on a file system and an environment of a test.
func Detect(root fs.FS, getenv func(string) string) Host { return detect(root, getenv) }

// PortOf is the Port of DetectHost.
var PortOf = portOf

func (d *DB) SQL() *sqldb.DB { return d.sql }

func ScanDate(v any) (text string, err error) {
	var d date
	err = d.Scan(v)
	return d.Format("2006-01-02 15:04:05.000 MST"), err
}

func (d *DB) OpenRegistry(ctx context.Context, layout generator.Layout, lead time.Duration, region Region) (Registry, error) {
	r, _, err := d.openRegistry(ctx, layout, lead, region)
	return r, err
}

func (l *TableLease) Table() Table { return l.table }

// NodesAt returns the nodes of a slot whose row has a holder and a version.
func (d *DB) NodesAt(ctx context.Context, slot int64, holder string, version int64) ([]*Node, bool, error) {
	return d.nodesAt(ctx, slot, holder, version)
}

// Reserve takes n worker ids, and returns the first and the distance to the next.
func (d *DB) Reserve(ctx context.Context, layout generator.Layout, n int64) (first, step int64, err error) {
	r, _, err := d.registry(ctx)
	if err != nil {
		return 0, 0, err
	}
	b, err := taker(d, layout, r).reserve(ctx, n, 0)
	return b.first, b.step, err
}

func (d *DB) NextSlot(ctx context.Context) (int64, error) {
	r, _, err := d.registry(ctx)
	if err != nil {
		return 0, err
	}
	return taker(d, generator.DefaultLayout(), r).nextSlot(ctx, 1)
}

// taker returns the statements of a process that has read a registry.
func taker(d *DB, layout generator.Layout, r Registry) *statements {
	return &statements{db: d, layout: layout, space: r.Space, region: r.Region}
}

// CheckClock compares the clock of a manager with the database's.
func CheckClock(ctx context.Context, db *DB, now func() time.Time, log *slog.Logger) error {
	return NewClockCheck(db, now, log).Check(ctx)
}

// A ClockCheck compares the clock of a manager with the database's again and again.
type ClockCheck struct{ c clockCheck }

func NewClockCheck(db *DB, now func() time.Time, log *slog.Logger) *ClockCheck {
	return &ClockCheck{clockCheck{
		store: &statements{db: db}, clock: newClock(now, generator.DefaultLayout()), maxSkew: DefaultMaxSkew, log: log,
	}}
}

func (c *ClockCheck) Check(ctx context.Context) error { return c.c.check(ctx) }
func (c *ClockCheck) Now() time.Time                  { return c.c.clock.now() }

// Pass makes the latest refusal of the wall clock older.
func (c *ClockCheck) Pass(d time.Duration) { c.c.asked = c.c.asked.Add(-d) }

var InASCII = inASCII

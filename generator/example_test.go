package generator_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/uidplugin/uidplugin/generator"
)

// Noon of a day, for examples whose output does not change.
func exampleNoon() time.Time { return time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC) }

// Snowflake reads the clock for each id. When the clock goes back too far, it refuses.
func ExampleNewSnowflake() {
	now := exampleNoon()
	layout := generator.SnowflakeLayout()
	g, err := generator.NewSnowflake(generator.SnowflakeConfig{
		Layout: layout, Lease: layout.FullLease(7, now), MaxClockBackwards: 5 * time.Millisecond,
		Now: func() time.Time { return now },
	})
	if err != nil {
		panic(err)
	}
	defer g.Close()

	id, err := g.Next(context.Background())
	if err != nil {
		panic(err)
	}
	parts, err := layout.Decompose(id)
	if err != nil {
		panic(err)
	}
	fmt.Println(id, parts.Time.Format(time.TimeOnly), parts.WorkerID, parts.Sequence)

	now = now.Add(-time.Second)
	_, err = g.Next(context.Background())
	fmt.Println(errors.Is(err, generator.ErrClockBackwards))
	// Output:
	// 2124472963691474944 12:00:00 7 0
	// true
}

// Two worker ids let ids go on while the clock is behind: the backup lane stamps them.
func ExampleNewPaired() {
	now := exampleNoon()
	layout := generator.SnowflakeLayout()
	backup := layout.BackupWorker(7)
	g, err := generator.NewPaired(generator.PairedConfig{
		Layout: layout, Main: layout.FullLease(7, now), Backup: layout.FullLease(backup, now),
		Clock: generator.NewClock(func() time.Time { return now }),
	})
	if err != nil {
		panic(err)
	}
	defer g.Close()

	for range 2 {
		id, err := g.Next(context.Background())
		if err != nil {
			panic(err)
		}
		parts, err := layout.Decompose(id)
		if err != nil {
			panic(err)
		}
		fmt.Println(parts.WorkerID == 7, parts.WorkerID == backup)
		now = now.Add(-time.Second) // somebody sets the clock back
	}
	// Output:
	// true false
	// false true
}

// tickSource makes all ids of a tick at a time, as UidGenerator does, up to an hour ahead of the clock.
func tickSource(l generator.Layout, lease generator.Lease, now func() time.Time) func(context.Context, int64) (generator.Run, error) {
	next := lease.From
	return func(ctx context.Context, _ int64) (generator.Run, error) {
		for l.TimeOf(next).After(now().Add(time.Hour)) {
			select {
			case <-ctx.Done():
				return generator.Run{}, ctx.Err()
			case <-time.After(time.Millisecond):
			}
		}
		next = max(next, min(l.TickAt(now()), lease.Until))
		if next > lease.Until {
			return generator.Run{}, generator.ErrLeaseExpired
		}
		first := (next<<l.WorkerBits | lease.WorkerID) << l.SequenceBits
		next++
		return generator.Run{First: first, N: l.MaxSequence() + 1}, nil
	}
}

// With such a source a Buffered generator is UidGenerator's CachedUidGenerator.
func ExampleBuffered() {
	layout := generator.DefaultLayout()
	g, err := generator.NewBuffered(generator.BufferedConfig{
		Source: tickSource(layout, layout.FullLease(7, exampleNoon()), exampleNoon), Size: 64})
	if err != nil {
		panic(err)
	}
	defer g.Close()
	ids := make([]int64, 17)
	if err := g.Fill(context.Background(), ids); err != nil {
		panic(err)
	}
	for _, id := range ids[15:] {
		parts, err := layout.Decompose(id)
		if err != nil {
			panic(err)
		}
		fmt.Println(parts.Time.Format(time.TimeOnly+".000"), parts.WorkerID, parts.Sequence)
	}
	// Output:
	// 12:00:00.000 7 15
	// 12:00:00.001 7 0
}

// JavaScript has doubles for numbers, so it rounds ids of most layouts to another id.
func ExampleLayout_JSSafe() {
	for _, l := range []generator.Layout{generator.DefaultLayout(), generator.JSSafeTablesLayout()} {
		fmt.Printf("%d %.0f %t\n", l.MaxID(), float64(l.MaxID()), l.JSSafe())
	}
	// Output:
	// 9223372036854775807 9223372036854775808 false
	// 9007199254740991 9007199254740991 true
}

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

// With TickSource a Buffered generator is UidGenerator's CachedUidGenerator: it stores all ids of a tick at a time.
func ExampleTickSource() {
	now := exampleNoon()
	layout := generator.DefaultLayout()
	source, err := generator.TickSource(generator.TickConfig{
		Layout: layout, Lease: layout.FullLease(7, now), Now: func() time.Time { return now },
	})
	if err != nil {
		panic(err)
	}
	run, err := source(context.Background(), 1)
	if err != nil {
		panic(err)
	}
	parts, err := layout.Decompose(run.First)
	if err != nil {
		panic(err)
	}
	fmt.Println(run.N, parts.WorkerID, parts.Sequence)
	// Output: 16 7 0
}

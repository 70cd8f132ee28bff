package main

import (
	"context"
	"fmt"
	"io"
	"time"
)

// Sizes are the settings for how much is measured.
type Sizes struct {
	Name string // whole, short, or tiny for the tests

	Rounds     int           // rounds of making ids, and of creates
	Slice      time.Duration // time of a contestant in a round
	Sustained  time.Duration // time of a contestant that never pauses
	Generators int           // generators that are made to measure the memory of one

	Rows        int           // rows that are inserted into each table
	Chunk       int           // rows of one table before the next table's turn
	Joins       int           // joins that are measured
	PoolMB      int           // size of a server's buffer pool
	RowsFor     time.Duration // a server gets no more rows after this time
	OrderFor    time.Duration // time of a run with writers
	Writers     []int         // numbers of processes that insert
	Imports     []int         // numbers of rows of an import
	Interval    time.Duration // time between renewals
	CostFor     time.Duration // time of a run that counts changed rows
	Processes   []int         // numbers of processes that renew
	Tables      []int         // numbers of tables that each of these processes writes
	Starts      []int         // numbers of processes that start at once
	StartTables int           // tables of each starting process
	StartRounds int           // repetitions of each start

	Writing      []int         // writers into a followed table
	FollowFor    time.Duration // time of a run with these writers
	FollowRuns   int           // runs that compare inserts with and without the trigger
	FollowRounds int           // rounds of each of these runs
	FollowBulk   int           // rows of an INSERT ... SELECT
	FollowHeld   time.Duration // time for which a follower waits
	ConsumeFor   time.Duration // time after which a consumer is stopped, from its first row on
	Idle         time.Duration // how long to wait until a follower is idle: more than a minute
}

// Whole returns the sizes for docs/benchmarks.md.
func Whole() Sizes {
	return Sizes{
		Name: "whole", Rounds: 400, Slice: 150 * time.Microsecond, Sustained: 500 * time.Millisecond, Generators: 1000,
		Rows: 300_000, Chunk: 10_000, Joins: 600, PoolMB: 16, RowsFor: 5 * time.Minute,
		OrderFor: 45 * time.Second, Writers: []int{2, 8}, Imports: []int{20_000, 300_000},
		Interval: renewal, CostFor: 12 * time.Second, Processes: []int{1, 10, 100, 400}, Tables: []int{1, 50, 200},
		Starts: []int{1, 10, 50, 100, 200}, StartTables: 50, StartRounds: 3,
		Writing: []int{1, 8}, FollowFor: 30 * time.Second, FollowRuns: 9, FollowRounds: 15, FollowBulk: 100_000,
		FollowHeld: 5 * time.Second, ConsumeFor: 10 * time.Second, Idle: 65 * time.Second,
	}
}

// Short returns sizes for less than ten minutes. Most of this time passes until followers are idle.
func Short() Sizes {
	s := Whole()
	s.Name, s.Rounds, s.Sustained, s.Generators = "short", 100, 200*time.Millisecond, 200
	s.Rows, s.Chunk, s.Joins, s.PoolMB, s.RowsFor = 12_000, 2_000, 20, 8, 10*time.Second
	s.OrderFor = 3 * time.Second
	s.CostFor, s.Processes, s.Tables = 3300*time.Millisecond, []int{1, 10}, []int{1, 50}
	s.Starts, s.StartRounds = []int{1, 10}, 1
	s.FollowFor, s.FollowRuns, s.FollowRounds, s.ConsumeFor = 4*time.Second, 3, 5, 2*time.Second
	return s
}

// Tiny returns sizes that only show that the code runs. The figures of such a run mean nothing.
func Tiny() Sizes {
	s := Short()
	s.Name, s.Rounds, s.Slice, s.Sustained, s.Generators = "tiny", 3, 20*time.Microsecond, time.Millisecond, 5
	s.Rows, s.Chunk, s.Joins = 400, 200, 3
	s.OrderFor, s.Writers, s.Imports = 400*time.Millisecond, []int{2}, []int{3_000}
	s.Interval, s.CostFor, s.Processes, s.Tables = 100*time.Millisecond, 300*time.Millisecond, []int{2}, []int{3}
	s.Starts, s.StartTables = []int{2}, 3
	s.Writing, s.FollowFor, s.FollowRuns, s.FollowRounds = []int{2}, 200*time.Millisecond, 1, 1
	s.FollowBulk, s.FollowHeld, s.ConsumeFor, s.Idle = 300, 200*time.Millisecond, 100*time.Millisecond, 0
	return s
}

// A Lab has the sizes, servers and progress of one run.
type Lab struct {
	Sizes
	Engines []string
	Running bool      // use the servers of UID_TEST_MARIADB and so on, with their own settings
	Log     io.Writer // progress
	Begun   time.Time

	reported time.Time
}

// Say reports progress.
func (l *Lab) Say(format string, args ...any) {
	l.reported = time.Now()
	fmt.Fprintf(l.Log, "%6s  %s\n", time.Since(l.Begun).Round(time.Second), fmt.Sprintf(format, args...))
}

// Tick reports progress, but at most every five seconds.
func (l *Lab) Tick(format string, args ...any) {
	if time.Since(l.reported) > 5*time.Second {
		l.Say(format, args...)
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

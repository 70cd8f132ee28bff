package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// renewal is how often a process of the plugin renews: between 7/24 and 8/24 of a lead of 10 s.
const renewal = 3300 * time.Millisecond

// Coordinating is what the coordination of processes costs a database.
type Coordinating struct {
	Engine, Version string
	Missing         string
	For, Interval   time.Duration
	Costs           []CoordinationCost
}

// CoordinationCost is what one way costs with so many processes and tables.
type CoordinationCost struct {
	Policy            string
	Processes, Tables int
	Second            Counters // a second, once all have started
	Start             Counters // for all of them to start, together
	StartTook         time.Duration
	Due               float64 // renewals due a second; 0 for the plugin, which is measured
	Late              float64 // the part of them that was not done
}

// The ways to coordinate.
const (
	policyUID        = "uidplugin"
	policyDisposable = "disposable worker ids"
	policyPerTable   = "a row for each process and table"
)

// A joiner starts a process, and returns what ends it, or nil.
type joiner func(p *participant) (end func() error, err error)

// policies are what is compared.
var policies = []struct {
	name string
	join joiner
}{
	{policyUID, joinWithPlugin}, {policyDisposable, joinDisposable}, {policyPerTable, joinPerTable},
}

// leaseTables are the tables of the other ways than the plugin's.
var leaseTables = []string{
	"CREATE TABLE disposable (id BIGINT PRIMARY KEY, host_name VARCHAR(64) NOT NULL, table_name VARCHAR(64) NOT NULL)",
	"CREATE TABLE leases (id BIGINT PRIMARY KEY, table_name VARCHAR(64) NOT NULL, holder VARCHAR(64) NOT NULL," +
		" seen BIGINT NOT NULL)",
}

// A participant stands for a process: it has a pool of its own.
type participant struct {
	db       *gorm.DB
	number   int
	tables   int
	interval time.Duration
	stop     <-chan struct{}
	renewed  func(rows int)
	failed   func(error)
	group    *sync.WaitGroup
}

// measureCoordinating measures all ways on a server with a binary log.
func measureCoordinating(ctx context.Context, l *Lab) (*Coordinating, error) {
	all := &Coordinating{For: l.CostFor, Interval: l.Interval, Engine: "mariadb"}
	if !l.Has("mariadb") && len(l.Engines) > 0 {
		all.Engine = l.Engines[0]
	}
	var options []string
	if all.Engine == "mariadb" {
		options = []string{"--log-bin=binlog", "--binlog-format=ROW", "--server-id=1", "--sync-binlog=0",
			"--max-connections=1000"}
	}
	s, err := l.Serve(ctx, all.Engine, "", options...)
	if err != nil {
		l.Say("coordination: no %s: %v", all.Engine, err)
		all.Missing = reason(err)
		return all, ctx.Err()
	}
	defer s.Remove()
	all.Version = s.Version
	for _, processes := range l.Processes {
		for _, tables := range l.Tables {
			for _, policy := range policies {
				l.Say("coordination: %d processes, %d tables, %s", processes, tables, policy.name)
				c := CoordinationCost{Policy: policy.name, Processes: processes, Tables: tables}
				if err := cost(ctx, l, s, &c, policy.join); err != nil {
					return nil, fmt.Errorf("%s, %d processes, %d tables: %w", policy.name, processes, tables, err)
				}
				all.Costs = append(all.Costs, c)
			}
		}
	}
	return all, nil
}

// cost measures one way. Its processes are pools in this one.
func cost(ctx context.Context, l *Lab, s *Server, c *CoordinationCost, join joiner) (err error) {
	d, drop, err := s.Database()
	if err != nil {
		return err
	}
	defer drop()
	db, err := connect(d)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, testkit.Close(db)) }()
	for _, statement := range leaseTables {
		if err := db.Exec(statement).Error; err != nil {
			return err
		}
	}
	var mu sync.Mutex
	var group sync.WaitGroup
	var failed error
	renewed := 0
	stop := make(chan struct{})
	template := participant{tables: c.Tables, interval: l.Interval, stop: stop, group: &group,
		renewed: func(rows int) { mu.Lock(); renewed += rows; mu.Unlock() },
		failed:  func(err error) { mu.Lock(); failed = errors.Join(failed, err); mu.Unlock() }}
	before, err := s.counters(db)
	if err != nil {
		return err
	}
	begin := time.Now()
	ends, err := joinAll(ctx, l, d, template, c.Processes, join)
	defer func() {
		close(stop)
		group.Wait()
		for _, end := range ends {
			err = errors.Join(err, end())
		}
		err = errors.Join(err, failed)
	}()
	if err != nil {
		return err
	}
	c.StartTook = time.Since(begin)
	if err := sleep(ctx, min(time.Second, l.CostFor)); err != nil { // until what starting has left behind is done
		return err
	}
	settled, err := s.counters(db)
	if err != nil {
		return err
	}
	done := func() float64 {
		mu.Lock()
		defer mu.Unlock()
		return float64(renewed)
	}
	return c.watch(ctx, l, s, db, before, settled, done)
}

// watch measures what coordination costs once all have started.
func (c *CoordinationCost) watch(ctx context.Context, l *Lab, s *Server, db *gorm.DB, before, settled Counters,
	renewed func() float64) error {
	done, begin := renewed(), time.Now()
	if err := sleep(ctx, l.CostFor); err != nil {
		return err
	}
	after, err := s.counters(db)
	if err != nil {
		return err
	}
	took := time.Since(begin).Seconds()
	c.Start, c.Second = settled.since(before), after.since(settled).over(took)
	if c.Policy == policyPerTable {
		c.Due = float64(c.Processes*c.Tables) / l.Interval.Seconds()
		c.Late = max(0, 1-(renewed()-done)/took/c.Due)
	}
	return nil
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// joinAll starts n processes, one after the other.
func joinAll(ctx context.Context, l *Lab, d *testkit.Database, template participant, n int,
	join joiner) (ends []func() error, err error) {
	for i := range n {
		if err := ctx.Err(); err != nil {
			return ends, err
		}
		p := template
		p.number = i
		if p.db, err = connect(d); err != nil {
			return ends, err
		}
		ends = append(ends, func() error { return testkit.Close(p.db) })
		pool, err := p.db.DB()
		if err != nil {
			return ends, err
		}
		pool.SetMaxOpenConns(2)
		pool.SetMaxIdleConns(1)
		end, err := join(&p)
		if err != nil {
			return ends, err
		}
		if end != nil {
			ends = append([]func() error{end}, ends...)
		}
		l.Tick("coordination: %d of %d started", i+1, n)
	}
	return ends, nil
}

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
	"golang.org/x/sync/errgroup"
	"gorm.io/gorm"
)

// renewal is roughly the interval of the plugin's renewals, a random time between 7/24 and 8/24 of a Lead of 10 s.
const renewal = 3300 * time.Millisecond

// Coordinated is the cost of one way to coordinate.
type Coordinated struct {
	Engine            string
	Policy            string
	Processes, Tables int
	Second            Counters // changes per second, after all processes have started
	Interval          float64  // rows that each process changes in an interval
	Start             Counters // of all starts together
	StartTook         float64  // ms
	Late              float64  // the part of the renewals that the server did not manage
}

const (
	policyUID        = "uidplugin"
	policyDisposable = "disposable worker ids"
	policyPerTable   = "a row for each process and table"
)

// policies are the ways to coordinate. join starts a process, and returns a function that works until ctx ends.
var policies = []struct {
	name string
	join func(p *participant) (work func(ctx context.Context) error, err error)
}{
	{policyUID, joinWithPlugin}, {policyDisposable, joinDisposable}, {policyPerTable, joinPerTable},
}

// A leaseRow is a row that the ways without the plugin write.
type leaseRow struct {
	ID        int64  `gorm:"primaryKey;autoIncrement:false"`
	TableNo   string `gorm:"size:64"`
	Holder    string `gorm:"size:64"`
	RenewedAt int64
}

// A participant stands for a process: it has a pool of its own.
type participant struct {
	db       *gorm.DB
	number   int
	tables   int
	interval time.Duration
	renewed  *atomic.Int64
}

// measureCoordination measures all ways on the first server, MariaDB, with a binary log.
func measureCoordination(ctx context.Context, l *Lab) (all []Coordinated, err error) {
	options := func(string) []string {
		return []string{"--log-bin=binlog", "--binlog-format=ROW", "--server-id=1", "--sync-binlog=0", "--max-connections=1000"}
	}
	first := *l
	first.Engines = l.Engines[:min(1, len(l.Engines))]
	return all, first.eachServer(ctx, "coordination", "", options, func(s *Server) error {
		for _, processes := range l.Processes {
			for _, tables := range l.Tables {
				for _, policy := range policies {
					l.Say("coordination: %d processes, %d tables, %s", processes, tables, policy.name)
					c := Coordinated{Engine: s.Title, Policy: policy.name, Processes: processes, Tables: tables}
					err := s.with(func(d *testkit.Database, db *gorm.DB) error {
						return c.measure(ctx, l, s, d, db, policy.join)
					})
					if err != nil {
						return fmt.Errorf("%s, %d processes, %d tables: %w", policy.name, processes, tables, err)
					}
					all = append(all, c)
				}
			}
		}
		return nil
	})
}

// measure measures one way.
func (c *Coordinated) measure(ctx context.Context, l *Lab, s *Server, d *testkit.Database, db *gorm.DB,
	join func(p *participant) (func(context.Context) error, error)) (err error) {
	if err := db.AutoMigrate(&leaseRow{}); err != nil {
		return err
	}
	working, stop := context.WithCancel(ctx)
	var group errgroup.Group
	var renewed atomic.Int64
	var pools []*gorm.DB
	defer func() {
		stop()
		err = errors.Join(err, group.Wait())
		for _, pool := range pools {
			err = errors.Join(err, testkit.Close(pool))
		}
	}()
	before, err := s.counters(db)
	if err != nil {
		return err
	}
	begin := time.Now()
	for i := range c.Processes {
		p := &participant{number: i, tables: c.Tables, interval: l.Interval, renewed: &renewed}
		if p.db, err = d.Connect(nil); err != nil {
			return err
		}
		pools = append(pools, p.db)
		pool, err := p.db.DB()
		if err != nil {
			return err
		}
		pool.SetMaxOpenConns(2)
		pool.SetMaxIdleConns(1)
		work, err := join(p)
		if err != nil {
			return err
		}
		group.Go(func() error { return work(working) })
		l.Tick("coordination: %d of %d started", i+1, c.Processes)
	}
	c.StartTook = float64(time.Since(begin).Microseconds()) / 1000
	if err := sleep(ctx, min(time.Second, l.CostFor)); err != nil { // until the work of the start is done
		return err
	}
	settled, err := s.counters(db)
	if err != nil {
		return err
	}
	done, begin := renewed.Load(), time.Now()
	if err := sleep(ctx, l.CostFor); err != nil {
		return err
	}
	after, err := s.counters(db)
	took := time.Since(begin).Seconds()
	c.Start, c.Second = settled.since(before, 1), after.since(settled, took)
	c.Interval = c.Second.Changed * l.Interval.Seconds() / float64(c.Processes)
	if c.Policy == policyPerTable {
		due := float64(c.Processes*c.Tables) / l.Interval.Seconds()
		c.Late = max(0, 1-float64(renewed.Load()-done)/took/due)
	}
	return err
}

// joinWithPlugin starts a process that takes ids all the time, because an idle process does not renew its slot.
func joinWithPlugin(p *participant) (func(context.Context) error, error) {
	models := tables(p.tables)
	plugin, err := use(p.db, uidplugin.WithModels(models...), uidplugin.WithTimeout(time.Minute),
		uidplugin.WithHost(workernode.Host{Port: fmt.Sprint("bench", p.number)}))
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		for sleep(ctx, p.interval/4) == nil {
			for _, model := range models {
				if _, err := plugin.NextID(context.Background(), model); err != nil {
					return errors.Join(err, closePlugin(plugin))
				}
			}
		}
		return closePlugin(plugin)
	}, nil
}

// rows returns the rows of a process, one for each table.
func (p *participant) rows() (all []leaseRow) {
	for i := range p.tables {
		all = append(all, leaseRow{ID: int64(p.number*p.tables + i + 1), TableNo: fmt.Sprint("table", i),
			Holder: fmt.Sprint("bench", p.number)})
	}
	return all
}

// joinDisposable only inserts a row for each table, because worker ids of UidGenerator are never used again.
func joinDisposable(p *participant) (func(context.Context) error, error) {
	for _, row := range p.rows() {
		err := p.db.Exec("INSERT INTO lease_rows (id, table_no, holder, renewed_at) VALUES (?, ?, ?, 0)", row.ID, row.TableNo,
			row.Holder).Error
		if err != nil {
			return nil, err
		}
	}
	return func(context.Context) error { return nil }, nil
}

// joinPerTable starts a process that leases a row for each table, and renews each row in every interval.
func joinPerTable(p *participant) (func(context.Context) error, error) {
	rows := p.rows()
	return func(ctx context.Context) error {
		wait := rand.N(p.interval) // processes do not renew in step
		for next := time.Now().Add(wait); sleep(ctx, time.Until(next)) == nil; next = next.Add(p.interval) {
			for _, row := range rows {
				err := p.db.Exec("UPDATE lease_rows SET renewed_at = ? WHERE id = ? AND holder = ?", time.Now().UnixMilli(),
					row.ID, row.Holder).Error
				if err != nil {
					return err
				}
				p.renewed.Add(1)
				if ctx.Err() != nil {
					return nil
				}
			}
		}
		return nil
	}, p.db.Create(&rows).Error
}

// goalRows is the most rows that a process may change in an interval: one, and a little more because intervals vary.
const goalRows = 1.2

func coordinationTables(all []Coordinated) string {
	largest := slices.MaxFunc(all, func(a, b Coordinated) int {
		return cmp.Or(cmp.Compare(a.Processes, b.Processes), cmp.Compare(a.Tables, b.Tables))
	})
	t := table{{fmt.Sprintf("%d processes with %d tables", largest.Processes, largest.Tables), "rows/s",
		"binary log, B/s", "rows while starting", "started in, ms", "late"}}
	most := 0.0
	for _, c := range all {
		late := "–"
		if c.Policy == policyPerTable {
			late = fmt.Sprintf("%.0f %%", 100*c.Late)
		}
		if c.Policy == policyUID && c.Processes >= 10 { // fewer processes change too few rows for an exact figure
			most = max(most, c.Interval)
		}
		if c.Processes == largest.Processes && c.Tables == largest.Tables { // the chart has smaller numbers, too
			t.add(c.Policy, number(c.Second.Changed), number(c.Second.Binlog),
				number(c.Start.Changed), number(c.StartTook), late)
		}
	}
	verdict := "met"
	if most > goalRows {
		verdict = "missed"
	}
	goal := table{{"10 or more processes with uidplugin", "at most", "goal", ""}}
	goal.add("rows of a process in an interval", number(most), number(goalRows), verdict)
	return goal.String() + "\n" + t.String()
}

func drawCoordination(all []Coordinated, folder string) error {
	all = slices.DeleteFunc(slices.Clone(all), func(c Coordinated) bool { return c.Policy == policyDisposable })
	slices.SortStableFunc(all, func(a, b Coordinated) int {
		return cmp.Or(cmp.Compare(b.Policy, a.Policy), cmp.Compare(a.Tables, b.Tables))
	})
	var lines []series
	names := groups(all, func(c Coordinated) string { return fmt.Sprintf("%s, tables: %d", c.Policy, c.Tables) })
	for i, group := range names {
		line := series{name: fmt.Sprintf("%s, tables: %d", group[0].Policy, group[0].Tables),
			dash: group[0].Policy == policyPerTable, colour: i % (len(names) / 2)}
		for _, c := range group {
			line.x, line.y = append(line.x, float64(c.Processes)), append(line.y, c.Second.Changed)
		}
		lines = append(lines, line)
	}
	return curves(filepath.Join(folder, "coordination.svg"), "Rows changed to keep worker ids", "processes",
		"rows a second", true, lines...)
}

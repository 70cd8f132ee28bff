package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"time"
)

// cost returns the figures of a policy.
func (c *Coordinating) cost(policy string, processes, tables int) CoordinationCost {
	i := slices.IndexFunc(c.Costs, func(k CoordinationCost) bool {
		return k.Policy == policy && k.Processes == processes && k.Tables == tables
	})
	if i < 0 {
		return CoordinationCost{Policy: policy}
	}
	return c.Costs[i]
}

// most returns the costs of a policy for most processes and tables.
func (c *Coordinating) most(policy string) (most CoordinationCost) {
	for _, k := range c.Costs {
		if k.Policy == policy && k.Processes*k.Tables >= most.Processes*most.Tables {
			most = k
		}
	}
	return most
}

// UID returns the costs of the plugin for most processes and tables.
func (c *Coordinating) UID() CoordinationCost { return c.most(policyUID) }

// PerTable returns the same for a row for each process and table.
func (c *Coordinating) PerTable() CoordinationCost { return c.most(policyPerTable) }

// RowsInAnInterval is how many rows a process with the plugin changes in one interval, in the run where that is most.
func (c *Coordinating) RowsInAnInterval() (most float64) {
	for _, k := range c.Costs {
		if k.Policy == policyUID && k.Processes >= 10 { // of one process only whole rows are seen
			most = max(most, k.Second.Changed*c.Interval.Seconds()/float64(k.Processes))
		}
	}
	return most
}

// Rarely is how many of these intervals are in a minute.
func (c *Coordinating) Rarely() float64 { return time.Minute.Seconds() / c.Interval.Seconds() }

// Met reports whether a process changes one row in an interval.
func (c *Coordinating) Met() bool { return c.RowsInAnInterval() <= 1.2 } // an interval is 7/24 to 8/24 of a lead

// Title is the engine with its version.
func (c *Coordinating) Title() string { return engineNames[c.Engine] + " " + shortVersion(c.Version) }

// Table has all costs.
func (c *Coordinating) Table(in language) string {
	t := &table{head: []string{in.say("processes x tables", "进程数 x 表数"), "", in.say("statements/s", "语句/秒"),
		in.say("rows/s", "行/秒"), in.say("redo, B/s", "redo，字节/秒"), in.say("binary log, B/s", "binlog，字节/秒"),
		in.say("rows while starting", "启动时的行数"), in.say("started in, ms", "启动用时，毫秒"), in.say("late", "没赶上")}}
	for _, k := range c.Costs {
		late := "–"
		if k.Due > 0 {
			late = fmt.Sprintf("%.0f %%", 100*k.Late)
		}
		t.add(fmt.Sprintf("%d x %d", k.Processes, k.Tables), in.name(k.Policy), number(k.Second.Statements),
			number(k.Second.Changed), number(k.Second.Log),
			number(k.Second.Binlog), number(k.Start.Changed), number(1000*k.StartTook.Seconds()), late)
	}
	return t.String()
}

// worse says who needs less.
func (c *Coordinating) worse(in language) []string {
	k := c.UID()
	if k.Processes == 0 {
		return nil
	}
	return []string{in.say("To renew, %d processes with %d tables each change %s rows a second. "+
		"AUTO_INCREMENT and UUIDs change none.",
		"%d 个进程各用 %d 张表，续租每秒要改 %s 行。AUTO_INCREMENT 和 UUID 一行也不改。",
		k.Processes, k.Tables, number(k.Second.Changed)),
		in.say("To start them took %s s, and with disposable worker ids %s s.",
			"启动这些进程用了 %s 秒，用一次性 worker id 时是 %s 秒。",
			number(k.StartTook.Seconds()), number(c.most(policyDisposable).StartTook.Seconds())),
		in.say("Disposable worker ids, UidGenerator's way, cost nothing after the start. But each start uses them up.",
			"UidGenerator 的一次性 worker id 在启动之后没有开销，但每次启动都要用掉新的。")}
}

// draw draws the chart of coordination.
func (c *Coordinating) draw(folder string) error {
	var all []series
	var processes, tables []int
	for _, k := range c.Costs {
		if !slices.Contains(processes, k.Processes) {
			processes = append(processes, k.Processes)
		}
		if !slices.Contains(tables, k.Tables) {
			tables = append(tables, k.Tables)
		}
	}
	for _, policy := range []string{policyUID, policyPerTable} {
		for i, n := range tables {
			s := series{colour: i + 1, name: fmt.Sprintf("uidplugin, tables: %d", n)}
			if policy == policyPerTable {
				s.name, s.dash = fmt.Sprintf("row per table, tables: %d", n), true
			}
			for _, p := range processes {
				s.x, s.y = append(s.x, float64(p)), append(s.y, c.cost(policy, p, n).Second.Changed)
			}
			all = append(all, s)
		}
	}
	return curves(filepath.Join(folder, "coordination.svg"), "Rows changed to keep worker ids", "processes",
		"rows a second", scale{true, true}, all)
}

// measured returns the runs on engines that were there.
func (s *Starting) measured() (all []StartedRun) {
	for _, r := range s.Runs {
		if r.Missing == "" {
			all = append(all, r)
		}
	}
	return all
}

// most returns for each engine the run with most processes.
func (s *Starting) most() (all []StartedRun) {
	for _, r := range s.measured() {
		if i := len(all) - 1; i >= 0 && all[i].Engine == r.Engine {
			all[i] = r
		} else {
			all = append(all, r)
		}
	}
	return all
}

// Processes is how many processes start at once, at most.
func (s *Starting) Processes() (most int) {
	for _, r := range s.most() {
		most = max(most, r.Processes)
	}
	return most
}

// LastID returns, for each engine, after how many ms the last process has its first id.
func (s *Starting) LastID(in language) string {
	return s.each(in, func(r StartedRun) float64 { return r.Plugin.Last })
}

// LastConnection returns, for each engine, after how many ms the last process without the plugin has its connection.
func (s *Starting) LastConnection(in language) string {
	return s.each(in, func(r StartedRun) float64 { return r.Bare.Last })
}

// each lists a figure of the run with most processes on each engine.
func (s *Starting) each(in language, value func(StartedRun) float64) string {
	var all []string
	for _, r := range s.most() {
		all = append(all, in.valued(engineNames[r.Engine], number(value(r))))
	}
	return in.list(all)
}

// Table has all runs.
func (s *Starting) Table(in language) string {
	last := in.say("the last one, ms", "最后一个，毫秒")
	t := &table{head: []string{"", in.say("processes", "进程数"), in.say("connection, ms", "连接，毫秒"), last,
		in.say("first id, ms", "第一个 id，毫秒"), last}}
	for _, r := range s.measured() {
		t.add(engineNames[r.Engine], fmt.Sprint(r.Processes), in.spread(r.Bare.Each), number(r.Bare.Last),
			in.spread(r.Plugin.Each), number(r.Plugin.Last))
	}
	return t.String()
}

// worse says what AUTO_INCREMENT and UUIDs do not need.
func (s *Starting) worse(in language) []string {
	slower := func(r StartedRun) bool { return r.Plugin.Each.Low > r.Bare.Each.High }
	if !slices.ContainsFunc(s.most(), slower) {
		return nil
	}
	return []string{in.say("When %d processes start at once, the first id takes longer than a connection, in ms: %s.",
		"%d 个进程同时启动时，得到第一个 id 比只建立连接多用的毫秒数为：%s。", s.Processes(),
		s.each(in, func(r StartedRun) float64 { return r.Plugin.Each.Median - r.Bare.Each.Median }))}
}

// draw draws the chart of starting.
func (s *Starting) draw(folder string) error {
	var all []series
	for _, r := range s.measured() {
		for _, plugin := range []bool{true, false} {
			name, last := engineNames[r.Engine]+", first id", r.Plugin.Last
			if !plugin {
				name, last = engineNames[r.Engine]+", connection", r.Bare.Last
			}
			i := slices.IndexFunc(all, func(s series) bool { return s.name == name })
			if i < 0 {
				i = len(all)
				all = append(all, series{name: name, dash: !plugin, colour: len(all)/2 + 1})
			}
			all[i].x, all[i].y = append(all[i].x, float64(r.Processes)), append(all[i].y, last)
		}
	}
	return curves(filepath.Join(folder, "starting.svg"), "Processes that start at once: the last one", "processes",
		"ms", scale{true, true}, all)
}

// Worse says what is worse than with a peer. What decides most often for another one comes first.
func (d *Document) Worse(in language) (all []string) {
	if d.Order != nil {
		all = append(all, d.Order.Figures.worse(in)...)
	}
	if d.Coordination != nil {
		all = append(all, d.Coordination.Figures.worse(in)...)
	}
	if d.Starting != nil {
		all = append(all, d.Starting.Figures.worse(in)...)
	}
	if d.Making != nil {
		all = append(all, d.Making.Figures.worse(in)...)
	}
	if d.Create != nil {
		all = append(all, d.Create.Figures.worse(in)...)
	}
	if d.Rows != nil {
		all = append(all, d.Rows.Figures.worse(in)...)
	}
	return all
}

// draw draws all charts.
func (d *Document) draw(folder string) (err error) {
	for _, part := range []struct {
		measured bool
		draw     func(folder string) error
	}{
		{d.Making != nil, func(f string) error { return d.Making.Figures.draw(f) }},
		{d.Create != nil, func(f string) error { return d.Create.Figures.draw(f) }},
		{d.Rows != nil, func(f string) error { return d.Rows.Figures.draw(f) }},
		{d.Order != nil, func(f string) error { return d.Order.Figures.draw(f) }},
		{d.Coordination != nil, func(f string) error { return d.Coordination.Figures.draw(f) }},
		{d.Starting != nil, func(f string) error { return d.Starting.Figures.draw(f) }},
	} {
		if part.measured && err == nil {
			err = part.draw(folder)
		}
	}
	return err
}

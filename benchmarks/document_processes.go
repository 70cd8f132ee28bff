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

// Goal says whether a process changes one row in an interval.
func (c *Coordinating) Goal() string {
	if c.RowsInAnInterval() > 1.2 { // an interval is 7/24 to 8/24 of a lead
		return "missed"
	}
	return "met"
}

// Table has all costs.
func (c *Coordinating) Table() string {
	t := &table{head: []string{"processes x tables", "", "statements/s", "rows/s", "redo, B/s", "binary log, B/s",
		"rows while starting", "started in, s", "late"}}
	for _, k := range c.Costs {
		late := "–"
		if k.Due > 0 {
			late = fmt.Sprintf("%.0f %%", 100*k.Late)
		}
		t.add(fmt.Sprintf("%d x %d", k.Processes, k.Tables), k.Policy, number(k.Second.Statements),
			number(k.Second.Changed), number(k.Second.Log),
			number(k.Second.Binlog), number(k.Start.Changed), number(k.StartTook.Seconds()), late)
	}
	return t.String()
}

// worse says who needs less.
func (c *Coordinating) worse() []string {
	k := c.UID()
	if k.Processes == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s processes with %d tables each change %s rows a second to renew. "+
		"AUTO_INCREMENT and UUIDs change none.",
		number(float64(k.Processes)), k.Tables, number(k.Second.Changed)),
		"Disposable worker ids, as those of UidGenerator, cost nothing after the start. They are used up by it."}
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
			s := series{colour: i + 1, name: fmt.Sprintf("uidplugin, %d tables", n)}
			if policy == policyPerTable {
				s.name, s.dash = fmt.Sprintf("row per table, %d tables", n), true
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

// Conclusions are one for each engine.
func (s *Starting) Conclusions() (all []string) {
	for _, r := range s.most() {
		all = append(all, fmt.Sprintf("Of %d processes on %s, the last one has its first id after %s s. "+
			"Without the plugin it has its connection after %s s.",
			r.Processes, engineNames[r.Engine], number(r.Plugin.Last/1000), number(r.Bare.Last/1000)))
	}
	return all
}

// Table has all runs.
func (s *Starting) Table() string {
	t := &table{head: []string{"", "processes", "connection, ms", "the last one", "first id, ms", "the last one"}}
	for _, r := range s.measured() {
		t.add(engineNames[r.Engine], fmt.Sprint(r.Processes), spread(r.Bare.Each), number(r.Bare.Last),
			spread(r.Plugin.Each), number(r.Plugin.Last))
	}
	return t.String()
}

// worse says what AUTO_INCREMENT and UUIDs do not need.
func (s *Starting) worse() (all []string) {
	for _, r := range s.most() {
		if r.Plugin.Each.Low > r.Bare.Each.High {
			all = append(all, fmt.Sprintf("When %d processes start at once on %s, "+
				"the first id takes %s ms longer than a connection.",
				r.Processes, engineNames[r.Engine], number(r.Plugin.Each.Median-r.Bare.Each.Median)))
		}
	}
	return all
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

// Worse says what is worse than with a peer.
func (d *Document) Worse() (all []string) {
	if d.Making != nil {
		all = append(all, d.Making.Figures.worse()...)
	}
	if d.Create != nil {
		all = append(all, d.Create.Figures.worse()...)
	}
	if d.Rows != nil {
		all = append(all, d.Rows.Figures.worse()...)
	}
	if d.Order != nil {
		all = append(all, d.Order.Figures.worse()...)
	}
	if d.Coordination != nil {
		all = append(all, d.Coordination.Figures.worse()...)
	}
	if d.Starting != nil {
		all = append(all, d.Starting.Figures.worse()...)
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

package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// The names of uidplugin's two limited rates.
const (
	oneWorker  = "uidplugin, one worker id"
	manyWorker = "uidplugin, 16 worker ids"
)

// peer returns the figures of a peer.
func (m *Making) peer(name string) MadePeer {
	i := slices.IndexFunc(m.Peers, func(p MadePeer) bool { return p.Name == name })
	if i < 0 {
		return MadePeer{Name: name}
	}
	return m.Peers[i]
}

// Next, Fill and Add are uidplugin and what it is compared with.
func (m *Making) Next() MadePeer { return m.peer(uidNext) }

// Fill returns the figures of a batch of 1,000, for one id.
func (m *Making) Fill() MadePeer { return m.peer(uidFill) }

// Add returns the figures of an atomic add.
func (m *Making) Add() MadePeer { return m.peer("one atomic add") }

// others are the peers that somebody could use instead.
func (m *Making) others() (all []MadePeer) {
	for _, p := range m.Peers {
		if p.Name != uidNext && p.Name != uidFill && p.Name != m.Add().Name {
			all = append(all, p)
		}
	}
	return all
}

// Fastest returns the other peer whose id costs least.
func (m *Making) Fastest() MadePeer {
	others := m.others()
	if len(others) == 0 {
		return MadePeer{}
	}
	return slices.MinFunc(others, func(a, b MadePeer) int { return int(10 * (a.One.Median - b.One.Median)) })
}

// Table has all peers.
func (m *Making) Table() string {
	t := &table{head: []string{"", "bytes", "one thread, ns", fmt.Sprintf("%d threads, ns an id", m.CPUs),
		"B, allocations", "ids/s without a pause", "B for a generator", "goroutines"}}
	for _, p := range m.Peers {
		memory, goroutines := number(p.Memory), number(p.Goroutines)
		if p.Shared {
			memory, goroutines = "one for the process", "–"
		}
		rate := number(p.Sustained.Median)
		switch p.Name {
		case uidNext:
			rate += ", one worker id"
		case uidFill:
			rate += ", 16 worker ids"
		case m.Add().Name:
			memory, goroutines = "–", "–"
		}
		t.add(p.Name, fmt.Sprint(p.Bytes), spread(p.One), spread(p.All),
			fmt.Sprintf("%s, %s", number(p.Allocated), number(p.Allocs)), rate, memory, goroutines)
	}
	return t.String()
}

// worse says what other peers do better.
func (m *Making) worse() (all []string) {
	next, one, many := m.Next(), m.Next().Sustained.Median, m.Fill().Sustained.Median
	var faster, more, smaller []string
	for _, p := range m.others() {
		if p.One.High < next.One.Low {
			faster = append(faster, fmt.Sprintf("%s (%s ns)", p.Name, number(p.One.Median)))
		}
		if p.Sustained.Low > many {
			more = append(more, p.Name)
		}
		if !p.Shared && p.Memory < next.Memory {
			smaller = append(smaller, fmt.Sprintf("%s (%s B)", p.Name, number(p.Memory)))
		}
	}
	if len(faster) > 0 {
		all = append(all, fmt.Sprintf("An id of these peers costs less than one of Next (%s ns): %s.",
			number(next.One.Median), strings.Join(faster, ", ")))
	}
	if len(more) > 0 {
		all = append(all, fmt.Sprintf("After its burst, a table makes %s ids a second in one process, "+
			"and %s with 16 worker ids. Of the %d peers, %d make more.",
			number(one), number(many), len(m.others()), len(more)))
	}
	if len(smaller) > 0 {
		all = append(all, fmt.Sprintf("A generator takes %s B of memory. These take less: %s.", number(next.Memory),
			strings.Join(smaller, ", ")))
	}
	return append(all, "An id is unique only within the databases that share a registry. "+
		"A UUID, ULID, xid or KSUID needs no registry.")
}

// draw draws the charts of making ids.
func (m *Making) draw(folder string) error {
	var names, rated []string
	one, all := series{name: "one thread"}, series{name: fmt.Sprintf("%d threads, one generator", m.CPUs)}
	rates := series{}
	for _, p := range m.Peers {
		names = append(names, p.Name)
		one.add(p.One)
		all.add(p.All)
		name := map[string]string{uidNext: oneWorker, uidFill: manyWorker}[p.Name]
		if name == "" {
			name = p.Name
		}
		if p.Name != m.Add().Name {
			rated = append(rated, name)
			rates.add(p.Sustained)
		}
	}
	if err := dots(filepath.Join(folder, "making.svg"), "An id", "ns", names, []series{one, all}); err != nil {
		return err
	}
	return dots(filepath.Join(folder, "sustained.svg"), "Ids of one thread that never pauses", "ids a second", rated,
		[]series{rates})
}

// add adds a figure to a series of dots.
func (s *series) add(f Figure) {
	s.x, s.low, s.high = append(s.x, f.Median), append(s.low, f.Low), append(s.high, f.High)
}

// way returns the figures of a way.
func (c *Creating) way(name string) CreatedWay {
	i := slices.IndexFunc(c.Ways, func(w CreatedWay) bool { return w.Name == name })
	if i < 0 {
		return CreatedWay{Name: name}
	}
	return c.Ways[i]
}

// UID returns the figures of the plugin.
func (c *Creating) UID() CreatedWay { return c.way(wayUID) }

// Auto returns the figures of AUTO_INCREMENT.
func (c *Creating) Auto() CreatedWay { return c.way(wayAuto) }

// Preset returns the figures of keys that are set before.
func (c *Creating) Preset() CreatedWay { return c.way(wayPreset) }

// FastestHook returns the generator in a hook with the fastest create of many rows.
func (c *Creating) FastestHook() CreatedWay {
	best := CreatedWay{}
	for _, w := range c.Ways {
		hook := w.Name != wayUID && w.Name != wayAuto && w.Name != wayPreset
		if hook && (best.Name == "" || w.Many.Median < best.Many.Median) {
			best = w
		}
	}
	return best
}

// More is what the plugin adds to a row of a create of many, in ns, compared with keys that are set before.
func (c *Creating) More() float64 {
	return max(0, (c.UID().Many.Median-c.Preset().Many.Median)/manyRows*1000)
}

// Table has all ways.
func (c *Creating) Table() string {
	t := &table{head: []string{"", "1 row, us", "allocations", "1,000 rows, us", "allocations"}}
	for _, w := range c.Ways {
		t.add(w.Name, spread(w.One), number(w.OneAllocs), spread(w.Many), number(w.ManyAllocs))
	}
	return t.String()
}

// worse says which ways are faster.
func (c *Creating) worse() (all []string) {
	uid := c.UID()
	var one, many []string
	for _, w := range c.Ways {
		if w.Name == wayPreset {
			continue
		}
		if w.One.High < uid.One.Low {
			one = append(one, w.Name)
		}
		if w.Many.High < uid.Many.Low {
			many = append(many, w.Name)
		}
	}
	if len(one) > 0 {
		all = append(all, fmt.Sprintf("A create of one row is faster with %s.", strings.Join(one, ", ")))
	}
	if len(many) > 0 {
		all = append(all, fmt.Sprintf("A create of 1,000 rows is faster with %s.", strings.Join(many, ", ")))
	}
	return all
}

// draw draws the chart of creates.
func (c *Creating) draw(folder string) error {
	var names []string
	one, many := series{name: "1 row"}, series{name: "1,000 rows, divided by 1,000"}
	for _, w := range c.Ways {
		names = append(names, w.Name)
		one.add(w.One)
		many.add(Figure{Median: w.Many.Median / manyRows, Low: w.Many.Low / manyRows, High: w.Many.High / manyRows})
	}
	return dots(filepath.Join(folder, "create.svg"), "db.Create on a pool that does nothing", "us for a row", names,
		[]series{one, many})
}

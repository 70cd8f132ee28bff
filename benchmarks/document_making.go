package main

import (
	"fmt"
	"path/filepath"
	"slices"
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
func (m *Making) Add() MadePeer { return m.peer(peerAdd) }

// others are the peers that somebody could use instead.
func (m *Making) others() (all []MadePeer) {
	for _, p := range m.Peers {
		if p.Name != uidNext && p.Name != uidFill && p.Name != peerAdd {
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
func (m *Making) Table(in language) string {
	t := &table{head: []string{"", in.say("bytes", "字节"), in.say("1 thread, ns", "1 个线程，纳秒"),
		in.say("%d threads, ns", "%d 个线程，纳秒", m.CPUs), in.say("allocated, B", "分配，字节"),
		in.say("allocations", "分配次数"), in.say("ids/s, sustained", "持续速率，个/秒"),
		in.say("a generator, B", "一个生成器，字节"), in.say("its goroutines", "它的 goroutine")}}
	for _, p := range m.Peers {
		memory, goroutines, rate := number(p.Memory), number(p.Goroutines), number(p.Sustained.Median)
		switch {
		case p.Shared:
			memory, goroutines = in.say("one for the process", "整个进程一个"), "–"
		case p.Name == uidNext:
			rate = in.valued(rate, in.say("one worker id", "一个 worker id"))
		case p.Name == uidFill:
			rate = in.valued(rate, in.say("16 worker ids", "16 个 worker id"))
		case p.Name == peerAdd:
			memory, goroutines = "–", "–"
		}
		t.add(in.name(p.Name), fmt.Sprint(p.Bytes), in.spread(p.One), in.spread(p.All), number(p.Allocated),
			number(p.Allocs), rate, memory, goroutines)
	}
	return t.String()
}

// worse says what other peers do better.
func (m *Making) worse(in language) (all []string) {
	next, one, many := m.Next(), m.Next().Sustained.Median, m.Fill().Sustained.Median
	var faster, more, smaller []string
	for _, p := range m.others() {
		if p.One.High < next.One.Low {
			faster = append(faster, in.valued(p.Name, number(p.One.Median)))
		}
		if p.Sustained.Low > many {
			more = append(more, p.Name)
		}
		if !p.Shared && p.Memory < next.Memory {
			smaller = append(smaller, in.valued(p.Name, number(p.Memory)))
		}
	}
	if len(faster) > 0 {
		all = append(all, in.say("An id from `Next` costs %s ns. These cost less: %s.",
			"`Next` 生成一个 id 用 %s 纳秒。更快的有 %s。", number(next.One.Median), in.list(faster)))
	}
	if len(more) > 0 {
		all = append(all, in.say("After a burst, a table gets %s ids a second in one process, "+
			"or %s with 16 worker ids. Of %d peers, %d make more.", "突发用完之后，一张表在一个进程里每秒得到 %s 个 id，有 16 个 worker id 时是 %s 个。"+
			"%d 个同类库里有 %d 个更快。", number(one), number(many), len(m.others()), len(more)))
	}
	if len(smaller) > 0 {
		all = append(all, in.say("A generator takes %s bytes of memory. These take less: %s.",
			"一个生成器占 %s 字节内存。更少的有 %s。", number(next.Memory), in.list(smaller)))
	}
	return append(all, in.say("An id is unique only among the databases that share a registry. "+
		"UUID, ULID, xid and KSUID need none.", "id 只在共用一个注册库的数据库之间唯一。UUID、ULID、xid 和 KSUID 不需要注册库。"))
}

// draw draws the charts of making ids.
func (m *Making) draw(folder string) error {
	var names, rated []string
	one, all := series{name: "one thread"}, series{name: fmt.Sprintf("%d threads, one generator", m.CPUs)}
	rates := series{}
	for _, p := range m.Peers {
		names = append(names, inEnglish.name(p.Name))
		one.add(p.One)
		all.add(p.All)
		name := map[string]string{uidNext: oneWorker, uidFill: manyWorker}[p.Name]
		if name == "" {
			name = inEnglish.name(p.Name)
		}
		if p.Name != peerAdd {
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
func (c *Creating) Table(in language) string {
	allocations := in.say("allocations", "分配次数")
	t := &table{head: []string{"", in.say("1 row, µs", "1 行，微秒"), allocations,
		in.say("1,000 rows, µs", "1,000 行，微秒"), allocations}}
	for _, w := range c.Ways {
		t.add(in.name(w.Name), in.spread(w.One), number(w.OneAllocs), in.spread(w.Many), number(w.ManyAllocs))
	}
	return t.String()
}

// worse says which ways are faster.
func (c *Creating) worse(in language) (all []string) {
	uid := c.UID()
	var one, many []string
	for _, w := range c.Ways {
		if w.Name == wayPreset {
			continue
		}
		if w.One.High < uid.One.Low {
			one = append(one, in.valued(w.Name, number(w.One.Median)))
		}
		if w.Many.High < uid.Many.Low {
			many = append(many, in.valued(w.Name, number(w.Many.Median)))
		}
	}
	if len(one) > 0 {
		all = append(all, in.say("A create of one row takes %s µs. These take less: %s.", "创建一行用 %s 微秒。更快的有 %s。",
			number(uid.One.Median), in.list(one)))
	}
	if len(many) > 0 {
		all = append(all, in.say("A create of 1,000 rows takes %s µs. These take less: %s.",
			"创建 1,000 行用 %s 微秒。更快的有 %s。", number(uid.Many.Median), in.list(many)))
	}
	return all
}

// draw draws the chart of creates.
func (c *Creating) draw(folder string) error {
	var names []string
	one, many := series{name: "1 row"}, series{name: "1,000 rows, divided by 1,000"}
	for _, w := range c.Ways {
		names = append(names, inEnglish.name(w.Name))
		one.add(w.One)
		many.add(Figure{Median: w.Many.Median / manyRows, Low: w.Many.Low / manyRows, High: w.Many.High / manyRows})
	}
	return dots(filepath.Join(folder, "create.svg"), "db.Create on a pool that does nothing", "µs for a row", names,
		[]series{one, many})
}

package main

import (
	"path/filepath"
	"slices"
)

// measured returns the engines that were measured.
func (r *Inserting) measured() (all []InsertedEngine) {
	for _, e := range r.Engines {
		if e.Missing == "" {
			all = append(all, e)
		}
	}
	return all
}

// Many is how many rows each table gets.
func (r *Inserting) Many() float64 { return float64(r.Rows) }

// Few is how many of them one after the other.
func (r *Inserting) Few() float64 { return float64(r.Chunk) }

// Measured returns the engines that were measured.
func (r *Inserting) Measured() []InsertedEngine { return r.measured() }

// Title is the engine with its version.
func (e InsertedEngine) Title() string { return engineNames[e.Engine] + " " + shortVersion(e.Version) }

// shortVersion returns a version without what a distribution adds.
func shortVersion(version string) string {
	var n int
	for n = range version {
		if c := version[n]; c != '.' && (c < '0' || c > '9') {
			return version[:n]
		}
	}
	return version
}

// kind returns the figures of a kind of key.
func (e InsertedEngine) kind(name string) InsertedKind {
	i := slices.IndexFunc(e.Kinds, func(k InsertedKind) bool { return k.Name == name })
	if i < 0 {
		return InsertedKind{Name: name}
	}
	return e.Kinds[i]
}

// Fewer is how many rows each table has, if the time was over before all were inserted; else 0.
func (e InsertedEngine) Fewer() float64 {
	if e.Stopped {
		return float64(e.Rows)
	}
	return 0
}

// Conclusion is what the end of the curve says.
func (e InsertedEngine) Conclusion(in language) string {
	uid := e.kind(kindUID).LastRate.Median
	than := func(kind string) string { return times(uid, e.kind(kind).LastRate.Median) }
	return in.say("In the last quarter, uidplugin inserts %s rows a second. That is %s times AUTO_INCREMENT, "+
		"%s times UUIDv7 in 16 bytes, and %s times UUIDv4 as text.",
		"最后四分之一里，uidplugin 每秒写入 %s 行，是 AUTO_INCREMENT 的 %s 倍、16 字节 UUIDv7 的 %s 倍、文本 UUIDv4 的 %s 倍。",
		number(uid), than(kindAuto), than(kindV7), than(kindV4Text))
}

// Slowest returns how many times as many rows a second as with AUTO_INCREMENT there are, on the engine where that is
// least.
func (r *Inserting) Slowest() string { return times(slices.Min(r.ratios()), 1) }

// Fastest returns the same for the engine where that is most.
func (r *Inserting) Fastest() string { return times(slices.Max(r.ratios()), 1) }

// ratios returns the same for each engine.
func (r *Inserting) ratios() (all []float64) {
	for _, e := range r.measured() {
		all = append(all, e.kind(kindUID).LastRate.Median/e.kind(kindAuto).LastRate.Median)
	}
	return all
}

// Table has all kinds of keys.
func (e InsertedEngine) Table(in language) string {
	pages := slices.ContainsFunc(e.Kinds, func(k InsertedKind) bool { return k.PagesRead > 0 })
	t := &table{head: []string{"", in.say("rows/s, all", "行/秒，全程"), in.say("rows/s, last quarter", "行/秒，最后四分之一"),
		in.say("log, B a row", "日志，字节/行"), in.say("table, MB", "表，MB"), in.say("indexes, MB", "索引，MB"),
		in.say("lookup, µs", "查找，微秒"), in.say("join, µs", "JOIN，微秒")}}
	if pages {
		t.head = append(t.head, in.say("pages read for 1,000 rows", "每 1,000 行读的页"))
	}
	for _, k := range e.Kinds {
		row := []string{in.name(k.Name), number(k.Rate), in.spread(k.LastRate), number(k.Log), number(k.TableMB),
			number(k.IndexMB), in.spread(k.Lookup), in.spread(k.Join)}
		if pages {
			row = append(row, number(k.PagesRead))
		}
		t.add(row...)
	}
	return t.String()
}

// worse says where other keys are better.
func (r *Inserting) worse(in language) (all []string) {
	const clear = 1.03 // a smaller difference is not worth a sentence
	for _, e := range r.measured() {
		uid, name := e.kind(kindUID), engineNames[e.Engine]
		own := uid.TableMB + uid.IndexMB
		var faster, smaller, lookups, joins []string
		for _, k := range e.Kinds {
			better := func(list *[]string, is bool, value float64) {
				if is && k.Name != kindUID {
					*list = append(*list, in.valued(in.name(k.Name), number(value)))
				}
			}
			better(&faster, k.LastRate.Low > uid.LastRate.High*clear, k.LastRate.Median)
			better(&smaller, (k.TableMB+k.IndexMB)*clear < own, k.TableMB+k.IndexMB)
			better(&lookups, k.Lookup.High*clear < uid.Lookup.Low, k.Lookup.Median)
			better(&joins, k.Join.High*clear < uid.Join.Low, k.Join.Median)
		}
		say := func(list []string, english, chinese string, value float64) {
			if len(list) > 0 {
				all = append(all, in.say(english, chinese, name, number(value), in.list(list)))
			}
		}
		say(faster, "%s takes %s rows a second with uidplugin. It takes more with these: %s.",
			"用 uidplugin 时 %s 每秒写入 %s 行。更多的有 %s。", uid.LastRate.Median)
		say(smaller, "On %s, a table and its indexes take %s MB. These take less: %s.", "在 %s 上，表和索引共占 %s MB。更小的有 %s。",
			own)
		say(lookups, "On %s, a lookup takes %s µs. These take less: %s.", "在 %s 上，按主键查找用 %s 微秒。更快的有 %s。",
			uid.Lookup.Median)
		say(joins, "On %s, a join takes %s µs. These take less: %s.", "在 %s 上，JOIN 用 %s 微秒。更快的有 %s。", uid.Join.Median)
	}
	return all
}

// draw draws a curve for each engine.
func (r *Inserting) draw(folder string) error {
	for _, e := range r.measured() {
		var all []series
		for _, name := range []string{kindUID, kindAuto, kindV7, kindV4, kindV7Text, kindV4Text} {
			k := e.kind(name)
			s := series{name: inEnglish.name(name), dash: name == kindV7Text || name == kindV4Text}
			s.colour = map[string]int{kindV7Text: 3, kindV4Text: 4}[name] // those of the same UUIDs in 16 bytes
			for i := range k.Curve {
				// The median of three chunks, as a checkpoint of the server slows down whichever it meets.
				near := k.Curve[max(0, i-1):min(len(k.Curve), i+2)]
				s.x, s.y = append(s.x, float64((i+1)*r.Chunk)), append(s.y, quantile(near, 0.5))
			}
			all = append(all, s)
		}
		if err := curves(filepath.Join(folder, "rows_"+e.Engine+".svg"), e.Title(), "rows in the table",
			"rows a second", scale{}, all); err != nil {
			return err
		}
	}
	return nil
}

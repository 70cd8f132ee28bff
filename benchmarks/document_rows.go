package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
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

// Conclusion is one sentence about the curve.
func (e InsertedEngine) Conclusion() string {
	uid, auto, v7, v4 := e.kind(kindUID), e.kind(kindAuto), e.kind(kindV7), e.kind(kindV4Text)
	return fmt.Sprintf("At the end, uidplugin inserts %s rows a second. That is %s the rate of AUTO_INCREMENT, "+
		"%s that of UUIDv7 in 16 bytes, and %s that of UUIDv4 as text.",
		number(uid.LastRate.Median), times(uid.LastRate.Median, auto.LastRate.Median),
		times(uid.LastRate.Median, v7.LastRate.Median), times(uid.LastRate.Median, v4.LastRate.Median))
}

// Table has all kinds of keys.
func (e InsertedEngine) Table() string {
	pages := slices.ContainsFunc(e.Kinds, func(k InsertedKind) bool { return k.PagesRead > 0 })
	t := &table{head: []string{"", "rows/s, all", "rows/s, last quarter", "log, B a row", "table, MB", "indexes, MB",
		"lookup, us", "join, us"}}
	if pages {
		t.head = append(t.head, "pages read for 1,000 rows")
	}
	for _, k := range e.Kinds {
		row := []string{k.Name, number(k.Rate), spread(k.LastRate), number(k.Log), number(k.TableMB),
			number(k.IndexMB), spread(k.Lookup), spread(k.Join)}
		if pages {
			row = append(row, number(k.PagesRead))
		}
		t.add(row...)
	}
	return t.String()
}

// worse says where other keys are better.
func (r *Inserting) worse() (all []string) {
	const clear = 1.03 // a smaller difference is not worth a sentence
	for _, e := range r.measured() {
		uid, name := e.kind(kindUID), engineNames[e.Engine]
		own := uid.TableMB + uid.IndexMB
		var faster, smaller, lookups, joins []string
		for _, k := range e.Kinds {
			better := func(list *[]string, is bool, value float64) {
				if is && k.Name != kindUID {
					*list = append(*list, fmt.Sprintf("%s (%s)", k.Name, number(value)))
				}
			}
			better(&faster, k.LastRate.Low > uid.LastRate.High*clear, k.LastRate.Median)
			better(&smaller, (k.TableMB+k.IndexMB)*clear < own, k.TableMB+k.IndexMB)
			better(&lookups, k.Lookup.High*clear < uid.Lookup.Low, k.Lookup.Median)
			better(&joins, k.Join.High*clear < uid.Join.Low, k.Join.Median)
		}
		say := func(list []string, format string, value float64) {
			if len(list) > 0 {
				all = append(all, fmt.Sprintf(format, name, number(value), strings.Join(list, ", ")))
			}
		}
		say(faster, "%s takes %s rows a second with uidplugin. It takes more with these: %s.", uid.LastRate.Median)
		say(smaller, "On %s a table and its indexes have %s MB with uidplugin. They have less with these: %s.", own)
		say(lookups, "On %s a lookup takes %s us with uidplugin. It takes less with these: %s.", uid.Lookup.Median)
		say(joins, "On %s a join takes %s us with uidplugin. It takes less with these: %s.", uid.Join.Median)
	}
	return all
}

// draw draws a curve for each engine.
func (r *Inserting) draw(folder string) error {
	for _, e := range r.measured() {
		var all []series
		for _, name := range []string{kindUID, kindAuto, kindV7, kindV4, kindV7Text, kindV4Text} {
			k := e.kind(name)
			s := series{name: name, dash: name == kindV7Text || name == kindV4Text}
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

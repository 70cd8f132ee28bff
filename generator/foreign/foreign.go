// Package foreign reads the ids of other systems: UidGenerator, Leaf, Twitter, Discord, Instagram, Sonyflake and
// yitter.
//
// # Which system made a key
//
// [Identify] returns the systems in whose format an id has the time at which its row was created. [Systems] lists all of
// them. [System.Decode] splits an id.
//
// # To continue above the keys of a system
//
// Functions such as [UidGeneratorLayout] return the layout of a system; for the other systems see [System.Layout]. Use
// such a layout for [generator.Layout.Above], and for new ids with the same bits.
package foreign

import (
	"time"

	"github.com/uidplugin/uidplugin/generator"
)

// UidGeneratorLayout is the default layout of UidGenerator, to read its ids: 28/22/13 bits and ticks of a second, from
// 2016-05-20 in China (+08:00) until 2024-11-20. For new ids use [generator.DefaultLayout], or this layout with a later
// Epoch.
//
// If a Java process outside China has configured its epoch, its ids need another Epoch, because a configured epoch
// begins at midnight in the time zone of the process.
func UidGeneratorLayout() generator.Layout {
	return generator.Layout{TimeBits: 28, WorkerBits: 22, SequenceBits: 13, Tick: time.Second,
		Epoch: time.Date(2016, 5, 19, 16, 0, 0, 0, time.UTC)}
}

// UidGeneratorSampleLayout is the layout of the configuration in UidGenerator's README, which has often been copied. It
// has 29/21/13 bits and ticks of a second, from 2016-09-20 in China (+08:00) until 2033-09-24. In another time zone of
// the Java process the Epoch is time.Date(2016, 9, 20, 0, 0, 0, 0, zone).
func UidGeneratorSampleLayout() generator.Layout {
	return generator.Layout{TimeBits: 29, WorkerBits: 21, SequenceBits: 13, Tick: time.Second,
		Epoch: time.Date(2016, 9, 19, 16, 0, 0, 0, time.UTC)}
}

// A System describes the ids of another system, to read them. It has the default settings of the system. An
// installation may have other settings: compare the times in ids with the known times of rows, as [Identify] does.
type System struct {
	Name string

	// Layout has the widths, the tick and the epoch. Its methods that use only the time of ids, such as Range, Above
	// and Expires, are right for every system.
	Layout generator.Layout

	// SequenceFirst is true if the sequence is above the worker id. Then Decompose and Compose of Layout mix the two
	// up, but Decode does not.
	SequenceFirst bool
}

// Systems returns the systems that this package knows, in a new slice.
func Systems() []System {
	sonyflake := generator.Layout{TimeBits: 39, WorkerBits: 16, SequenceBits: 8, Tick: 10 * time.Millisecond,
		Epoch: time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)}
	first := sonyflake
	first.Epoch = time.Date(2014, 9, 1, 0, 0, 0, 0, time.UTC)
	// The time of Discord has a 42nd bit from 2084-09-06 on, and that of Instagram a 41st from 2046-06-27 on. Both
	// bits would be the sign of an int64, so they are left out.
	discord := generator.Layout{TimeBits: 41, WorkerBits: 10, SequenceBits: 12, Tick: time.Millisecond,
		Epoch: time.Date(2015, 1, 1, 0, 0, 0, 0, time.UTC)}
	instagram := generator.Layout{TimeBits: 40, WorkerBits: 13, SequenceBits: 10, Tick: time.Millisecond,
		Epoch: time.UnixMilli(1314220021721).UTC()}
	// The time has all bits above worker id and sequence. Ids need more than 53 bits only from 2089-10-26 on.
	yitter := generator.Layout{TimeBits: 51, WorkerBits: 6, SequenceBits: 6, Tick: time.Millisecond,
		Epoch: time.UnixMilli(1582136402000).UTC()}
	return []System{
		{"Twitter snowflake, Leaf", generator.SnowflakeLayout(), false},           // https://github.com/twitter-archive/snowflake/releases/tag/snowflake-2010
		{"UidGenerator", UidGeneratorLayout(), false},                             // https://github.com/baidu/uid-generator
		{"UidGenerator, sample configuration", UidGeneratorSampleLayout(), false}, // https://github.com/baidu/uid-generator#step-3-spring-configuration
		{"Discord", discord, false},                                               // https://discord.com/developers/docs/reference#snowflakes
		{"Instagram", instagram, false},                                           // https://instagram-engineering.com/sharding-ids-at-instagram-1cf5a71e5a5c
		{"yitter IdGenerator", yitter, false},                                     // https://github.com/yitter/IdGenerator
		{"sonyflake v2", sonyflake, true},                                         // https://pkg.go.dev/github.com/sony/sonyflake/v2
		{"sonyflake v1", first, true},                                             // https://pkg.go.dev/github.com/sony/sonyflake
	}
}

// Decode splits an id of the system into its parts. Errors are as in [generator.Layout.Decompose].
func (f System) Decode(id int64) (generator.Parts, error) {
	p, err := f.Layout.Decompose(id)
	if err == nil && f.SequenceFirst {
		p.WorkerID = id & f.Layout.MaxWorkerID()
		p.Sequence = id >> f.Layout.WorkerBits & f.Layout.MaxSequence()
	}
	return p, err
}

// Identify returns the [Systems] that may have made id: those in whose format the time of id is within tolerance
// of created, the time at which its row was created. With a negative tolerance Identify returns none. A single id
// can match by accident, so you should try several ids of different ages. Identify assumes the epochs of Systems,
// so it does not find ids of a UidGenerator whose Java process has another time zone than +08:00.
func Identify(id int64, created time.Time, tolerance time.Duration) []System {
	var could []System
	for _, f := range Systems() {
		if p, err := f.Decode(id); err == nil && p.Time.Sub(created).Abs() <= tolerance {
			could = append(could, f)
		}
	}
	return could
}

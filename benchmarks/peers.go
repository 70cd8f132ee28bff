package main

import (
	"context"
	"math"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/bwmarrin/snowflake"
	gofrs "github.com/gofrs/uuid/v5"
	"github.com/google/uuid"
	"github.com/muyo/sno"
	"github.com/oklog/ulid/v2"
	"github.com/rs/xid"
	"github.com/segmentio/ksuid"
	"github.com/sony/sonyflake/v2"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/yitter/idgenerator-go/idgen"
)

// A peer makes ids, or is what ids could cost at least. Its functions make n ids in a loop of their own, as a call
// through a function would add to the fastest ones what it hardly adds to others.
type peer struct {
	name   string
	bytes  int  // of an id
	shared bool // one generator for the whole process: there is none for each table

	// stall is how long it waits at most when it has to; 0: not so long that it matters.
	stall time.Duration

	// open makes a generator that never waits: with a sequence so wide, or as far ahead of the clock, as it takes.
	open func() (func(n int), error)

	// limited, if set, makes one in its usual settings, in which it may have to wait. Its second function uses up what
	// it may make ahead, and is called before a measurement.
	limited func() (loop func(n int), drain func(), err error)
}

// peers returns what is compared.
func peers() []peer { return slices.Concat(counters(), snowflakes(), wideIDs()) }

// counters returns what is an atomic add at heart: uidplugin, and the add alone.
func counters() []peer {
	return []peer{
		{name: peerAdd, bytes: 8, open: func() (func(int), error) {
			x := new(struct {
				_ [64]byte
				n atomic.Uint64
				_ [56]byte
			})
			return func(n int) {
				for range n {
					x.n.Add(1)
				}
			}, nil
		}},
		{name: uidNext, bytes: 8, open: func() (func(int), error) {
			g, err := cached(math.MaxInt64, 1)
			return nexts(g), err
		}, limited: func() (func(int), func(), error) { return limited(1) }},
		{name: uidFill, bytes: 8, open: func() (func(int), error) {
			g, err := cached(math.MaxInt64, 1)
			return fills(g), err
		}, limited: func() (func(int), func(), error) { return limited(generator.MaxLanes) }},
	}
}

// snowflakes returns others with 64 bits: a time, a machine and a sequence.
func snowflakes() []peer {
	return []peer{
		{name: "bwmarrin/snowflake", bytes: 8, open: func() (func(int), error) {
			nodes, steps := snowflake.NodeBits, snowflake.StepBits
			defer func() { snowflake.NodeBits, snowflake.StepBits = nodes, steps }()
			snowflake.NodeBits, snowflake.StepBits = 1, 21
			return bwmarrin()
		}, limited: never(bwmarrin)},
		{name: "sony/sonyflake v2", bytes: 8, open: func() (func(int), error) {
			return sony(sonyflake.Settings{BitsSequence: 22, BitsMachineID: 2, TimeUnit: time.Millisecond})
		}, limited: never(func() (func(int), error) { return sony(sonyflake.Settings{}) })},
		{name: "yitter/idgenerator", bytes: 8, stall: 2 * time.Second, open: func() (func(int), error) {
			o := idgen.NewIdGeneratorOptions(1)
			o.WorkerIdBitLength, o.SeqBitLength = 1, 21
			return yitter(o)
		}, limited: never(func() (func(int), error) { return yitter(idgen.NewIdGeneratorOptions(1)) })},
	}
}

// wideIDs returns those with more bits.
func wideIDs() []peer {
	return []peer{
		{name: "google/uuid v4", bytes: 16, shared: true, open: func() (func(int), error) {
			return func(n int) {
				for range n {
					runtime.KeepAlive(uuid.New())
				}
			}, nil
		}},
		{name: "google/uuid v7", bytes: 16, shared: true, open: func() (func(int), error) {
			return func(n int) {
				for range n {
					id, _ := uuid.NewV7()
					runtime.KeepAlive(id)
				}
			}, nil
		}},
		{name: "gofrs/uuid v7", bytes: 16, shared: true, open: func() (func(int), error) {
			return func(n int) {
				for range n {
					id, _ := gofrs.NewV7()
					runtime.KeepAlive(id)
				}
			}, nil
		}},
		{name: "oklog/ulid", bytes: 16, shared: true, open: func() (func(int), error) {
			return func(n int) {
				for range n {
					runtime.KeepAlive(ulid.Make())
				}
			}, nil
		}},
		{name: "rs/xid", bytes: 12, shared: true, open: func() (func(int), error) {
			return func(n int) {
				for range n {
					runtime.KeepAlive(xid.New())
				}
			}, nil
		}},
		{name: "segmentio/ksuid", bytes: 20, shared: true, open: func() (func(int), error) {
			return func(n int) {
				for range n {
					runtime.KeepAlive(ksuid.New())
				}
			}, nil
		}},
		{name: "muyo/sno", bytes: 10, open: func() (func(int), error) {
			g, err := sno.NewGenerator(nil, nil)
			return func(n int) {
				for range n {
					runtime.KeepAlive(g.New(0))
				}
			}, err
		}},
	}
}

// bwmarrin returns a loop of a node with the bits that are set.
func bwmarrin() (func(int), error) {
	node, err := snowflake.NewNode(1)
	return func(n int) {
		for range n {
			runtime.KeepAlive(node.Generate())
		}
	}, err
}

// sony returns a loop of a sonyflake.
func sony(s sonyflake.Settings) (func(int), error) {
	s.MachineID = func() (int, error) { return 1, nil }
	g, err := sonyflake.New(s)
	return func(n int) {
		for range n {
			id, _ := g.NextID()
			runtime.KeepAlive(id)
		}
	}, err
}

// yitter returns a loop of an idgenerator.
func yitter(o *idgen.IdGeneratorOptions) (func(int), error) {
	g := idgen.NewDefaultIdGenerator(o)
	return func(n int) {
		for range n {
			runtime.KeepAlive(g.NewLong())
		}
	}, nil
}

// never returns what opens a generator that makes nothing ahead, which there would be to use up.
func never(open func() (func(int), error)) func() (func(int), func(), error) {
	return func() (func(int), func(), error) {
		loop, err := open()
		return loop, func() {}, err
	}
}

// The names of uidplugin among the peers.
const (
	peerAdd = "one atomic add"
	uidNext = "uidplugin Next"
	uidFill = "uidplugin Fill"
)

// fillSize is how many ids one Fill makes.
const fillSize = 1000

// clock is the one that all generators of a process share, as with the plugin.
var clock = generator.NewClock(nil)

// cached returns the plugin's default generator, in its default layout, with lanes.
func cached(borrow time.Duration, lanes int) (*generator.Cached, error) {
	l := generator.DefaultLayout()
	g, err := generator.NewCached(generator.CachedConfig{
		Layout: l, Lease: l.FullLease(1, time.Now()), MaxBorrow: borrow, Clock: clock,
	})
	if err != nil || lanes == 1 {
		return g, err
	}
	leases := make([]generator.Lease, lanes)
	for i := range leases {
		leases[i] = generator.Lease{WorkerID: int64(i + 1), From: l.TickAt(time.Now()), Until: l.MaxTick()}
	}
	return g, g.Renew(leases...)
}

func nexts(g *generator.Cached) func(int) {
	ctx := context.Background()
	return func(n int) {
		for range n {
			id, err := g.Next(ctx)
			if err != nil {
				panic(err) // a lease up to the last tick, and a context that does not end
			}
			runtime.KeepAlive(id)
		}
	}
}

func fills(g *generator.Cached) func(int) {
	ctx := context.Background()
	return func(n int) {
		var ids [fillSize]int64
		for ; n > 0; n -= fillSize {
			if err := g.Fill(ctx, ids[:min(n, fillSize)]); err != nil {
				panic(err)
			}
		}
	}
}

// limited returns a generator that may be as far ahead of the clock as the plugin lets it, and a function that takes
// ids until it is.
func limited(lanes int) (loop func(int), drain func(), err error) {
	const lead = 10 * time.Second // workernode.DefaultLead
	g, err := cached(lead, lanes)
	if err != nil {
		return nil, nil, err
	}
	fill := fills(g)
	return nexts(g), func() {
		for g.Lead() < lead-100*time.Millisecond {
			fill(fillSize)
		}
		fill(2 * fillSize * lanes) // more than what 100 ms make, so that the last of them wait
	}, nil
}

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

// A peer makes ids, or is a lower bound of their cost. Its functions make n ids in a loop of their own, because calling
// a function for each id would take much of the time of the fastest peers.
type peer struct {
	name   string
	bytes  int  // of an id
	shared bool // one generator for the whole process

	// stall is the longest wait of a generator in the usual settings. Rates are measured for at least two stalls,
	// so that one wait takes at most half of the time.
	stall time.Duration

	// open makes a generator that hardly waits: its sequence is wide, or it may run ahead of the clock.
	open func() (func(n int), error)

	// usual, if set, makes a generator in the usual settings of the peer, which may have to wait for the clock.
	usual func() (func(n int), error)

	usually string // the setting of usual, if the rate depends on it
}

func peers() []peer { return slices.Concat(counters(), snowflakes(), wideIDs()) }

// counters returns uidplugin, and the atomic add that is its core.
func counters() []peer {
	return []peer{
		{name: peerAdd, bytes: 8, shared: true, open: func() (func(int), error) {
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
		{name: "uidplugin Next", bytes: 8, open: func() (func(int), error) {
			g, err := cached(math.MaxInt64, 1)
			return nexts(g), err
		}, usual: func() (func(int), error) { return limited(1) }, usually: "one worker id"},
		{name: "uidplugin Fill", bytes: 8, open: func() (func(int), error) {
			g, err := cached(math.MaxInt64, 1)
			return fills(g), err
		}, usual: func() (func(int), error) { return limited(generator.MaxLanes) }, usually: "16 worker ids"},
	}
}

// snowflakes returns other peers whose ids have 64 bits: a time, a machine and a sequence.
func snowflakes() []peer {
	return []peer{
		{name: "bwmarrin/snowflake", bytes: 8, open: func() (func(int), error) {
			nodes, steps := snowflake.NodeBits, snowflake.StepBits
			defer func() { snowflake.NodeBits, snowflake.StepBits = nodes, steps }()
			snowflake.NodeBits, snowflake.StepBits = 1, 21
			return bwmarrin()
		}, usual: bwmarrin},
		{name: "sony/sonyflake v2", bytes: 8, open: func() (func(int), error) {
			return sony(sonyflake.Settings{BitsSequence: 22, BitsMachineID: 2, TimeUnit: time.Millisecond})
		}, usual: func() (func(int), error) { return sony(sonyflake.Settings{}) }},
		{name: "yitter/idgenerator", bytes: 8, stall: 2 * time.Second, open: func() (func(int), error) {
			o := idgen.NewIdGeneratorOptions(1)
			o.WorkerIdBitLength, o.SeqBitLength = 1, 21
			return yitter(o)
		}, usual: func() (func(int), error) { return yitter(idgen.NewIdGeneratorOptions(1)) }},
	}
}

// wideIDs returns peers whose ids have more bits.
func wideIDs() []peer {
	return []peer{
		{name: "google/uuid v4", bytes: 16, shared: true, open: ready(func(n int) {
			for range n {
				runtime.KeepAlive(uuid.New())
			}
		})},
		{name: "google/uuid v7", bytes: 16, shared: true, open: ready(func(n int) {
			for range n {
				id, _ := uuid.NewV7()
				runtime.KeepAlive(id)
			}
		})},
		{name: "gofrs/uuid v7", bytes: 16, shared: true, open: ready(func(n int) {
			for range n {
				id, _ := gofrs.NewV7()
				runtime.KeepAlive(id)
			}
		})},
		{name: "oklog/ulid", bytes: 16, shared: true, open: ready(func(n int) {
			for range n {
				runtime.KeepAlive(ulid.Make())
			}
		})},
		{name: "rs/xid", bytes: 12, shared: true, open: ready(func(n int) {
			for range n {
				runtime.KeepAlive(xid.New())
			}
		})},
		{name: "segmentio/ksuid", bytes: 20, shared: true, open: ready(func(n int) {
			for range n {
				runtime.KeepAlive(ksuid.New())
			}
		})},
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

// ready returns a function for peer.open that returns loop.
func ready(loop func(int)) func() (func(int), error) {
	return func() (func(int), error) { return loop, nil }
}

// bwmarrin returns a loop that makes ids in a node with the present NodeBits and StepBits.
func bwmarrin() (func(int), error) {
	node, err := snowflake.NewNode(1)
	return func(n int) {
		for range n {
			runtime.KeepAlive(node.Generate())
		}
	}, err
}

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

func yitter(o *idgen.IdGeneratorOptions) (func(int), error) {
	g := idgen.NewDefaultIdGenerator(o)
	return func(n int) {
		for range n {
			runtime.KeepAlive(g.NewLong())
		}
	}, nil
}

// peerAdd is the name of the lower bound among the peers.
const peerAdd = "one atomic add"

const fillSize = 1000

// clock is shared by all generators of a process, as with the plugin.
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
	leases, from := make([]generator.Lease, lanes), l.TickAt(time.Now()) // all leases have the same ticks
	for i := range leases {
		leases[i] = generator.Lease{WorkerID: int64(i + 1), From: from, Until: l.MaxTick()}
	}
	return g, g.Renew(leases...)
}

func nexts(g *generator.Cached) func(int) {
	ctx := context.Background()
	return func(n int) {
		for range n {
			id, err := g.Next(ctx)
			if err != nil {
				panic(err) // cannot happen: the lease lasts up to the last tick, and the context does not end
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

// limited returns the loop of a generator that is as far ahead of the clock as allowed, so it waits for the clock.
func limited(lanes int) (func(int), error) {
	const lead = 10 * time.Second // workernode.DefaultLead
	g, err := cached(lead, lanes)
	if err != nil {
		return nil, err
	}
	fill := fills(g)
	for g.Lead() < lead-100*time.Millisecond {
		fill(fillSize)
	}
	fill(2 * fillSize * lanes) // more ids than it makes in 100 ms, so it waits for the last ones
	return nexts(g), nil
}

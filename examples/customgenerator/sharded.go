package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
)

// shardBits is how many of the lowest bits of an id are the shard.
const shardBits = 4

// layout is the default one with four bits of the worker id given to the sequence, for
// the shard.
func layout() generator.Layout {
	l := generator.DefaultLayout()
	l.WorkerBits, l.SequenceBits = l.WorkerBits-shardBits, l.SequenceBits+shardBits
	return l
}

// shardOf returns the shard of a row with this id.
func shardOf(id int64) int64 { return id & (1<<shardBits - 1) }

// errNoShard reports a create whose context has no shard.
var errNoShard = errors.New("no shard in the context: create with that of withShard")

type shardKey struct{}

// withShard returns a context for creates of rows of a shard.
func withShard(ctx context.Context, shard int64) context.Context {
	return context.WithValue(ctx, shardKey{}, shardOf(shard))
}

// sharded makes ids of a layout whose lowest bits are a shard:
//
//	+------+--------------+--------------+--------------+-----------+
//	| sign |     time     |  worker id   |   sequence   |   shard   |
//	+------+--------------+--------------+--------------+-----------+
//	|                 an id of the generator            | shardBits |
//
// The layout of the generator has a sequence that is shorter by these bits. An id of the generator followed by a shard
// is an id of the whole layout. It is unique, because no two ids agree in front of the shard. It ascends, and has the
// same tick and worker id. Leases consist of ticks and worker ids, so Renew, Suspend and Close are the generator's own.
type sharded struct {
	generator.Renewable
}

// newSharded is the factory for WithGenerator.
func newSharded(c uidplugin.GeneratorConfig) (generator.Renewable, error) {
	l := c.Layout
	if l.SequenceBits <= shardBits {
		return nil, fmt.Errorf("%d bits of sequence leave none next to %d of shard", l.SequenceBits, shardBits)
	}
	l.SequenceBits -= shardBits
	g, err := generator.NewCached(generator.CachedConfig{Layout: l, Lease: c.Leases[0], OnLow: c.OnLow, Clock: c.Clock})
	if err != nil {
		return nil, err // not a sharded with nothing in it
	}
	return &sharded{g}, nil
}

// perTick returns how many ids a worker id makes in a tick, those of all shards together.
func perTick(l generator.Layout) int64 { return (l.MaxSequence() + 1) >> shardBits }

// Next implements [generator.Generator]. ctx is that of the create.
func (g *sharded) Next(ctx context.Context) (int64, error) {
	shard, ok := ctx.Value(shardKey{}).(int64)
	if !ok {
		return 0, errNoShard
	}
	id, err := g.Renewable.Next(ctx)
	if err != nil {
		return 0, err
	}
	return id<<shardBits | shard, nil
}

// Fill implements [generator.Generator].
func (g *sharded) Fill(ctx context.Context, ids []int64) error {
	shard, ok := ctx.Value(shardKey{}).(int64)
	if !ok {
		return errNoShard
	}
	if err := g.Renewable.Fill(ctx, ids); err != nil {
		return err
	}
	for i := range ids {
		ids[i] = ids[i]<<shardBits | shard
	}
	return nil
}

// Usage implements [generator.Renewable]. The lease manager counts ids of the whole layout. Each id here takes up as
// many of them as there are shards. Without the factor the generator would seem to be short of ids, and would get
// worker ids that it does not need.
func (g *sharded) Usage() generator.Usage {
	u := g.Renewable.Usage()
	u.Left <<= shardBits
	return u
}

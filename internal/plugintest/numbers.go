package plugintest

import (
	"context"
	"sync/atomic"
)

// Numbers is a generator such as an application may have. Its ids are Step apart.
type Numbers struct {
	Step   int64
	Last   atomic.Int64
	Closed atomic.Bool
}

// Next implements generator.Generator, as do Fill and Close.
func (n *Numbers) Next(context.Context) (int64, error) { return n.Last.Add(n.Step), nil }

func (n *Numbers) Fill(_ context.Context, ids []int64) error {
	for i := range ids {
		ids[i] = n.Last.Add(n.Step)
	}
	return nil
}

func (n *Numbers) Close() { n.Closed.Store(true) }

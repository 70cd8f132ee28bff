package generator

import (
	"time"
	"unsafe"
)

// This file exports to the tests the arithmetic of positions, constants that their fake clocks need, and the two
// things that a Clock does to a generator. So a hammer can do these more often than every millisecond.

const (
	ClockEvery = clockEvery
	ClockIdle  = clockIdle

	CachedSize = unsafe.Sizeof(Cached{})
	WindowSize = unsafe.Sizeof(window{})
)

// A Scale is a scale.
type Scale struct{ s scale }

func NewScale(l Layout) Scale { return Scale{scale{layout: &l}} }

// Lanes returns the scale for 2^k lanes.
func (s Scale) Lanes(k uint8) Scale             { return Scale{scale{s.s.layout, k}} }
func (s Scale) Start(tick int64) uint64         { return s.s.start(tick) }
func (s Scale) At(t time.Time) uint64           { return s.s.at(t) }
func (s Scale) Count(d time.Duration) uint64    { return s.s.count(d) }
func (s Scale) Duration(n uint64) time.Duration { return s.s.duration(n) }
func (s Scale) Last() uint64                    { return s.s.top() - 1 }
func (s Scale) ID(position uint64, workers ...int64) int64 {
	m := newMapping(*s.s.layout, workers...)
	return m.id(position)
}

// Open reports whether g has an open window.
func (g *Cached) Open() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.open
}

// Park closes the window of g, as a visit does when hardly any id is taken from it.
func (g *Cached) Park() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closeWindow()
}

// Visit is a visit that finds g in use.
func (g *Cached) Visit() {
	g.mu.Lock()
	g.idle = 0
	g.mu.Unlock()
	g.visit()
}

// Hold stands at the head of the queue, as a caller that waits does. The returned function leaves the queue.
func (g *Cached) Hold() (release func()) {
	g.head <- struct{}{}
	return func() { <-g.head }
}

package adopt_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

var adoptFor = flag.Duration("adopt.for", 0, "how long TestRate inserts on each engine and layout: 1m in the long form")

// A side is one of the two programs that insert: with the plugin, or without.
type side struct {
	inserts, failed atomic.Int64
	err             atomic.Value // the text of the first failure
}

// insertAtRandom inserts 50 times a second on average until end, at random instants, each in a goroutine of its own.
func (s *side) insertAtRandom(group *sync.WaitGroup, end time.Time, insert func() error) {
	for next := time.Now(); next.Before(end); next = next.Add(time.Duration(rand.ExpFloat64() * float64(time.Second/50))) {
		time.Sleep(time.Until(next))
		s.inserts.Add(1)
		group.Go(func() {
			if err := insert(); err != nil {
				s.failed.Add(1)
				s.err.CompareAndSwap(nil, err.Error())
			}
		})
	}
}

func (s *side) String() string {
	text := fmt.Sprintf("%d of %d fail", s.failed.Load(), s.inserts.Load())
	if err := s.err.Load(); err != nil {
		text += fmt.Sprintf(" (%v)", err)
	}
	return text
}

// TestRate_CreatesOfBothSidesSucceed measures how many inserts fail, for docs/from-auto-increment.md: 50 a second with the plugin,
// in two processes, and 50 a second without it, from the first instant of the plugin on.
func TestRate_CreatesOfBothSidesSucceed(t *testing.T) {
	t.Parallel()
	for _, l := range layouts {
		for _, generator := range []string{"cached", "snowflake"} {
			for _, batch := range []int{1, 10} {
				many := batch > 1 && l.layout.Tick > time.Millisecond // more rows than gaps leave ids to a worker id
				if many || *adoptFor == 0 && (batch > 1 || l.layout.Tick == 10*time.Millisecond) {
					continue
				}
				t.Run(fmt.Sprintf("ticks of %s, %s, rows at a time: %d", l.name, generator, batch), func(t *testing.T) {
					testkit.Each(t, func(t *testing.T, d *testkit.Database) {
						tolerated := int64(0)
						if l.layout.SequenceBits < 4 {
							tolerated = 10 // of 6,000: two processes make ids in one tick, and only 8 numbers are between them
						}
						both(t, d, tolerated, batch, uidplugin.WithLayout(l.layout), uidplugin.WithDefaultGenerator(generator))
					}, servers...)
				})
			}
		}
	}
}

// both inserts on both sides for [adoptFor], or a second. The other program begins before the plugin. More failures than
// are tolerated are an error.
func both(t *testing.T, d *testkit.Database, tolerated int64, batch int, options ...uidplugin.Option) {
	_, other := adopted(t, d)
	var plugin, without side
	var group sync.WaitGroup
	end := time.Now().Add(max(*adoptFor, time.Second))
	group.Go(func() { without.insertAtRandom(&group, end, func() error { return insert(other) }) })
	one, _ := process(t, d, options...)
	two, _ := process(t, d, options...)
	plugin.insertAtRandom(&group, end, func() error {
		rows := make([]Order, batch)
		if rand.IntN(2) == 0 {
			return one.Create(&rows).Error
		}
		return two.Create(&rows).Error
	})
	group.Wait()
	t.Logf("with the plugin %v, without it %v", &plugin, &without)
	if failed := plugin.failed.Load() + without.failed.Load(); failed > tolerated {
		t.Errorf("%d inserts fail", failed)
	}
}

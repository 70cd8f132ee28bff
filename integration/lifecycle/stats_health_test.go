package lifecycle_test

import (
	"context"
	"errors"
	"regexp"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/config"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// A steppedClock is a wall clock that goes on, and that a test sets.
type steppedClock struct{ by atomic.Int64 }

func (c *steppedClock) Now() time.Time { return time.Now().Round(0).Add(time.Duration(c.by.Load())) }

func (c *steppedClock) set(by time.Duration) { c.by.Store(int64(by)) }

// probe makes an id as a create does, and gives up after a while.
func probe(t *testing.T, p *uidplugin.Plugin) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	_, err := p.NextID(ctx, &plugintest.Part{})
	return err
}

const day = 24 * time.Hour

// Formerly, with a fixed worker id, Health was nil when the layout had ended, and for 50 days in which every create
// failed because the clock had been wrong for seconds.
func TestPluginHealth_OfAFixedWorkerIDAgreesWithAProbe(t *testing.T) {
	t.Parallel()

	end := time.Until(generator.DefaultLayout().Expires())
	for _, kind := range []string{"cached", "snowflake", "paired", "patient", "impatient"} {
		for name, steps := range map[string][]time.Duration{
			"ahead for a while":   {0, 50 * day, 0, 50 * day, 60 * day},
			"back":                {0, -50 * day, -50 * day, 0, 1},
			"the layout ends":     {0, end - time.Hour, end + time.Hour, end + day, 0},
			"before the epoch":    {0, -100 * 365 * day, 0},
			"a little back":       {0, -20 * time.Second, 0},
			"far, near and ahead": {0, 10 * time.Minute, 0, time.Hour, 50 * day, 2 * time.Hour},
		} {
			t.Run(kind+", "+name, func(t *testing.T) {
				t.Parallel()

				clock := &steppedClock{}
				db := plugintest.Open(t, uidplugin.WithWorkerID(7), uidplugin.WithDefaultGenerator(kind), func(c *config.Config) { c.Now = clock.Now },
					uidplugin.WithGenerator("patient", func(c generator.Config) (generator.Renewable, error) {
						s := c.Snowflake()
						s.MaxClockBackwards = time.Hour
						return generator.NewSnowflake(s)
					}),
					uidplugin.WithGenerator("impatient", func(c generator.Config) (generator.Renewable, error) {
						s := c.Cached()
						s.NoWait = true
						return generator.NewCached(s)
					}))
				p, failed := uidplugin.From(db), 0
				testkit.Eventually(t, "no id is made", time.Minute, func() bool { return probe(t, p) == nil }) // the lease begins as far ahead as ids may be
				for i, by := range steps {
					clock.set(by)
					for range 40 { // windows open
						before := p.Health()
						err := probe(t, p)
						if before == nil && err != nil || err == nil && before != nil && kind != "impatient" { // which gets an id each ms
							t.Fatalf("step %d, by %v: Health is %v, and an id %v", i, by, before, err)
						}
						if err != nil {
							failed++
							break
						}
					}
				}
				if must := kind == "snowflake" && name != "before the epoch"; must && failed == 0 {
					t.Error("no create failed, so nothing was compared")
				}
			})
		}
	}
}

// A step of the clock has one line, not one for each id, and none if there was no step.
func TestWithWorkerID_LogsStepsOfTheClock(t *testing.T) {
	t.Parallel()

	for _, kind := range []string{"cached", "snowflake", "paired"} {
		clock, j := &steppedClock{}, &plugintest.Journal{}
		p := uidplugin.From(plugintest.Open(t, uidplugin.WithWorkerID(7), uidplugin.WithDefaultGenerator(kind), func(c *config.Config) { c.Now = clock.Now }, j.Option()))
		count := func(when string, ahead, back int) {
			t.Helper()
			for range 50 {
				_ = probe(t, p)
			}
			testkit.Eventually(t, kind+": "+when+": the log has "+j.String(), time.Minute, func() bool {
				return len(j.Lines("was set ahead")) == ahead && len(j.Lines("was set back")) == back
			})
		}
		count("at the start", 0, 0)
		clock.set(50 * day)
		count("ahead", 1, 0)
		clock.set(0)
		count("right again", 1, 1)
		clock.set(-time.Minute)
		count("back", 1, 2)
		if lines := j.Lines("faster than the fixed worker id"); len(lines) > 0 {
			t.Errorf("%s: %q", kind, lines)
		}
		line := j.Lines("was set ahead")[0]
		saysAll(t, line, "level=WARN")
		if !regexp.MustCompile(`by=1(199h59m|200h0m)`).MatchString(line) { // a busy machine reads the two clocks apart
			t.Error(line)
		}
	}
}

// With a registry Health may report a lease that is not renewed while ids are left. It is never nil if none can be made.
func TestPluginHealth_OfARegistryIsNotNilWithoutIDs(t *testing.T) {
	t.Parallel()

	for _, kind := range []string{"cached", "snowflake", "paired"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()

			clock := &steppedClock{}
			db, wire := testkit.OpenWire(t, testkit.Engine{Name: "sqlite"}.New(t))
			p := plugintest.Use(t, db, uidplugin.WithDefaultGenerator(kind), uidplugin.WithModels(&plugintest.Part{}), uidplugin.WithClock(clock.Now),
				uidplugin.WithLead(300*time.Millisecond))
			failed := 0
			compare := func(when string) {
				t.Helper()
				err := probe(t, p)
				if err != nil {
					failed++
				}
				if after := p.Health(); err != nil && after == nil {
					t.Errorf("%s: Health is nil, and an id %v", when, err)
				}
			}
			compare("at first")
			testkit.Eventually(t, "health", time.Minute, func() bool { return p.Health() == nil })
			clock.set(-50 * day)
			compare("the clock was set back")
			clock.set(0)
			compare("the clock is right")
			wire.Shut.Store(true)
			compare("without a database")
			testkit.Eventually(t, "the lease does not end", time.Minute, func() bool {
				for range 1000 { // a lane that was hardly used has thousands of ids left
					if probe(t, p) != nil {
						failed++
						return true
					}
				}
				return false
			})
			compare("the lease has ended")
			wire.Shut.Store(false)
			testkit.Eventually(t, "no id is made", time.Minute, func() bool { return probe(t, p) == nil })
			testkit.Eventually(t, "Health does not recover", time.Minute, func() bool { return p.Health() == nil })
			if failed == 0 {
				t.Error("no create failed, so nothing was compared")
			}
		})
	}
}

// A generator of the application may be closed by it. Without a method Health its last call counts.
func TestPluginHealth_OfASourceThatWasClosed(t *testing.T) {
	t.Parallel()

	buffered := func() generator.Generator {
		next := int64(0)
		g, err := generator.NewBuffered(generator.BufferedConfig{Size: 4, Source: func(context.Context, int64) (generator.Run, error) {
			next += 10
			return generator.Run{First: next, N: 4}, nil
		}})
		must(t, err)
		return g
	}
	cached, err := generator.NewCached(generator.CachedConfig{Layout: generator.DefaultLayout(), Lease: generator.DefaultLayout().FullLease(3, time.Now())})
	must(t, err)
	for name, g := range map[string]generator.Generator{"buffered": buffered(), "cached": cached, "no method": struct{ generator.Generator }{buffered()}} {
		p := plugintest.Use(t, plugintest.Bare(t), uidplugin.WithDefaultGenerator("mine"), uidplugin.WithModels(&plugintest.Part{}), uidplugin.WithWorkerID(7),
			uidplugin.WithSource("mine", func(context.Context, *gorm.DB, string) (generator.Generator, error) { return g, nil }))
		must(t, probe(t, p))
		must(t, p.Health())
		g.Close()
		if name == "no method" {
			testkit.IsError(t, probe(t, p), uidplugin.ErrClosed)
		}
		testkit.IsError(t, p.Health(), generator.ErrClosed, "mine")
	}
}

// The lease of a process ends with the layout, and is not renewed. Formerly Health was nil for minutes on SQLite.
func TestPluginHealth_AtTheEndOfTheLayout(t *testing.T) {
	t.Parallel()

	for name, option := range map[string]uidplugin.Option{"registry": nil, "fixed": uidplugin.WithWorkerID(7)} {
		for _, kind := range []string{"cached", "snowflake", "paired"} {
			t.Run(name+", "+kind, func(t *testing.T) {
				t.Parallel()

				clock, layout := &steppedClock{}, generator.DefaultLayout()
				layout.TimeBits, layout.SequenceBits = 20, 1 // few ids are left when the clock has passed the end
				layout.Epoch = time.Now().Add(time.Minute - layout.Tick<<layout.TimeBits).Truncate(time.Second)
				p := plugintest.Use(t, plugintest.Bare(t), option, uidplugin.WithLayout(layout), uidplugin.WithDefaultGenerator(kind), uidplugin.WithClock(clock.Now))
				must(t, probe(t, p))
				testkit.Eventually(t, "health before the end", time.Minute, func() bool { return p.Health() == nil })
				clock.set(time.Minute)
				var err error
				testkit.Eventually(t, "the layout does not end", time.Minute, func() bool {
					for range 20_000 { // the backup of a pair has ids of the past
						if err = probe(t, p); err != nil {
							return true
						}
					}
					return false
				})
				if after := p.Health(); !errors.Is(err, generator.ErrTimeExhausted) || !errors.Is(after, generator.ErrTimeExhausted) {
					t.Errorf("no id is made: %v, and Health is %v", err, after)
				}
				fresh := plugintest.Use(t, plugintest.Bare(t), uidplugin.WithLayout(generator.DefaultLayout())) // has no generator yet
				must(t, fresh.Health())
			})
		}
	}
}

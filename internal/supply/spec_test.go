package supply

import (
	"errors"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

func TestNameOf_IsOneForAllSpellings(t *testing.T) {
	t.Parallel()

	for name, want := range map[string]string{
		"": "", " ": "", "Cached": Cached, " CACHED\t": Cached, " Mine": "mine", "default": "default",
	} {
		if got := NameOf(name); got != want {
			t.Errorf("%q: %q", name, got)
		}
	}
}

// instant is within all layouts.
var instant = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// configOf returns the configuration of a generator that has lanes leases.
func configOf(lanes int) generator.Config {
	l := generator.DefaultLayout()
	now := func() time.Time { return instant }
	leases := NewFixed(l, 7, 0, now).leases(lanes)
	return generator.Config{Table: "orders", Layout: l, Leases: leases, Clock: generator.NewClock(now), Now: now}
}

func TestBuiltin_MakesGeneratorsOfAsManyLeasesAsItsSpecsSay(t *testing.T) {
	t.Parallel()

	specs := Builtin()
	if got := specs.Names(); got != "cached, paired, snowflake" {
		t.Errorf("the names are %s", got)
	}
	for name, lanes := range map[string]int{Cached: 1, Snowflake: 1, Paired: 2} {
		if specs[name].opened() || specs[name].Lanes != lanes {
			t.Errorf("%s: %+v", name, specs[name])
		}
		g, err := specs.Generator(name, configOf(lanes))
		testkit.Must(t, err)
		id, err := g.Next(t.Context())
		if parts, wrong := generator.DefaultLayout().Decompose(id); err != nil || wrong != nil || parts.WorkerID != 7 {
			t.Errorf("%s: %+v, %v, %v", name, parts, err, wrong)
		}
	}
	specs["mine"] = Spec{}
	if len(Builtin()) != 3 {
		t.Error("what was added to one is in all")
	}
}

// A panic or a nil generator of an application's factory becomes an error.
func TestSpecsGenerator_SurvivesFactories(t *testing.T) {
	t.Parallel()

	broken := errors.New("broken")
	specs := Specs{
		"panics":  {Make: func(generator.Config) (generator.Renewable, error) { panic("boom") }},
		"none":    {Make: func(generator.Config) (generator.Renewable, error) { return nil, nil }},
		"pointer": {Make: func(generator.Config) (generator.Renewable, error) { return (*generator.Cached)(nil), nil }},
		"fails":   {Make: func(generator.Config) (generator.Renewable, error) { return nil, broken }},
		"leases": {Make: func(c generator.Config) (generator.Renewable, error) {
			return generator.NewPaired(c.Paired()) // which needs two leases
		}},
	}
	for name, want := range map[string]struct {
		is   error
		says string
	}{
		"panics":  {ErrOption, `the factory of the generator "panics" panicked: boom`},
		"none":    {ErrOption, `the factory of the generator "none" returned nil`},
		"pointer": {ErrOption, `the factory of the generator "pointer" returned nil`},
		"fails":   {broken, "broken"},
		"leases":  {ErrOption, `the factory of the generator "leases" panicked`},
	} {
		g, err := specs.Generator(name, configOf(1))
		testkit.IsError(t, err, want.is, want.says)
		if g != nil {
			t.Errorf("%s: there is a generator all the same", name)
		}
	}
}

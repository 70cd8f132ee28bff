package supply

import (
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

	type made = generator.Renewable
	const factory = `the factory of the generator "mine" `
	for _, tt := range []struct {
		makes func(generator.Config) (made, error)
		is    error
		says  string
	}{
		{func(generator.Config) (made, error) { panic("boom") }, ErrOption, factory + "panicked: boom"},
		{func(generator.Config) (made, error) { return nil, nil }, ErrOption, factory + "returned nil"},
		{func(generator.Config) (made, error) { return (*generator.Cached)(nil), nil }, ErrOption, factory + "returned nil"},
		{func(generator.Config) (made, error) { return nil, errBroken }, errBroken, ""},
		// A pair needs two leases.
		{func(c generator.Config) (made, error) { return generator.NewPaired(c.Paired()) }, ErrOption, factory + "panicked"},
	} {
		g, err := Specs{"mine": {Make: tt.makes}}.Generator("mine", configOf(1))
		testkit.IsError(t, err, tt.is, tt.says)
		if g != nil {
			t.Errorf("next to %v there is a generator", err)
		}
	}
}

package config_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/config"
	"github.com/uidplugin/uidplugin/internal/supply"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
)

// with returns a configuration that a test has changed.
func with(change func(*config.Config)) *config.Config {
	c := config.New()
	change(c)
	return c
}

// seconds is a layout of long ticks, with few worker ids.
func seconds() generator.Layout { return generator.JSSafeLayout() }

// paired gives the worker id n to a process with the generator of this name.
func paired(c *config.Config, n int64) { c.Fixed, c.WorkerID, c.Generator = true, n, supply.Paired }

func TestConfigValidate_AcceptsValuesUpToTheirLimits(t *testing.T) {
	t.Parallel()

	for name, change := range map[string]func(*config.Config){
		"no options":                func(*config.Config) {},
		"the shortest lead":         func(c *config.Config) { c.Lead = 100 * time.Millisecond },
		"the longest lead":          func(c *config.Config) { c.Lead = time.Hour },
		"a lead of three ticks":     func(c *config.Config) { c.Layout, c.Lead = seconds(), 3*time.Second },
		"less, with a worker id":    func(c *config.Config) { c.Layout, c.Lead, c.Fixed = seconds(), time.Second, true },
		"the largest worker id":     func(c *config.Config) { c.Fixed, c.WorkerID = true, 1<<18-1 },
		"the largest one of a pair": func(c *config.Config) { paired(c, 1<<17-1) },
		"the longest schema":        func(c *config.Config) { c.HasSchema, c.Schema = true, strings.Repeat("x", 63) },
		"the shortest timeout":      func(c *config.Config) { c.Timeout = 1 },
		"an actual host":            func(c *config.Config) { c.Host.Kind = workernode.Actual },
	} {
		if err := with(change).Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Each error names the option and the value, and what there may be instead.
func TestConfigValidate_SaysWhatIsWrongAndWhatIsRight(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		change func(*config.Config)
		says   string
	}{
		{func(c *config.Config) { c.Timeout = 0 }, "WithTimeout(0s): it must be positive"},
		{func(c *config.Config) { c.Lead = time.Hour + 1 }, "WithLead(1h0m0.000000001s): it must be from 100ms to 1h0m0s"},
		{func(c *config.Config) { c.Layout, c.Lead = seconds(), 3*time.Second-1 },
			"WithLead(2.999999999s): it must be at least 3 ticks of the layout, of 1s each"},
		{func(c *config.Config) { c.Fixed, c.WorkerID = true, 1<<18 },
			"WithWorkerID(262144): the layout has 18 bits for worker ids, so it must be from 0 to 262143"},
		{func(c *config.Config) { paired(c, 1<<17) }, "give out only worker ids up to 131071"},
		{func(c *config.Config) { c.Fixed, c.OneEach = true, true }, "WithOneWorkerID has no effect with WithWorkerID"},
		{func(c *config.Config) { c.Fixed, c.Disposable = true, true }, "WithDisposable has no effect with WithWorkerID"},
		{func(c *config.Config) { c.HasSchema = true }, `WithSchema(""): the name must have 1 to 63 bytes`},
		{func(c *config.Config) { c.HasSchema, c.Schema = true, strings.Repeat("x", 64) }, "1 to 63 bytes"},
		{func(c *config.Config) { c.Generator = "nosuch" },
			`WithDefaultGenerator("nosuch"): this generator does not exist; use one of cached, paired, snowflake`},
		{func(c *config.Config) { c.Host.Kind = 3 }, "WithHost: the kind 3 is neither 1 (CONTAINER) nor 2 (ACTUAL)"},
		{counted, "WithCounts: broken"},
	} {
		testkit.IsError(t, with(tt.change).Validate(), supply.ErrOption, tt.says)
	}
	testkit.IsError(t, with(counted).Validate(), errBroken)
	// An invalid layout has an error of its own, and no generator is made of it.
	err := with(func(c *config.Config) { c.Layout.TimeBits = 0 }).Validate()
	testkit.IsError(t, err, generator.ErrLayout, "at least 1 bit")
	if errors.Is(err, supply.ErrOption) {
		t.Errorf("a layout is no other option: %v", err)
	}
}

var errBroken = errors.New("broken")

// counted adds an opener that an option configures, with a value that it refuses.
func counted(c *config.Config) {
	c.Specs["counted"] = supply.Spec{Option: "WithCounts", Check: func() error { return errBroken }}
}

// Wrong settings of a built-in generator are found by making it, once and in Validate. A factory of the application
// must not be called before there is a worker id for it.
func TestConfigValidate_MakesOnlyTheGeneratorsOfThePlugin(t *testing.T) {
	t.Parallel()

	fails := func(generator.Config) (generator.Renewable, error) { return nil, errBroken }
	c := config.New()
	c.AddGenerator("WithGenerator", "cached", supply.Spec{Lanes: 1, Make: fails})
	c.AddGenerator("WithGenerator", "mine", supply.Spec{Lanes: 1, Make: fails})
	testkit.Must(t, c.Validate())
	c.Specs["snowflake"] = supply.Spec{Lanes: 1, Make: fails, Replaceable: true}
	testkit.IsError(t, c.Validate(), errBroken)
	testkit.IsError(t, c.Validate(), supply.ErrOption)
}

func TestConfigAddGenerator_RefusesNamesAndFunctionsThatMakeNoSense(t *testing.T) {
	t.Parallel()

	made := supply.Spec{Lanes: 1, Make: supply.Builtin()[supply.Cached].Make}
	for _, tt := range []struct {
		name, says string // says "": accepted
		spec       supply.Spec
	}{
		{"mine", "", made}, {" Mine ", "", made}, {"a-b_1", "", made}, {"cached", "", made},
		{"", "a name must have only", made}, {"1st", "a name must have only", made}, {"a b", "a name must have only", made},
		{"a;b", "a name must have only", made}, {"ä", "a name must have only", made},
		{"uid", "not be uid, true or false", made}, {"TRUE", "not be uid, true or false", made},
		{"false", "not be uid, true or false", made},
		{"counted", "WithCounts configures this generator", made},
		{"twice", "a generator of this name exists already", made},
		{"cached", "a generator of this name exists already", supply.Spec{}},
		{"mine", "its function is nil", supply.Spec{}},
	} {
		c := config.New()
		c.AddGenerator("WithGenerator", "twice", made)
		counted(c)
		before := len(c.Specs)
		c.AddGenerator("WithGenerator", tt.name, tt.spec)
		if wrong := strings.Join(c.Wrong, "\n"); (tt.says == "") != (wrong == "") {
			t.Errorf("%q: %q", tt.name, wrong)
		} else if tt.says != "" {
			testkit.SaysAll(t, wrong, `WithGenerator("`, tt.says)
			testkit.IsError(t, c.Validate(), supply.ErrOption, tt.says)
			if len(c.Specs) != before {
				t.Errorf("%q is a generator all the same", tt.name)
			}
		}
	}
}

// The generator "paired" needs two worker ids, also when the application replaces it.
func TestConfigAddGenerator_KeepsTheLanesOfWhatItReplaces(t *testing.T) {
	t.Parallel()

	c := config.New()
	made := supply.Spec{Lanes: 1, Make: supply.Builtin()[supply.Cached].Make}
	c.AddGenerator("WithGenerator", "paired", made)
	c.AddGenerator("WithGenerator", "snowflake", made)
	if got := []int{c.Specs["paired"].Lanes, c.Specs["snowflake"].Lanes}; !slices.Equal(got, []int{2, 1}) {
		t.Errorf("the lanes are %v", got)
	}
}

func TestConfig_SaysHowFarAheadOfTheClockAFixedWorkerIDStamps(t *testing.T) {
	t.Parallel()

	const skew = workernode.DefaultMaxSkew
	for _, tt := range []struct {
		name          string
		change        func(*config.Config)
		fixed, borrow time.Duration
		skew          time.Duration
	}{
		{"from the database", func(c *config.Config) { c.Lead = time.Minute }, 0, 0, skew},
		{"fixed", func(c *config.Config) { c.Fixed = true }, time.Second, time.Second, skew},
		{"fixed with a lead", func(c *config.Config) { c.Fixed, c.Lead = true, time.Minute }, time.Minute, time.Minute, skew},
		{"at least a tick", func(c *config.Config) { c.Fixed, c.Lead, c.Layout = true, time.Second/10, seconds() },
			time.Second, time.Second, skew},
		{"a clock that may stand still", func(c *config.Config) { c.Fixed, c.Injected = true, true }, 0, 0, 0},
		{"such a clock and a lead", func(c *config.Config) { c.Fixed, c.Injected, c.Lead = true, true, time.Minute },
			0, time.Minute, 0},
		{"such a clock and less than a tick", func(c *config.Config) {
			c.Fixed, c.Injected, c.Lead, c.Layout = true, true, 100*time.Millisecond, seconds()
		}, 0, time.Second, 0},
		{"such a clock, from the database", func(c *config.Config) { c.Injected, c.Lead = true, time.Minute }, 0, 0, 0},
		{"such a clock that is compared", func(c *config.Config) { c.Injected, c.MaxSkew = true, 3*time.Second },
			0, 0, 3 * time.Second},
		{"not compared", func(c *config.Config) { c.MaxSkew = 0 }, 0, 0, 0},
	} {
		c := with(tt.change)
		if c.FixedLead() != tt.fixed || c.MaxBorrow() != tt.borrow || c.Skew() != tt.skew {
			t.Errorf("%s: begins %v ahead, borrows %v, clocks are %v apart", tt.name, c.FixedLead(), c.MaxBorrow(), c.Skew())
		}
	}
}

func TestConfigDetectHost_TakesEachPartFromTheOptionsElseItIsFoundOut(t *testing.T) {
	t.Parallel()

	found := workernode.DetectHost()
	if got := config.New().DetectHost(); got != found {
		t.Errorf("without options %+v, want %+v", got, found)
	}
	all := workernode.Host{Name: "n", Port: "p", Kind: 3 - found.Kind, Application: "a"}
	for _, change := range []func(h *workernode.Host){
		func(h *workernode.Host) { h.Name = all.Name },
		func(h *workernode.Host) { h.Port = all.Port },
		func(h *workernode.Host) { h.Kind = all.Kind },
		func(h *workernode.Host) { h.Application = all.Application },
		func(h *workernode.Host) { *h = all },
	} {
		want := found
		change(&want)
		if got := with(func(c *config.Config) { change(&c.Host) }).DetectHost(); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}

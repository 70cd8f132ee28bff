package uidplugin_test

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/glebarez/sqlite"
	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// wrong are options that make no sense. Package config tests which values are right.
var wrong = []struct {
	name    string
	options []uidplugin.Option
	is      error
	says    []string
}{
	{"future epoch", []uidplugin.Option{uidplugin.WithLayout(epoch(2999))}, generator.ErrLayout, []string{"2999", "future"}},
	{"ended layout", []uidplugin.Option{uidplugin.WithLayout(epoch(1949))}, generator.ErrLayout, []string{"1949", "2018", "ended"}},
	{"negative worker id", []uidplugin.Option{uidplugin.WithWorkerID(-1)}, uidplugin.ErrOption, []string{"WithWorkerID(-1)", "18 bits", "262143"}},
	{"a segment as a generator", []uidplugin.Option{uidplugin.WithGenerator("segment", snowflake(generator.SnowflakeConfig{}))}, // wing: segment
		uidplugin.ErrOption, []string{`WithGenerator("segment")`, "WithSegments"}}, // wing: segment
	{"a source in place of a generator", []uidplugin.Option{uidplugin.WithSource("cached", nil)}, uidplugin.ErrOption, []string{`WithSource("cached")`, "already"}},
	{"a lead that is too short", []uidplugin.Option{uidplugin.WithLead(100*time.Millisecond - 1)}, uidplugin.ErrOption,
		[]string{"WithLead(99.999999ms)", "100ms", "1h0m0s"}},
}

// epoch returns the default layout with the epoch at the beginning of a year.
func epoch(year int) generator.Layout {
	l := generator.DefaultLayout()
	l.Epoch = time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)
	return l
}

func TestOptions_EachWrongOptionHasItsError(t *testing.T) {
	t.Parallel()

	for _, tt := range wrong {
		db := plugintest.Bare(t)
		testkit.IsError(t, db.Use(uidplugin.New(tt.options...)), tt.is, tt.says...)
		plugintest.Unregistered(t, db)
		if db.Migrator().HasTable("WORKER_NODE") {
			t.Errorf("%s: the table was made before the options were checked", tt.name)
		}
	}
}

// One error reports all wrong options, in any order and of all packages.
func TestOptions_AllWrongOptionsAreReportedAtOnce(t *testing.T) {
	t.Parallel()

	err := plugintest.Bare(t).Use(uidplugin.New(
		uidplugin.WithTimeout(0), uidplugin.WithLayout(epoch(2999)), uidplugin.WithWorkerID(-1),
		uidplugin.WithDefaultGenerator("nosuch"), uidplugin.WithHost(workernode.Host{Kind: 3})))
	if !errors.Is(err, uidplugin.ErrOption) || !errors.Is(err, generator.ErrLayout) {
		t.Fatal(err)
	}
	saysAll(t, err.Error(), "WithTimeout", "2999", "WithWorkerID(-1)", "nosuch", "WithHost")
}

// snowflake returns a factory that puts two settings of config into the generator.
func snowflake(config generator.SnowflakeConfig) func(generator.Config) (generator.Renewable, error) {
	return func(c generator.Config) (generator.Renewable, error) {
		s := c.Snowflake()
		s.MaxClockBackwards, s.RandomStart = config.MaxClockBackwards, config.RandomStart
		return generator.NewSnowflake(s)
	}
}

// The settings of the generators that are always there are given with WithGenerator. What is wrong with them is in the
// error of db.Use, if a listed model has the generator.
func TestWithGenerator_ConfiguresTheBuiltIn(t *testing.T) {
	t.Parallel()

	type flaky struct {
		ID int64 `gorm:"primaryKey;autoIncrement:false;uid:snowflake"`
	}
	for _, name := range []string{" SNOWFLAKE", "snowflake"} {
		err := plugintest.Bare(t).Use(uidplugin.New(uidplugin.WithLogger(nil), uidplugin.WithModels(&flaky{}),
			uidplugin.WithGenerator(name, snowflake(generator.SnowflakeConfig{MaxClockBackwards: -1, RandomStart: 17}))))
		testkit.IsError(t, err, generator.ErrConfig, "MaxClockBackwards", "RandomStart", "17", "16")
		db := plugintest.Open(t, uidplugin.WithModels(&flaky{}), uidplugin.WithGenerator(name, snowflake(generator.SnowflakeConfig{RandomStart: 16})))
		p, sequences := uidplugin.From(db), map[int64]bool{}
		for range 200 {
			id, err := p.NextID(t.Context(), &flaky{})
			must(t, err)
			sequences[int64(id&15)] = true
			time.Sleep(p.Layout().Tick)
		}
		if len(sequences) < 8 {
			t.Errorf("%s: 200 ticks begin with the sequences %v", name, sequences)
		}
	}
	// Paired keeps its two worker ids.
	db := plugintest.Open(t, uidplugin.WithGenerator("paired", func(c generator.Config) (generator.Renewable, error) {
		return generator.NewPaired(c.Paired())
	}))
	plugintest.Migrate(t, db, &plugintest.Twin{})
	must(t, db.Create(&plugintest.Twin{}).Error)
	if ids := uidplugin.From(db).Stats().Tables[0].WorkerIDs; len(ids) != 2 {
		t.Errorf("the worker ids are %v", ids)
	}
}

func TestOptions_ThatMakeSense(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		name    string
		options []uidplugin.Option
	}{
		{"nothing", nil},
		{"nil", []uidplugin.Option{nil, uidplugin.WithLogger(nil), uidplugin.WithClock(nil), uidplugin.WithHost(workernode.Host{})}},
		{"first worker id", []uidplugin.Option{uidplugin.WithWorkerID(0)}},
		{"last worker id", []uidplugin.Option{uidplugin.WithWorkerID(1<<18 - 1)}},
		{"snowflake", []uidplugin.Option{uidplugin.WithLayout(generator.SnowflakeLayout())}},
		{"JavaScript", []uidplugin.Option{uidplugin.WithLayout(generator.JSSafeLayout())}},
		{"generator in capitals", []uidplugin.Option{uidplugin.WithDefaultGenerator(" SNOWFLAKE ")}},
		{"the shortest lead", []uidplugin.Option{uidplugin.WithLead(100 * time.Millisecond)}},
		{"the longest lead", []uidplugin.Option{uidplugin.WithLead(time.Hour)}},
		{"the shortest lead of a worker id", []uidplugin.Option{uidplugin.WithLead(100 * time.Millisecond), uidplugin.WithWorkerID(1)}},
		{"disposable", []uidplugin.Option{uidplugin.WithDisposable(), plugintest.WithMaxSkew(0)}},
	} {
		db := plugintest.Open(t, tt.options...)
		plugintest.Migrate(t, db, &plugintest.Part{})
		r := plugintest.Part{}
		must(t, db.Create(&r).Error)
		if parts, err := uidplugin.From(db).Decode(uidplugin.ID(r.ID)); err != nil || time.Since(parts.Time).Abs() > time.Minute {
			t.Errorf("%s: %d is %+v, %v", tt.name, r.ID, parts, err)
		}
	}
}

func TestOptions_ALayoutThatEndsWithinAYearIsWarnedOf(t *testing.T) {
	t.Parallel()

	ends := generator.DefaultLayout().Expires()
	for _, tt := range []struct {
		left  time.Duration
		warns int
	}{
		{366 * 24 * time.Hour, 0},
		{364 * 24 * time.Hour, 1},
		{time.Hour, 1},
	} {
		j := &plugintest.Journal{}
		plugintest.Open(t, j.Option(), uidplugin.WithClock(func() time.Time { return ends.Add(-tt.left) }))
		lines := j.Lines("ends within a year")
		if len(lines) != tt.warns {
			t.Errorf("%v before the end: %q", tt.left, lines)
		}
		for _, l := range lines {
			saysAll(t, l, "level=WARN", "1-41-18-4/1ms@1514764800", "2087-09-07")
		}
	}
	err := plugintest.Bare(t).Use(uidplugin.New(uidplugin.WithClock(func() time.Time { return ends })))
	testkit.IsError(t, err, generator.ErrLayout)
}

func TestOptions_WorkerIDsAreLoggedWithTheirTables(t *testing.T) {
	t.Parallel()

	j := &plugintest.Journal{}
	db := plugintest.Open(t, j.Option(), uidplugin.WithModels(&plugintest.Part{}))
	plugintest.Migrate(t, db, &plugintest.Article{})
	must(t, db.Create(&plugintest.Article{}).Error)
	testkit.Eventually(t, "too few lines", time.Minute, func() bool {
		return len(j.Lines("worker ids assigned")) >= 2 && len(j.Lines("this process has a slot")) > 0 // from two queues
	})
	lines := j.Lines("worker ids assigned")
	saysAll(t, lines[0], "level=INFO", "parts=1025")
	saysAll(t, lines[1], "level=INFO", "articles=1026")
	lines = j.Lines("this process has a slot")
	if len(lines) != 1 {
		t.Fatalf("%q", lines)
	}
	saysAll(t, lines[0], "level=INFO", "slot=1", "id_space=", "until=20")
}

func TestOptions_TheDefaultLoggerIsSlogs(t *testing.T) { // not parallel: the default logger is everybody's
	j := &plugintest.Journal{}
	old := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(j, nil)))
	defer slog.SetDefault(old)
	must(t, plugintest.Bare(t).Use(uidplugin.New(uidplugin.WithModels(&plugintest.Part{}))))
	testkit.Eventually(t, "nothing was logged", time.Minute, func() bool { return len(j.Lines("worker ids assigned")) == 1 })
}

// With a clock of the application's, WithLead bounds how far ahead of it ids are. Formerly it had no effect, and a
// clock that stood still gave ids up to an hour ahead.
func TestWithLead_BoundsWhatAFixedWorkerIDMakesAheadOfAFrozenClock(t *testing.T) {
	t.Parallel()

	const lead = 200 * time.Millisecond
	db := plugintest.Open(t, uidplugin.WithWorkerID(1), uidplugin.WithLead(lead), uidplugin.WithClock(plugintest.AtNoon),
		uidplugin.WithGenerator("cached", func(c generator.Config) (generator.Renewable, error) {
			cached := c.Cached()
			cached.NoWait = true
			return generator.NewCached(cached)
		}))
	p, n := uidplugin.From(db), 0
	var err error
	for ; err == nil && n < 10_000; n++ {
		_, err = p.NextID(t.Context(), &plugintest.Part{})
	}
	if most := 16 * (int(lead/time.Millisecond) + 1); !errors.Is(err, generator.ErrBorrowLimit) || n > most+1 {
		t.Errorf("%d ids, then %v; want %d at most", n, err, most)
	}
}

// gorm.Open returns a handle together with its error. db.Use with it once panicked.
func TestPluginInitialize_RefusesAHandleThatIsNotConnected(t *testing.T) {
	t.Parallel()

	for _, dialector := range []gorm.Dialector{
		mysql.Open("test:test@tcp(127.0.0.1:1)/test"), sqlite.Open("/nowhere/at/all.db"), postgres.Open("host=127.0.0.1 port=1"),
	} {
		db, err := gorm.Open(dialector, &gorm.Config{Logger: logger.Discard})
		if err == nil {
			t.Errorf("%s is connected", dialector.Name())
		}
		if db == nil {
			continue
		}
		if err := db.Use(uidplugin.New()); err == nil {
			t.Errorf("%s: db.Use returns no error", dialector.Name())
		}
	}
}

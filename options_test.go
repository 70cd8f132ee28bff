package uidplugin_test

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/workernode"
)

// wrong are options that make no sense.
var wrong = []struct {
	name    string
	options []uidplugin.Option
	is      error
	says    []string
}{
	{"zero layout", []uidplugin.Option{uidplugin.WithLayout(generator.Layout{})}, generator.ErrLayout, []string{"at least 1 bit"}},
	{"future epoch", []uidplugin.Option{uidplugin.WithLayout(epoch(2999))}, generator.ErrLayout, []string{"2999", "future"}},
	{"ended layout", []uidplugin.Option{uidplugin.WithLayout(epoch(1999))}, generator.ErrLayout, []string{"1999", "2007", "ended"}},
	{"unknown generator", []uidplugin.Option{uidplugin.WithDefaultGenerator("nosuch")}, uidplugin.ErrOption,
		[]string{"WithDefaultGenerator", `"nosuch"`, "cached", "default"}},
	{"no generator", []uidplugin.Option{uidplugin.WithDefaultGenerator("")}, uidplugin.ErrOption, []string{"WithDefaultGenerator", "cached"}},
	{"zero timeout", []uidplugin.Option{uidplugin.WithTimeout(0)}, uidplugin.ErrOption, []string{"WithTimeout", "0s"}},
	{"negative timeout", []uidplugin.Option{uidplugin.WithTimeout(-time.Second)}, uidplugin.ErrOption, []string{"WithTimeout", "-1s"}},
	{"negative worker id", []uidplugin.Option{uidplugin.WithWorkerID(-1)}, uidplugin.ErrOption, []string{"WithWorkerID(-1)", "22 bits", "4194303"}},
	{"large worker id", []uidplugin.Option{uidplugin.WithWorkerID(1 << 22)}, uidplugin.ErrOption, []string{"WithWorkerID(4194304)", "22 bits", "4194303"}},
	{"large worker id for the layout", []uidplugin.Option{uidplugin.WithWorkerID(32), uidplugin.WithLayout(generator.JSSafeLayout())},
		uidplugin.ErrOption, []string{"WithWorkerID(32)", "5 bits", "31"}},
	{"worker id without migration", []uidplugin.Option{uidplugin.WithoutMigration(), uidplugin.WithWorkerID(1)},
		uidplugin.ErrOption, []string{"WithoutMigration", "WithWorkerID"}},
	{"worker id and disposable", []uidplugin.Option{uidplugin.WithDisposable(), uidplugin.WithWorkerID(1)},
		uidplugin.ErrOption, []string{"WithDisposable", "WithWorkerID"}},
	{"disposable on a durable database", []uidplugin.Option{uidplugin.WithDisposable(), uidplugin.WithDurableDatabase()},
		uidplugin.ErrOption, []string{"WithDurableDatabase", "WithDisposable"}},
	{"a coarse clock for short ticks", []uidplugin.Option{uidplugin.WithCoarseClock(), uidplugin.WithLayout(generator.SnowflakeLayout())}, uidplugin.ErrOption, []string{"WithCoarseClock", "1ms"}},
	{"a worker id that is the backup of another", []uidplugin.Option{uidplugin.WithWorkerID(2097155), uidplugin.WithDefaultGenerator(uidplugin.Paired)}, uidplugin.ErrOption, []string{"WithWorkerID(2097155)", "2097151"}},
	{"three lanes", []uidplugin.Option{uidplugin.WithMaxLanes(3)}, uidplugin.ErrOption, []string{"WithMaxLanes(3)", "power of two", "64"}},
	{"no lane", []uidplugin.Option{uidplugin.WithMaxLanes(0)}, uidplugin.ErrOption, []string{"WithMaxLanes(0)"}},
	{"too many lanes", []uidplugin.Option{uidplugin.WithMaxLanes(128)}, uidplugin.ErrOption, []string{"WithMaxLanes(128)", "64"}},
	{"negative spares", []uidplugin.Option{uidplugin.WithSpares(-1)}, uidplugin.ErrOption, []string{"WithSpares(-1)"}},
	{"unknown kind", []uidplugin.Option{uidplugin.WithHost(workernode.Host{Kind: 3})}, uidplugin.ErrOption, []string{"WithHost", "3", "CONTAINER", "ACTUAL"}},
	{"negative borrowing", []uidplugin.Option{uidplugin.WithMaxBorrow(-1)}, generator.ErrConfig, []string{"MaxBorrow", "-1ns"}},
	{"borrowing less than a tick", []uidplugin.Option{uidplugin.WithMaxBorrow(time.Millisecond)}, generator.ErrConfig, []string{"MaxBorrow", "1ms", "1s"}},
	{"negative tolerance", []uidplugin.Option{uidplugin.WithMaxClockBackwards(-1)}, generator.ErrConfig, []string{"MaxClockBackwards", "-1ns"}},
	{"negative random start", []uidplugin.Option{uidplugin.WithRandomStart(-1)}, generator.ErrConfig, []string{"RandomStart", "-1"}},
	{"large random start", []uidplugin.Option{uidplugin.WithRandomStart(8193)}, generator.ErrConfig, []string{"RandomStart", "8193", "8192"}},
}

// epoch returns the default layout with the epoch at the beginning of a year.
func epoch(year int) generator.Layout {
	l := generator.DefaultLayout()
	l.Epoch = time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)
	return l
}

func TestEachWrongOptionHasItsError(t *testing.T) {
	t.Parallel()

	for _, tt := range wrong {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			db := bare(t)
			err := db.Use(uidplugin.New(tt.options...))
			if !errors.Is(err, tt.is) {
				t.Fatalf("db.Use: %v", err)
			}
			saysAll(t, err.Error(), tt.says...)
			unregistered(t, db)
			if db.Migrator().HasTable("WORKER_NODE") {
				t.Error("the table was made before the options were checked")
			}
		})
	}
}

// TestAllWrongOptionsAreReportedAtOnce, whatever their order and their package.
func TestAllWrongOptionsAreReportedAtOnce(t *testing.T) {
	t.Parallel()

	err := bare(t).Use(uidplugin.New(
		uidplugin.WithTimeout(0), uidplugin.WithLayout(epoch(2999)), uidplugin.WithWorkerID(-1),
		uidplugin.WithDefaultGenerator("nosuch"), uidplugin.WithoutMigration(), uidplugin.WithHost(workernode.Host{Kind: 3})))
	if !errors.Is(err, uidplugin.ErrOption) || !errors.Is(err, generator.ErrLayout) {
		t.Fatal(err)
	}
	saysAll(t, err.Error(), "WithTimeout", "2999", "WithWorkerID(-1)", "nosuch", "WithoutMigration", "WithHost")
}

// TestAllWrongSettingsOfGeneratorsAreReportedAtOnce.
func TestAllWrongSettingsOfGeneratorsAreReportedAtOnce(t *testing.T) {
	t.Parallel()

	err := bare(t).Use(uidplugin.New(uidplugin.WithMaxBorrow(-1), uidplugin.WithMaxClockBackwards(-1), uidplugin.WithRandomStart(-1)))
	if !errors.Is(err, generator.ErrConfig) {
		t.Fatal(err)
	}
	saysAll(t, err.Error(), "MaxBorrow", "MaxClockBackwards", "RandomStart")
}

func TestOptionsThatMakeSense(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		name    string
		options []uidplugin.Option
	}{
		{"nothing", nil},
		{"nil", []uidplugin.Option{nil, uidplugin.WithLogger(nil), uidplugin.WithClock(nil), uidplugin.WithHost(workernode.Host{})}},
		{"first worker id", []uidplugin.Option{uidplugin.WithWorkerID(0)}},
		{"last worker id", []uidplugin.Option{uidplugin.WithWorkerID(1<<22 - 1)}},
		{"snowflake", []uidplugin.Option{uidplugin.WithLayout(generator.SnowflakeLayout())}},
		{"JavaScript", []uidplugin.Option{uidplugin.WithLayout(generator.JSSafeLayout())}},
		{"generator in capitals", []uidplugin.Option{uidplugin.WithDefaultGenerator(" DEFAULT ")}},
		{"borrowing a tick", []uidplugin.Option{uidplugin.WithMaxBorrow(time.Second), uidplugin.WithoutWaiting()}},
		{"a coarse clock", []uidplugin.Option{uidplugin.WithCoarseClock(), uidplugin.WithDefaultGenerator(uidplugin.Default)}},
		{"one lane", []uidplugin.Option{uidplugin.WithMaxLanes(1), uidplugin.WithSpares(0)}},
		{"all lanes", []uidplugin.Option{uidplugin.WithMaxLanes(64), uidplugin.WithSpares(100), uidplugin.WithDurableDatabase()}},
		{"disposable", []uidplugin.Option{uidplugin.WithDisposable(), uidplugin.WithMaxClockSkew(0)}},
		{"largest random start", []uidplugin.Option{uidplugin.WithRandomStart(8192), uidplugin.WithMaxClockBackwards(time.Hour)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			db := open(t, tt.options...)
			migrate(t, db, &part{})
			r := part{}
			must(t, db.Create(&r).Error)
			if parts, err := uidplugin.From(db).Decode(r.ID); err != nil || time.Since(parts.Time).Abs() > time.Minute {
				t.Errorf("%d is %+v, %v", r.ID, parts, err)
			}
		})
	}
}

func TestTheHostIsWhatWithHostSaysAndElseFoundOut(t *testing.T) {
	t.Parallel()

	real := workernode.DetectHost()
	for _, tt := range []struct{ set, want workernode.Host }{
		{workernode.Host{}, real},
		{workernode.Host{Name: "web-1"}, workernode.Host{Name: "web-1", Port: real.Port, Kind: real.Kind}},
		{workernode.Host{Port: "8080"}, workernode.Host{Name: real.Name, Port: "8080", Kind: real.Kind}},
		{workernode.Host{Kind: workernode.Container}, workernode.Host{Name: real.Name, Port: real.Port, Kind: workernode.Container}},
		{workernode.Host{Kind: workernode.Actual}, workernode.Host{Name: real.Name, Port: real.Port, Kind: workernode.Actual}},
	} {
		db := open(t, uidplugin.WithSpares(0), uidplugin.WithHost(tt.set), uidplugin.WithModels(&part{}))
		nodes, err := uidplugin.From(db).Nodes(t.Context(), 0, 10)
		must(t, err)
		if n := nodes[0]; len(nodes) != 1 || (workernode.Host{Name: n.Host, Port: n.Port, Kind: n.Kind}) != tt.want {
			t.Errorf("WithHost(%+v): %+v", tt.set, n)
		}
	}
}

func TestALayoutThatEndsWithinAYearIsWarnedOf(t *testing.T) {
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
		j := &journal{}
		open(t, j.option(), uidplugin.WithClock(func() time.Time { return ends.Add(-tt.left) }))
		lines := j.lines("ends within a year")
		if len(lines) != tt.warns {
			t.Errorf("%v before the end: %q", tt.left, lines)
		}
		for _, l := range lines {
			saysAll(t, l, "level=WARN", "1-28-22-13/1s@1767225600", "2034-07-04")
		}
	}
	err := bare(t).Use(uidplugin.New(uidplugin.WithClock(func() time.Time { return ends })))
	if !errors.Is(err, generator.ErrLayout) {
		t.Errorf("at its end: %v", err)
	}
}

func TestWorkerIDsAreLoggedWithTheirTables(t *testing.T) {
	t.Parallel()

	j := &journal{}
	db := open(t, j.option(), uidplugin.WithSpares(0), uidplugin.WithModels(&part{}))
	migrate(t, db, &article{})
	must(t, db.Create(&article{}).Error)
	lines := j.lines("worker ids assigned")
	if len(lines) != 2 {
		t.Fatalf("%q", lines)
	}
	saysAll(t, lines[0], "level=INFO", "parts=1", "from=20", "until=20")
	saysAll(t, lines[1], "level=INFO", "articles=2")
}

func TestTheDefaultLoggerIsSlogs(t *testing.T) { // not parallel: the default logger is everybody's
	j := &journal{}
	old := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(j, nil)))
	defer slog.SetDefault(old)
	must(t, bare(t).Use(uidplugin.New(uidplugin.WithModels(&part{}))))
	if len(j.lines("worker ids assigned")) != 1 {
		t.Error("nothing was logged")
	}
}

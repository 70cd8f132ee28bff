package uidprom_test

import (
	"context"
	"errors"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/uidprom"
	"gorm.io/gorm"
)

type (
	order   struct{ ID uidplugin.ID }
	article struct {
		ID int64 `gorm:"primaryKey;uid:snowflake"`
	}
	ticket struct {
		ID int64 `gorm:"primaryKey;uid:segment"`
	}
	odd   struct{ ID uidplugin.ID }
	odder struct{ ID uidplugin.ID }
)

func (odd) TableName() string   { return "o\xffders" }
func (odder) TableName() string { return "o\xfeders" }

// open returns a plugin in use on a new SQLite database, and what is between it and the database.
func open(t *testing.T, options ...uidplugin.Option) (*uidplugin.Plugin, *gorm.DB, *testkit.Wire) {
	t.Helper()
	db, wire := testkit.OpenWire(t, testkit.Engines()[0].New(t))
	p := uidplugin.New(append([]uidplugin.Option{uidplugin.WithLogger(slog.New(slog.DiscardHandler))}, options...)...)
	testkit.Must(t, db.Use(p))
	t.Cleanup(func() {
		wire.Shut.Store(false)
		_ = p.Close(context.Background())
	})
	return p, db, wire
}

// registered returns a registry with the collector of a handle.
func registered(t *testing.T, db *gorm.DB) *prometheus.Registry {
	t.Helper()
	r := prometheus.NewPedanticRegistry() // checks what it collects against what is described
	testkit.Must(t, r.Register(uidprom.NewCollector(db, nil)))
	return r
}

// A scrape is the values of metrics by their names, with the table.
type scrape map[string]float64

// gather scrapes.
func gather(tb testing.TB, g prometheus.Gatherer) scrape {
	tb.Helper()
	families, err := g.Gather()
	if err != nil {
		tb.Error(err)
	}
	s := scrape{}
	for _, f := range families {
		for _, m := range f.Metric {
			name := strings.TrimPrefix(f.GetName(), "uidplugin_")
			for _, l := range m.Label {
				name += " " + l.GetValue()
			}
			s[name] = value(m)
		}
	}
	return s
}

func value(m *dto.Metric) float64 { return m.GetCounter().GetValue() + m.GetGauge().GetValue() }

// is checks values of a scrape.
func (s scrape) is(t *testing.T, want scrape) {
	t.Helper()
	for name, v := range want {
		if got, ok := s[name]; !ok || got != v {
			t.Errorf("%s is %v (%v), want %v", name, got, ok, v)
		}
	}
}

func TestCollectorCollect_ShowsThePlugin(t *testing.T) {
	t.Parallel()

	p, db, wire := open(t, uidplugin.WithModels(&order{}, &article{}, &ticket{}))
	testkit.Must(t, p.AutoMigrate(&order{}, &article{}, &ticket{}))
	for range 3 {
		testkit.Must(t, db.Create(&order{}).Error)
	}
	testkit.Must(t, db.Create(&[]article{{}, {}}).Error)
	testkit.Must(t, db.Create(&[]ticket{{}, {}, {}, {}}).Error)
	r := registered(t, db)
	if problems, err := testutil.GatherAndLint(r); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
	wire.Take()
	s := gather(t, r)
	s.is(t, scrape{
		"healthy": 1, "slot_id": 1, "slot_failures_total": 0, "slot_failing_seconds": 0,
		"slot_worker_ids": 2,
		"sessions_total":  1, "slots_allocated_total": 1, "slots_reclaimed_total": 0,
		"slots_lost_total": 0, "lost_commits_total": 0,
		"worker_ids_given": 1026, "worker_ids_max": 262143,
		"ids_made_total cached orders": 3, "ids_made_total snowflake articles": 2, "ids_made_total segment tickets": 4,
		"waits_total cached orders": 0, "waits_total snowflake articles": 0,
		"lanes cached orders": 1, "lanes snowflake articles": 1, "lanes segment tickets": 0,
		"lead_seconds snowflake articles": 0,
	})
	age, lease := s["slot_age_seconds"], s["lease_remaining_seconds"]
	if age < 0 || age > 60 || lease < 300 || lease > 660 {
		t.Errorf("the slot is %v s old, and its lease ends in %v s", age, lease)
	}
	if waits, ok := s["waits_total segment tickets"]; !ok || waits > 4 { // for what was fetched to get into the buffer
		t.Errorf("%v calls for a segment have waited", waits)
	}
	if left := s["layout_remaining_seconds"]; time.Duration(left)*time.Second < 20*365*24*time.Hour {
		t.Errorf("the layout ends in %v s", left)
	}
	for range 100 {
		if n := len(gather(t, r)); n != 16+3*4 {
			t.Errorf("%d series of three tables", n)
		}
	}
	if n := len(wire.Take()); n != 0 {
		t.Errorf("101 scrapes sent %d statements", n)
	}
}

// Alerts and dashboards of users name metrics and labels. A line that changes or goes breaks them.
func TestNewCollector_NamesOfMetrics(t *testing.T) {
	t.Parallel()

	var got []string
	descs := make(chan *prometheus.Desc, 100)
	uidprom.NewCollector(nil, nil).Describe(descs)
	close(descs)
	parts := regexp.MustCompile(`fqName: "uidplugin_(\w+)".*variableLabels: {(.*?)}`)
	for d := range descs {
		m := parts.FindStringSubmatch(d.String())
		if m == nil {
			t.Fatal(d)
		}
		got = append(got, strings.TrimSpace(m[1]+" "+m[2]))
	}
	slices.Sort(got)
	want := []string{
		"consumer_delay_seconds table,consumer", "consumer_handled_total table,consumer", "consumer_stuck table,consumer", // wing: follow
		"follow_delay_seconds table", "followers table", // wing: follow
		"healthy", "ids_made_total table,generator", "lanes table,generator",
		"layout_remaining_seconds", "lead_seconds table,generator", "lease_remaining_seconds", "lost_commits_total",
		"sessions_total", "slot_age_seconds", "slot_failing_seconds", "slot_failures_total", "slot_id", "slot_renewals_total",
		"slot_worker_ids", "slots_allocated_total", "slots_lost_total", "slots_reclaimed_total",
		"too_late_total table", // wing: follow
		"waits_total table,generator", "worker_ids_given", "worker_ids_max",
	}
	if !slices.Equal(got, want) {
		t.Errorf("metrics\n%q\nwant\n%q", got, want)
	}
}

// With a fixed worker id there is no slot, and so nothing about one.
func TestCollectorCollect_WithAFixedWorkerID(t *testing.T) {
	t.Parallel()

	p, db, _ := open(t, uidplugin.WithWorkerID(7))
	if _, err := p.NextID(t.Context(), &order{}); err != nil {
		t.Fatal(err)
	}
	s := gather(t, registered(t, db))
	s.is(t, scrape{"healthy": 1, "ids_made_total cached *": 1, "lanes cached *": 1})
	ofSlots := []string{"slot", "lease", "lost", "given"}
	for name := range s {
		if slices.ContainsFunc(ofSlots, func(part string) bool { return strings.Contains(name, part) }) {
			t.Errorf("there is %s", name)
		}
	}
}

// Without a handle or a plugin, and after Close a scrape works, and says that no ids can be made.
func TestCollectorCollect_APluginThatIsNotInUse(t *testing.T) {
	t.Parallel()

	for _, db := range []*gorm.DB{nil, {}, testkit.Engines()[0].New(t).Open(t, nil)} {
		if s := gather(t, registered(t, db)); len(s) != 1 || s["healthy"] != 0 {
			t.Errorf("%v", s)
		}
	}
	p, db, _ := open(t, uidplugin.WithModels(&order{}))
	r := registered(t, db)
	testkit.Must(t, p.AutoMigrate(&order{}))
	testkit.Must(t, db.Create(&[]order{{}, {}, {}}).Error)
	var scrapes sync.WaitGroup
	var done atomic.Bool
	scrapes.Go(func() { // one that is under way when it is closed
		for !done.Load() {
			gather(t, r)
		}
	})
	testkit.MustClose(t, p)
	done.Store(true)
	scrapes.Wait()
	s := gather(t, r)
	s.is(t, scrape{"healthy": 0, "slot_id": 0, "ids_made_total cached orders": 3, "sessions_total": 1})
	if _, ok := s["lease_remaining_seconds"]; ok {
		t.Error("a plugin without a slot has a lease")
	}
	pool, err := db.DB()
	testkit.Must(t, err)
	testkit.Must(t, pool.Close())
	gather(t, r).is(t, scrape{"healthy": 0, "ids_made_total cached orders": 3})
}

func TestCollectorCollect_TellsThatTheLeaseIsNotRenewed(t *testing.T) {
	t.Parallel()

	p, db, wire := open(t, uidplugin.WithModels(&order{}), uidplugin.WithLead(300*time.Millisecond))
	testkit.Must(t, p.AutoMigrate(&order{}))
	testkit.Must(t, db.Create(&order{}).Error)
	r := registered(t, db)
	testkit.Eventually(t, "it is renewed", time.Minute, func() bool { return gather(t, r)["slot_renewals_total"] > 1 })
	wire.Shut.Store(true)
	testkit.Eventually(t, "a scrape tells of it", time.Minute, func() bool {
		s := gather(t, r)
		return s["healthy"] == 0 && s["slot_failures_total"] > 0 && s["slot_failing_seconds"] > 0 &&
			s["lease_remaining_seconds"] < 0
	})
	failures := gather(t, r)["slot_failures_total"]
	wire.Shut.Store(false)
	testkit.Eventually(t, "and that it has recovered", time.Minute, func() bool {
		s := gather(t, r)
		return s["healthy"] == 1 && s["slot_failing_seconds"] == 0 && s["slot_failures_total"] >= failures
	})
}

// Several plugins: by labels of their own, or of a registerer. Without, the registry refuses the second.
func TestNewCollector_SeveralPlugins(t *testing.T) {
	t.Parallel()

	r := prometheus.NewPedanticRegistry()
	var shards []*gorm.DB
	for _, shard := range []string{"a", "b"} {
		p, db, _ := open(t, uidplugin.WithModels(&order{}))
		shards = append(shards, db)
		for range len(shards) {
			if _, err := p.NextID(t.Context(), &order{}); err != nil {
				t.Fatal(err)
			}
		}
		testkit.Must(t, r.Register(uidprom.NewCollector(db, prometheus.Labels{"shard": shard})))
		wrapped := prometheus.WrapRegistererWith(prometheus.Labels{"shard": "wrapped " + shard}, r)
		testkit.Must(t, wrapped.Register(uidprom.NewCollector(db, nil)))
	}
	var already prometheus.AlreadyRegisteredError
	if err := r.Register(uidprom.NewCollector(shards[0], prometheus.Labels{"shard": "a"})); !errors.As(err, &already) {
		t.Errorf("a second collector with the same labels: %v", err)
	}
	s := gather(t, r)
	s.is(t, scrape{
		"healthy a": 1, "healthy wrapped b": 1,
		"ids_made_total cached a orders": 1, "ids_made_total cached b orders": 2,
		"ids_made_total cached wrapped b orders": 2,
	})
	if !r.Unregister(uidprom.NewCollector(nil, prometheus.Labels{"shard": "a"})) {
		t.Error("the collector of a plugin cannot be unregistered by its labels")
	}
	if _, ok := gather(t, r)["healthy a"]; ok {
		t.Error("it is still there")
	}
	for _, labels := range []prometheus.Labels{{"table": "x"}, {"generator": "x"}, {"a": "\xff"}} {
		if err := prometheus.NewRegistry().Register(uidprom.NewCollector(nil, labels)); err == nil {
			t.Errorf("the labels %v are not refused", labels)
		}
	}
}

// Tables whose names are no UTF-8 must not break the scrape of the others, nor may two of them be one.
func TestCollectorCollect_TakesAnyTableName(t *testing.T) {
	t.Parallel()

	p, db, _ := open(t, uidplugin.WithModels(&order{}))
	for range 2 {
		_, err := p.NextID(t.Context(), &odd{})
		testkit.Must(t, err)
	}
	_, err := p.NextID(t.Context(), &odder{})
	testkit.Must(t, err)
	gather(t, registered(t, db)).is(t, scrape{`ids_made_total cached o\xffders`: 2, `ids_made_total cached o\xfeders`: 1,
		"ids_made_total cached orders": 0})
}

// Many goroutines take ids as fast as they can, with all generators, while the worker ids of their tables change, the
// database is unreachable from time to time, and others scrape. No counter ever goes back, and at the end every id was counted, and
// hardly any twice.
func TestCollectorCollect_CountsEveryID(t *testing.T) {
	t.Parallel()

	models := map[string]any{"cached orders": &order{}, "snowflake articles": &article{}, "segment tickets": &ticket{}}
	layout := generator.DefaultLayout()
	layout.SequenceBits = 1 // so that the tables need more lanes also on a busy machine
	p, db, wire := open(t, uidplugin.WithModels(&order{}, &article{}, &ticket{}), uidplugin.WithLead(300*time.Millisecond),
		uidplugin.WithLayout(layout))
	r := registered(t, db)
	length := 4 * time.Second
	if testing.Short() {
		length = time.Second
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	made := map[string]*atomic.Int64{}
	var callers, others sync.WaitGroup
	for name, model := range models {
		n := new(atomic.Int64)
		made[name] = n
		for range 8 {
			callers.Go(func() {
				for ctx.Err() == nil {
					if _, err := p.NextID(ctx, model); err == nil {
						n.Add(1)
					}
				}
			})
		}
	}
	var lanes atomic.Int64
	for range 2 {
		others.Go(func() {
			for before := (scrape{}); ctx.Err() == nil; {
				s := gather(t, r)
				for name, v := range before {
					if strings.Contains(name, "_total") && s[name] < v {
						t.Errorf("%s went from %v to %v", name, v, s[name])
					}
				}
				lanes.Store(max(lanes.Load(), int64(s["lanes cached orders"])))
				before = s
			}
		})
	}
	others.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			wire.Shut.Store(i%4 == 3)
			select {
			case <-ctx.Done():
			case <-time.After(length / 20):
			}
		}
		wire.Shut.Store(false)
	})
	time.Sleep(length)
	testkit.Eventually(t, "a caller has waited, the worker ids of a table have changed, and there are ids of each", time.Minute, func() bool {
		for _, n := range made {
			if n.Load() < 200 {
				return false
			}
		}
		return (lanes.Load() > 1 || testing.Short()) && gather(t, r)["waits_total cached orders"] > 0
	})
	cancel()
	callers.Wait()
	others.Wait()
	testkit.Eventually(t, "the plugin recovers", time.Minute, func() bool { return p.Health() == nil })
	testkit.MustClose(t, p) // now nothing is missing
	s := gather(t, r)
	for name, n := range made {
		if got, least := s["ids_made_total "+name], float64(n.Load()); got < least || got > 1.01*least+100 { // callers whose context has ended got none
			t.Errorf("%s: callers got %d ids, the metric is %v", name, n.Load(), got)
		}
		t.Logf("%s: %d ids, %v counted, %v waits", name, n.Load(), s["ids_made_total "+name], s["waits_total "+name])
	}
}

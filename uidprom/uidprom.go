// Package uidprom exports the state of a uidplugin.Plugin as Prometheus metrics.
//
//	if err := db.Use(uidplugin.New(uidplugin.WithModels(&Order{}))); err != nil { ... }
//	prometheus.MustRegister(uidprom.NewCollector(db, nil))
//
// It is a separate module, so users of uidplugin do not need Prometheus. Its folder contains alerting rules
// (alerts.yml) and a Grafana dashboard (dashboard.json). With OpenTelemetry, use the bridge
// go.opentelemetry.io/contrib/bridges/prometheus.
//
// # Metrics
//
// Of the plugin:
//
//	uidplugin_healthy                     1 if Plugin.Health returns nil, 0 if not; 1 with uidplugin.WithLookupOnly
//	uidplugin_layout_remaining_seconds    until the layout ends
//
// Of the slot of the process, but not with uidplugin.WithWorkerID:
//
//	uidplugin_slot_id                     0 without a slot
//	uidplugin_slot_age_seconds            since this session of the slot began; absent without a slot
//	uidplugin_lease_remaining_seconds     until the lease ends unless it is renewed; absent without a slot
//	uidplugin_slot_renewals_total         statements that moved the end of the lease
//	uidplugin_slot_failures_total         failed attempts to renew the slot, or to do anything else with it
//	uidplugin_slot_failing_seconds        since the first of consecutive failures; 0 if the last attempt succeeded
//	uidplugin_slot_worker_ids             worker ids of the slot
//	uidplugin_sessions_total              sessions begun
//	uidplugin_slots_allocated_total       slots inserted
//	uidplugin_slots_reclaimed_total       slots reclaimed from former processes
//	uidplugin_slots_lost_total            slots reclaimed by another process
//	uidplugin_lost_commits_total          slots given up because the database lost commits
//	uidplugin_worker_ids_given            largest worker id given out, as far as the process knows
//	uidplugin_worker_ids_max              largest worker id of the layout
//
// Of each table and generator, by the labels table and generator:
//
//	uidplugin_ids_made_total              ids handed out, also to creates that failed afterwards
//	uidplugin_waits_total                 calls that waited; see uidplugin.TableStats.Waits
//	uidplugin_lead_seconds                how far the next id is ahead of the clock
//	uidplugin_lanes                       worker ids used together; 0 if the ids are not of the layout
//
// Of each followed table, by the label table, if this process follows it or has had a create refused:
//
//	uidplugin_too_late_total              creates of this process that were refused as too late
//	uidplugin_followers                   loops of follow.Rows, and consumers that work, in this process
//	uidplugin_follow_delay_seconds        how far behind the clock followers may read; absent without followers
//
// Of each consumer whose rows this process handles, by the labels table and consumer:
//
//	uidplugin_consumer_stuck              1 if a row fails again and again, so later rows wait for it; otherwise 0
//	uidplugin_consumer_handled_total      rows that the consumer has handled in this process
//	uidplugin_consumer_delay_seconds      how far the handled rows are behind the clock; absent until it is known
//
// A failed create has used up its ids, and a retry with new structs takes new ids. So during an outage
// uidplugin_ids_made_total grows although no rows are inserted. It does not count numbers left free for other programs,
// such as the gaps of an AUTO_INCREMENT key.
//
// The lease of an idle process ends, so its remaining seconds become negative. This is normal while
// uidplugin_slot_failing_seconds is 0. We measure remaining seconds by the plugin's clock instead of the Prometheus
// server's, because a lease lasts for seconds, and the two clocks may also differ by seconds.
package uidprom

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/uidplugin/uidplugin"
	"gorm.io/gorm"
)

// NewCollector returns a collector of the metrics of a handle's plugin. Call it after db.Use. labels are added to each
// metric; nil means none. If a label is named table, generator or consumer, or Prometheus refuses its name, the
// collector cannot be registered.
//
// Several plugins in one process, for example one per shard or tenant, each need a collector with different labels.
// Pass the labels here or to [prometheus.WrapRegistererWith]. Plugins with the same handle in
// uidplugin.WithRegistry share a slot, and each reports it, so take the maximum of its metrics, not the sum.
//
// A scrape does not send statements, nor wait for any, unless a method of the application's generator does. The
// collector is safe for concurrent use. Without the plugin in the handle, the only metric is uidplugin_healthy, 0.
// After Close the counters remain, and uidplugin_healthy is 0. Unregister the collector if the plugin is closed
// permanently while the process continues. There are 16 series, 4 for each table and generator, 3 for each followed
// table, and 3 for each consumer whose rows the process handles.
func NewCollector(db *gorm.DB, labels prometheus.Labels) prometheus.Collector {
	c := &collector{db: db, plugin: uidplugin.From(db), descs: map[string]*prometheus.Desc{}}
	c.descs[healthy] = describe(healthy, "1 if Plugin.Health returns nil, 0 if it returns an error.", nil, labels)
	for _, m := range slices.Concat(ofLayout, ofSlot, ofLease) {
		c.descs[m.name] = describe(m.name, m.help, nil, labels)
	}
	for _, m := range ofTable {
		c.descs[m.name] = describe(m.name, m.help, []string{"table", "generator"}, labels)
	}
	c.describeFollowed(labels) // wing: follow
	return c
}

const healthy = "healthy"

func describe(name, help string, variable []string, labels prometheus.Labels) *prometheus.Desc {
	return prometheus.NewDesc("uidplugin_"+name, help, variable, labels)
}

type metric[T any] struct {
	name, help string
	kind       prometheus.ValueType
	value      func(*T) float64
}

const (
	counter = prometheus.CounterValue
	gauge   = prometheus.GaugeValue
)

var (
	// ofLayout metrics exist if the plugin is in use.
	ofLayout = []metric[uidplugin.Stats]{
		{"layout_remaining_seconds", "Time until the layout ends; after that no ids can be made.", gauge,
			func(s *uidplugin.Stats) float64 { return s.Expires.Sub(s.Time).Seconds() }},
	}

	// ofSlot metrics exist if the worker ids belong to a slot.
	ofSlot = []metric[uidplugin.Stats]{
		{"slot_id", "ID of the slot of this process; 0 if it has none now.", gauge,
			func(s *uidplugin.Stats) float64 { return float64(s.Slot.ID) }},
		{"slot_renewals_total", "Statements that extended the lease of the slot.", counter,
			func(s *uidplugin.Stats) float64 { return float64(s.Slot.Renewals) }},
		{"slot_failures_total", "Failed attempts to renew the slot, or to do anything else with it.", counter,
			func(s *uidplugin.Stats) float64 { return float64(s.Slot.Failures) }},
		{"slot_failing_seconds", "Time since the first of consecutive failures to renew the slot; 0 if the last attempt " +
			"succeeded.", gauge, failing},
		{"slot_worker_ids", "Worker ids of the slot.", gauge,
			func(s *uidplugin.Stats) float64 { return float64(s.Slot.WorkerIDs) }},
		{"sessions_total", "Sessions begun.", counter,
			func(s *uidplugin.Stats) float64 { return float64(s.Slot.Sessions) }},
		{"slots_allocated_total", "Slots inserted.", counter,
			func(s *uidplugin.Stats) float64 { return float64(s.Slot.Allocated) }},
		{"slots_reclaimed_total", "Slots reclaimed from former processes.", counter,
			func(s *uidplugin.Stats) float64 { return float64(s.Slot.Reclaimed) }},
		{"slots_lost_total", "Slots reclaimed by another process.", counter,
			func(s *uidplugin.Stats) float64 { return float64(s.Slot.Lost) }},
		{"lost_commits_total", "Slots given up because the database lost commits.", counter,
			func(s *uidplugin.Stats) float64 { return float64(s.Slot.LostCommits) }},
		{"worker_ids_given", "Largest worker id given out, as far as this process knows.", gauge,
			func(s *uidplugin.Stats) float64 { return float64(s.Slot.Given) }},
		{"worker_ids_max", "Largest worker id of the layout.", gauge,
			func(s *uidplugin.Stats) float64 { return float64(s.Layout.MaxWorkerID()) }},
	}

	// ofLease metrics exist while the process has a slot.
	ofLease = []metric[uidplugin.Stats]{
		{"slot_age_seconds", "Time since this session of the slot began.", gauge,
			func(s *uidplugin.Stats) float64 { return s.Time.Sub(s.Slot.From).Seconds() }},
		{"lease_remaining_seconds", "Time until the lease of the slot ends; negative after the end.", gauge,
			func(s *uidplugin.Stats) float64 { return s.Slot.Until.Sub(s.Time).Seconds() }},
	}

	ofTable = []metric[uidplugin.TableStats]{
		{"ids_made_total", "Ids handed out, also to creates that failed afterwards.", counter,
			func(t *uidplugin.TableStats) float64 { return float64(t.Made) }},
		{"waits_total", "Calls that waited for an id.", counter,
			func(t *uidplugin.TableStats) float64 { return float64(t.Waits) }},
		{"lead_seconds", "How far the next id is ahead of the clock.", gauge,
			func(t *uidplugin.TableStats) float64 { return t.Lead.Seconds() }},
		{"lanes", "Worker ids that the table uses together.", gauge,
			func(t *uidplugin.TableStats) float64 { return float64(len(t.WorkerIDs)) }},
	}
)

func failing(s *uidplugin.Stats) float64 {
	if s.Slot.LastError == nil {
		return 0
	}
	return max(s.Time.Sub(s.Slot.Since).Seconds(), 0)
}

type collector struct {
	db     *gorm.DB
	plugin *uidplugin.Plugin
	descs  map[string]*prometheus.Desc // by metric name; immutable
}

// Describe implements [prometheus.Collector].
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		to <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *collector) Collect(to chan<- prometheus.Metric) {
	up := 0.0
	if c.plugin.Health() == nil {
		up = 1
	}
	to <- prometheus.MustNewConstMetric(c.descs[healthy], gauge, up)
	s := c.plugin.Stats()
	if s.Time.IsZero() {
		return // the plugin is not in use
	}
	send(c, to, ofLayout, &s)
	if s.Space != "" {
		send(c, to, ofSlot, &s)
		if s.Slot.ID != 0 {
			send(c, to, ofLease, &s)
		}
	}
	for _, t := range s.Tables {
		send(c, to, ofTable, &t, valid(t.Table), t.Generator)
	}
	c.collectFollowed(to) // wing: follow
}

// valid returns a name as a valid label, which must be UTF-8. It escapes invalid bytes, so that different names stay
// different: two series with equal labels would make every scrape of the process fail.
func valid(name string) string {
	if utf8.ValidString(name) {
		return name
	}
	var out strings.Builder
	for i, r := range name {
		if r == utf8.RuneError && !strings.HasPrefix(name[i:], "\uFFFD") {
			fmt.Fprintf(&out, `\x%02x`, name[i])
		} else {
			out.WriteRune(r)
		}
	}
	return out.String()
}

func send[T any](c *collector, out chan<- prometheus.Metric, metrics []metric[T], values *T, labels ...string) {
	for _, m := range metrics {
		out <- prometheus.MustNewConstMetric(c.descs[m.name], m.kind, m.value(values), labels...)
	}
}

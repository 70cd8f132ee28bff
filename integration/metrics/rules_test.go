// Package metrics_test passes the files of uidprom to the programs that read them: the alerting rules to Prometheus,
// the dashboard to its parser, the metrics to OpenTelemetry's bridge. It is a module of its own, because it requires
// these programs.
package metrics_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/template"
	"github.com/uidplugin/uidplugin/internal/testkit"

	"github.com/uidplugin/uidplugin/uidprom"
)

const folder = "../../uidprom/"

// rules returns the rules of alerts.yml, by their names.
func rules(t *testing.T) map[string]rulefmt.Rule {
	t.Helper()
	all, errs := rulefmt.ParseFile(folder+"alerts.yml", false, model.LegacyValidation)
	for _, err := range errs {
		t.Error(err)
	}
	byName := map[string]rulefmt.Rule{}
	for _, g := range all.Groups {
		for _, r := range g.Rules {
			byName[r.Alert] = r
		}
	}
	return byName
}

// described returns the names of the metrics of the collector.
func described(t *testing.T) map[string]bool {
	t.Helper()
	to := make(chan *prometheus.Desc)
	go func() {
		uidprom.NewCollector(nil, nil).Describe(to)
		close(to)
	}()
	names := map[string]bool{}
	for d := range to {
		names[regexp.MustCompile(`fqName: "(\w+)"`).FindStringSubmatch(d.String())[1]] = true
	}
	if len(names) < 15 {
		t.Fatalf("metrics %v", names)
	}
	return names
}

// metricsOf returns the names of the metrics in an expression, and reports those that do not exist.
func metricsOf(t *testing.T, where, expression string, exist map[string]bool) (names []string) {
	t.Helper()
	parsed, err := parser.ParseExpr(expression)
	if err != nil {
		t.Errorf("%s: %v", where, err)
		return nil
	}
	parser.Inspect(parsed, func(n parser.Node, _ []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok {
			names = append(names, v.Name)
			if !exist[v.Name] {
				t.Errorf("%s: there is no metric %q", where, v.Name)
			}
		}
		return nil
	})
	if len(names) == 0 && expression != "vector(0)" {
		t.Errorf("%s: no metric", where)
	}
	return names
}

func TestAlerts_NameMetricsThatExistAndSayWhatToDo(t *testing.T) {
	t.Parallel()

	exist := described(t)
	for name, r := range rules(t) {
		metricsOf(t, name, r.Expr, exist)
		if r.Annotations["summary"] == "" || len(r.Annotations["description"]) < 100 || r.Labels["severity"] == "" {
			t.Errorf("%s has no summary, description or severity: %v %v", name, r.Annotations, r.Labels)
		}
	}
}

// well are the series of a healthy process. Steps are of 15 s, and the last is at an hour.
var well = map[string]string{
	`uidplugin_healthy`:                  `1x240`,
	`uidplugin_slot_failing_seconds`:     `0x240`,
	`uidplugin_lease_remaining_seconds`:  `8x240`,
	`uidplugin_layout_remaining_seconds`: `1000000000-15x240`,
	`uidplugin_lost_commits_total`:       `0x240`,
	`uidplugin_slots_lost_total`:         `0x240`,
	`uidplugin_worker_ids_given`:         `1000x240`,
	`uidplugin_worker_ids_max`:           `262143x240`,
	`uidplugin_ids_made_total`:           `0+100x240`,
	`uidplugin_waits_total`:              `0+1x240`,
	`uidplugin_follow_delay_seconds`:     `6x240`,
	`uidplugin_consumer_delay_seconds`:   `8x240`,
	`uidplugin_consumer_stuck`:           `0x200 1 0x39`,
}

// outage are the series that differ while the database is unreachable for five minutes, and clients retry.
var outage = map[string]string{
	`uidplugin_healthy`:                 `1x220 0x20`,
	`uidplugin_slot_failing_seconds`:    `0x220 12+15x19`,
	`uidplugin_lease_remaining_seconds`: `8x220 -5-15x19`,
	`uidplugin_follow_delay_seconds`:    `6x220 12+15x19`,
	`uidplugin_consumer_delay_seconds`:  `8x220 114+15x19`,
}

// with returns the series of a process that is well, but for some.
func with(others map[string]string) map[string]string {
	series := maps.Clone(well)
	maps.Copy(series, others)
	return series
}

// Each alert holds for the series that it is for, and not for those of a process that is well.
func TestAlerts_HoldWhenTheyShould(t *testing.T) {
	t.Parallel()

	idle := map[string]string{`uidplugin_lease_remaining_seconds`: `-100-15x240`, `uidplugin_ids_made_total`: `7x240`}
	ill := map[string]map[string]string{
		"UidpluginUnhealthy": {`uidplugin_healthy`: `1x200 0x40`},
		"UidpluginLeaseNotRenewed": {`uidplugin_slot_failing_seconds`: `0x234 5+15x6`,
			`uidplugin_lease_remaining_seconds`: `400x234 395-15x6`, `uidplugin_healthy`: `1x234 0x6`},
		"UidpluginLeaseEndsSoon":         outage,
		"UidpluginLeaseEnded":            {`uidplugin_lease_remaining_seconds`: `-1-15x240`},
		"UidpluginLayoutEndsWithinAYear": {`uidplugin_layout_remaining_seconds`: `31536000-15x240`},
		"UidpluginLostCommits":           {`uidplugin_lost_commits_total`: `0x230 1x10`},
		"UidpluginSlotLost":              {`uidplugin_slots_lost_total`: `0x10 1x230`},
		"UidpluginWorkerIDsNearlyUsedUp": {`uidplugin_worker_ids_given`: `210000x240`},
		"UidpluginFollowersBehind":       {`uidplugin_follow_delay_seconds`: `6x200 1+15x40`},
		"UidpluginCallersWait":           {`uidplugin_waits_total`: `0+30x240`},
		"UidpluginConsumerStuck":         {`uidplugin_consumer_stuck`: `0x200 1x40`, `uidplugin_consumer_delay_seconds`: `8x200 9+15x40`},
		"UidpluginConsumerBehind":        {`uidplugin_consumer_delay_seconds`: `8x200 9+15x40`},
	}
	alerts := rules(t)
	if names := slices.Sorted(maps.Keys(ill)); !slices.Equal(names, slices.Sorted(maps.Keys(alerts))) {
		t.Fatalf("the alerts are %v, and those with a test %v", slices.Sorted(maps.Keys(alerts)), names)
	}
	for name, r := range alerts {
		for _, tt := range []struct {
			what   string
			series map[string]string
			holds  string // the alert
		}{{"well", nil, ""}, {"idle", idle, ""}, {"ill", ill[name], name}, {"in an outage", outage, "UidpluginLeaseEndsSoon"}} {
			vector := query(t, r.Expr, with(tt.series))
			if want := tt.holds == name; (len(vector) > 0) != want {
				t.Errorf("%s of a process that is %s: %v", name, tt.what, vector)
			}
			for _, sample := range vector {
				checkText(t, r, sample)
			}
			if len(vector) > 1 {
				t.Errorf("%s of two processes that are %s is not one alert: %v", name, tt.what, vector)
			}
		}
	}
}

// checkText checks what an alert tells: of which job and which collector, and how many processes.
func checkText(t *testing.T, r rulefmt.Rule, sample promql.Sample) {
	t.Helper()
	labels := sample.Metric.Map()
	if labels["job"] != "shop" || labels["shard"] != "eu" || labels["instance"] != "" || labels["pod"] != "" {
		t.Errorf("%s has the labels %v: of the job and the collector, and not of one process, are wanted", r.Alert, labels)
	}
	text, err := template.NewTemplateExpander(context.Background(), "{{$labels := .Labels}}{{$value := .Value}}"+
		r.Annotations["summary"], r.Alert, template.AlertTemplateData(labels, nil, "", sample), 0, nil, nil, nil).Expand()
	if err != nil || !strings.Contains(text, "shop") || strings.Contains(text, "-") {
		t.Errorf("%s says %q, %v", r.Alert, text, err)
	}
	if strings.HasPrefix(text, "shop: ") && !strings.HasPrefix(text, "shop: 2 of its processes ") {
		t.Errorf("%s of two processes says %q", r.Alert, text)
	}
}

// query returns the result of an expression at the end of series, which two processes of a job have. A label of the
// collector tells two plugins of each process apart: the other one is idle.
func query(t *testing.T, expression string, series map[string]string) promql.Vector {
	t.Helper()
	load := "load 15s\n"
	for _, process := range []string{`instance="a", pod="shop-1"`, `instance="b", pod="shop-2"`} {
		for name, values := range series {
			load += fmt.Sprintf("  %s{job=\"shop\", shard=\"eu\", %s} %s\n", name, process, values)
		}
		load += fmt.Sprintf("  uidplugin_lease_remaining_seconds{job=\"shop\", shard=\"us\", %s} -100-15x240\n"+
			"  uidplugin_slot_failing_seconds{job=\"shop\", shard=\"us\", %[1]s} 0x240\n", process)
	}
	storage := promqltest.LoadedStorage(t, load)
	defer storage.Close()
	engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
	query, err := engine.NewInstantQuery(context.Background(), storage, nil, expression, time.Unix(0, 0).Add(time.Hour))
	testkit.Must(t, err)
	defer query.Close()
	vector, err := query.Exec(context.Background()).Vector()
	testkit.Must(t, err)
	return vector
}

// A dashboard has the parts of Grafana's JSON that the test needs.
type dashboard struct {
	Title      string
	Templating struct{ List []struct{ Name, Type string } }
	Panels     []struct {
		ID          int
		Type, Title string
		GridPos     struct{ H, W, X, Y int }
		Targets     []struct{ RefID, Expr string }
	}
}

func TestDashboard_ShowsEveryMetricAndNoOther(t *testing.T) {
	t.Parallel()

	text, err := os.ReadFile(folder + "dashboard.json")
	testkit.Must(t, err)
	var d dashboard
	testkit.Must(t, json.Unmarshal(text, &d))
	exist, shown, ids := described(t), map[string]bool{}, map[int]bool{}
	variables := strings.NewReplacer("$__rate_interval", "1m", "$job", ".*", "$instance", ".*")
	covered := map[[2]int]string{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.Title == "" || (p.Type == "row") != (len(p.Targets) == 0) {
			t.Errorf("the panel %+v", p)
		}
		ids[p.ID] = true
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if at[0] >= 24 || covered[at] != "" {
					t.Fatalf("the panel %s lies on %s, or outside of the grid", p.Title, covered[at])
				}
				covered[at] = p.Title
			}
		}
		for _, target := range p.Targets {
			expression := variables.Replace(target.Expr)
			if strings.Contains(expression, "$") {
				t.Errorf("%s has a variable that is not known", expression)
			}
			if p.Type == "stat" && len(query(t, expression, with(outage))) != 1 {
				t.Errorf("%s shows nothing in an outage", p.Title)
			}
			for _, name := range metricsOf(t, p.Title, expression, exist) {
				shown[name] = true
			}
		}
	}
	for name := range exist {
		if !shown[name] {
			t.Errorf("no panel shows %s", name)
		}
	}
	if len(d.Templating.List) != 3 || d.Title == "" {
		t.Errorf("%+v", d.Templating)
	}
}

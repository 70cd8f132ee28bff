package plugins_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/plugin/opentelemetry/tracing"
	gormprometheus "gorm.io/plugin/prometheus"
)

// work runs statements of all kinds. With preset the rows have ids, as is necessary without the plugin.
func work(t *testing.T, db *gorm.DB, preset bool) []Customer {
	t.Helper()
	var last int64
	id := func() int64 {
		if !preset {
			return 0
		}
		last++
		return last
	}
	m := map[string]any{"name": "map"}
	if preset {
		m["id"] = id()
	}
	one := Customer{ID: id(), Name: "one", Orders: []Order{{ID: uidplugin.ID(id())}, {ID: uidplugin.ID(id())}}}
	several := []Customer{{ID: id(), Name: "a"}, {ID: id(), Name: "b"}}
	must(t, db.Model(&Customer{}).Create(m).Error)
	must(t, db.Create(&one).Error)
	must(t, db.Create(&several).Error)
	must(t, db.Clauses(clause.OnConflict{UpdateAll: true}).Create(&Customer{ID: one.ID, Name: "upserted"}).Error)
	must(t, db.Transaction(func(tx *gorm.DB) error { return tx.Create(&Customer{ID: id()}).Error }))
	must(t, db.Model(&one).Update("name", "updated").Error)
	must(t, db.Save(&several[1]).Error)
	must(t, db.Preload("Orders").First(&Customer{}, "id = ?", one.ID).Error)
	must(t, db.Exec("UPDATE customers SET tenant_id = ?", "t").Error)
	must(t, db.Delete(&several[0]).Error)
	return []Customer{one, several[1]}
}

// spans returns the OpenTelemetry span of each statement: name, status, statement, rows.
func spans(recorder *tracetest.SpanRecorder) []string {
	var all []string
	for _, span := range recorder.Ended() {
		text := []string{span.Name(), span.Status().Code.String()}
		for _, a := range span.Attributes() {
			text = append(text, string(a.Key)+"="+reported.ReplaceAllString(a.Value.Emit(), ""))
		}
		slices.Sort(text[2:])
		all = append(all, strings.Join(text, " "))
	}
	return all
}

// reported matches the clause, or the assignment, that the plugin adds to an upsert so that the database returns the id
// of the existing row.
var reported = regexp.MustCompile(" RETURNING `id`$|`\\w+`=IF\\(LAST_INSERT_ID\\(.*?\\)=0,VALUES\\(`\\w+`\\),VALUES\\(`\\w+`\\)\\),|,`\\w+`=IF\\(LAST_INSERT_ID\\(.*?\\)=0,`\\w+`,`\\w+`\\)")

// tracer returns an OpenTelemetry plugin and where its spans are.
func tracer() (gorm.Plugin, *tracetest.SpanRecorder) {
	recorder := tracetest.NewSpanRecorder()
	provider := trace.NewTracerProvider(trace.WithSpanProcessor(recorder))
	return tracing.NewPlugin(tracing.WithTracerProvider(provider), tracing.WithoutQueryVariables(), tracing.WithoutMetrics()), recorder
}

func TestObserve_OpenTelemetrySpans(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, e testkit.Engine) {
		plain := migrated(t, e, shop...).Open(t, nil)
		other, recorder := tracer()
		must(t, plain.Use(other))
		work(t, plain, true)
		want := spans(recorder)

		ordered(t, func(t *testing.T, use func(*gorm.DB, gorm.Plugin, gorm.Plugin)) {
			d := migrated(t, e, shop...)
			db := d.Open(t, nil)
			other, recorder := tracer()
			use(db, plugin(t), other)
			created := work(t, db, false)
			got := spans(recorder)
			if !slices.Equal(got, want) {
				t.Errorf("spans\n\t%s\nwithout the plugin\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
			}
			if n := len(recorder.Started()); n != len(got) {
				t.Errorf("%d spans began and %d ended", n, len(got))
			}
			for _, c := range created {
				located(t, db, c.ID, "customers")
			}
			oneWorkerEach(t, d, "customers", "orders")

			// An id that cannot be made is an error of the span, too.
			testkit.MustClose(t, uidplugin.From(db))
			testkit.IsError(t, db.Create(&Customer{}).Error, uidplugin.ErrClosed)
			ended := recorder.Ended()
			if last := ended[len(ended)-1]; len(ended) != len(want)+1 || last.Status().Code != codes.Error || !strings.Contains(last.Status().Description, "closed") {
				t.Errorf("%d spans, the last is %s, %+v", len(ended), last.Name(), last.Status())
			}
		})
	})
}

// Not in parallel: the meter provider is global.
func TestObserve_OpenTelemetryMetrics(t *testing.T) {
	for _, e := range testkit.Engines()[:1] { // SQLite
		ordered(t, func(t *testing.T, use func(*gorm.DB, gorm.Plugin, gorm.Plugin)) {
			reader := metric.NewManualReader()
			before := otel.GetMeterProvider()
			otel.SetMeterProvider(metric.NewMeterProvider(metric.WithReader(reader)))
			defer otel.SetMeterProvider(before)
			db := migrated(t, e, shop...).Open(t, nil)
			use(db, plugin(t), tracing.NewPlugin())
			work(t, db, false)
			var collected metricdata.ResourceMetrics
			must(t, reader.Collect(context.Background(), &collected))
			var names []string
			for _, scope := range collected.ScopeMetrics {
				for _, m := range scope.Metrics {
					names = append(names, m.Name)
				}
			}
			if !slices.Contains(names, "go.sql.connections_open") {
				t.Errorf("metrics %v", names)
			}
		})
	}
}

// serial numbers the databases of GORM's Prometheus plugin, because its registry is that of the process.
var serial atomic.Int64

// interval is the shortest that GORM's Prometheus plugin knows.
const interval = 1

func TestObserve_Prometheus(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, e testkit.Engine) {
		ordered(t, func(t *testing.T, use func(*gorm.DB, gorm.Plugin, gorm.Plugin)) {
			t.Parallel()
			name := fmt.Sprintf("db%d", serial.Add(1))
			d := migrated(t, e, shop...)
			db := d.Open(t, nil)
			config := gormprometheus.Config{DBName: name, RefreshInterval: interval}
			status := ""
			if e.Name == "mariadb" {
				status = "of_" + name + "_"
				config.MetricsCollector = []gormprometheus.MetricsCollector{&gormprometheus.MySQL{Prefix: status, Interval: interval, VariableNames: []string{"Threads_running"}}}
			}
			use(db, plugin(t), gormprometheus.New(config))
			for _, c := range work(t, db, false) {
				located(t, db, c.ID, "customers")
			}
			oneWorkerEach(t, d, "customers", "orders")

			for range 100 { // the plugin refreshes by the clock
				if gauge(t, "gorm_dbstats_open_connections", name) > 0 && (status == "" || gauge(t, status+"Threads_running", name) > 0) {
					return
				}
				time.Sleep(interval * time.Second / 20)
			}
			t.Error("no metrics")
		})
	})
}

// gauge returns the value of a database's gauge in the process's registry; 0 if there is none.
func gauge(t *testing.T, name, database string) float64 {
	t.Helper()
	families, err := prometheus.DefaultGatherer.Gather()
	must(t, err)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, label := range m.GetLabel() {
				if label.GetName() == "db_name" && label.GetValue() == database {
					return m.GetGauge().GetValue()
				}
			}
		}
	}
	return 0
}

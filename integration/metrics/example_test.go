package metrics_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/glebarez/sqlite"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/uidprom"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"gorm.io/gorm"
)

type Order struct {
	ID    uidplugin.ID `gorm:"primaryKey;uid"`
	Total int
}

// With OpenTelemetry, the bridge passes the metrics of a Prometheus registry to any reader. A program uses a
// metric.NewPeriodicReader with its exporter instead of the manual reader, which is here to show what comes out.
func Example_openTelemetry() {
	dir, err := os.MkdirTemp("", "metrics")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	db, err := gorm.Open(sqlite.Open(filepath.Join(dir, "shop.db")), &gorm.Config{})
	if err != nil {
		panic(err)
	}
	pool, err := db.DB()
	if err != nil {
		panic(err)
	}
	defer pool.Close()
	p := uidplugin.New(uidplugin.WithModels(&Order{}), uidplugin.WithLogger(slog.New(slog.DiscardHandler)))
	if err := db.Use(p); err != nil {
		panic(err)
	}
	ctx := context.Background()
	defer p.Close(ctx)
	if err := uidplugin.From(db).AutoMigrate(&Order{}); err != nil {
		panic(err)
	}
	if err := db.Create(&[]Order{{Total: 1}, {Total: 2}, {Total: 3}}).Error; err != nil {
		panic(err)
	}

	registry := prometheus.NewRegistry()
	registry.MustRegister(uidprom.NewCollector(db, nil))
	reader := metric.NewManualReader(metric.WithProducer(bridge.NewMetricProducer(bridge.WithGatherer(registry))))
	provider := metric.NewMeterProvider(metric.WithReader(reader))
	defer provider.Shutdown(ctx)

	var collected metricdata.ResourceMetrics
	if err := reader.Collect(ctx, &collected); err != nil {
		panic(err)
	}
	for _, scope := range collected.ScopeMetrics {
		for _, m := range scope.Metrics {
			if sum, ok := m.Data.(metricdata.Sum[float64]); ok && m.Name == "uidplugin_ids_made_total" {
				point := sum.DataPoints[0]
				table, _ := point.Attributes.Value("table")
				fmt.Println(m.Name, table.AsString(), point.Value, sum.IsMonotonic)
			}
		}
	}
	// Output: uidplugin_ids_made_total orders 3 true
}

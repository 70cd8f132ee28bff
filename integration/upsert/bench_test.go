package upsert_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// BenchmarkUpsert100Rows compares an upsert of 100 rows with the same of GORM alone, which gets its keys from a counter.
// The two take turns. After it the structs of GORM alone have keys that no row has, if there were conflicts.
//
//	go test -run '^$' -bench Upsert -benchtime 1000x -count 10 ./integration/upsert/
func BenchmarkUpsert100Rows(b *testing.B) {
	for _, e := range testkit.Engines() {
		for clause := range byName {
			for _, there := range []int{0, 10, 100} {
				b.Run(fmt.Sprintf("%s/%s/%d exist", e.Name, clause, there), func(b *testing.B) { benchmarkUpsert(b, e, clause, there) })
			}
		}
	}
}

// benchmarkUpsert upserts b.N batches of 100 rows each way. The first of each batch exist.
func benchmarkUpsert(b *testing.B, e testkit.Engine, clause string, there int) {
	e.Need(b)
	d := e.New(b)
	with, without := d.Open(b, nil), d.Open(b, nil)
	p := uidplugin.New(harness.Quiet, uidplugin.WithModels(&UniqueB{}))
	testkit.Must(b, with.Use(p))
	defer func() { _ = p.Close(context.Background()) }()
	testkit.Must(b, with.AutoMigrate(&UniqueB{}))
	rows, names, last := make([]UniqueB, 100), 0, int64(0)
	for i := range rows {
		rows[i].Name = fmt.Sprint("old ", i)
	}
	testkit.Must(b, with.Create(&rows).Error)
	var took [2]time.Duration
	for b.Loop() {
		for way, db := range [...]*gorm.DB{with, without} {
			for i := range rows {
				rows[i] = UniqueB{Name: fmt.Sprint("old ", i), Value: names}
				if i >= there {
					rows[i].Name = fmt.Sprint("new ", names)
				}
				names++
				if way == 1 {
					last++
					rows[i].ID = last
				}
			}
			begun := time.Now()
			testkit.Must(b, db.Clauses(byName[clause]).Create(&rows).Error)
			took[way] += time.Since(begun)
		}
	}
	b.ReportMetric(took[0].Seconds()/float64(b.N)*1e6, "us")
	b.ReportMetric(took[1].Seconds()/float64(b.N)*1e6, "us-gorm")
	b.ReportMetric(took[0].Seconds()/took[1].Seconds(), "of-gorm")
}

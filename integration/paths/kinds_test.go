package paths_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/segment"
	"gorm.io/gorm"
)

// Models whose keys come from each generator.
type (
	OfCached struct {
		ID int64 `gorm:"primaryKey;autoIncrement:false;uid:cached"`
	}
	OfSnowflake struct {
		ID int64 `gorm:"primaryKey;autoIncrement:false;uid:snowflake"`
	}
	OfPaired struct {
		ID int64 `gorm:"primaryKey;autoIncrement:false;uid:paired"`
	}
	OfSegment struct {
		ID int64 `gorm:"primaryKey;autoIncrement:false;uid:segment"`
	}
	OfMine struct {
		ID int64 `gorm:"primaryKey;autoIncrement:false;uid:mine"`
	}
	OfSource struct {
		ID int64 `gorm:"primaryKey;autoIncrement:false;uid:source"`
	}
)

// All generators, with the plugin, on every engine: ids of two processes are unique, and those of one goroutine
// ascend if that is promised. Each resolves to its table, or to an error if its generator cannot be located. A
// context that has ended creates no row, and neither does a create after Close. Tests of generator check that no
// goroutine remains.
func TestGenerators_KeepTheSameLaws(t *testing.T) {
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		var base int64
		var mu sync.Mutex
		options := []uidplugin.Option{
			uidplugin.WithSegments(segment.Config{Step: 50}),
			uidplugin.WithGenerator("mine", func(c generator.Config) (generator.Renewable, error) {
				return generator.NewSnowflake(generator.SnowflakeConfig{Layout: c.Layout, Lease: c.Leases[0], OnLow: c.OnLow, Now: c.Now, RandomStart: 10})
			}),
			uidplugin.WithSource("source", func(context.Context, *gorm.DB, string) (generator.Generator, error) {
				return generator.NewBuffered(generator.BufferedConfig{Size: 100, Source: func(context.Context, int64) (generator.Run, error) {
					mu.Lock()
					defer mu.Unlock()
					base += 30
					return generator.Run{First: base, N: 30}, nil
				}})
			}),
		}
		db := d.Open(t, nil)
		testkit.Must(t, db.AutoMigrate(&OfCached{}, &OfSnowflake{}, &OfPaired{}, &OfSegment{}, &OfMine{}, &OfSource{}))
		for _, k := range []struct {
			name     string
			model    func() any
			id       func(any) int64
			table    string
			ascends  bool
			decodes  bool
			ofLayout bool
		}{
			{"cached", func() any { return &OfCached{} }, func(m any) int64 { return m.(*OfCached).ID }, "of_cacheds", true, true, true},
			{"snowflake", func() any { return &OfSnowflake{} }, func(m any) int64 { return m.(*OfSnowflake).ID }, "of_snowflakes", true, true, true},
			{"paired", func() any { return &OfPaired{} }, func(m any) int64 { return m.(*OfPaired).ID }, "of_paireds", false, true, true},
			{"segment", func() any { return &OfSegment{} }, func(m any) int64 { return m.(*OfSegment).ID }, "of_segments", true, false, false},
			{"mine", func() any { return &OfMine{} }, func(m any) int64 { return m.(*OfMine).ID }, "of_mines", true, true, true},
			{"source", func() any { return &OfSource{} }, func(m any) int64 { return m.(*OfSource).ID }, "of_sources", true, false, false},
		} {
			t.Run(k.name, func(t *testing.T) {
				all := testkit.NewLedger(t)
				for process := range 2 {
					handle, err := d.Connect(nil)
					testkit.Must(t, err)
					p := uidplugin.New(append(options, harness.Quiet)...)
					testkit.Must(t, handle.Use(p))
					var group sync.WaitGroup
					for range 4 {
						group.Go(func() {
							last := int64(0)
							for range 60 {
								m := k.model()
								if err := handle.Create(m).Error; err != nil {
									t.Error(err)
									return
								}
								id := k.id(m)
								all.Add(fmt.Sprint("process ", process), id)
								if k.ascends && id <= last {
									t.Errorf("%d after %d", id, last)
								}
								last = id
							}
						})
					}
					group.Wait()
					m := k.model()
					testkit.Must(t, handle.Create(m).Error)
					l, err := p.Locate(t.Context(), uidplugin.ID(k.id(m)))
					if k.decodes && (err != nil || l.Table != k.table) || !k.decodes && !errors.Is(err, uidplugin.ErrNotDecodable) {
						t.Errorf("Locate(%d): %+v, %v", k.id(m), l, err)
					}
					if rows := int64(process+1) * 241; harness.Count(t, handle, k.table) != rows {
						t.Errorf("%d rows, want %d", harness.Count(t, handle, k.table), rows)
					}
					ended, cancel := context.WithCancel(t.Context())
					cancel()
					if err := handle.WithContext(ended).Create(k.model()).Error; err == nil {
						t.Error("a row for a context that has ended")
					}
					harness.Close(t, p)
					testkit.IsError(t, handle.Create(k.model()).Error, uidplugin.ErrClosed)
					testkit.Must(t, testkit.Close(handle))
				}
			})
		}
	})
}

package uidplugin_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/segment"
	"gorm.io/gorm"
)

type zrow struct {
	ID int64 `gorm:"primaryKey;autoIncrement:false;uid:paired"`
}

// A process takes two worker ids over that its predecessor had.
func TestPairedEndToEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	for try := range 4 {
		db := file(t, path, &gorm.Config{})
		began, offset := time.Now(), time.Duration(try)*time.Hour
		p := uidplugin.New(uidplugin.WithLogger(nil), uidplugin.WithSpares(0), uidplugin.WithClock(func() time.Time { return began.Add(time.Since(began) + offset) }))
		must(t, db.Use(p))
		if try == 0 {
			migrate(t, db, &zrow{})
		}
		_, err := p.NextID(t.Context(), &zrow{})
		must(t, err)
		seen := map[int64]bool{}
		workers := map[int64]int{}
		first := int64(0)
		for end := time.Now().Add(6500 * time.Millisecond); time.Now().Before(end); {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond) // requests do not wait for ever
			id, err := p.NextID(ctx, &zrow{})
			cancel()
			if errors.Is(err, context.DeadlineExceeded) {
				continue
			}
			must(t, err)
			parts, _ := p.Decode(id)
			if first == 0 {
				first = parts.WorkerID
			}
			workers[parts.WorkerID]++
			if seen[id] {
				t.Fatalf("try %d: twice: %d, %+v; first %d, %v", try, id, parts, first, workers)
			}
			seen[id] = true
		}
		t.Log(try, "first", first, workers)
		must(t, p.Close(t.Context()))
	}
}

func TestLocateBackup(t *testing.T) {
	db := open(t, uidplugin.WithWorkerID(3), uidplugin.WithDefaultGenerator(uidplugin.Paired))
	p := uidplugin.From(db)
	for range 20000 {
		id, err := p.NextID(t.Context(), &zrow{})
		must(t, err)
		if _, err := p.Locate(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
}

type zmine struct {
	ID int64 `gorm:"primaryKey;autoIncrement:false;uid:mine"`
}

// A factory that fails: each create takes another worker id, for good.
func TestFactoryFails(t *testing.T) {
	db := open(t, uidplugin.WithSpares(3), uidplugin.WithGenerator("mine", func(c uidplugin.GeneratorConfig) (generator.Renewable, error) {
		return nil, errors.New("not now")
	}))
	migrate(t, db, &zmine{})
	for i := range 20 {
		err := db.Create(&zmine{}).Error
		if i == 0 {
			t.Log(err)
		}
	}
	time.Sleep(time.Second)
	s := uidplugin.From(db).Stats()
	t.Logf("%+v", s)
	t.Log("rows of zmines:", count(t, db, "WORKER_NODE", "TABLE_NAME = ? AND HOLDER <> ''", "zmines"))
	for range 20 {
		_ = db.Transaction(func(tx *gorm.DB) error { return tx.Create(&zmine{}).Error })
		time.Sleep(20 * time.Millisecond)
	}
	time.Sleep(2 * time.Second)
	t.Log("rows of zmines:", count(t, db, "WORKER_NODE", "TABLE_NAME = ? AND HOLDER <> ''", "zmines"))
}

type zlog struct {
	ID   int64 `gorm:"primaryKey;autoIncrement:false;uid:segment"`
	Text string
}

type zhandler func(slog.Record)

func (f zhandler) Enabled(context.Context, slog.Level) bool      { return true }
func (f zhandler) Handle(_ context.Context, r slog.Record) error { f(r); return nil }
func (f zhandler) WithAttrs([]slog.Attr) slog.Handler            { return f }
func (f zhandler) WithGroup(string) slog.Handler                 { return f }

// A log handler that creates rows, of a table whose keys are of a segment.
func TestLogHandlerSegment(t *testing.T) {
	db := bare(t)
	var on atomic.Bool
	h := zhandler(func(r slog.Record) {
		if on.Load() {
			db.Create(&zlog{Text: r.Message})
		}
	})
	p := uidplugin.New(uidplugin.WithLogger(slog.New(h)), uidplugin.WithTimeout(time.Second))
	must(t, db.Use(p))
	migrate(t, db, &zlog{})
	on.Store(true)
	done := make(chan error, 1)
	go func() { done <- db.Create(&zlog{Text: "first"}).Error }()
	select {
	case err := <-done:
		t.Log(err)
	case <-time.After(5 * time.Second):
		t.Error("the create hangs, although WithTimeout is a second")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	t.Log("Close:", p.Close(ctx))
}

// Options are checked together by db.Use.
func TestSegmentOptions(t *testing.T) {
	db := bare(t)
	p := uidplugin.New(uidplugin.WithLogger(nil), uidplugin.WithSegments(segment.Config{Step: -1, Table: "no name"}))
	if err := db.Use(p); err == nil {
		t.Error("WithSegments with a Step of -1 and a bad table is taken by db.Use")
	}
}

type zstr struct {
	ID string `gorm:"primaryKey;uid:segment;type:bigint"`
}

type ztext struct {
	ID int64 `gorm:"primaryKey;autoIncrement:false;uid:segment;type:varchar(20)"`
}

type zs struct {
	ID string `gorm:"primaryKey;size:20;uid:segment"`
}

func TestSegmentKinds(t *testing.T) {
	for _, m := range []any{&zstr{}, &ztext{}, &zs{}} {
		t.Run(fmt.Sprintf("%T", m), func(t *testing.T) {
			db := open(t)
			migrate(t, db, m)
			table := fmt.Sprintf("%T", m)[len("*uidplugin_test."):]
			table = map[string]string{"zstr": "zstrs", "ztext": "ztexts", "zs": "zs"}[table]
			for _, id := range []int{1, 2, 9, 10} {
				must(t, db.Exec("INSERT INTO "+table+" (id) VALUES (?)", id).Error)
			}
			if err := db.Create(m).Error; err != nil {
				t.Error(err)
			}
			t.Logf("%+v", m)
		})
	}
}

type zsrc struct {
	ID int64 `gorm:"primaryKey;autoIncrement:false;uid:src"`
}

func TestCloseContext(t *testing.T) {
	db := bare(t)
	p := uidplugin.New(uidplugin.WithLogger(nil), uidplugin.WithSource("src", func(ctx context.Context, db *gorm.DB, table string) (generator.Generator, error) {
		n := int64(0)
		return generator.NewBuffered(generator.BufferedConfig{Size: 10, Source: func(context.Context, int64) (generator.Run, error) {
			n++
			if n > 1 {
				select {} // ignores its context
			}
			return generator.Run{First: 1, N: 5}, nil
		}})
	}))
	must(t, db.Use(p))
	migrate(t, db, &zsrc{})
	must(t, db.Create(&zsrc{}).Error)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- p.Close(ctx) }()
	select {
	case err := <-done:
		t.Log(err)
	case <-time.After(3 * time.Second):
		t.Error("Close has not returned 2.5 s after its context ended")
	}
	c2, cancel2 := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel2()
	go func() { done <- db.WithContext(c2).Create(&zrow{}).Error }()
	select {
	case err := <-done:
		t.Log(err)
	case <-time.After(2 * time.Second):
		t.Error("a create of another table hangs, its context ended")
	}
}

var _ = strings.Contains
var _ sync.Mutex

package uidplugin_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/segment"
	"gorm.io/gorm"
)

// voucher has the ids of a segment, ticket those of a source.
type (
	voucher struct {
		ID int64 `gorm:"primaryKey;autoIncrement:false;uid:segment"`
	}
	ticket struct {
		ID int64 `gorm:"primaryKey;autoIncrement:false;uid:tickets"`
	}
)

// A leafPool makes statements about segments fail when a test wants it.
type leafPool struct {
	meet atomic.Pointer[func(ctx context.Context) error] // nil lets them pass
}

// leafy puts a leafPool before the pool that plugins of db will use.
func leafy(db *gorm.DB) *leafPool {
	p := &leafPool{}
	tapped(db, p.answer)
	return p
}

// fails makes statements fail with what f returns.
func (p *leafPool) fails(f func(ctx context.Context) error) { p.meet.Store(&f) }

// passes lets statements pass again.
func (p *leafPool) passes() { p.meet.Store(nil) }

func (p *leafPool) answer(ctx context.Context, query string) error {
	if f := p.meet.Load(); f != nil && strings.Contains(query, "leaf_alloc") {
		return (*f)(ctx)
	}
	return nil
}

// errUnreachable is how an unreachable server fails.
var errUnreachable = &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}

// The segment was opened in the background, and its first range fetched after that, so the transaction that held the
// only connection waited for itself, and failed.
func TestUse_SegmentsNeedNoConnectionAfterIt(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		name string
		open func(db *gorm.DB) error
	}{
		{"WithModels", func(db *gorm.DB) error {
			return db.Use(uidplugin.New(uidplugin.WithLogger(nil), uidplugin.WithModels(&voucher{})))
		}},
		{"Register", func(db *gorm.DB) error {
			return errors.Join(db.Use(uidplugin.New(uidplugin.WithLogger(nil))), uidplugin.From(db).Register(t.Context(), &voucher{}))
		}},
		{"AutoMigrate", func(db *gorm.DB) error {
			return errors.Join(db.Use(uidplugin.New(uidplugin.WithLogger(nil))), uidplugin.From(db).AutoMigrate(&voucher{}))
		}},
		{"a create before", func(db *gorm.DB) error {
			return errors.Join(db.Use(uidplugin.New(uidplugin.WithLogger(nil))), db.Create(&voucher{}).Error)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			for range 20 {
				db := bare(t)
				migrate(t, db, &voucher{})
				single(t, db)
				must(t, tt.open(db))
				must(t, db.Transaction(func(tx *gorm.DB) error {
					return errors.Join(tx.Create(&voucher{}).Error, tx.Create(&[]voucher{{}, {}}).Error)
				}))
				must(t, uidplugin.From(db).Close(t.Context()))
			}
		})
	}
}

// Errors told of worker ids, which a segment does not have.
func TestCreate_ErrorsOfSegmentsAreAboutSegments(t *testing.T) {
	t.Parallel()

	db := bare(t)
	use(t, db, withoutSpares())
	migrate(t, db, &voucher{}, &part{})
	single(t, db)
	about := func(err, is error, says string) {
		t.Helper()
		if !errors.Is(err, is) {
			t.Fatalf("%v, want %v", err, is)
		}
		saysAll(t, err.Error(), "the generator segment of table vouchers", says)
		if strings.Contains(err.Error(), "worker id") {
			t.Errorf("%v\nspeaks of worker ids", err)
		}
	}
	tx := db.Begin()
	about(tx.Create(&voucher{}).Error, uidplugin.ErrInTransaction, "WithModels")
	must(t, tx.Rollback().Error)
	tx = db.Begin()
	err := tx.Create(&part{}).Error
	if !errors.Is(err, uidplugin.ErrInTransaction) {
		t.Errorf("%v", err)
	}
	saysAll(t, err.Error(), "a worker id for parts")
	must(t, tx.Rollback().Error)

	other := bare(t)
	p := leafy(other)
	use(t, other)
	migrate(t, other, &voucher{})
	arrived := make(chan struct{}, 10)
	p.fails(func(ctx context.Context) error {
		arrived <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-arrived
		cancel()
	}()
	about(other.WithContext(ctx).Create(&voucher{}).Error, context.Canceled, "waiting for")
	p.passes()
}

// A configuration that cannot work was a warning in the log, and an error at the first create.
func TestUse_FailsIfASegmentIsNotUsable(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		name, spoil, fix string
		want             error
		says             string
	}{
		{"step", "UPDATE leaf_alloc SET step = 0", "UPDATE leaf_alloc SET step = 10", segment.ErrRow, "step"},
		{"end", "UPDATE leaf_alloc SET max_id = 9223372036854775807", "UPDATE leaf_alloc SET max_id = 70", segment.ErrExhausted, "max_id"},
		{"columns", "ALTER TABLE leaf_alloc RENAME COLUMN max_id TO max", "ALTER TABLE leaf_alloc RENAME COLUMN max TO max_id", nil, "max_id"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			db := bare(t)
			migrate(t, db, &voucher{})
			first := use(t, db, uidplugin.WithModels(&voucher{}), uidplugin.WithSegments(segment.Config{Step: 10}))
			must(t, first.Close(t.Context()))
			must(t, db.Exec(tt.spoil).Error)

			db = file(t, fileOf(t, db), &gorm.Config{})
			p := uidplugin.New(uidplugin.WithLogger(nil), uidplugin.WithModels(&voucher{}, &part{}))
			err := db.Use(p)
			if err == nil || tt.want != nil && !errors.Is(err, tt.want) {
				t.Fatalf("db.Use: %v", err)
			}
			saysAll(t, err.Error(), "the generator segment of table vouchers", tt.says)
			unregistered(t, db)

			must(t, db.Exec(tt.fix).Error)
			must(t, db.Use(p))
			must(t, db.Create(&voucher{}).Error)
			must(t, p.Close(t.Context()))
		})
	}
}

// A segment that could not be reached at db.Use was opened again by the next create only, and each create failed.
func TestUse_OpensASegmentAgainWhenTheDatabaseIsBack(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		db := file(t, filepath.Join(dir, "test.db"), &gorm.Config{})
		migrate(t, db, &voucher{})
		p := leafy(db)
		p.fails(func(context.Context) error { return errUnreachable })
		log := &journal{}
		plugin := use(t, db, uidplugin.WithWorkerID(1), uidplugin.WithClock(atNoon), log.option(), uidplugin.WithModels(&voucher{}))
		for range 3 {
			err := plugin.Health()
			if !errors.Is(err, errUnreachable) {
				t.Fatalf("Health: %v", err)
			}
			saysAll(t, err.Error(), "the generator segment of table vouchers", "since 2026-06-01 12:00:00")
			if err := db.Create(&voucher{}).Error; !errors.Is(err, errUnreachable) {
				t.Fatalf("create: %v", err)
			}
			time.Sleep(time.Minute)
		}
		p.passes()
		time.Sleep(time.Minute)
		if err := plugin.Health(); err != nil {
			t.Errorf("Health after the database's return: %v", err)
		}
		must(t, db.Transaction(func(tx *gorm.DB) error { return tx.Create(&voucher{}).Error }))
		synctest.Wait()
		if failed, open := log.Lines("cannot be opened"), log.Lines("is open now"); len(failed) != 1 || len(open) != 1 {
			t.Errorf("logged\n%q\n%q", failed, open)
		}
	})
}

// An opener of the application that failed was not called again until the next create.
func TestOpener_IsCalledAgainWithGrowingPauses(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var calls []time.Time
		broken := true
		db := file(t, filepath.Join(dir, "test.db"), &gorm.Config{})
		migrate(t, db, &ticket{})
		log := &journal{}
		plugin := use(t, db, uidplugin.WithWorkerID(1), uidplugin.WithClock(atNoon), log.option(), uidplugin.WithModels(&ticket{}),
			uidplugin.WithSource("tickets", func(context.Context, *gorm.DB, string) (generator.Generator, error) {
				mu.Lock()
				defer mu.Unlock()
				calls = append(calls, time.Now())
				if broken {
					return nil, errBroken
				}
				return &even{}, nil
			}))
		if err := plugin.Health(); !errors.Is(err, errBroken) {
			t.Errorf("Health: %v", err)
		}
		time.Sleep(10 * time.Minute)
		mu.Lock()
		pauses := make([]time.Duration, len(calls)-1)
		for i := range pauses {
			pauses[i] = calls[i+1].Sub(calls[i])
		}
		broken = false
		mu.Unlock()
		if len(pauses) < 12 || pauses[0] > time.Second || slices.Max(pauses) > time.Minute || pauses[len(pauses)-1] < 30*time.Second {
			t.Errorf("the pauses are %v", pauses)
		}
		time.Sleep(time.Minute)
		must(t, plugin.Health())
		must(t, db.Create(&ticket{}).Error)
		mu.Lock()
		n := len(calls)
		mu.Unlock()
		time.Sleep(time.Hour)
		mu.Lock()
		defer mu.Unlock()
		if len(calls) != n {
			t.Errorf("it was called %d times after it had succeeded", len(calls)-n)
		}
		if failed, open := log.Lines("cannot be opened"), log.Lines("is open now"); len(failed) != 1 || len(open) != 1 {
			t.Errorf("logged\n%q\n%q", failed, open)
		}
	})
}

// An opener could not use the plugin of its handle while db.Use waited for it.
func TestOpener_MayUseThePluginAndCreateRows(t *testing.T) {
	t.Parallel()

	db := bare(t)
	migrate(t, db, &ticket{}, &part{}, &voucher{})
	plugin := use(t, db, uidplugin.WithModels(&ticket{}, &part{}),
		uidplugin.WithSource("tickets", func(ctx context.Context, db *gorm.DB, _ string) (generator.Generator, error) {
			_, err := uidplugin.From(db).NextID(ctx, &part{})
			return &even{}, errors.Join(err, db.Create(&part{}).Error, db.Create(&voucher{}).Error)
		}))
	must(t, plugin.Health())
	must(t, db.Create(&ticket{}).Error)
	if count(t, db, "parts") != 1 || count(t, db, "vouchers") != 1 {
		t.Error("the rows of the opener are missing")
	}
}

// The error said that a connection was missing, whatever had gone wrong.
func TestCreate_InATransactionTellsWhyASegmentIsNotUsable(t *testing.T) {
	t.Parallel()

	db := bare(t)
	migrate(t, db, &voucher{})
	must(t, use(t, db, uidplugin.WithModels(&voucher{})).Close(t.Context()))
	must(t, db.Exec("UPDATE leaf_alloc SET step = 0").Error)
	db = file(t, fileOf(t, db), &gorm.Config{})
	use(t, db)
	err := db.Transaction(func(tx *gorm.DB) error { return tx.Create(&voucher{}).Error })
	if !errors.Is(err, segment.ErrRow) || errors.Is(err, uidplugin.ErrInTransaction) {
		t.Errorf("%v", err)
	}
}

// A goroutine that calls an opener again ends with the plugin: a bubble waits for all of them.
func TestClose_EndsTheCallsOfOpeners(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		db := file(t, filepath.Join(dir, "test.db"), &gorm.Config{})
		plugin := use(t, db, uidplugin.WithWorkerID(1), uidplugin.WithClock(atNoon), uidplugin.WithModels(&ticket{}),
			uidplugin.WithSource("tickets", func(context.Context, *gorm.DB, string) (generator.Generator, error) {
				calls.Add(1)
				return nil, errBroken
			}))
		time.Sleep(10 * time.Second)
		must(t, plugin.Close(t.Context()))
		before := calls.Load()
		time.Sleep(time.Hour)
		if n := calls.Load(); before < 2 || n != before {
			t.Errorf("%d calls before Close, %d after it", before, n-before)
		}
		if err := db.Create(&ticket{}).Error; !errors.Is(err, uidplugin.ErrClosed) {
			t.Errorf("create: %v", err)
		}
	})
}

// A db.Use that failed left the segments of other models open.
func TestUse_ThatFailsLeavesNoSegmentOpen(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		db := file(t, filepath.Join(dir, "test.db"), &gorm.Config{})
		must(t, db.Exec("CREATE TABLE slips (id BIGINT, ref TEXT)").Error)
		must(t, db.Exec("INSERT INTO slips VALUES (9223372036854775807, 1)").Error)
		err := db.Use(uidplugin.New(uidplugin.WithWorkerID(1), uidplugin.WithClock(atNoon), uidplugin.WithLogger(nil),
			uidplugin.WithModels(&voucher{}, &spelt{})))
		if !errors.Is(err, segment.ErrExhausted) {
			t.Errorf("db.Use: %v", err)
		}
	}) // all goroutines have to end
}

// troubled is a generator that is not well.
type troubled struct {
	even
	trouble atomic.Pointer[error]
	panics  atomic.Bool
}

func (g *troubled) Health() error {
	if g.panics.Load() {
		panic("a bug in it")
	}
	if err := g.trouble.Load(); err != nil {
		return *err
	}
	return nil
}

// Health said nothing of a segment whose ranges could not be fetched, nor of sources of the application.
func TestPluginHealth_CoversSegmentsAndSources(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		db := file(t, filepath.Join(dir, "test.db"), &gorm.Config{})
		migrate(t, db, &voucher{}, &ticket{})
		p := leafy(db)
		source := &troubled{}
		plugin := use(t, db, uidplugin.WithWorkerID(1), uidplugin.WithClock(atNoon), uidplugin.WithSegments(segment.Config{Step: 10}),
			uidplugin.WithModels(&voucher{}, &ticket{}),
			uidplugin.WithSource("tickets", func(context.Context, *gorm.DB, string) (generator.Generator, error) { return source, nil }))
		must(t, plugin.Health())

		p.fails(func(context.Context) error { return errUnreachable })
		must(t, db.Create(&[]voucher{{}, {}, {}}).Error)
		synctest.Wait()
		err := plugin.Health()
		if !errors.Is(err, errUnreachable) {
			t.Fatalf("Health: %v", err)
		}
		saysAll(t, err.Error(), "the generator segment of table vouchers", "since 2026-06-01 12:00:00", "7 are left", "connection refused")
		trouble := errBroken
		source.trouble.Store(&trouble)
		if err := plugin.Health(); !errors.Is(err, errUnreachable) || !errors.Is(err, errBroken) {
			t.Errorf("Health of two: %v", err)
		}
		p.passes()
		time.Sleep(10 * time.Second)
		if err := plugin.Health(); errors.Is(err, errUnreachable) || !errors.Is(err, errBroken) {
			t.Errorf("Health after the database's return: %v", err)
		}
		source.panics.Store(true)
		if err := plugin.Health(); err == nil || !strings.Contains(err.Error(), "a bug in it") {
			t.Errorf("Health of a source that panics: %v", err)
		}
		source.panics.Store(false)
		source.trouble.Store(nil)
		must(t, plugin.Health())
	})
}

// A create without a deadline waited for a segment as long as the driver did not answer.
func TestCreate_WaitsForASegmentForABoundedTime(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		db := file(t, filepath.Join(dir, "test.db"), &gorm.Config{})
		migrate(t, db, &voucher{})
		p := leafy(db)
		use(t, db, uidplugin.WithWorkerID(1), uidplugin.WithClock(atNoon), uidplugin.WithTimeout(3*time.Second),
			uidplugin.WithSegments(segment.Config{Step: 10, MaxStep: 1}), uidplugin.WithModels(&voucher{}))
		answered := make(chan struct{})
		p.fails(func(context.Context) error { // and does not notice that its context ends
			<-answered
			return errUnreachable
		})
		must(t, db.Create(make([]voucher, 10)).Error)
		for range 2 {
			begin := time.Now()
			if err := db.Create(&voucher{}).Error; !errors.Is(err, generator.ErrSource) || time.Since(begin) != 3*time.Second {
				t.Errorf("after %v: %v", time.Since(begin), err)
			}
		}
		close(answered)
		if err := db.Create(&voucher{}).Error; !errors.Is(err, errUnreachable) {
			t.Errorf("while the database refuses: %v", err)
		}
		p.passes()
		time.Sleep(10 * time.Second)
		must(t, db.Create(&voucher{}).Error)
	})
}

// A log handler that creates rows met GORM's registration of callbacks, which is not safe for that.
func TestUse_LogOfASegmentComesAfterIt(t *testing.T) {
	t.Parallel()

	db := bare(t)
	migrate(t, db, &voucher{})
	logged, used := make(chan error, 100), atomic.Bool{}
	h := handlerFunc(func(r slog.Record) {
		if strings.Contains(r.Message, "tag inserted") {
			if !used.Load() {
				t.Error("it was logged during db.Use")
			}
			logged <- db.Create(&voucher{}).Error
		}
	})
	p := uidplugin.New(uidplugin.WithLogger(slog.New(h)), uidplugin.WithModels(&voucher{}),
		uidplugin.WithSource("slow", func(context.Context, *gorm.DB, string) (generator.Generator, error) {
			time.Sleep(20 * time.Millisecond)
			used.Store(true) // db.Use is about to return
			return &even{}, nil
		}), uidplugin.WithModels(&slowly{}))
	must(t, db.Use(p))
	must(t, <-logged)
	must(t, p.Close(t.Context()))
}

type slowly struct {
	ID int64 `gorm:"primaryKey;autoIncrement:false;uid:slow"`
}

// wing: segment

package segments_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/plugintest"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/segment"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

var must = testkit.Must

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
	plugintest.Tapped(db, p.answer)
	return p
}

// fails makes statements fail with what f returns.
func (p *leafPool) fails(f func(ctx context.Context) error) { p.meet.Store(&f) }

// passes lets statements pass again.
func (p *leafPool) passes() { p.meet.Store(nil) }

// errUnreachable is how an unreachable server fails.
var errUnreachable = &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}

func (p *leafPool) answer(ctx context.Context, query string) error {
	if f := p.meet.Load(); f != nil && strings.Contains(query, "leaf_alloc") {
		return (*f)(ctx)
	}
	return nil
}

// Formerly Health did not report a segment whose ranges could not be fetched, or sources of the application.
func TestPluginHealth_CoversSegmentsAndSources(t *testing.T) {
	plugintest.InBubble(t, func(t *testing.T, db *gorm.DB) {
		plugintest.Migrate(t, db, &voucher{}, &ticket{})
		p := leafy(db)
		source := &troubled{Numbers: plugintest.Numbers{Step: 1}}
		plugin := plugintest.Use(t, db, uidplugin.WithWorkerID(1), uidplugin.WithClock(plugintest.AtNoon), uidplugin.WithSegments(segment.Config{Step: 10}),
			uidplugin.WithModels(&voucher{}, &ticket{}),
			uidplugin.WithSource("tickets", func(context.Context, *gorm.DB, string) (generator.Generator, error) { return source, nil }))
		must(t, plugin.Health())

		p.fails(func(context.Context) error { return errUnreachable })
		must(t, db.Create(&[]voucher{{}, {}, {}}).Error)
		synctest.Wait()
		testkit.IsError(t, plugin.Health(), errUnreachable,
			"the generator segment of table vouchers", "since 2026-06-01 12:00:00", "7 are left", "connection refused")
		trouble := plugintest.ErrBroken
		source.trouble.Store(&trouble)
		testkit.IsError(t, plugin.Health(), errUnreachable, trouble.Error())
		p.passes()
		time.Sleep(10 * time.Second)
		if err := plugin.Health(); errors.Is(err, errUnreachable) || !errors.Is(err, plugintest.ErrBroken) {
			t.Errorf("Health after the database's return: %v", err)
		}
		source.panics.Store(true)
		testkit.IsError(t, plugin.Health(), nil, "a bug in it")
		// Stats is also called in goroutines that collect metrics, where a panic ends the process.
		if s := plugin.Stats().Tables; len(s) != 2 || s[0].Made != 0 {
			t.Errorf("Stats of a source that panics: %+v", s)
		}
		source.panics.Store(false)
		source.trouble.Store(nil)
		must(t, plugin.Health())
	})
}

// entry is a row of a log, with ids of a segment.
type entry struct {
	ID   int64 `gorm:"primaryKey;autoIncrement:false;uid:segment"`
	Text string
}

// A log handler writes rows, whose ids the plugin makes. What is logged while such an id is being made once waited for
// itself.
func TestWithLogger_ItsHandlerMayCreateRows(t *testing.T) {
	t.Parallel()

	db := plugintest.Bare(t)
	var on atomic.Bool
	log := testkit.LogFunc(func(r slog.Record) {
		if on.Load() {
			_ = db.Create(&entry{Text: r.Message}).Error
		}
	})
	p := uidplugin.New(uidplugin.WithLogger(log), uidplugin.WithTimeout(time.Second))
	must(t, db.Use(p))
	plugintest.Migrate(t, db, &entry{}, &plugintest.Part{})
	on.Store(true)
	done := make(chan error, 1)
	go func() {
		done <- errors.Join(db.Create(&entry{Text: "first"}).Error, db.Create(&plugintest.Part{}).Error, p.Close(t.Context()))
	}()
	select {
	case err := <-done:
		must(t, err)
	case <-time.After(time.Minute):
		t.Fatal("a create, or Close, hangs, although WithTimeout is a second")
	}
	plugintest.Rows(t, 1, db, "entries", "text = 'first'")
}

// The options of segments are checked with all others. They once failed at the first create.
func TestWithSegments_IsCheckedByUse(t *testing.T) {
	t.Parallel()

	for says, config := range map[string]segment.Config{"Step -1": {Step: -1}, "no name": {Table: "no name"}} {
		db := plugintest.Bare(t)
		err := db.Use(uidplugin.New(uidplugin.WithLogger(nil), uidplugin.WithSegments(config)))
		testkit.IsError(t, err, uidplugin.ErrOption, "WithSegments", says)
		plugintest.Unregistered(t, db)
	}
}

type (
	bigString struct {
		ID string `gorm:"primaryKey;uid:segment;type:bigint"`
	}
	bigText struct {
		ID int64 `gorm:"primaryKey;autoIncrement:false;uid:segment;type:varchar(20)"`
	}
	shortString struct {
		ID string `gorm:"primaryKey;size:20;uid:segment"`
	}
)

// Keys of all types continue above the largest existing one, by value. As texts, 9 would be above 10.
func TestSegment_GoesOnAboveKeysOfAnyType(t *testing.T) {
	t.Parallel()

	for table, m := range map[string]any{
		"big_strings": &bigString{}, "big_texts": &bigText{}, "short_strings": &shortString{},
	} {
		db := plugintest.Open(t)
		plugintest.Migrate(t, db, m)
		fetched(t, db, table)
		for _, id := range []int{1, 2, 9, 10} {
			must(t, db.Exec("INSERT INTO "+table+" (id) VALUES (?)", id).Error)
		}
		if err := db.Create(m).Error; err != nil || fmt.Sprint(m) != "&{11}" {
			t.Errorf("%s: %v, %v", table, m, err)
		}
	}
}

// If another program has numbered the rows, such as a Leaf service, it may hold larger numbers in memory. Formerly a
// new tag began right above the rows. All processes are refused, however many begin at once, until somebody sets Start.
func TestGenerators_ANewSegmentOfATableWithRowsIsRefused(t *testing.T) {
	t.Parallel()

	type slip struct {
		ID   int64 `gorm:"primaryKey;autoIncrement:false;uid:segment"`
		Name string
	}
	first := plugintest.Bare(t)
	must(t, first.AutoMigrate(&slip{}))
	must(t, first.Create(&slip{ID: 700}).Error)
	var wg sync.WaitGroup
	for range 4 {
		db := plugintest.File(t, plugintest.FileOf(t, first), &gorm.Config{})
		wg.Go(func() {
			err := db.Use(uidplugin.New(uidplugin.WithLogger(nil), uidplugin.WithModels(&slip{})))
			testkit.IsError(t, err, segment.ErrRow, `the tag "slips" of leaf_alloc is new`)
		})
	}
	wg.Wait()
	plugintest.Rows(t, 0, first, "leaf_alloc")
	for want, start := range []int64{701, 0} {
		db := plugintest.File(t, plugintest.FileOf(t, first), &gorm.Config{})
		plugintest.Use(t, db, uidplugin.WithModels(&slip{}), uidplugin.WithSegments(segment.Config{Start: start, Step: 10, MaxStep: 1}))
		s := slip{}
		must(t, db.Create(&s).Error)
		if want := int64(701 + 10*want); s.ID != want {
			t.Errorf("id %d, want %d", s.ID, want)
		}
	}
}

// The row of a Leaf service may have any name, so a tag can name it. Formerly the plugin made a row of its own and
// began at 1.
func TestGenerators_ATagNamesTheRowOfASegment(t *testing.T) {
	t.Parallel()

	type slip struct {
		ID  int64 `gorm:"primaryKey;autoIncrement:false;uid:segment:Order-Service:v1"`
		Ref int64 `gorm:"uid: Segment : ref "`
		No  int64 `gorm:"uid:segment"`
	}
	db := plugintest.Bare(t)
	must(t, db.AutoMigrate(&slip{}))
	fetched(t, db, "Order-Service:v1", "ref")
	must(t, db.Exec("INSERT INTO slips (id, ref, no) VALUES (1, 1, 0)").Error)
	p := plugintest.Use(t, db, uidplugin.WithModels(&slip{}), uidplugin.WithSegments(segment.Config{Step: 10, MaxStep: 1}))
	s := slip{}
	must(t, db.Create(&s).Error)
	if s != (slip{2, 2, 1}) {
		t.Errorf("the row is %+v", s)
	}
	var tags []string
	must(t, db.Raw("SELECT biz_tag || ' ' || max_id FROM leaf_alloc ORDER BY biz_tag").Scan(&tags).Error)
	if got := strings.Join(tags, ", "); got != "Order-Service:v1 12, ref 12, slips.no 11" {
		t.Errorf("leaf_alloc has %s", got)
	}
	if tables := p.Stats().Tables; len(tables) != 3 || tables[0].Table != "slips" {
		t.Errorf("Stats: %+v", tables)
	}

	type cachedSlip struct {
		ID int64 `gorm:"primaryKey;autoIncrement:false;uid:cached:other"`
	}
	for want, m := range map[string]any{`after the generator cached`: &cachedSlip{}, `have the tags "Order-Service:v1" and "other"`: &otherSlip{}} {
		testkit.IsError(t, p.Register(t.Context(), m), uidplugin.ErrField, want)
	}
}

// An otherSlip is of the same table with another tag.
type otherSlip struct {
	ID int64 `gorm:"primaryKey;autoIncrement:false;uid:segment:other"`
}

func (otherSlip) TableName() string { return "slips" }

// A writer is a logger of GORM that creates a row for each statement of the lease manager.
type writer struct {
	logger.Interface
	db atomic.Pointer[gorm.DB]
}

func (w *writer) LogMode(logger.LogLevel) logger.Interface { return w }
func (w *writer) Trace(_ context.Context, _ time.Time, statement func() (string, int64), _ error) {
	if sql, _ := statement(); strings.Contains(sql, "WORKER_SLOT") && w.db.Load() != nil {
		_ = w.db.Load().Create(&plugintest.Part{Name: sql}).Error
	}
}

// GORM's logger may create rows, which wait for worker ids. The lease manager once waited for the logger: neither came
// on.
func TestNew_GORMsLoggerMayCreateRows(t *testing.T) {
	t.Parallel()

	w := &writer{Interface: logger.Discard}
	db := plugintest.File(t, filepath.Join(t.TempDir(), "test.db"), &gorm.Config{Logger: w})
	p := plugintest.Use(t, db, uidplugin.WithTimeout(time.Second), uidplugin.WithDisposable())
	must(t, db.Exec("CREATE TABLE parts (id bigint PRIMARY KEY, name text)").Error)
	must(t, db.Exec("CREATE TABLE entries (id bigint PRIMARY KEY, text text)").Error)
	w.db.Store(db.Session(&gorm.Session{Logger: logger.Discard}))
	must(t, db.Create(&entry{Text: "first"}).Error)
	must(t, db.Create(&plugintest.Part{Name: "second"}).Error)
	testkit.Eventually(t, "a row of the logger, which runs next to", time.Minute, func() bool {
		return plugintest.Count(t, db, "parts", "name LIKE '%WORKER_SLOT%'") > 0
	})
	testkit.MustClose(t, p)
}

// troubled is a generator that is not well.
type troubled struct {
	plugintest.Numbers
	trouble atomic.Pointer[error]
	panics  atomic.Bool
}

func (g *troubled) Waits() int64 { return 3 }

func (g *troubled) Made() int64 {
	if g.panics.Load() {
		panic("a bug in it")
	}
	return 5
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

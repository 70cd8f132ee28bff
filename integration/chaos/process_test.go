//go:build unix

package chaos_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// The tables of TestChaos. All have the same fields.
type (
	chaosA struct {
		ID int64 `gorm:"primaryKey;autoIncrement:false;uid"`
	}
	chaosB chaosA
	chaosC chaosA
	chaosD chaosA
)

func (chaosA) TableName() string { return "chaos_a" }
func (chaosB) TableName() string { return "chaos_b" }
func (chaosC) TableName() string { return "chaos_c" }
func (chaosD) TableName() string { return "chaos_d" }

// A chaosTable is a table, its model, and how to create rows.
type chaosTable struct {
	name   string
	model  any
	create func(db *gorm.DB, n int) ([]int64, error)
}

var chaosTables = []chaosTable{
	{"chaos_a", &chaosA{}, chaosCreate[chaosA]},
	{"chaos_b", &chaosB{}, chaosCreate[chaosB]},
	{"chaos_c", &chaosC{}, chaosCreate[chaosC]},
	{"chaos_d", &chaosD{}, chaosCreate[chaosD]},
}

// chaosCreate creates n rows and returns their ids, also if the INSERT failed: 0 for
// those that got none.
func chaosCreate[T chaosA | chaosB | chaosC | chaosD](db *gorm.DB, n int) ([]int64, error) {
	rows := make([]T, n)
	err := db.Create(&rows).Error
	ids := make([]int64, n)
	for i, row := range rows {
		ids[i] = chaosA(row).ID
	}
	return ids, err
}

// chaosVariable makes the test binary a process of TestChaos.
const chaosVariable = "UID_TEST_CHAOS"

// A chaosTask is the work of a process of TestChaos.
type chaosTask struct {
	Engine string // mariadb if empty
	DSN    string
	Files  string // the beginning of the names of its files
	Clock  string // the file with what to add to the wall clock, in seconds

	Plugin    bool // through uidplugin.New, or with package workernode alone
	Skew      time.Duration
	Unguarded string // a control: see unguarded

	Tables, Batch int
	Rate          float64 // of ids a second and table
}

// A process of TestChaos does its task here, before there are flags and tests.
func init() {
	text := os.Getenv(chaosVariable)
	if text == "" {
		return
	}
	var task chaosTask
	if err := json.Unmarshal([]byte(text), &task); err != nil {
		fmt.Fprintln(os.Stderr, "chaos process:", err)
		os.Exit(2)
	}
	if err := (&chaosProcess{chaosTask: task}).run(); err != nil {
		fmt.Fprintln(os.Stderr, "chaos process:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// A chaosProcess makes ids as fast as its task says, until SIGTERM. It writes each range to a file before it
// continues. An id that is not in the file was not handed out. The file survives kill -9 of its process.
type chaosProcess struct {
	chaosTask
	ids, events *os.File
	log         sync.Mutex // held while events is written

	offset  atomic.Int64 // of the clock, in seconds
	stepped atomic.Bool  // the clock was wrong at any time
	awake   atomic.Int64 // how long this process has run, without the time that it was stopped
	quit    chan struct{}
	maker   atomic.Value // chaosMaker

	mu     sync.Mutex
	stalls []chaosStall
}

// A chaosStall is a call that has not returned, or failed, for longer than usual.
type chaosStall struct {
	table string
	begin time.Time
	awake int64 // when it began
	on    bool
}

func (c *chaosProcess) run() (err error) {
	const flags = os.O_CREATE | os.O_EXCL | os.O_WRONLY | os.O_APPEND
	if c.ids, err = os.OpenFile(c.Files+".ids", flags, 0o666); err != nil {
		return err
	}
	if c.events, err = os.OpenFile(c.Files+".events", flags, 0o666); err != nil {
		return err
	}
	c.quit = make(chan struct{})
	go func() { // the test has ended
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	c.readClock()
	before := time.Now()
	if got := c.now(); got.Unix()-before.Unix() < c.offset.Load() || got.Before(before) || time.Since(got) < 0 {
		return errors.New("chaos: a time.Time does not look as it did: see chaosProcess.now")
	}
	c.stalls = make([]chaosStall, c.Tables+1)
	go c.watch()
	time.Sleep(10 * time.Millisecond)
	goroutines := runtime.NumGoroutine()
	go func() { // not counted: SIGTERM may have come already
		<-term
		close(c.quit)
	}()

	began := c.awake.Load()
	maker, pool, err := c.open()
	if maker == nil {
		return err
	}
	c.maker.Store(&maker)
	c.event("open", time.Duration(c.awake.Load()-began).Milliseconds())
	var makers sync.WaitGroup
	for table := range c.Tables {
		makers.Go(func() { c.batches(maker, table) })
	}
	makers.Go(func() { c.singles(maker) })
	<-c.quit

	// Close in the middle of their work.
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := maker.close(ctx); err != nil {
		c.event("unclosed", err)
	}
	makers.Wait()
	c.snapshot()
	// A transaction whose answer is late ends in the background, and Close does not wait for it.
	for try := 0; pool.Stats().InUse > 0 && try < 6000; try++ {
		time.Sleep(10 * time.Millisecond)
	}
	if n := pool.Stats().InUse; n > 0 {
		c.event("fault", fmt.Sprintf("%d connections are in use a minute after Close", n))
	}
	if err := pool.Close(); err != nil {
		c.event("fault", err)
	}
	for try := 0; runtime.NumGoroutine() > goroutines; try++ {
		if try == 6000 {
			var stacks strings.Builder
			_ = pprof.Lookup("goroutine").WriteTo(&stacks, 1)
			c.event("fault", fmt.Sprintf("%d goroutines are left after Close: %q", runtime.NumGoroutine()-goroutines,
				stacks.String()))
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	c.event("closed")
	return nil
}

// event writes a line to the file of events.
func (c *chaosProcess) event(what string, args ...any) {
	c.log.Lock()
	defer c.log.Unlock()
	line := strings.ReplaceAll(fmt.Sprintln(append([]any{what}, args...)...), "\n", " ") + "\n"
	_, _ = c.events.WriteString(line)
}

// watch reads the offset of the clock, measures how long the process was running and not stopped, and writes
// statistics from time to time.
func (c *chaosProcess) watch() {
	last := time.Now()
	for i := 1; ; i++ {
		time.Sleep(10 * time.Millisecond)
		now := time.Now()
		c.awake.Add(int64(min(now.Sub(last), 100*time.Millisecond)))
		last = now
		c.readClock()
		if i%30 == 0 {
			c.snapshot()
		}
		if i%100 == 0 {
			c.mu.Lock()
			for _, s := range c.stalls {
				if awake := c.awake.Load() - s.awake; s.on && awake > int64(time.Second) {
					c.stalled("stalls", s)
				}
			}
			c.mu.Unlock()
		}
	}
}

func (c *chaosProcess) snapshot() {
	if m := c.maker.Load(); m != nil {
		s := (*m.(*chaosMaker)).stats()
		c.event("stats", s.Reclaimed, s.Allocated, s.Lost, s.Renewals, s.LostCommits, s.Sessions)
	}
}

func (c *chaosProcess) readClock() {
	text, err := os.ReadFile(c.Clock)
	if err != nil {
		return
	}
	if offset, err := strconv.ParseInt(string(text), 10, 64); err == nil {
		c.offset.Store(offset)
		if offset != 0 {
			c.stepped.Store(true)
		}
	}
}

// now returns time.Now of a machine whose wall clock was set by offset seconds. The monotonic clock does not change,
// which time.Time.Add cannot do. If a Time has a monotonic reading, its first word has the seconds above 30 bits of
// nanoseconds.
func (c *chaosProcess) now() time.Time {
	t := time.Now()
	*(*uint64)(unsafe.Pointer(&t)) += uint64(c.offset.Load()) << 30
	return t
}

// open connects to the database, as often as it takes.
func (c *chaosProcess) open() (chaosMaker, *sql.DB, error) {
	said := ""
	for {
		maker, pool, err := c.openOnce()
		if err == nil {
			return maker, pool, nil
		}
		if pool != nil {
			_ = pool.Close()
		}
		if text := err.Error(); text != said {
			said = text
			c.event("refused", text)
		}
		select {
		case <-c.quit:
			return nil, nil, nil
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (c *chaosProcess) openOnce() (chaosMaker, *sql.DB, error) {
	open := func() (*gorm.DB, error) {
		return gorm.Open(chaosDialector(c.Engine, c.DSN), &gorm.Config{Logger: logger.Discard})
	}
	if c.Unguarded != "" {
		wire := &testkit.Wire{}
		wire.Set(unguarded(c.Unguarded))
		open = func() (*gorm.DB, error) { return wire.Connect(testkit.MariaDB(), c.DSN) }
	}
	db, err := open()
	if err != nil {
		return nil, nil, err
	}
	pool, err := db.DB()
	if err != nil {
		return nil, nil, err
	}
	pool.SetMaxOpenConns(4)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if c.Plugin {
		maker, err := c.openPlugin(db)
		return maker, pool, err
	}
	maker, err := c.openManager(ctx, db)
	return maker, pool, err
}

// chaosDialector returns GORM's dialector. On PostgreSQL it is the one for a pooler that lends connections for the time of
// a transaction.
func chaosDialector(engine, dsn string) gorm.Dialector {
	if engine == "postgres" {
		return postgres.New(postgres.Config{DSN: dsn, PreferSimpleProtocol: true})
	}
	return testkit.MariaDB().Dialector(dsn)
}

// chaosLead is short, so that much happens in a short time.
const chaosLead = 3 * time.Second

func (c *chaosProcess) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(chaosLog{c}, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

type chaosLog struct{ c *chaosProcess }

func (l chaosLog) Write(line []byte) (int, error) {
	l.c.event("log", string(line))
	return len(line), nil
}

// unguarded takes protections of the lease protocol away, for the controls: a statement about a slot may then take what
// belongs to another process.
//
//   - blind: it does not compare HOLDER, VERSION and FENCE
//   - deaf: it compares them, and the answer always reports a changed row. No id comes twice, because the transaction
//     that begins a session reads back what it has written.
func unguarded(how string) func(*testkit.Crossing) error {
	const begin, compare = "UPDATE WORKER_SLOT SET FENCE = ?", " AND `HOLDER` = ? AND `VERSION` = ? AND `FENCE` = ?"
	return func(c *testkit.Crossing) error {
		switch {
		case !c.Is(begin):
			return c.Run()
		case !strings.HasSuffix(c.SQL, compare):
			return errors.New("chaos: the statement that renews a slot does not look as it did: see unguarded")
		case how == "blind":
			c.SQL, c.Args = strings.TrimSuffix(c.SQL, compare), c.Args[:len(c.Args)-3]
			return c.Run()
		}
		err := c.Run()
		c.Result = driver.RowsAffected(1)
		return err
	}
}

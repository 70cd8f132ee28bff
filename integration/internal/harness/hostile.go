package harness

import (
	"cmp"
	"context"
	"flag"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// "make test" sets UID_TEST_HOSTILE_FOR. Tests of 20 s or more start and kill their own servers, but not on SQLite.
var hostileFor = flag.Duration("hostile.for", hostileDefault(), "how long writers of hostile tests write; 20s or more is their long form")

func hostileDefault() time.Duration {
	d, _ := time.ParseDuration(cmp.Or(os.Getenv("UID_TEST_HOSTILE_FOR"), "3s"))
	return d
}

// Unreachable matches errors that the faults of a [Hostile] test may cause.
var Unreachable = regexp.MustCompile(`bad connection|invalid connection|connection refused|connection reset|broken pipe|` +
	`EOF|closed|SQLSTATE (57P0|08|53300)|Error (1053|1317|1399|1402|2013|4031)|unexpected packet|busy buffer|` +
	`commands out of sync|failed to connect|no answer within|deadline exceeded|timeout: context already done|` +
	`the connection was lost|XAER_NOTA|prepared transaction with identifier`)

// hostileOptions has, by engine, the options of servers that tests start.
var hostileOptions = map[string][]string{
	"mysql":    {"--log-bin=binlog", "--server-id=1", "--sync-binlog=1", "--innodb-lock-wait-timeout=5"},
	"mariadb":  {"--log-bin=binlog", "--server-id=1", "--sync-binlog=1", "--innodb-lock-wait-timeout=5"},
	"postgres": {"-c", "deadlock_timeout=100ms", "-c", "max_prepared_transactions=100"},
}

// A Hostile test disturbs its processes, connections and server, and counts events.
type Hostile struct {
	*testing.T
	Length time.Duration
	Long   bool
	Server *testkit.Server // nil unless the test may kill it
	Relay  *testkit.Relay  // nil for SQLite

	mu     sync.Mutex
	counts map[string]int
}

// RunHostile runs a test on all engines at once, because the test mostly waits.
func RunHostile(t *testing.T, run func(h *Hostile, database testkit.Database)) {
	var group sync.WaitGroup
	for _, e := range testkit.Engines() {
		group.Go(func() {
			t.Run(e.Name, func(t *testing.T) {
				e.Need(t)
				h := &Hostile{T: t, Length: *hostileFor, Long: *hostileFor >= 20*time.Second, counts: map[string]int{}}
				var database *testkit.Database
				if h.Long && e.Name != "sqlite" {
					h.Server = e.NewServer(t, hostileOptions[e.Name]...)
					database = h.Server.Database()
				} else {
					database = e.New(t)
				}
				if e.Name != "sqlite" {
					h.Relay = testkit.NewRelay(t, database.Address())
				}
				run(h, *database)
			})
		})
	}
	group.Wait()
}

// Note counts an event n times, or fails the test if the event begins with "error:".
func (h *Hostile) Note(event string, n int) {
	if strings.HasPrefix(event, "error:") {
		h.Error(event)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts[event] += n
}

// Count returns how often an event has happened.
func (h *Hostile) Count(event string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.counts[event]
}

// Never returns "never: " and the first event that has not happened, or "" if all have.
func (h *Hostile) Never(events ...string) string {
	for _, event := range events {
		if h.Count(event) == 0 {
			return "never: " + event
		}
	}
	return ""
}

// LogCounts logs how often each event has happened.
func (h *Hostile) LogCounts() {
	for _, event := range slices.Sorted(maps.Keys(h.counts)) {
		h.Logf("%6d %s", h.counts[event], event)
	}
}

// Last waits for h.Length. While lacking() names an event, it waits longer, up to 3 h.Length + 2 min in all.
func (h *Hostile) Last(lacking func() string) {
	for begun := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		if took := time.Since(begun); took > h.Length && (took > 3*h.Length+2*time.Minute || lacking() == "") {
			return
		}
	}
}

// Keep runs processes of a role, one after the other, until the context ends. Each time that life() has passed, it
// calls disturb, which may end the process.
func (h *Hostile) Keep(ctx context.Context, role string, task func() any, line func(string),
	life func() time.Duration, disturb func(*testkit.Process) (ended bool)) {
	for ctx.Err() == nil {
		p, err := testkit.Launch(role, task(), line)
		if err != nil {
			h.Error(err)
			return
		}
		for ended := false; !ended; {
			select {
			case <-ctx.Done():
				if err := p.Stop(); err != nil {
					h.Error(err)
				}
				return
			case <-p.Done():
				h.Errorf("%s: a process has ended: %v", role, p.Wait())
				return
			case <-time.After(life()):
				ended = disturb(p)
			}
		}
	}
}

// Disturb slows and resets connections until the context ends. It also kills and restarts h.Server, unless that is
// nil. About every second it calls other, which returns true if it has disturbed something instead.
func (h *Hostile) Disturb(ctx context.Context, slow time.Duration, other func() (instead bool), killed func()) {
	every := min(h.Length/2, time.Minute)
	for restart := time.Now().Add(every); Sleep(ctx, 500*time.Millisecond+rand.N(time.Second)); {
		h.Relay.Slow.Store(int64(rand.N(slow)))
		if !other() {
			h.Relay.Reset([]float64{0.2, 1}[rand.IntN(2)])
			h.Note("connections reset", 1)
		}
		if h.Server == nil || time.Now().Before(restart) {
			continue
		}
		for _, command := range []string{"kill", "start"} {
			if _, err := testkit.ServersScript(command, h.Server.Dir); err != nil {
				h.Error(err)
			}
		}
		h.Note("server killed", 1)
		killed()
		restart = time.Now().Add(every)
	}
}

// Sleep sleeps, and returns false if the context ended meanwhile.
func Sleep(ctx context.Context, length time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(length):
		return true
	}
}

// Child waits until the server is reachable. It returns a handle, and a context that ends with the input of this
// child process.
func Child(connect func() (*gorm.DB, error)) (context.Context, *gorm.DB, error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := testkit.InputEnded()
	go func() { <-ended; cancel() }()
	for {
		db, err := connect()
		if err == nil || !sqldb.IsTransient(err) && !Unreachable.MatchString(err.Error()) {
			return ctx, db, err
		}
		if ctx.Err() != nil {
			os.Exit(0)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

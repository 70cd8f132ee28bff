package consume_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/follow"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	engine "github.com/uidplugin/uidplugin/internal/follow"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

type hostileEvent struct {
	ID   uidplugin.ID `gorm:"primaryKey;uid"`
	Kind int
}

// A hostile database has consumers of hostile_events in child processes.
type hostile struct {
	*harness.Hostile
	hostileTask // of a direct connection
	db          *gorm.DB
	conn        *sqldb.DB

	mu       sync.Mutex
	loose    [][2]time.Time           // when the table was disabled
	inserted map[int64][2]time.Time   // when the INSERT of a row began and ended
	last     map[string]hostileEffect // by consumer: the last effect
	fault    map[string]hostileFault  // by consumer: of the process that has had the last effect
	longest  map[string]time.Duration
}

// A hostileFault ends or stops a process.
type hostileFault struct {
	what string
	pid  int
	at   time.Time
}

// Three processes run three consumers each. Handlers swallow deadlocks, fail, skip and panic; processes are killed and
// stand still for longer than the idle limit; connections break, statements and answers are lost; an operator disables
// the table and resets, pauses and removes cursors; servers crash. Each row has one effect, in the order of the ids.
//
//	go test -run HostileConsumers -v -timeout 0 ./integration/consume/ -hostile.for 10m
func TestConsume_EachRowOnceByHostileConsumers(t *testing.T) {
	t.Parallel()
	harness.RunHostile(t, func(h *harness.Hostile, database testkit.Database) {
		hostile := newHostile(h, database)
		hostile.run()
		hostile.check()
	})
}

func newHostile(base *harness.Hostile, database testkit.Database) *hostile {
	h := &hostile{Hostile: base, inserted: map[int64][2]time.Time{}, last: map[string]hostileEffect{},
		fault: map[string]hostileFault{}, longest: map[string]time.Duration{}}
	t := h.T
	h.Database = database
	h.db = h.Database.Open(t, nil)
	harness.Use(t, h.db)
	testkit.Must(t, uidplugin.From(h.db).AutoMigrate(&hostileEvent{}, &hostileEffect{}, &hostileShared{}, &total{}))
	for i := range sharedRows {
		testkit.Must(t, h.db.Create(&hostileShared{ID: int64(i + 1)}).Error)
	}
	testkit.Must(t, follow.Enable(t.Context(), h.db, &hostileEvent{}, follow.WithSlack(300*time.Millisecond)))
	var err error
	h.conn, err = sqldb.Open(h.db, 5*time.Second)
	testkit.Must(t, err)
	return h
}

// run lets writers and consumers work, until each consumer has seen the last row.
func (h *hostile) run() {
	ctx, cancel := context.WithCancel(h.Context())
	faults, stop := context.WithCancel(ctx)
	var consuming, writing sync.WaitGroup
	for i := range 3 {
		task := h.hostileTask
		if task.Flaky = i == 1; i == 2 && h.Relay != nil {
			task.Address = h.Relay.Address()
		}
		consuming.Go(func() { h.keepConsuming(ctx, faults, task) })
	}
	consuming.Go(func() { h.watch(ctx) })
	for range 3 {
		writing.Go(func() { h.write(faults) })
	}
	writing.Go(func() { h.operate(faults) })
	if h.Relay != nil {
		writing.Go(func() { h.makeFaults(faults) })
		writing.Go(func() { h.makeDeadlocks(faults) })
	}
	h.Last(h.lacking)
	stop()
	writing.Wait()
	h.drain()
	cancel()
	consuming.Wait()
	if lacking := h.lacking(); lacking != "" {
		h.Errorf("the test was not hostile, %s", lacking)
	}
}

// lacking returns what has not happened.
func (h *hostile) lacking() string {
	all := []string{"rows"}
	if h.Long {
		all = append(all, "process killed", "process stopped", "not enabled", "removed", "reset", "paused")
		if h.Relay != nil {
			all = append(all, "connections ended", "connections reset", "deadlocks swallowed", "errors swallowed", "server killed")
		}
	}
	return h.Never(all...)
}

// write inserts rows in transactions that sometimes take long.
func (h *hostile) write(ctx context.Context) {
	for ctx.Err() == nil {
		var events []hostileEvent
		begun := time.Now()
		err := follow.Transaction(ctx, h.db, func(tx *gorm.DB) error {
			events = make([]hostileEvent, 1+rand.IntN(5))
			for i := range events {
				events[i].Kind = rand.IntN(5)
			}
			err := tx.Create(&events).Error
			h.mu.Lock()
			for _, e := range events {
				h.inserted[int64(e.ID)] = [2]time.Time{begun, time.Now()}
			}
			h.mu.Unlock()
			if err == nil && h.Database.Name != "sqlite" && rand.IntN(4) == 0 {
				time.Sleep(rand.N(time.Second))
			}
			return err
		})
		if err == nil {
			h.Note("rows", len(events))
		} else if !errors.Is(err, follow.ErrTooLate) && !sqldb.IsTransient(err) && !harness.Unreachable.MatchString(err.Error()) && ctx.Err() == nil {
			h.Note(fmt.Sprintf("error: writer: %v", err), 1)
		}
		time.Sleep(rand.N(400 * time.Millisecond))
	}
}

// check compares the effects with the rows.
func (h *hostile) check() {
	var events []hostileEvent
	testkit.Must(h.T, h.db.Order("id").Find(&events).Error)
	h.LogCounts()
	for _, what := range slices.Sorted(maps.Keys(h.longest)) {
		h.Logf("longest take-over after %s: %v", what, h.longest[what].Round(time.Millisecond))
		if h.longest[what] > time.Minute {
			h.Errorf("a take-over after %s took %v", what, h.longest[what])
		}
	}
	for _, consumer := range hostileConsumers {
		var effects []hostileEffect
		testkit.Must(h.T, h.db.Where("consumer = ?", consumer).Order("n").Find(&effects).Error)
		r := replay{wanted: map[int64]bool{}}
		for _, e := range events {
			if e.wanted(consumer) {
				id := int64(e.ID)
				r.rows = append(r.rows, id)
				r.wanted[id] = !h.isLoose(id)
			}
		}
		r.run(effects)
		text := fmt.Sprintf("%s: %d rows, %d effects; missed %d, twice %d, out of order %d, of no row %d, while paused %d",
			consumer, len(r.rows), r.effects, r.missed, r.twice, r.disorder, r.unborn, r.paused)
		h.Log(text)
		if r.missed+r.twice+r.disorder+r.unborn+r.paused > 0 {
			h.Error(text)
		}
		var sum total
		testkit.Must(h.T, h.db.Limit(1).Find(&sum, "consumer = ?", consumer).Error)
		if sum.N != int64(r.effects) {
			h.Errorf("%s: %d effects were counted as %d", consumer, r.effects, sum.N)
		}
	}
}

// isLoose reports whether the INSERT of a row ran while the table was disabled, so it may be missed.
func (h *hostile) isLoose(id int64) bool {
	at, known := h.inserted[id]
	return !known || slices.ContainsFunc(h.loose, func(span [2]time.Time) bool { return at[0].Before(span[1]) && at[1].After(span[0]) })
}

// A replay follows a consumer through its effects and what the operator has done.
type replay struct {
	rows   []int64
	wanted map[int64]bool // false: may be missed

	effects, missed, twice, disorder, unborn, paused int
}

func (r *replay) run(effects []hostileEffect) {
	last, paused, seen := int64(0), false, map[int64]bool{}
	for _, e := range effects {
		switch e.Kind {
		case "reset":
			last, seen = e.EventID, map[int64]bool{}
			continue
		case "paused", "resumed":
			paused = e.Kind == "paused"
			continue
		}
		r.effects++
		if paused {
			r.paused++
		}
		if _, known := r.wanted[e.EventID]; !known {
			r.unborn++
		}
		switch {
		case seen[e.EventID]:
			r.twice++
		case e.EventID <= last:
			r.disorder++
		default:
			r.missed += r.between(last, e.EventID)
			last = e.EventID
		}
		seen[e.EventID] = true
	}
	r.missed += r.between(last, 1<<62)
}

// between counts the rows between two that must have effects.
func (r *replay) between(a, b int64) (n int) {
	from, _ := slices.BinarySearch(r.rows, a+1)
	to, _ := slices.BinarySearch(r.rows, b)
	for _, id := range r.rows[from:to] {
		if r.wanted[id] {
			n++
		}
	}
	return n
}

func TestReplay_FindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"1 2 3 4":      "0 0 0 0 0",
		"1 3 4":        "0 0 0 0 0", // 2 may be missed
		"2 3 4":        "1 0 0 0 0",
		"1 2 3":        "1 0 0 0 0",
		"1 2 2 3 4":    "0 1 0 0 0",
		"1 3 2 4":      "0 0 1 0 0",
		"1 3 4 5":      "0 0 0 1 0",
		"1 3 r1 2 3 4": "0 0 0 0 0",
		"1 3 r1 4":     "1 0 0 0 0",
		"1 r3 4":       "0 0 0 0 0",
		"1 p0 u0 3 4":  "0 0 0 0 0",
		"1 p0 3 u0 4":  "0 0 0 0 1",
	} {
		r := replay{rows: []int64{1, 2, 3, 4}, wanted: map[int64]bool{1: true, 2: false, 3: true, 4: true}}
		var effects []hostileEffect
		for _, word := range strings.Fields(text) {
			kind := map[byte]string{'r': "reset", 'p': "paused", 'u': "resumed"}[word[0]]
			id, _ := strconv.ParseInt(strings.TrimLeft(word, "rpu"), 10, 64)
			effects = append(effects, hostileEffect{Kind: kind, EventID: id})
		}
		r.run(effects)
		if got := fmt.Sprint(r.missed, r.twice, r.disorder, r.unborn, r.paused); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// key is the cursor of a consumer.
func key(consumer string) engine.ConsumerKey {
	return engine.ConsumerKey{Consumer: consumer, Table: "hostile_events"}
}

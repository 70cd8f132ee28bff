// Package follow_test tests that followers of a table see each row once and miss none, whatever its writers do.
package follow_test

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/follow"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

func TestMain(m *testing.M) { harness.Main(m, nil) }

var hostileFor = flag.Duration("hostile.for", 3*time.Second, "how long the writers of TestFollow_MissesNoRowOfHostileWriters write")

type event struct {
	ID     int64 `gorm:"primaryKey;autoIncrement:false"`
	Writer int
	N      int
}

// A hostile database has writers and followers of the table events.
type hostile struct {
	*testing.T
	db     *gorm.DB
	engine string
	slow   bool // transactions may last for seconds

	layout generator.Layout
	serial atomic.Int64 // makes ids unique

	mu        sync.Mutex
	committed map[int64]time.Time
	open      map[int]bool // by writer: its transaction has inserted
	refused   int
	unheld    int // transactions that were open when a mark was published
}

// id returns a new id whose time is up to 1.5 s ago.
func (h *hostile) id() int64 {
	old := time.Duration(rand.Float64() * rand.Float64() * float64(1500*time.Millisecond))
	id, err := h.layout.Compose(generator.Parts{Time: time.Now().Add(-old), WorkerID: h.serial.Add(1) % h.layout.MaxWorkerID(), Sequence: rand.Int64N(16)})
	if err != nil {
		panic(err)
	}
	return id
}

var levels = []sql.IsolationLevel{sql.LevelDefault, sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable}

// write writes in transactions of all kinds until the context ends.
func (h *hostile) write(ctx context.Context, writer int) {
	for ctx.Err() == nil {
		var ids []int64
		length := time.Duration(0)
		if rand.IntN(3) == 0 {
			length = time.Duration(rand.Float64() * rand.Float64() * float64(50*time.Millisecond))
			if h.slow && rand.IntN(3) == 0 {
				length *= 50
			}
		}
		options := &sql.TxOptions{Isolation: levels[rand.IntN(len(levels))]}
		if h.engine == "sqlite" {
			options = nil
		}
		err := h.db.Transaction(func(tx *gorm.DB) error {
			if options != nil && rand.IntN(2) == 0 {
				var n int64
				if err := tx.Raw("SELECT COUNT(*) FROM events WHERE id > ?", h.id()).Scan(&n).Error; err != nil { // takes the snapshot
					return err
				}
				time.Sleep(length / 4)
			}
			for range 1 + rand.IntN(3) {
				batch := make([]event, 1)
				if rand.IntN(8) == 0 {
					batch = make([]event, 20)
				}
				for i := range batch {
					batch[i] = event{h.id(), writer, len(ids)}
				}
				create := tx
				if rand.IntN(4) == 0 {
					create = tx.Clauses(clause.OnConflict{UpdateAll: true})
				}
				nested := rand.IntN(5) == 0
				insert := func(tx *gorm.DB) error {
					if len(batch) == 1 && rand.IntN(4) == 0 {
						return tx.Exec("INSERT INTO events (id, writer, n) VALUES (?, ?, ?)", batch[0].ID, writer, -1).Error
					}
					return create.Session(&gorm.Session{}).Create(&batch).Error
				}
				var err error
				kept := true
				if nested {
					err = tx.Transaction(func(tx *gorm.DB) error {
						if err := insert(tx); err != nil {
							return err
						}
						if rand.IntN(2) == 0 {
							kept = false
							return errBack
						}
						return nil
					})
				} else {
					err = insert(tx)
				}
				if err != nil && err != errBack {
					return err
				}
				var there []int64
				if kept {
					for _, e := range batch {
						there = append(there, e.ID)
					}
				}
				if len(ids) == 0 {
					h.mu.Lock()
					h.open[writer] = true
					h.mu.Unlock()
				}
				ids = append(ids, there...)
				time.Sleep(length / 3)
			}
			if rand.IntN(8) == 0 {
				return errBack
			}
			return nil
		}, options)
		h.mu.Lock()
		delete(h.open, writer)
		switch {
		case err == nil:
			for _, id := range ids {
				h.committed[id] = time.Now()
			}
		case errors.Is(err, errBack):
		case strings.Contains(err.Error(), "too late"):
			h.refused++
		case sqldb.IsTransient(err), strings.Contains(err.Error(), "Duplicate"):
		default:
			h.Errorf("writer %d: %v", writer, err)
		}
		h.mu.Unlock()
		time.Sleep(time.Duration(rand.IntN(int(20 * time.Millisecond))))
	}
}

var errBack = errors.New("roll back")

// read returns the ids between two, in their order.
func (h *hostile) read(ctx context.Context, above, below int64) (ids []int64, err error) {
	err = h.db.WithContext(ctx).Raw("SELECT id FROM events WHERE id > ? AND id < ? ORDER BY id", above, below).Scan(&ids).Error
	return ids, err
}

func TestFollow_MissesNoRowOfHostileWriters(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		testkit.Must(t, db.AutoMigrate(&event{}))
		ctx := t.Context()
		conn, err := sqldb.Open(db, 5*time.Second)
		testkit.Must(t, err)
		table := follow.Table{Name: "events", Key: "id", Slack: time.Second}
		testkit.Must(t, follow.Enable(ctx, conn, table))
		h := &hostile{T: t, db: db, engine: d.Name, slow: d.Name != "sqlite", layout: generator.DefaultLayout(),
			committed: map[int64]time.Time{}, open: map[int]bool{}}

		writing, stop := context.WithTimeout(ctx, *hostileFor)
		defer stop()
		var group sync.WaitGroup
		for writer := range 12 {
			group.Go(func() { h.write(writing, writer) })
		}
		written := make(chan struct{})
		go func() { group.Wait(); close(written) }()

		var seen, naive []int64
		var delays []time.Duration
		var rounds int
		var readers sync.WaitGroup
		readers.Go(func() {
			m := follow.NewMark(conn, table, h.layout, time.Now)
			var cursor follow.Cursor
			end := time.Time{}
			for {
				select {
				case <-written:
					if end.IsZero() {
						end = time.Now().Add(2 * time.Second)
					}
				default:
				}
				if !end.IsZero() && time.Now().After(end) {
					return
				}
				published, err := m.Advance(ctx)
				if err != nil {
					if !sqldb.IsTransient(err) {
						t.Error(err)
					}
					continue
				}
				h.mu.Lock()
				h.unheld += len(h.open)
				h.mu.Unlock()
				rounds++
				if above, below, any := cursor.Bounds(published); any {
					ids, err := h.read(ctx, above, below)
					if err != nil {
						t.Error(err)
						continue
					}
					h.mu.Lock()
					for _, id := range ids {
						if at, ok := h.committed[id]; ok {
							delays = append(delays, time.Since(at))
						}
					}
					h.mu.Unlock()
					seen = append(seen, ids...)
					cursor.Read(lastOf(ids), len(ids), len(ids)+1, published)
				}
				time.Sleep(20 * time.Millisecond)
			}
		})
		readers.Go(func() {
			for {
				ids, err := h.read(ctx, lastOf(naive), 1<<62)
				if err != nil {
					continue
				}
				naive = append(naive, ids...)
				select {
				case <-written:
					return
				case <-time.After(5 * time.Millisecond):
				}
			}
		})
		readers.Wait()
		missed, twice, disorder, unborn := compare(h.committed, seen)
		missedNaive, _, _, _ := compare(h.committed, naive)
		slices.Sort(delays)
		median := time.Duration(0)
		if len(delays) > 0 {
			median = delays[len(delays)/2]
		}
		t.Logf("%d rows committed, %d refused, %d seen in %d rounds; missed %d, twice %d, out of order %d, not committed %d; id > last misses %d; %d transactions open at publication; median delay %v",
			len(h.committed), h.refused, len(seen), rounds, missed, twice, disorder, unborn, missedNaive, h.unheld, median)
		if missed+twice+disorder+unborn > 0 {
			t.Error("the follower is wrong")
		}
		if missedNaive == 0 || h.refused == 0 {
			t.Error("the writers were not hostile: id > last misses nothing, or no row was refused")
		}
	})
}

func lastOf(ids []int64) int64 {
	if len(ids) == 0 {
		return 0
	}
	return ids[len(ids)-1]
}

// compare counts the committed rows that were missed or seen twice, rows out of order, and rows that were not committed.
func compare(committed map[int64]time.Time, seen []int64) (missed, twice, disorder, unborn int) {
	count := map[int64]int{}
	for i, id := range seen {
		count[id]++
		if i > 0 && id <= seen[i-1] {
			disorder++
		}
	}
	for id := range committed {
		switch n := count[id]; {
		case n == 0:
			missed++
		case n > 1:
			twice++
		}
	}
	for id := range count {
		if _, ok := committed[id]; !ok {
			unborn++
		}
	}
	return missed, twice, disorder, unborn
}
